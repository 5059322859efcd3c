"""Maximal marginal relevance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from shortlist.retrieval.slates.diversity import DiversitySlate
from shortlist.retrieval.slates.slate_kernels import mmr_rows


@dataclass(frozen=True)
class MMR(DiversitySlate):
    """Maximal marginal relevance (Carbonell & Goldstein 1998): unlike the nearest of those before it.

    The next item is argmax_i (1 − δ) · r_i − δ · max_{j ∈ Y} cos(i, j), where Y is what is picked so far; `Slate` says
    what r is. The first item is the first of the pool, whatever δ is.

    The cosine is that of the items' embeddings, without biases, where the model has embeddings; else that of their
    columns of the training data, as in the metric `distance@n`. An item without any observation is near to nothing.

    Args:
        diversity: δ, from 0, the list as it was, to 1: always the item whose nearest one in the slate is farthest.
        pool: how many of the best items, under the filters, the slate is picked from; at least as many as are wanted.

    See also `DPP`, which looks at all items of the slate together.

    >>> import numpy as np
    >>> from shortlist.data.sparse_rows import SparseRows
    >>> from shortlist.retrieval.slates import Catalogue
    >>> vectors = np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32)
    >>> about = {"catalogue": Catalogue(Rows.from_lists([], 3), vectors), "histories": Rows.from_lists([[]], 3)}
    >>> codes, scores = np.array([[0, 1, 2]], np.int32), np.array([[3, 2, 1]], np.float32)
    >>> [MMR(d).pick(codes, scores, 2, **about)[0].tolist() for d in (0.0, 0.5)]
    [[[0, 1]], [[0, 2]]]
    """

    _kernel: ClassVar[Callable[..., None]] = mmr_rows
