"""How many bytes a row does reading 100 million events take?

    python -m benchmarks.speed.reading_memory [--rows 100000000]

Synthetic events with string ids in a Parquet file, read in a fresh process with and without times, both sparse views
built; the peak of resident memory above what the imports take, per row. The limit is 36 bytes a row and three times
the vocabularies, 60 bytes with times.
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

from benchmarks.lib.machine import describe, record
from shortlist.data.synthetic import synthetic_codes

CHILD = """
import json, sys, time
import polars, numpy, numba, scipy.sparse
import shortlist as sl
path, when = sys.argv[1], sys.argv[2] or None
small = sl.Interactions.from_frame({"u": [1], "i": [1]}, context="u", item="i"); small.by_context, small.by_item
def peak():  # not ru_maxrss, which remembers the parent
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
base = peak(); began = time.perf_counter()
events = sl.Interactions.read(path, context="user", item="product", time=when)
read, seconds = peak(), time.perf_counter() - began
events.by_context, events.by_item
ids = sum(frame.estimated_size() for frame in (events.contexts.frame, events.items.frame))
print(json.dumps({"rows": len(events), "base": base, "read": read, "views": peak(), "ids": ids, "seconds": seconds}))
"""


def write(path: Path, rows: int) -> None:
    """A file in many row groups, without ever holding the strings of all rows."""
    contexts, items = synthetic_codes(max(1000, rows // 100), 100_000, rows, seed=0)
    order = np.random.default_rng(0).permutation(rows)
    step = 5_000_000
    paths = []
    for start in range(0, rows, step):
        part = order[start : start + step]
        paths.append(path / f"part-{start // step:04d}.parquet")
        pl.DataFrame({"c": contexts[part], "i": items[part], "when": 1_500_000_000 + part}).select(
            user=pl.format("user-{}", "c"), product=pl.format("product-{}", "i"), when="when"
        ).write_parquet(paths[-1], row_group_size=500_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--record", action="store_true", help="keep the ratios for the board")
    arguments = parser.parse_args()
    describe("polars")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), arguments.rows)
        for when, limit in (("", 36), ("when", 60)):
            done = subprocess.run(
                [sys.executable, "-c", CHILD, folder, when], capture_output=True, text=True, check=True
            )
            got = json.loads(done.stdout)
            allowed = limit + 3 * got["ids"] / got["rows"]
            print(
                f"{got['rows']:,} rows {'with' if when else 'without'} times: peak after reading "
                f"{(got['read'] - got['base']) / got['rows']:.1f} bytes a row, with both views "
                f"{(got['views'] - got['base']) / got['rows']:.1f}; limit {allowed:.1f}; read in {got['seconds']:.1f} s"
            )
            if arguments.record:
                times = "with times" if when else "without times"
                record(
                    f"memory-{times.replace(' ', '-')}",
                    question=f"reading {got['rows']:,} events {times}, both sparse views",
                    ours="`Interactions.read`",
                    against=f"{limit} bytes a row and 3 × the ids",
                    what="memory / limit",
                    ratios=[(got["views"] - got["base"]) / got["rows"] / allowed],
                    packages=("polars",),
                )


if __name__ == "__main__":
    main()
