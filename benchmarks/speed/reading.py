"""How fast is reading a file of events beside polars, the reader underneath?

    python -m benchmarks.speed.reading [--rows 10000000 --runs 5]

A Parquet file of synthetic events with string ids, to `Interactions`; against polars' own read of the two columns and a
dictionary encoding (cast to Categorical) of each, all in the page cache.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import polars as pl

import shortlist as sl
from benchmarks.lib.machine import describe, interleaved, quotients, record, table


def write_events(path: Path, rows: int, contexts: int, items: int) -> None:
    events = sl.datasets.synthetic(contexts, items, rows, seed=0).to_polars()
    events.select(
        user=pl.format("user-{}", "context"),
        product=pl.format("product-{}", "item"),
    ).sample(fraction=1, shuffle=True, seed=0).write_parquet(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--contexts", type=int, default=138_000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep the ratios for the board")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.parquet"
        write_events(path, arguments.rows, arguments.contexts, arguments.items)

        def polars_alone() -> None:
            frame = pl.read_parquet(path, columns=["user", "product"])
            for name in frame.columns:
                frame[name].cast(pl.Categorical(pl.Categories.random()))

        def ours() -> None:
            sl.Interactions.read(path, context="user", item="product")

        describe("polars")
        print(f"{arguments.rows:,} events with string ids, {path.stat().st_size / 2**20:.0f} MiB of Parquet")
        bound = "polars read + 2 encodings"
        seconds = interleaved(arguments.runs, **{bound: polars_alone, "Interactions.read": ours})
        table(seconds, bound)
    if arguments.record:
        record(
            "reading-polars",
            question=f"reading {arguments.rows:,} events with string ids from Parquet",
            ours="`Interactions.read`",
            against="polars' read and two encodings",
            what="time / bound",
            ratios=quotients(seconds["Interactions.read"], seconds[bound]),
            packages=("polars",),
        )


if __name__ == "__main__":
    main()
