"""Do models with contexts and features recover a planted structure?

    python -m benchmarks.questions.planted [--trials 30] [--seeds 5]

Data of two kinds is made: a tensor of users, days and items, and items whose taste is in their tags.

The tensor: 400 users × 7 days × 300 items with random normal factors of rank 4; a user likes the 20 best items of a
day. Of 70 % of the pairs (user, day) 8 of them are observed, and the other 12 asked for; of the rest, all 20. IALS
knows the user and not the day.

The tags: 500 users × 600 items with 3 of 30 tags each; a user likes the 40 items with the highest sum of random normal
preferences for their tags, plus noise. A third of the items is never observed; of the others half of what a user likes
is. Asked for are the other half, among the observed items, and what is liked of the cold items, among these.

Every model gets as many trials, each on three planted data sets, and the chosen settings are measured on others. The
figure is Recall@20 (hits / items asked for).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

import shortlist as sl
from benchmarks.lib.halton_search import SQUARE, Ranges, best, searched
from benchmarks.lib.results import MULTILINEAR, store

N = 20
TUNING, MEASURED = (1000, 1001, 1002), 100  # seeds of the data that settings are chosen on; the first of the others
Lists = list[list[int]]
TENSOR: Ranges = SQUARE | {"epochs": [30, 60], "dim": [4, 8, 16]}
TAGS: Ranges = SQUARE | {"epochs": [20, 40], "dim": [8, 16, 32]}
SPACES: dict[str, dict[str, Ranges]] = {
    "tensor": {
        "PARAFAC": TENSOR | {"part_strength": (0.01, 10.0)},
        "Tucker": TENSOR | {"part_strength": (0.01, 10.0), "part_dim": [2, 4, 7]},
        "FactorizationMachine": TENSOR,
        "IALS": TENSOR,
    },
    "tags": {
        "FeatureIALS": TAGS | {"feature_strength": (0.01, 100.0)},
        "FactorizationMachine": TAGS,
        "IALS": TAGS,
    },
}


@dataclass
class Planted:
    """What is observed, and questions in two groups, each with what may be recommended and what is wanted."""

    events: pl.DataFrame
    questions: dict[str, list[tuple[Any, list[int], list[int]]]]  # group: (context, denied or allowed, wanted)
    known: dict[str, float]  # what knowing the truth would give, and chance
    tags: pl.DataFrame | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    rows = []
    bounds: dict[str, dict[str, float]] = {}
    for what, spaces in SPACES.items():
        make, answered = MAKERS[what]
        tuning = [make(seed) for seed in TUNING]
        data = [make(MEASURED + seed) for seed in range(args.seeds)]
        bounds[what] = {key: float(np.mean([one.known[key] for one in data])) for key in data[0].known}
        for model, ranges in spaces.items():

            def judged(
                settings: dict[str, Any],
                model: str = model,
                answered: Callable[..., dict[str, float]] = answered,
                tuning: list[Planted] = tuning,
            ) -> dict[str, float]:
                return {"mean": float(np.mean([list(answered(model, settings, one).values()) for one in tuning]))}

            trials = searched(f"{what}, {model}", ranges, judged, args.trials)
            settings = best(trials, "mean")
            figures = [answered(model, settings, one) for one in data]
            row = {"what": what, "model": model, "settings": settings, "trials": len(trials)}
            row["seeds"] = {group: [one[group] for one in figures] for group in figures[0]}
            rows.append(row)
            means = {group: f"{np.mean(values):.3f}" for group, values in row["seeds"].items()}
            print(f"{what}, {model}: {means} {settings}", flush=True)
    store("planted", {"rows": rows, "bounds": bounds, "trials": args.trials, "seeds": args.seeds}, MULTILINEAR)


def recall(lists: Lists, wanted: Lists) -> float:
    return float(np.mean([len(set(one) & set(own)) / len(own) for one, own in zip(lists, wanted, strict=True)]))


# --- a tensor --------------------------------------------------------------------------------------------------------


def tensor(seed: int) -> Planted:
    rng = np.random.default_rng(seed)
    users, days, items, rank, liked, observed = 400, 7, 300, 4, 20, 8
    U, D, H = (rng.normal(size=(n, rank)) for n in (users, days, items))
    best_items = np.argsort(-np.einsum("uf,df,if->udi", U, D, H), axis=2)[:, :, :liked]
    events: list[tuple[int, int, int]] = []
    questions: dict[str, list[tuple[Any, list[int], list[int]]]] = {"seen": [], "unseen": []}
    for user, day in np.ndindex(users, days):
        mine = rng.permutation(best_items[user, day]).tolist()
        if rng.random() < 0.7:
            events += [(user, day, item) for item in mine[:observed]]
            questions["seen"].append(((user, day), mine[:observed], mine[observed:]))
        else:
            questions["unseen"].append(((user, day), [], mine))
    frame = pl.DataFrame(events, schema=["user", "day", "item"], orient="row")
    there = set(frame["user"])  # whoever has no event at all, one in 4,600, is not asked about
    questions["unseen"] = [one for one in questions["unseen"] if one[0][0] in there]
    known = {"chance, seen": N / (items - observed), "chance, unseen": N / items}
    return Planted(frame, questions, known | {"truth, seen": 1.0, "truth, unseen": 1.0})


def of_days(model: str, settings: dict[str, Any], data: Planted) -> dict[str, float]:
    context = ["user"] if model == "IALS" else ["user", "day"]
    fixed = {"within": False} if model == "FactorizationMachine" else {}
    events = sl.Interactions.from_frame(data.events.select(*context, "item"), context=context, item="item")
    fitted = getattr(sl, model)(**fixed | settings).fit(events, progress=False)
    found = {}
    for group, questions in data.questions.items():
        contexts, denied, wanted = zip(*questions)
        asked = [user for user, _ in contexts] if model == "IALS" else contexts
        lists = fitted.recommend(list(asked), n=N, deny=list(denied), exclude_seen=False).ids
        found[group] = recall(lists, wanted)
    return found


# --- tags ------------------------------------------------------------------------------------------------------------


def tags(seed: int) -> Planted:
    rng = np.random.default_rng(seed)
    users, items, n_tags, each, liked = 500, 600, 30, 3, 40
    own = np.array([rng.choice(n_tags, each, replace=False) for _ in range(items)])
    taste = rng.normal(size=(users, n_tags))[:, own].sum(axis=2)
    noisy = taste + rng.normal(size=taste.shape)
    cold = rng.permutation(items) < items // 3
    groups = {"warm": np.flatnonzero(~cold).tolist(), "cold": np.flatnonzero(cold).tolist()}
    events: list[tuple[int, int]] = []
    questions: dict[str, list[tuple[Any, list[int], list[int]]]] = {group: [] for group in groups}
    guesses: dict[str, Lists] = {group: [] for group in groups}
    for user in range(users):
        mine = rng.permutation(np.argsort(-noisy[user])[:liked])
        warm = mine[~cold[mine]].tolist()
        seen, rest = warm[: len(warm) // 2], warm[len(warm) // 2 :]
        events += [(user, item) for item in seen]
        for group, wanted in (("warm", rest), ("cold", mine[cold[mine]].tolist())):
            if wanted:
                allowed = np.setdiff1d(groups[group], seen)
                questions[group].append((user, allowed.tolist(), wanted))
                guesses[group].append(allowed[np.argsort(-taste[user, allowed])][:N].tolist())
    known = {}
    for group, asked in questions.items():
        known[f"chance, {group}"] = float(np.mean([N / len(allowed) for _, allowed, _ in asked]))
        known[f"truth, {group}"] = recall(guesses[group], [wanted for _, _, wanted in asked])
    frame = pl.DataFrame(events, schema=["user", "item"], orient="row")
    return Planted(frame, questions, known, pl.DataFrame({"item": range(items), "tag": own.tolist()}))


def of_tags(model: str, settings: dict[str, Any], data: Planted) -> dict[str, float]:
    assert data.tags is not None
    events = sl.Interactions.from_frame(data.events, context="user", item="item")
    if model == "IALS":  # to it a cold item is one without events
        fitted = sl.IALS(**settings).fit(events.extend(items=data.tags["item"]), progress=False)
    else:
        fixed = {"within": False} if model == "FactorizationMachine" else {}
        features = sl.Features.from_frame(data.tags, id="item", multi_valued="tag")
        fitted = getattr(sl, model)(**fixed | settings).fit(events, item_features=features, progress=False)
    found = {}
    for group, questions in data.questions.items():
        users, allowed, wanted = zip(*questions)
        lists = fitted.recommend(list(users), n=N, allow=list(allowed), exclude_seen=False).ids
        found[group] = recall(lists, wanted)
    return found


MAKERS: dict[str, tuple[Callable[[int], Planted], Callable[[str, dict[str, Any], Planted], dict[str, float]]]] = {
    "tensor": (tensor, of_days),
    "tags": (tags, of_tags),
}


if __name__ == "__main__":
    main()
