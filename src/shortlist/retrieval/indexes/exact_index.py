"""Exact search as an index: the vectors as they are, or a smaller copy of them that is searched first.

A smaller copy is read faster, which is what bounds a search for one query or a few. It cannot change what is found: an
item's score is at most that of its copy and ‖query‖ · ‖item − copy‖. More items than wanted are taken by this bound and
scored exactly, and the answer stands when the n-th best of them is above the bounds of all that were not taken; else
more are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shortlist._checks import one_of
from shortlist.retrieval.exact_search import top_n
from shortlist.retrieval.filters import Filters
from shortlist.retrieval.indexes.base import SEVERAL, Codes, Found, VectorIndex, Vectors
from shortlist.retrieval.indexes.compressed_vectors import CompressedScorer, CompressedVectors, halves_are_fast
from shortlist.retrieval.indexes.item_filter import ItemFilter
from shortlist.retrieval.indexes.rescoring import UNSURE, rescored

PRECISIONS = ("float32", "float16", "int8")
EVERY = ItemFilter(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int32))


class ExactIndex(VectorIndex):
    """Every item is scored, in blocks; what is found is exact.

    Args:
        vectors: items × dimensions.
        precision: "float32" searches the vectors themselves. "float16" and "int8" keep a copy of half or a quarter of
            their size and search that first where there are few queries, which is two to four times as fast. With many
            queries at once the products take the time, and the vectors themselves are searched; as they are for
            "float16" on a processor that cannot read it quickly, where there is no copy.
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
        """None: there is nothing to trade."""
        return {}

    @property
    def built(self) -> dict[str, Any]:
        """The precision that is searched first."""
        return {"precision": self.precision}

    def _apply(self, settings: Mapping[str, Any]) -> None:
        return

    @property
    def nbytes(self) -> int:
        """Of the smaller copy, where there is one."""
        return 0 if self._copy is None else self._copy.nbytes

    def _search(self, vectors: Vectors, n: int, filters: Filters, threads: int | None) -> Found:
        if self._copy is None or len(vectors) > SEVERAL:
            return self._all_scored(vectors, n, filters, threads)
        items = np.full((len(vectors), n), -1, np.int32)
        scores = np.full((len(vectors), n), -np.inf, np.float32)
        open_ = np.arange(len(vectors))
        most = 2 * n + 32
        while len(open_) and most < self.n_items // 4:
            proven = self._proven(vectors[open_], n, most, filters.of(open_), threads)
            done = open_[proven[2]]
            items[done], scores[done] = proven[0][proven[2]], proven[1][proven[2]]
            open_ = open_[~proven[2]]
            most *= 4
        if len(open_):
            items[open_], scores[open_] = self._of_some(open_, vectors, n, filters, threads)
        return items, scores

    def _proven(
        self, vectors: Vectors, n: int, most: int, filters: Filters, threads: int | None
    ) -> tuple[Codes, Vectors, npt.NDArray[np.bool_]]:
        """What so many candidates give, and for which queries it is certain."""
        assert self._copy is not None
        scorer = CompressedScorer(vectors, self._copy)
        candidates, bounds = top_n(scorer, most, filters=filters, priority=self.priority, threads=threads)
        items = np.empty((len(vectors), n), np.int32)
        scores = np.empty((len(vectors), n), np.float32)
        counts = np.empty(len(vectors), np.int64)
        rescored(
            vectors, self.vectors, candidates, 0, EVERY, UNSURE, self.ties, n, items, scores.view(np.int32), counts
        )
        complete = candidates[:, -1] < 0  # nothing is left that was not taken
        return items, scores, complete | (scores[:, -1] > bounds[:, -1])
