"""The random order of the observed pairs in an epoch: pairs go to random buckets, which are then shuffled."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_lean_kernel
from shortlist._random import GOLDEN, mixed
from shortlist.solvers.sgd_tables import TrainingPairs

Array: TypeAlias = npt.NDArray[Any]


@fast_lean_kernel
def count_buckets(seed: np.uint64, start: int, stop: int, counts: Array) -> None:
    """Count how many of the pairs start … stop fall into each bucket."""
    n = np.uint64(len(counts))
    for e in range(start, stop):
        counts[_bucket(seed, e, n)] += 1


@fast_lean_kernel
def fill_buckets(
    seed: np.uint64,
    start: int,
    stop: int,
    row_of: Array,
    indices: Array,
    strengths: Array,
    cursor: Array,
    contexts: Array,
    items: Array,
    out: Array,
) -> None:
    """Put the pairs start … stop into their buckets; `cursor` has the next free position of each bucket."""
    n = np.uint64(len(cursor))
    for e in range(start, stop):
        b = _bucket(seed, e, n)
        at = cursor[b]
        cursor[b] = at + 1
        contexts[at] = row_of[e]
        items[at] = indices[e]
        if len(strengths) > 1:
            out[at] = strengths[e]


@fast_lean_kernel
def _bucket(seed: np.uint64, e: int, n: np.uint64) -> int:
    return int(np.int64(((mixed(seed + np.uint64(e) * GOLDEN) >> np.uint64(32)) * n) >> np.uint64(32)))


@fast_lean_kernel
def shuffle(seed: np.uint64, pairs: TrainingPairs, start: int, stop: int) -> None:
    """Shuffle the pairs start … stop (Fisher–Yates)."""
    contexts, items, strengths, shares = pairs
    state = seed
    for s in range(stop - 1, start, -1):
        state += GOLDEN
        t = start + np.int64(((mixed(state) >> np.uint64(32)) * np.uint64(s - start + 1)) >> np.uint64(32))
        contexts[s], contexts[t] = contexts[t], contexts[s]
        items[s], items[t] = items[t], items[s]
        if len(strengths) > 1:
            strengths[s], strengths[t] = strengths[t], strengths[s]
        if len(shares) > 1:
            shares[s], shares[t] = shares[t], shares[s]
