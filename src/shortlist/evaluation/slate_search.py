"""The search of an evaluation with `slate=`: slates instead of the n best items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shortlist.data.histories import Histories
from shortlist.errors import SettingError
from shortlist.evaluation.catalogue_search import CatalogueSearch, TopLists
from shortlist.metrics import Metric
from shortlist.ranking.engine import slate_of
from shortlist.ranking.protocols import TopItems
from shortlist.ranking.request import Request
from shortlist.retrieval.slates.base import Catalogue, Slate


@dataclass(frozen=True, eq=False)
class SlateTop(TopLists):
    """Slates, and the pools they were picked from."""

    pools: TopLists


@dataclass(frozen=True, eq=False)
class SlateSearch(CatalogueSearch):
    """A search whose lists are slates. The pools break ties at random in `top`, and as `recommend` does in `shown`.

    Slates are filled place by place, so the first n places of a longer slate are the slate of n items.
    """

    slate: Slate
    catalogue: Catalogue
    histories: Histories

    @classmethod
    def of(cls, search: CatalogueSearch, slate: Slate, catalogue: Catalogue, histories: Histories) -> Self:
        """Return the same search, with a slate."""
        return cls(**vars(search), slate=slate, catalogue=catalogue, histories=histories)

    def top(self, n: int, *, one_more: bool) -> SlateTop:
        """Return slates of n items, and their pools."""
        pools = super().top(self.slate.pool, one_more=one_more)
        n = min(n, pools.n)
        return SlateTop(*self._pick(pools.items[:, : pools.n], pools, n), n, pools)

    def shown(self, top: TopLists, priority: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the slates as `recommend` does: from pools that break ties by `priority`."""
        assert isinstance(top, SlateTop)
        codes = super().shown(top.pools, priority)
        if np.array_equal(codes, top.pools.items[:, : top.pools.n]):
            return top.items
        return self._pick(codes, top.pools, top.n)[0]  # tied items swap places, but the column of scores is the same

    def _pick(
        self, codes: npt.NDArray[np.int32], pools: TopLists, n: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        request = Request(n=n, slate=self.slate, memory=self.memory, threads=self.threads)
        return slate_of(self.catalogue, TopItems(codes, pools.scores[:, : pools.n]), self.histories, request)


def check_depths(slate: Slate, metrics: list[Metric]) -> None:
    """Refuse metrics of the whole ranking, and metrics at an n greater than the slate's pool."""
    if whole := [str(metric) for metric in metrics if metric.needs_full_ranks]:
        raise SettingError(
            f"{', '.join(whole)} cannot be computed for a slate: a slate has n positions, not the whole ranking",
            field="metrics",
            hint="use metrics at n, such as 'ndcg@10'",
        )
    if deep := [str(metric) for metric in metrics if (metric.n or 0) > slate.pool]:
        raise SettingError(
            f"{', '.join(deep)} needs more items than the pool of {slate!r} has",
            hint="use a smaller n or a larger pool",
            field="metrics",
        )
