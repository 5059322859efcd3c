"""The queries of a split for a model."""

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
        queries: the contexts to answer, with their histories.
        truth: the held-out items.
        excluded: items dropped from the rankings; None: no items.
    """

    queries: Queries
    truth: SparseRows
    excluded: SparseRows | None


def queries_of(model: Recommender, split: Split, *, warn: bool = True, stacklevel: int = 2) -> SplitQueries:
    """Return the queries of a split for a model that was fitted on `split.train`.

    Warn if the model was fitted on other events of these contexts; refuse a model that does not know all items.
    `stacklevel` is as in `warnings.warn`, counted from the caller of this function.
    """
    history = model._with_own_items(split.history.by_context, split.history.items, "skip")
    codes = None
    if not split.fold_in:
        codes = model._context_codes(split.truth.contexts.frame, "fit the model on split.train")
        if warn and not _has_seen(model, codes, history):
            _warn_other_train("the model", stacklevel + 2)
    labels = QueryLabels(split.truth.contexts, np.arange(split.truth.n_contexts, dtype=np.int32))
    queries = Queries(labels, codes, history, np.ones(len(labels), np.bool_))
    return SplitQueries(queries, _recoded_truth(model, split), history if split.exclude_seen else None)


def warn_if_leaked(model: Recommender, split: Split, who: str, *, stacklevel: int = 2) -> None:
    """Warn like `queries_of`, for a further model, whose scores are features; it need not know all ids."""
    if split.fold_in:
        return
    codes = model.contexts_.encode(split.truth.contexts.frame, unknown="mark")
    known = np.flatnonzero(codes >= 0)
    history = model._with_own_items(split.history.by_context, split.history.items, "skip")
    if not _has_seen(model, codes[known], history.take(known)):
        _warn_other_train(who, stacklevel + 2)


def _warn_other_train(who: str, stacklevel: int) -> None:
    warnings.warn(
        f"{who} was not fitted on split.train: its histories of these contexts differ from the split's, so it may "
        "have seen the held-out items",
        ShortlistWarning,
        stacklevel=stacklevel,
    )


def _has_seen(model: Recommender, codes: Codes, history: SparseRows) -> bool:
    seen = model._histories(codes)
    return np.array_equal(seen.indptr, history.indptr) and np.array_equal(seen.indices, history.indices)


def _recoded_truth(model: Recommender, split: Split) -> SparseRows:
    """Return the held-out items in the model's codes; raise DataError if the model lacks items of the split."""
    truth = split.truth.by_context
    if model.items_ is split.truth.items or model.items_ == split.truth.items:
        return truth
    missing = [id_ for id_ in split.train.items.ids() if id_ not in model.items_]
    if missing:
        raise DataError(
            f"the model does not know {len(missing):,} of the {split.train.n_items:,} items of split.train, such as "
            f"{missing[0]!r}",
            code="unknown-item",
            field="model",
            hint="fit it on split.train",
        )
    return model._with_own_items(truth, split.truth.items, "raise")
