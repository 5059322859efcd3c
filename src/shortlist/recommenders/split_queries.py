"""What a split asks of a model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from shortlist.data.sparse_rows import SparseRows
from shortlist.data.splits import Split
from shortlist.data.vocabulary import Codes
from shortlist.errors import DataError, ShortlistWarning
from shortlist.recommenders.base import Queries, Recommender
from shortlist.recommenders.recommendations import QueryLabels


@dataclass(frozen=True, eq=False)
class SplitQueries:
    """A split in a model's own codes, a row for each context of its truth.

    Attributes:
        queries: whom answers are wanted for, with what is known of them.
        truth: what they had afterwards.
        excluded: what is left out of their rankings; None for nothing.
    """

    queries: Queries
    truth: SparseRows
    excluded: SparseRows | None


def asked_of(model: Recommender, split: Split, *, warn: bool = True, stacklevel: int = 2) -> SplitQueries:
    """The question of a split to a model that was fitted on its `train`.

    A model that has seen something else of the contexts is warned of (`stacklevel` as in `warnings.warn`, counted from
    the caller of this), one that does not know all of the items is refused.
    """
    history = model._with_own_items(split.history.by_context, split.history.items, "skip")
    codes = None
    if not split.fold_in:
        codes = model._context_codes(split.truth.contexts.frame, "fit the model on split.train")
        if warn and not _has_seen(model, codes, history):
            _warn_of("the model", stacklevel + 2)
    labels = QueryLabels(split.truth.contexts, np.arange(split.truth.n_contexts, dtype=np.int32))
    queries = Queries(labels, codes, history, np.ones(len(labels), np.bool_))
    return SplitQueries(queries, _own_truth(model, split), history if split.exclude_seen else None)


def warn_if_it_knows(model: Recommender, split: Split, who: str, *, stacklevel: int = 2) -> None:
    """The same warning of a model that need not know all contexts and items, as one whose scores are features."""
    if split.fold_in:
        return
    codes = model.contexts_.encode(split.truth.contexts.frame, unknown="mark")
    known = np.flatnonzero(codes >= 0)
    history = model._with_own_items(split.history.by_context, split.history.items, "skip")
    if not _has_seen(model, codes[known], history.take(known)):
        _warn_of(who, stacklevel + 2)


def _warn_of(who: str, stacklevel: int) -> None:
    warnings.warn(
        f"{who} was not fitted on split.train: what it has seen of these contexts is not the split's history, so it "
        "may know the answers",
        ShortlistWarning,
        stacklevel=stacklevel,
    )


def _has_seen(model: Recommender, codes: Codes, history: SparseRows) -> bool:
    own = model._histories(codes)
    return np.array_equal(own.indptr, history.indptr) and np.array_equal(own.indices, history.indices)


def _own_truth(model: Recommender, split: Split) -> SparseRows:
    """The relevant items in the model's codes; what the model does not know cannot be dropped unsaid."""
    truth = split.truth.by_context
    if model.items_ is split.truth.items or model.items_ == split.truth.items:
        return truth
    missing = [one for one in split.train.items.ids() if one not in model.items_]
    if missing:
        raise DataError(
            f"the model does not know {len(missing):,} of the {split.train.n_items:,} items of split.train, such as "
            f"{missing[0]!r}; fit it on split.train"
        )
    return model._with_own_items(truth, split.truth.items, "raise")
