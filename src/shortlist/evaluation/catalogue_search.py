"""Search the catalogue for the contexts of an evaluation: ranks of the relevant items, and top-n lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist.data.sparse_rows import SparseRows, holds
from shortlist.metrics import Ranks
from shortlist.retrieval import Filters, item_ranks, top_n
from shortlist.scoring import BlockScorer

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class TopLists:
    """The n best items of each context and their scores, possibly with item n + 1 too."""

    items: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]
    n: int


@dataclass(frozen=True, eq=False)
class CatalogueSearch:
    """A search of the whole catalogue for each held-out context."""

    scorer: BlockScorer
    truth: SparseRows
    excluded: SparseRows | None  # items excluded from each context's ranking
    seed: int
    memory: int
    threads: int | None
    searched: dict[str, Any] = field(default_factory=dict, kw_only=True)  # what was searched already

    def full_ranks(self) -> Ranks:
        """Return the ranks of all relevant items; computed once."""
        if "ranks" not in self.searched:
            targets = (self.truth.indptr, self.truth.indices)
            ranks, n_ranked = item_ranks(self.scorer, targets, tie_seed=self.seed, **self._options)
            self.searched["ranks"] = Ranks(self.truth.indptr, ranks, self.truth.lengths, n_ranked, None)
        full: Ranks = self.searched["ranks"]
        return full

    def top(self, n: int, *, one_more: bool) -> TopLists:
        """Return the n best items, and item n + 1 too if `one_more`; ties are broken at random.

        The catalogue is searched only if no earlier search went as deep.
        """
        n_items = self.scorer.n_items
        depth = min(n + one_more, n_items)
        items, scores = self.searched.get("top", (None, None))
        if items is None or items.shape[1] < depth:
            items, scores = top_n(self.scorer, depth, tie_seed=self.seed, **self._options)
            self.searched["top"] = items, scores
        elif items.shape[1] > depth:
            items, scores = (np.ascontiguousarray(array[:, :depth]) for array in (items, scores))
        return TopLists(items, scores, min(n, n_items))

    def shown(self, top: TopLists, priority: Array) -> Array:
        """Return the n best items as `recommend` does: ties are broken by `priority`.

        The lists of `top` have the same items unless item n is tied with item n + 1. The catalogue is searched again
        only for such lists, or for all if item n + 1 is not known.
        """
        n = top.n
        if top.items.shape[1] == n < self.scorer.n_items:
            return top_n(self.scorer, n, priority=priority, **self._options)[0]
        order = np.lexsort((np.append(priority, np.iinfo(np.int32).max)[top.items[:, :n]], -top.scores[:, :n]))
        shown = np.take_along_axis(top.items[:, :n], order, axis=1)
        if top.items.shape[1] == n:
            return shown
        tied = np.flatnonzero((top.scores[:, n - 1] == top.scores[:, n]) & (top.items[:, n] >= 0))
        if len(tied) * 8 > len(shown):
            return top_n(self.scorer, n, priority=priority, **self._options)[0]
        if len(tied):
            options = {**self._options, "filters": self._filters(tied)}
            shown[tied] = top_n(_SubsetScorer(self.scorer, tied), n, priority=priority, **options)[0]
        return shown

    def ranks_within(self, top: Array, n: int) -> Ranks:
        """Return the ranks of the relevant items among `top`, the n best items. This is faster than `full_ranks`."""
        n_ranked = np.full(self.truth.n_rows, self.truth.n_columns, np.int64)
        if self.excluded is not None:
            n_ranked -= self.excluded.lengths
        indptr, ranks = hit_ranks(top, self.truth.indptr, self.truth.indices)
        return Ranks(indptr, ranks, self.truth.lengths, n_ranked, n)

    @property
    def _options(self) -> dict[str, Any]:
        return {"filters": self._filters(), "memory": self.memory, "threads": self.threads}

    def _filters(self, contexts: Array | None = None) -> Filters | None:
        if self.excluded is None:
            return None
        rows = self.excluded if contexts is None else self.excluded.take(contexts)
        return Filters(exclude=(rows.indptr, rows.indices))


@dataclass(frozen=True, eq=False)
class TwoStageSearch(CatalogueSearch):
    """A search in which stage two reranks the first `candidates` items of each ranking."""

    candidates: int
    rerank: Callable[[Array, Array], tuple[Array, Array]]  # from items and scores of stage one to those of both stages

    def full_ranks(self) -> Ranks:
        """Return the ranks of all relevant items: first the candidates in stage two's order, then stage one's order."""
        first = CatalogueSearch.full_ranks(self)
        top = CatalogueSearch.top(self, self.candidates, one_more=False)
        items, _ = self.rerank(top.items, top.scores)
        indptr, ranks = hit_ranks(items, self.truth.indptr, self.truth.indices)
        n = items.shape[1]
        behind = first.ranks > n
        context_of = np.concatenate([np.repeat(np.arange(len(first)), np.diff(indptr)), first.rows[behind]])
        order = np.argsort(context_of, kind="stable")
        ranks = np.concatenate([ranks, first.ranks[behind]])[order]
        return Ranks(first.indptr, ranks, first.n_relevant, first.n_ranked, None)

    def top(self, n: int, *, one_more: bool) -> TopLists:
        """Return the n best items of both stages. Stage one breaks ties at random, stage two by stage one's order."""
        first = CatalogueSearch.top(self, max(n, self.candidates), one_more=False)
        items, scores = self.rerank(first.items, first.scores)
        n = min(n, self.scorer.n_items)
        return TopLists(items[:, :n], scores[:, :n], n)

    def shown(self, top: TopLists, priority: Array) -> Array:
        """Return the n best items as `recommend` does: stage one breaks ties by `priority`."""
        first = CatalogueSearch.top(self, max(top.n, self.candidates), one_more=True)
        items = CatalogueSearch.shown(self, first, priority)
        if np.array_equal(items, first.items[:, : first.n]):
            return top.items
        # Tied items swap places, but the column of scores is the same.
        return np.ascontiguousarray(self.rerank(items, first.scores[:, : first.n])[0][:, : top.n])


class _SubsetScorer:
    """A scorer for a subset of another scorer's queries."""

    def __init__(self, scorer: BlockScorer, queries: Array) -> None:
        self.scorer = scorer
        self.queries = queries
        self.n_queries = len(queries)
        self.n_items = scorer.n_items

    def score(self, queries: slice, items: slice, out: npt.NDArray[np.float32]) -> None:
        """Fill a block of scores, query by query."""
        for row, q in enumerate(self.queries[queries].tolist()):
            self.scorer.score(slice(q, q + 1), items, out[row : row + 1])


@kernel
def hit_ranks(top: Array, indptr: Array, indices: Array) -> tuple[Array, Array]:
    """Return for each row of `top` the places (from 1) of the items that are in the row's sorted `indices`."""
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
