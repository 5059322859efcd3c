"""Kernels that find the ranks of given items in whole rows of scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist.retrieval.filters import ColumnMasks, exclude_some, keep_only
from shortlist.retrieval.order import BY_CODE, FILTERED, FILTERED_BITS, Order, item_mask, key_of, row_seed


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
    """Write the ranks of the targets of queries q0…, whose scores for all columns are given by their bits X.

    One vectorised count over the row per target, in the cache nearest to the core; a row of scores is read from
    further away only once. Equal scores cost a scan of the row more. At 20,000 items, 128 dimensions and 5 targets a
    query, product and ranks take 1.15 to 1.3 times as long as the fastest bare product.
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
    """How many of the keys K are higher than s, and how many equal it."""
    higher, equal = np.int32(0), np.int32(0)
    for j in range(len(K)):
        higher = np.int32(higher + np.int32(K[j] > s))
        equal = np.int32(equal + np.int32(K[j] == s))
    return higher, equal


@kernel
def tied_before(K: npt.NDArray[np.int32], j: np.int64, order: Order, seed: np.uint64) -> int:
    """How many of the columns with the same key as column j come before it."""
    s = K[j]
    before = 0
    if order.mode == BY_CODE:
        for k in range(j):
            before += K[k] == s
        return before
    mode, priority, codes = order.mode, order.priority, order.codes
    mapped = len(codes) > 0
    z = item_mask(s, codes[j] if mapped else np.int32(j), mode, priority, seed)
    for k in range(len(K)):
        if K[k] == s:
            other = item_mask(s, codes[k] if mapped else np.int32(k), mode, priority, seed)
            if other > z or (other == z and k < j):
                before += 1
    return before


def rank_numpy(scores: npt.NDArray[np.float32], ties: npt.NDArray[np.int64], j: int) -> int:
    """NumPy twin: the rank of item j in one row of scores, none of which is filtered or NaN."""
    codes = np.arange(len(scores))
    tied_first = (scores == scores[j]) & ((ties < ties[j]) | ((ties == ties[j]) & (codes < j)))
    return 1 + int(np.count_nonzero((scores > scores[j]) | tied_first))
