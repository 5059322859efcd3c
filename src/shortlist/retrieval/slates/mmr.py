"""Maximal marginal relevance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from shortlist.retrieval.slates.diversity import DiversitySlate
from shortlist.retrieval.slates.slate_kernels import mmr_rows


@dataclass(frozen=True)
class MMR(DiversitySlate):
    """Maximal marginal relevance (Carbonell & Goldstein 1998): relevant items that differ from the items before them.

    The next item is argmax_i (1 − δ) · r_i − δ · max_{j ∈ Y} cos(i, j), where Y are the items chosen so far, and r is
    the relevance (see `Slate`). The first item is always the best item of the pool.

    The cosine is that of the item embeddings, without biases, if the model has embeddings. Otherwise it is that of the
    items' columns of the training data, as in the metric `distance@n`; an item without events has cosine 0 to all
    others.

    Args:
        diversity: δ. With 0 the slate is the n best items; with 1 the next item is always the one farthest from its
            nearest item in the slate.
        pool: the slate is chosen from this number of best items, after filters. A larger n enlarges the pool to n.

    See also: `DPP`, which considers all items of the slate together.

    >>> import numpy as np
    >>> from shortlist.data.sparse_rows import SparseRows
    >>> from shortlist.retrieval.slates import Catalogue
    >>> vectors, trained = np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32), SparseRows.from_lists([], 3)
    >>> about = {"catalogue": Catalogue(trained, vectors), "histories": SparseRows.from_lists([[]], 3)}
    >>> codes, scores = np.array([[0, 1, 2]], np.int32), np.array([[3, 2, 1]], np.float32)
    >>> [MMR(d).pick(codes, scores, 2, **about)[0].tolist() for d in (0.0, 0.5)]
    [[[0, 1]], [[0, 2]]]
    """

    _kernel: ClassVar[Callable[..., None]] = mmr_rows
