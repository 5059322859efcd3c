"""How much accuracy does a slate cost for how much diversity?

    python -m benchmarks.questions.slate_diversity

NDCG@10 and what the lists are like, for `MMR`, `DPP` and `Calibrated` over the whole range of their one number, on the
bundled Online Retail cut by time (its last tenth is asked for, repeats dropped); of `IALS`, whose embeddings say how
near items are, and of `ItemKNN`, for which the training data does.
"""

from __future__ import annotations

import argparse
from typing import Any

import shortlist as sl
from benchmarks.lib.machine import describe
from benchmarks.lib.markdown import figure, provenance, table
from benchmarks.lib.results import SLATES, store, stored

NUMBERS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
METRICS = ("ndcg@10", "distance@10", "popularity@10", "novelty@10", "miscalibration@10")
POOL = 100
MODELS: dict[str, sl.Recommender] = {
    "IALS": sl.IALS(dim=64, regularization=0.003, unobserved_weight=1.0, epochs=6),  # as in examples/
    "ItemKNN": sl.ItemKNN(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="keep what is measured for the board")
    args = parser.parse_args()
    describe("scipy", "numba", "polars")
    result = measured()
    print(tables(result))
    if args.record:
        store("curve", result, SLATES)


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
        parts += [f"**{model}**", table(head, lines)]
    parts.append(
        f"{found['contexts']:,} contexts, {found['pairs']:,} held-out pairs; * marks a loss of NDCG whose 95 % "
        "interval excludes 0."
    )
    return "\n\n".join(parts)


def curve() -> str:
    """The region of docs/benchmarks.md."""
    found = stored("curve", SLATES)
    return "\n\n".join([tables(found), provenance([("slates", found)])])


if __name__ == "__main__":
    main()
