"""Vocabularies: map between ids, as in the user's data, and internal int32 codes."""

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

from shortlist._checks import refusal
from shortlist._fork import polars_threads
from shortlist._phrases import count, n_of
from shortlist._wording import Message
from shortlist.data.id_index import IdIndex
from shortlist.data.id_lists import ids_of_frame, is_frame
from shortlist.data.mapped_ids import MappedIds
from shortlist.errors import DataError, SettingError, UnknownIdError

Codes: TypeAlias = npt.NDArray[np.int32]
Id: TypeAlias = Any  # an int, a str, or a tuple of them
Unknown: TypeAlias = Literal["raise", "skip", "mark", "average"]

_JOIN_FROM = 4096  # from this length on, a hash join is faster than a Python dictionary
_SMALL = 1 << 16  # up to this size, a dictionary of all ids costs a few milliseconds
_FEW = 4096  # for so many ids at once, a dictionary of all is worth its memory
_MOST = np.iinfo(np.int32).max
_INTEGER = re.compile("0|-?[1-9][0-9]{0,38}")  # polars' integers have at most 39 digits
_SKIP = Message("pass {unknown} to drop them", unknown="skip")
_CODES = {"context": "unknown-context", "item": "unknown-item"}  # by `what`; other ids: "unknown-id"


class Vocabulary:
    """The ids of contexts or items, in the order of their codes. Immutable.

    An id is an integer or a string, or a tuple of them if there are several columns. Ids keep their type. `extend`
    returns a larger vocabulary in which all old ids keep their codes.

    >>> items = Vocabulary.of(["pear", "apple"], name="product")
    >>> items.encode(["apple", "pear"])
    array([1, 0], dtype=int32)
    >>> items.ids([1])
    ['apple']
    >>> items.extend(["fig", "pear"])
    Vocabulary(product: 3 String ids, 'pear' … 'fig')
    """

    def __init__(self, frame: pl.DataFrame | MappedIds, index: IdIndex | None = None) -> None:
        """Make a vocabulary.

        Args:
            frame: distinct ids, in the order of their codes.
            index: the index of these ids, if it exists already.
        """
        if not isinstance(frame, pl.DataFrame | MappedIds):
            raise DataError(
                f"expected a polars frame, got {type(frame).__name__}",
                field="frame",
                hint="for a list use Vocabulary.of",
            )
        self._schema = frame.schema
        if not len(self._schema):
            raise DataError("a vocabulary needs at least one column of ids")
        if frame.height > _MOST:
            raise DataError(f"{frame.height:,} ids are too many; the maximum is {_MOST:,}")
        for name, dtype in self._schema.items():
            if not (dtype.is_integer() or dtype == pl.String):
                raise DataError(f"column {name!r} has type {dtype}; ids are integers or strings")
        self._height = frame.height
        self._table: MappedIds | None = None
        if isinstance(frame, MappedIds):
            self._table = frame
        else:
            for column in frame.get_columns():
                if column.null_count():
                    raise DataError(f"column {column.name!r}: {column.null_count():,} ids are null")
            self._frame = frame
        if index is not None:
            self.index = index

    @classmethod
    def of(cls, ids: Iterable[Id] | pl.Series, name: str | Sequence[str] = "id") -> Vocabulary:
        """Build from distinct ids in the given order; for tuples `name` lists the names of the columns."""
        names = [name] if isinstance(name, str) else list(name) if isinstance(name, Sequence) else []
        if not names or not all(isinstance(column, str) for column in names):
            raise SettingError(
                f"name is {name!r:.80}; expected the name of the id column, or a list of names", field="name"
            )
        frame = _frame_of(ids, names)
        if repeats := frame.height - n_distinct(frame):
            raise DataError(f"ids of {name!r} are not distinct: {repeats:,} of {frame.height:,} are repeated")
        return cls(frame)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the id columns in the user's data."""
        return tuple(self._schema.names())

    @property
    def dtypes(self) -> tuple[pl.DataType, ...]:
        """The types of the id columns."""
        return tuple(self._schema.dtypes())

    @property
    def frame(self) -> pl.DataFrame:
        """The ids as a frame with one row per code. This frame is stored on disk."""
        return self._frame

    @property
    def is_tuple(self) -> bool:
        """Whether ids are tuples (several columns)."""
        return len(self._schema) > 1

    @property
    def is_large(self) -> bool:
        """Whether a dictionary of all ids would be slow to build; then few ids are found by `index`."""
        return self._height > _SMALL

    @property
    def _is_text(self) -> bool:
        return not self.is_tuple and self.dtypes[0] == pl.String

    @cached_property
    def index(self) -> IdIndex:
        """The index from ids to codes."""
        return IdIndex.of(vars(self).get("_values") or _rows(self._frame))

    def ids(self, codes: Sequence[int] | npt.NDArray[Any] | None = None) -> list[Id]:
        """Return the ids with these codes (by default all ids) as Python values."""
        if codes is None:
            return list(self._values)
        try:
            places = np.asarray(codes)
            if "_values" in vars(self) or not self._is_few(len(places)):
                values = self._values
                return [values[code] for code in places.tolist()]
            if places.ndim != 1 or (len(places) and places.dtype.kind not in "iub"):
                raise TypeError
            return self._rows_at(places.astype(np.int64))
        except (TypeError, ValueError, IndexError, pl.exceptions.PolarsError):
            raise self._codes_error(codes) from None

    def _is_few(self, n: int) -> bool:
        """Return whether n ids are so few that the others should not be decoded."""
        return self.is_large and n < _FEW

    @cached_property
    def _frame(self) -> pl.DataFrame:
        assert self._table is not None
        return self._table.frame

    @cached_property
    def _values(self) -> list[Id]:
        return _rows(self._frame)

    def _rows_at(self, places: npt.NDArray[Any]) -> list[Id]:
        if self._table is not None and "_frame" not in vars(self):
            return self._table.rows(places)
        return _rows(rows_at(self._frame, places))

    def id_of(self, code: int) -> Id:
        """Return the id with this code."""
        if self._table is not None and "_frame" not in vars(self):
            return self._table.row(code)
        row = self._frame.row(code)
        return row if self.is_tuple else row[0]

    def take(self, codes: npt.NDArray[Any]) -> pl.DataFrame:
        """Return the ids with these codes as a frame with the original columns and types."""
        try:
            places = np.asarray(codes, dtype=np.int64)
            if self._table is not None and "_frame" not in vars(self) and self._is_few(len(places)):
                return self._table.take(places)
            return rows_at(self._frame, places)
        except (TypeError, ValueError, IndexError, OverflowError, pl.exceptions.PolarsError):
            raise self._codes_error(codes) from None

    def _codes_error(self, codes: object) -> SettingError:
        return SettingError(
            f"codes is {codes!r:.80}; expected a list of integers from 0 to {len(self) - 1:,}", field="codes"
        )

    def encode(
        self,
        ids: Iterable[Id] | pl.Series | pl.DataFrame,
        *,
        unknown: Unknown = "raise",
        what: str = "id",
        field: str | None = None,
        way_out: str = _SKIP,
    ) -> Codes:
        """Return the codes of these ids.

        Args:
            ids: ids as in the data: a list, an array, a Series, or a frame. Columns of a polars frame are matched by
                position, those of other frames by name if the names are the same.
            unknown: `"raise"` an error for unknown ids, `"skip"` them, or `"mark"` them with −1.
            what: the word for an id in the error message.
            field: the `field` of the error; by default the plural of `what`, if it is "context" or "item".
            way_out: the advice in the error message.
        """
        if not isinstance(unknown, str) or unknown not in ("raise", "skip", "mark"):
            raise refusal("unknown", unknown, "'raise', 'skip' or 'mark'")
        field = f"{what}s" if field is None and what in _CODES else field
        _refuse_single(ids, what, field)
        if self.is_tuple and isinstance(ids, tuple) and self._code(ids) >= 0:
            raise SettingError(
                f"expected a list of {what}s, got the single {ids!r}", field=field, hint=f"write [{ids!r}]"
            )
        ids = _read(ids, self.names, f"{what}s")
        if not isinstance(ids, Sized):
            ids = list(ids)
        large = isinstance(ids, pl.DataFrame) or (isinstance(ids, pl.Series) and len(ids) >= _JOIN_FROM)
        codes = self._encode_by_join(ids) if large and polars_threads() else self._encode_by_dict(ids)
        missing = codes < 0
        if unknown != "mark" and missing.any():
            if unknown == "raise":
                first = _listed(ids)[int(np.argmax(missing))]
                message = self._unknown_message(first, int(missing.sum()), len(codes), what)
                raise UnknownIdError(message, code=_CODES.get(what), field=field, hint=way_out)
            codes = codes[~missing]
        return codes

    def extend(self, ids: Iterable[Id] | pl.Series) -> Vocabulary:
        """Return a vocabulary with the new ids among `ids` appended in order; old codes do not change."""
        _refuse_single(ids, "id", "ids")
        frame = _frame_of(ids, list(self.names), self._schema)
        new = np.flatnonzero(self.encode(frame, unknown="mark") < 0)
        if not len(new):
            return self
        columns = zip(self._frame.get_columns(), distinct(rows_at(frame, new)).get_columns())
        return Vocabulary(pl.DataFrame([pl.concat([old, added]) for old, added in columns]))

    def parse(self, text: str) -> Id:
        """Parse an id from text, such as a command-line argument; parts of a tuple are separated by commas.

        Integers must have their usual spelling: "1", not "01", "+1", "0_1" or "１".
        """
        if not isinstance(text, str):
            raise SettingError(f"expected an id as text, got {text!r:.80}", field="text")
        parts = text.split(",") if self.is_tuple else [text]
        if len(parts) != len(self.names):
            raise SettingError(
                f"{text!r} has {len(parts)} parts; expected {len(self.names)}: {','.join(self.names)}", field="text"
            )
        values = [self._parse_part(part, *column) for part, column in zip(parts, self._schema.items())]
        return tuple(values) if self.is_tuple else values[0]

    def typed(self, parts: Sequence[str]) -> Id:
        """Convert the parts of an id from text; where ids are integers, parts that are not integers stay text.

        >>> Vocabulary.of([("ann", 1)], name=["user", "day"]).typed(["bob", "sunday"])
        ('bob', 'sunday')
        """
        values: list[int | str] = []
        for part, column in zip(parts, self._schema.items(), strict=True):
            try:
                values.append(self._parse_part(part, *column))
            except UnknownIdError:
                values.append(part)
        return tuple(values) if self.is_tuple else values[0]

    @staticmethod
    def _parse_part(text: str, name: str, dtype: pl.DataType) -> int | str:
        if dtype == pl.String:
            return text
        number = integer_of(text)
        if number is None:
            raise UnknownIdError(
                f"unknown id {text!r:.80}: ids of {name!r} are integers",
                field="text",
                hint="pass plain digits such as 17",
            )
        return number

    def _code(self, key: Id) -> int:
        if self._in_dictionary(1):
            return self._code_of.get(key, -1) if is_id(key) else -1
        return int(self._encode_by_index([key])[0])

    def _in_dictionary(self, n: int) -> bool:
        """Return whether to look n ids up in a dictionary of all ids."""
        return "_code_of" in vars(self) or not self._is_few(n)

    @cached_property
    def _code_of(self) -> dict[Id, int]:
        return {key: code for code, key in enumerate(self._values)}

    def _encode_by_dict(self, ids: Iterable[Id] | pl.Series | pl.DataFrame) -> Codes:
        keys = _listed(ids)
        if not self._in_dictionary(len(keys)):
            return self._encode_by_index(keys)
        # Fast path without Python code per id. In a dictionary True and 1.0 equal 1: they need the slow path.
        if self._is_text or set(map(type, keys)) <= {str, int}:
            with suppress(TypeError):  # an id that is not hashable
                return np.fromiter(map(self._code_of.get, keys, repeat(-1)), np.int32, len(keys))
        return np.fromiter((self._code(key) for key in keys), np.int32, len(keys))

    def _encode_by_index(self, keys: Sequence[Id]) -> Codes:
        if not self.is_tuple and set(map(type, keys)) <= {str if self._is_text else int}:
            return self.index.find(keys, self)
        codes = np.full(len(keys), -1, np.int32)
        places = [k for k, key in enumerate(keys) if self._is_like_ids(key)]
        codes[places] = self.index.find([keys[k] for k in places], self)
        return codes

    def _is_like_ids(self, key: Id) -> bool:
        """Return whether a key has the type of the ids: text or integers, or a tuple of them."""
        parts = key if self.is_tuple and isinstance(key, tuple) else (key,)
        return (
            isinstance(key, tuple) == self.is_tuple
            and len(parts) == len(self._schema)
            and all(
                is_id(part) and isinstance(part, str) == (dtype == pl.String) for part, dtype in zip(parts, self.dtypes)
            )
        )

    def _encode_by_join(self, ids: Iterable[Id] | pl.Series | pl.DataFrame) -> Codes:
        try:
            query = _frame_of(ids, list(self.names), self._schema)
        except DataError:
            return self._encode_by_dict(ids)  # some ids have a type that cannot match
        # Number the columns for the join: a user's column might be called "code".
        numbers = [str(k) for k in range(query.width)]
        known = self._frame.rename(dict(zip(self.names, numbers))).with_row_index("code")
        query = query.rename(dict(zip(query.columns, numbers)))
        coded = query.join(known, on=numbers, how="left", maintain_order="left", nulls_equal=False)
        return coded["code"].cast(pl.Int32).fill_null(-1).to_numpy()

    def _unknown_message(self, first: Id, n_missing: int, n_ids: int, what: str) -> str:
        example = self.id_of(0) if len(self) else None
        hint = ""
        if example is not None and type(first) is not type(example) and not isinstance(first, np.generic):
            hint = f" of type {type(example).__name__}, such as {example!r}"
        known = f"{'the model knows' if what != 'id' else 'known:'} {count(len(self), 'id')}"
        return f"unknown {what} {first!r} ({n_of(n_missing, n_ids, 'id')} unknown; {known}{hint})"

    def __len__(self) -> int:
        return self._height

    def __iter__(self) -> Iterator[Id]:
        return iter(self.ids())

    def __contains__(self, key: Id) -> bool:
        return self._code(key) >= 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        if self is other or (self._table is not None and self._table is other._table):
            return True
        if self._schema != other._schema or self._height != other._height:
            return False
        return self._frame is other._frame or self._frame.equals(other._frame)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocabulary, (self._frame,)  # a mapped file cannot be sent to another process

    def __repr__(self) -> str:
        types = ", ".join(str(dtype) for dtype in self.dtypes)
        span = f", {self.id_of(0)!r} … {self.id_of(-1)!r}" if len(self) else ""
        return f"Vocabulary({', '.join(self.names)}: {len(self):,} {types} ids{span})"


def rows_at(frame: pl.DataFrame, places: Sequence[int] | npt.NDArray[Any]) -> pl.DataFrame:
    """Return the rows of a frame at these positions. It works by columns, which needs no threads of polars."""
    places = np.asarray(places, dtype=np.int64)
    return pl.DataFrame([column[places] for column in frame.get_columns()])


def n_distinct(frame: pl.DataFrame) -> int:
    """Return the number of distinct rows of a frame of ids."""
    return frame.n_unique() if polars_threads() else len(set(frame.rows()))


def distinct(frame: pl.DataFrame) -> pl.DataFrame:
    """Return each row once, in the order of first occurrence."""
    if polars_threads():
        return frame.unique(maintain_order=True)
    first: dict[Id, int] = {}
    for place, row in enumerate(frame.rows()):
        first.setdefault(row, place)
    return rows_at(frame, list(first.values()))


def integer_of(text: str) -> int | None:
    """Parse an integer in its usual spelling, else return None. So no two texts are the same id.

    >>> integer_of("-17"), integer_of("017"), integer_of("1_7"), integer_of("１７")
    (-17, None, None, None)
    """
    return int(text) if _INTEGER.fullmatch(text) else None


def is_id(value: Id) -> bool:
    """Return whether a value can be an id. 1.0 and True equal 1 in a dictionary, but are not ids."""
    if isinstance(value, tuple):
        return all(map(is_id, value))
    return isinstance(value, int | str | np.integer) and not isinstance(value, bool)


def _refuse_single(ids: object, what: str, field: str | None) -> None:
    if isinstance(ids, str | bytes | int | np.integer):
        raise SettingError(
            f"expected a list of {what}s, got the single value {ids!r}", field=field, hint=f"write [{ids!r}]"
        )
    if is_frame(ids):
        return
    if not isinstance(ids, Iterable) or (isinstance(ids, np.ndarray) and not ids.ndim):
        raise SettingError(f"expected a list of {what}s, got {ids!r:.80}", field=field)


def _read(ids: Any, names: Sequence[str], what: str) -> Any:
    """Convert a frame of another library than polars to a list of ids; return other ids unchanged."""
    return ids_of_frame(ids, names, what) if is_frame(ids) and not isinstance(ids, pl.DataFrame) else ids


def _listed(ids: Iterable[Id] | pl.Series | pl.DataFrame) -> list[Id]:
    if isinstance(ids, pl.DataFrame):
        return ids.rows() if ids.width > 1 else ids.to_series().to_list()
    return ids.to_list() if isinstance(ids, pl.Series) else list(_plain(ids))


def _frame_of(
    ids: Iterable[Id] | pl.Series | pl.DataFrame, names: list[str], schema: pl.Schema | None = None
) -> pl.DataFrame:
    """Build a frame of ids. With a schema, integers of another width are cast if they fit."""
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
            if not all(isinstance(key, tuple) for key in tuples):
                raise TypeError(f"expected tuples of {len(names)} parts")
            columns = [_series(list(part)) for part in zip(*tuples, strict=True)] or [pl.Series([])] * len(names)
            if len(columns) != len(names):
                raise ValueError(f"found tuples of {len(columns)}, expected {len(names)} parts")
        columns = [_as_text(column) for column in columns]
        frame = pl.DataFrame([column.alias(name) for column, name in zip(columns, names)])
        if schema is not None:
            if not frame.height:
                return pl.DataFrame(schema=schema)
            for dtype, expected in zip(frame.dtypes, schema.dtypes()):
                if dtype != expected and not (dtype.is_integer() and expected.is_integer()):
                    raise TypeError(f"found {dtype}, expected {expected}")  # '5' and 5.0 are not the id 5
            frame = pl.DataFrame([column.cast(dtype) for column, dtype in zip(frame.get_columns(), schema.dtypes())])
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        why = str(error).partition("\n")[0]  # messages of polars are long
        raise DataError(f"ids of {', '.join(names)} are not all of one integer or string type: {why}") from None
    return frame


def _series(values: list[Id]) -> pl.Series:
    if bool in set(map(type, values)):  # polars would read True as 1
        raise TypeError("found True or False")
    return pl.Series(values, strict=True)


def _as_text(column: pl.Series) -> pl.Series:
    """Convert categories and enums to strings."""
    return column.cast(pl.String) if column.dtype in (pl.Categorical, pl.Enum) else column


def _plain(ids: Iterable[Id]) -> Iterable[Id]:
    if isinstance(ids, np.ndarray):
        return ids.tolist()  # type: ignore[no-any-return]
    return ids.to_pylist() if hasattr(ids, "to_pylist") else ids


def _rows(frame: pl.DataFrame) -> list[Id]:
    return frame.rows() if frame.width > 1 else frame.to_series().to_list()
