"""Fields: each encodes one column of a table into entries of a sparse matrix.

A categorical field has one feature per value and, if there are rare values, one for all of them. A numeric field has
one feature for the number. The last feature of every field stands for "missing".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

Kind: TypeAlias = Literal["categorical", "multi_valued", "numeric"]
Normalize: TypeAlias = Literal["sum", "norm"]
Scale: TypeAlias = Literal["standard", "log", "raw"]
Unknown: TypeAlias = Literal["raise", "missing"]
Ints: TypeAlias = npt.NDArray[np.int32]

NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$"  # numbers in their usual spelling; 007 is text


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of one field: rows, columns (from 0 within the field) and values."""

    rows: npt.NDArray[np.int32]
    columns: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    n_unknown: int = 0  # rows with a value that the field has not learned


@dataclass(frozen=True, eq=False, kw_only=True)
class Field:
    """A named group of features, made from one column of a table.

    Attributes:
        name: the column's name.
        start: the field's first column in the matrix.
        n_missing: the number of rows marked as missing: the value is missing or unknown.
    """

    name: str
    start: int = 0
    n_missing: int = 0

    @property
    def kind(self) -> Kind:
        """`"categorical"`, `"multi_valued"` or `"numeric"`."""
        raise NotImplementedError

    @property
    def labels(self) -> list[str]:
        """Name suffixes of all features but the last: `=Drama`, ` (rare)`; empty for a number."""
        raise NotImplementedError

    @property
    def n_columns(self) -> int:
        """The number of features, including the one for "missing"."""
        raise NotImplementedError

    @property
    def columns(self) -> slice:
        """The field's columns in the matrix."""
        return slice(self.start, self.start + self.n_columns)

    @property
    def missing(self) -> int:
        """The column for "missing"."""
        return self.start + self.n_columns - 1

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns: `genre=Drama`, `genre (rare)`, `genre (missing)`; for a number, `price`."""
        return [self.name + label for label in [*self.labels, " (missing)"]]

    def encode(self, column: pl.Series, *, from_text: bool, unknown: Unknown, origin: str) -> Entries:
        """Encode a column. With `from_text` it comes from a text file, where every column is text."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.kind.replace("_", "-")


def inferred_kind(column: pl.Series, *, from_text: bool) -> Kind | None:
    """Infer the type of field for a column; None if it is unclear.

    Numbers are numeric; text, categories, booleans and dates are categorical; lists are multi-valued. A column of a
    text file is numeric if all cells that are not empty are numbers in their usual spelling, else categorical.
    """
    dtype = column.dtype
    if from_text:
        present = column.filter(column != "").drop_nulls()
        return "numeric" if len(present) and present.str.contains(NUMBER).all() else "categorical"
    if dtype.is_numeric():
        return "numeric"
    if isinstance(dtype, pl.List | pl.Array):
        return "multi_valued"
    if dtype in (pl.String, pl.Categorical, pl.Boolean, pl.Date, pl.Null) or isinstance(dtype, pl.Enum):
        return "categorical"
    return None


def with_missing(
    rows: npt.NDArray[np.integer],
    columns: npt.NDArray[np.generic],
    values: npt.NDArray[np.generic],
    missing: npt.NDArray[np.bool_],
    column: int,
    n_unknown: int = 0,
) -> Entries:
    """Return the entries with one more, in `column`, for each missing row."""
    missing_rows = np.flatnonzero(missing)
    return Entries(
        np.concatenate([rows, missing_rows]).astype(np.int32),
        np.concatenate([columns, np.full(len(missing_rows), column)]).astype(np.int32),
        np.concatenate([values, np.ones(len(missing_rows))]).astype(np.float32),
        n_unknown,
    )
