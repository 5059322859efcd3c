"""The catalogue searched for the contexts of an evaluation: ranks of what is relevant, and lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist.data.rows import Rows, holds
from shortlist.metrics import Ranks
from shortlist.retrieval import Filters, item_ranks, top_n
from shortlist.scoring import BlockScorer

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Search:
    """The catalogue, ready to be ranked for every context of the truth."""

    scorer: BlockScorer
    truth: Rows
    excluded: Rows | None  # what is left out of each context's ranking
    seed: int
    memory: int
    threads: int | None

    def full_ranks(self) -> Ranks:
        """The ranks of all relevant items."""
        targets = (self.truth.indptr, self.truth.indices)
        ranks, n_ranked = item_ranks(self.scorer, targets, tie_seed=self.seed, **self._how)
        return Ranks(self.truth.indptr, ranks, self.truth.lengths, n_ranked, None)

    def top(self, n: int, priority: Array | None = None) -> Array:
        """The best n; equal scores by `priority`, else at random."""
        seed = self.seed if priority is None else None
        return top_n(self.scorer, min(n, self.scorer.n_items), priority=priority, tie_seed=seed, **self._how)[0]

    def ranks_within(self, top: Array, n: int) -> Ranks:
        """The ranks of the relevant items up to n, where `top` are the best n: cheaper than all of them."""
        n_ranked = np.full(self.truth.n_rows, self.truth.n_columns, np.int64)
        if self.excluded is not None:
            n_ranked -= self.excluded.lengths
        indptr, ranks = hit_ranks(top, self.truth.indptr, self.truth.indices)
        return Ranks(indptr, ranks, self.truth.lengths, n_ranked, n)

    @property
    def _how(self) -> dict[str, Any]:
        filters = None if self.excluded is None else Filters(exclude=(self.excluded.indptr, self.excluded.indices))
        return {"filters": filters, "memory": self.memory, "threads": self.threads}


@kernel
def hit_ranks(top: Array, indptr: Array, indices: Array) -> tuple[Array, Array]:
    """For each row of `top`, the places (from 1) at which items of the row's sorted `indices` stand."""
    n_rows, n = top.shape
    out_indptr = np.zeros(n_rows + 1, np.int64)
    out = np.empty(min(n_rows * n, len(indices)), np.int64)
    at = 0
    for q in range(n_rows):
        begin, end = indptr[q], indptr[q + 1]
        for k in range(n):
            if holds(indices, begin, end, top[q, k]):
                out[at] = k + 1
                at += 1
        out_indptr[q + 1] = at
    return out_indptr, out[:at]
