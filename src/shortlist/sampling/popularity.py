"""A sampler of items in proportion to a power of their popularity (section 4.1 of the article)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._checks import number
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import DataError
from shortlist.sampling.alias_tables import alias_table
from shortlist.sampling.base import Array, BoundSampler, Exclude, Sampler
from shortlist.sampling.sampler_tables import POPULARITY, SamplerTables


@dataclass(frozen=True)
class Popularity(Sampler):
    """q(j|c,i) ∝ |C_j|^β over the items that are not excluded; also called unigram sampling.

    β = 1 is the empirical frequency, a smaller β flattens it, and β = 0 is `Uniform`. An item without pairs has q = 0,
    unless β = 0.

    Args:
        beta: β ≥ 0.
        exclude: `"history"` or `"positive"`, see `Sampler`.

    >>> histories = SparseRows.from_lists([np.array([0]), np.array([0, 1]), np.array([1, 2, 0, 3])], n_columns=4)
    >>> Popularity(beta=1).bind(histories).probabilities(context=0, positive=0)
    array([0.  , 0.5 , 0.25, 0.25])
    """

    beta: float = 0.5
    exclude: Exclude = "history"

    def __post_init__(self) -> None:
        number("beta", self.beta)
        self._check_exclude()

    def bind(self, histories: SparseRows) -> BoundPopularity:
        """Return the sampler for these histories, see `Sampler.bind`."""
        return BoundPopularity(histories, self.exclude, self.beta)


class BoundPopularity(BoundSampler):
    """`Popularity` bound to histories."""

    def __init__(self, histories: SparseRows, exclude: Exclude, beta: float) -> None:
        super().__init__(histories, exclude)
        counts = histories.column_counts()
        if not counts.any():
            raise DataError(
                "all histories are empty, so items have no popularity to draw by",
                code="empty-data",
                hint="use Uniform()",
            )
        # Divided by the maximum first, so that the power cannot overflow.
        powers = (counts / counts.max()) ** beta
        self.popularity: npt.NDArray[np.float64] = powers / powers.sum()

    @cached_property
    def tables(self) -> SamplerTables:
        """The tables that kernels draw from."""
        share, alias = self._alias
        return SamplerTables.of(POPULARITY, self.exclude, self.histories)._replace(share=share, alias=alias)

    @cached_property
    def _alias(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
        return alias_table(self.popularity)

    @cached_property
    def _history_mass(self) -> npt.NDArray[np.float64]:
        """Return Σ_{j∈I_c} p_j of every context."""
        context_of = np.repeat(np.arange(self.histories.n_rows), self.histories.lengths)
        mass = np.bincount(context_of, self.popularity[self.histories.indices], self.histories.n_rows)
        return np.asarray(mass, np.float64)

    def _propose(self, pairs: Array, positives: Array, rng: np.random.Generator, context_embeddings: Any) -> Array:
        share, alias = self._alias
        items = rng.integers(self.n_items, size=len(pairs), dtype=np.int32)
        return np.where(rng.random(len(pairs)) < share[items], items, alias[items])

    def _weights(self, context_embedding: Array | None) -> npt.NDArray[np.float64]:
        return self.popularity.copy()

    def _log_q(self, items: Array, contexts: Array, positives: Array, context_embeddings: Any) -> Array:
        excluded = self.popularity[positives]
        if self.exclude == "history":
            excluded = self._history_mass[contexts] + np.where(self._in_history(contexts, positives), 0, excluded)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_q = np.log(self.popularity[items]) - np.log1p(-excluded)[:, None]
        return np.where(items >= 0, log_q, -np.inf)
