"""How fast, and in how much memory, are lists for all users written, beside a bare matrix product?

    python -m benchmarks.speed.batch time [--n 100 --ids integers --contexts 100000 --items 100000 --dim 64 --runs 5]
    python -m benchmarks.speed.batch memory [--contexts 1000000 --asked 100000]

`time`: `write_lists` to one Parquet file, seen items left out, and the bound: the fastest bare `numpy.matmul(...,
out=)` of contexts × items over a grid of block sizes, found first and then timed in turns with the other. Two threads.
Twice as many contexts take twice as long on both sides.

`memory`: in a process of its own the most memory that `write_lists` takes beyond what the process holds before, which
is the model; ids are text. Blocks are alike, so that some of the contexts of a large model tell.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import shortlist as sl
from benchmarks.lib.machine import describe, interleaved, quotients, record, table
from benchmarks.lib.paths import ROOT
from benchmarks.speed.evaluation import gemm_bound

LIMIT = 2e9  # bytes beyond the model
EVENTS = 20  # a context
PACKAGES = ("scipy", "numba", "polars")

MEMORY = """
import json, sys
import numpy as np
import shortlist as sl
from benchmarks.speed.batch import make_model

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

contexts, items, dim, n, asked = map(int, sys.argv[1:6])
model = make_model(contexts, items, dim, "text")
whom = model.contexts_.frame[:asked]
sl.write_lists(model, sys.argv[6] + "/warm.parquet", n, contexts=whom[:100], threads=2)  # compiled, loaded
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
done = sl.write_lists(model, sys.argv[6] + "/lists.parquet", n, contexts=whom, threads=2)
print(json.dumps({"model": before, "peak": status("VmHWM") - before, "rows": done.rows, "seconds": done.seconds}))
"""


def make_model(contexts: int, items: int, dim: int, ids: str) -> sl.IALS:
    """A model of synthetic events; how good it is does not matter here: one epoch of a small one, padded."""
    events = sl.datasets.synthetic(contexts, items, contexts * EVENTS, seed=1)
    if ids == "text":
        spelled = [
            pl.DataFrame({what: [f"{what}-{k:07d}" for k in range(len(known))]})
            for what, known in (("customer", events.contexts), ("product", events.items))
        ]
    model = sl.IALS(dim=min(16, dim), epochs=1).fit(events)
    rng = np.random.default_rng(0)
    vars(model)["dim"] = dim  # settings of a fitted model cannot be set
    for name in ("context_embeddings_", "item_embeddings_"):
        learnt = getattr(model, name)
        noise = 0.01 * rng.standard_normal((len(learnt), dim - learnt.shape[1]), dtype=np.float32)
        setattr(model, name, np.ascontiguousarray(np.hstack([learnt, noise])))
    if ids == "text":
        model.contexts_, model.items_ = map(sl.Vocabulary, spelled)
    return model


def measure_time(args: argparse.Namespace) -> None:
    model = make_model(args.contexts, args.items, args.dim, args.ids)
    shape, bound = gemm_bound(model.context_embeddings_, model.item_embeddings_, sample=2048)
    describe(*PACKAGES)
    size = f"{len(model.contexts_):,} contexts × {len(model.items_):,} items, d = {args.dim}"
    print(f"{size}, n = {args.n}, ids are {args.ids}; the bound's block is {shape}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lists.parquet"
        runs = interleaved(
            args.runs,
            **{
                "GEMM bound": bound,
                "write_lists": lambda: sl.write_lists(model, path, args.n, overwrite=True, threads=2),
            },
        )
        print(f"{path.stat().st_size / 1e6:.1f} MB, {args.n * len(model.contexts_):,} rows")
    table(runs, "GEMM bound")
    if args.record:
        record(
            f"batch-gemm-{args.n}-{args.ids}",
            question=f"lists of {args.n} for every user, {size}, ids are {args.ids}, seen items excluded",
            ours="`write_lists`",
            against="bare `numpy.matmul`",
            what="time / bound",
            ratios=quotients(runs["write_lists"], runs["GEMM bound"]),
            packages=PACKAGES,
        )


def measure_memory(args: argparse.Namespace) -> None:
    describe(*PACKAGES)
    with tempfile.TemporaryDirectory() as folder:
        words = [args.contexts, args.items, args.dim, args.n, args.asked]
        command = [sys.executable, "-c", MEMORY, *map(str, words), folder]
        child = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found = json.loads(child.stdout)
    size = f"{args.contexts:,} contexts × {args.items:,} items, d = {args.dim}"
    print(
        f"{size}, n = {args.n}, lists for {args.asked:,}: the process with its model takes "
        f"{found['model'] / 1e6:,.0f} MB, write_lists {found['peak'] / 1e6:,.0f} MB more"
    )
    if args.record:
        record(
            "batch-memory",
            question=f"lists of {args.n} for every user, {size}",
            ours="`write_lists`",
            against="2 GB beyond the model",
            what="memory / limit",
            ratios=[found["peak"] / LIMIT],
            packages=PACKAGES,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, contexts in (("time", 100_000), ("memory", 1_000_000)):
        one = commands.add_parser(name)
        one.add_argument("--contexts", type=int, default=contexts)
        one.add_argument("--items", type=int, default=100_000)
        one.add_argument("--dim", type=int, default=64)
        one.add_argument("--n", type=int, default=100)
        one.add_argument("--record", action="store_true", help="keep the ratios for the board")
        if name == "time":
            one.add_argument("--ids", choices=("integers", "text"), default="integers")
            one.add_argument("--runs", type=int, default=5)
        else:
            one.add_argument("--asked", type=int, default=100_000)
    args = parser.parse_args()
    measure_time(args) if args.command == "time" else measure_memory(args)


if __name__ == "__main__":
    main()
