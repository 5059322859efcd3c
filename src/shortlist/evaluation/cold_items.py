"""Whether items that nobody had are recommended before items that somebody had."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import ShortlistWarning

Tops = npt.NDArray[np.int32]

SUBSTANTIAL = 0.01  # of all places; fewer may be chance


def warn_of_cold_items(model: str, top: Tops, popularity: npt.NDArray[np.int64], excluded: SparseRows | None) -> None:
    """Warn where the model puts items without a training event before trained ones: "folding" (Xin et al. 2017).

    Args:
        model: what to call it.
        top: the lists, equal scores ordered by popularity: a model that cannot tell items apart is no reason to warn.
        popularity: how many training contexts had each item.
        excluded: what each context is not recommended, or None for nothing.
    """
    share = out_of_place(top, popularity, excluded)
    if share > SUBSTANTIAL:
        warnings.warn(
            f"{share:.0%} of the first {top.shape[1]} places in the lists of {model} go to items without any training "
            "event, before items that have some: unless it knows them by their features, it ranks them by accident; "
            "leave them out of the catalogue, pass them to recommend as deny=, or take a model whose loss pushes "
            "unobserved items down, such as IALS with a higher unobserved_weight",
            ShortlistWarning,
            stacklevel=5,
        )


def out_of_place(top: Tops, popularity: npt.NDArray[np.int64], excluded: SparseRows | None) -> float:
    """The share of all places that untrained items take while trained ones are left over.

    >>> out_of_place(np.array([[2, 0], [0, 1]]), np.array([5, 3, 0]), None)
    0.25
    """
    untrained = popularity == 0
    if not untrained.any():
        return 0.0
    taken = np.append(untrained, False)[top].sum(axis=1)  # an empty place, -1, takes the last: not
    if not taken.any():
        return 0.0
    left = np.full(len(top), len(popularity) - np.count_nonzero(untrained))
    if excluded is not None:
        context_of = np.repeat(np.arange(excluded.n_rows), excluded.lengths)
        left -= np.bincount(context_of[~untrained[excluded.indices]], minlength=len(left))
    lengths = (top >= 0).sum(axis=1)
    # Where trained items run out, the others have to fill the list.
    return float((taken - np.maximum(lengths - left, 0)).sum() / lengths.sum())
