"""Training data for stage two: held-out interactions, or impressions and clicks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._fork import require_polars_threads
from shortlist.data.encode import Columns, polars_errors
from shortlist.data.interactions import Interactions, as_lazy
from shortlist.data.sparse_rows import LATEST, SparseRows, has_pairs, rows_of
from shortlist.data.splits import Split
from shortlist.errors import DataError, SettingError
from shortlist.ranking.engine import ranks_of_items, scores_of_items
from shortlist.ranking.queries import Queries, QueryLabels
from shortlist.ranking.request import Request
from shortlist.ranking.split_queries import queries_of, warn_if_leaked
from shortlist.recommenders.base import Recommender
from shortlist.reranking.candidates import Candidates
from shortlist.reranking.lambdamart import HIGHEST_GRADE
from shortlist.reranking.pair_digests import PairDigests


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Candidates without features, and their relevance.

    Attributes:
        candidates: one row per query and candidate.
        relevance: the relevance of each row.
        counts: the number of lists, candidates and so on, for the report.
        relevant_pairs: digests of the relevant pairs.
        clicks: whether relevance comes from clicks. A clicked pair can still be a held-out pair later.
    """

    candidates: Candidates
    relevance: npt.NDArray[np.int64]
    counts: dict[str, int]
    relevant_pairs: PairDigests
    clicks: bool = False


def from_split(
    first: Recommender, models: Mapping[str, Recommender], split: Split, n: int, memory: int, threads: int | None
) -> TrainingSet:
    """Return stage one's n best items for each held-out context of a split. Held-out items are relevant."""
    if not isinstance(split, Split):
        raise SettingError(
            f"fit takes a Split whose train part stage one was fitted on, got {type(split).__name__}",
            hint="create one with shortlist.splits, or pass impressions to fit_impressions",
            field="split",
        )
    held_out = queries_of(first, split, stacklevel=3)
    for name, model in models.items():
        warn_if_leaked(model, split, f"the further model {name!r}", stacklevel=3)
    request = Request(n=n, exclude_seen=held_out.excluded is not None, memory=memory, threads=threads)
    queries = held_out.queries
    lists = first.top(queries, first.filters(queries, request), request)
    candidates = candidates_from_lists(first, queries, *lists, threads)
    truth = held_out.truth
    relevant = has_pairs(truth.indptr, truth.indices, candidates.query_of, candidates.item_codes).astype(np.int64)
    counts = {"relevant items that stage one did not find": len(truth) - int(relevant.sum())}
    pairs = PairDigests.of_events(split.truth)
    advice = "use more candidates, or a stage one with higher recall"
    training_set = TrainingSet(candidates, relevant, counts, pairs)
    return _drop_uninformative(training_set, "contexts without a relevant candidate", advice)


def from_impressions(
    first: Recommender,
    shown: Any,
    clicked: str,
    request: str | Sequence[str] | None,
    exclude_seen: bool,
    n: int,
    memory: int,
    threads: int | None,
) -> TrainingSet:
    """Return the items that were shown, with the scores and ranks that stage one gives them."""
    names = first.contexts_.names
    requests = [] if request is None else [request] if isinstance(request, str) else list(request)
    events, view = _best_grades(shown, Columns.named([*names, *requests], first.items_.names[0], clicked, None))
    assert view.values is not None
    known_items = first.items_.encode(events.items.frame, unknown="mark")
    contexts = first.contexts_.encode(events.contexts.frame[list(names)], unknown="mark")
    list_of = np.repeat(np.arange(view.n_rows), view.lengths)
    items = known_items[view.indices]
    good = (contexts[list_of] >= 0) & (items >= 0)
    counts = {"shown items of contexts or items that stage one does not know": int((~good).sum())}
    if not good.any():
        raise DataError(
            f"stage one knows none of the {len(good):,} shown (context, item) pairs",
            hint="pass impressions with ids of its training data",
        )
    lists, query_of = np.unique(list_of[good], return_inverse=True)
    items, values, codes = items[good], view.values[good], contexts[lists]
    queries = Queries.of(QueryLabels(first.contexts_, codes), codes, first.histories_of(codes))
    search = Request(n=n, exclude_seen=exclude_seen, memory=memory, threads=threads)
    center, spread = mean_and_spread(*first.top(queries, first.filters(queries, search), search))
    in_lists = np.split(items, _indptr(query_of, len(lists))[1:-1])
    ranks = np.concatenate(ranks_of_items(first, queries, in_lists, search))
    kept = ranks > 0
    counts["shown items that had been seen"] = int((~kept).sum())
    scores = np.concatenate(scores_of_items(first, queries, in_lists))
    candidates = Candidates(
        first,
        queries,
        _indptr(query_of[kept], len(lists)),
        items[kept],
        scores[kept],
        ranks[kept],
        center,
        spread,
        threads=threads,
    )
    relevance = values[kept].astype(np.int64)
    clicks = np.flatnonzero(relevance > 0)
    clicked_contexts = codes[candidates.query_of[clicks]]
    pairs = PairDigests.of(first.contexts_, first.items_, clicked_contexts, candidates.item_codes[clicks])
    advice = "add clicked and not clicked impressions of items that stage one knows"
    advice += ", or pass exclude_seen=False" if exclude_seen else ""
    training_set = TrainingSet(candidates, relevance, counts, pairs, clicks=True)
    return _drop_uninformative(training_set, "lists in which all are equally relevant", advice)


def candidates_from_lists(
    first: Recommender,
    queries: Queries,
    items: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    threads: int | None,
) -> Candidates:
    """Return candidates from stage one's lists: best first, −1 in empty places."""
    filled = items >= 0
    ranks = np.broadcast_to(np.arange(1, items.shape[1] + 1), items.shape)
    indptr = np.concatenate([[0], np.cumsum(filled.sum(axis=1))]).astype(np.int64)
    center, spread = mean_and_spread(items, scores)
    return Candidates(
        first, queries, indptr, items[filled], scores[filled], ranks[filled], center, spread, threads=threads
    )


def mean_and_spread(
    items: npt.NDArray[np.int32], scores: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the mean and standard deviation of each list's scores; 0 for an empty list."""
    filled = items >= 0
    counts = np.maximum(filled.sum(axis=1), 1)
    mean = np.where(filled, scores, 0.0).sum(axis=1, dtype=np.float64) / counts
    squares = np.where(filled, scores - mean[:, None], 0.0) ** 2
    return mean, np.sqrt(squares.sum(axis=1) / counts)


def _drop_uninformative(training_set: TrainingSet, dropped: str, advice: str) -> TrainingSet:
    """Drop queries whose candidates are all equally relevant. They say nothing about order."""
    candidates, relevance = training_set.candidates, training_set.relevance
    size = candidates.n_queries
    total = np.bincount(candidates.query_of, relevance, size)
    highest = np.zeros(size, np.int64)
    np.maximum.at(highest, candidates.query_of, relevance)
    informative = (total > 0) & (total < highest * candidates.sizes)
    chosen = np.flatnonzero(informative)
    if not len(chosen):
        raise DataError(
            f"the second stage cannot learn an order: none of {size:,} lists has both relevant and other candidates; "
            f"{advice}"
        )
    rows = informative[candidates.query_of]
    counts = {
        "lists": len(chosen),
        "candidates": int(rows.sum()),
        "relevant candidates": int((relevance[rows] > 0).sum()),
        dropped: size - len(chosen),
        **training_set.counts,
    }
    return replace(training_set, candidates=candidates.select(chosen), relevance=relevance[rows], counts=counts)


def _indptr(row_of: npt.NDArray[np.int64], n_rows: int) -> npt.NDArray[np.int64]:
    """Return the start of each row, and the end, of entries sorted by row."""
    return np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=n_rows))]).astype(np.int64)


def _best_grades(shown: Any, columns: Columns) -> tuple[Interactions, SparseRows]:
    """Return the impressions, and one row per list: its distinct items, each with its highest grade."""
    require_polars_threads("learning from impressions")
    with polars_errors("the frame"):
        frame = as_lazy(shown, columns)
        schema = frame.collect_schema()
        if all(name in schema for name in columns.all):  # otherwise `from_frame` raises an error
            frame = _with_grades(frame.select(columns.all).collect(), columns).lazy()
    names: dict[str, Any] = {"context": columns.context, "item": columns.item, "weight": columns.weight}
    events = Interactions.from_frame(frame, **names)
    assert events.weights is not None
    by_grade = np.argsort(events.weights, kind="stable").astype(np.uint32)  # so that the latest grade is the highest
    size = events.n_contexts, events.n_items
    return events, rows_of(events.context_codes, events.item_codes, events.weights, by_grade, *size, LATEST)


def _with_grades(frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """Return the frame with the clicked column as integer grades. Refuse missing values."""
    clicked = columns.weight
    assert clicked is not None
    column, expected = frame[clicked], f"True or False, 0 or 1, or integer grades up to {HIGHEST_GRADE}"
    for name in columns.all:
        if missing := frame[name].null_count():
            values = f"expected {expected}; " if name == clicked else ""
            raise DataError(
                f"column {name!r} is null in {missing:,} of {frame.height:,} rows; {values}fill or drop these rows"
            )
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        raise DataError(f"column {clicked!r} has type {column.dtype}; expected {expected}")
    grades = column.cast(pl.Float64)
    good = grades.is_between(0, HIGHEST_GRADE) & (grades == grades.floor())
    if not good.all():
        first = grades.filter(~good)[0]
        raise DataError(
            f"column {clicked!r} is invalid in {(~good).sum():,} of {frame.height:,} rows, such as {first:g}; expected "
            f"{expected}"
        )
    if frame.height and not (grades > 0).any():
        raise DataError(
            f"column {clicked!r}: none of {frame.height:,} shown items was clicked; the second stage needs clicks to "
            "learn from"
        )
    return frame.with_columns(grades.alias(clicked))
