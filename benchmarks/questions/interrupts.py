"""Does Ctrl-C always end a fit, and end it well?

    python -m benchmarks.questions.interrupts [--interrupts 500] [--at-once 2] [--seed 0]

Starts fits in processes of their own, through the command line and through Python, and sends each SIGINT at a random
moment; one in four gets a second one soon after. A run is good if it ends within 60 s, with exit code 130, with
Python's own end on Ctrl-C (signal 2), or with 0 where it was done before. Anything else is shown with the end of its
standard error, and makes this script fail.

Most interrupts should meet a kernel that is compiled or loaded. So each kind of run has a cache of kernels of its own,
empty at first. An interrupted run leaves in it what it compiled, and the next run comes further. When a run is done
before its signal, its cache is emptied, or, every other time, left as it is.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.lib.paths import SOURCES

PATIENCE = 60.0  # seconds
LATEST = 9.0  # seconds after the start; importing takes about two of them
GOOD = (0, 130, -signal.SIGINT)
COLUMNS = ("--context", "user", "--item", "item")
FITS = {
    "ials": COLUMNS,
    "bpr": COLUMNS,
    "slim": COLUMNS,
    "warp": COLUMNS,
    "parafac": ("--context", "user", "--context", "day", "--item", "item"),
}
IN_PYTHON = """
import sys, shortlist as sl
context = ["user", "day"] if sys.argv[2] == "PARAFAC" else "user"
events = sl.Interactions.read(sys.argv[1], context=context, item="item")
model = getattr(sl, sys.argv[2])().fit(events)
model.recommend(list(model.contexts_)[:3], n=3)
"""


@dataclass(frozen=True)
class Run:
    kind: str
    code: int | None  # None: it had to be killed
    seconds: float  # from the signal to the end
    errors: str

    @property
    def outcome(self) -> str:
        if self.code is None:
            return "did not end"
        return f"signal {-self.code}" if self.code < 0 else f"exit {self.code}"

    @property
    def good(self) -> bool:
        return self.code in GOOD


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interrupts", type=int, default=500)
    parser.add_argument("--at-once", type=int, default=2, help="how many processes run at a time")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_events(Path(folder) / "events.csv")
        kinds = list(commands(Path(folder)))

        def turns(slot: int) -> list[Run]:
            draws = random.Random(args.seed * 1000 + slot)
            numbers = range(slot, args.interrupts, args.at_once)
            return [told(k, interrupted(Path(folder), slot, kinds[k % len(kinds)], draws)) for k in numbers]

        with ThreadPoolExecutor(args.at_once) as pool:
            runs = [run for some in pool.map(turns, range(args.at_once)) for run in some]
    print(table(runs))
    if not all(run.good for run in runs):
        sys.exit("some runs did not end well")


def told(number: int, run: Run) -> Run:
    print(f"{number:4} {run.kind:16} {run.outcome:12} {run.seconds:6.2f} s", flush=True)
    if not run.good:
        print(run.errors, flush=True)
    return run


def write_events(path: Path) -> None:
    rng = np.random.default_rng(1)
    users, items = rng.integers(200, size=3000), (80 * rng.random(3000) ** 2).astype(int)
    rows = "".join(f"{user},{item},{day}\n" for user, item, day in zip(users, items, rng.integers(7, size=3000)))
    path.write_text("user,item,day\n" + rows, encoding="utf-8")


def commands(folder: Path) -> dict[str, list[str]]:
    """How each kind of run is started; the folder of its output comes last."""
    data, shortlist = str(folder / "events.csv"), [sys.executable, "-m", "shortlist"]
    found = {
        f"fit {name}": [*shortlist, "fit", data, *columns, "--model", name, "--out"] for name, columns in FITS.items()
    }
    for workers in ("1", "2"):
        more = ["--model", "ials", "--trials", "6", "--workers", workers, "--out"]
        found[f"tune, workers {workers}"] = [*shortlist, "tune", data, *COLUMNS, *more]
    for name in ("IALS", "BPR", "SLIM", "WARP", "PARAFAC"):
        found[f"Python {name}"] = [sys.executable, "-c", IN_PYTHON, data, name]
    return found


def interrupted(folder: Path, slot: int, kind: str, draws: random.Random) -> Run:
    """Start a process, interrupt it, wait for its end."""
    place = folder / f"{slot}-{kind}"
    kernels, out, errors = place / "kernels", place / "out", place / "errors.txt"
    shutil.rmtree(out, ignore_errors=True)
    kernels.mkdir(parents=True, exist_ok=True)
    wanted = {"NUMBA_CACHE_DIR": str(kernels), "PYTHONPATH": str(SOURCES), "PYTHONFAULTHANDLER": "1"}
    with errors.open("wb") as stream:
        process = subprocess.Popen(
            [*commands(folder)[kind], str(out)],
            stdout=stream,
            stderr=stream,
            env=os.environ | wanted,
            preexec_fn=heed,  # noqa: PLW1509  (no thread of this process holds a lock that it needs)
        )
        time.sleep(draws.uniform(0.1, LATEST))
        running = process.poll() is None
        sent = time.perf_counter()
        process.send_signal(signal.SIGINT)
        if draws.random() < 0.25:
            time.sleep(draws.uniform(0, 1))
            process.send_signal(signal.SIGINT)
        try:
            code: int | None = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # so that it shows where its threads are
            process.wait()
            code = None
    if not running and draws.random() < 0.5:
        shutil.rmtree(kernels)
    last = errors.read_text(encoding="utf-8", errors="replace")[-6000:]
    return Run(kind, code, time.perf_counter() - sent, last)


def heed() -> None:
    """A shell's background jobs ignore Ctrl-C, and so would their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def table(runs: list[Run]) -> str:
    outcomes = sorted({run.outcome for run in runs})
    lines = [" | ".join(["run", *outcomes, "slowest end (s)"]), " | ".join(["---"] * (len(outcomes) + 2))]
    for kind in [*dict.fromkeys(run.kind for run in runs), "all"]:
        some = [run for run in runs if kind in (run.kind, "all")]
        counts = Counter(run.outcome for run in some)
        slowest = max(run.seconds for run in some)
        lines.append(" | ".join([kind, *(str(counts[one]) for one in outcomes), f"{slowest:.1f}"]))
    return "\n".join(f"| {line} |" for line in lines)


if __name__ == "__main__":
    main()
