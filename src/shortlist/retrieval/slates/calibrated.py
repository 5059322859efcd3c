"""As many popular and rare items as the history has."""

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
    """Calibrated popularity (Steck 2018, Abdollahpouri et al. 2021): popular and rare items as the history has them.

    Items are of three groups, head, middle and tail; the head are the most popular items that together have a fifth of
    the training pairs, the tail the least popular ones that have a fifth. The next item is the one with which the slate
    so far, Y, has most of

        (1 − σ) · mean of r over Y − σ · JS(shares of the groups in Y, shares in the history),

    JS being the Jensen–Shannon divergence in bits, from 0 to 1, which takes shares of 0 as they are; `Slate` says what
    r is. With a mean, for the sum of the papers, both sides count alike at every place and for slates of any length.
    Who has no history gets the list as it was. `miscalibration@n` is the same divergence as a metric.

    Args:
        strength: σ, from 0, the list as it was, to 1: the shares of the history, as near as the pool has them.
        pool: how many of the best items, under the filters, the slate is picked from; at least as many as are wanted.
            Of rare items there are few among the best, so it should not be too small.

    >>> trained = Rows.from_lists([np.array([0, 1]), np.array([0, 2]), np.array([0, 3]), np.array([0])], 4)
    >>> about = {"catalogue": Catalogue(trained), "histories": Rows.from_lists([[3]], 4)}  # of the tail
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
        """σ."""
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
        groups = popularity_groups(catalogue.trained.column_counts())
        wanted = shares_of_rows(histories, groups)
        places = np.empty((len(codes), n), np.int32)

        def work(rows: slice, pools: Codes, relevance: Values) -> None:
            calibrated_rows(pools, relevance, groups, wanted[rows], self.trade_off, places[rows])

        over_pools(work, codes, scores, threads)
        return places
