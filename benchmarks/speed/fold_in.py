"""How long does it take to fold someone in?

    python -m benchmarks.speed.fold_in [--turns 5] [--record]

Histories of 50 items of a catalogue of 20,000, d = 128, by the public API with ids. One history at a time against a
millisecond; 2,000 at once against the kernel that solves the rows of an exact half-step in training, on the same rows.
For every other model with embeddings, milliseconds for one history.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

import shortlist as sl
from benchmarks.lib.machine import PLAIN_SGD, describe, quotients, record
from benchmarks.lib.markdown import provenance, table
from benchmarks.lib.results import FOLD_IN, store, stored
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.registry import REGISTRY, recommender_class
from shortlist.recommenders.sgd_factorization import SGDFactorization
from shortlist.solvers import exact

PACKAGES = ("scipy", "numba")
DIM, LENGTH, BATCH, SINGLE = 128, 50, 2000, 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep the results for the page")
    args = parser.parse_args()
    describe(*PACKAGES)
    speed(args.turns, args.record)


def events() -> sl.Interactions:
    """500,000 random pairs; who likes what does not matter here."""
    rng = np.random.default_rng(0)
    frame = {"user": rng.integers(0, 10_000, 500_000), "item": [f"item-{k}" for k in rng.integers(0, 20_000, 500_000)]}
    return sl.Interactions.from_frame(frame, context="user", item="item")


def steps_of(name: str) -> dict[str, Any]:
    """SGD for models that learn by sampling, Adagrad for WARP; a softmax is folded in by steps of its own."""
    if not issubclass(recommender_class(name), SGDFactorization) or name == "SoftmaxMF":
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
    rows = ials.queries(history=coded).histories.sets()
    terms = ials._loss.new_context_terms(rows)
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
        store(
            "speed",
            {"rows": {name: [1e3 * one for one in values] for name, values in seconds.items()}},
            FOLD_IN,
            PACKAGES,
        )


# --- the page --------------------------------------------------------------------------------------------------------


def times() -> str:
    """Milliseconds of everything."""
    found = stored("speed", FOLD_IN)
    lines = [
        [name, f"{median(values):.3f}", f"{min(values):.3f} to {max(values):.3f}"]
        for name, values in found["rows"].items()
    ]
    head = ["", "ms, median of the turns", "range"]
    return "\n\n".join([table(head, lines), provenance([("fold-in", found)])])


if __name__ == "__main__":
    main()
