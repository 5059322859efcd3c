import json
from collections import Counter

import hypothesis.strategies as st
import polars as pl
import pytest
from hypothesis import given

import shortlist as sl
from cli.helpers import COLUMNS
from shortlist.cli.describe_events import describe_events


def test_model(run, run_json, odd_model):
    told = run_json("inspect", odd_model)
    assert (told["what"], told["kind"]) == ("model", "IALS")
    assert told["settings"] == sl.load(odd_model).settings()
    assert told["tables"]["contexts"]["rows"] == told["contexts"] == 8
    assert told["tables"]["contexts"]["columns"] == [{"name": "user", "type": "String"}]
    model = sl.load(odd_model)
    assert told["tables"]["items"]["sample"] == model.items_.ids()[:5]
    assert told["interactions"] == len(model.seen_)
    assert told["check"] is None
    assert {"name": "item_embeddings_", "dtype": "float32", "shape": [10, 4]} in told["arrays"]
    assert told["bytes"] == sum(one["bytes"] for one in told["files"])
    assert told["shortlist_version"] == sl.__version__
    text = run("inspect", odd_model).stdout
    assert all(word in text for word in ("IALS", "dim", "user: String", "item_embeddings_", "10 × 4", "bytes"))


def test_model_without_its_arrays(run, odd_model, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "manifest.json").write_bytes((odd_model / "manifest.json").read_bytes())
    assert "IALS" in run("inspect", copy).stdout  # nothing else is needed
    assert "missing" in run("inspect", copy, "--check", code=1).stderr


def test_check(run, run_json, odd_model, odd_csv, tmp_path):
    assert run_json("inspect", odd_model, "--check")["check"]["ok"]
    assert "check" in run("inspect", odd_model, "--check").stdout
    copy = tmp_path / "copy"
    copy.mkdir()
    for one in odd_model.iterdir():
        content = one.read_bytes()
        (copy / one.name).write_bytes(content if one.suffix != ".arrow" else content[:-1] + b"?")
    told = run_json("inspect", copy)
    assert told["tables"]["items"]["sample"] is None  # not what was saved, so not shown
    assert "altered" in run("inspect", copy, "--check", code=1).stderr
    error = json.loads(run("inspect", copy, "--check", "--json", code=1).stderr)["error"]
    assert error["type"] == "StorageError"
    assert "for models" in run("inspect", odd_csv, "--check", code=2).stderr


def test_a_model_with_two_columns(run_json, odd_csv, tmp_path):
    args = [*COLUMNS, "--context", "day", "--model", "popularity", "--out", tmp_path / "m"]
    assert run_json("fit", odd_csv, *args)
    assert run_json("inspect", tmp_path / "m")["tables"]["contexts"]["sample"][0] == ["--flag", "mon"]


def test_text(run, run_json, odd_csv, tmp_path):
    told = run_json("inspect", odd_csv)
    assert (told["what"], told["format"], told["rows"]) == ("data", "csv", 96)
    assert {one["name"]: one["type"] for one in told["columns"]} == {
        "user": "text",
        "product": "text",
        "quantity": "integer",
        "when": "time",
        "day": "text",
    }
    assert "quantity" in run("inspect", odd_csv).stdout
    codes = tmp_path / "codes.tsv"
    codes.write_text("zip\tprice\tnone\n007\t1.5\t\n008\t2\t\n")
    told = run_json("inspect", codes)
    assert [(one["type"], one["first"]) for one in told["columns"]] == [
        ("text", "007"),
        ("number", "1.5"),
        ("empty", None),
    ]
    other = tmp_path / "codes.dat"
    other.write_text("a;b\n1;2\n")
    assert len(run_json("inspect", other, "--format", "csv", "--separator", ";")["columns"]) == 2


def test_other_formats(run_json, tmp_path):
    frame = pl.DataFrame({"user": [1, 2, 3], "item": ["a", "b", "c"]})
    frame.write_parquet(tmp_path / "events.parquet")
    frame.write_ndjson(tmp_path / "events.jsonl")
    for name, kind in (("events.parquet", "parquet"), ("events.jsonl", "jsonl")):
        told = run_json("inspect", tmp_path / name)
        assert (told["format"], told["rows"]) == (kind, 3)
        assert told["columns"][0] == {"name": "user", "type": "Int64", "first": "1"}


def test_broken_data(run, tmp_path):
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and then nothing of the kind")
    assert "cannot be read" in run("inspect", broken, code=1).stderr
    (tmp_path / "broken.jsonl").write_text("{nonsense\n")
    assert "error: " in run("inspect", tmp_path / "broken.jsonl", code=1).stderr


def test_events(run, run_json, odd_csv):
    args = ["inspect", odd_csv, *COLUMNS, "--weight", "quantity", "--time", "when"]
    told = run_json(*args)
    assert told["rows"] == 96  # the columns are there too
    found = told["interactions"]
    frame = pl.read_csv(odd_csv)
    pairs = frame.select("user", "product").unique().height
    assert (found["events"], found["contexts"], found["items"], found["pairs"]) == (96, 8, 10, pairs)
    assert found["repeats"] == 96 - pairs
    assert found["times"] == {"first": "2024-01-01", "last": "2024-01-12"}
    assert (found["weights"]["min"], found["weights"]["max"]) == (1, 5)
    assert found["events_per_context"]["mean"] == 12
    most = frame.group_by("product").agg(pl.col("user").n_unique())["user"].max()
    assert found["popular"][0]["contexts"] == most
    text = run(*args).stdout
    assert all(word in text for word in ("events per context", "weights", "most popular", "2024-01-12", "dropped"))
    assert "weights" not in run("inspect", odd_csv, *COLUMNS).stdout


def test_what_would_be_dropped(run, run_json, odd_csv, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text(odd_csv.read_text() + ",tea,1,2024-01-01,mon\nann,tea,-1,2024-01-01,mon\n")
    args = ["inspect", bad, *COLUMNS, "--weight", "quantity"]
    assert run_json(*args)["interactions"]["dropped"] == {"'user' are null": 1, "'quantity' are negative": 1}
    assert "--on-bad drop" in run(*args).stdout


def test_columns_of_events_that_are_missing(run, odd_csv):
    assert "user, product" in run("inspect", odd_csv, "--item", "product", code=2).stderr
    assert "no column 'produkt'" in run("inspect", odd_csv, "--context", "user", "--item", "produkt", code=1).stderr


def test_bundled_data(run, run_json):
    told = run_json("inspect", "online-retail")
    assert told["interactions"]["events"] == 386250
    assert "386,250 of 4,334 contexts" in run("inspect", "online-retail").stdout


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_folder_of_different_tables(run, run_json, tmp_path, suffix):
    tables = {"items": {"item": [1], "title": ["tea"]}, "views": {"user": [1, 2], "item": [1, 1]}}
    for name, columns in tables.items():
        frame = pl.DataFrame(columns)
        path = tmp_path / f"{name}.{suffix}"
        frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    told = run_json("inspect", tmp_path)
    assert [one["rows"] for one in told["tables"]] == [1, 2]
    assert [[column["name"] for column in one["columns"]] for one in told["tables"]] == [
        list(t) for t in tables.values()
    ]
    assert "different columns" in run("inspect", tmp_path).stdout


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40))
def test_events_are_counted_right(events):
    users, items = zip(*events)
    found = describe_events(sl.Interactions.from_frame({"u": users, "i": items}, context="u", item="i"))
    per_user, per_item = Counter(users), Counter(items)
    assert found["repeats"] == len(events) - len(set(events))
    assert found["contexts_with_one_event"] == sum(n == 1 for n in per_user.values()) / len(per_user)
    assert found["items_with_one_event"] == sum(n == 1 for n in per_item.values()) / len(per_item)
    spread = found["events_per_context"]
    assert (spread["min"], spread["max"]) == (min(per_user.values()), max(per_user.values()))
    owners = Counter(item for _, item in set(events))
    assert [one["contexts"] for one in found["popular"]] == sorted(owners.values(), reverse=True)
    assert all(
        (owners[one["item"]], per_item[one["item"]]) == (one["contexts"], one["events"]) for one in found["popular"]
    )


def test_names_are_no_patterns(run_json, tmp_path):
    frame = pl.DataFrame({"user": [1, 2]})
    other = pl.DataFrame({"user": [1], "item": [2], "more": [3]})
    for suffix, write, write_other in (
        ("csv", frame.write_csv, other.write_csv),
        ("parquet", frame.write_parquet, other.write_parquet),
        ("jsonl", frame.write_ndjson, other.write_ndjson),
    ):
        write(tmp_path / f"data[1].{suffix}")
        write_other(tmp_path / f"data1.{suffix}")
        told = run_json("inspect", tmp_path / f"data[1].{suffix}")
        assert (told["rows"], [one["name"] for one in told["columns"]]) == (2, ["user"])


def test_text_is_read_as_fit_reads_it(run, run_json, tmp_path):
    path = tmp_path / "nails.csv"
    path.write_text('\nuser,product,when\nann,5" nail,03/04/2020\n\nbob,6" nail,03/05/2020\n\n')
    told = run_json("inspect", path)
    assert told["rows"] == 2
    assert [(one["name"], one["type"], one["first"]) for one in told["columns"]] == [
        ("user", "text", "ann"),
        ("product", "text", '5" nail'),
        ("when", "text", "03/04/2020"),  # can be two days, so it is no time
    ]
    events = sl.Interactions.read(path, context="user", item="product")
    assert (len(events), events.items.ids()) == (2, ['5" nail', '6" nail'])
    assert "is null or not a time" in run("fit", path, *COLUMNS, "--time", "when", "--out", "x", code=1).stderr


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2020-03-04", "2020-03-05"], "time"),
        (["2020-03-04 10:00", "2020-03-05T10:00:01"], "time"),
        (["2020-03-04T10:00:00Z", "2020-03-05T10:00:00+02:00"], "time"),
        (["2020-03-04", "soon"], "text"),
        (["1" * 30, "2"], "text"),  # too long for an integer: ids would stay text
        (["1e3", "2.5"], "number"),
    ],
)
def test_kinds_of_text(run_json, tmp_path, values, kind):
    path = tmp_path / "values.csv"
    path.write_text("\n".join(["user,value", *(f"1,{value}" for value in values)]))
    assert run_json("inspect", path)["columns"][1]["type"] == kind


def test_lines_with_too_many_fields_are_counted(run, run_json, tmp_path):
    path = tmp_path / "ragged.csv"
    path.write_text("user,item\n1,2\n1,2,3\n4\n5,6\n")
    told = run_json("inspect", path)
    assert (told["rows"], told["ragged"]) == (2, 2)
    assert "2; 2 more lines" in run("inspect", path).stdout


def test_columns_in_another_order_are_refused_as_fit_does(run, tmp_path):
    (tmp_path / "a.csv").write_text("user,item\n1,2\n")
    (tmp_path / "b.csv").write_text("item,user\n1,2\n")
    assert "expected the same columns" in run("inspect", tmp_path, code=1).stderr


def test_folders_that_are_no_model(run, run_json, tmp_path):
    assert "is empty" in run("inspect", tmp_path, code=1).stderr
    (tmp_path / "manifest.json").write_text('{"name": "of something else"}')
    assert "manifest" in run("inspect", tmp_path, code=1).stderr
    (tmp_path / "events.csv").write_text("user,item\n1,2\n")
    assert run_json("inspect", tmp_path)["what"] == "data"
