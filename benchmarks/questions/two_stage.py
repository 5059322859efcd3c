"""Does a second stage put the candidates of iALS into a better order?

    python -m benchmarks.questions.two_stage [--trials 16] [--seeds 3]

LambdaMART ranks the candidates of iALS on Online Retail, the bundled events cut by time: the last tenth is the test
part, the tenth before it is held out. Settings of IALS (d = 64) are chosen on the held-out part from as many trials,
once by NDCG@20, which is what a single stage is for, and once by Recall@200, which is what stage one is for. Stage two
learns from the held-out part too, on top of an IALS that was fitted to all before it; then the same stage two stands on
an IALS fitted to everything before the test part. LambdaMART has its default settings throughout. Features are added
group by group; what is of a moment, such as recent sales, is counted up to where the training events end.

In two protocols: with all items (repeats kept), and with those only that the customer had never bought (dropped). In
the first, candidates that the customer has bought, by how often, are a control: an order that nobody has to learn.
Intervals are of means over customers, drawn again and again.
"""

from __future__ import annotations

import argparse
import datetime as dt
from typing import Any

import numpy as np
import polars as pl

import shortlist as sl
from benchmarks.lib.bootstrap import interval
from benchmarks.lib.halton_search import SQUARE, best, searched
from benchmarks.lib.results import RERANKING, store

FIXED = {"dim": 64}
CANDIDATES = 200
CHOSEN_BY = {"ndcg@20": "NDCG@20", f"recall@{CANDIDATES}": f"Recall@{CANDIDATES}"}
WORDS: dict[str, Any] = {"dropped": "drop", "kept": "keep"}
OWN = "own purchases first, by count"
GROUPS = ("pairs", "further models", "items and countries", "recent sales")


class OwnFirst:
    """A control that learns nothing: what the customer has bought, the most often first; then stage one's order."""

    def fit(self, candidates: sl.Candidates, relevance: np.ndarray) -> None:
        """Nothing."""

    def score(self, candidates: sl.Candidates) -> np.ndarray:
        """A purchase more counts more than any rank."""
        return CANDIDATES * candidates.column("seen").astype(np.float64) - candidates.ranks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    data = sl.datasets.load("online-retail")
    frame = data.interactions.to_polars().select("customer", "product", "time")
    events = sl.Interactions.from_frame(frame, context="customer", item="product", time="time")  # weights: how often
    protocols, sizes = [], []
    for repeats, word in WORDS.items():
        test = sl.splits.by_time(events, 0.1, repeats=word)
        held = sl.splits.by_time(test.train, 0.1, repeats=word)
        sizes.append({"repeats": repeats, "held": held.truth.n_contexts, "test": test.truth.n_contexts})
        protocols.append(measured(data, held, test, repeats, args.trials, args.seeds))
    counts = {"train": len(held.train), "held out": len(test.train) - len(held.train)}
    counts["test"] = len(events) - len(test.train)
    content = {"protocols": protocols, "sizes": sizes, "events": counts, "candidates": CANDIDATES}
    store("two_stage", content, RERANKING, ("scipy", "numba", "polars", "lightgbm"))


def measured(
    data: sl.datasets.Dataset, held: sl.Split, test: sl.Split, repeats: str, trials: int, seeds: int
) -> dict[str, Any]:
    def judged(settings: dict[str, Any]) -> dict[str, float]:
        model = sl.IALS(**FIXED | settings).fit(held.train, progress=False)
        return dict(sl.evaluate(model, held, list(CHOSEN_BY)))

    found = searched(f"IALS, repeats {repeats}", SQUARE, judged, trials)
    settings = {metric: best(found, metric) for metric in CHOSEN_BY}
    values: dict[str, list[dict[str, np.ndarray]]] = {}
    facts: dict[str, dict[str, Any]] = {}
    for seed in range(seeds):
        for metric, name in CHOSEN_BY.items():
            model = sl.IALS(**FIXED | settings[metric], seed=seed).fit(test.train, progress=False)
            result = sl.evaluate(model, test, list(CHOSEN_BY))
            values.setdefault(f"IALS chosen by {name}", []).append({one: result.of(one) for one in result})
        chosen = FIXED | settings[f"recall@{CANDIDATES}"] | {"seed": seed}
        early, late = (sl.IALS(**chosen).fit(part.train, progress=False) for part in (held, test))
        if repeats == "kept":
            by_count = sl.TwoStage(early, OwnFirst(), candidates=CANDIDATES).fit(held).with_first(late)
            result = sl.evaluate(by_count, test, list(CHOSEN_BY))
            values.setdefault(OWN, []).append({one: result.of(one) for one in CHOSEN_BY})
        for k, group in enumerate(GROUPS):
            before, after = (described(data, part, GROUPS[: k + 1]) for part in (held, test))
            two = sl.TwoStage(early, sl.LambdaMART(seed=seed), candidates=CANDIDATES, **before).fit(held)
            result = sl.evaluate(two.with_first(late, **after), test, list(CHOSEN_BY))
            label = f"+ LambdaMART: {group}" if not k else f"… and {group}"
            values.setdefault(label, []).append({one: result.of(one) for one in CHOSEN_BY})
            assert isinstance(two.reranker, sl.LambdaMART)
            first = two.reranker.importance().head(5).select("feature", "share").rows()
            facts[label] = {
                "features": len(two.feature_names_ or ()),
                "trees": two.reranker.n_trees_,
                "lists": two.training_["lists"],
                "importance": [[name, round(share, 3)] for name, share in first],
            }
            print(f"  seed {seed} {label}: {result['ndcg@20']:.4f}", flush=True)
    baseline = next(iter(values))
    rows = []
    for label, runs in values.items():
        row: dict[str, Any] = {"model": label, **facts.get(label, {})}
        for metric in CHOSEN_BY:
            mean, reference = (np.mean([one[metric] for one in values[which]], axis=0) for which in (label, baseline))
            everyone = np.arange(len(mean))
            row[metric] = {
                "mean": float(mean.mean()),
                "seeds": [float(one[metric].mean()) for one in runs],
                "interval": interval(mean, everyone),
                "difference": float((mean - reference).mean()),
                "difference_interval": interval(mean - reference, everyone),
            }
        rows.append(row)
        print(f"{repeats} {label}: {row['ndcg@20']['mean']:.4f} {row['ndcg@20']['difference_interval']}", flush=True)
    return {"repeats": repeats, "rows": rows, "settings": settings, "trials": found}


def described(data: sl.datasets.Dataset, part: sl.Split, groups: tuple[str, ...]) -> dict[str, Any]:
    """What stage two is told beside the pairs, as it is where the training events of a part end."""
    told: dict[str, Any] = {}
    if "further models" in groups:
        told["models"] = [one.fit(part.train, progress=False) for one in (sl.EASE(), sl.ItemKNN(), sl.Popularity())]
    if "items and countries" in groups:
        words = data.items.with_columns(pl.col("title").str.split(" "))
        told["item_features"] = sl.Features.from_frame(
            words, id="product", multi_valued="title", numeric={"price": "log"}, min_count={"title": 30}
        )
        told["context_features"] = sl.Features.from_frame(data.contexts, id="customer", min_count=20)
    if "recent sales" in groups:
        told["item_features"] = told["item_features"].join(recent_sales(part.train))
    return told


def recent_sales(events: sl.Interactions) -> sl.Features:
    """How many customers bought each item in the last week, and in the last four, as logarithms."""
    frame = events.to_polars()
    end = frame["time"].max()
    assert isinstance(end, dt.datetime)
    sold = frame.select("product").unique(maintain_order=True)
    for name, days in (("last week", 7), ("last four weeks", 28)):
        late = frame.filter(pl.col("time") > end - dt.timedelta(days=days))
        counts = late.group_by("product").agg(pl.col("customer").n_unique().log1p().alias(name))
        sold = sold.join(counts, on="product", how="left", maintain_order="left")
    sold = sold.with_columns(pl.col("last week", "last four weeks").fill_null(0.0))
    return sl.Features.from_frame(sold, id="product", numeric={"last week": "raw", "last four weeks": "raw"})


if __name__ == "__main__":
    main()
