"""Fields of values: categories, and cells that hold several of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from shortlist._fork import polars_threads
from shortlist.data.features.feature_fields import Entries, Field, Ints, Kind, Normalize, Unknown, with_missing
from shortlist.data.sparse_rows import LATEST, rows_of
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import DataError

# White space as Unicode defines it, which is what polars strips.
_BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_WHOLE_BELOW = 2.0**53  # floats below it that are whole are these whole numbers and no others


@dataclass(frozen=True, eq=False, kw_only=True)
class ValuesField(Field):
    """A feature for each value: 1 for the value of a cell, or 1/k (1/√k) for each of its k values.

    Attributes:
        values: every value as text, sorted: `value`, its `column` in the field, the `count` of rows it was in.
        n_rare: how many of them share the one feature for rare values.
        many: whether a cell may hold several values.
        separator: what stands between them where cells are text.
        normalize: `"sum"`: the weights of a cell sum to 1; `"norm"`: their squares do; None: each is 1.
    """

    values: pl.DataFrame
    n_rare: int = 0
    many: bool = False
    separator: str | None = None
    normalize: Normalize | None = None

    @classmethod
    def fit(
        cls,
        column: pl.Series,
        *,
        min_count: int = 1,
        many: bool = False,
        separator: str | None = None,
        normalize: Normalize | None = None,
        origin: str = "the frame",
    ) -> ValuesField:
        """Learn the values of a column; those in fewer than `min_count` rows share one feature."""
        cells = _cells(column, many, separator, origin)
        values = _sorted_values(cells.value)
        codes = Vocabulary(values.to_frame()).encode(cells.value)
        _, distinct = _distinct(cells.rows, codes, len(column), len(values))
        counts = np.bincount(distinct, minlength=len(values))
        kept = counts >= min_count
        places = np.where(kept, np.cumsum(kept) - 1, kept.sum()).astype(np.int32)
        table = pl.DataFrame([values, pl.Series("column", places), pl.Series("count", counts, dtype=pl.Int64)])
        n_rare = int((~kept).sum())
        return cls(name=column.name, values=table, n_rare=n_rare, many=many, separator=separator, normalize=normalize)

    @property
    def kind(self) -> Kind:
        """`"multi_valued"` where a cell may hold several values, else `"categorical"`."""
        return "multi_valued" if self.many else "categorical"

    @property
    def n_values(self) -> int:
        """How many values have a feature of their own."""
        return self.values.height - self.n_rare

    @property
    def n_columns(self) -> int:
        """A feature for each value, one for rare ones if there are any, one for "missing"."""
        return self.n_values + (self.n_rare > 0) + 1

    @property
    def labels(self) -> list[str]:
        """`=Drama`, and at the end ` (rare)` where there are rare values."""
        own = self.values["value"].filter(self.values["column"] < self.n_values).to_list()
        return [f"={value}" for value in own] + [" (rare)"] * (self.n_rare > 0)

    def encode(self, column: pl.Series, *, from_text: bool, unknown: Unknown, origin: str) -> Entries:
        """One entry a cell and value; several rare values, or several unknown ones, of a cell count once."""
        cells = _cells(column, self.many, self.separator, origin)
        codes = Vocabulary(self.values["value"].to_frame()).encode(cells.value, unknown="mark")
        new = np.flatnonzero(codes < 0)
        n_new = len(np.unique(cells.rows[new]))
        if len(new) and unknown == "raise":
            raise DataError(
                f"{origin}: column {self.name!r}: {n_new:,} of {len(column):,} rows hold a value that "
                f"was not there when these features were made (first: {cells.value[int(new[0])]!r:.80}); "
                "pass unknown='missing' to take them as missing"
            )
        rows, columns = cells.rows, np.append(_int32(self.values["column"]), np.int32(self.n_columns - 1))[codes]
        if self.many:
            rows, columns = _distinct(rows, columns, len(column), self.n_columns)
        sizes = np.bincount(rows, minlength=len(column))
        weights = np.ones(len(rows))
        if self.many and self.normalize is not None:
            weights = 1 / (sizes if self.normalize == "sum" else np.sqrt(sizes))[rows]
        return with_missing(rows, columns, weights, sizes == 0, self.n_columns - 1, n_new)

    def __str__(self) -> str:
        notes = []
        if self.many:
            notes = [{"sum": "sum 1", "norm": "norm 1", None: "1 each"}[self.normalize]]
        if self.n_rare:
            notes.append(f"{self.n_rare:,} rare values in one feature")
        return super().__str__() + (f" ({', '.join(notes)})" if notes else "")


def refuse_vectors(column: pl.Series, origin: str, *, named: bool) -> None:
    """Refuse lists of floats, which are vectors: each distinct number would become a feature of its own.

    Where the user `named` the column's kind, lists of whole floats pass: gaps turn integers into floats.
    """
    dtype = column.dtype
    if not isinstance(dtype, pl.List | pl.Array) or not (dtype.inner.is_float() or dtype.inner.is_decimal()):
        return
    numbers = column.drop_nulls().explode().cast(pl.Float64).drop_nulls()
    if named and numbers.len() and (numbers == numbers.round()).all():
        return
    part = f"pl.col({column.name!r}).{'arr' if isinstance(dtype, pl.Array) else 'list'}"
    lengths = column.arr.len() if isinstance(dtype, pl.Array) else column.list.len()
    width = int(lengths.max() or 0)  # type: ignore[arg-type]
    split = f"[{part}.get(k).alias({column.name!r} + str(k)) for k in range({width})]"
    raise DataError(
        f"{origin}: column {column.name!r} holds lists of floats; dense vectors are not supported. Split them into "
        f"numeric columns, in polars with frame.with_columns({split}).drop({column.name!r}), or leave the column out "
        f"with ignore={column.name!r}"
    )


class _Cells(NamedTuple):
    """The values of all cells as text: repeats included, nothing for empty cells."""

    rows: Ints
    value: pl.Series


def _cells(column: pl.Series, many: bool, separator: str | None, origin: str) -> _Cells:
    """Take cells apart, as lists, by a separator, or, unless `many`, as they are."""
    rows = np.arange(len(column), dtype=np.int32)
    split = many and column.dtype == pl.String
    if split:
        if separator is None:
            raise DataError(
                f"{origin}: column {column.name!r} is text; expected lists. To split it, say where: "
                f"multi_valued={{{column.name!r}: '|'}}"
            )
        column = _split(column, separator)
    elif many and not (isinstance(column.dtype, pl.List | pl.Array) or column.dtype == pl.Null):
        raise DataError(
            f"{origin}: column {column.name!r} has type {column.dtype}; a multi-valued one holds lists, or text that "
            "is to be split"
        )
    if many and isinstance(column.dtype, pl.List | pl.Array):
        lists = column.cast(pl.List(column.dtype.inner)) if isinstance(column.dtype, pl.Array) else column
        sizes = lists.list.len().cast(pl.Float64).to_numpy()  # NaN for null
        full = sizes > 0  # what becomes of empty lists is not the same everywhere in polars
        rows = np.repeat(rows[full], sizes[full].astype(np.int64))
        column = lists.filter(pl.Series(full)).explode()
        if split:
            column = _stripped(column)
    text = _spelled(column, origin)
    present = text.is_not_null()
    return _Cells(rows[present.to_numpy()], text.filter(present).alias("value"))


def _sorted_values(value: pl.Series) -> pl.Series:
    """Each value once, in order."""
    if polars_threads():
        return value.unique().sort()
    return pl.Series(value.name, sorted(set(value.to_list())), pl.String)


def _split(column: pl.Series, separator: str) -> pl.Series:
    """Text as lists of its parts; polars splits it with threads that a forked process does not have."""
    if polars_threads():
        return column.str.split(separator)
    parts = [None if cell is None else cell.split(separator) for cell in column.to_list()]
    return pl.Series(column.name, parts, pl.List(pl.String))


def _stripped(text: pl.Series) -> pl.Series:
    """Text without blanks around it."""
    if polars_threads():
        return text.str.strip_chars()
    return pl.Series(text.name, [None if one is None else one.strip(_BLANKS) for one in text.to_list()], pl.String)


def _int32(column: pl.Series) -> Ints:
    return column.to_numpy().astype(np.int32)  # a copy that may be written: kernels are compiled for such


def _distinct(rows: Ints, columns: Ints, n_rows: int, n_columns: int) -> tuple[Ints, Ints]:
    """Every pair once, by rows and columns."""
    found = rows_of(rows, columns, None, None, n_rows, n_columns, LATEST)
    return np.repeat(np.arange(n_rows, dtype=np.int32), found.lengths), found.indices


def _spelled(column: pl.Series, origin: str) -> pl.Series:
    """Values as text, null where there is none: null, NaN or empty.

    Whole floats are spelled as integers: where some numbers are missing, pandas makes 3.0 of 3.
    """
    dtype = column.dtype
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object, pl.Duration):
        raise DataError(
            f"{origin}: column {column.name!r} has type {dtype}; a categorical one holds text, numbers, booleans or "
            "dates" + ("; name lists as multi_valued" if isinstance(dtype, pl.List | pl.Array) else "")
        )
    text = column.cast(pl.String)
    if dtype.is_float():
        whole = (column == column.round()) & (column.abs() < _WHOLE_BELOW)
        integers = column.cast(pl.Int64, strict=False).cast(pl.String)
        text = integers.zip_with(whole, text).set(column.is_nan(), None)
    return text.set(text == "", None)
