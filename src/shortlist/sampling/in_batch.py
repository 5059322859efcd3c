"""The other positives of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shortlist.data.sparse_rows import SparseRows
from shortlist.sampling.base import Array, Exclude, Sampler
from shortlist.sampling.popularity import BoundPopularity
from shortlist.sampling.sampler_tables import IN_BATCH, SamplerTables


@dataclass(frozen=True)
class InBatch(Sampler):
    """The negatives of (c, i) are positives of other pairs of the batch: q(j|c,i) ∝ |C_j| off what is excluded.

    For pairs drawn at random the other entries of a batch are a sample by popularity, so with p_j = |C_j|/|S| that is
    q = p_j/(1 − p_i), or p_j/(1 − Σ_{l∈I_c} p_l) where the history is excluded. This q is what is reported: it is the
    mean over batches. In one batch only its own items can be drawn; where all of them are excluded, there is none.

    Args:
        exclude: `"history"` or `"positive"`, see `Sampler`.

    >>> histories = Rows.from_lists([np.array([0]), np.array([0, 1]), np.array([1, 2])], n_columns=3)
    >>> negatives = InBatch().bind(histories)
    >>> contexts, positives = np.array([0, 2]), np.array([0, 2])
    >>> negatives.draw(contexts, positives, 1, np.random.default_rng(0)).items.tolist()
    [[2], [0]]
    """

    exclude: Exclude = "history"

    def __post_init__(self) -> None:
        self._check_exclude()

    def bind(self, histories: SparseRows) -> BoundInBatch:
        """The sampler over some data, see `Sampler.bind`."""
        return BoundInBatch(histories, self.exclude)


class BoundInBatch(BoundPopularity):
    """`InBatch` over some data."""

    def __init__(self, histories: SparseRows, exclude: Exclude) -> None:
        super().__init__(histories, exclude, beta=1.0)

    @cached_property
    def tables(self) -> SamplerTables:
        """What kernels draw from."""
        return SamplerTables.of(IN_BATCH, self.exclude, self.histories)

    def _propose(self, pairs: Array, positives: Array, rng: np.random.Generator, context_embeddings: Any) -> Array:
        return positives[rng.integers(len(positives), size=len(pairs))]

    def _left(self, k: int, contexts: Array, positives: Array, context_embeddings: Any) -> Array:
        counts = np.bincount(positives, minlength=self.n_items)
        counts[self._barred(int(contexts[k]), int(positives[k]))] = 0
        return counts
