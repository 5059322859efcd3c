"""Fields of values: categories, and cells that hold several of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from shortlist.data.features.fields import Entries, Field, Ints, Kind, Normalize, Unknown, with_missing
from shortlist.data.rows import LATEST, rows_of
from shortlist.errors import DataError

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
        values = cells["value"].unique().sort().to_frame()
        codes = cells.join(values.with_row_index("code"), on="value", how="left", maintain_order="left")["code"]
        _, distinct = _distinct(_int32(cells["row"]), _int32(codes), len(column), values.height)
        counts = np.bincount(distinct, minlength=values.height)
        kept = counts >= min_count
        places = np.where(kept, np.cumsum(kept) - 1, kept.sum()).astype(np.int32)
        values = values.with_columns(pl.Series("column", places), pl.Series("count", counts, dtype=pl.Int64))
        n_rare = int((~kept).sum())
        return cls(name=column.name, values=values, n_rare=n_rare, many=many, separator=separator, normalize=normalize)

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
        own = self.values.filter(pl.col("column") < self.n_values)["value"].to_list()
        return [f"={value}" for value in own] + [" (rare)"] * (self.n_rare > 0)

    def encode(self, column: pl.Series, *, from_text: bool, unknown: Unknown, origin: str) -> Entries:
        """One entry a cell and value; several rare values, or several unknown ones, of a cell count once."""
        cells = _cells(column, self.many, self.separator, origin)
        known = self.values.select("value", "column")
        cells = cells.join(known, on="value", how="left", maintain_order="left")
        new = cells.filter(pl.col("column").is_null())
        if new.height and unknown == "raise":
            raise DataError(
                f"{origin}: column {self.name!r}: {new['row'].n_unique():,} of {len(column):,} rows hold a value that "
                f"was not there when these features were made (first: {new['value'][0]!r:.80}); "
                "pass unknown='missing' to take them as missing"
            )
        rows, columns = _int32(cells["row"]), _int32(cells["column"].fill_null(self.n_columns - 1))
        if self.many:
            rows, columns = _distinct(rows, columns, len(column), self.n_columns)
        sizes = np.bincount(rows, minlength=len(column))
        weights = np.ones(len(rows))
        if self.many and self.normalize is not None:
            weights = 1 / (sizes if self.normalize == "sum" else np.sqrt(sizes))[rows]
        return with_missing(rows, columns, weights, sizes == 0, self.n_columns - 1, new["row"].n_unique())

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


def _cells(column: pl.Series, many: bool, separator: str | None, origin: str) -> pl.DataFrame:
    """The values of every cell as text: `row` and `value`, repeats included, nothing for empty cells."""
    row = pl.int_range(len(column), dtype=pl.Int32, eager=True)
    table = pl.DataFrame([row.alias("row"), column.alias("value")])
    if not many:
        return table.select("row", _spelled(column, origin).alias("value")).drop_nulls()
    if column.dtype == pl.String:
        if separator is None:
            raise DataError(
                f"{origin}: column {column.name!r} is text; expected lists. To split it, say where: "
                f"multi_valued={{{column.name!r}: '|'}}"
            )
        parts = table.with_columns(pl.col("value").str.split(separator)).explode("value")
        cells = parts.with_columns(pl.col("value").str.strip_chars())
    elif isinstance(column.dtype, pl.List | pl.Array):
        cells = table.explode("value")
    elif column.dtype == pl.Null:
        cells = table
    else:
        raise DataError(
            f"{origin}: column {column.name!r} has type {column.dtype}; a multi-valued one holds lists, or text that "
            "is to be split"
        )
    values = _spelled(cells["value"].alias(column.name), origin).alias("value")
    return pl.DataFrame([cells["row"], values]).drop_nulls()


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
    x = pl.col("x")
    if dtype.is_float():
        whole = (x == x.round()) & (x.abs() < _WHOLE_BELOW)
        as_integer = pl.when(whole).then(x).cast(pl.Int64, strict=False).cast(pl.String)
        x = pl.coalesce(as_integer, x.fill_nan(None).cast(pl.String))
    text = column.alias("x").to_frame().select(x.cast(pl.String))
    return text.select(pl.when(pl.col("x") != "").then(pl.col("x"))).to_series()
