"""Convert frames and columns of other libraries to polars."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from shortlist._fork import require_polars_threads
from shortlist.data.encode import polars_errors
from shortlist.errors import DataError


def stream(frame: Any) -> pl.LazyFrame:
    """Convert a frame of pandas, Arrow or another library to a lazy frame."""
    require_polars_threads(f"reading a frame of {type(frame).__module__.partition('.')[0]}")
    try:
        with polars_errors("the frame"):
            return pl.DataFrame(frame).lazy()
    except (TypeError, ValueError) as error:  # pyarrow raises these for mixed types
        if isinstance(error, DataError):
            raise
        raise DataError(f"the frame: a column mixes types: {str(error).splitlines()[0]}", code="column-type") from error


def column(name: str, values: Any, *, ids: bool) -> pl.Series:
    """Convert a list or an array to a column of one type; never convert ids to numbers or numbers to ids."""
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise DataError(
            f"column {name!r} is {values!r:.80}; expected a list or an array with one value per row", field=name
        )
    try:
        if isinstance(values, np.ndarray) and values.dtype == object:
            values = [None if _is_missing(value) else value for value in values.tolist()]
        if isinstance(values, list | tuple) and any(isinstance(value, np.datetime64) for value in values):
            values = np.array([np.datetime64("NaT") if value is None else value for value in values])
        if isinstance(values, np.ndarray) and values.dtype.kind == "M":
            values = _in_polars_units(name, values)
        if isinstance(values, list | tuple):
            refuse_mixed_zones(name, values)
        if isinstance(values, list | tuple) and {bool, int} <= set(map(type, values)):
            raise TypeError("polars would read True as 1")
        if not ids and isinstance(values, list | tuple) and float in set(map(type, values)):
            values = [float(value) if isinstance(value, int) else value for value in values]
        return pl.Series(name, values, strict=True)
    except DataError:
        raise
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        types = ", ".join(sorted({type(value).__name__ for value in values}))
        expected = "ids are all integers or all text" if ids else "expected one type"
        raise DataError(f"column {name!r} mixes types ({types}); {expected}", field=name, code="column-type") from error


def _in_polars_units(name: str, times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert NumPy times to a unit that polars supports: days, milliseconds, microseconds or nanoseconds."""
    unit, _ = np.datetime_data(times.dtype)
    finer = unit in ("ps", "fs", "as")
    supported = unit if unit in ("D", "ms", "us", "ns") else "ns" if finer else "ms"
    converted = times.astype(f"datetime64[{supported}]")
    if not finer and unit != "generic" and (converted.astype(times.dtype) != times)[~np.isnat(times)].any():
        raise DataError(
            f"column {name!r} has times too far from 1970: they do not fit 64 bits of {supported}", field=name
        )
    return converted


def refuse_mixed_zones(name: str, values: Iterable[Any]) -> None:
    """Refuse a mix of datetimes with and without a time zone: polars and Arrow would read all as UTC."""
    if len({value.tzinfo is None for value in values if isinstance(value, dt.datetime) and not _is_missing(value)}) > 1:
        raise DataError(
            f"column {name!r} mixes times with and without a time zone",
            field=name,
            hint="give all times a time zone, or none",
        )


def _is_missing(value: Any) -> bool:
    """Return whether a value is NaN, NaT or NA, the missing values of pandas. None of them equals itself."""
    if isinstance(value, np.ndarray):  # `!=` would compare element by element
        return False
    return type(value).__name__ == "NAType" or value != value  # noqa: PLR0124
