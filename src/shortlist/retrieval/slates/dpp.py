"""The likeliest slate of a determinantal point process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from shortlist.retrieval.slates.diversity import DiversitySlate
from shortlist.retrieval.slates.slate_kernels import dpp_rows


@dataclass(frozen=True)
class DPP(DiversitySlate):
    """The greedy mode of a determinantal point process (Chen et al. 2018): relevant, and spread over the space.

    A set Y of items is as likely as det L_Y, the squared volume that their vectors span, with L = diag(q) S diag(q) and
    q_i = exp(r_i · (1 − δ) / 2δ); `Slate` says what r is. The next item is the one that adds most to ln det L_Y, and

        δ · ln det L_Y = (1 − δ) · Σ_{i ∈ Y} r_i + δ · ln det S_Y.

    S = (1 − ε) · cos + ε · I, with the cosines of `MMR` and ε = 0.001: so S can always be inverted, an item that is a
    copy of others costs δ · 6.9 and is still to be had, and a slate may have more items than the embeddings have
    dimensions. The first item is the first of the pool, whatever δ is.

    Args:
        diversity: δ, from 0, the list as it was, to 1: always the item that adds most volume.
        pool: how many of the best items, under the filters, the slate is picked from; at least as many as are wanted.

    See also `MMR`, which only looks at the nearest item of the slate, and is cheaper for long slates.

    >>> import numpy as np
    >>> from shortlist.data.sparse_rows import SparseRows
    >>> from shortlist.retrieval.slates import Catalogue
    >>> vectors = np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32)
    >>> about = {"catalogue": Catalogue(Rows.from_lists([], 3), vectors), "histories": Rows.from_lists([[]], 3)}
    >>> codes, scores = np.array([[0, 1, 2]], np.int32), np.array([[3, 2, 1]], np.float32)
    >>> [DPP(d).pick(codes, scores, 2, **about)[0].tolist() for d in (0.0, 0.5)]
    [[[0, 1]], [[0, 2]]]
    """

    _kernel: ClassVar[Callable[..., None]] = dpp_rows
