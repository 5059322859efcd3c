"""Calibrated popularity: the same mix of popular and rare items as in the history."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.metrics.popularity_groups import popularity_groups, shares_of_rows
from shortlist.retrieval.slates.base import Catalogue, Codes, Scores, Slate, Values, over_pools
from shortlist.retrieval.slates.slate_kernels import calibrated_rows


@dataclass(frozen=True)
class Calibrated(Slate):
    """Calibrated popularity (Steck 2018, Abdollahpouri et al. 2021): the mix of popular and rare items of the history.

    Items fall into three popularity groups. The head are the most popular items that together have a fifth of the
    training pairs, the tail are the least popular items that together have a fifth, the rest is the middle. The next
    item is the one that maximises, over the slate Y including it,

        (1 − σ) · mean of r over Y − σ · JS(group shares in Y, group shares in the history),

    where JS is the Jensen–Shannon divergence in bits, from 0 to 1, which is defined for shares of 0 too, and r is the
    relevance (see `Slate`). The papers use a sum of r. With the mean, σ has the same effect at every position and for
    slates of any length. Contexts without a history get the n best items. The metric `miscalibration@n` is the same
    divergence.

    Args:
        strength: σ. With 0 the slate is the n best items; with 1 it has the shares of the history, as far as the pool
            allows.
        pool: the slate is chosen from this number of best items, after filters. A larger n enlarges the pool to n. Do
            not make it too small, because few of the best items are rare.

    >>> trained = SparseRows.from_lists([np.array([0, 1]), np.array([0, 2]), np.array([0, 3]), np.array([0])], 4)
    >>> about = {"catalogue": Catalogue(trained), "histories": SparseRows.from_lists([[3]], 4)}  # a tail item
    >>> codes, scores = np.array([[0, 1, 2]], np.int32), np.array([[3, 2, 1]], np.float32)
    >>> [Calibrated(s).pick(codes, scores, 2, **about)[0].tolist() for s in (0.0, 0.5)]
    [[[0, 1]], [[1, 2]]]
    """

    strength: float = 0.5
    pool: int = 100

    def __post_init__(self) -> None:
        self._check(strength=self.strength)

    @property
    def trade_off(self) -> float:
        """The strength σ."""
        return self.strength

    def _places(
        self,
        codes: Codes,
        scores: Scores,
        n: int,
        catalogue: Catalogue,
        histories: SparseRows,
        memory: int,
        threads: int,
    ) -> npt.NDArray[np.int32]:
        counts = catalogue.trained.column_counts() if catalogue.counts is None else catalogue.counts
        groups = popularity_groups(counts)
        wanted = shares_of_rows(histories, groups)
        places = np.empty((len(codes), n), np.int32)

        def work(rows: slice, pools: Codes, relevance: Values) -> None:
            calibrated_rows(pools, relevance, groups, wanted[rows], self.trade_off, places[rows])

        over_pools(work, codes, scores, threads)
        return places
