"""Ranked lists from anywhere, such as another library, in the codes of a split."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._phrases import count
from shortlist.data.encode import Columns
from shortlist.data.interactions import as_lazy
from shortlist.data.sparse_rows import SparseRows, has_pairs
from shortlist.data.splits import Split
from shortlist.errors import DataError, SettingError, ShortlistWarning
from shortlist.evaluation.catalogue_search import hit_ranks
from shortlist.metrics import Lists, Metric, Ranks
from shortlist.ranking.recommendations import Recommendations

RANK, SCORE = "rank", "score"


@dataclass(frozen=True, eq=False)
class GivenLists:
    """The list of each context of a split's truth, best item first.

    Attributes:
        items: item codes of `split.train`, contexts × positions; −1 in empty places.
        without: number of contexts of the truth that have no list.
        others: number of contexts with a list that are not in the truth.
    """

    split: Split
    items: npt.NDArray[np.int32]
    without: int
    others: int

    @classmethod
    def of(cls, given: Any, split: Split) -> GivenLists:
        """Read lists from a frame with the split's columns of context and item, and `rank` or `score`."""
        contexts, items = split.truth.contexts, split.train.items
        frame = _frame(given, contexts.names, items.names[0])
        names = [*contexts.names, items.names[0]]
        if repeats := frame.height - frame.select(names).n_unique():
            raise DataError(
                f"{repeats:,} of {frame.height:,} rows repeat a listed pair",
                code="bad-rows",
                hint="list each item once",
            )
        context_codes = contexts.encode(frame.select(contexts.names), unknown="mark")
        known = context_codes >= 0
        if not known.any():
            if not frame.height:
                raise DataError("the lists are empty; expected one row for each listed item", code="empty-data")
            example = ", ".join(map(repr, frame.row(0)[: len(contexts.names)]))
            raise DataError(
                f"the lists have none of the {len(contexts):,} contexts of the split's truth, which look like "
                f"{contexts.ids([0])[0]!r}; the lists have {example}"
            )
        way_out = "list only items of split.train"
        codes = items.encode(frame.select(items.names[0]), what="item", way_out=way_out)[known]
        others = frame.filter(~known).select(contexts.names).n_unique()
        order = _order(frame)[known]
        context_codes = context_codes[known]
        by_place = np.lexsort((order, context_codes))
        lengths = np.bincount(context_codes, minlength=len(contexts))
        starts = np.cumsum(lengths) - lengths
        place = np.arange(len(codes)) - np.repeat(starts, lengths)
        lists = np.full((len(contexts), int(lengths.max())), -1, np.int32)
        lists[context_codes[by_place], place] = codes[by_place]
        return cls(split, lists, int((lengths == 0).sum()), others)

    @property
    def protocol(self) -> str:
        """A sentence that says what was evaluated."""
        parts = [f"{self.split.protocol}, given lists of up to {count(self.items.shape[1], 'item')}"]
        if self.without:
            parts.append(f"{self.without:,} of {count(len(self.items), 'context')} without a list")
        if self.others:
            parts.append(f"lists of {count(self.others, 'other context')} ignored")
        return ", ".join(parts)

    def check(self, metrics: list[Metric], stacklevel: int) -> None:
        """Refuse metrics that need longer lists; warn about contexts without a list, and about seen items."""
        if whole := [str(metric) for metric in metrics if metric.needs_full_ranks]:
            raise SettingError(
                f"{', '.join(whole)} needs the whole ranking, but only lists are given",
                hint="use metrics at n, such as 'ndcg@10'",
                field="metrics",
            )
        longest = self.items.shape[1]
        if deep := [str(metric) for metric in metrics if (metric.n or 0) > longest]:
            raise SettingError(
                f"{', '.join(deep)} needs longer lists: the longest has {count(longest, 'item')}",
                hint="use a smaller n",
                field="metrics",
            )
        if self.without:
            warnings.warn(
                f"{self.without:,} of the truth's {count(len(self.items), 'context')} have no list; their held-out "
                "items count as misses",
                ShortlistWarning,
                stacklevel=stacklevel,
            )
        seen = self._n_seen() if self.split.exclude_seen else 0
        if seen:
            filled = int((self.items >= 0).sum())
            warnings.warn(
                f"{seen:,} of {count(filled, 'listed item')} are in the history of their context. This split excludes "
                "seen items, so they can never be hits but take places; drop them from the lists",
                ShortlistWarning,
                stacklevel=stacklevel,
            )

    def _n_seen(self) -> int:
        history = self.split.history.by_context
        rows, places = np.nonzero(self.items >= 0)
        return int(has_pairs(history.indptr, history.indices, rows, self.items[rows, places]).sum())

    def ranks(self) -> Ranks:
        """Return the ranks of the held-out items in the lists."""
        truth = self.split.truth.by_context
        n_ranked = np.full(truth.n_rows, truth.n_columns, np.int64)
        if self.split.exclude_seen:
            n_ranked -= self.split.history.by_context.lengths
        indptr, ranks = hit_ranks(self.items, truth.indptr, truth.indices)
        return Ranks(indptr, ranks, truth.lengths, n_ranked, self.items.shape[1])

    def lists(self) -> Lists:
        """Return the lists with the training data, for metrics beyond accuracy."""
        trained: SparseRows = self.split.train.by_context
        return Lists(self.items, trained, self.split.history.by_context)


def is_lists(given: object) -> bool:
    """Return whether this may be ranked lists rather than a model."""
    return isinstance(given, Recommendations | pl.DataFrame | pl.LazyFrame | dict) or hasattr(type(given), "columns")


def _frame(given: Any, context_names: tuple[str, ...], item_name: str) -> pl.DataFrame:
    """Return the columns of context, item and order."""
    if isinstance(given, Recommendations):
        given = given.to_polars()
    names = _column_names(given)
    ids = (*context_names, item_name)
    # `Recommendations.to_polars` adds an underscore if the data have such a column.
    order = next((name for name in (RANK, f"{RANK}_", SCORE, f"{SCORE}_") if name in names and name not in ids), None)
    missing = [name for name in (*context_names, item_name) if name not in names]
    if missing or order is None:
        expected = [*map(repr, (*context_names, item_name)), f"{RANK!r} or {SCORE!r}"]
        raise DataError(
            f"ranked lists need the columns {', '.join(expected)}; the frame has "
            f"{', '.join(map(repr, names)) or 'none'}",
            code="missing-column",
        )
    lazy = as_lazy(given, Columns.named(context_names, item_name, order, None))
    frame = lazy.select(*context_names, item_name, order).collect()
    dtype = frame[order].dtype
    numbers = frame[order].cast(pl.Float64) if dtype.is_numeric() else None
    if numbers is None or numbers.null_count() or numbers.is_nan().any():
        raise DataError(
            f"column {order!r} has type {dtype} or missing values; expected a number in each row", field=order
        )
    frame = frame.with_columns(numbers)
    for name in (*context_names, item_name):
        if missing_ids := frame[name].null_count():
            raise DataError(
                f"column {name!r} is null in {missing_ids:,} of {frame.height:,} rows",
                code="bad-rows",
                hint="drop these rows",
                field=name,
            )
    return frame


def _column_names(given: Any) -> list[str]:
    if isinstance(given, pl.LazyFrame):
        return given.collect_schema().names()
    if isinstance(given, dict):
        return list(map(str, given))
    return list(map(str, getattr(given, "column_names", None) or given.columns))


def _order(frame: pl.DataFrame) -> npt.NDArray[np.float64]:
    """Return numbers that ascend from the best item to the worst; ties keep the order of the rows."""
    values = frame[:, -1].to_numpy()
    return values if frame.columns[-1].startswith(RANK) else -values
