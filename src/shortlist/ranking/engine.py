"""The one way from queries in codes to lists, scores and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._threads import blas_threads
from shortlist.data.histories import Histories
from shortlist.data.vocabulary import Codes
from shortlist.ranking.protocols import EmbeddingRanker, Ranker, TopItems
from shortlist.ranking.queries import Queries
from shortlist.ranking.recommendations import Recommendations
from shortlist.ranking.request import Request
from shortlist.retrieval import Filters, item_ranks, top_n
from shortlist.retrieval.slates.base import Catalogue
from shortlist.scoring import BlockScorer, DotProductScorer, PickScorer

_BLOCK = 1 << 20  # scores computed at a time


def recommend(ranker: Ranker, queries: Queries, request: Request) -> Recommendations:
    """Return the lists of a model for these queries."""
    filters = ranker.filters(queries, request)
    with blas_threads(request.threads):
        return labelled(ranker, queries, ranker.top(queries, filters, request))


def labelled(ranker: Ranker, queries: Queries, lists: TopItems) -> Recommendations:
    """Return lists in codes as lists of ids."""
    return Recommendations(queries.labels, ranker.items_, lists.items, lists.scores, skipped=queries.skipped)


def best(ranker: Ranker, scorer: BlockScorer, queries: Queries, filters: Filters, request: Request) -> TopItems:
    """Return the n best items by exact search, or a slate of n items."""
    n_items = scorer.n_items
    lists = TopItems(
        *top_n(
            scorer,
            request.depth(n_items),
            filters=filters,
            priority=ranker.item_priority_,
            memory=request.memory,
            threads=request.threads,
        )
    )
    return lists if request.slate is None else slate_of(ranker.catalogue, lists, queries.histories, request)


def best_for_embeddings(
    ranker: EmbeddingRanker, embeddings: npt.NDArray[np.float32], queries: Queries, request: Request
) -> Recommendations:
    """Return the lists for queries whose embeddings are given."""
    filters = ranker.filters(queries, request)
    with blas_threads(request.threads):
        scorer = DotProductScorer(embeddings, ranker.item_embeddings_)
        return labelled(ranker, queries, best(ranker, scorer, queries, filters, request))


def slate_of(catalogue: Catalogue, pools: TopItems, histories: Histories, request: Request) -> TopItems:
    """Let the request's slate pick n items from the pool of each query."""
    assert request.slate is not None
    items, scores = request.slate.pick(
        *pools,
        min(request.n, pools.items.shape[1]),
        catalogue=catalogue,
        histories=histories.sets(),
        memory=request.memory,
        threads=request.threads,
    )
    return TopItems(items, scores)


def scores_of_items(
    ranker: Ranker, queries: Queries, items: Sequence[Codes], threads: int | None = None
) -> list[npt.NDArray[np.float32]]:
    """Return the scores of given items, one list of items per query."""
    with blas_threads(threads):
        return _scores_of_items(ranker.scorer(queries, threads), items)


def _scores_of_items(scorer: BlockScorer, items: Sequence[Codes]) -> list[npt.NDArray[np.float32]]:
    if isinstance(scorer, PickScorer):
        return [scorer.pick(q, codes) for q, codes in enumerate(items)]
    size = max(1, min(len(items), _BLOCK // max(1, scorer.n_items)))
    block = np.empty((size, scorer.n_items), np.float32)
    out: list[npt.NDArray[np.float32]] = []
    for start in range(0, len(items), size):
        stop = min(start + size, len(items))
        scorer.score(slice(start, stop), slice(0, scorer.n_items), block[: stop - start])
        out += [row[codes] for row, codes in zip(block, items[start:stop])]
    return out


def ranks_of_items(
    ranker: Ranker, queries: Queries, items: Sequence[Codes], request: Request
) -> list[npt.NDArray[np.int64]]:
    """Return the ranks of given items among those that the filters leave, from 1; 0 for items filtered out."""
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in items])]).astype(np.int64)
    flat: npt.NDArray[Any] = np.concatenate(items) if items else np.empty(0, np.int32)
    filters = ranker.filters(queries, request)
    with blas_threads(request.threads):
        ranks, _ = item_ranks(
            ranker.scorer(queries, request.threads),
            (indptr, flat),
            filters=filters,
            priority=ranker.item_priority_,
            memory=request.memory,
            threads=request.threads,
        )
    return [ranks[start:stop] for start, stop in pairwise(indptr)]
