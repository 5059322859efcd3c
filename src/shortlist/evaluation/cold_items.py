"""Detect cold items (items without training events) that are recommended ahead of trained items."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from shortlist._phrases import count
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import ShortlistWarning

Tops = npt.NDArray[np.int32]

SUBSTANTIAL = 0.01  # fraction of all positions; fewer may be chance


def warn_of_cold_items(model: str, top: Tops, popularity: npt.NDArray[np.int64], excluded: SparseRows | None) -> None:
    """Warn if a model ranks cold items ahead of trained items: "folding" (Xin et al. 2017).

    Args:
        model: the name of the model.
        top: the lists. Ties are in order of popularity, so that a model with constant scores causes no warning.
        popularity: the number of training contexts of each item.
        excluded: the items excluded for each context; None if there are none.
    """
    fraction = out_of_place(top, popularity, excluded)
    if fraction > SUBSTANTIAL:
        warnings.warn(
            f"{fraction:.0%} of the first {count(top.shape[1], 'position')} in the lists of {model} go to items "
            "without training events, ahead of trained items. The model learned nothing about them (unless from their "
            "features), so their scores are arbitrary. Drop them from the catalogue, pass them to recommend as deny=, "
            "or use a model whose loss pushes unobserved items down, such as IALS with a higher unobserved_weight",
            ShortlistWarning,
            stacklevel=5,
        )


def out_of_place(top: Tops, popularity: npt.NDArray[np.int64], excluded: SparseRows | None) -> float:
    """Return the fraction of all positions that go to cold items although trained items are left over.

    >>> out_of_place(np.array([[2, 0], [0, 1]]), np.array([5, 3, 0]), None)
    0.25
    """
    untrained = popularity == 0
    if not untrained.any():
        return 0.0
    taken = np.append(untrained, False)[top].sum(axis=1)  # an empty position, -1, reads the appended False
    if not taken.any():
        return 0.0
    left = np.full(len(top), len(popularity) - np.count_nonzero(untrained))
    if excluded is not None:
        context_of = np.repeat(np.arange(excluded.n_rows), excluded.lengths)
        left -= np.bincount(context_of[~untrained[excluded.indices]], minlength=len(left))
    lengths = (top >= 0).sum(axis=1)
    # Where trained items run out, cold items have to fill the list.
    return float((taken - np.maximum(lengths - left, 0)).sum() / lengths.sum())
