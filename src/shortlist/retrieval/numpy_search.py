"""Exact search for a few queries, in NumPy: an answer to one user compiles nothing."""

from __future__ import annotations

from math import isqrt

import numpy as np
import numpy.typing as npt

from shortlist.retrieval.filters import ColumnMasks
from shortlist.retrieval.order import FILTERED_BITS, Order, ties_numpy

QUERIES = 4  # more are answered faster by the kernels
CANDIDATES = 4096  # more are sorted faster by the kernels: many items with equal scores, say


def best_of_few(
    X: npt.NDArray[np.float32],
    n: int,
    q0: int,
    masks: ColumnMasks,
    order: Order,
    items: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
) -> bool:
    """Write the best n items of queries q0… and their scores, best first, padded with -1 and -inf.

    X has the scores of these queries for all columns; filtered ones are overwritten. Return False where so many
    columns may be among the best that the kernels are the better choice; what was written is void then.

    Bound by some 15 calls of NumPy for each query, up to 20,000 columns; then by two passes over X.
    `benchmarks/speed/retrieval.py few` holds it against the kernels.
    """
    items[:], scores[:] = -1, -np.inf
    for r, x in enumerate(X):
        _filter(x.view(np.int32), q0 + r, masks)
        columns = _candidates(x, n)
        if len(columns) > CANDIDATES + 2 * n:
            return False
        found = x[columns] + np.float32(0)  # -0 becomes 0
        codes = order.codes[columns] if len(order.codes) else columns
        by = np.lexsort((ties_numpy(order, q0 + r, codes), -found))[:n]  # NaN comes last
        items[r, : len(by)] = codes[by]
        scores[r, : len(by)] = found[by]
    return True


def _candidates(x: npt.NDArray[np.float32], n: int) -> npt.NDArray[np.int64]:
    """The columns that may be among the best n, ascending, filtered ones never.

    Columns are cut into groups of every G-th. The n-th highest of the groups' maxima is a score that at least n columns
    reach. With about √(n · columns) groups, few more than n do.
    """
    width = len(x)
    size = max(1, width // max(2 * n, isqrt(n * width)))
    n_groups = width // size
    if n < n_groups:
        maxima = np.fmax.reduce(x[: size * n_groups].reshape(size, n_groups), axis=0, initial=-np.inf)  # no NaN
        maxima.partition(n_groups - n)
        if (least := maxima[n_groups - n]) > -np.inf:
            return np.flatnonzero(x >= least)
    return np.flatnonzero(x.view(np.int32) != FILTERED_BITS)  # -inf and NaN may be among the best


def _filter(x: npt.NDArray[np.int32], q: int, masks: ColumnMasks) -> None:
    """Overwrite the scores of what query q may not be answered; x are their bits."""
    if len(masks.allow_starts):
        allowed = _columns(masks.allow[masks.allow_starts[q] : masks.allow_starts[q + 1]], masks)
        kept = x[allowed]
        x[:] = FILTERED_BITS
        x[allowed] = kept
    if len(masks.exclude_starts):
        x[_columns(masks.exclude[masks.exclude_starts[q] : masks.exclude_starts[q + 1]], masks)] = FILTERED_BITS
    if len(masks.blocked):
        x[masks.blocked] = FILTERED_BITS


def _columns(codes: npt.NDArray[np.int32], masks: ColumnMasks) -> npt.NDArray[np.int32]:
    """The columns of these items, where they have one."""
    if not len(masks.columns):
        return codes
    columns = masks.columns[codes]
    return columns[columns >= 0]
