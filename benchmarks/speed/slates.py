"""How long does picking a slate take, beside the search that found its candidates?

    python -m benchmarks.speed.slates [--runs 5]

The time of picking 10 out of pools of 100 as a ratio to the exact search that found the pools, two threads, in turns;
on Online Retail, and on synthetic pairs with a larger catalogue.
"""

from __future__ import annotations

import argparse

import numpy as np

import shortlist as sl
from benchmarks.lib.machine import describe, interleaved, quotients, record, table
from shortlist.ranking.engine import slate_of
from shortlist.ranking.protocols import TopItems
from shortlist.ranking.request import Request
from shortlist.retrieval import top_n

POOL, N = 100, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep what is measured for the board")
    args = parser.parse_args()
    describe("scipy", "numba", "polars")
    speed(args.runs, args.record)


def speed(runs: int, keep: bool) -> None:
    retail = sl.datasets.load("online-retail").interactions
    for name, events, n_queries in (
        ("online-retail", retail, retail.n_contexts),
        ("synthetic", sl.datasets.synthetic(50_000, 20_000, 4_000_000, seed=0), 10_000),
    ):
        for model in (sl.IALS(dim=128, epochs=2), sl.ItemKNN()):
            fitted = type(model).__name__
            model.fit(events, progress=False)
            queries = model.queries(model.contexts_.ids()[:n_queries])
            scorer = model.scorer(queries)
            filters = model.filters(queries, Request())

            def search(model=model, scorer=scorer, filters=filters) -> tuple[np.ndarray, np.ndarray]:
                return top_n(scorer, POOL, filters=filters, priority=model.item_priority_, threads=2)

            pools = search()
            asked = f"{n_queries:,} queries × {events.n_items:,} items"
            print(f"\n{name}, {asked}, {fitted}" + (", d = 128" if fitted == "IALS" else ""))
            slates = {
                repr(slate): slate for slate in (sl.slates.MMR(0.3), sl.slates.DPP(0.3), sl.slates.Calibrated(0.5))
            }
            contestants = {
                text: lambda model=model, slate=slate, pools=pools, queries=queries: slate_of(
                    model.catalogue, TopItems(*pools), queries.histories, Request(n=N, slate=slate, threads=2)
                )
                for text, slate in slates.items()
            }
            seconds = interleaved(runs, **{"search": search}, **contestants)
            table(seconds, "search")
            for text, slate in slates.items():
                if keep:
                    record(
                        f"slates-{name}-{fitted.lower()}-{type(slate).__name__.lower()}",
                        question=f"a slate of {N} out of {POOL}, {name}, {asked}, {fitted}"
                        + (" with d = 128" if fitted == "IALS" else ""),
                        ours=f"`{type(slate).__name__}`",
                        against="the exact search for the pools",
                        what="slate's time / search's",
                        ratios=quotients(seconds[text], seconds["search"]),
                        packages=("scipy", "numba"),
                    )


if __name__ == "__main__":
    main()
