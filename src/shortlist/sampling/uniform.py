"""A sampler that draws every item with the same probability (section 4.1 of the article)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.sampling.base import Array, BoundSampler, Exclude, Sampler
from shortlist.sampling.sampler_tables import UNIFORM, SamplerTables


@dataclass(frozen=True)
class Uniform(Sampler):
    """q(j|c,i) = 1 / (|I| − |excluded|) for every item that is not excluded: the sampler of BPR (Rendle et al. 2009).

    With a step weight of 1, the pairwise loss implied by this sampler weights a triple (c, i, j) by 1/(|I| − |I_c|);
    the article says 1. The implied pointwise loss weights an unobserved pair by m·|I_c|/(|I| − |I_c|); the article
    says m.

    Args:
        exclude: `"history"` or `"positive"`, see `Sampler`.

    >>> histories = SparseRows.from_lists([np.array([0, 2])], n_columns=5)
    >>> Uniform().bind(histories).probabilities(context=0, positive=2).round(3)
    array([0.   , 0.333, 0.   , 0.333, 0.333])
    """

    exclude: Exclude = "history"

    def __post_init__(self) -> None:
        self._check_exclude()

    def bind(self, histories: SparseRows) -> BoundUniform:
        """Return the sampler for these histories, see `Sampler.bind`."""
        return BoundUniform(histories, self.exclude)


class BoundUniform(BoundSampler):
    """`Uniform` bound to histories."""

    @cached_property
    def tables(self) -> SamplerTables:
        """The tables that kernels draw from."""
        return SamplerTables.of(UNIFORM, self.exclude, self.histories)

    def _propose(self, pairs: Array, positives: Array, rng: np.random.Generator, context_embeddings: Any) -> Array:
        return rng.integers(self.n_items, size=len(pairs), dtype=np.int32)

    def _weights(self, context_embedding: Array | None) -> npt.NDArray[np.float64]:
        return np.ones(self.n_items)

    def _log_q(self, items: Array, contexts: Array, positives: Array, context_embeddings: Any) -> Array:
        n_excluded = np.ones(len(contexts), np.int64)
        if self.exclude == "history":
            n_excluded = self.histories.lengths[contexts] + ~self._in_history(contexts, positives)
        return np.where(items >= 0, -np.log(np.maximum(self.n_items - n_excluded, 1))[:, None], -np.inf)
