"""A search of settings that is the same for all methods: trials spread evenly over their ranges."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats.qmc import Halton

Ranges = dict[str, tuple[float, float] | list[Any]]  # of logarithms; or values
Figures = dict[str, float]
SQUARE: Ranges = {  # of all models with the loss of iALS
    "regularization": (1e-3, 0.3),
    "unobserved_weight": (0.01, 1.0),
    "epochs": [10, 20],
}
MOST = 8  # settings that are searched


def searched(
    name: str, ranges: Ranges, judged: Callable[[dict[str, Any]], Figures], trials: int
) -> list[dict[str, Any]]:
    """Trials with settings spread evenly over the ranges: what they are, and their figures on validation.

    They are scrambled Halton points. Trial k has the same values of the settings that methods have in common, where
    these come first: no method has luckier ones.
    """
    points = Halton(d=MOST, rng=0).random(trials)
    trials_done: list[dict[str, Any]] = []
    began = time.perf_counter()
    for point in points:
        settings = {key: placed(values, share) for (key, values), share in zip(ranges.items(), point)}
        trials_done.append({"settings": settings, **judged(settings)})
    print(f"  {name}: {trials} trials, {time.perf_counter() - began:.0f} s", flush=True)
    return trials_done


def placed(values: tuple[float, float] | list[Any], share: float) -> Any:
    """The value at this share, from 0 to 1, of the range."""
    if isinstance(values, list):
        return values[int(share * len(values))]
    low, high = np.log(values)
    return float(f"{np.exp(low + share * (high - low)):.3g}")


def best(trials: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """The settings of the trial with the highest figure."""
    chosen: dict[str, Any] = max(trials, key=lambda trial: trial[metric])["settings"]
    return chosen
