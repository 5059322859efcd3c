"""Frames of every make, and what is wrong with some."""

from __future__ import annotations

import datetime as dt
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from shortlist.data.interactions import Interactions
from shortlist.errors import DataError, SettingError, ShortlistError

INT_TYPES = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]
NASTY = [
    *("", " ", "007", "7", "-0", "0", "+5", "1e3", " 5", "5 ", "12345678901234567890"),
    *("NaN", "nan", "null", "NULL", "None", "true", "naïve", "日本語", "👩‍👩‍👧", "é", "e\u0301"),
    *("a,b", 'say "hi"', '"', "'", "tab\there", "line\nbreak", "cr\rhere", "a;b", "\\", "{}", "[1]", "\x00"),
]


def bounds(dtype):
    bits = int("".join(filter(str.isdigit, str(dtype))))
    return (0, 2**bits - 1) if str(dtype).startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def take(frame, **parts):
    return Interactions.from_frame(frame, **{"context": "u", "item": "i"} | parts)


class Capsule:
    """Speaks the Arrow stream interface and nothing else."""

    def __init__(self, frame):
        self.frame = frame

    def __arrow_c_stream__(self, requested_schema=None):
        return self.frame.__arrow_c_stream__(requested_schema)


# --- ids come back as they were ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INT_TYPES, ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_integers_round_trip(dtype, data):
    low, high = bounds(dtype)
    ids = st.lists(st.one_of(st.sampled_from([low, high, 0, 1]), st.integers(low, high)), min_size=1, max_size=30)
    contexts = data.draw(ids)
    items = data.draw(st.lists(st.integers(low, high), min_size=len(contexts), max_size=len(contexts)))
    frame = pl.DataFrame({"u": pl.Series(contexts, dtype=dtype), "i": pl.Series(items, dtype=dtype)})
    events = take(frame)
    assert_frame_equal(events.to_polars(), frame)
    assert events.contexts.ids() == sorted(set(contexts))
    assert events.items.ids() == sorted(set(items))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NASTY) | st.text(), st.sampled_from(NASTY) | st.text()), min_size=1))
def test_strings_round_trip(rows):
    frame = pl.DataFrame(rows, schema={"u": pl.String, "i": pl.String}, orient="row")
    events = take(frame)
    assert_frame_equal(events.to_polars(), frame)
    assert events.items.ids() == sorted({i for _, i in rows}, key=str.encode)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(NASTY), st.integers(-3, 3), st.sampled_from(["1", "1,1", "", ","]), st.integers(0, 2)
        ),
        min_size=1,
    ),
    st.randoms(),
)
def test_tuples_round_trip_and_codes_do_not_depend_on_the_rows(rows, random):
    schema = {"i": pl.String, "u": pl.Int8, "day": pl.String, "w": pl.Float32}
    frame = pl.DataFrame(rows, schema=schema, orient="row").select("u", "day", "i", "w")
    events = take(frame, context=["u", "day"], weight="w")
    assert_frame_equal(events.to_polars(), frame)
    assert events.contexts.ids() == sorted({(u, day) for _, u, day, _ in rows})
    shuffled = take(frame[random.sample(range(len(rows)), len(rows))], context=["u", "day"], weight="w")
    assert shuffled.contexts == events.contexts
    assert shuffled.items == events.items


def test_many_batches_keep_the_order_of_rows(monkeypatch):
    monkeypatch.setattr("shortlist.data.encode._BATCH", 1000)
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "a": rng.integers(0, 300, 50_000).astype(np.int16),
            "b": [f"x{k}" for k in rng.integers(0, 40, 50_000)],
            "i": rng.integers(0, 10**12, 50_000),
            "w": rng.random(50_000).astype(np.float32),
            "t": rng.integers(0, 99, 50_000),
        }
    )
    events = take(frame, context=["a", "b"], weight="w", time="t")
    assert_frame_equal(events.to_polars(), frame)
    assert take(frame.reverse(), context=["a", "b"]).contexts == events.contexts
    holed = frame.with_columns(pl.when(pl.col("a") == 7).then(None).otherwise("i").alias("i"))
    with pytest.raises(DataError, match=rf"'i' is null in {(frame['a'] == 7).sum()} of 50,000 rows \(first: row"):
        take(holed, context=["a", "b"])
    dropped = take(holed, context=["a", "b"], on_bad="drop")
    assert_frame_equal(dropped.to_polars(), holed.filter(pl.col("a") != 7).select("a", "b", "i"))
    assert 7 not in {a for a, _ in dropped.contexts.ids()}


# --- frames of every make -------------------------------------------------------------------------------------------

PLAIN = pl.DataFrame({"u": ["b", "a", "b"], "i": [7, -1, 7], "w": [1.5, 0.0, 2.0]})


@pytest.mark.parametrize(
    "make",
    [
        lambda f: f,
        lambda f: f.lazy(),
        lambda f: f.lazy().filter(pl.col("w") >= 0),
        lambda f: f.to_pandas(),
        lambda f: f.to_pandas().set_index("u", drop=False),
        lambda f: f.to_pandas().set_index(pd.Index(["i", "j", "k"], name="i")),
        lambda f: f.to_pandas().astype({"u": object}),
        lambda f: f.to_pandas().astype({"u": "category", "i": "category"}),
        lambda f: f.to_pandas().astype({"i": "Int64", "w": "Float64"}),
        lambda f: f.to_pandas().convert_dtypes(dtype_backend="pyarrow"),
        lambda f: f.to_arrow(),
        lambda f: pa.table({n: c.dictionary_encode() if n != "w" else c for n, c in zip(f.columns, f.to_arrow())}),
        lambda f: pa.RecordBatchReader.from_batches(f.to_arrow().schema, f.to_arrow().to_batches()),
        lambda f: f.to_arrow().to_batches()[0],
        Capsule,
        lambda f: Capsule(f.to_arrow()),
        lambda f: f.to_dict(as_series=False),
        lambda f: f.to_dict(),
        lambda f: {name: column.to_numpy() for name, column in f.to_dict().items()},
        lambda f: {name: tuple(column) for name, column in f.to_dict().items()},
        lambda f: f.with_columns(pl.col("u").cast(pl.Categorical)),
        lambda f: f.with_columns(pl.col("u").cast(pl.Enum(["b", "a", "never"]))),
        lambda f: f.with_columns(other=pl.lit([[1, 2]])),
    ],
    ids=range(23),
)
def test_any_frame(make):
    events = take(make(PLAIN), weight="w")
    assert_frame_equal(events.to_polars(), PLAIN.cast({"w": pl.Float32}))
    assert events.contexts.ids() == ["a", "b"]
    assert events.items.ids() == [-1, 7]
    assert events.dropped == {}


def test_unsigned_extremes_from_python_and_pandas():
    top = 2**64 - 1
    for frame in (
        {"u": [top, 0], "i": ["a", "b"]},
        pd.DataFrame({"u": np.array([top, 0], np.uint64), "i": ["a", "b"]}),
    ):
        assert take(frame).contexts.ids() == [0, top]
    assert take({"u": [2**64, -1], "i": ["a", "b"]}).contexts.ids() == [-1, 2**64]


def test_pandas_without_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    import shortlist.data.interactions as module

    def refuse(frame):
        raise ImportError("pyarrow is required")

    monkeypatch.setattr(module, "stream", refuse)
    frame = pd.DataFrame({"u": ["b", "a"], "i": [1, 2], "t": pd.to_datetime(["2020-01-02", "2020-01-01"])})
    events = take(frame, time="t")
    assert events.contexts.ids() == ["a", "b"]
    assert events.to_polars()["t"].to_list() == [dt.datetime(2020, 1, 2), dt.datetime(2020, 1, 1)]
    holes = pd.DataFrame(
        {"u": pd.Series(["b", None, np.nan, pd.NA], dtype=object), "i": pd.array([1, 2, 3, 4], "Int64")}
    )
    assert take(holes, on_bad="drop").dropped == {"'u' are null": 3}
    with pytest.raises(DataError, match=r"column 'u' mixes types \(int, str\)"):
        take(pd.DataFrame({"u": ["b", 1], "i": [1, 2]}))


@pytest.mark.parametrize(
    "names",
    [
        ("pair", "id0", "weight", "time"),
        ("id1", "pair", "time", "weight"),
        ("__code", "code", "probe", "__rows"),
        ("index", "__index_level_0__", "len", "literal"),
        ("a b", "日本", "'", '"'),
        ("0", "1", "2", "3"),
    ],
)
def test_columns_named_like_ours(names):
    a, i, w, t = names
    frame = pl.DataFrame({a: [2, 1], i: ["x", "y"], w: pl.Series([1.0, 2.0], dtype=pl.Float32), t: [9, 8]})
    events = Interactions.from_frame(frame, context=a, item=i, weight=w, time=t)
    assert_frame_equal(events.to_polars(), frame)
    turned = Interactions.from_frame(frame, context=[t, a], item=i, weight=w)
    assert_frame_equal(turned.to_polars(), frame.select(t, a, i, w))
    assert turned.contexts.encode(turned.contexts.ids() * 3000).tolist() == [0, 1] * 3000


def test_a_time_column_may_play_a_second_part():
    frame = pl.DataFrame({"u": [1, 2], "i": ["a", "b"], "t": [3, 16777217]})
    both = take(frame, weight="t", time="t")
    assert both.weights.tolist() == [3, 16777216]
    assert both.times.tolist() == [3, 16777217]
    assert_frame_equal(both.to_polars(), frame)
    by_day = take(frame, context=["u", "t"], time="t")
    assert by_day.contexts.ids() == [(1, 3), (2, 16777217)]
    assert_frame_equal(by_day.to_polars(), frame.select("u", "t", "i"))
    for parts in ({"weight": "u"}, {"item": "u"}, {"context": ["u", "u"]}, {"weight": "u", "time": "u"}):
        with pytest.raises(SettingError, match="column 'u' has two roles"):
            take(frame, **parts)


# --- what cannot be used ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            {"u": ["a", None, "b", None], "i": [1, 2, 3, 4]},
            r"'u' is null in 2 of 4 rows \(first: row 2\).*on_bad='drop'",
        ),
        ({"u": ["a"], "x": [1]}, r"no column 'i'; columns found: 'u', 'x'"),
        ({}, r"no column 'u'; columns found: none"),
        ({"u": [], "i": []}, "the frame is empty: it has no rows"),
        (PLAIN.clear(), "it has no rows"),
        (pl.LazyFrame(schema={"u": pl.Int64, "i": pl.Int64}), "it has no rows"),
        (PLAIN.to_pandas().iloc[:0].astype({"u": "str"}), "it has no rows"),
        ({"u": [1.0, 2.0], "i": [1, 2]}, r"column 'u' has type Float64; ids are .*; pandas stores integers as floats"),
        ({"u": [True, False], "i": [1, 2]}, "column 'u' has type Boolean"),
        ({"u": [b"a"], "i": [1]}, "column 'u' has type Binary"),
        ({"u": [[1]], "i": [1]}, "column 'u' has type List"),
        ({"u": [dt.date(2020, 1, 1)], "i": [1]}, "column 'u' has type Date"),
        ({"u": [1, "a"], "i": [1, 2]}, r"column 'u' mixes types \(int, str\); ids are all integers or all text"),
        ({"u": [1, 2.5], "i": [1, 2]}, r"column 'u' mixes types \(float, int\)"),
        ({"u": [1, True], "i": [1, 2]}, r"column 'u' mixes types \(bool, int\)"),
        ({"u": "ab", "i": [1, 2]}, "column 'u' is 'ab'; expected a list"),
        ({"u": 5, "i": [1]}, "column 'u' is 5; expected a list"),
        ({"u": [1], "i": [1, 2]}, r"the columns differ in length: \{'u': 1, 'i': 2\}"),
        (pd.DataFrame({"u": ["a", 1], "i": [1, 2]}), r"column 'u' mixes types or holds objects \(int, str\)"),
        (pd.DataFrame({"u": ["a", None], "i": [1, 2]}), r"column 'u' is null in 1 of 2 rows"),
        (
            pd.DataFrame({"u": pd.Series(["a", np.nan], dtype=object), "i": [1, 2]}),
            r"column 'u' is null in 1 of 2 rows",
        ),
        (pd.DataFrame({"u": pd.Series([1, None], dtype="Int64"), "i": [1, 2]}), r"column 'u' is null in 1 of 2 rows"),
        (pd.DataFrame({"u": [1, np.nan], "i": [1, 2]}), r"column 'u' has type Float64.*cast the column to an integer"),
        (pd.DataFrame([[1, 2, 3]], columns=["u", "i", "i"]), "has 2 columns 'i'"),
        (
            PLAIN.to_pandas().set_index("u"),
            r"no column 'u'; columns found: 'i', 'w'; it is in the index: call reset_index",
        ),
        (pa.table([pa.array([1])] * 3, names=["u", "i", "i"]), r"more than once.*\"i\""),
        (pa.table({"u": [b"a"], "i": [1]}), "column 'u' has type Binary"),
        (PLAIN.lazy().with_columns(pl.col("nope")), r"cannot be read: .*nope"),
        (PLAIN.lazy().with_columns(pl.col("u").cast(pl.Int64).alias("i")), "the frame cannot be read: "),
        ([[1, 2]], r"got list; for a file use Interactions.read, for a SciPy matrix Interactions.from_csr"),
        ("events.csv", "got str; for a file use Interactions.read"),
        (np.zeros((2, 2)), "got ndarray"),
        (None, "cannot read events from NoneType"),
        (pl.Series([1]), "no column 'u'"),
    ],
    ids=range(34),
)
def test_bad_frames(frame, message):
    with pytest.raises(DataError, match=message):
        take(frame)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"context": []}, "column names must be text"),
        ({"context": 5}, "column names must be text"),
        ({"context": ["u", 5]}, "column names must be text"),
        ({"item": ["i"]}, "column names must be text"),
        ({"item": ""}, "column names must be text"),
        ({"on_bad": "skip"}, "on_bad='skip'; expected 'raise' or 'drop'"),
        ({"aggregate": "max"}, "aggregate='max'; expected 'sum', 'count' or 'latest'"),
    ],
)
def test_bad_arguments(parts, message):
    with pytest.raises(SettingError, match=message):
        take(PLAIN, **parts)


@pytest.mark.parametrize(
    ("weight", "cause"),
    [
        (None, "are null or not a number"),
        (float("nan"), "are null or not a number"),
        (-1.0, "are negative"),
        (-1e-60, "are negative"),
        (float("inf"), "are infinite or too large"),
        (1e39, "are infinite or too large"),
        (float("-inf"), "are negative"),
    ],
)
def test_bad_weights(weight, cause):
    frame = {"u": [1, 2, 3], "i": [1, 2, 3], "w": [1.0, 0.0, weight]}
    with pytest.raises(DataError, match=rf"column 'w' {cause.replace('are', 'is')} in 1 of 3 rows \(first: row 3\)"):
        take(frame, weight="w")
    events = take(frame, weight="w", on_bad="drop")
    assert events.dropped == {f"'w' {cause}": 1}
    assert events.contexts.ids() == [1, 2]
    assert repr(events).endswith(", 1 row dropped)")


@pytest.mark.parametrize("column", [["a", "b"], [True, False], [None, None], [[1], [2]]], ids=str)
def test_weights_that_are_no_numbers(column):
    with pytest.raises(DataError, match=r"column 'w' has type .*; weights are numbers"):
        take({"u": [1, 2], "i": [1, 2], "w": column}, weight="w")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.sampled_from("ab"),
            st.none() | st.integers(0, 1),
            st.none() | st.sampled_from([0.0, 1.0, -1.0, float("nan"), float("inf")]),
            st.none() | st.sampled_from([0.0, 2.5, float("nan"), float("-inf")]),
        ),
        min_size=1,
    )
)
def test_every_bad_row_is_counted_once(rows):
    schema = {"u": pl.String, "i": pl.Int64, "w": pl.Float64, "t": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    good = [
        row for row in rows
        if None not in row and row[2] >= 0 and np.isfinite(row[2]) and np.isfinite(row[3])
    ]  # fmt: skip
    if len(good) < len(rows):
        with pytest.raises(ShortlistError, match=r"column '[uiwt]' is .* in \d+ of \d+ rows"):
            take(frame, weight="w", time="t")
    if not good:
        with pytest.raises(DataError, match=r"none of the|every id is null"):
            take(frame, weight="w", time="t", on_bad="drop")
        return
    events = take(frame, weight="w", time="t", on_bad="drop")
    assert events.to_polars().rows() == good
    assert sum(events.dropped.values()) == len(rows) - len(good)
    assert events.contexts.ids() == sorted({row[0] for row in good})


# --- times ------------------------------------------------------------------------------------------------------------

WHEN = [dt.datetime(2020, 3, 1, 12, 30, 15), dt.datetime(1969, 12, 31), dt.datetime(2020, 2, 29)]


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([when.date() for when in WHEN]),
        *(pl.Series(WHEN, dtype=pl.Datetime(unit)) for unit in ("ms", "us", "ns")),
        pl.Series(WHEN).dt.replace_time_zone("UTC"),
        pl.Series(WHEN).dt.replace_time_zone("Asia/Tokyo").dt.cast_time_unit("ms"),
        *(pl.Series([5, -3, 100], dtype=dtype) for dtype in (pl.Int8, pl.Int16, pl.Int32, pl.Int64)),
        pl.Series([5, 3, 100], dtype=pl.UInt8),
        pl.Series([5, 3, 2**63 - 1], dtype=pl.UInt64),
        pl.Series([5.5, -3.25, 1e18], dtype=pl.Float64),
        pl.Series([5.5, -3.25, 2.0], dtype=pl.Float32),
    ],
    ids=lambda column: str(column.dtype),
)
def test_times_come_back(column):
    frame = pl.DataFrame({"u": [1, 1, 1], "i": ["a", "b", "c"], "t": column})
    events = take(frame, time="t")
    assert_frame_equal(events.to_polars(), frame)
    assert events.history(1) == frame.sort("t")["i"].to_list()
    assert str(frame["t"].max()) in repr(events)


@pytest.mark.parametrize(
    "unit", ["Y", "M", "W", "D", "7D", "h", "m", "s", "25s", "ms", "10ms", "us", "ns", "ps", "fs", "as"]
)
@pytest.mark.parametrize("make", [lambda a: a, lambda a: a.astype(object), list], ids=["array", "objects", "list"])
def test_times_of_numpy_in_any_unit(unit, make):
    times = np.array([0, 3, -2], "int64").astype(f"datetime64[{unit}]")
    if make(times).__class__ is np.ndarray and not isinstance(make(times)[0], np.datetime64):
        times = times.astype("datetime64[us]")  # NumPy makes numbers of the finest units
    events = take({"u": [1] * 3, "i": [1, 2, 3], "t": make(times)}, time="t")
    expected = times.astype("datetime64[ns]").astype("int64")
    assert events.to_polars()["t"].cast(pl.Datetime("ns")).to_physical().to_list() == expected.tolist()


def test_gaps_and_extremes_in_times_of_numpy():
    times = np.array(["2020-01-01", "NaT", "2020-01-03"], "datetime64[h]")
    events = take({"u": [1] * 3, "i": [1, 2, 3], "t": times}, time="t", on_bad="drop")
    assert events.to_polars()["t"].to_list() == [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 3)]
    far = np.array([0, 2**61], "int64").astype("datetime64[s]")
    with pytest.raises(DataError, match="column 't' has times too far from 1970"):
        take({"u": [1] * 2, "i": [1, 2], "t": far}, time="t")


@pytest.mark.parametrize(
    "make", [list, np.array, lambda a: pd.Series(a, dtype=object)], ids=["list", "array", "pandas"]
)
def test_times_with_and_without_a_zone_do_not_mix(make):
    times = make([dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 1), None])
    frame = {"u": [1] * 3, "i": [1, 2, 3], "t": times}
    frame = pd.DataFrame(frame) if isinstance(times, pd.Series) else frame
    with pytest.raises(DataError, match="column 't' mixes times with and without a time zone"):
        take(frame, time="t", on_bad="drop")


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_whole_floats_with_gaps_are_integers_with_gaps(make, dtype):
    """As pandas hands over a column of integers of which some are missing."""
    frame = make({"u": np.array([1, np.nan, -3, 3], dtype), "d": [1, 2, 3, 4], "i": np.array([7, 8, np.nan, 9], dtype)})
    with pytest.raises(DataError, match=r"Float.*pass on_bad='drop' to drop those rows and read the others as"):
        take(frame)
    events = take(frame, on_bad="drop")
    assert (events.contexts.ids(), events.items.ids()) == ([1, 3], [7, 9])
    assert events.dropped == {"'u' are null": 1, "'i' are null": 1}
    assert take(frame, context=["u", "d"], on_bad="drop").contexts.ids() == [(1, 1), (3, 4)]


@pytest.mark.parametrize(
    ("number", "dtype"), [(1.5, "f8"), (2.0**54, "f8"), (np.inf, "f8"), (-0.25, "f4"), (2.0**25, "f4")]
)
def test_floats_that_are_no_integers(number, dtype):
    frame = {"u": np.array([1, np.nan, number], dtype), "i": [1, 2, 3]}
    with pytest.raises(DataError, match=r"1 of its numbers are not integers ≤ .* \(first: "):
        take(frame, on_bad="drop")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (["2020-01-02", "2019-12-31"], [dt.date(2020, 1, 2), dt.date(2019, 12, 31)]),
        (["2020-01-02", "2020-01-01T10:00:00"], [dt.datetime(2020, 1, 2), dt.datetime(2020, 1, 1, 10)]),
        (
            ["2020-01-02 10:00", "2020-01-02 09:59:59.25"],
            [dt.datetime(2020, 1, 2, 10), dt.datetime(2020, 1, 2, 9, 59, 59, 250000)],
        ),
        (
            ["2020-01-02T10:00:00Z", "2020-01-02T10:00:00.5+02:00"],
            [dt.datetime(2020, 1, 2, 10, tzinfo=dt.UTC), dt.datetime(2020, 1, 2, 8, 0, 0, 500000, dt.UTC)],
        ),
        (
            ["2020-01-02 10:00-0500", "2020-01-02T10:00Z"],
            [dt.datetime(2020, 1, 2, 15, tzinfo=dt.UTC), dt.datetime(2020, 1, 2, 10, tzinfo=dt.UTC)],
        ),
        (["1577836800", "-5"], [1577836800, -5]),
        (["1577836800", "2.5"], [1577836800.0, 2.5]),
    ],
    ids=lambda one: str(one[1]),
)
def test_times_in_text(text, values):
    events = take({"u": [1, 1], "i": ["a", "b"], "t": text}, time="t")
    assert events.to_polars()["t"].to_list() == values
    assert events.history(1) == ["b", "a"]


def test_text_times_do_not_depend_on_batches(monkeypatch):
    monkeypatch.setattr("shortlist.data.encode._BATCH", 100)
    text = ["2020-01-02 10:00:00"] * 3000 + ["2020-01-03"] * 3000 + ["2020-01-02T10:00:00.125"] * 3000
    events = take({"u": [1] * 9000, "i": [1] * 9000, "t": text}, time="t")
    assert events.to_polars()["t"].unique().sort().to_list() == [
        dt.datetime(2020, 1, 2, 10),
        dt.datetime(2020, 1, 2, 10, 0, 0, 125000),
        dt.datetime(2020, 1, 3),
    ]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (
            ["2020-01-01", "x", ""],
            r"column 't' is null or not a time in 2 of 3 rows \(first: row 2\), expected times such as 2011-12-01",
        ),
        (
            ["03/04/2020"] * 3,
            r"'t' is null or not a time in 3 of 3 rows \(.*\), expected times such as 2011-12-01 08:26",
        ),
        (["10:00:00"] * 3, r"is null or not a time .*in 3 of 3 rows"),
        ([None, "2020-01-01", None], r"is null or not a time .*in 2 of 3 rows"),
        (["2020-01-01T10:00:00Z", "2020-01-01T10:00:00", "5"], r"is null or not a time .*in 2 of 3 rows"),
        ([1.0, float("nan"), float("inf")], r"is null or not a time .*in 2 of 3 rows"),
        ([1, None, 2], r"is null or not a time .*in 1 of 3 rows"),
        ([dt.time(10)] * 3, r"column 't' has type Time; times are dates, datetimes or numbers"),
        ([True] * 3, r"column 't' has type Boolean; times are"),
        (pl.Series([2**64 - 1] * 3, dtype=pl.UInt64), r"cannot be read"),
    ],
    ids=range(10),
)
def test_bad_times(times, message):
    with pytest.raises(DataError, match=message):
        take({"u": [1, 2, 3], "i": [1, 2, 3], "t": times}, time="t")
