"""Moments against the time zone database of Python, and numbers of time columns in words."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import splits, times
from shortlist.data.interactions import Interactions
from shortlist.errors import SettingError

UNITS = ["ms", "us", "ns"]


def hourly(zone, unit, first):
    """An event an hour in some zone."""
    column = pl.Series([first + dt.timedelta(hours=k) for k in range(200)], dtype=pl.Datetime(unit))
    column = column.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    frame = pl.DataFrame({"u": [1] * 200, "i": [0, 1] * 100, "t": column})
    return Interactions.from_frame(frame, context="u", item="i", time="t")


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    ("zone", "local", "expected"),
    [
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04 03:00"),  # that day began at 01:00
        ("America/Sao_Paulo", "2018-11-04 00:59:59.9", "2018-11-04 03:00"),
        ("America/Sao_Paulo", "2018-11-04 01:00", "2018-11-04 03:00"),
        ("Europe/Berlin", "2011-03-27 02:30", "2011-03-27 01:00"),
        ("Europe/Berlin", "2011-10-30 02:30", "2011-10-30 00:30"),  # and again an hour later
        ("Pacific/Apia", "2011-12-30", "2011-12-30 10:00"),  # a day that there was not
        ("Pacific/Apia", "2011-12-30 18:00", "2011-12-30 10:00"),
    ],
)
def test_local_times_that_occur_never_or_twice(zone, local, expected, unit):
    first = dt.datetime.fromisoformat(expected) - dt.timedelta(hours=100)
    split = splits.by_time(hourly(zone, unit, first), local, repeats="keep")
    assert len(split.train) == 100


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["America/Sao_Paulo", "Europe/Berlin", "Pacific/Apia", "Australia/Lord_Howe", "UTC"]),
    st.datetimes(dt.datetime(2011, 1, 1), dt.datetime(2012, 12, 31)),
)
def test_the_first_instant_at_which_the_clock_has_come_so_far(zone, local):
    """By definition: nothing before it shows this local time, and it does, or is the end of the gap."""
    found = times.first_at_or_after(local, pl.Datetime("us", zone), name="test")
    moment, tick = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=found), dt.timedelta(seconds=1)
    here = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    before = (moment - tick).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    if here != local:
        assert before < local < here
        assert here - before > tick
    else:
        assert (moment - dt.timedelta(hours=1)).astimezone(ZoneInfo(zone)).replace(tzinfo=None) != local


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_moments_beyond_a_column(unit, zone):
    """A moment that the column's integers do not reach is before or after all of them."""
    dtype = pl.Datetime(unit, zone)
    for early in ("0001-01-01", dt.date(1, 1, 1), dt.datetime.min):
        assert times.first_at_or_after(early, dtype, name="test") < -(10**13)
    for late in ("9999-12-31", dt.datetime.max, np.datetime64("20000000-01-01")):
        assert times.first_at_or_after(late, dtype, name="test") > 10**14
    with pytest.raises(SettingError, match="is not a valid time"):
        times.first_at_or_after(np.datetime64(2**60, "Y"), dtype, name="test")


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs"])
def test_moments_of_numpy(unit):
    moment = np.datetime64("1970-01-01", unit) + np.timedelta64(100, unit)
    found = times.first_at_or_after(moment, pl.Datetime("ns"), name="test")
    assert found == int(moment.astype("datetime64[ns]").astype(np.int64))


@pytest.mark.parametrize(
    ("number", "dtype", "text"),
    [
        (0, pl.Datetime("us"), "1970-01-01 00:00:00"),
        (1, pl.Datetime("us"), "1970-01-01 00:00:00.000001"),
        (0, pl.Datetime("ns", "Asia/Tokyo"), "1970-01-01 09:00:00+09:00"),
        (2**60, pl.Datetime("us"), "38504-08-17T21:30:06.846976"),
        (2**60, pl.Datetime("us", "Asia/Tokyo"), "38504-08-17T21:30:06.846976Z"),
        (2**63 - 1, pl.Datetime("ms", "Asia/Tokyo"), "292278994-08-17T07:12:55.807Z"),
        (-(2**62), pl.Datetime("us"), "-144169-06-28T09:59:32.612096"),
        (2**31 - 1, pl.Date(), "5881580-07-11"),
        (2**70, pl.Datetime("us"), "1180591620717411303424 us since 1970"),
        (1.5, pl.Float64(), "1.5"),
    ],
)
def test_numbers_in_words(number, dtype, text):
    assert times.shown(number, dtype) == text
    if isinstance(number, int) and abs(number) < 2**63:
        column = pl.Series("t", [number], dtype=pl.Int64).cast(pl.Int32 if dtype == pl.Date else pl.Int64).cast(dtype)
        frame = pl.DataFrame({"u": [1], "i": [1]}).with_columns(column)
        assert text in repr(Interactions.from_frame(frame, context="u", item="i", time="t"))
