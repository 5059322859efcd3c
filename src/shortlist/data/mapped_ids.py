"""Tables of ids in the memory of a mapped file: few ids are read without decoding the others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._fork import polars_threads
from shortlist.errors import StorageError

Places: TypeAlias = npt.NDArray[np.int64]
_FEW = 16  # from this number of rows on, it is faster to read them column by column


@dataclass(frozen=True, eq=False)
class Integers:
    """A column of integers."""

    numbers: npt.NDArray[Any]

    def values(self, places: Places) -> list[int]:
        """Return the values at these places."""
        return [int(number) for number in self.numbers[places].tolist()]

    def value(self, place: int) -> int:
        """Return the value at this place."""
        return int(self.numbers[place])


@dataclass(frozen=True, eq=False)
class Strings:
    """A column of strings: string k is `text[offsets[k]:offsets[k + 1]]`, in UTF-8.

    The offsets come from a file and are checked when they are used.
    """

    offsets: npt.NDArray[np.int64]
    text: npt.NDArray[np.uint8]

    def values(self, places: Places) -> list[str]:
        """Return the values at these places."""
        starts, stops = self.offsets[places], self.offsets[places + 1]
        if len(starts) and not (starts.min() >= 0 and stops.max() <= len(self.text) and (starts <= stops).all()):
            raise _damaged("a string lies outside of it")
        text = self.text.data
        try:
            return [str(text[a:b], "utf-8") for a, b in zip(starts.tolist(), stops.tolist())]
        except UnicodeDecodeError as error:
            raise _damaged(error) from None

    def value(self, place: int) -> str:
        """Return the value at this place."""
        start, stop = self.offsets.item(place), self.offsets.item(place + 1)
        if 0 <= start <= stop <= len(self.text):
            with suppress(UnicodeDecodeError):
                return self.text[start:stop].tobytes().decode()
        return self.values(np.array([place]))[0]  # raises


@dataclass(frozen=True, eq=False)
class IdBatch:
    """Some rows of a table, one after the other."""

    height: int
    columns: Sequence[Integers | Strings]


@dataclass(frozen=True, eq=False)
class MappedIds:
    """A table of ids whose polars frame is made when it is first needed.

    Attributes:
        schema: names and types of the columns.
        height: the number of rows.
        batches: the rows; None if only polars can read them.
        read: returns the table as a frame.
    """

    schema: pl.Schema
    height: int
    batches: Sequence[IdBatch] | None
    read: Callable[[], pl.DataFrame]

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The table as a frame of polars, which copies it."""
        if self.batches is not None and not polars_threads():
            return self.take(np.arange(self.height))
        return self.read()

    @cached_property
    def _ends(self) -> list[int]:
        """The number of rows up to the end of each batch."""
        return list(accumulate(batch.height for batch in self.batches or ()))

    def row(self, place: int) -> Any:
        """Return the row at this place: a value if there is one column, else a tuple."""
        if self.batches is None or not 0 <= place < self.height:
            return self.rows(np.array([place]))[0]
        number = bisect_right(self._ends, place)
        batch = self.batches[number]
        at = place - (self._ends[number] - batch.height)
        if len(batch.columns) == 1:
            return batch.columns[0].value(at)
        return tuple(column.value(at) for column in batch.columns)

    def rows(self, places: Places) -> list[Any]:
        """Return these rows: values if there is one column, else tuples. Negative places count from the end."""
        if len(places) and not -self.height <= places.min() <= places.max() < self.height:
            raise IndexError(f"the table has {self.height} rows")
        places = np.where(places < 0, places + self.height, places)
        if len(places) < _FEW and self.batches is not None:
            return [self.row(place) for place in places.tolist()]
        if self.batches is None:
            rows = self.frame[places]
            return rows.rows() if rows.width > 1 else rows.to_series().to_list()
        if len(self.batches) == 1:
            columns = [column.values(places) for column in self.batches[0].columns]
        else:
            columns = self._from_batches(self.batches, places)
        return columns[0] if len(columns) == 1 else list(zip(*columns))

    def _from_batches(self, batches: Sequence[IdBatch], places: Places) -> list[list[Any]]:
        columns: list[list[Any]] = [[None] * len(places) for _ in self.schema]
        start = 0
        for batch in batches:
            here = np.flatnonzero((places >= start) & (places < start + batch.height))
            if len(here):
                for values, column in zip(columns, batch.columns):
                    for place, value in zip(here.tolist(), column.values(places[here] - start)):
                        values[place] = value
            start += batch.height
        return columns

    def take(self, places: Places) -> pl.DataFrame:
        """Return these rows as a frame."""
        rows = self.rows(places)
        columns = [rows] if len(self.schema) == 1 else list(zip(*rows)) or [()] * len(self.schema)
        return pl.DataFrame(
            [pl.Series(name, column, dtype) for (name, dtype), column in zip(self.schema.items(), columns)]
        )


def _damaged(problem: object) -> StorageError:
    return StorageError(f"the table of ids is damaged: {problem}", code="model-damaged", hint="restore it from a copy")


def frame_of(table: pl.DataFrame | MappedIds) -> pl.DataFrame:
    """Return a table as a frame."""
    return table.frame if isinstance(table, MappedIds) else table
