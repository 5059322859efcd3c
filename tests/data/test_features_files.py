"""Features from files, and whether their ids meet those of events from files of the same kind."""

from __future__ import annotations

import json

import polars as pl
import pytest

import shortlist as sl
from shortlist.errors import DataError

CSV = """sku,brand,genres,price,note
7,ACME,Drama|War,1.5,x
8,,Drama,,
9,"A, B",,2.5,"two
lines"
"""
NAMED = {"id": "sku", "categorical": ["brand"], "multi_valued": {"genres": "|"}, "numeric": ["price"]}
EXPECTED = {
    7: {"brand=ACME": 1, "genres=Drama": 0.5, "genres=War": 0.5, "price": -1},
    8: {"brand (missing)": 1, "genres=Drama": 1, "price (missing)": 1},
    9: {"brand=A, B": 1, "genres (missing)": 1, "price": 1},
}


@pytest.fixture
def write(tmp_path):
    def put(name, text):
        (tmp_path / name).write_text(text, newline="")
        return tmp_path / name

    return put


@pytest.mark.parametrize("format", ["csv", "tsv", "parquet", "jsonl"])
def test_any_format_gives_the_same_features(format, write, tmp_path):  # noqa: A002
    path = tmp_path / f"items.{format}"
    rows = [
        {"sku": 7, "brand": "ACME", "genres": "Drama|War", "price": 1.5, "note": "x"},
        {"sku": 8, "brand": None, "genres": "Drama", "price": None, "note": ""},
        {"sku": 9, "brand": "A, B", "genres": None, "price": 2.5, "note": "two\nlines"},
    ]
    if format == "csv":
        write(path.name, CSV)
    elif format == "tsv":
        pl.DataFrame(rows).write_csv(path, separator="\t")
    elif format == "parquet":
        pl.DataFrame(rows).write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    features = sl.Features.read(path, **NAMED, ignore="note")
    assert {one: features[one] for one in features.ids} == EXPECTED
    assert repr(features).endswith("columns not used: note")
    again = features.encode(path)
    assert {one: again[one] for one in again.ids} == EXPECTED


def test_lists_in_json_and_parquet(tmp_path):
    frame = pl.DataFrame({"id": ["a", "b"], "tags": [["x", "y"], []]})
    frame.write_parquet(tmp_path / "i.parquet")
    frame.write_ndjson(tmp_path / "i.jsonl")
    for name in ("i.parquet", "i.jsonl"):
        features = sl.Features.read(tmp_path / name, id="id")
        assert (features["a"], features["b"]) == ({"tags=x": 0.5, "tags=y": 0.5}, {"tags (missing)": 1})


def test_kinds_in_text_files_are_inferred_by_how_cells_are_written(write):
    path = write("i.csv", "id,zip,size,half,mixed,none\n1,007,1,0.5,1,\n2,100,-2e3,,x,\n")
    kinds = {field.name: field.kind for field in sl.Features.read(path, id="id").fields}
    assert kinds == {
        **{"zip": "categorical", "size": "numeric", "half": "numeric", "mixed": "categorical", "none": "categorical"}
    }


def test_folders_patterns_and_separators(write, tmp_path):
    write("a.csv", "id;k\n1;x\n")
    write("b.csv", "id;k\n2;y\n")
    for path in (tmp_path, tmp_path / "*.csv"):
        assert sl.Features.read(path, id="id", separator=";").ids == [1, 2]
    assert sl.Features.read(write("c.txt", "id\tk\n1\tx\n"), id="id", format="tsv").ids == [1]


# --- ids that meet ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "items", "without", "cold"),
    [
        ("7 8", "7 8 9", [], [9]),
        ("007 8", "007 8 9", [], ["9"]),
        ("A1 8", "7 8", ["A1"], ["7"]),  # text there, whole numbers here
        ("7 8", "A1 8 007", [7], ["A1", "007"]),  # the other way round
        ("007 7", "7 8", ["007"], ["8"]),
    ],
)
def test_ids_of_text_files_meet_by_their_spelling(events, items, without, cold, write):
    path = write("events.csv", "u,i\n" + "".join(f"1,{one}\n" for one in events.split()))
    vocabulary = sl.Interactions.read(path, context="u", item="i").items
    features = sl.Features.read(write("items.csv", "i,k\n" + "".join(f"{i},k{i}\n" for i in items.split())), id="i")
    aligned = features.align(vocabulary)
    assert aligned.without == without
    assert aligned.cold.ids == cold
    for r, one in enumerate(vocabulary.ids()):
        (column,) = aligned.rows.row(r)
        assert aligned.feature_names[column] == ("k (missing)" if one in without else f"k=k{one}")
    for one in cold:
        assert aligned.cold[one] == {f"k=k{one}": 1}
    for one in items.split():  # 7 and '7' are the same in a text file
        assert features[one] == {f"k=k{one}": 1}
        if not one.startswith(("0", "A")):
            assert features[int(one)] == features[one]


def test_tuples_in_text_files_meet_by_their_spelling(write):
    events = write("events.csv", "user,day,i\n1,mo,5\n2,7,5\n")
    features = sl.Features.read(write("days.csv", "user,day,rain\n1,7,yes\n2,7,no\n"), id=["user", "day"])
    aligned = features.align(sl.Interactions.read(events, context=["user", "day"], item="i").contexts)
    assert aligned.without == [(1, "mo")]
    assert aligned.cold.ids == [(1, "7")]
    assert features[1, "7"] == features[1, 7] == {"rain=yes": 1}


def test_joining_text_with_a_frame_is_by_spelling(write):
    left = sl.Features.read(write("a.csv", "id,x\n1,p\nA,q\n"), id="id")
    right = sl.Features.from_frame({"id": [1, 2], "y": ["r", "s"]}, id="id")
    for both in (left.join(right), right.join(left)):
        assert sorted(both.ids) == ["1", "2", "A"]
        assert both["1"] == both[1] == {"x=p": 1, "y=r": 1}
        assert both["A"] == {"x=q": 1, "y (missing)": 1}


# --- what is wrong with a file ----------------------------------------------------------------------------------------


def test_rows_that_cannot_be_used_are_refused_or_counted(write):
    path = write("i.csv", "id,k,x\n1,a,1\n\n,b,2\n2,c\n,,\n3,d,\n")
    with pytest.raises(DataError, match=r"1 of 6 lines do not have the 3 fields"):
        sl.Features.read(path, id="id")
    features = sl.Features.read(path, id="id", on_bad="drop")
    assert features.ids == [1, 3]
    assert features.dropped == {"'id' are null": 2, "lines with another number of fields than the header": 1}
    assert features.feature_names == ("k=a", "k=d", "k (missing)", "x", "x (missing)")
    with pytest.raises(DataError, match=r"'id' is null in 2 of 3 rows. Fix the data, or pass on_bad='drop'"):
        sl.Features.read(write("j.csv", "id,k\n1,a\n,b\n,\n"), id="id")


def test_json_behind_a_mark(write):
    features = sl.Features.read(write("i.jsonl", '\ufeff{"id": 1, "k": "a"}\n{"id": 2, "k": "b"}\n'), id="id")
    assert features[2] == {"k=b": 1}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("i.csv", "id,k,p\n1,a,1\n1,b,2\n", r"1 of 2 rows of .*i.csv repeats an earlier id \(first: 1\)"),
        (
            "i.csv",
            "id,k,p\n1,a,many\n2,b,2\n",
            r"i.csv: column 'p' is not a number in 1 of 2 rows \(first: row 1, 'many'\)",
        ),
        ("i.csv", "id,k,p\n1,a,inf\n", "'p' is infinite or too large in 1 of 1 rows"),
        ("i.csv", "id,k\n1,a\n", "no column 'p'; columns found: 'id', 'k'"),
        ("i.csv", "sku,k,p\n1,a,1\n", "no column 'id'"),
        ("i.csv", "id,k,p\n", "no rows"),
        ("i.csv", "", "is empty"),
        ("i.jsonl", '{"id": 1, "k": "a", "p": 1}\n{"id": "1", "k": "a", "p": 1}\n', "column 'id' mixes types"),
        ("i.jsonl", '{"id": 1, "k": "a", "p": 1}\n{oops\n', "line 2 is not a JSON object"),
        ("i.parquet", "PAR1", "cannot be read"),
        ("i.xyz", "id,k,p\n", "cannot infer the format"),
        ("u.data", "1\t2\t3\t4\n", r"pass format=, such as format='csv'$"),  # public events, but no features
    ],
)
def test_broken_files_are_refused(name, text, message, write):
    with pytest.raises(DataError, match=message):
        sl.Features.read(write(name, text), id="id", categorical="k", numeric="p")
