"""Draws from any distribution over n things in constant time."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel

Array: TypeAlias = npt.NDArray[Any]


def alias_table(probabilities: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Walker's table by Vose's method: take k uniformly, and keep it with probability `share[k]`, else `alias[k]`.

        p_k = (share_k + Σ_{l: alias_l = k} (1 − share_l)) / n

    What has probability 0 has share 0 and is nobody's alias.

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
    """Those with less than 1/n are filled up by those with more. O(n)."""
    n = len(share)
    stack = np.empty(n, np.int64)  # the small from the left, the large from the right
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
    # What is left holds 1/n but for rounding.
    for s in range(small):
        share[stack[s]] = 1.0
    for s in range(large, n):
        share[stack[s]] = 1.0
