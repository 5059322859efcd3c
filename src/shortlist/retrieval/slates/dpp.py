"""The most likely slate of a determinantal point process, found greedily."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from shortlist.retrieval.slates.diversity import DiversitySlate
from shortlist.retrieval.slates.slate_kernels import dpp_rows


@dataclass(frozen=True)
class DPP(DiversitySlate):
    """The greedy mode of a determinantal point process (Chen et al. 2018): relevant items that span a large volume.

    The probability of a set Y of items is proportional to det L_Y, the squared volume that their vectors span, where
    L = diag(q) S diag(q), q_i = exp(r_i · (1 − δ) / 2δ), and r is the relevance (see `Slate`). The next item is the one
    that increases ln det L_Y most, where

        δ · ln det L_Y = (1 − δ) · Σ_{i ∈ Y} r_i + δ · ln det S_Y.

    S = (1 − ε) · cos + ε · I, with the cosines of `MMR` and ε = 0.001. So S is always invertible: a duplicate of
    another item costs δ · 6.9 but can still be chosen, and a slate may have more items than the embeddings have
    dimensions. The first item is always the best item of the pool.

    Args:
        diversity: δ. With 0 the slate is the n best items; with 1 the next item is always the one that adds most
            volume.
        pool: the slate is chosen from this number of best items, after filters. A larger n enlarges the pool to n.

    See also: `MMR`, which considers only the nearest item of the slate, and is faster for long slates.

    >>> import numpy as np
    >>> from shortlist.data.sparse_rows import SparseRows
    >>> from shortlist.retrieval.slates import Catalogue
    >>> vectors, trained = np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32), SparseRows.from_lists([], 3)
    >>> about = {"catalogue": Catalogue(trained, vectors), "histories": SparseRows.from_lists([[]], 3)}
    >>> codes, scores = np.array([[0, 1, 2]], np.int32), np.array([[3, 2, 1]], np.float32)
    >>> [DPP(d).pick(codes, scores, 2, **about)[0].tolist() for d in (0.0, 0.5)]
    [[[0, 1]], [[0, 2]]]
    """

    _kernel: ClassVar[Callable[..., None]] = dpp_rows
