"""The most popular items for everyone: the baseline that every other recommender must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from shortlist._checks import one_of
from shortlist.data.interactions import Interactions
from shortlist.objectives.weighting import BY_DEFAULT, WEIGHTINGS, Weighting, strengths
from shortlist.ranking.queries import Queries
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.fit_progress import Monitor
from shortlist.scoring.popularity_scorer import PopularityScorer


@dataclass(kw_only=True, repr=False, eq=False)
class Popularity(Recommender):
    """The most popular items for everyone: the score of an item is the number of contexts that had it.

    In general ŷ(i|c) = Σ_{c∈C_i} f(w_{ci}), where f depends on `weighting`.

    Args:
        weighting: the strength f of a pair with weight w: `"binary"` 1, `"log"` log₂(1 + w), `"raw"` w.

    >>> from shortlist import Interactions
    >>> events = Interactions.from_frame({"u": [1, 2, 2], "i": ["tea", "tea", "jam"]}, context="u", item="i")
    >>> Popularity().fit(events).recommend([1], n=1).ids
    [['jam']]
    """

    weighting: Weighting = BY_DEFAULT

    _arrays: ClassVar[tuple[str, ...]] = ("item_scores_",)

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        one_of("weighting", self.weighting, WEIGHTINGS)

    def learn(self, interactions: Interactions, options: FitOptions, monitor: Monitor) -> None:
        """Learn from interactions."""
        rows = interactions.by_context
        strength = np.broadcast_to(strengths(rows.values, self.weighting), len(rows))
        counts = np.bincount(rows.indices, weights=strength, minlength=interactions.n_items)
        self.item_scores_: npt.NDArray[np.float32] = counts.astype(np.float32)

    def scorer(self, queries: Queries, threads: int | None = None) -> PopularityScorer:
        """Return a scorer of all items for these queries."""
        return PopularityScorer(self.item_scores_, len(queries))

    def _check_arrays(self) -> None:
        self._require_shape("item_scores_", (len(self.items_),))
