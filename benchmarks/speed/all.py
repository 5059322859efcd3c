"""How fast is the library now, against all the peers and bounds on docs/benchmarks.md?

    python -m benchmarks.speed.all [--only evaluation ...] [--data FOLDER]

Each script stores its ratios in benchmarks/results; then the page is rendered. A script whose data or whose peer is
missing is left out, with a message.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

from benchmarks.quality import page

COMMANDS = {  # name: modules of benchmarks, with their arguments
    "evaluation": ["speed.evaluation"],
    "batch": [
        "speed.batch time --n 20",
        "speed.batch time --n 100",
        "speed.batch time --n 100 --ids text",
        "speed.batch memory",
    ],
    "retrieval": ["speed.retrieval exact", "speed.retrieval spaces", "speed.retrieval race"],
    "neighbours": ["speed.neighbours"],
    "reading": ["speed.reading"],
    "reading_memory": ["speed.reading_memory"],
    "ials": ["speed.ials race", "speed.ials exact", "speed.ials bound"],
    "sgd": ["speed.sgd speed", "speed.sgd race"],
    "multilinear": ["speed.multilinear epochs", "speed.multilinear growth"],
    "slates": ["questions.slate_diversity", "speed.slates"],
    "fold_in": ["speed.fold_in"],
    "loading": ["speed.loading"],
}
PEER = {"ials": "irspack", "sgd": "lightfm", "multilinear": "shortlist"}  # what scripts that read data need beside it
LIBRARIES = {"retrieval": "scann"}  # what others need


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="for ials, sgd and multilinear")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    args = parser.parse_args()
    measure(args.only, args.data)
    page.write()


def measure(names: list[str], data: Path | None) -> None:
    """Run the scripts, each of which stores its ratios."""
    for name in names:
        if name in PEER and (data is None or importlib.util.find_spec(PEER[name]) is None):
            print(f"{name}: needs --data and {PEER[name]}, left out; make bench-{name} has both")
            continue
        if name in LIBRARIES and importlib.util.find_spec(LIBRARIES[name]) is None:
            print(f"{name}: needs {LIBRARIES[name]}, left out; make bench-{name} has it")
            continue
        for command in COMMANDS[name]:
            module, *words = shlex.split(command)
            folder = ["--data", str(data)] if name in PEER and words != ["bound"] else []
            subprocess.run([sys.executable, "-m", f"benchmarks.{module}", *words, *folder, "--record"], check=True)
            page.write()


if __name__ == "__main__":
    main()
