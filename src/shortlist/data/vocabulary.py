"""Ids and codes: what the outside calls a thing, and the int32 number it has inside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from functools import cached_property
from itertools import repeat
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._fork import polars_threads
from shortlist.data.id_lists import ids_of_frame, is_frame
from shortlist.errors import DataError, SettingError, UnknownIdError

Codes: TypeAlias = npt.NDArray[np.int32]
Id: TypeAlias = Any  # an int, a str, or a tuple of them
Unknown: TypeAlias = Literal["raise", "skip", "mark", "average"]

_JOIN_FROM = 4096  # length of a Series from which a hash join beats a Python dictionary
_MOST = np.iinfo(np.int32).max
_INTEGER = re.compile("0|-?[1-9][0-9]{0,38}")  # polars' integers have at most 39 digits


class Vocabulary:
    """The ids of contexts or items in the order of their codes.

    One column of integers or strings, or several: then an id is a tuple. Ids come back as they were handed in, type
    and all. A vocabulary is immutable; `extend` gives a grown one in which every old id keeps its code.

    >>> items = Vocabulary.of(["pear", "apple"], name="product")
    >>> items.encode(["apple", "pear"])
    array([1, 0], dtype=int32)
    >>> items.ids([1])
    ['apple']
    >>> items.extend(["fig", "pear"])
    Vocabulary(product: 3 String ids, 'pear' … 'fig')
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        if not isinstance(frame, pl.DataFrame):
            raise DataError(f"a vocabulary is made of a polars frame, got {type(frame).__name__}; use Vocabulary.of")
        if not frame.width:
            raise DataError("a vocabulary needs at least one column of ids")
        if frame.height > _MOST:
            raise DataError(f"{frame.height:,} distinct ids; at most {_MOST:,} can be told apart")
        for column in frame.get_columns():
            if not (column.dtype.is_integer() or column.dtype == pl.String):
                raise DataError(f"column {column.name!r} has type {column.dtype}; ids are integers or strings")
            if column.null_count():
                raise DataError(f"column {column.name!r}: {column.null_count():,} ids are null")
        self._frame = frame

    @classmethod
    def of(cls, ids: Iterable[Id] | pl.Series, name: str | Sequence[str] = "id") -> Vocabulary:
        """Make a vocabulary of distinct ids in the given order; tuples become several columns named by `name`."""
        names = [name] if isinstance(name, str) else list(name) if isinstance(name, Sequence) else []
        if not names or not all(isinstance(one, str) for one in names):
            raise SettingError(f"name is {name!r:.80}; expected the name of the column of ids, or a list of names")
        frame = _frame_of(ids, names)
        if repeats := frame.height - n_distinct(frame):
            raise DataError(f"ids of {name!r} are not distinct: {repeats:,} of {frame.height:,} are repeated")
        return cls(frame)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in the data the ids came from."""
        return tuple(self._frame.columns)

    @property
    def frame(self) -> pl.DataFrame:
        """The ids as a frame, a row a code; this is what is stored on disk."""
        return self._frame

    @property
    def is_tuple(self) -> bool:
        """Whether an id is a tuple of several columns."""
        return self._frame.width > 1

    def ids(self, codes: Sequence[int] | npt.NDArray[Any] | None = None) -> list[Id]:
        """The ids with these codes (all of them by default) as Python values."""
        if codes is None:
            return list(self._values)
        values = self._values
        try:
            return [values[code] for code in np.asarray(codes).tolist()]
        except (TypeError, ValueError, IndexError):
            raise self._no_codes(codes) from None

    @cached_property
    def _values(self) -> list[Id]:
        return _rows(self._frame)

    def _one(self, code: int) -> Id:
        row = self._frame.row(code)
        return row if self.is_tuple else row[0]

    def take(self, codes: npt.NDArray[Any]) -> pl.DataFrame:
        """The ids with these codes as a frame with the original columns and types."""
        try:
            return rows_at(self._frame, codes)
        except (TypeError, ValueError, IndexError, OverflowError, pl.exceptions.PolarsError):
            raise self._no_codes(codes) from None

    def _no_codes(self, codes: object) -> SettingError:
        return SettingError(f"codes is {codes!r:.80}; expected a list of integers from 0 to {len(self) - 1:,}")

    def encode(
        self,
        ids: Iterable[Id] | pl.Series | pl.DataFrame,
        *,
        unknown: Unknown = "raise",
        what: str = "id",
        way_out: str = "pass unknown='skip' to leave them out",
    ) -> Codes:
        """The codes of these ids.

        Args:
            ids: ids as in the data: a list, an array, a Series, or a frame. Columns of a polars frame are matched by
                position, those of other frames by name where the names are the same.
            unknown: `"raise"` an error, `"skip"` (leave them out of the answer), or `"mark"` them with −1.
            what: the word for an id in the error message.
            way_out: what the message advises.
        """
        if not isinstance(unknown, str) or unknown not in ("raise", "skip", "mark"):
            raise SettingError(f"unknown={unknown!r:.80}; expected 'raise', 'skip' or 'mark'")
        _refuse_single(ids, what)
        if self.is_tuple and isinstance(ids, tuple) and self._code(ids) >= 0:
            raise SettingError(f"expected a list of {what}s, got the single {ids!r}; write [{ids!r}]")
        ids = _read(ids, self.names, f"{what}s")
        if not isinstance(ids, Sized):
            ids = list(ids)
        large = isinstance(ids, pl.DataFrame) or (isinstance(ids, pl.Series) and len(ids) >= _JOIN_FROM)
        codes = self._encode_by_join(ids) if large and polars_threads() else self._encode_one_by_one(ids)
        missing = codes < 0
        if unknown != "mark" and missing.any():
            if unknown == "raise":
                first = _listed(ids)[int(np.argmax(missing))]
                raise UnknownIdError(f"{self._unknown_message(first, int(missing.sum()), len(codes), what)}; {way_out}")
            codes = codes[~missing]
        return codes

    def extend(self, ids: Iterable[Id] | pl.Series) -> Vocabulary:
        """A vocabulary with the new ones among `ids` appended in their order; no old code changes."""
        _refuse_single(ids, "id")
        more = _frame_of(ids, list(self.names), self._frame.schema)
        new = np.flatnonzero(self.encode(more, unknown="mark") < 0)
        if not len(new):
            return self
        columns = zip(self._frame.get_columns(), distinct(rows_at(more, new)).get_columns())
        return Vocabulary(pl.DataFrame([pl.concat([old, added]) for old, added in columns]))

    def parse(self, text: str) -> Id:
        """Read an id from text, as typed on a command line; parts of a tuple are separated by commas.

        An integer is read only in the one spelling that Python prints: "1", and not "01", "+1", "0_1" or "１".
        """
        if not isinstance(text, str):
            raise SettingError(f"an id is parsed from text, got {text!r:.80}")
        parts = text.split(",") if self.is_tuple else [text]
        if len(parts) != self._frame.width:
            raise SettingError(f"{text!r} has {len(parts)} parts; expected {self._frame.width}: {','.join(self.names)}")
        values = [self._parse_part(part, column) for part, column in zip(parts, self._frame.get_columns())]
        return tuple(values) if self.is_tuple else values[0]

    def typed(self, parts: Sequence[str]) -> Id:
        """The id that has these parts, as texts of a file; what is no number where ids are integers stays text.

        >>> Vocabulary.of([("ann", 1)], name=["user", "day"]).typed(["bob", "sunday"])
        ('bob', 'sunday')
        """
        values: list[int | str] = []
        for part, column in zip(parts, self._frame.get_columns(), strict=True):
            try:
                values.append(self._parse_part(part, column))
            except UnknownIdError:
                values.append(part)
        return tuple(values) if self.is_tuple else values[0]

    @staticmethod
    def _parse_part(text: str, column: pl.Series) -> int | str:
        if column.dtype == pl.String:
            return text
        found = integer_of(text)
        if found is None:
            raise UnknownIdError(
                f"unknown id {text!r:.80}: ids of {column.name!r} are integers, written as plain digits such as 17"
            )
        return found

    def _code(self, one: Id) -> int:
        return self._by_id.get(one, -1) if is_id(one) else -1

    @cached_property
    def _by_id(self) -> dict[Id, int]:
        return {key: code for code, key in enumerate(self._values)}

    def _encode_one_by_one(self, ids: Iterable[Id] | pl.Series | pl.DataFrame) -> Codes:
        listed = _listed(ids)
        # Only text equals text, and of whole numbers True and 1.0 are told by their types: no line of Python for each.
        if self._frame.dtypes == [pl.String] or set(map(type, listed)) <= {str, int}:
            with suppress(TypeError):  # what cannot be a key
                return np.fromiter(map(self._by_id.get, listed, repeat(-1)), np.int32, len(listed))
        return np.fromiter((self._code(one) for one in listed), np.int32, len(listed))

    def _encode_by_join(self, ids: Iterable[Id] | pl.Series | pl.DataFrame) -> Codes:
        try:
            asked = _frame_of(ids, list(self.names), self._frame.schema)
        except DataError:
            return self._encode_one_by_one(ids)  # among them is something that cannot be an id here
        # The user's names might be ours: columns are numbered for the join.
        numbers = [str(k) for k in range(asked.width)]
        known = self._frame.rename(dict(zip(self.names, numbers))).with_row_index("code")
        asked = asked.rename(dict(zip(asked.columns, numbers)))
        coded = asked.join(known, on=numbers, how="left", maintain_order="left", nulls_equal=False)
        return coded["code"].cast(pl.Int32).fill_null(-1).to_numpy()

    def _unknown_message(self, first: Id, n_missing: int, n_asked: int, what: str) -> str:
        example = self._one(0) if len(self) else None
        hint = ""
        if example is not None and type(first) is not type(example) and not isinstance(first, np.generic):
            hint = f" (ids here are like {example!r}, of type {type(example).__name__})"
        return f"unknown {what} {first!r}{hint}: {n_missing:,} of {n_asked:,} ids are not among the {len(self):,} known"

    def __len__(self) -> int:
        return self._frame.height

    def __iter__(self) -> Iterator[Id]:
        return iter(self.ids())

    def __contains__(self, one: Id) -> bool:
        return self._code(one) >= 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self._frame is other._frame or (
            self._frame.schema == other._frame.schema and self._frame.equals(other._frame)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        types = ", ".join(str(dtype) for dtype in self._frame.dtypes)
        span = f", {self._one(0)!r} … {self._one(-1)!r}" if len(self) else ""
        return f"Vocabulary({', '.join(self.names)}: {len(self):,} {types} ids{span})"


def rows_at(frame: pl.DataFrame, places: Sequence[int] | npt.NDArray[Any]) -> pl.DataFrame:
    """The rows of a frame at these places, taken column by column, which needs no threads."""
    places = np.asarray(places, dtype=np.int64)
    return pl.DataFrame([column[places] for column in frame.get_columns()])


def n_distinct(frame: pl.DataFrame) -> int:
    """How many distinct rows a frame of ids has."""
    return frame.n_unique() if polars_threads() else len(set(frame.rows()))


def distinct(frame: pl.DataFrame) -> pl.DataFrame:
    """Each row once, in the order of the first mention."""
    if polars_threads():
        return frame.unique(maintain_order=True)
    first: dict[Id, int] = {}
    for place, row in enumerate(frame.rows()):
        first.setdefault(row, place)
    return rows_at(frame, list(first.values()))


def integer_of(text: str) -> int | None:
    """The integer that is written so, or None: each integer has one spelling, so that no two texts mean one id.

    >>> integer_of("-17"), integer_of("017"), integer_of("1_7"), integer_of("１７")
    (-17, None, None, None)
    """
    return int(text) if _INTEGER.fullmatch(text) else None


def is_id(one: Id) -> bool:
    """Whether this can be an id at all; 1.0 and True equal 1 in a dictionary, but they are not ids."""
    if isinstance(one, tuple):
        return all(map(is_id, one))
    return isinstance(one, int | str | np.integer) and not isinstance(one, bool)


def _refuse_single(ids: object, what: str) -> None:
    if isinstance(ids, str | bytes | int | np.integer):
        raise SettingError(f"expected a list of {what}s, got the single value {ids!r}; write [{ids!r}]")
    if is_frame(ids):
        return
    if not isinstance(ids, Iterable) or (isinstance(ids, np.ndarray) and not ids.ndim):
        raise SettingError(f"expected a list of {what}s, got {ids!r:.80}")


def _read(ids: Any, names: Sequence[str], what: str) -> Any:
    """Ids of a frame that is not of polars as a list, which iterating over it would not give; others as they are."""
    return ids_of_frame(ids, names, what) if is_frame(ids) and not isinstance(ids, pl.DataFrame) else ids


def _listed(ids: Iterable[Id] | pl.Series | pl.DataFrame) -> list[Id]:
    if isinstance(ids, pl.DataFrame):
        return ids.rows() if ids.width > 1 else ids.to_series().to_list()
    return ids.to_list() if isinstance(ids, pl.Series) else list(_plain(ids))


def _frame_of(
    ids: Iterable[Id] | pl.Series | pl.DataFrame, names: list[str], schema: pl.Schema | None = None
) -> pl.DataFrame:
    """A frame of ids; with a schema, integers of another width are accepted where they fit."""
    ids = _read(ids, names, "ids")
    try:
        if isinstance(ids, pl.DataFrame):
            if ids.width != len(names):
                raise ValueError(f"found {ids.width} columns, expected {len(names)}")
            columns = ids.get_columns()
        elif len(names) == 1:
            columns = [ids if isinstance(ids, pl.Series) else _series(list(_plain(ids)))]
        else:
            tuples = list(ids)
            if not all(isinstance(one, tuple) for one in tuples):
                raise TypeError(f"expected tuples of {len(names)} parts")
            columns = [_series(list(part)) for part in zip(*tuples, strict=True)] or [pl.Series([])] * len(names)
            if len(columns) != len(names):
                raise ValueError(f"found tuples of {len(columns)}, expected {len(names)} parts")
        columns = [_as_text(column) for column in columns]
        frame = pl.DataFrame([column.alias(name) for column, name in zip(columns, names)])
        if schema is not None:
            if not frame.height:
                return pl.DataFrame(schema=schema)
            for found, expected in zip(frame.dtypes, schema.dtypes()):
                if found != expected and not (found.is_integer() and expected.is_integer()):
                    raise TypeError(f"found {found}, expected {expected}")  # neither '5' nor 5.0 stands for 5
            frame = pl.DataFrame([one.cast(dtype) for one, dtype in zip(frame.get_columns(), schema.dtypes())])
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        why = str(error).partition("\n")[0]  # polars goes on at length
        raise DataError(f"ids of {', '.join(names)} are not all of one integer or string type: {why}") from None
    return frame


def _series(values: list[Id]) -> pl.Series:
    if bool in set(map(type, values)):  # polars would take True for 1
        raise TypeError("found True or False")
    return pl.Series(values, strict=True)


def _as_text(column: pl.Series) -> pl.Series:
    """Categories and enums as the strings they stand for."""
    return column.cast(pl.String) if column.dtype in (pl.Categorical, pl.Enum) else column


def _plain(ids: Iterable[Id]) -> Iterable[Id]:
    if isinstance(ids, np.ndarray):
        return ids.tolist()  # type: ignore[no-any-return]
    return ids.to_pylist() if hasattr(ids, "to_pylist") else ids


def _rows(frame: pl.DataFrame) -> list[Id]:
    return frame.rows() if frame.width > 1 else frame.to_series().to_list()
