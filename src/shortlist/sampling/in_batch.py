"""In-batch negatives: the positives of the other pairs of a batch (section 4.1.1 of the article)."""

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
    """Negatives from the positives of other pairs of the batch: q(j|c,i) ∝ |C_j| over items that are not excluded.

    If pairs are drawn at random, the other positives of a batch are a sample by popularity. With p_j = |C_j|/|S|, q is
    p_j/(1 − p_i), or p_j/(1 − Σ_{l∈I_c} p_l) if the history is excluded. The reported q is this mean over batches. A
    single batch can only draw its positives; if all of them are excluded, the pair has no negative.

    Args:
        exclude: `"history"` or `"positive"`, see `Sampler`.

    >>> histories = SparseRows.from_lists([np.array([0]), np.array([0, 1]), np.array([1, 2])], n_columns=3)
    >>> negatives = InBatch().bind(histories)
    >>> contexts, positives = np.array([0, 2]), np.array([0, 2])
    >>> negatives.draw(contexts, positives, 1, np.random.default_rng(0)).items.tolist()
    [[2], [0]]
    """

    exclude: Exclude = "history"

    def __post_init__(self) -> None:
        self._check_exclude()

    def bind(self, histories: SparseRows) -> BoundInBatch:
        """Return the sampler for these histories, see `Sampler.bind`."""
        return BoundInBatch(histories, self.exclude)


class BoundInBatch(BoundPopularity):
    """`InBatch` bound to histories."""

    def __init__(self, histories: SparseRows, exclude: Exclude) -> None:
        super().__init__(histories, exclude, beta=1.0)

    @cached_property
    def tables(self) -> SamplerTables:
        """The tables that kernels draw from."""
        return SamplerTables.of(IN_BATCH, self.exclude, self.histories)

    def _propose(self, pairs: Array, positives: Array, rng: np.random.Generator, context_embeddings: Any) -> Array:
        return positives[rng.integers(len(positives), size=len(pairs))]

    def _remaining(self, k: int, contexts: Array, positives: Array, context_embeddings: Any) -> Array:
        counts = np.bincount(positives, minlength=self.n_items)
        counts[self._excluded_items(int(contexts[k]), int(positives[k]))] = 0
        return counts
