"""Alias tables: draws from any distribution over n items in constant time (Walker 1977, Vose 1991)."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel

Array: TypeAlias = npt.NDArray[Any]


def alias_table(probabilities: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Return Walker's alias table, built by Vose's method.

    To draw, choose k uniformly; keep it with probability `share[k]`, otherwise take `alias[k]`:

        p_k = (share_k + Σ_{l: alias_l = k} (1 − share_l)) / n

    An item with probability 0 has share 0 and is never an alias.

    >>> share, alias = alias_table(np.array([0.75, 0.25]))
    >>> share.tolist(), alias.tolist()
    ([1.0, 0.5], [0, 0])
    """
    share = probabilities * len(probabilities)
    alias = np.arange(len(share), dtype=np.int32)
    _fill(share, alias)
    return share, alias


@kernel
def _fill(share: Array, alias: Array) -> None:
    """Fill up every item below 1/n from an item above 1/n. O(n)."""
    n = len(share)
    stack = np.empty(n, np.int64)  # small items from the left, large items from the right
    small, large = 0, n
    for k in range(n):
        if share[k] < 1.0:
            stack[small] = k
            small += 1
        else:
            large -= 1
            stack[large] = k
    while small > 0 and large < n:
        small -= 1
        k, rich = stack[small], stack[large]
        alias[k] = rich
        share[rich] -= 1.0 - share[k]
        if share[rich] < 1.0:
            stack[small] = rich
            small += 1
            large += 1
    # The remaining items have probability 1/n, up to rounding.
    for s in range(small):
        share[stack[s]] = 1.0
    for s in range(large, n):
        share[stack[s]] = 1.0
