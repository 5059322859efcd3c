"""How long does an epoch with contexts or features take beside plain iALS, and how does it grow with the catalogue?

    python -m benchmarks.speed.multilinear epochs --data FOLDER [--turns 5] [--record]
    python -m benchmarks.speed.multilinear growth [--turns 5] [--record]

`epochs`: seconds of an epoch on anime-30pct at d = 64, as a multiple of one of `IALS(solver="exact")` on users.
Contexts are (user, weekday), where the weekday is drawn at random for each event, since the data has no times: this is
about time only, and so many contexts are the worst that a seventh part can do. Items have a field for their type beside
the id.

`growth`: 1,000,000 random pairs of 50,000 contexts with a catalogue of 1,000, 10,000 and 100,000 items, d = 64. A cost
that grew with C × I would rise a hundredfold.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl

import shortlist as sl
from benchmarks.lib.machine import describe, quotients, record

DIM = 64
PACKAGES = ("scipy", "numba")
Fit = Callable[[], sl.Recommender]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("epochs", "growth"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep the ratios for the board")
    args = parser.parse_args()
    describe(*PACKAGES)
    if args.command == "epochs":
        epochs(args.data / "anime-30pct", args.turns, args.record)
    else:
        growth(args.turns, args.record)


def epoch(fit: Fit) -> float:
    """Seconds of an epoch: the faster of the last two of three."""
    return min(one.seconds for one in fit().training_[1:])  # type: ignore[attr-defined]


def in_turns(turns: int, fits: dict[str, Fit]) -> dict[str, list[float]]:
    """Seconds of an epoch of each, in turns; kernels are compiled before."""
    seconds: dict[str, list[float]] = {name: [] for name in fits}
    for turn in range(turns + 1):
        for name, fit in fits.items():
            took = epoch(fit)
            if turn:
                seconds[name].append(took)
    return seconds


def epochs(folder: Path, turns: int, keep: bool) -> None:
    frame = pl.read_parquet(folder / "interactions.parquet").select("user", "item")
    days = np.random.default_rng(0).integers(0, 7, frame.height)
    frame = frame.with_columns(day=pl.Series(days))
    users = sl.Interactions.from_frame(frame, context="user", item="item")
    tuples = sl.Interactions.from_frame(frame, context=["user", "day"], item="item")
    known = pl.read_parquet(folder / "items.parquet").filter(pl.col("item").is_in(frame["item"].unique().implode()))
    types = sl.Features.from_frame(known.select("item", "type"), id="item", categorical="type")
    settings: dict[str, Any] = {"dim": DIM, "epochs": 3}
    bound = 'IALS(solver="exact"), users'
    fits: dict[str, Fit] = {
        bound: lambda: sl.IALS(solver="exact", **settings).fit(users),
        "PARAFAC": lambda: sl.PARAFAC(**settings).fit(tuples),
        "Tucker": lambda: sl.Tucker(**settings).fit(tuples),
        "FactorizationMachine": lambda: sl.FactorizationMachine(**settings).fit(tuples, item_features=types),
        "FeatureIALS": lambda: sl.FeatureIALS(**settings).fit(users, item_features=types),
        "RankALS": lambda: sl.RankALS(**settings).fit(users),
        'RankALS(solver="als")': lambda: sl.RankALS(solver="als", **settings).fit(users),
    }
    print(f"{users!r}\n{tuples!r}\n{types!r}")
    seconds = in_turns(turns, fits)
    for name, values in seconds.items():
        ratios = quotients(values, seconds[bound])
        print(f"{name:<32}{median(values):>8.3f} s   {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        if keep and name != bound:
            what = "contexts (user, weekday), " if name in ("PARAFAC", "Tucker", "FactorizationMachine") else ""
            record(
                f"multilinear-epoch-{slug(name)}",
                question=f"an epoch on anime-30pct, {what}d = {DIM}",
                ours=f"`{name}`",
                against='`IALS(solver="exact")` on users',
                what="time / that of the other",
                ratios=ratios,
                packages=PACKAGES,
            )


def growth(turns: int, keep: bool) -> None:
    n, contexts, sizes = 1_000_000, 50_000, (1_000, 10_000, 100_000)
    fits: dict[str, Fit] = {}
    settings: dict[str, Any] = {"dim": DIM, "epochs": 3}
    kinds = {"PARAFAC": sl.PARAFAC, "Tucker": sl.Tucker, "FactorizationMachine": sl.FactorizationMachine,
             "RankALS": sl.RankALS}  # fmt: skip
    for size in sizes:
        rng = np.random.default_rng(size)
        users, days, items = rng.integers(0, contexts // 5, n), rng.integers(0, 5, n), rng.integers(0, size, n)
        events = sl.Interactions.from_frame({"u": users, "d": days, "i": items}, context=["u", "d"], item="i")
        for name, kind in kinds.items():
            fits[f"{name} {size}"] = lambda kind=kind, events=events: kind(**settings).fit(events)
    seconds = in_turns(turns, fits)
    for name in kinds:
        told = ", ".join(f"{size:,} items {median(seconds[f'{name} {size}']):.3f} s" for size in sizes)
        ratios = quotients(seconds[f"{name} {sizes[-1]}"], seconds[f"{name} {sizes[0]}"])
        print(f"{name:<24}{told}; {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) times")
        if keep:
            record(
                f"multilinear-growth-{slug(name)}",
                question=f"an epoch on {n:,} pairs, with 100,000 items, d = {DIM}",
                ours=f"`{name}`",
                against="itself with 1,000 items",
                what="time / that of the other",
                ratios=ratios,
                packages=PACKAGES,
            )


def slug(name: str) -> str:
    return name.lower().replace('(solver="', "-").replace('")', "")


if __name__ == "__main__":
    main()
