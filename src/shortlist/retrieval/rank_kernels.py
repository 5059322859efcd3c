"""Kernels for the ranks of given items in whole rows of scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist.retrieval.filters import ColumnMasks, exclude_some, keep_only
from shortlist.retrieval.order import BY_CODE, FILTERED, FILTERED_BITS, Order, key_of, rank_key, row_seed


@kernel
def rank_block(
    X: npt.NDArray[np.int32],
    q0: int,
    masks: ColumnMasks,
    order: Order,
    target_starts: npt.NDArray[np.int64],
    targets: npt.NDArray[np.int32],
    ranks: npt.NDArray[np.int64],
    n_ranked: npt.NDArray[np.int64],
) -> None:
    """Write the ranks of the targets of queries q0…. X has the bits of their scores for all columns.

    Each target costs one vectorised count over the row, which stays in the nearest cache. Ties cost another scan. At
    20,000 items, 128 dimensions and 5 targets per query, product and ranks take 1.15 to 1.3 times as long as the
    fastest matrix product alone.
    """
    n_rows, w = X.shape
    K = np.empty(w, np.int32)
    starts, excluded, columns = masks.exclude_starts, masks.exclude, masks.columns
    for r in range(n_rows):
        x = X[r]
        q = q0 + r
        if len(masks.allow_starts) > 0:
            keep_only(x, 0, masks.allow[masks.allow_starts[q] : masks.allow_starts[q + 1]], columns, K)
        if len(starts) > 0:
            exclude_some(x, 0, excluded, columns, -1, starts[q], starts[q + 1])
        for j in masks.blocked:
            x[j] = FILTERED_BITS
        n_left = 0
        for j in range(w):
            K[j] = key_of(x[j])
            n_left += K[j] != FILTERED
        n_ranked[q] = n_left
        seed = row_seed(order, q)
        for p in range(target_starts[q], target_starts[q + 1]):
            j = np.int64(targets[p])
            if len(columns) > 0:
                j = np.int64(columns[j])
            if j >= 0 and K[j] != FILTERED:
                higher, equal = count_higher(K, K[j])
                ranks[p] = 1 + higher
                if equal > 1:
                    ranks[p] += tied_before(K, j, order, seed)


@kernel
def count_higher(K: npt.NDArray[np.int32], s: np.int32) -> tuple[np.int32, np.int32]:
    """Count the keys in K that are higher than s, and those that equal it."""
    higher, equal = np.int32(0), np.int32(0)
    for j in range(len(K)):
        higher = np.int32(higher + np.int32(K[j] > s))
        equal = np.int32(equal + np.int32(K[j] == s))
    return higher, equal


@kernel
def tied_before(K: npt.NDArray[np.int32], j: np.int64, order: Order, seed: np.uint64) -> int:
    """Count the columns with the same key as column j that rank before it."""
    s = K[j]
    before = 0
    if order.mode == BY_CODE:
        for k in range(j):
            before += K[k] == s
        return before
    mode, priority, codes = order.mode, order.priority, order.codes
    mapped = len(codes) > 0
    z = rank_key(s, codes[j] if mapped else np.int32(j), mode, priority, seed)
    for k in range(len(K)):
        if K[k] == s:
            other = rank_key(s, codes[k] if mapped else np.int32(k), mode, priority, seed)
            if other > z or (other == z and k < j):
                before += 1
    return before


def rank_numpy(scores: npt.NDArray[np.float32], ties: npt.NDArray[np.int64], j: int) -> int:
    """Return the rank of item j in one row of scores. NumPy version, for rows without filtered scores and NaN."""
    codes = np.arange(len(scores))
    tied_first = (scores == scores[j]) & ((ties < ties[j]) | ((ties == ties[j]) & (codes < j)))
    return 1 + int(np.count_nonzero((scores > scores[j]) | tied_first))
