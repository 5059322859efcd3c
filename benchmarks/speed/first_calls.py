"""How long does Numba compile when a recommender is used for the first time?

    python -m benchmarks.speed.first_calls [--only BPR WARP] [--what fit history] [--runs 1] [--sources FOLDER]

For each recommender: the CPU-seconds of the first and of the second fit, evaluation, `recommend` of known contexts and
of a history, index (made and searched; `quantized` is the one for large catalogues) and slate (MMR), and the
difference, which is what compiling takes. Each is measured in a process of its own whose cache of kernels is empty at
first. The model is fitted and saved by another process, with another cache; so what is asked of a loaded model counts
only what answering compiles. The data is small, so that the second call is short.

CPU-seconds do not grow much on a busy machine, but some: take a quiet one. With several `--runs`, the medians are
shown. `--sources` measures another checkout: the folder that holds its `shortlist`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.lib.machine import describe
from benchmarks.lib.markdown import table as page_table
from benchmarks.lib.paths import SOURCES

WHAT = ("fit", "evaluate", "known", "history", "index", "quantized", "slate")
PARTS = ("PARAFAC", "Tucker", "FactorizationMachine")  # whose contexts have two parts here
CONTEXTS, ITEMS, EVENTS = 600, 300, 12_000
FITTED = "fitted"  # the folder of the model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these recommenders")
    parser.add_argument("--what", nargs="+", choices=WHAT, default=WHAT)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--sources", type=Path, default=SOURCES)
    parser.add_argument("--child", nargs=3, metavar=("NAME", "WHAT", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        name, what, folder = args.child
        print(json.dumps(measured(name, what, Path(folder))))
        return
    from shortlist.recommenders.registry import REGISTRY, recommender_class

    describe("numba", "llvmlite")
    names = [recommender_class(name).__name__ for name in args.only or REGISTRY]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        write_events(Path(folder))
        for name in names:
            cells = []
            for what in WHAT:
                if what in args.what or what == "fit":  # the others need the model that it saves
                    runs = [alone(name, what, Path(folder), args.sources) for _ in range(args.runs)]
                    cells.append(told(name, what, [run for run in runs if run]))
                else:
                    cells.append("")
            lines.append([f"`{name}`", *cells])
    print("\nCPU-seconds of the first call less those of the second\n")
    print(page_table(["recommender", *WHAT], lines))


def told(name: str, what: str, runs: list[list[float]]) -> str:
    """Print a measurement; return the difference for the table."""
    if not runs:
        return "–"
    first, second = (statistics.median(run[k] for run in runs) for k in (0, 1))
    difference = statistics.median(run[0] - run[1] for run in runs)
    print(f"{name:<22}{what:<10} first {first:6.2f}  second {second:6.2f}  difference {difference:6.2f}", flush=True)
    return f"{difference:.1f}"


def write_events(folder: Path) -> None:
    """Write random events with a taste: a user of an even number likes even items."""
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(1)
    users = rng.integers(CONTEXTS, size=EVENTS)
    items = 2 * (ITEMS // 2 * rng.random(EVENTS) ** 2).astype(int) + users % 2
    frame = pl.DataFrame({"user": users, "day": rng.integers(7, size=EVENTS), "item": items})
    frame.write_parquet(folder / "events.parquet")


def alone(name: str, what: str, folder: Path, sources: Path) -> list[float]:
    """Measure in a fresh process with an empty cache; nothing where the recommender cannot do it."""
    with tempfile.TemporaryDirectory() as cache:
        wanted = {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(sources)}
        command = [sys.executable, "-m", "benchmarks.speed.first_calls", "--child", name, what, str(folder)]
        child = subprocess.run(command, env=os.environ | wanted, stdout=subprocess.PIPE, text=True, check=True)
    found: list[float] = json.loads(child.stdout)
    return found


def measured(name: str, what: str, folder: Path) -> list[float]:
    """Return the CPU-seconds of the first and the second call."""
    import shortlist as sl

    import_module("shortlist.evaluation.comparison")  # and the modules that it needs: importing is not compiling
    columns: Any = ["user", "day"] if name in PARTS else "user"
    events = sl.Interactions.read(folder / "events.parquet", context=columns, item="item")
    split = sl.splits.at_random(events, test=0.2, seed=1)
    if what == "fit":
        found = [cpu_seconds(lambda: getattr(sl, name)().fit(split.train)) for _ in range(2)]
        target = folder / f"{FITTED}-{name}"
        if not target.exists():
            getattr(sl, name)().fit(split.train).save(target)
        return found
    model = sl.load(folder / f"{FITTED}-{name}")
    ask = question(what, model, split)
    return [] if ask is None else [cpu_seconds(ask) for _ in range(2)]


def question(what: str, model: Any, split: Any) -> Callable[[], object] | None:
    """Return the call to be measured; None where the model has no such thing."""
    import shortlist as sl

    known, items = model.contexts_.ids()[:3], model.items_.ids()[:5]
    if what == "evaluate":
        return lambda: sl.evaluate(model, split)
    if what == "known":
        return lambda: model.recommend(known, n=10)
    if what == "history":
        return lambda: model.recommend(history=[items], n=10)
    if what == "slate":
        return lambda: model.recommend(known, n=10, slate=sl.slates.MMR(0.3))
    if not hasattr(model, "index"):
        return None
    kind = "auto" if what == "index" else "quantized"
    return lambda: model.index(kind, n=10).search(known, n=10)


def cpu_seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


if __name__ == "__main__":
    main()
