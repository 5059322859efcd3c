"""Slates in place of the best n: what an evaluation with `slate=` searches for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shortlist.errors import SettingError
from shortlist.evaluation.catalogue_search import CatalogueSearch, TopLists
from shortlist.metrics import Metric
from shortlist.recommenders.base import Queries, Recommender
from shortlist.retrieval.slates.base import Slate


@dataclass(frozen=True, eq=False)
class SlateTop(TopLists):
    """Slates, and the pools that they were picked from."""

    pools: TopLists


@dataclass(frozen=True, eq=False)
class SlateSearch(CatalogueSearch):
    """A search whose lists are slates: `top` of pools with ties in random order, `shown` of those of `recommend`.

    Slates are picked place by place, so that the first places of a long one are a short one.
    """

    slate: Slate
    model: Recommender
    queries: Queries

    @classmethod
    def of(cls, search: CatalogueSearch, slate: Slate, model: Recommender, queries: Queries) -> Self:
        """The same search, with a slate."""
        return cls(**vars(search), slate=slate, model=model, queries=queries)

    def top(self, n: int, *, one_more: bool) -> SlateTop:
        """The n that the slate picks, and the pools."""
        pools = super().top(self.slate.pool, one_more=one_more)
        n = min(n, pools.n)
        return SlateTop(*self._picked(pools.items[:, : pools.n], pools, n), n, pools)

    def shown(self, top: TopLists, priority: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What it picks of the pools as `recommend` searches for them: equal scores by `priority`."""
        assert isinstance(top, SlateTop)
        codes = super().shown(top.pools, priority)
        if np.array_equal(codes, top.pools.items[:, : top.pools.n]):
            return top.items
        return self._picked(codes, top.pools, top.n)[0]  # whatever their order, equal scores are equal

    def _picked(
        self, codes: npt.NDArray[np.int32], pools: TopLists, n: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        scores = pools.scores[:, : pools.n]
        return self.model._slate(self.slate, codes, scores, self.queries, n, self.memory, self.threads)


def check_depths(slate: Slate, metrics: list[Metric]) -> None:
    """Refuse metrics that look where a slate has no places."""
    if whole := [str(metric) for metric in metrics if metric.needs_full_ranks]:
        raise SettingError(
            f"{', '.join(whole)} cannot be had of a slate: it looks at the whole ranking, and a slate has n places; "
            "take metrics at n, such as 'ndcg@10'"
        )
    if deep := [str(metric) for metric in metrics if (metric.n or 0) > slate.pool]:
        raise SettingError(
            f"{', '.join(deep)} looks at more places than the pool of {slate!r} has; take a smaller n or a larger pool"
        )
