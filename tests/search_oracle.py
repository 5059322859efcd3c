"""Brute force for the tests: full rows, one lexsort each."""

from __future__ import annotations

import numpy as np

from shortlist.retrieval import Filters
from shortlist.retrieval.filters import passes_numpy
from shortlist.retrieval.order import make_order, ties_numpy
from shortlist.retrieval.select import best_numpy


class TableScorer:
    """Scores read from a table; no `subset`."""

    def __init__(self, table):
        self.table = np.asarray(table, np.float32)
        self.n_queries, self.n_items = self.table.shape

    def score(self, queries, items, out):
        assert out.flags.c_contiguous
        out[...] = self.table[queries, items]


class NarrowableScorer(TableScorer):
    def subset(self, items):
        return TableScorer(self.table[:, items])


def full_ranking(table, q, filters, priority, tie_seed, query_keys):
    """The item codes that the filters leave for query q, best first."""
    n_queries, n_items = table.shape
    order = make_order(n_queries, n_items, priority, tie_seed, query_keys, np.empty(0, np.int32))
    codes = np.flatnonzero(passes_numpy(filters or Filters(), q, n_items)).astype(np.int32)
    return best_numpy(table[q, codes], ties_numpy(order, q, codes), codes, n_items)


def top_n_oracle(table, n, filters=None, priority=None, tie_seed=None, query_keys=None):
    items = np.full((len(table), n), -1, np.int32)
    scores = np.full((len(table), n), -np.inf, np.float32)
    for q in range(len(table)):
        best = full_ranking(table, q, filters, priority, tie_seed, query_keys)[:n]
        items[q, : len(best)] = best
        scores[q, : len(best)] = table[q, best]
    return items, scores


def ranks_oracle(table, targets, filters=None, priority=None, tie_seed=None, query_keys=None):
    starts, codes = targets
    ranks = np.zeros(len(codes), np.int64)
    n_ranked = np.zeros(len(table), np.int64)
    for q in range(len(table)):
        ranking = list(full_ranking(table, q, filters, priority, tie_seed, query_keys))
        n_ranked[q] = len(ranking)
        for p in range(starts[q], starts[q + 1]):
            ranks[p] = ranking.index(codes[p]) + 1 if codes[p] in ranking else 0
    return ranks, n_ranked


def csr(lists):
    starts = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return starts, np.array([i for row in lists for i in row], np.int32)
