"""Convert moments and lengths of time to the integers of a time column, and those to text.

A time column holds integers: days (`pl.Date`), or nanoseconds, microseconds or milliseconds since 1970 in UTC
(`pl.Datetime`). This module computes in nanoseconds as Python integers, which never overflow.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._wording import Argument, Message
from shortlist.errors import SettingError

_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND
_LENGTHS = {"s": _SECOND, "m": 60 * _SECOND, "min": 60 * _SECOND, "h": 3600 * _SECOND, "d": _DAY, "w": 7 * _DAY}
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "D": _DAY, "W": 7 * _DAY} | {unit: _LENGTHS[unit] for unit in "smh"}
_FINER = ("ps", "fs", "as")
_EPOCH = dt.datetime(1970, 1, 1)
_LONGEST_GAP = 26 * 3600  # seconds: Samoa skipped 30 December 2011


def is_temporal(dtype: pl.DataType | None) -> bool:
    """Return whether a column holds dates or datetimes, not plain numbers."""
    return isinstance(dtype, pl.Date | pl.Datetime)


def first_at_or_after(moment: Any, dtype: pl.DataType, *, name: str) -> int:
    """Return the smallest integer of a column of `dtype` that is not before the moment.

    The moment is a date, a datetime, a `np.datetime64` or ISO text; `name` is the argument's name in messages. A moment
    without a time zone is local time in the zone of the column. A local time that the clock skips means the first
    instant after the gap; one that occurs twice means the earlier one.
    """
    if isinstance(moment, np.datetime64):
        nanoseconds, zone = _of_numpy(moment, name), None
    else:
        nanoseconds, zone = _of_python(moment, name)
    column_zone = getattr(dtype, "time_zone", None)
    if zone is not None and column_zone is None:
        message = Message("{} has a time zone, but the time column has none", Argument(name, repr(moment)))
        raise SettingError(message, field=name, hint="omit the time zone")
    if zone is None and column_zone is not None:
        nanoseconds = _in_utc(nanoseconds, column_zone)
    return -(-nanoseconds // _unit(dtype))


def first_within(length: int, last: int, dtype: pl.DataType) -> int:
    """Return the smallest integer of a column of `dtype` that is less than `length` nanoseconds before `last`."""
    unit = _unit(dtype)
    return (last * unit - length) // unit + 1


def as_length(value: Any) -> int | None:
    """Convert a timedelta or text such as "7d" to nanoseconds; return None for anything else.

    >>> as_length("2h") == as_length(dt.timedelta(hours=2)) == as_length(np.timedelta64(120, "m")) == 7200 * 10**9
    True
    >>> as_length("2020-01-01") is None
    True
    """
    if isinstance(value, np.timedelta64):
        if np.datetime_data(value.dtype)[0] in _FINER:
            value = value.astype("timedelta64[ns]")
        unit, step = np.datetime_data(value.dtype)
        # Months and years have no fixed length.
        return None if np.isnat(value) or unit not in _UNITS else int(value.astype(np.int64)) * step * _UNITS[unit]
    if isinstance(value, dt.timedelta):
        return (value.days * 86_400 + value.seconds) * _SECOND + value.microseconds * 1_000
    if isinstance(value, str) and (match := re.fullmatch(r"\s*([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]+)\s*", value)):
        return math.floor(float(match[1]) * _LENGTHS[match[2]]) if match[2] in _LENGTHS else None
    return None


def shown(time: Any, dtype: pl.DataType | None) -> str:
    """Format a number of a time column as text, even if its year is beyond those of Python's datetimes.

    >>> shown(0, pl.Date()), shown(2**60, pl.Datetime("us")), shown(7, pl.Int64())
    ('1970-01-01', '38504-08-17T21:30:06.846976', '7')
    """
    if not is_temporal(dtype):
        return str(time)
    time = int(time)
    try:
        if isinstance(dtype, pl.Date):
            return str(_EPOCH.date() + dt.timedelta(days=time))
        moment = _EPOCH + dt.timedelta(microseconds=time * _unit(dtype) // 1_000)
        zone = getattr(dtype, "time_zone", None)
        if zone is None:
            return str(moment)
        return str(moment.replace(tzinfo=dt.UTC).astimezone(ZoneInfo(zone)))
    except (OverflowError, ValueError, LookupError, OSError):  # unsupported year, or unknown time zone
        unit: Any = "D" if isinstance(dtype, pl.Date) else getattr(dtype, "time_unit", "us")
        if abs(time) >= 2**63:
            return f"{time} {unit} since 1970"
        return str(np.datetime64(time, unit)) + "Z" * (getattr(dtype, "time_zone", None) is not None)


def in_seconds(times: npt.NDArray[Any], dtype: pl.DataType | None) -> npt.NDArray[np.float64]:
    """Return the values of a time column as float64: seconds since 1970 for dates, plain numbers unchanged."""
    return times * (_unit(dtype) / _SECOND) if is_temporal(dtype) else times.astype(np.float64)


def _unit(dtype: pl.DataType | None) -> int:
    return _UNITS[dtype.time_unit] if isinstance(dtype, pl.Datetime) else _DAY


def _of_python(moment: Any, name: str) -> tuple[int, dt.tzinfo | None]:
    """Return the nanoseconds since 1970, in UTC if there is a time zone, else in local time; and the time zone."""
    try:
        value = moment if isinstance(moment, dt.date) else dt.datetime.fromisoformat(moment)
        if not isinstance(value, dt.datetime):
            value = dt.datetime(value.year, value.month, value.day)
        # The year of pandas' NaT is NaN.
        clock = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
        since = dt.datetime(*clock) - _EPOCH - (value.utcoffset() or dt.timedelta(0))
    except (TypeError, ValueError, OverflowError):
        raise _moment_error(moment, name) from None
    return (since.days * 86_400 + since.seconds) * _SECOND + since.microseconds * 1_000, value.tzinfo


def _of_numpy(moment: np.datetime64, name: str) -> int:
    unit = np.datetime_data(moment.dtype)[0]
    if np.isnat(moment) or unit == "generic":
        raise _moment_error(moment, name)
    if unit not in _UNITS:
        exact = moment.astype("datetime64[ns]" if unit in _FINER else "datetime64[D]")
        if unit not in _FINER and exact.astype(moment.dtype) != moment:  # NumPy's integers have overflowed
            raise _moment_error(moment, name)
        moment = exact
    unit, step = np.datetime_data(moment.dtype)
    return int(moment.astype(np.int64)) * step * _UNITS[unit]


def _in_utc(local: int, zone: str) -> int:
    """Return the first instant with this local time in a zone; for a skipped local time, the first after the gap."""
    microseconds, rest = divmod(local, 1_000)
    try:
        clock = pl.Series([_EPOCH + dt.timedelta(microseconds=microseconds)], dtype=pl.Datetime("us"))
    except OverflowError:  # beyond the years of Python and of time zones
        return local
    known = clock.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    if known.null_count() == 0:
        return int(known.to_physical().item()) * 1_000 + rest
    second = microseconds // 1_000_000
    instants = pl.Series(np.arange(second - _LONGEST_GAP, second + _LONGEST_GAP) * 1_000_000).cast(pl.Datetime("us"))
    clocks = instants.dt.replace_time_zone("UTC").dt.convert_time_zone(zone).dt.replace_time_zone(None)
    after = int(np.argmax(clocks.to_physical().to_numpy() >= microseconds))
    return int(instants.to_physical()[after]) * 1_000


def _moment_error(moment: object, name: str) -> SettingError:
    message = Message(
        "{} is not a valid time; expected a date such as '2011-11-01', a length such as '7d' (s, m or min, h, d, w), "
        "or a fraction such as 0.1",
        Argument(name, f"{moment!r:.80}"),
    )
    return SettingError(message, field=name)
