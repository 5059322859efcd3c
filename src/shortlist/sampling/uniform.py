"""Every item alike."""

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

    With a step weight of 1 the pairwise loss it stands for weighs a triple (c, i, j) by 1/(|I| − |I_c|), where the
    article says 1; and the pointwise loss weighs an unobserved pair by m·|I_c|/(|I| − |I_c|), where the article says m.

    Args:
        exclude: `"history"` or `"positive"`, see `Sampler`.

    >>> histories = Rows.from_lists([np.array([0, 2])], n_columns=5)
    >>> Uniform().bind(histories).probabilities(context=0, positive=2).round(3)
    array([0.   , 0.333, 0.   , 0.333, 0.333])
    """

    exclude: Exclude = "history"

    def __post_init__(self) -> None:
        self._check_exclude()

    def bind(self, histories: SparseRows) -> BoundUniform:
        """The sampler over some data, see `Sampler.bind`."""
        return BoundUniform(histories, self.exclude)


class BoundUniform(BoundSampler):
    """`Uniform` over some data."""

    @cached_property
    def tables(self) -> SamplerTables:
        """What kernels draw from."""
        return SamplerTables.of(UNIFORM, self.exclude, self.histories)

    def _propose(self, pairs: Array, positives: Array, rng: np.random.Generator, context_embeddings: Any) -> Array:
        return rng.integers(self.n_items, size=len(pairs), dtype=np.int32)

    def _weights(self, context_embedding: Array | None) -> npt.NDArray[np.float64]:
        return np.ones(self.n_items)

    def _log_q(self, items: Array, contexts: Array, positives: Array, context_embeddings: Any) -> Array:
        barred = np.ones(len(contexts), np.int64)
        if self.exclude == "history":
            barred = self.histories.lengths[contexts] + ~self._in_history(contexts, positives)
        return np.where(items >= 0, -np.log(np.maximum(self.n_items - barred, 1))[:, None], -np.inf)
