"""What does a slate cost: how much accuracy for how much diversity, and how much time beside the search?

    python benchmarks/slates.py curve
    python benchmarks/slates.py speed [--runs 5]

`curve`: NDCG@10 and what the lists are like, for `MMR`, `DPP` and `Calibrated` over the whole range of their one
number, on the bundled Online Retail cut by time (its last tenth is asked for, repeats dropped); of `IALS`, whose
embeddings say how near items are, and of `ItemKNN`, for which the training data does.

`speed`: the time of picking 10 out of pools of 100 as a ratio to the exact search that found the pools, two threads, in
turns; on Online Retail, and on synthetic pairs with a larger catalogue.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import shortlist as sl
from machine import about, describe, interleaved, quotients, record, table
from rendering import figure, provenance
from rendering import table as page_table
from shortlist.retrieval import Filters, top_n

RESULT = Path(__file__).parent / "results" / "slates" / "curve.json"
NUMBERS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
METRICS = ("ndcg@10", "distance@10", "popularity@10", "novelty@10", "miscalibration@10")
POOL, N = 100, 10
MODELS: dict[str, sl.Recommender] = {
    "IALS": sl.IALS(dim=64, regularization=0.003, unobserved_weight=1.0, epochs=6),  # as in examples/
    "ItemKNN": sl.ItemKNN(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("curve", "speed"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep what is measured for the board")
    args = parser.parse_args()
    describe("scipy", "numba", "polars")
    if args.what == "speed":
        speed(args.runs, args.record)
        return
    found = measured()
    print(tables(found))
    if args.record:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(found | about("scipy", "numba", "polars"), indent=1, ensure_ascii=False) + "\n"
        RESULT.write_text(text, encoding="utf-8")


# --- the trade-off ---------------------------------------------------------------------------------------------------


def measured() -> dict[str, Any]:
    split = sl.splits.by_time(sl.datasets.load("online-retail").interactions, test=0.1, repeats="drop")
    rows = []
    for name, model in MODELS.items():
        model.fit(split.train, progress=False)
        plain = sl.evaluate(model, split, METRICS)
        for slate, kind in sl.slates.SLATES.items():
            for number in NUMBERS:
                result = sl.evaluate(model, split, METRICS, slate=kind(number, POOL))
                cost = sl.compare(plain, result, names=["plain", "slate"])
                row = next(one for one in cost.rows if one["metric"] == "ndcg@10" and one["model"] == "slate")
                rows.append(
                    {
                        "model": name,
                        "slate": slate,
                        "number": number,
                        **dict(result),
                        "difference": result["ndcg@10"] - plain["ndcg@10"],
                        "worse": bool(row["worse"]),
                    }
                )
    return {"rows": rows, "contexts": split.truth.n_contexts, "pairs": len(split.truth)}


def tables(found: dict[str, Any]) -> str:
    """A table a model."""
    parts = []
    names = {"mmr": "`MMR`", "dpp": "`DPP`", "calibrated": "`Calibrated`"}
    for model in MODELS:
        lines = []
        for row in found["rows"]:
            if row["model"] == model and (row["number"] or row["slate"] == "mmr"):
                slate = names[row["slate"]] if row["number"] else "the best 10"
                share = row["difference"] / (row["ndcg@10"] - row["difference"])
                cost = f"{100 * share:+.1f} %".replace("-", "−") + (" *" if row["worse"] else "")
                figures = [figure(row[metric]) for metric in METRICS]
                lines.append([slate, f"{row['number']:g}", figures[0], cost if row["number"] else "", *figures[1:]])
        head = ["slate", "number", METRICS[0], "change", *METRICS[1:]]
        parts += [f"**{model}**", page_table(head, lines)]
    parts.append(
        f"{found['contexts']:,} contexts, {found['pairs']:,} pairs asked for; * marks a loss of NDCG whose 95 % "
        "interval leaves out 0."
    )
    return "\n\n".join(parts)


def curve() -> str:
    """The region of docs/benchmarks.md."""
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    return "\n\n".join([tables(found), provenance([("slates", found)])])


# --- time ------------------------------------------------------------------------------------------------------------


def speed(runs: int, keep: bool) -> None:
    retail = sl.datasets.load("online-retail").interactions
    for name, events, n_queries in (
        ("online-retail", retail, retail.n_contexts),
        ("synthetic", sl.datasets.synthetic(50_000, 20_000, 4_000_000, seed=0), 10_000),
    ):
        for model in (sl.IALS(dim=128, epochs=2), sl.ItemKNN()):
            fitted = type(model).__name__
            model.fit(events, progress=False)
            queries = model._queries(model.contexts_.ids()[:n_queries], None, "raise")
            scorer = model._scorer(queries)
            filters = Filters(exclude=(queries.histories.indptr, queries.histories.indices))

            def search(model=model, scorer=scorer, filters=filters) -> tuple[np.ndarray, np.ndarray]:
                return top_n(scorer, POOL, filters=filters, priority=model._priority, threads=2)

            pools = search()
            asked = f"{n_queries:,} queries × {events.n_items:,} items"
            print(f"\n{name}, {asked}, {fitted}" + (", d = 128" if fitted == "IALS" else ""))
            slates = {
                repr(slate): slate for slate in (sl.slates.MMR(0.3), sl.slates.DPP(0.3), sl.slates.Calibrated(0.5))
            }
            contestants = {
                text: lambda model=model, slate=slate, pools=pools, queries=queries: model._slate(
                    slate, *pools, queries, N, threads=2
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
