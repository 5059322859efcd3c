"""Exact search as an index, optionally with a smaller copy of the vectors that is searched first.

A search for one or a few queries is bound by reading the vectors, so a smaller copy is faster. The result is still
exact. The score of an item is at most the score of its copy plus ‖query‖ · ‖item − copy‖. The candidates with the
highest bounds are scored exactly. If the n-th best of them is above the bounds of all other items, the result is
proven; otherwise the search is repeated with four times as many candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shortlist._checks import one_of
from shortlist.retrieval.exact_search import top_n
from shortlist.retrieval.filters import Filters
from shortlist.retrieval.indexes.base import SEVERAL, Codes, SearchResult, VectorIndex, Vectors
from shortlist.retrieval.indexes.compressed_vectors import CompressedScorer, CompressedVectors, halves_are_fast
from shortlist.retrieval.indexes.item_filter import ItemFilter
from shortlist.retrieval.indexes.rescoring import UNSURE, rescore

PRECISIONS = ("float32", "float16", "int8")
EVERY = ItemFilter(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int32))


class ExactIndex(VectorIndex):
    """Exact search: all items are scored, in blocks.

    Args:
        vectors: the item vectors, items × dimensions.
        precision: "float32" searches the vectors themselves. "float16" and "int8" also keep a copy of half or a quarter
            of the size. For up to 8 queries at once the copy is searched first, which is two to four times as fast and
            still exact. "float16" makes no copy on processors without fast half precision.
    """

    kind: ClassVar[str] = "exact"
    exact: ClassVar[bool] = True

    def __init__(
        self,
        vectors: npt.ArrayLike,
        *,
        priority: npt.ArrayLike | None = None,
        precision: str = "float32",
        threads: int | None = None,
    ) -> None:
        super().__init__(vectors, priority)
        self.precision = one_of("precision", precision, PRECISIONS)
        useful = precision == "int8" or (precision == "float16" and halves_are_fast())
        self._copy = CompressedVectors(self.vectors, precision, threads) if useful else None

    @property
    def settings(self) -> dict[str, Any]:
        """Empty: exact search has no search settings."""
        return {}

    @property
    def built(self) -> dict[str, Any]:
        """The precision."""
        return {"precision": self.precision}

    def _apply(self, settings: Mapping[str, Any]) -> None:
        return

    @property
    def nbytes(self) -> int:
        """The size of the smaller copy in bytes; 0 if there is none."""
        return 0 if self._copy is None else self._copy.nbytes

    def _search(self, vectors: Vectors, n: int, filters: Filters, threads: int | None) -> SearchResult:
        if self._copy is None or len(vectors) > SEVERAL:
            return self._score_all(vectors, n, filters, threads)
        items = np.full((len(vectors), n), -1, np.int32)
        scores = np.full((len(vectors), n), -np.inf, np.float32)
        pending = np.arange(len(vectors))
        n_candidates = 2 * n + 32
        while len(pending) and n_candidates < self.n_items // 4:
            best, exact, proven = self._search_copy(vectors[pending], n, n_candidates, filters.of(pending), threads)
            done = pending[proven]
            items[done], scores[done] = best[proven], exact[proven]
            pending = pending[~proven]
            n_candidates *= 4
        if len(pending):
            items[pending], scores[pending] = self._score_all_for(pending, vectors, n, filters, threads)
        return items, scores

    def _search_copy(
        self, vectors: Vectors, n: int, n_candidates: int, filters: Filters, threads: int | None
    ) -> tuple[Codes, Vectors, npt.NDArray[np.bool_]]:
        """Return the n best of `n_candidates` items by exact scores, and for which queries they are proven."""
        assert self._copy is not None
        scorer = CompressedScorer(vectors, self._copy)
        candidates, bounds = top_n(scorer, n_candidates, filters=filters, priority=self.priority, threads=threads)
        items = np.empty((len(vectors), n), np.int32)
        scores = np.empty((len(vectors), n), np.float32)
        counts = np.empty(len(vectors), np.int64)
        rescore(vectors, self.vectors, candidates, 0, EVERY, UNSURE, self.ties, n, items, scores.view(np.int32), counts)
        complete = candidates[:, -1] < 0  # all items are candidates
        return items, scores, complete | (scores[:, -1] > bounds[:, -1])
