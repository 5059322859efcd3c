"""Intervals of means, by drawing values again and again."""

from __future__ import annotations

import numpy as np


def interval(values: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """95 % of the mean, by drawing groups of values, such as those of a user, again and again."""
    _, codes = np.unique(groups, return_inverse=True)
    sums, sizes = np.bincount(codes, values), np.bincount(codes)
    rng = np.random.default_rng(0)
    draws = (rng.integers(len(sums), size=len(sums)) for _ in range(2000))
    low, high = np.quantile([sums[draw].sum() / sizes[draw].sum() for draw in draws], [0.025, 0.975])
    return float(low), float(high)
