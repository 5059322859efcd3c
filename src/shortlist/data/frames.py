"""Frames and columns of others as polars' own."""

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
    """A frame of pandas, Arrow or whatever polars takes."""
    require_polars_threads(f"reading a frame of {type(frame).__module__.partition('.')[0]}")
    try:
        with polars_errors("the frame"):
            return pl.DataFrame(frame).lazy()
    except (TypeError, ValueError) as error:  # pyarrow's complaints about mixed types are of these kinds
        if isinstance(error, DataError):
            raise
        raise DataError(f"the frame: a column mixes types: {str(error).splitlines()[0]}") from error


def column(name: str, values: Any, *, ids: bool) -> pl.Series:
    """A list or an array as a column of one type; ids and numbers are never turned into one another."""
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise DataError(f"column {name!r} is {values!r:.80}; expected a list or an array with one value a row")
    try:
        if isinstance(values, np.ndarray) and values.dtype == object:
            values = [None if _is_missing(value) else value for value in values.tolist()]
        if isinstance(values, list | tuple) and any(isinstance(value, np.datetime64) for value in values):
            values = np.array([np.datetime64("NaT") if value is None else value for value in values])
        if isinstance(values, np.ndarray) and values.dtype.kind == "M":
            values = _in_units_of_polars(name, values)
        if isinstance(values, list | tuple):
            refuse_mixed_zones(name, values)
        if isinstance(values, list | tuple) and {bool, int} <= set(map(type, values)):
            raise TypeError("polars would take True for 1")
        if not ids and isinstance(values, list | tuple) and float in set(map(type, values)):
            values = [float(value) if isinstance(value, int) else value for value in values]
        return pl.Series(name, values, strict=True)
    except DataError:
        raise
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        expected = "ids are all integers or all text" if ids else "expected one type throughout"
        raise DataError(f"column {name!r} mixes types ({kinds}); {expected}") from error


def _in_units_of_polars(name: str, times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Times of NumPy in a unit that polars has too: days, milliseconds, microseconds or nanoseconds."""
    unit, _ = np.datetime_data(times.dtype)
    finer = unit in ("ps", "fs", "as")
    known = unit if unit in ("D", "ms", "us", "ns") else "ns" if finer else "ms"
    found = times.astype(f"datetime64[{known}]")
    if not finer and unit != "generic" and (found.astype(times.dtype) != times)[~np.isnat(times)].any():
        raise DataError(f"column {name!r} has times that are too far from 1970 for 64 bits of {known}")
    return found


def refuse_mixed_zones(name: str, values: Iterable[Any]) -> None:
    """Refuse datetimes of which some have a time zone and some have none: polars and Arrow take all for UTC."""
    if len({value.tzinfo is None for value in values if isinstance(value, dt.datetime) and not _is_missing(value)}) > 1:
        raise DataError(
            f"column {name!r} mixes times with and without a time zone; give all of them a time zone, or none"
        )


def _is_missing(value: Any) -> bool:
    """NaN, NaT and NA: what pandas puts where there is nothing. None of them equals itself."""
    if isinstance(value, np.ndarray):  # compared number by number
        return False
    return type(value).__name__ == "NAType" or value != value  # noqa: PLR0124
