"""Histories: the events of each user in order, or as sets of items for models that ignore the order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer
from shortlist.data.sparse_rows import SUM, SparseRows, rows_of
from shortlist.data.vocabulary import Codes


@dataclass(frozen=True, eq=False)
class Histories:
    """One history per row: its events from the oldest to the newest, repeats kept.

    Row r has the items `items[indptr[r]:indptr[r + 1]]`. Most models see a history as a set of items with weights; they
    read `sets()`. Histories made by `of_sets` have no order, and `sets()` costs nothing.

    Attributes:
        indptr: the start of each row, then the number of events.
        items: the item code of each event.
        times: the time of each event, in seconds if times are dates; None if events have no times.
        weights: the weight of each event; None if every weight is 1.
        n_items: the number of items in the catalogue.
        merge: how `sets` combines the weights of a repeated item: `SUM`, `COUNT` or `LATEST`.

    >>> history = Histories(np.array([0, 3]), np.array([2, 0, 2], np.int32), None, None, 4)
    >>> history.last(2).items.tolist(), history.sets().indices.tolist(), history.sets().values.tolist()
    ([0, 2], [0, 2], [1.0, 2.0])
    """

    indptr: npt.NDArray[np.int64]
    items: Codes
    times: npt.NDArray[np.float64] | None
    weights: npt.NDArray[np.float32] | None
    n_items: int
    merge: int = SUM
    _sets: SparseRows | None = field(default=None, init=False)

    @classmethod
    def of_sets(cls, rows: SparseRows) -> Histories:
        """Return sets of items as histories without an order."""
        histories = cls(rows.indptr, rows.indices, None, rows.values, rows.n_columns)
        object.__setattr__(histories, "_sets", rows)
        return histories

    @classmethod
    def empty(cls, n_rows: int, n_items: int) -> Histories:
        """Return empty histories."""
        return cls.of_sets(SparseRows(np.zeros(n_rows + 1, np.int64), np.empty(0, np.int32), None, n_items))

    @property
    def n_rows(self) -> int:
        """The number of histories, including empty ones."""
        return len(self.indptr) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of events of each history."""
        return np.diff(self.indptr)

    def __len__(self) -> int:
        """The number of events."""
        return len(self.items)

    def row(self, r: int) -> Codes:
        """Return the items of history `r`, the oldest first."""
        return self.items[self.indptr[r] : self.indptr[r + 1]]

    def sets(self) -> SparseRows:
        """Return the distinct items of each history, ascending, with their combined weights; computed once."""
        if self._sets is None:
            object.__setattr__(self, "_sets", self._merged())
        assert self._sets is not None
        return self._sets

    def _merged(self) -> SparseRows:
        if self.n_rows != 1 or self.merge != SUM:
            row_of = np.repeat(np.arange(self.n_rows, dtype=np.int32), self.lengths)
            return rows_of(row_of, self.items, self.weights, None, self.n_rows, self.n_items, self.merge)
        distinct, place = np.unique(self.items, return_inverse=True)  # avoids an array over all items
        summed = np.bincount(place, self.weights, len(distinct)).astype(np.float32)
        plain = self.weights is None and len(distinct) == len(self.items)
        return SparseRows(np.array([0, len(distinct)]), distinct, None if plain else summed, self.n_items)

    def take(self, rows: npt.NDArray[Any]) -> Histories:
        """Return the given histories, in the given order."""
        if self._without_order:
            assert self._sets is not None
            return Histories.of_sets(_row(self._sets, rows[0]) if len(rows) == 1 else self._sets.take(rows))
        lengths = self.lengths[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return self._at(indptr, np.repeat(self.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1]))

    def with_empty_row(self) -> Histories:
        """Return the same histories and an empty one after them."""
        if self._without_order:
            rows = self.sets()
            return Histories.of_sets(replace(rows, indptr=np.append(rows.indptr, rows.indptr[-1])))
        indptr = np.append(self.indptr, self.indptr[-1])
        return Histories(indptr, self.items, self.times, self.weights, self.n_items, self.merge)

    def last(self, n: int) -> Histories:
        """Return the newest n events of each history."""
        n = integer("n", n, least=0)
        starts = np.maximum(self.indptr[:-1], self.indptr[1:] - n)
        lengths = self.indptr[1:] - starts
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return self._at(indptr, np.repeat(starts - indptr[:-1], lengths) + np.arange(indptr[-1]))

    def recode(self, codes: Codes, n_items: int) -> Histories:
        """Return the same events with the item codes of another catalogue of `n_items` items.

        `codes` has the new code of each item; events of items with −1 are dropped.
        """
        new = codes[self.items]
        known = new >= 0
        if known.all():
            return Histories(self.indptr, new, self.times, self.weights, n_items, self.merge)
        indptr = np.concatenate([[0], np.cumsum(known)])[self.indptr].astype(np.int64)
        times = None if self.times is None else self.times[known]
        weights = None if self.weights is None else self.weights[known]
        return Histories(indptr, new[known], times, weights, n_items, self.merge)

    def _at(self, indptr: npt.NDArray[np.int64], places: npt.NDArray[Any]) -> Histories:
        times = None if self.times is None else self.times[places]
        weights = None if self.weights is None else self.weights[places]
        return Histories(indptr, self.items[places], times, weights, self.n_items, self.merge)

    @property
    def _without_order(self) -> bool:
        return self._sets is not None and self.items is self._sets.indices


def _row(rows: SparseRows, r: int) -> SparseRows:
    """Return one row as a view; `SparseRows.take` would take several times as long."""
    start, stop = rows.indptr[r], rows.indptr[r + 1]
    values, confidence = (None if array is None else array[start:stop] for array in (rows.values, rows.confidence))
    indptr = np.array([0, stop - start], np.int64)
    return SparseRows(indptr, rows.indices[start:stop], values, rows.n_columns, confidence)
