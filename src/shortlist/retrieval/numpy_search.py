"""Exact search for a few queries in NumPy, so that a request for one user does not compile kernels."""

from __future__ import annotations

from math import isqrt

import numpy as np
import numpy.typing as npt

from shortlist.retrieval.filters import ColumnMasks
from shortlist.retrieval.order import FILTERED_BITS, Order, ties_numpy

FEW_QUERIES = 4  # kernels are faster for more queries
CANDIDATES = 4096  # kernels are faster for more candidates, for example if many items have equal scores


def best_of_few(
    X: npt.NDArray[np.float32],
    n: int,
    q0: int,
    masks: ColumnMasks,
    order: Order,
    items: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
) -> bool:
    """Write the n best items of queries q0… and their scores, best first, padded with -1 and -inf.

    X has the scores of these queries for all columns; filtered scores are overwritten. Return False if there are so
    many candidates that kernels are faster; the output is then invalid.

    Bound by about 15 NumPy calls per query up to 20,000 columns, and by two passes over X beyond. Compare with the
    kernels: `benchmarks/speed/retrieval.py few`.
    """
    items[:], scores[:] = -1, -np.inf
    for r, x in enumerate(X):
        _filter(x.view(np.int32), q0 + r, masks)
        columns = _candidates(x, n)
        if len(columns) > CANDIDATES + 2 * n:
            return False
        values = x[columns] + np.float32(0)  # -0 becomes 0
        codes = order.codes[columns] if len(order.codes) else columns
        best = np.lexsort((ties_numpy(order, q0 + r, codes), -values))[:n]  # NaN comes last
        items[r, : len(best)] = codes[best]
        scores[r, : len(best)] = values[best]
    return True


def _candidates(x: npt.NDArray[np.float32], n: int) -> npt.NDArray[np.int64]:
    """Return the columns that may be among the n best, ascending, without filtered ones.

    Each group has every G-th column. At least n columns reach the n-th highest of the groups' maxima. With about
    √(n · columns) groups, only a few more than n do.
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
    """Overwrite the scores of the items that query q must not return. x has the bits of the scores."""
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
    """Return the columns of items, for those that have one."""
    if not len(masks.columns):
        return codes
    columns = masks.columns[codes]
    return columns[columns >= 0]
