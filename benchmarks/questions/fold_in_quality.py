"""Is someone who is folded in served as well as someone who was there in training?

    python -m benchmarks.questions.fold_in_quality --data FOLDER [--seeds 3] [--record]

The people of the test part of ml-1m-strong and goodbooks-strong, by NDCG@100 of what was held out.

    (a) they are part of the training data, and have the embeddings that they got there
    (b) they are not, and are folded in
    (c) they are folded in to the model of (a): only folding in is different
    (d) as (a), and as many others are left out: there is as much to learn from as in (b)

Settings are chosen on the people of the validation part, folded in as in (b): those of iALS are the best of its study
at d = 256, those of BPR the best of five on ml-1m-strong. Differences are paired, person by person, in means over
seeds; intervals are of 95 %, by bootstrap.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shortlist as sl
from benchmarks.lib import published
from benchmarks.lib.machine import PLAIN_SGD, describe
from benchmarks.lib.markdown import figure, number, provenance, signed, table
from benchmarks.lib.paths import TRIALS
from benchmarks.lib.results import FOLD_IN, store, stored
from benchmarks.lib.trials import best, trials
from shortlist.recommenders.registry import recommender_class

PACKAGES = ("scipy", "numba")
METRIC = "ndcg@100"
DIFFERENCES = (("b", "a"), ("c", "a"), ("b", "d"))
SETS = ("ml-1m-strong", "goodbooks-strong")
BPR: dict[str, Any] = PLAIN_SGD | {
    "dim": 64,
    "epochs": 40,
    "schedule": "linear",
    "learning_rate": 0.1,
    "regularization": 0.01,
    "n_negatives": 4,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="keep the results for the page")
    args = parser.parse_args()
    describe(*PACKAGES)
    quality(args.data, args.seeds, args.record)


def quality(data: Path, seeds: int, keep: bool) -> None:
    found = []
    for name in SETS:
        study = trials(TRIALS / f"{name}-ials-256.csv")
        for model, settings in (("IALS", best(study, METRIC)), ("BPR", BPR)):
            row = {"set": name, "model": model, "settings": settings, "seeds": seeds}
            row |= compared(data / name, model, settings, seeds)
            found.append(row)
            print({key: value for key, value in row.items() if key != "settings"}, flush=True)
    if keep:
        store("quality", {"metric": METRIC, "rows": found}, FOLD_IN, PACKAGES)


def compared(folder: Path, model: str, settings: dict[str, Any], seeds: int) -> dict[str, Any]:
    """Figures of the four, and what lies between them."""
    without = published.strong(folder, "test")
    train, history, truth = without.train, without.history, without.truth
    both = concatenated(train, history)
    train = train.extend(items=both.items.ids())  # the same catalogue
    known = sl.splits.given(both, truth)
    new_users = sl.splits.given(train, truth, history=history)
    again = replace(known, history=history, fold_in=True)  # known people, by their histories alone
    by_person: dict[str, list[np.ndarray]] = {name: [] for name in "abcd"}
    for seed in range(seeds):
        people = np.random.default_rng(seed).permutation(train.n_contexts)
        stay = np.isin(train.context_codes, people[history.n_contexts :])
        fewer = concatenated(train.select(stay), history).extend(items=both.items.ids())
        kind = recommender_class(model)
        fits = [kind(**settings, seed=seed).fit(one, progress=False) for one in (both, train, fewer)]
        pairs = (
            (fits[0], known),
            (fits[1], new_users),
            (fits[0], again),
            (fits[2], sl.splits.given(fewer, truth)),
        )
        results = [sl.evaluate(one, split, [METRIC]) for one, split in pairs]
        assert all(one.contexts.equals(results[0].contexts) for one in results)
        for name, one in zip(by_person, results):
            by_person[name].append(one.of(METRIC))
    means = {name: np.mean(values, axis=0) for name, values in by_person.items()}
    told: dict[str, Any] = {"people": len(means["a"]), "events": len(without.train) / without.train.n_items}
    told |= {name: float(one.mean()) for name, one in means.items()}
    for first, second in DIFFERENCES:
        apart = means[first] - means[second]
        told[f"{first} − {second}"] = [float(apart.mean()), *interval(apart)]
    return told


def concatenated(*parts: sl.Interactions) -> sl.Interactions:
    """All pairs of these."""
    return published.pairs(pl.concat([one.to_polars().select("user", "item") for one in parts]))


def interval(differences: np.ndarray) -> list[float]:
    """95 % of the mean, by drawing people again and again."""
    if not differences.any():
        return [0.0, 0.0]
    rng = np.random.default_rng(0)
    means = [differences[rng.integers(len(differences), size=len(differences))].mean() for _ in range(2000)]
    return [float(one) for one in np.quantile(means, [0.025, 0.975])]


def people() -> str:
    """Who was there in training beside who was not."""
    found = stored("quality", FOLD_IN)
    lines, settings = [], []
    for row in found["rows"]:
        apart = []
        for first, second in DIFFERENCES:
            middle, low, high = (signed(one) for one in row[f"{first} − {second}"])
            apart.append(f"{middle} ({low} to {high})")
        sizes = [f"{row['people']:,}", f"{row['events']:.0f}"]
        lines.append([row["set"], row["model"], *sizes, *(figure(row[name]) for name in "abcd"), *apart])
        told = ", ".join(f"{name} = {number(value)}" for name, value in row["settings"].items())
        settings.append(f"* {row['set']}, {row['model']}: {told}; {row['seeds']} seeds")
    head = [
        "data",
        "model",
        "people",
        "events an item",
        *"abcd",
        *(f"{first} − {second}" for first, second in DIFFERENCES),
    ]
    return "\n\n".join([table(head, lines), "\n".join(settings), provenance([("fold-in", found)])])


if __name__ == "__main__":
    main()
