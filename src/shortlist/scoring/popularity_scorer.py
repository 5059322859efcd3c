"""The same scores for every query."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class PopularityScorer:
    """ŷ(i|c) = popularity of i, for every c."""

    def __init__(self, popularity: npt.NDArray[np.float32], n_queries: int) -> None:
        self.popularity = popularity
        self.n_queries = n_queries
        self.n_items = len(popularity)

    def score(self, queries: slice, items: slice, out: npt.NDArray[np.float32]) -> None:
        """Fill a block of scores."""
        out[:] = self.popularity[items]

    def subset(self, items: npt.NDArray[np.int32]) -> PopularityScorer:
        """Return a scorer for these items only."""
        return PopularityScorer(self.popularity[items], self.n_queries)
