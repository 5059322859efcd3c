"""Numeric fields."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.features.feature_fields import Entries, Field, Kind, Scale, Unknown, with_missing
from shortlist.errors import DataError

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False, kw_only=True)
class NumericField(Field):
    """A numeric field: (x − mean) / std; with `scale="log"` the same of log(1 + x); with `"raw"` x itself.

    Mean and standard deviation are learned from the rows where the number is not missing. If all numbers are equal,
    std is 1.
    """

    scale: Scale = "standard"
    mean: float = 0.0
    std: float = 1.0

    @classmethod
    def fit(cls, column: pl.Series, *, scale: Scale, from_text: bool, origin: str = "the frame") -> NumericField:
        """Learn mean and standard deviation."""
        x = _numbers(column, scale, from_text, origin)
        x = x[~np.isnan(x)]
        mean, std = 0.0, 1.0
        if scale != "raw" and len(x):
            mean = float(x.min())
            if x.min() < x.max():  # rounding: the computed mean of equal numbers may differ from them
                mean, std = float(x.mean()), float(x.std()) or 1.0
        return cls(name=column.name, scale=scale, mean=mean, std=std)

    @property
    def kind(self) -> Kind:
        """`"numeric"`."""
        return "numeric"

    @property
    def n_columns(self) -> int:
        """Two: the number and "missing"."""
        return 2

    @property
    def labels(self) -> list[str]:
        """Empty: the number's feature has the field's name."""
        return [""]

    def encode(self, column: pl.Series, *, from_text: bool, unknown: Unknown, origin: str) -> Entries:
        """Return one entry per row: the number, even if it is 0, or the mark for "missing"."""
        x = _numbers(column, self.scale, from_text, origin)
        missing = np.isnan(x)
        rows = np.flatnonzero(~missing)
        with np.errstate(over="ignore"):
            scaled = ((x[rows] - self.mean) / self.std).astype(np.float32)
        if not np.isfinite(scaled).all():
            at = rows[np.argmin(np.isfinite(scaled))]
            raise DataError(
                f"{origin}: column {self.name!r} holds {column[int(at)]} (row {at + 1:,}); scaled with mean "
                f"{self.mean:g} and standard deviation {self.std:g} it does not fit float32",
                field=self.name,
                code="bad-rows",
                hint="fix the value",
            )
        return with_missing(rows, np.zeros(len(rows)), scaled, missing, 1)

    def __str__(self) -> str:
        if self.scale == "raw":
            return "numeric (raw)"
        log = "log, " if self.scale == "log" else ""
        return f"numeric ({log}mean {self.mean:.4g}, std {self.std:.4g})"


def _numbers(column: pl.Series, scale: Scale, from_text: bool, origin: str) -> npt.NDArray[np.float64]:
    """Convert a column to float64, with NaN for missing values; take log(1 + x) if `scale` is `"log"`."""
    dtype = column.dtype
    if from_text and dtype == pl.String:
        parsed = column.str.strip_chars().cast(pl.Float64, strict=False)
        bad = (parsed.is_null() & (column.str.strip_chars() != "")).fill_null(False)
        _refuse(column, bad.to_numpy(), "is not a number", origin)
    elif dtype.is_numeric() or dtype in (pl.Boolean, pl.Null):
        parsed = column.cast(pl.Float64)
    else:
        raise DataError(
            f"{origin}: column {column.name!r} has type {dtype}; a numeric column holds numbers: cast it, or name it "
            "in categorical=",
            field=column.name,
            code="column-type",
        )
    x = _with_nan(parsed)
    _refuse(column, np.abs(x) > _LARGEST, "is infinite or too large", origin)
    if scale == "log":
        _refuse(column, x < 0, "is negative", origin, "; scale 'log' needs numbers ≥ 0")
        x = _with_nan(parsed.log1p())
    return x


def _with_nan(numbers: pl.Series) -> npt.NDArray[np.float64]:
    """Convert numbers to an array, with NaN for null."""
    return numbers.to_numpy().astype(np.float64)


def _refuse(column: pl.Series, bad: npt.NDArray[np.bool_], cause: str, origin: str, why: str = "") -> None:
    if bad.any():
        at = int(np.argmax(bad))
        raise DataError(
            f"{origin}: column {column.name!r} {cause} in {bad.sum():,} of {len(column):,} rows "
            f"(first: row {at + 1:,}, {column[at]!r:.40}){why}",
            field=column.name,
            code="bad-rows",
            hint="fix the values, or use null for unknown ones",
        )
