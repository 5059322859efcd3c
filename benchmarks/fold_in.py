"""How long does it take to fold someone in, and is who is folded in served as well as who was there in training?

    python benchmarks/fold_in.py speed [--turns 5] [--record]
    python benchmarks/fold_in.py quality --data FOLDER [--seeds 3] [--record]

`speed`: histories of 50 items of a catalogue of 20,000, d = 128, by the public API with ids. One history at a time
against a millisecond; 2,000 at once against the kernel that solves the rows of an exact half-step in training, on the
same rows. For every other model with embeddings, milliseconds for one history.

`quality`: the people of the test part of ml-1m-strong and goodbooks-strong, by NDCG@100 of what was held out.

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
import datetime as dt
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl

import published
import shortlist as sl
from machine import PLAIN_SGD, command, describe, machine, quotients, record, versions
from rendering import figure, number, provenance, signed, table
from rows import STUDIES, best, trials
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.registry import REGISTRY, recommender_class
from shortlist.recommenders.sampled import Sampled
from shortlist.solvers import exact

PACKAGES = ("scipy", "numba")
RESULTS = Path(__file__).parent / "results" / "fold_in"
DIM, LENGTH, BATCH, SINGLE = 128, 50, 2000, 60
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
    parser.add_argument("command", choices=("speed", "quality"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="keep the results for the page")
    args = parser.parse_args()
    describe(*PACKAGES)
    if args.command == "speed":
        speed(args.turns, args.record)
    else:
        quality(args.data, args.seeds, args.record)


# --- speed -----------------------------------------------------------------------------------------------------------


def events() -> sl.Interactions:
    """500,000 random pairs; who likes what does not matter here."""
    rng = np.random.default_rng(0)
    frame = {"user": rng.integers(0, 10_000, 500_000), "item": [f"item-{k}" for k in rng.integers(0, 20_000, 500_000)]}
    return sl.Interactions.from_frame(frame, context="user", item="item")


def steps_of(name: str) -> dict[str, Any]:
    """SGD for models that learn by sampling, Adagrad for WARP; a softmax is folded in by steps of its own."""
    if not issubclass(recommender_class(name), Sampled) or name == "SoftmaxMF":
        return {}
    return PLAIN_SGD | ({"optimizer": "adagrad"} if name == "WARP" else {})


def each(call: Callable[[int], object]) -> float:
    """The median seconds of a call, over so many different ones."""
    seconds = []
    for k in range(SINGLE):
        began = time.perf_counter()
        call(k)
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def once(call: Callable[[], object]) -> float:
    """Seconds for each row of a batch."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) / BATCH


def speed(turns: int, keep: bool) -> None:
    data = events()
    rng = np.random.default_rng(1)
    ids = data.items.ids()
    histories = [[ids[k] for k in rng.choice(len(ids), LENGTH, replace=False)] for _ in range(BATCH)]
    models = {
        name: recommender_class(name)(dim=DIM, epochs=1, **steps_of(name)).fit(data, progress=False)
        for name in REGISTRY
        if issubclass(recommender_class(name), DotProduct)
    }
    ials = models["IALS"]
    frame = {
        "user": np.repeat(np.arange(BATCH), LENGTH),
        "item": [one for history in histories for one in history],
    }
    coded = sl.Interactions.from_frame(frame, context="user", item="item")
    rows = ials._with_own_items(coded.by_context, coded.items, "raise")
    contexts, items = ials._omegas
    terms = ials.objective().terms(rows, contexts.new(rows.lengths), items.values)
    fixed, out = ials._fixed_items, np.zeros((BATCH, DIM), np.float32)

    def moving(state: sl.UserState) -> Callable[[int], object]:
        def step(k: int) -> None:
            state.add(histories[0][k % LENGTH])
            _ = state.embedding

        return step

    plain = sl.UserState(ials, histories[0], max_events=LENGTH)
    fading = sl.UserState(ials, histories[0], max_events=LENGTH, half_life=20, decay_by="events")
    contestants: dict[str, Callable[[], float]] = {
        "the kernel of an exact half-step, a row": lambda: once(
            lambda: exact.solve_exact(rows, terms, fixed.embeddings, fixed.spectrum, out)
        ),
        "fold_in of 2,000, a row": lambda: once(lambda: ials.fold_in(histories)),
        "fold_in of 2,000 as Interactions, a row": lambda: once(lambda: ials.fold_in(coded)),
        "UserState, an event": lambda: each(moving(plain)),
        "UserState with a half-life, an event": lambda: each(moving(fading)),
        "UserState.recommend(threads=1) after an event": lambda: each(
            lambda k: (moving(plain)(k), plain.recommend(10, threads=1))
        ),
    }
    for name, model in models.items():
        contestants[name] = lambda model=model: each(lambda k: model.fold_in([histories[k]]))  # type: ignore[misc]
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(turns + 1):
        for name, run in contestants.items():
            took = run()
            if turn:
                seconds[name].append(took)
    for name, values in seconds.items():
        print(f"{name:<44}{1e3 * median(values):8.3f} ms ({1e3 * min(values):.3f} to {1e3 * max(values):.3f})")
    bound = seconds["the kernel of an exact half-step, a row"]
    batches = {
        "ids": ("`IALS.fold_in`", "fold_in of 2,000, a row"),
        "interactions": ("`IALS.fold_in` of `Interactions`", "fold_in of 2,000 as Interactions, a row"),
    }
    for name, (ours, which) in batches.items():
        print(f"{which} / the kernel: {median(quotients(seconds[which], bound)):.2f}")
        if keep:
            record(
                f"fold_in-batch-{name}",
                question=f"folding in 2,000 histories of {LENGTH} items, d = {DIM}",
                ours=ours,
                against="the kernel of an exact half-step",
                what="time / bound",
                ratios=quotients(seconds[which], bound),
                packages=PACKAGES,
            )
    singles = {"one": ("`IALS.fold_in`", "IALS"), "state": ("`UserState`, an event", "UserState, an event")}
    for name, (ours, which) in singles.items():
        if keep:
            record(
                f"fold_in-{name}",
                question=f"folding in one history of {LENGTH} items, d = {DIM}",
                ours=ours,
                against="a millisecond",
                what="time / limit",
                ratios=[1e3 * one for one in seconds[which]],
                packages=PACKAGES,
            )
    if keep:
        store("speed", {"rows": {name: [1e3 * one for one in values] for name, values in seconds.items()}})


# --- quality ---------------------------------------------------------------------------------------------------------


def quality(data: Path, seeds: int, keep: bool) -> None:
    found = []
    for name in SETS:
        study = trials(STUDIES / f"{name}-ials-256.csv")
        for model, settings in (("IALS", best(study, METRIC)), ("BPR", BPR)):
            row = {"set": name, "model": model, "settings": settings, "seeds": seeds}
            row |= compared(data / name, model, settings, seeds)
            found.append(row)
            print({key: value for key, value in row.items() if key != "settings"}, flush=True)
    if keep:
        store("quality", {"metric": METRIC, "rows": found})


def compared(folder: Path, model: str, settings: dict[str, Any], seeds: int) -> dict[str, Any]:
    """Figures of the four, and what lies between them."""
    without = published.strong(folder, "test")
    train, history, truth = without.train, without.history, without.truth
    both = concatenated(train, history)
    train = train.extend(items=both.items.ids())  # the same catalogue
    known = sl.splits.given(both, truth)
    strangers = sl.splits.given(train, truth, history=history)
    again = replace(known, history=history, fold_in=True)  # known people, by their histories alone
    by_person: dict[str, list[np.ndarray]] = {name: [] for name in "abcd"}
    for seed in range(seeds):
        people = np.random.default_rng(seed).permutation(train.n_contexts)
        stay = np.isin(train.context_codes, people[history.n_contexts :])
        fewer = concatenated(train.select(stay), history).extend(items=both.items.ids())
        kind = recommender_class(model)
        fits = [kind(**settings, seed=seed).fit(one, progress=False) for one in (both, train, fewer)]
        asked = ((fits[0], known), (fits[1], strangers), (fits[0], again), (fits[2], sl.splits.given(fewer, truth)))
        results = [sl.evaluate(one, split, [METRIC]) for one, split in asked]
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


# --- the page --------------------------------------------------------------------------------------------------------


def store(name: str, content: dict[str, Any]) -> None:
    """Keep a result, with when and on what it was measured."""
    about = {
        "when": dt.date.today().isoformat(),
        "machine": machine(),
        "versions": versions(*PACKAGES),
        "command": command(),
        "device": None,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content | about, indent=1, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def stored(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def times() -> str:
    """Milliseconds of everything."""
    found = stored("speed")
    lines = [
        [name, f"{median(values):.3f}", f"{min(values):.3f} to {max(values):.3f}"]
        for name, values in found["rows"].items()
    ]
    head = ["", "ms, median of the turns", "range"]
    return "\n\n".join([table(head, lines), provenance([("fold-in", found)])])


def people() -> str:
    """Who was there in training beside who was not."""
    found = stored("quality")
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


REGIONS: dict[str, Callable[[], str]] = {"fold-in times": times, "fold-in quality": people}

if __name__ == "__main__":
    main()
