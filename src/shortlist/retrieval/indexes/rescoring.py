"""Exact rescoring, the last step of every approximate search: score the candidates by their vectors and sort them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist._numba import bare_kernel, fast_lean_kernel, kernel
from shortlist._prefetch import prefetch
from shortlist.retrieval.indexes.item_filter import MARKS, ItemFilter, admitted
from shortlist.retrieval.order import BY_PRIORITY, key_of, rank_key, raw_key_of
from shortlist.retrieval.select import clear, sort_best_first

Vectors = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]
AHEAD = 6  # rows to prefetch
UNSURE = np.full(MARKS // 64, ~np.uint64(0))  # all marks set: any item may be excluded, so every exclusion is checked


@kernel
def rescore(
    Q: Vectors,
    X: Vectors,
    candidates: Codes,
    first: int,
    item_filter: ItemFilter,
    unsure: npt.NDArray[np.uint64],
    priority: npt.NDArray[np.uint32],
    n: int,
    items: Codes,
    S: Codes,
    counts: npt.NDArray[np.int64],
) -> None:
    """Write the n best admitted candidates of each query by exact scores, and the number of admitted candidates.

    `candidates` has one row per query, with distinct items and −1 in empty places.
    """
    width = candidates.shape[1]
    I, scores, Z = np.empty(width, np.int32), np.empty(width, np.float32), np.empty(width, np.int64)  # noqa: E741
    bits = scores.view(np.int32)
    for r in range(len(Q)):
        start, stop = np.int64(0), np.int64(0)
        if len(item_filter.starts) > 0:
            start, stop = item_filter.starts[first + r], item_filter.starts[first + r + 1]
        size = 0
        for p in range(width):
            i = candidates[r, p]
            if i >= 0 and admitted(i, item_filter.bits, unsure, item_filter.excluded, start, stop):
                I[size] = i
                size += 1
        counts[r] = size
        exact_best(Q[r], X, priority, n, size, I, scores, bits, Z, items[r], S[r])


@kernel
def rescore_rows(
    Q: Vectors,
    X: Vectors,
    allowed: Codes,
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    item_filter: ItemFilter,
    priority: npt.NDArray[np.uint32],
    items: Codes,
    S: Codes,
    first: int,
    last: int,
) -> None:
    """Do the same for queries first…last with the candidates `allowed[starts:stops]`, which may repeat."""
    width, n = 1, items.shape[1]
    for r in range(first, last):
        width = max(width, stops[r] - starts[r])
    I, scores, Z = np.empty(width, np.int32), np.empty(width, np.float32), np.empty(width, np.int64)  # noqa: E741
    bits = scores.view(np.int32)
    unsure = np.full(MARKS // 64, ~np.uint64(0))
    for r in range(first, last):
        start, stop = np.int64(0), np.int64(0)
        if len(item_filter.starts) > 0:
            start, stop = item_filter.starts[r], item_filter.starts[r + 1]
        row = np.sort(allowed[starts[r] : stops[r]])
        size = 0
        for p in range(len(row)):
            i = row[p]
            if (p == 0 or i != row[p - 1]) and admitted(i, item_filter.bits, unsure, item_filter.excluded, start, stop):
                I[size] = i
                size += 1
        exact_best(Q[r], X, priority, n, size, I, scores, bits, Z, items[r], S[r])


@bare_kernel
def exact_best(
    q: Vectors,
    X: Vectors,
    priority: npt.NDArray[np.uint32],
    n: int,
    size: int,
    I: Codes,  # noqa: E741
    scores: Vectors,
    bits: Codes,
    Z: npt.NDArray[np.int64],
    items: Codes,
    S: Codes,
) -> None:
    """Write the n best of the first `size` candidates I by exact scores, and their scores' bits; pad with −1 and −inf.

    `scores` and `Z` are temporary space for `size` candidates, `bits` are the bytes of `scores`. Bound by reading the
    candidates' vectors at random places.
    """
    d = len(q)
    for p in range(size):
        if p + AHEAD < size:
            for k in range(0, d, 16):
                prefetch(X, I[p + AHEAD], k)
        scores[p] = dot(q, X[I[p]])
    for p in range(size):
        Z[p] = rank_key(key_of(bits[p]), I[p], BY_PRIORITY, priority, np.uint64(0))
    if size > n:
        clear(Z, I, size, n)
        size = n
    sort_best_first(Z, I, size)
    for k in range(n):
        items[k] = -1
        S[k] = np.int32(-0x800000)  # −inf
    for k in range(size):
        items[k] = I[k]
        S[k] = raw_key_of(np.int32(Z[k] >> np.int64(32)))


@fast_lean_kernel
def dot(x: Vectors, y: Vectors) -> np.float32:
    """Return ⟨x, y⟩."""
    total = np.float32(0)
    for k in range(len(x)):
        total += x[k] * y[k]
    return total
