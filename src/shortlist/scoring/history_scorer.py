"""Scores from a history and a dense matrix of item-to-item weights, for EASE."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist.data.sparse_rows import SparseRows

Array: TypeAlias = npt.NDArray[Any]


class HistoryScorer:
    """ŷ(i|c) = Σ_{j∈I_c} x_{cj}·B_{ji}: the weights of the history's items for item i."""

    def __init__(
        self, histories: SparseRows, strengths: npt.NDArray[np.float32], weights: npt.NDArray[np.float32]
    ) -> None:
        self.histories = histories
        self.strengths = strengths  # one for each entry of `histories`, or one for all
        self.weights = weights
        self.n_queries = histories.n_rows
        self.n_items = weights.shape[1]

    def score(self, queries: slice, items: slice, out: npt.NDArray[np.float32]) -> None:
        """Fill a block of scores."""
        rows = self.histories
        _sum_rows(rows.indptr, rows.indices, self.strengths, self.weights, queries.start, items.start, out)


@fast_kernel
def _sum_rows(
    indptr: Array, indices: Array, strengths: Array, B: Array, first_query: int, first_item: int, out: Array
) -> None:
    """Sum rows of B. Bound by the bytes of these rows: 4·n_c·|items| a query."""
    for q in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[q, i] = 0
        for e in range(indptr[first_query + q], indptr[first_query + q + 1]):
            x = strengths[e] if len(strengths) > 1 else strengths[0]
            row = B[indices[e]]
            for i in range(out.shape[1]):
                out[q, i] += x * row[first_item + i]
