"""Ids and codes: what the outside calls a thing, and the int32 number it has inside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.errors import DataError, SettingError, UnknownIdError

Codes: TypeAlias = npt.NDArray[np.int32]
Id: TypeAlias = Any  # an int, a str, or a tuple of them
Unknown: TypeAlias = Literal["raise", "skip", "mark"]

_JOIN_FROM = 4096  # ids looked up at once from which a hash join beats a Python dictionary
_MOST = np.iinfo(np.int32).max


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
        self._index: dict[Id, int] | None = None

    @classmethod
    def of(cls, ids: Iterable[Id] | pl.Series, name: str | Sequence[str] = "id") -> Vocabulary:
        """Make a vocabulary of distinct ids in the given order; tuples become several columns named by `name`."""
        frame = _frame_of(ids, [name] if isinstance(name, str) else list(name))
        if frame.height != frame.unique().height:
            raise DataError(f"ids of {name!r} are not distinct: {frame.height - frame.unique().height:,} are repeated")
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
        frame = self._frame if codes is None else self.take(np.asarray(codes))
        return frame.rows() if self.is_tuple else frame.to_series().to_list()

    def take(self, codes: npt.NDArray[Any]) -> pl.DataFrame:
        """The ids with these codes as a frame with the original columns and types."""
        return self._frame[np.asarray(codes, dtype=np.int64)]

    def encode(self, ids: Iterable[Id] | pl.Series, *, unknown: Unknown = "raise", what: str = "id") -> Codes:
        """The codes of these ids.

        Args:
            ids: ids as in the data: a list, a NumPy array, a polars Series.
            unknown: `"raise"` an error, `"skip"` (leave them out of the answer), or `"mark"` them with −1.
            what: the word for an id in the error message.
        """
        if unknown not in ("raise", "skip", "mark"):
            raise SettingError(f"unknown={unknown!r}; expected 'raise', 'skip' or 'mark'")
        if isinstance(ids, str | bytes | int | np.integer):
            raise SettingError(f"expected a list of {what}s, got the single value {ids!r}; write [{ids!r}]")
        if isinstance(ids, Sized) and len(ids) >= _JOIN_FROM:
            codes = self._encode_by_join(ids)
        else:
            listed = ids.to_list() if isinstance(ids, pl.Series) else ids
            codes = np.fromiter((self._code(one) for one in listed), dtype=np.int32)
        missing = codes < 0
        if unknown != "mark" and missing.any():
            if unknown == "raise":
                listed = list(ids)
                first = listed[int(np.argmax(missing))]
                raise UnknownIdError(self._unknown_message(first, int(missing.sum()), len(codes), what))
            codes = codes[~missing]
        return codes

    def extend(self, ids: Iterable[Id] | pl.Series) -> Vocabulary:
        """A vocabulary with the new ones among `ids` appended in their order; no old code changes."""
        more = _frame_of(ids, list(self.names), self._frame.schema)
        new = more.unique(maintain_order=True).join(self._frame, on=list(self.names), how="anti", maintain_order="left")
        return Vocabulary(pl.concat([self._frame, new.select(self.names)])) if new.height else self

    def parse(self, text: str) -> Id:
        """Read an id from text, as typed on a command line; parts of a tuple are separated by commas."""
        parts = text.split(",") if self.is_tuple else [text]
        if len(parts) != self._frame.width:
            raise SettingError(f"{text!r} has {len(parts)} parts; expected {self._frame.width}: {','.join(self.names)}")
        values = [self._parse_part(part, column) for part, column in zip(parts, self._frame.get_columns())]
        return tuple(values) if self.is_tuple else values[0]

    @staticmethod
    def _parse_part(text: str, column: pl.Series) -> int | str:
        if column.dtype == pl.String:
            return text
        try:
            return int(text)
        except ValueError:
            raise UnknownIdError(f"unknown id {text!r}: ids of {column.name!r} are integers") from None

    def _code(self, one: Id) -> int:
        if self._index is None:
            self._index = {key: code for code, key in enumerate(self.ids())}
        if isinstance(one, bool | float | np.floating):
            return -1  # 1.0 and True equal 1 in a dictionary, but they are not ids
        try:
            return self._index.get(one, -1)
        except TypeError:
            return -1

    def _encode_by_join(self, ids: Iterable[Id]) -> Codes:
        try:
            frame = _frame_of(ids, list(self.names), self._frame.schema)
        except DataError:
            return np.fromiter((self._code(one) for one in ids), dtype=np.int32)
        coded = frame.join(
            self._frame.with_row_index("__code"),
            on=list(self.names),
            how="left",
            maintain_order="left",
            nulls_equal=False,
        )
        return coded["__code"].cast(pl.Int32).fill_null(-1).to_numpy()

    def _unknown_message(self, first: Id, n_missing: int, n_asked: int, what: str) -> str:
        example = self.ids([0])[0] if len(self) else None
        hint = ""
        if example is not None and type(first) is not type(example) and not isinstance(first, np.generic):
            hint = f" (ids here are like {example!r}, of type {type(example).__name__})"
        return (
            f"unknown {what} {first!r}{hint}: {n_missing:,} of {n_asked:,} ids are not among the {len(self):,} known; "
            "pass unknown='skip' to leave them out"
        )

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
        span = f", {self.ids([0])[0]!r} … {self.ids([len(self) - 1])[0]!r}" if len(self) else ""
        return f"Vocabulary({', '.join(self.names)}: {len(self):,} {types} ids{span})"


def _frame_of(ids: Iterable[Id] | pl.Series, names: list[str], schema: pl.Schema | None = None) -> pl.DataFrame:
    """A frame of ids; with a schema, ids of another type that mean the same number are accepted."""
    try:
        if isinstance(ids, pl.DataFrame):
            frame = ids.rename(dict(zip(ids.columns, names)))
        elif len(names) == 1:
            series = ids if isinstance(ids, pl.Series) else pl.Series(list(_plain(ids)), strict=True)
            frame = series.alias(names[0]).to_frame()
        else:
            frame = pl.DataFrame([tuple(one) for one in ids], schema=names, orient="row", strict=True)
        if schema is not None:
            if not frame.height:
                return pl.DataFrame(schema=schema)
            if any((a == pl.String) != (b == pl.String) for a, b in zip(frame.dtypes, schema.dtypes())):
                raise TypeError(f"found {frame.dtypes}, expected {schema.dtypes()}")  # '5' never stands for 5
            frame = frame.cast(schema, strict=True)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"ids of {', '.join(names)} are not all of one integer or string type: {error}") from None
    return frame


def _plain(ids: Iterable[Id]) -> Iterable[Id]:
    return ids.tolist() if isinstance(ids, np.ndarray) else ids
