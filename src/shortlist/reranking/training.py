"""What a second stage learns from: held-out interactions, or what was shown and what of it was clicked."""

from __future__ import annotations

import hashlib
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
from shortlist.data.vocabulary import Id
from shortlist.errors import DataError, SettingError
from shortlist.recommenders.base import Queries, Recommender
from shortlist.recommenders.recommendations import QueryLabels
from shortlist.recommenders.split_queries import asked_of, warn_if_it_knows
from shortlist.reranking.candidates import Candidates
from shortlist.reranking.lambdamart import GREATEST
from shortlist.retrieval import Filters, item_ranks, top_n

Digests = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Candidates without features, how relevant each is, what was counted, and digests of the relevant pairs.

    `clicks` says whether these are clicks, after which a pair may come again.
    """

    candidates: Candidates
    relevance: npt.NDArray[np.int64]
    counts: dict[str, int]
    learnt: Digests
    clicks: bool = False


def from_split(
    first: Recommender, models: Mapping[str, Recommender], split: Split, n: int, memory: int, threads: int | None
) -> TrainingSet:
    """The n best of stage one for every context of the split, under its filters; those in the truth are relevant."""
    if not isinstance(split, Split):
        raise SettingError(
            f"fit takes a Split whose train stage one was fitted on, got {type(split).__name__}; make one with "
            "shortlist.splits, or pass what was shown to fit_impressions"
        )
    asked = asked_of(first, split, stacklevel=3)
    for name, model in models.items():
        warn_if_it_knows(model, split, f"the further model {name!r}", stacklevel=3)
    excluded = asked.excluded
    filters = None if excluded is None else Filters(exclude=(excluded.indptr, excluded.indices))
    items, scores = top_n(
        first._scorer(asked.queries, threads),
        min(n, len(first.items_)),
        filters=filters,
        priority=first._priority,
        memory=memory,
        threads=threads,
    )
    found = found_by(first, asked.queries, items, scores, threads)
    truth = asked.truth
    relevant = has_pairs(truth.indptr, truth.indices, found.query_of, found.item_codes).astype(np.int64)
    counts = {"relevant items that stage one did not find": len(truth) - int(relevant.sum())}
    learnt = np.unique(digests(*pairs_of(split.truth)))
    way_out = "take more candidates, or a stage one that finds more of what is relevant"
    return _useful(TrainingSet(found, relevant, counts, learnt), "contexts without a relevant candidate", way_out)


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
    """Items that were shown, with what stage one would have said of them."""
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
        raise DataError(f"stage one knows none of the {len(good):,} shown pairs of context and item")
    asked, query_of = np.unique(list_of[good], return_inverse=True)
    items, values, codes = items[good], view.values[good], contexts[asked]
    queries = Queries(
        QueryLabels(first.contexts_, codes), codes, first.seen_.take(codes), np.ones(len(codes), np.bool_)
    )
    filters = Filters(exclude=(queries.histories.indptr, queries.histories.indices)) if exclude_seen else None
    scorer = first._scorer(queries, threads)
    how: dict[str, Any] = {"filters": filters, "priority": first._priority, "memory": memory, "threads": threads}
    center, spread = location(*top_n(scorer, min(n, len(first.items_)), **how))
    indptr = _bounds(query_of, len(asked))
    ranks, _ = item_ranks(scorer, (indptr, items), **how)
    kept = ranks > 0
    counts["shown items that had been seen"] = int((~kept).sum())
    scores = np.concatenate(first._scores(queries, np.split(items, indptr[1:-1])))
    found = Candidates(
        first,
        queries,
        _bounds(query_of[kept], len(asked)),
        items[kept],
        scores[kept],
        ranks[kept],
        center,
        spread,
        threads=threads,
    )
    relevance = values[kept].astype(np.int64)
    hit = np.flatnonzero(relevance > 0)
    who = first.contexts_.ids(codes[found.query_of[hit]])
    learnt = np.unique(digests(who, first.items_.ids(found.item_codes[hit])))
    way_out = "add what was shown and not clicked, and what was clicked, of items that stage one knows"
    way_out += ", or pass exclude_seen=False" if exclude_seen else ""
    training_set = TrainingSet(found, relevance, counts, learnt, clicks=True)
    return _useful(training_set, "lists in which all are equally relevant", way_out)


def found_by(
    first: Recommender,
    queries: Queries,
    items: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    threads: int | None,
) -> Candidates:
    """Candidates from lists of stage one, best first, −1 where the filters leave fewer."""
    there = items >= 0
    ranks = np.broadcast_to(np.arange(1, items.shape[1] + 1), items.shape)
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
    center, spread = location(items, scores)
    return Candidates(
        first, queries, indptr, items[there], scores[there], ranks[there], center, spread, threads=threads
    )


def location(
    items: npt.NDArray[np.int32], scores: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and standard deviation of the scores of each list; 0 where it is empty."""
    there = items >= 0
    counts = np.maximum(there.sum(axis=1), 1)
    mean = np.where(there, scores, 0.0).sum(axis=1, dtype=np.float64) / counts
    squares = np.where(there, scores - mean[:, None], 0.0) ** 2
    return mean, np.sqrt(squares.sum(axis=1) / counts)


def pairs_of(events: Interactions) -> tuple[list[Id], list[Id]]:
    """Contexts and items of events by their ids, each pair once, in the order of `by_context`."""
    view = events.by_context
    row_of = np.repeat(np.arange(view.n_rows), view.lengths)
    return events.contexts.ids(row_of), events.items.ids(view.indices)


def digests(contexts: list[Id], items: list[Id]) -> Digests:
    """A number for each pair that is the same everywhere, by which pairs can be known again."""
    raw = b"".join(
        hashlib.blake2b(repr(pair).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for pair in zip(contexts, items)
    )
    return np.frombuffer(raw, "<u8").astype(np.uint64)


def _useful(training_set: TrainingSet, useless: str, way_out: str) -> TrainingSet:
    """Only queries that say something about order: not all of their candidates are equally relevant."""
    found, relevance = training_set.candidates, training_set.relevance
    size = found.n_queries
    total = np.bincount(found.query_of, relevance, size)
    greatest = np.zeros(size, np.int64)
    np.maximum.at(greatest, found.query_of, relevance)
    unlike = (total > 0) & (total < greatest * found.sizes)
    chosen = np.flatnonzero(unlike)
    if not len(chosen):
        raise DataError(
            f"nothing can be learnt about order: of {size:,} lists of candidates none has both relevant and other "
            f"ones; {way_out}"
        )
    rows = unlike[found.query_of]
    counts = {
        "lists": len(chosen),
        "candidates": int(rows.sum()),
        "relevant candidates": int((relevance[rows] > 0).sum()),
        useless: size - len(chosen),
        **training_set.counts,
    }
    return replace(training_set, candidates=found.select(chosen), relevance=relevance[rows], counts=counts)


def _bounds(row_of: npt.NDArray[np.int64], n_rows: int) -> npt.NDArray[np.int64]:
    """Where each row begins, of entries that stand row by row."""
    return np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=n_rows))]).astype(np.int64)


def _best_grades(shown: Any, columns: Columns) -> tuple[Interactions, SparseRows]:
    """What was shown, and a row for each list: its items, each once, with the greatest of their grades."""
    require_polars_threads("learning from impressions")
    with polars_errors("the frame"):
        frame = as_lazy(shown, columns)
        found = frame.collect_schema()
        if all(name in found for name in columns.all):  # if not, `from_frame` tells of it
            frame = _graded(frame.select(columns.all).collect(), columns).lazy()
    names: dict[str, Any] = {"context": columns.context, "item": columns.item, "weight": columns.weight}
    events = Interactions.from_frame(frame, **names)
    assert events.weights is not None
    rising = np.argsort(events.weights, kind="stable").astype(np.uint32)  # the latest is the greatest
    size = events.n_contexts, events.n_items
    return events, rows_of(events.context_codes, events.item_codes, events.weights, rising, *size, LATEST)


def _graded(frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """The frame with whole numbers for what was clicked; nothing may be missing in it."""
    clicked = columns.weight
    assert clicked is not None
    column, expected = frame[clicked], f"True and False, 0 and 1, or grades, whole numbers up to {GREATEST}"
    for name in columns.all:
        if missing := frame[name].null_count():
            way_out = f"expected {expected}; " if name == clicked else ""
            raise DataError(
                f"column {name!r}: {missing:,} of {frame.height:,} rows are null; {way_out}fill them, or leave those "
                "rows out"
            )
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        raise DataError(f"column {clicked!r} has type {column.dtype}; expected {expected}")
    grades = column.cast(pl.Float64)
    good = grades.is_between(0, GREATEST) & (grades == grades.floor())
    if not good.all():
        first = grades.filter(~good)[0]
        raise DataError(
            f"column {clicked!r}: {(~good).sum():,} of {frame.height:,} rows are such as {first:g}; expected {expected}"
        )
    if frame.height and not (grades > 0).any():
        raise DataError(
            f"column {clicked!r}: nothing of {frame.height:,} shown items was clicked, and clicks are learnt from"
        )
    return frame.with_columns(grades.alias(clicked))
