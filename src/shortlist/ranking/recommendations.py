"""The result of `recommend`."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import one_of
from shortlist._phrases import count
from shortlist.data.vocabulary import Id, Vocabulary, rows_at
from shortlist.ranking.queries import QueryLabels

ListFormat: TypeAlias = Literal["long", "lists"]
FORMATS = ("long", "lists")


class Recommendations:
    """Top-n lists, one per query, best items first; with a slate, in the order in which it picked them.

    A list has fewer than n items only if the filters left fewer. `recommendations[k]` is the list of the k-th query, as
    (id, score) pairs; `ids`, `scores` and `to_polars()` return all lists at once. `skipped` lists the unknown contexts
    that were skipped because of `unknown="skip"`.
    """

    def __init__(
        self,
        labels: QueryLabels,
        items: Vocabulary,
        codes: npt.NDArray[np.int32],
        scores: npt.NDArray[np.float32],
        *,
        answer: str | None = None,
        skipped: list[Id] | None = None,
    ) -> None:
        self._labels = labels
        self._items = items
        self._codes = codes
        self._scores = scores
        self._answer = answer or items.names[0]
        self.skipped = skipped or []

    @property
    def queries(self) -> list[Id]:
        """The queries: ids of contexts, or the numbers of the histories from 0."""
        return self._labels.ids()

    @property
    def ids(self) -> list[list[Id]]:
        """The item ids, one list per query."""
        counts = self.counts
        flat = self._items.ids(self._codes[self._codes >= 0])
        ends = np.cumsum(counts)
        return [flat[end - count : end] for count, end in zip(counts, ends)]

    @property
    def scores(self) -> list[npt.NDArray[np.float32]]:
        """The scores, one array per query. They are not probabilities; compare them only within a list."""
        return [row[:count] for row, count in zip(self._scores, self.counts)]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The number of items of each list."""
        return np.asarray(np.count_nonzero(self._codes >= 0, axis=1))

    def to_polars(self, format: ListFormat = "long") -> pl.DataFrame:  # noqa: A002
        """Return all lists as a frame.

        With `format="long"`, a row for each recommendation: the query's columns, the item, its `rank` from 1, its
        `score`. With `format="lists"`, a row for each query: its columns, a list of items, best first, and a list of
        scores. If the query already has a column of one of these names, an underscore is appended to the new name.
        """
        one_of("format", format, FORMATS)
        keep = self._codes >= 0
        counts = np.count_nonzero(keep, axis=1)
        if full := bool(keep.all()):  # as nearly always
            codes, scores = self._codes.reshape(-1), self._scores.reshape(-1)
        else:
            codes, scores = self._codes[keep], self._scores[keep]
        items, score = self._items.take(codes).to_series().alias(self._answer), pl.Series("score", scores)
        if format == "lists":
            return _joined(self._labels.frame().get_columns(), [_as_lists(items, keep), _as_lists(score, keep)])
        ranks = np.broadcast_to(np.arange(1, self._codes.shape[1] + 1, dtype=np.int32), self._codes.shape)
        rank = pl.Series("rank", ranks.reshape(-1) if full else ranks[keep])
        columns = rows_at(self._labels.frame(), np.repeat(np.arange(len(self)), counts)).get_columns()
        return _joined(columns, [items, rank, score])

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, k: int) -> list[tuple[Id, float]]:
        k = operator.index(k)
        row = self._codes[k]
        keep = row >= 0
        return list(zip(self._items.ids(row[keep]), (float(score) for score in self._scores[k][keep])))

    def __iter__(self) -> Iterator[list[tuple[Id, float]]]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        shown, width = 10, 5
        names, queries = self._labels.names, self.queries[:shown]
        lines = [f"Recommendations for {count(len(self), 'query', 'queries')}"]
        for k in range(min(len(self), shown)):
            query = ", ".join(map(str, queries[k])) if isinstance(queries[k], tuple) else str(queries[k])
            best = [f"{item} ({score:.3f})" for item, score in self[k][:width]]
            more = int(self.counts[k]) - width
            lines.append(f"  {', '.join(names)} {query}: {'  '.join(best) or 'nothing left by the filters'}"
                         + (f"  … {more} more" if more > 0 else ""))  # fmt: skip
        if len(self) > shown:
            lines.append(f"  … {count(len(self) - shown, 'more query', 'more queries')}")
        return "\n".join(lines)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return plain Python values, as in the JSON output of the command line."""
        return [
            {
                "query": list(query) if isinstance(query, tuple) else query,
                "items": [{"id": item, "score": score} for item, score in self[k]],
            }
            for k, query in enumerate(self.queries)
        ]


def _joined(columns: list[pl.Series], added: list[pl.Series]) -> pl.DataFrame:
    """Join the query's columns and the added ones; an added column whose name is taken gets underscores."""
    for new in added:
        name = new.name
        while name in [column.name for column in columns]:
            name += "_"
        columns.append(new.alias(name))
    return pl.DataFrame(columns)


def _as_lists(values: pl.Series, keep: npt.NDArray[np.bool_]) -> pl.Series:
    """Return values, one for each True in `keep`, as one list per row of `keep`."""
    if keep.all():
        return values.reshape(keep.shape).arr.to_list()
    places = pl.Series(np.cumsum(keep) - 1).set(~pl.Series(keep.reshape(-1)), None)
    return values.gather(places).reshape(keep.shape).arr.to_list().list.drop_nulls()
