"""Scores from sparse rows and a sparse matrix of weights, for neighbourhood models and SLIM."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist.data.sparse_rows import SparseRows

Array: TypeAlias = npt.NDArray[Any]


class SparseScorer:
    """ŷ(i|q) = Σ_j x_{qj}·W_{ji} with sparse x and W.

    The j are the items of a history (item neighbours, SLIM) or the neighbours of a context (user neighbours). Scores
    are multiplied by `scale`, if given, which has a factor for each item.
    """

    def __init__(
        self,
        queries: SparseRows,
        strengths: npt.NDArray[np.float32],
        weights: SparseRows,
        scale: npt.NDArray[np.float32] | None = None,
    ) -> None:
        self.queries = queries
        self.strengths = strengths  # one for each entry of `queries`, or one for all
        self.weights = weights
        self._values = np.ones(1, np.float32) if weights.values is None else weights.values  # by entry, or one for all
        self.scale = scale
        self.n_queries = queries.n_rows
        self.n_items = weights.n_columns

    def score(self, queries: slice, items: slice, out: npt.NDArray[np.float32]) -> None:
        """Fill a block of scores."""
        rows, weights = self.queries, self.weights
        _add_rows(
            rows.indptr,
            rows.indices,
            self.strengths,
            weights.indptr,
            weights.indices,
            self._values,
            queries.start,
            items.start,
            out,
        )
        if self.scale is not None:
            out *= self.scale[items]


@kernel
def _add_rows(
    indptr: Array,
    indices: Array,
    strengths: Array,
    w_indptr: Array,
    w_indices: Array,
    w_values: Array,
    first_query: int,
    first_item: int,
    out: Array,
) -> None:
    """Sum sparse rows. Bound by their bytes, 8·Σ_j|W_j| a query, and by the bytes of the block, 4·|items| a query."""
    width = out.shape[1]
    for q in range(out.shape[0]):
        for i in range(width):
            out[q, i] = 0
        for e in range(indptr[first_query + q], indptr[first_query + q + 1]):
            x = strengths[e] if len(strengths) > 1 else strengths[0]
            j = indices[e]
            low, high = w_indptr[j], w_indptr[j + 1]
            end = high
            while low < high and first_item > 0:  # the first entry of this block of items
                middle = (low + high) // 2
                if w_indices[middle] < first_item:
                    low = middle + 1
                else:
                    high = middle
            for p in range(low, end):
                i = w_indices[p] - first_item
                if i >= width:
                    break
                out[q, i] += x * (w_values[p] if len(w_values) > 1 else w_values[0])
