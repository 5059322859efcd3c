"""Neighbour models: items similar to those of a history, and items of similar contexts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer, one_of
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.weighting import BY_DEFAULT, WEIGHTINGS, Weighting, strengths
from shortlist.ranking.queries import Queries
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.fit_progress import Monitor
from shortlist.recommenders.search_space import Choice, Integer, Real, Space, When
from shortlist.recommenders.sparse_items import SparseItems
from shortlist.scoring.similarity import Neighbourhood, NeighbourScorer, Similarity, SimilarityName, row_keys
from shortlist.scoring.sparse_scorer import SparseScorer


@dataclass(kw_only=True, repr=False, eq=False)
class Neighbours(Recommender):
    """Base class of neighbour models, with their settings."""

    neighbours: int = 100
    similarity: SimilarityName = "cosine"
    shrinkage: float = 0.0
    asymmetry: float = 0.5
    k1: float = 1.2
    b: float = 0.75
    weighting: Weighting = BY_DEFAULT

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        integer("neighbours", self.neighbours)
        one_of("weighting", self.weighting, WEIGHTINGS)
        self._make_similarity()

    def unused_settings(self) -> dict[str, str]:
        """Return the settings that have no effect given the other settings, as {name: reason}."""
        bm25 = self.similarity == "bm25"
        whose = "similarity='cosine' or similarity='tfidf'" if bm25 else "similarity='bm25'"
        names = ("shrinkage", "asymmetry") if bm25 else ("k1", "b")
        why = f"with similarity={self.similarity!r}, only with {whose}"
        return super().unused_settings() | dict.fromkeys(names, why)

    @classmethod
    def space(cls) -> Space:
        """Return the search space: the number of neighbours, and the similarity with its settings."""
        cosines, bm25 = When("similarity", "cosine", "tfidf"), When("similarity", "bm25")
        return {
            "neighbours": Integer(20, 500, log=True),
            "similarity": Choice("cosine", "tfidf", "bm25"),
            "shrinkage": Real(0.3, 1000.0, log=True, when=cosines),
            "asymmetry": Real(0.05, 0.7, when=cosines),
            "k1": Real(0.3, 100.0, log=True, when=bm25),
            "b": Real(0.1, 1.0, when=bm25),
        }

    def _make_similarity(self) -> Similarity:
        return Similarity(self.similarity, self.shrinkage, self.asymmetry, self.k1, self.b)


@dataclass(kw_only=True, repr=False, eq=False)
class ItemKNN(Neighbours, SparseItems):
    """Item nearest neighbours (Sarwar et al. 2001; Deshpande & Karypis 2004).

    ŷ(i|c) = Σ_{j∈I_c∩N_k(i)} x_{cj}·sim(i, j), where N_k(i) are the k items most similar to i by the contexts that had
    them. `Similarity` has the formulas.

    For each item, fitting sums the histories of the contexts that had it. That takes Σ_c|I_c|² additions, and memory
    only for the result. New histories are scored directly, without folding in.

    Args:
        neighbours: k.
        similarity: `"cosine"`, `"tfidf"` (the cosine, with more weight on contexts with few items) or `"bm25"`.
        shrinkage: h in the cosine's denominator: lowers the similarity of items with few contexts in common. Try 0 to
            300. Not for bm25.
        asymmetry: a, from 0 to 1: the power of item i's own length; ½ is the ordinary cosine. Slightly less favours
            popular items. Much less makes the rarest items the neighbours of popular ones, unless `shrinkage` is large.
            Not for bm25.
        k1: for bm25: how quickly the effect of repeated events saturates.
        b: for bm25, from 0 to 1: how strongly popular items are penalised.
        weighting: the strength x of a pair with weight w: `"binary"` 1, `"log"` log₂(1 + w), `"raw"` w.

    >>> from shortlist import Interactions
    >>> bought = {"who": [1, 1, 2, 2, 3, 3, 3], "what": ["tea", "milk", "tea", "milk", "tea", "milk", "jam"]}
    >>> events = Interactions.from_frame(bought, context="who", item="what")
    >>> ItemKNN().fit(events).similar_items(["tea"], n=1).ids
    [['milk']]
    """

    def learn(self, interactions: Interactions, options: FitOptions, monitor: Monitor) -> None:
        """Learn from interactions."""
        by_item, by_context = interactions.by_item, interactions.by_context
        x = strengths(by_item.values, self.weighting)
        keys = np.arange(by_item.n_rows, dtype=np.uint64)
        items = Neighbourhood(
            self._make_similarity(), by_item, x, by_context, strengths(by_context.values, self.weighting), keys
        )
        self._set_weights(items.nearest(by_item, x, keys, self.neighbours, threads=options.threads, step=monitor.step))


@dataclass(kw_only=True, repr=False, eq=False)
class UserKNN(Neighbours):
    """Context nearest neighbours (Resnick et al. 1994; for implicit feedback Sarwar et al. 2000).

    ŷ(i|c) = Σ_{d∈N_k(c)} sim(c, d)·x_{di}, where N_k(c) are the k contexts most similar to c by the items that they
    had. `Similarity` has the formulas.

    There is nothing to learn: neighbours are searched for every query, with Σ_{i∈I_c}|C_i| additions, both for training
    contexts and for new histories. Contexts with exactly the same items are no neighbours, since they can add no other
    items; this also excludes the context itself.

    Args:
        neighbours: k.
        similarity: `"cosine"`, `"tfidf"` (the cosine, with more weight on rare items) or `"bm25"`.
        shrinkage: h in the cosine's denominator: lowers the similarity of contexts with few items in common. Not for
            bm25.
        asymmetry: a, from 0 to 1: ½ is the ordinary cosine; higher values favour contexts with long histories. Not for
            bm25.
        k1: for bm25: how quickly the effect of repeated events saturates.
        b: for bm25, from 0 to 1: how strongly contexts with long histories are penalised.
        weighting: the strength x of a pair with weight w: `"binary"` 1, `"log"` log₂(1 + w), `"raw"` w.
    """

    # It learns nothing but histories, which every recommender stores.
    _arrays: ClassVar[tuple[str, ...]] = ()
    _on_first_use: ClassVar[dict[str, str]] = Neighbours._on_first_use | dict.fromkeys(
        ("_neighbourhood", "_by_context", "_by_item"), "_prepare_neighbours"
    )

    def learn(self, interactions: Interactions, options: FitOptions, monitor: Monitor) -> None:
        """Learn from interactions."""
        self._set_contexts(interactions.by_context, interactions.by_item)

    def _set_contexts(self, by_context: SparseRows, by_item: SparseRows) -> None:
        x = strengths(by_context.values, self.weighting)
        self._neighbourhood = Neighbourhood(
            self._make_similarity(),
            by_context,
            x,
            by_item,
            strengths(by_item.values, self.weighting),
            row_keys(by_context),
        )
        self._by_context = SparseRows(by_context.indptr, by_context.indices, x, by_context.n_columns)
        self._by_item = SparseRows(by_item.indptr, by_item.indices, None, by_item.n_columns)

    def scorer(self, queries: Queries, threads: int | None = None) -> NeighbourScorer:
        """Return a scorer of all items for these queries."""
        histories = queries.histories.sets()
        x = strengths(histories.values, self.weighting)
        return NeighbourScorer(
            self._neighbourhood, histories, x, row_keys(histories), int(self.neighbours), self._by_context
        )

    def _similarity(self, codes: npt.NDArray[np.int32]) -> SparseScorer:
        """Return a scorer of the cosine between the contexts of items."""
        seen = SparseRows(self._by_context.indptr, self._by_context.indices, None, self._by_context.n_columns)
        scale = (1 / np.sqrt(np.maximum(self._by_item.lengths, 1))).astype(np.float32)
        rows = self._by_item.take(codes)
        return SparseScorer(rows, np.repeat(scale[codes], rows.lengths), seen, scale)

    def _check_arrays(self) -> None:
        """Do nothing: it has no arrays besides the histories."""

    def _prepare_neighbours(self) -> None:
        """Set what the search for neighbours of a loaded model needs."""
        self._set_contexts(self.seen_, self.seen_.transpose())
