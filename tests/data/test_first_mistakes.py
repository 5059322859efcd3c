"""What a new user gets wrong first, and the whole message that is to help: from Python, and on the command line."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from shortlist.cli import app
from shortlist.data.csv_lines import lines_at, lines_of_rows, shortened, survey
from shortlist.data.interactions import Interactions
from shortlist.errors import DataError

KNOWN = (
    "expected CSV (.csv), TSV (.tsv), Parquet (.parquet) or JSON lines (.jsonl); CSV and TSV may be gzipped (.csv.gz)"
)
DROP = "Fix the data, or pass on_bad='drop' to drop those rows"
HEADER = "user,item,stars,when\n"
GOOD = [f"u{k % 17},i{k % 31},{k % 5 + 1},2024-01-{k % 28 + 1:02d}" for k in range(500)]


def one_in_a_hundred(spoil):
    """500 lines of which the 41st, 141st and so on are spoilt: lines 42, 142, … of the file."""
    return HEADER + "".join((spoil(line.split(",")) if k % 100 == 40 else line) + "\n" for k, line in enumerate(GOOD))


def parquet(**columns):
    stream = io.BytesIO()
    pl.DataFrame(columns).write_parquet(stream)
    return stream.getvalue()


def archive(*names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name in names:
            file.writestr(name, "user,item\n1,2\n")
    return stream.getvalue()


PAIRS = "user,item\n1,2\n"
# A name, what is in the file, and the message; PATH stands for the file.
MISTAKES = {
    "too many fields": (
        "events.csv",
        one_in_a_hundred(lambda fields: ",".join([*fields, "gift", "wrapped"])),
        "PATH: 5 of 501 lines do not have the 4 fields of the header (line 42 of events.csv has 6: "
        "'u6,i9,1,2024-01-13,gift,wrapped'; also lines 142, 242). "
        "Fix the file, or pass on_bad='drop' to drop those lines",
    ),
    "a missing id": (
        "events.csv",
        one_in_a_hundred(lambda fields: ",".join(["", *fields[1:]])),
        "PATH: column 'user' is null in 5 of 500 rows (first: line 42 ',i9,1,2024-01-13', line 142 ',i16,1,2024-01-01'"
        f", line 242 ',i23,1,2024-01-17'). {DROP}",
    ),
    "a weight that is no number": (
        "events.csv",
        one_in_a_hundred(lambda fields: ",".join([*fields[:2], "n/a", fields[3]])),
        "PATH: column 'stars' is null or not a number in 5 of 500 rows (first: line 42 'u6,i9,n/a,2024-01-13', "
        f"line 142 'u4,i16,n/a,2024-01-01', line 242 'u2,i23,n/a,2024-01-17'). {DROP}",
    ),
    "a time that cannot be read": (
        "events.csv",
        one_in_a_hundred(lambda fields: ",".join([*fields[:3], "13/01/24"])),
        "PATH: column 'when' is null or not a time in 5 of 500 rows (first: line 42 'u6,i9,1,13/01/24', "
        "line 142 'u4,i16,1,13/01/24', line 242 'u2,i23,1,13/01/24'), expected times such as 2011-12-01 08:26. "
        f"{DROP}",
    ),
    "nothing in it": (
        "events.csv",
        "",
        "PATH is empty (0 bytes); expected events: check that it was written or downloaded fully",
    ),
    "Parquet called CSV": (
        "events.csv",
        parquet(user=[1], item=[2]),
        "PATH is a Parquet file although its name says csv; rename it or pass format='parquet'",
    ),
    "CSV called Parquet": (
        "events.parquet",
        PAIRS,
        "PATH is not a Parquet file: it does not begin with PAR1 but with 'user,item'; if it is CSV, pass format='csv'",
    ),
    "gzip called Parquet": (
        "events.parquet",
        gzip.compress(PAIRS.encode()),
        "PATH is a gzipped file, not a Parquet file; decompress it or, if it is CSV, pass format='csv'",
    ),
    "a workbook": (
        "events.xlsx",
        archive("[Content_Types].xml", "xl/workbook.xml"),
        "PATH is an Excel workbook; save the sheet as CSV and pass the CSV",
    ),
    "a workbook called CSV": (
        "events.csv",
        archive("[Content_Types].xml", "xl/workbook.xml"),
        "PATH is an Excel workbook; save the sheet as CSV and pass the CSV",
    ),
    "an old workbook": (
        "events.xls",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100),
        "PATH is an Office file, such as an Excel workbook; save the sheet as CSV and pass the CSV",
    ),
    "a zip archive": (
        "events.zip",
        archive("a.csv", "b.csv", "c.csv", "d.csv"),
        "PATH is a zip archive that holds a.csv, b.csv, c.csv …; unpack it first",
    ),
    "half a zip archive": ("events.csv", archive("a.csv")[:40], "PATH is a zip archive; unpack it first"),
    "bzip2": ("events.csv", b"BZh91AY", "PATH is compressed with bzip2; decompress it, or use gzip instead"),
    "a web page": (
        "events.csv",
        "\n<!DOCTYPE html>\n<html></html>\n",
        "PATH is a web page (HTML); check the download link: it may need a login or a confirmation",
    ),
    "UTF-16": (
        "events.csv",
        PAIRS.encode("utf-16"),
        "PATH is UTF-16 text; convert it, for example with iconv -f utf-16 -t utf-8",
    ),
    "UTF-16 without its mark": (
        "events.csv",
        PAIRS.encode("utf-16-le"),
        "PATH is UTF-16 text; convert it, for example with iconv -f utf-16 -t utf-8",
    ),
    "Latin-1": (
        "events.csv",
        "user,item\n1,tea\n1,café\n".encode("latin-1"),
        "PATH is not UTF-8 text (first: line 3 '1,caf\ufffd'); convert it, for example with iconv -f latin1 -t utf-8",
    ),
    "another column's name": (
        "events.csv",
        "user_id,itme,stars\n1,2,3\n",
        "PATH: no column 'user'; columns found: 'user_id', 'itme', 'stars'; did you mean 'user_id'?",
    ),
    "a slip in a column's name": (
        "events.csv",
        "user,Itme,stars\n1,2,3\n",
        "PATH: no column 'item'; columns found: 'user', 'Itme', 'stars'; did you mean 'Itme'?",
    ),
    "another column's name in Parquet": (
        "events.parquet",
        parquet(UserId=[1], item=[2]),
        "PATH: no column 'user'; columns found: 'UserId', 'item'; did you mean 'UserId'?",
    ),
    "nothing like it": (
        "events.csv",
        "who,what\nann,tea\n",
        "PATH: no column 'user'; columns found: 'who', 'what'",
    ),
    "a header and no more": (
        "events.csv",
        "user,item\n",
        "PATH: there are no rows below the header; expected one line per event",
    ),
    "no header": (
        "events.csv",
        "17,tea\n18,jam\n",
        "PATH: no column 'user'; columns found: '17', 'tea'; is this the first event? Then put a header line above it, "
        "such as user,item",
    ),
    "no header, but a public layout": (
        "ratings_Beauty.csv",
        "A39HTATAQ9V7YF,0205616461,5.0,1369699200\n",
        "PATH: no column 'user'; columns found: 'A39HTATAQ9V7YF', '0205616461', '5.0', '1369699200'; is this the first "
        "event? Then put a header line above it, such as user,item; it looks like a public data set in "
        "the layout amazon-2014: read it with shortlist.datasets.read(path), without context= and item=",
    ),
    "a name that says nothing": (
        "u.data",
        "1\t2\t5\t978300760\n",
        f"PATH: cannot infer the format from the file name 'u.data'; {KNOWN}; rename the file or pass format=, such as "
        "format='csv'; it looks like a public data set in the layout movielens-100k: read it with "
        "shortlist.datasets.read(path), without context= and item=",
    ),
    "JSON in one piece": (
        "events.jsonl",
        '[{"user": 1, "item": 2},\n {"user": 1, "item": 3}]\n',
        'PATH: line 1 is not a JSON object: \'[{"user": 1, "item": 2},\'; expected one object per line',
    ),
}
# Folders with these files in them.
FOLDERS = {
    "empty": ([], f"folder PATH is empty; {KNOWN}"),
    "words only": (["README.md", "LICENSE"], f"folder PATH holds no data files, only LICENSE, README.md; {KNOWN}"),
    "hidden files only": (
        [".DS_Store", ".events.csv"],
        f"folder PATH holds no data files, only hidden ones such as .DS_Store; {KNOWN}",
    ),
    "public data": (
        ["ratings.dat", "movies.dat"],
        f"folder PATH holds no data files, only movies.dat, ratings.dat; {KNOWN}; it looks like a public data set "
        "in the layout movielens-dat: read it with shortlist.datasets.read(path), without context= and item=",
    ),
}


@pytest.fixture
def made(tmp_path):
    """Make the file or the folder of a mistake, and give its path, the message and the columns to ask for."""

    def make(what):
        if what in FOLDERS:
            names, message = FOLDERS[what]
            path = tmp_path / "events"
            path.mkdir()
            for name in names:
                (path / name).write_text("x")
            more = {}
        else:
            name, content, message = MISTAKES[what]
            path = tmp_path / name
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            more = {"weight": "stars", "time": "when"} if isinstance(content, str) and HEADER in content else {}
        return path, message.replace("PATH", str(path)), more

    return make


def failure(path, **more):
    with pytest.raises(DataError) as caught:
        Interactions.read(path, **{"context": "user", "item": "item"} | more)
    return str(caught.value)


def failure_of_fit(path, out, **more):
    """What `shortlist fit` says on standard error, in one line and without a traceback."""
    options = [word for name, value in more.items() for word in (f"--{name}", value)]
    result = CliRunner().invoke(
        app, ["fit", str(path), "--context", "user", "--item", "item", *options, "--out", str(out)]
    )
    assert (result.exit_code, result.stdout) == (1, "")
    assert not out.exists()
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize("what", [*MISTAKES, *FOLDERS])
def test_the_message(made, what):
    path, message, more = made(what)
    assert failure(path, **more) == message


@pytest.mark.parametrize("what", [*MISTAKES, *FOLDERS])
def test_the_message_on_the_command_line(made, tmp_path, what):
    path, message, more = made(what)
    for python, typed in (
        ("on_bad='drop'", "--on-bad drop"),
        ("format='csv'", "--format csv"),
        ("format='parquet'", "--format parquet"),
        ("pass format=,", "pass --format,"),
    ):
        message = message.replace(python, typed)
    said = failure_of_fit(path, tmp_path / "model", **more)
    if ": read it with" in message:  # the command line has other advice
        message, said = message.partition(": read it")[0], said.partition(": omit --context")[0]
    assert said == f"error: {message}"


@pytest.mark.parametrize(
    "what", ["too many fields", "a missing id", "a weight that is no number", "a time that cannot be read"]
)
def test_the_way_out_is_one(made, what):
    path, _, more = made(what)
    events = Interactions.read(path, context="user", item="item", on_bad="drop", **more)
    assert len(events) == 495
    assert sum(events.dropped.values()) == 5


def test_gzip_needs_no_name(tmp_path):
    (tmp_path / "events.csv").write_bytes(gzip.compress(PAIRS.encode()))
    assert len(Interactions.read(tmp_path / "events.csv", context="user", item="item")) == 1


def test_paths(tmp_path):
    for name in ("events.csv", "events-2024.csv", "models.txt"):
        (tmp_path / name).write_text(PAIRS)
    path = tmp_path / "event.csv"
    assert failure(path) == f"no such file or folder: {path}; did you mean events.csv or events-2024.csv?"
    path = tmp_path / "zzz"
    assert failure(path) == f"no such file or folder: {path}"
    assert failure_of_fit(path, tmp_path / "model") == f"error: no such file or folder: {path}"
    path = tmp_path / "dta" / "events.csv"
    assert failure(path) == f"no such file or folder: {path}; the folder {tmp_path / 'dta'} does not exist either"


def test_lines_of_several_files(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\n1,2\n\n3,4\n")
    (tmp_path / "b.csv").write_text("\nuser,item\n\n1,2\n,4\n,5\n")
    assert failure(tmp_path) == (
        f"{tmp_path} (2 files): column 'user' is null in 2 of 5 rows (first: line 5 of b.csv ',4', line 6 of b.csv "
        f"',5'). {DROP}"
    )


def test_lines_with_quoted_line_breaks(tmp_path):
    (tmp_path / "e.csv").write_text('user,item\n1,"a\nb"\n\n,"c\nd"\n')
    assert "(first: line 5 ',\"c')" in failure(tmp_path / "e.csv")


FIELD = st.sampled_from(["a", "", '"x\ny"', '"q""q"', "é", '"\n\n"', "a" * 100])


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    records=st.lists(st.lists(FIELD, min_size=2, max_size=2) | st.none(), min_size=1, max_size=12),
    leading=st.integers(0, 2),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    block=st.integers(1, 30),
)
def test_where_a_row_stands(tmp_path, monkeypatch, records, leading, end, last, block):
    """Rows as polars counts them, against the lines of the file counted by hand."""
    monkeypatch.setattr("shortlist.data.csv_lines._BLOCK", block)
    texts = ["u,v", *("" if record is None else ",".join(record) for record in records)]
    path = Path(tmp_path, "e.csv")
    path.write_bytes((end * leading + end.join(texts) + (end if last else "")).encode())
    frame = pl.read_csv(path, infer_schema=False)
    found = survey(path, ",", 2)
    rows = [k for k, record in enumerate(records) if record is not None]
    begins = [leading + 1 + "\n".join(texts[: k + 1]).count("\n") + 1 for k in rows]
    if not rows:
        return
    assert lines_of_rows(path, rows, found, ",", header=True) == begins
    for row in rows:
        assert (frame.row(row)[0] or "") == records[row][0].strip('"').replace('""', '"')
    content = path.read_bytes().decode().split("\n")
    assert lines_at(path, begins) == [shortened(content[line - 1]) for line in begins]
