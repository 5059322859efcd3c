"""Files: every format, and every way in which one can be broken."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from shortlist.data.csv_lines import _walked
from shortlist.data.event_files import column_names, find_files
from shortlist.data.interactions import Interactions
from shortlist.errors import DataError, SettingError, ShortlistError

NASTY = [
    *("", " ", "007", "7", "-0", "0", "+5", "1e3", " 5", "5 ", "12345678901234567890"),
    *("NaN", "null", "None", "true", "naïve", "日本語", "👩‍👩‍👧", "é", "a,b", 'say "hi"', '"', '""', "'", "a;b"),
    *("tab\there", "line\nbreak", "\n", "cr\rhere", "crlf\r\n", "\\", "{}", "[1]", "#"),
]
GIVEN = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(path, **parts):
    return Interactions.read(path, **{"context": "u", "item": "i"} | parts)


def put(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(events):
    return events.to_polars().rows()


def write(frame, path):
    """A file in the format its name says, written by somebody else's code where there is any."""
    name = path.name
    if name.endswith(".parquet"):
        frame.write_parquet(path, row_group_size=7)
    elif name.endswith(".jsonl"):
        path.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in frame.to_dicts()), encoding="utf-8"
        )
    else:
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter="\t" if ".tsv" in name else ",", quoting=csv.QUOTE_ALL)
        writer.writerow(frame.columns)
        writer.writerows(frame.rows())
        data = out.getvalue().encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


FORMATS = ["e.csv", "e.tsv", "e.csv.gz", "e.tsv.gz", "e.jsonl", "e.parquet"]


# --- round trips ------------------------------------------------------------------------------------------------------


def test_json_behind_a_mark(tmp_path):
    """Also where only one of several files has it."""
    path = put(tmp_path, "a.jsonl", b'\xef\xbb\xbf{"u": 1, "i": 2}\n')
    assert rows(read(path)) == [(1, 2)]
    put(tmp_path, "b.jsonl", '{"u": 1, "i": 3}\n')
    assert rows(read(tmp_path)) == [(1, 2), (1, 3)]
    put(tmp_path, "b.jsonl", '{"u": 1, "i": null}\n')
    with pytest.raises(DataError, match=r"column 'i' is null in 1 of 2 rows \(first: line 1 of b.jsonl"):
        read(tmp_path)


@pytest.mark.parametrize("name", FORMATS)
@GIVEN
@given(pairs=st.lists(st.tuples(st.sampled_from(NASTY), st.sampled_from(NASTY)), min_size=1, max_size=30))
def test_nasty_strings_through_every_format(tmp_path, name, pairs):
    frame = pl.DataFrame([*pairs, ("x", "x")], schema={"u": pl.String, "i": pl.String}, orient="row")
    write(frame, tmp_path / name)
    events = read(tmp_path / name)
    assert_frame_equal(events.to_polars(), frame)
    assert events.dropped == {}


@pytest.mark.parametrize("name", FORMATS)
@GIVEN
@given(
    pairs=st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 9), st.floats(0, 100, width=32), st.integers(0, 50)),
        min_size=1,
        max_size=30,
    )
)
def test_integers_weights_and_times_through_every_format(tmp_path, name, pairs):
    frame = pl.DataFrame(pairs, schema={"u": pl.Int64, "i": pl.Int64, "w": pl.Float32, "t": pl.Int64}, orient="row")
    write(frame, tmp_path / name)
    assert_frame_equal(read(tmp_path / name, weight="w", time="t").to_polars(), frame)


@GIVEN
@given(pairs=st.lists(st.tuples(st.sampled_from(NASTY), st.sampled_from(NASTY)), min_size=1, max_size=30))
def test_what_polars_and_pandas_write(tmp_path, pairs):
    frame = pl.DataFrame([*pairs, ("x", "x")], schema={"u": pl.String, "i": pl.String}, orient="row")
    for sep, name in ((",", "p.csv"), ("\t", "p.tsv")):
        frame.write_csv(tmp_path / name, separator=sep)
        assert_frame_equal(read(tmp_path / name).to_polars(), frame)
    frame.write_ndjson(tmp_path / "p.ndjson")
    assert_frame_equal(read(tmp_path / "p.ndjson").to_polars(), frame)
    bare = frame.filter(pl.all_horizontal(pl.all() != ""))  # pandas writes an empty string as it writes nothing
    bare.to_pandas().to_csv(tmp_path / "q.csv", index=False, lineterminator="\n")
    if not any("\r" in one for row in pairs for one in row):  # and does not quote carriage returns
        assert_frame_equal(read(tmp_path / "q.csv").to_polars(), bare)


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.Int32, pl.UInt32, pl.Int64, pl.UInt64], ids=str)
def test_integer_types_through_parquet(tmp_path, dtype):
    frame = pl.select(u=pl.concat_list(dtype.max(), dtype.min()).explode(), i=pl.Series(["a", "b"]))
    assert frame.schema["u"] == dtype
    frame.write_parquet(tmp_path / "e.parquet")
    assert_frame_equal(read(tmp_path / "e.parquet").to_polars(), frame)


@pytest.mark.parametrize(
    ("ids", "values"),
    [
        (["1", "-5", "0"], [1, -5, 0]),
        (["9223372036854775807", "-9223372036854775808"], [2**63 - 1, -(2**63)]),
        (["1", "007"], ["1", "007"]),
        (["1", "-0"], ["1", "-0"]),
        (["1", "+5"], ["1", "+5"]),
        (["1", " 5"], ["1", " 5"]),
        (["1", "1e3"], ["1", "1e3"]),
        (["1", "1.0"], ["1", "1.0"]),
        (["1", "9223372036854775808"], ["1", "9223372036854775808"]),
        (["12345678901234567890"], ["12345678901234567890"]),
        (["1", "NaN", "null"], ["1", "NaN", "null"]),
    ],
    ids=str,
)
def test_text_becomes_integers_only_where_nothing_is_lost(tmp_path, ids, values):
    path = put(tmp_path, "e.csv", "u,i\n" + "".join(f"{one},x\n" for one in ids))
    assert [u for u, _ in rows(read(path))] == values
    path = put(tmp_path, "e.csv", "u,i\n" + "".join(f'"{one}",x\n' for one in ids))
    assert [u for u, _ in rows(read(path))] == values


def test_dropped_rows_do_not_decide_what_ids_are(tmp_path):
    path = put(tmp_path, "e.csv", "u,v,i,w\n1,1,2,1\nx,x,y,-1\n3,1,4,1\n")
    assert rows(read(path, weight="w", on_bad="drop")) == [(1, 2, 1.0), (3, 4, 1.0)]
    events = read(path, context=["u", "v"], weight="w", on_bad="drop")
    assert events.contexts.ids() == [(1, 1), (3, 1)]


def test_tuples_from_text(tmp_path):
    path = put(tmp_path, "e.tsv", 'u\tday\ti\n7\t"a,b"\tx\n7\ta\tx\n10\t\ty\n')
    with pytest.raises(DataError, match=r"column 'day' is null in 1 of 3 rows \(first: line 4 '"):
        read(path, context=["u", "day"])
    events = read(path, context=["u", "day"], on_bad="drop")
    assert events.contexts.ids() == [(7, "a"), (7, "a,b")]
    assert events.dropped == {"'day' are null": 1}


# --- folders and patterns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "jsonl", "parquet"])
def test_folder_and_pattern(tmp_path, suffix):
    parts = [pl.DataFrame({"u": [f"u{k}", "x"], "i": [k, 7]}) for k in range(4)]
    (tmp_path / "sub" / "z").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "_temporary").mkdir()
    for k, part in enumerate(parts):
        write(part, tmp_path / ["", "sub", "sub", "sub/z"][k] / f"part-{k}.{suffix}")
    for name in (
        "_SUCCESS",
        "_metadata",
        ".part-0.crc",
        f".x.{suffix}",
        f".hidden/x.{suffix}",
        f"_temporary/x.{suffix}",
        "notes.txt",
    ):
        (tmp_path / name).write_bytes(b"")
    whole = pl.concat(parts)
    assert_frame_equal(read(tmp_path).to_polars(), whole)
    assert_frame_equal(read(str(tmp_path / f"**/part-*.{suffix}")).to_polars(), whole)
    assert_frame_equal(read(str(tmp_path / f"sub/*.{suffix}")).to_polars(), pl.concat(parts[1:3]))
    assert_frame_equal(read(tmp_path / "sub" / "z" / f"part-3.{suffix}").to_polars(), parts[3])
    assert column_names(find_files(tmp_path)) == ["u", "i"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_names_with_stars_and_brackets_are_names(tmp_path, suffix):
    for k, name in enumerate(["e[1]", "e*", "e1", "e?"]):
        write(pl.DataFrame({"u": [k], "i": ["a"]}), tmp_path / f"{name}.{suffix}")
    for k, name in enumerate(["e[1]", "e*", "e1", "e?"]):
        assert rows(read(tmp_path / f"{name}.{suffix}")) == [(k, "a")]
    assert len(read(tmp_path)) == 4


def test_mixed_folders(tmp_path):
    write(pl.DataFrame({"u": [1], "i": [2]}), tmp_path / "a.csv")
    write(pl.DataFrame({"u": [1], "i": [2]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"several formats \(.csv, .parquet\); pass format="):
        read(tmp_path)
    with pytest.raises(DataError, match=r"b.parquet is a Parquet file although its name says csv"):
        read(tmp_path, format="csv")
    assert len(read(tmp_path / "*.csv")) == 1


def test_files_that_do_not_agree(tmp_path):
    (a, b) = (tmp_path / "a.csv", tmp_path / "b.csv")
    a.write_text("u,i\n1,2\n")
    b.write_text("i,u\n1,2\n")
    with pytest.raises(
        DataError, match=r"b.csv has the columns \['i', 'u'\], .*a.csv has \['u', 'i'\]; expected the same columns"
    ):
        read(tmp_path)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).unlink()
    pl.DataFrame({"u": [1], "i": ["x"]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"extra": [1.5], "i": ["y"], "u": [2]}).write_parquet(tmp_path / "b.parquet")
    assert rows(read(tmp_path)) == [(1, "x"), (2, "y")]
    pl.DataFrame({"u": ["1"], "i": ["y"]}).write_parquet(tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"\(3 files\) cannot be read"):
        read(tmp_path)


@pytest.mark.parametrize("first", [None, "UTC"])
def test_files_with_and_without_a_time_zone(tmp_path, first):
    """polars takes the times of all for what the first file has."""
    times = pl.Series("t", [dt.datetime(2020, 1, 1)])
    other = None if first else "UTC"
    for name, zone in (("a.parquet", first), ("b.parquet", other)):
        column = times.dt.replace_time_zone(zone)
        write(pl.DataFrame({"u": [1], "i": [2]}).with_columns(column), tmp_path / name)
    with pytest.raises(DataError, match=r"column 't' has times without a time zone in .\.parquet and times in UTC in"):
        read(tmp_path, time="t")
    assert len(read(tmp_path)) == 2


HALVES = [
    "\\ud800",
    "\\udc00",
    "a\\uD800",
    "\\udbffb",
    "\\ud800\\ud800",
    "\\udc00\\ud83d",
    "\\ud800\\n",
    "\\ud800\\u0041",
]


@pytest.mark.parametrize("text", HALVES)
def test_halves_of_surrogate_pairs(tmp_path, text):
    """polars makes NUL characters of some and stumbles over others."""
    good = ['{"u": "b", "i": "\\ud83d\\ude00", "n": 1}', '{"u": "c", "i": "\\\\ud800", "n": 2}']
    bad = f'{{"u": "{text}", "i": "z", "n": 3}}'
    path = put(tmp_path, "e.jsonl", "\n".join([good[0], bad, good[1]]) + "\n")
    with pytest.raises(DataError, match=r"e.jsonl: column 'u' in line 2 is not Unicode text: .*on_bad='drop'"):
        read(path)
    events = read(path, on_bad="drop")
    assert rows(events) == [("b", "\U0001f600"), ("c", "\\ud800")]
    assert events.dropped == {"'u' are null": 1}
    put(tmp_path, "e.jsonl", "\n".join([*good, f'{{"u": "d", "i": "e", "{text}": ["{text}"]}}']) + "\n")
    assert rows(read(path)) == [*rows(events), ("d", "e")]


@pytest.mark.parametrize(
    "path",
    [
        None,
        3,
        "",
        b"e.csv",
        ["e.csv"],
        pd.DataFrame({"u": [1]}),
        pl.DataFrame({"u": [1]}),
        "a" * 5000 + ".csv",
        "a\0.csv",
    ],
    ids=lambda path: f"{path!r:.12}".replace("\n", " "),
)
def test_what_is_no_path(path):
    with pytest.raises(DataError, match=r"expected the path of a file or a folder, got|no such file or folder"):
        read(path)


def test_formats_and_paths(tmp_path):
    path = put(tmp_path, "events.txt", "u|i\n1|2\n")
    with pytest.raises(
        DataError, match=r"cannot infer the format from the file name 'events.txt'; expected CSV .* pass format="
    ):
        read(path)
    assert rows(read(path, format="csv", separator="|")) == [(1, 2)]
    with pytest.raises(
        DataError, match=r"no column 'u'; columns found: 'u\|i'; is the separator a bar\? Then pass separator='\|'"
    ):
        read(path, format="csv")
    with pytest.raises(SettingError, match="format='xls'; expected one of csv, jsonl, parquet, tsv"):
        read(path, format="xls")
    for separator in (";;", "", '"', "\n", "é"):
        with pytest.raises(SettingError, match=r"separator=.*expected one ASCII character"):
            read(path, format="csv", separator=separator)
    with pytest.raises(DataError, match=r"no such file or folder: nowhere\.csv"):
        read("nowhere.csv")
    with pytest.raises(DataError, match=r"no file matches .*\*.csv"):
        read(tmp_path / "*.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"folder .*empty is empty; expected CSV"):
        read(tmp_path / "empty")
    with pytest.raises(SettingError, match="aggregate="):
        read("nowhere.csv", aggregate="max")


# --- broken bytes -----------------------------------------------------------------------------------------------------

GOOD = [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    "text",
    [
        "u,i\n1,a\n2,b\n",
        "u,i\n1,a\n2,b",
        "u,i\r\n1,a\r\n2,b\r\n",
        "u,i\r\n1,a\r\n2,b",
        "\ufeffu,i\n1,a\n2,b\n",
        '\ufeff"u","i"\r\n"1","a"\r\n2,b\r\n\r\n',
        "u,i\n1,a\n2,b\n\n\n\n",
        "\n\nu,i\n1,a\n2,b\n",
        "u,i\n\n1,a\n\n\n2,b\n",
        "u,i\r\n\r\n1,a\r\n2,b\r\n\r\n",
        "u,x,i\n1,,a\n2,,b\n",
        "u,i,x\n1,a,\n2,b,\n",
        'u,i,x\n1,a,"1\n\n2"\n2,b,","\n',
        'u,i,"a ""quoted"" name"\n1,a,\n2,b,\n',
    ],
    ids=range(14),
)
@pytest.mark.parametrize("packed", [False, True])
def test_text_as_people_write_it(tmp_path, text, packed):
    data = text.encode()
    events = read(put(tmp_path, "e.csv.gz" if packed else "e.csv", gzip.compress(data) if packed else data))
    assert rows(events) == GOOD
    assert events.dropped == {}
    assert rows(read(tmp_path / ("e.csv.gz" if packed else "e.csv"), on_bad="drop")) == GOOD


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("e.csv", b"", r"e.csv is empty \(0 bytes\)"),
        ("e.parquet", b"", r"e.parquet is empty \(0 bytes\)"),
        ("e.jsonl", b"", r"e.jsonl is empty \(0 bytes\)"),
        ("e.csv", b"\n\n", "it has no header line"),
        ("e.csv", b"u,i\n", "there are no rows"),
        ("e.csv", b"u,i\n\n\n", "there are no rows"),
        ("e.csv", b"u,x\n1,2\n", r"no column 'i'; columns found: 'u', 'x'"),
        ("e.csv", b"u;i\n1;2\n", r"is the separator a semicolon\? Then pass separator=';'"),
        ("e.csv", b"u\ti\n1\t2\n", r"is the separator a tab\?"),
        ("e.tsv", b"u,i\n1,2\n", r"is the separator a comma\?"),
        ("e.csv", b"u,i,i\n1,2,3\n", r"column 'i' appears 2 times in the header"),
        (
            "e.csv",
            b"u,i\n1,a\n2\n",
            r"1 of 3 lines do not have the 2 fields .* \(line 3 of e.csv has 1: '2'\).*on_bad='drop'",
        ),
        (
            "e.csv",
            b"u,i\n1,a\n2,b,c\n",
            r"1 of 3 lines do not have the 2 fields of the header \(line 3 of e.csv has 3: '2,b,c'\)",
        ),
        ("e.csv", b'u,i\n1,"a\n\nb"\n2\n\n3,"x,y",z\n', r"2 of 4 lines .* \(line 5 of e.csv has 1: '2'; also line 7\)"),
        ("e.csv", b"u,i\n1,a\n   \n", r"1 of 3 lines .* \(line 3 of e.csv has 1: '   '\)"),
        ("e.csv", b'u,i\n1,a\n2,"b\n3,c\n', r"e.csv: the quote opened in line 3 is never closed"),
        ("e.csv", b'u,i\n1,a\n2,"b"x\n', r"Line 3 of e.csv has a quote inside a field"),
        ("e.csv", b"u,i\n1,a\n2,\xff\n", r"e.csv is not UTF-8 text \(first: line 3 '2,\ufffd'\); convert it"),
        ("e.csv", b"u,i\xff\n1,a\n", r"e.csv is not UTF-8 text \(first: line 1 'u,i\ufffd'\); convert it"),
        ("e.csv", "u,i\n1,a\n".encode("utf-16"), "e.csv is UTF-16 text; convert it"),
        ("e.csv", b"u,i\n,a\n2,b\n", r"column 'u' is null in 1 of 2 rows \(first: line 2 ',a'\)"),
        ("e.csv", b"u,i,x\n1,a,y\n,,foo\n,,\n", r"column 'u' is null in 2 of 3 rows"),
        ("e.csv", b"u,i,x\n,,foo\n,,\n", r"column 'u' is null in 2 of 2 rows"),
        ("e.csv.gz", gzip.compress(b"u,i\n" + b"1,a\n" * 5000)[:-12], "e.csv.gz cannot be read: Compressed file ended"),
        ("e.csv.gz", gzip.compress(b"u,i\n" + b"1,a\n" * 5000)[:20] + b"\x00" * 30, "e.csv.gz cannot be read: "),
        ("e.parquet", b"u,i\n1,2\n", "e.parquet is not a Parquet file: it does not begin with PAR1"),
        ("e.parquet", b"PAR1" + b"\x00" * 100, "e.parquet cannot be read"),
        ("e.jsonl", b'{"u": 1, "i": 2}\n{"u": 1, "i"\n', r"e.jsonl: line 2 is not a JSON object"),
        ("e.jsonl", b'{"u": 1, "i": 2}\n[1, 2]\n', r"e.jsonl: line 2 is not a JSON object"),
        ("e.jsonl", b'{"u": 1, "i": 2}{"u": 1, "i": 2}\n', r"e.jsonl: line 1 is not a JSON object"),
        ("e.jsonl", b'{"u": 1, "x": 2}\n', r"no column 'i'; columns found: 'u', 'x'"),
        (
            "e.jsonl",
            b'{"u": 1, "i": 2}\n{"u": 1}\n',
            r"column 'i' is null in 1 of 2 rows \(first: line 2 '{\"u\": 1}'\)",
        ),
        ("e.jsonl", b'{"u": "a", "i": 2}\n{"u": 7, "i": 2}\n', r"column 'u' mixes types: 1 of 2 rows hold numbers"),
        (
            "e.jsonl",
            b'{"u": "a", "i": 2}\n{"u": true, "i": 2}\n',
            r"column 'u' mixes types: 1 of 2 rows hold true or false",
        ),
        ("e.jsonl", b'{"u": "a", "i": 2}\n{"u": [1], "i": 2}\n', r"column 'u' mixes types: 1 of 2 rows hold lists"),
        (
            "e.jsonl",
            b'{"u": "a", "i": 2}\n{"u": {"x": 1}, "i": 2}\n',
            r"column 'u' mixes types: 1 of 2 rows hold objects",
        ),
        ("e.jsonl", b'{"u": 1, "i": 2}\n{"u": 1.5, "i": 2}\n', r"column 'u' has type Float64"),
        ("e.jsonl", b'{"u": true, "i": 2}\n', r"column 'u' has type Boolean"),
        ("e.jsonl", b'{"u": {"x": 1}, "i": 2}\n', r"column 'u' has type Struct"),
        ("e.jsonl", b"\xff\xfe\n", "e.jsonl"),
    ],
    ids=range(40),
)
def test_broken_files(tmp_path, name, data, message):
    with pytest.raises(DataError, match=message) as caught:
        read(put(tmp_path, name, data))
    assert name in str(caught.value) or "column" in str(caught.value)


def test_parquet_that_is_cut_or_misnamed(tmp_path):
    stream = io.BytesIO()
    pl.DataFrame({"u": range(1000), "i": [f"i{k}" for k in range(1000)]}).write_parquet(stream)
    data = stream.getvalue()
    for size in (4, 8, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(ShortlistError, match=r"e\.parquet"):
            read(put(tmp_path, "e.parquet", data[:size]))
    for name in ("p.csv", "p.tsv", "p.jsonl"):
        with pytest.raises(DataError, match=r"is a Parquet file although its name says .*pass format='parquet'"):
            read(put(tmp_path, name, data))
    assert len(read(tmp_path / "p.csv", format="parquet")) == 1000
    broken = bytearray(data)
    broken[50:90] = b"\xff" * 40
    with pytest.raises(ShortlistError):
        read(put(tmp_path, "b.parquet", bytes(broken)))


def test_a_fault_far_down_is_not_the_end_of_the_file(tmp_path, monkeypatch):
    """An error half-way must be raised, not end the rows."""
    monkeypatch.setattr("shortlist.data.encode._BATCH", 1000)
    lines = b"".join(b"%d,item-%d\n" % (k, k % 7) for k in range(60_000))
    with pytest.raises(DataError, match="not UTF-8"):
        read(put(tmp_path, "e.csv", b"u,i\n" + lines + b"1,\xff\xff\n" + lines))
    with pytest.raises(DataError, match=r"1 of 120,002 lines .* \(line 60,002 of e.csv has 3: '"):
        read(put(tmp_path, "e.csv", b"u,i\n" + lines + b"1,a,b\n" + lines))
    events = read(tmp_path / "e.csv", on_bad="drop")
    assert len(events) == 120_000
    assert events.dropped == {"lines with another number of fields than the header": 1}


def test_quotes_that_are_part_of_the_text(tmp_path):
    """Inches in a file without quoting."""
    path = put(tmp_path, "e.tsv", 'u\ti\n1\t5" nail\n2\t6" nail\n3\tx\n')
    assert rows(read(path)) == [(1, '5" nail'), (2, '6" nail'), (3, "x")]
    path = put(tmp_path, "e.tsv", 'u\ti\n1\ta "b" c\n2\t"x"\n')
    assert rows(read(path)) == [(1, 'a "b" c'), (2, "x")]


# --- what is dropped on demand ----------------------------------------------------------------------------------------


def test_drop_counts_lines_rows_and_keeps_the_rest_as_it_is(tmp_path):
    text = 'u,i,w\n1,"",1\n2\n,b,1\n3,"a\n,b",2\n4,x,-1\n,,\n\n5,y,nope\n6,z,1,9\n7,"007",3\n'
    path = put(tmp_path, "e.csv", text)
    events = read(path, weight="w", on_bad="drop")
    assert rows(events) == [(1, "", 1.0), (3, "a\n,b", 2.0), (7, "007", 3.0)]
    assert events.dropped == {
        "'u' are null": 2,
        "'w' are negative": 1,
        "'w' are null or not a number": 1,
        "lines with another number of fields than the header": 2,
    }
    assert "6 rows dropped" in repr(events)
    with pytest.raises(DataError, match="2 of 10 lines"):
        read(path, weight="w")


def test_drop_in_several_files(tmp_path):
    put(tmp_path, "a.csv", "u,i\n1,x\n2\n")
    put(tmp_path, "b.csv", "\ufeffu,i\r\n3,y\r\n4,z,z\r\n5,w")
    put(tmp_path, "c.csv.gz", gzip.compress(b"u,i\n6,v\n7,8,9\n"))
    events = read(tmp_path, on_bad="drop")
    assert rows(events) == [(1, "x"), (3, "y"), (5, "w"), (6, "v")]
    assert events.dropped == {"lines with another number of fields than the header": 3}
    with pytest.raises(DataError, match=r"\(3 files\): 3 of 10 lines .* \(line 3 of a.csv has 1: '"):
        read(tmp_path)


def test_nothing_left(tmp_path):
    path = put(tmp_path, "e.csv", "u,i\n1\n2\n")
    with pytest.raises(DataError, match="no rows"):
        read(path, on_bad="drop")
    path = put(tmp_path, "e.csv", "u,i\n1,\n,2\n")
    with pytest.raises(DataError, match=r"none of the 2 rows can be used: 1 'u' are null, 1 'i' are null"):
        read(path, on_bad="drop")


FIELD = st.sampled_from(["", "a", "7", '""', '"a"', '"x,y"', '"l\nm"', '"q""q"', '"\n"', '"\r\n"'])


@GIVEN
@given(
    st.lists(st.one_of(st.lists(FIELD, min_size=1, max_size=4), st.none()), max_size=20),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.integers(1, 64),
)
def test_survey_against_the_csv_module(tmp_path, monkeypatch, lines, end, final, block):
    monkeypatch.setattr("shortlist.data.csv_lines._BLOCK", block)
    text = end.join(["a,b,c", *("" if fields is None else ",".join(fields) for fields in lines)]) + (
        end if final else ""
    )
    path = put(tmp_path, "e.csv", text)
    expected = [fields for fields in csv.reader(io.StringIO(text, newline="")) if fields]
    out = np.empty(len(text.encode()) + 1, np.uint8)
    survey, size = _walked(path, ",", 3, out)
    assert survey.n_records == len(expected)
    assert survey.n_ragged == sum(len(fields) != 3 for fields in expected)
    assert survey.stray_line == 0
    if survey.n_ragged:
        assert survey.ragged_fields == next(len(fields) for fields in expected if len(fields) != 3)
    kept = [fields for fields in csv.reader(io.StringIO(out[:size].tobytes().decode(), newline="")) if fields]
    assert kept == [fields for fields in expected if len(fields) == 3]


# --- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2020-01-02", dt.date(2020, 1, 2)),
        ("2020-01-02 03:04:05", dt.datetime(2020, 1, 2, 3, 4, 5)),
        ("2020-01-02T03:04:05.678", dt.datetime(2020, 1, 2, 3, 4, 5, 678000)),
        ("2020-01-02T03:04:05Z", dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
        ("2020-01-02T03:04:05+02:00", dt.datetime(2020, 1, 2, 1, 4, 5, tzinfo=dt.UTC)),
    ],
)
def test_iso_times_in_every_format(tmp_path, name, text, value):
    write(pl.DataFrame({"u": ["a"], "i": ["b"], "t": [text]}), tmp_path / name)
    assert read(tmp_path / name, time="t").to_polars()["t"].to_list() == [value]


@pytest.mark.parametrize("column", ["5", "5.5", "2020-01-01"])
def test_a_time_of_another_kind_further_down_is_refused(tmp_path, column):
    late = "2020-01-02 10:00:00"
    path = put(tmp_path, "e.csv", "u,i,t\n" + f"1,a,{column}\n" * 2000 + f"1,a,{late}\n")
    with pytest.raises(
        DataError,
        match=r"is null or not a time in 1 of 2,001 rows \(first: line 2,002 '.*expected times such as 2011-12-01",
    ):
        read(path, time="t")
    assert read(path, time="t", on_bad="drop").dropped == {
        "'t' are null or cannot be read as a time such as 2011-12-01 08:26": 1
    }


def test_temporal_parquet(tmp_path):
    frame = pl.DataFrame(
        {"u": [1, 1], "i": ["a", "b"], "t": pl.Series([2, 1], dtype=pl.Datetime("ns", "Europe/Berlin"))}
    )
    frame.write_parquet(tmp_path / "e.parquet")
    assert_frame_equal(read(tmp_path / "e.parquet", time="t").to_polars(), frame)
    pd.DataFrame({"u": [1], "i": ["a"], "t": pd.to_datetime(["2020-01-01"])}).to_parquet(tmp_path / "p.parquet")
    assert read(tmp_path / "p.parquet", time="t").to_polars()["t"].to_list() == [dt.datetime(2020, 1, 1)]
