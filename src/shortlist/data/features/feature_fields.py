"""From one column of a table to the entries of a sparse matrix: what a field is, how it is learnt and applied.

A field has a feature for each of its values (or one, for a number), one for rare values where some were folded, and
always, as its last, one for "missing": what is not known has a place of its own, when a field is made and later on.
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

NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$"  # as numbers are written; 007 is not one


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of one field: rows of the table, columns counted from the field's first, values."""

    rows: npt.NDArray[np.int32]
    columns: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    n_unknown: int = 0  # rows with a value that was not there when the field was made


@dataclass(frozen=True, eq=False, kw_only=True)
class Field:
    """A named group of features that come from one column of a table.

    Attributes:
        name: the column's name.
        start: the first of its columns in the matrix.
        n_missing: rows that the field's last feature marks: there is nothing in this column, or nothing known.
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
        """What its features but the last stand for, behind the field's name: `=Drama`, ` (rare)`; of a number, ``."""
        raise NotImplementedError

    @property
    def n_columns(self) -> int:
        """How many features it has, the one for "missing" included."""
        raise NotImplementedError

    @property
    def columns(self) -> slice:
        """Its columns in the matrix."""
        return slice(self.start, self.start + self.n_columns)

    @property
    def missing(self) -> int:
        """The column that says "missing"."""
        return self.start + self.n_columns - 1

    @property
    def feature_names(self) -> list[str]:
        """What its columns are called: `genre=Drama`, `genre (rare)`, `genre (missing)`; of a number, `price`."""
        return [self.name + label for label in [*self.labels, " (missing)"]]

    def encode(self, column: pl.Series, *, from_text: bool, unknown: Unknown, origin: str) -> Entries:
        """The entries of a column of this field; `from_text`: it comes from a file in which everything is text."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.kind.replace("_", "-")


def inferred_kind(column: pl.Series, *, from_text: bool) -> Kind | None:
    """What a column is taken for whose kind nobody says; None where that cannot be told.

    Numbers are numeric; text, categories, booleans and dates are categorical; lists are multi-valued. In a file in
    which everything is text, a column is numeric where every cell that is not empty is written as a number is.
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
    """These entries, and one in `column` for each missing row."""
    more = np.flatnonzero(missing)
    return Entries(
        np.concatenate([rows, more]).astype(np.int32),
        np.concatenate([columns, np.full(len(more), column)]).astype(np.int32),
        np.concatenate([values, np.ones(len(more))]).astype(np.float32),
        n_unknown,
    )
