"""The queries of a split for a model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from shortlist.data.histories import Histories
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.splits import Split
from shortlist.data.vocabulary import Codes, rows_at
from shortlist.errors import DataError, ShortlistWarning
from shortlist.ranking.inputs import histories_of
from shortlist.ranking.protocols import Ranker
from shortlist.ranking.queries import Queries, QueryLabels


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


def queries_of(model: Ranker, split: Split, *, warn: bool = True, stacklevel: int = 2) -> SplitQueries:
    """Return the queries of a split for a model that was fitted on `split.train`.

    Warn if the model was fitted on other events of these contexts; refuse a model that does not know all items.
    `stacklevel` is as in `warnings.warn`, counted from the caller of this function.
    """
    history = histories_of(split.history, model.items_, "skip", ordered=model.ordered)
    contexts, codes = split.truth.contexts, None
    if not split.fold_in:
        codes, answered = model.context_codes(contexts.frame)
        if not answered.all():
            unknown = rows_at(contexts.frame, np.flatnonzero(~answered))
            model.contexts_.encode(unknown, what="context", way_out="fit the model on split.train")
        if warn and not _has_seen(model, codes, history):
            _warn_other_train("the model", stacklevel + 2)
    labels = QueryLabels(contexts, np.arange(len(contexts), dtype=np.int32))
    queries = Queries.of(labels, codes, history)
    return SplitQueries(queries, _recoded_truth(model, split), history.sets() if split.exclude_seen else None)


def warn_if_leaked(model: Ranker, split: Split, who: str, *, stacklevel: int = 2) -> None:
    """Warn like `queries_of`, for a further model, whose scores are features; it need not know all ids."""
    if split.fold_in:
        return
    codes = model.contexts_.encode(split.truth.contexts.frame, unknown="mark")
    known = np.flatnonzero(codes >= 0)
    history = histories_of(split.history, model.items_, "skip", ordered=False)
    if not _has_seen(model, codes[known], history.take(known)):
        _warn_other_train(who, stacklevel + 2)


def _warn_other_train(who: str, stacklevel: int) -> None:
    warnings.warn(
        f"{who} was not fitted on split.train: its histories of these contexts differ from the split's, so it may "
        "have seen the held-out items",
        ShortlistWarning,
        stacklevel=stacklevel,
    )


def _has_seen(model: Ranker, codes: Codes, history: Histories) -> bool:
    seen, sets = model.histories_of(codes).sets(), history.sets()
    return np.array_equal(seen.indptr, sets.indptr) and np.array_equal(seen.indices, sets.indices)


def _recoded_truth(model: Ranker, split: Split) -> SparseRows:
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
    return histories_of(split.truth, model.items_, "raise", ordered=False).sets()
