"""Categorical and multi-valued fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from shortlist._fork import polars_threads
from shortlist._wording import Message
from shortlist.data.features.feature_fields import Entries, Field, Ints, Kind, Normalize, Unknown, with_missing
from shortlist.data.sparse_rows import LATEST, rows_of
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import DataError

# The white space that polars strips: Unicode's.
_BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_WHOLE_BELOW = 2.0**53  # below it, each integer has a float of its own


@dataclass(frozen=True, eq=False, kw_only=True)
class ValuesField(Field):
    """A field with one feature per value. A cell's value has weight 1; each of its k values 1/k, 1/√k or 1.

    Attributes:
        values: all values as text, sorted: `value`, its `column` in the field, the `count` of rows that have it.
        n_rare: the number of rare values; they share one feature.
        many: whether a cell may hold several values.
        separator: the text between the values of a cell, if cells are text.
        normalize: `"sum"`: the weights of a cell sum to 1; `"norm"`: their squares sum to 1; None: each weight is 1.
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
        """Learn the values of a column. Values in fewer than `min_count` rows share one feature."""
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
        """`"multi_valued"` if a cell may hold several values, else `"categorical"`."""
        return "multi_valued" if self.many else "categorical"

    @property
    def n_values(self) -> int:
        """The number of values with a feature of their own (rare values share one)."""
        return self.values.height - self.n_rare

    @property
    def n_columns(self) -> int:
        """One column per frequent value, one for rare values if there are any, one for "missing"."""
        return self.n_values + (self.n_rare > 0) + 1

    @property
    def labels(self) -> list[str]:
        """`=Drama` and so on, then ` (rare)` if there are rare values."""
        frequent = self.values["value"].filter(self.values["column"] < self.n_values).to_list()
        return [f"={value}" for value in frequent] + [" (rare)"] * (self.n_rare > 0)

    def encode(self, column: pl.Series, *, from_text: bool, unknown: Unknown, origin: str) -> Entries:
        """Return one entry per cell and value. Several rare values of a cell give one entry; so do unknown ones."""
        cells = _cells(column, self.many, self.separator, origin)
        codes = Vocabulary(self.values["value"].to_frame()).encode(cells.value, unknown="mark")
        new = np.flatnonzero(codes < 0)
        n_new = len(np.unique(cells.rows[new]))
        if len(new) and unknown == "raise":
            raise DataError(
                f"{origin}: column {self.name!r}: {n_new:,} of {len(column):,} rows hold an unknown value "
                f"(first: {cells.value[int(new[0])]!r:.80})",
                code="bad-rows",
                field=self.name,
                hint=Message("pass {unknown} to treat unknown values as missing", unknown="missing"),
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
    """Refuse lists of floats (dense vectors): each distinct number would become a feature.

    If the user `named` the column's type, lists of whole floats pass: missing values turn integers into floats.
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
        f"{origin}: column {column.name!r} holds lists of floats; dense vectors are not supported",
        code="column-type",
        field=column.name,
        hint=f"Split them into numeric columns, in polars with frame.with_columns({split}).drop({column.name!r}), or "
        f"drop the column with ignore={column.name!r}",
    )


class _Cells(NamedTuple):
    """The row and text of each value of each cell, repeats included. Empty cells have none."""

    rows: Ints
    value: pl.Series


def _cells(column: pl.Series, many: bool, separator: str | None, origin: str) -> _Cells:
    """Return the values of the cells. With `many`, a cell is a list or a text to split by `separator`."""
    rows = np.arange(len(column), dtype=np.int32)
    split = many and column.dtype == pl.String
    if split:
        if separator is None:
            raise DataError(
                f"{origin}: column {column.name!r} is text; expected lists. To split it, name the separator: "
                f"multi_valued={{{column.name!r}: '|'}}",
                field=column.name,
            )
        column = _split(column, separator)
    elif many and not (isinstance(column.dtype, pl.List | pl.Array) or column.dtype == pl.Null):
        raise DataError(
            f"{origin}: column {column.name!r} has type {column.dtype}; a multi-valued column holds lists, or text to "
            "split",
            field=column.name,
            code="column-type",
        )
    if many and isinstance(column.dtype, pl.List | pl.Array):
        lists = column.cast(pl.List(column.dtype.inner)) if isinstance(column.dtype, pl.Array) else column
        sizes = lists.list.len().cast(pl.Float64).to_numpy()  # NaN for null
        full = sizes > 0  # exploding empty lists differs between polars versions
        rows = np.repeat(rows[full], sizes[full].astype(np.int64))
        column = lists.filter(pl.Series(full)).explode()
        if split:
            column = _stripped(column)
    text = _as_text(column, origin)
    present = text.is_not_null()
    return _Cells(rows[present.to_numpy()], text.filter(present).alias("value"))


def _sorted_values(value: pl.Series) -> pl.Series:
    """Return the distinct values, sorted."""
    if polars_threads():
        return value.unique().sort()
    return pl.Series(value.name, sorted(set(value.to_list())), pl.String)


def _split(column: pl.Series, separator: str) -> pl.Series:
    """Split texts into lists. polars uses threads for it, which a forked process does not have."""
    if polars_threads():
        return column.str.split(separator)
    parts = [None if cell is None else cell.split(separator) for cell in column.to_list()]
    return pl.Series(column.name, parts, pl.List(pl.String))


def _stripped(text: pl.Series) -> pl.Series:
    """Strip white space."""
    if polars_threads():
        return text.str.strip_chars()
    stripped = [None if cell is None else cell.strip(_BLANKS) for cell in text.to_list()]
    return pl.Series(text.name, stripped, pl.String)


def _int32(column: pl.Series) -> Ints:
    return column.to_numpy().astype(np.int32)  # a writable copy: kernels are compiled for writable arrays


def _distinct(rows: Ints, columns: Ints, n_rows: int, n_columns: int) -> tuple[Ints, Ints]:
    """Return each (row, column) pair once, sorted by row and column."""
    pairs = rows_of(rows, columns, None, None, n_rows, n_columns, LATEST)
    return np.repeat(np.arange(n_rows, dtype=np.int32), pairs.lengths), pairs.indices


def _as_text(column: pl.Series, origin: str) -> pl.Series:
    """Convert values to text; null, NaN and empty text become null.

    Whole floats are written as integers: pandas turns 3 into 3.0 if other numbers are missing.
    """
    dtype = column.dtype
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object, pl.Duration):
        raise DataError(
            f"{origin}: column {column.name!r} has type {dtype}; a categorical column holds text, numbers, booleans or "
            "dates" + ("; for lists use multi_valued=" if isinstance(dtype, pl.List | pl.Array) else ""),
            code="column-type",
            field=column.name,
        )
    text = column.cast(pl.String)
    if dtype.is_float():
        whole = (column == column.round()) & (column.abs() < _WHOLE_BELOW)
        integers = column.cast(pl.Int64, strict=False).cast(pl.String)
        text = integers.zip_with(whole, text).set(column.is_nan(), None)
    return text.set(text == "", None)
