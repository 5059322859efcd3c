"""A sampler of items that the model ranks high, without computing ranks (section 4.2.4 of the article).

Rendle and Freudenthaler, "Improving Pairwise Learning for Item Recommendation from Implicit Feedback", WSDM 2014.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer, number, numbers
from shortlist._threads import run_chunks
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.sampling.base import Array, BoundSampler, Exclude, Sampler
from shortlist.sampling.sampler_tables import ADAPTIVE, SamplerTables
from shortlist.sampling.sorting import sort_falling

_COLUMNS = 16  # coordinates that a thread sorts at a time


@dataclass(frozen=True)
class AdaptiveRank(Sampler):
    """Approximately q(j|c) ∝ exp(−r(j|c)/γ) with the rank r of j, for dot-product models.

    The exact distribution is a mixture over the coordinates f of the embeddings, limited to items that are not
    excluded:

        q(j|c) ∝ Σ_f q(f|c)·g(rank_f(j)),   q(f|c) = |φ_{c,f}|σ_f / Σ_h |φ_{c,h}|σ_h,   g(r) ∝ exp(−r/γ), r = 0 … |I|−1

    σ_f is the standard deviation of ψ_{·,f} over the items. rank_f counts from the largest ψ_{·,f}, or from the
    smallest if φ_{c,f} < 0. A coordinate in which all items are equal is never chosen. If all |φ_{c,f}|σ_f are 0, all
    coordinates are equally likely.

    The article omits the normaliser of q(f|c) and the end of the range of r, and says that a draw takes constant time.
    Here, choosing f takes O(d). Sorting d lists takes O(d·|I|·log|I|), once in |I|·log₂|I| draws: another O(d) a draw.
    With many coordinates, the mixture is far from exp(−r/γ) in the true rank.

    Args:
        gamma: γ > 0. A smaller γ draws closer to the top.
        exclude: `"history"` or `"positive"`, see `Sampler`.
        refresh: number of draws after which the lists are sorted again; None means |I|·log₂|I|.

    >>> negatives = AdaptiveRank(gamma=1.0).bind(SparseRows.from_lists([np.array([0])], n_columns=4))
    >>> negatives.refresh(np.array([[4.0], [3.0], [2.0], [1.0]]))
    >>> negatives.probabilities(context=0, positive=0, context_embedding=np.array([1.0])).round(3)
    array([0.   , 0.665, 0.245, 0.09 ])
    """

    gamma: float = 500.0
    exclude: Exclude = "history"
    refresh: int | None = None

    def __post_init__(self) -> None:
        number("gamma", self.gamma, above=True)
        self._check_exclude()
        if self.refresh is not None:
            integer("refresh", self.refresh)

    def bind(self, histories: SparseRows) -> BoundAdaptiveRank:
        """Return the sampler for these histories, see `Sampler.bind`."""
        return BoundAdaptiveRank(histories, self)


class BoundAdaptiveRank(BoundSampler):
    """`AdaptiveRank` bound to histories. Call `refresh` before the first draw."""

    def __init__(self, histories: SparseRows, settings: AdaptiveRank) -> None:
        super().__init__(histories, settings.exclude)
        self._settings = settings
        self._tables: SamplerTables | None = None

    @property
    def refresh_every(self) -> int:
        """The number of draws between two calls of `refresh`."""
        if self._settings.refresh is not None:
            return self._settings.refresh
        return max(1, math.ceil(self.n_items * math.log2(max(2, self.n_items))))

    def refresh(self, item_embeddings: Array, threads: int | None = None) -> None:
        """Sort the items along each coordinate, from the largest to the smallest."""
        item_embeddings = numbers("item_embeddings", item_embeddings)
        if item_embeddings.ndim != 2 or len(item_embeddings) != self.n_items:
            raise SettingError(
                f"item_embeddings has shape {item_embeddings.shape}; expected {self.n_items} rows, one for each item",
                field="item_embeddings",
            )
        width = item_embeddings.shape[1]
        lists, sigma = np.empty((width, self.n_items), np.int32), np.empty(width, np.float32)

        def work(start: int, stop: int) -> None:
            columns = np.ascontiguousarray(item_embeddings[:, start:stop].T, np.float32)
            # In float64 the mean of equal numbers is not rounded, so their deviation is exactly 0.
            sigma[start:stop] = columns.std(axis=1, dtype=np.float64)
            sort_falling(columns, lists[start:stop])

        run_chunks(work, [(start, min(start + _COLUMNS, width)) for start in range(0, width, _COLUMNS)], threads)
        self._tables = self._plain_tables._replace(lists=lists, sigma=sigma, gamma=float(self._settings.gamma))

    @property
    def tables(self) -> SamplerTables:
        """The tables that kernels draw from."""
        if self._tables is None:
            raise SettingError(
                "AdaptiveRank has no item embeddings yet",
                field="item_embeddings",
                hint="call refresh(item_embeddings) before drawing",
            )
        return self._tables

    @cached_property
    def _plain_tables(self) -> SamplerTables:
        return SamplerTables.of(ADAPTIVE, self.exclude, self.histories)

    def _influence(self, embeddings: Array | None) -> npt.NDArray[np.float64]:
        """Return q(f|c) for each row."""
        width = len(self.tables.sigma)
        if embeddings is None or embeddings.shape[-1:] != (width,):
            given = "missing" if embeddings is None else f"of shape {embeddings.shape}"
            raise SettingError(
                f"context embeddings are {given}; AdaptiveRank needs rows of {width} numbers",
                field="context_embeddings",
            )
        parts = np.abs(embeddings, dtype=np.float64) * self.tables.sigma
        total = parts.sum(axis=-1, keepdims=True)
        return np.asarray(np.divide(parts, total, out=np.full(parts.shape, 1 / width), where=total > 0))

    def _propose(self, pairs: Array, positives: Array, rng: np.random.Generator, context_embeddings: Any) -> Array:
        ends = np.cumsum(self._influence(context_embeddings)[pairs], axis=1)
        f = (rng.random((len(pairs), 1)) * ends[:, -1:] >= ends).sum(axis=1)
        gamma = self._settings.gamma
        r = (-gamma * np.log1p(rng.random(len(pairs)) * np.expm1(-self.n_items / gamma))).astype(np.int64)
        r = np.minimum(r, self.n_items - 1)
        r = np.where(context_embeddings[pairs, f] >= 0, r, self.n_items - 1 - r)
        return np.asarray(self.tables.lists[f, r])

    def _weights(self, context_embedding: Array | None) -> npt.NDArray[np.float64]:
        by_rank = np.exp(-np.arange(self.n_items) / self._settings.gamma)
        by_rank /= by_rank.sum()
        weights = np.zeros(self.n_items)
        for f, probability in enumerate(self._influence(context_embedding)):
            ranked = self.tables.lists[f]
            if probability > 0:
                items = ranked if context_embedding[f] >= 0 else ranked[::-1]  # type: ignore[index]
                weights[items] += probability * by_rank
        return weights
