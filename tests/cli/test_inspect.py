import polars as pl

import shortlist as sl


def test_model(run, run_json, odd_model):
    told = run_json("inspect", odd_model)
    assert (told["what"], told["kind"]) == ("model", "IALS")
    assert told["settings"] == sl.load(odd_model).settings()
    assert told["tables"]["contexts"] == {"rows": 8, "columns": [{"name": "user", "type": "String"}]}
    assert {"name": "item_embeddings_", "dtype": "float32", "shape": [10, 4]} in told["arrays"]
    assert told["bytes"] == sum(one["bytes"] for one in told["files"])
    assert told["shortlist_version"] == sl.__version__
    text = run("inspect", odd_model).stdout
    assert all(word in text for word in ("IALS", "dim", "user: String", "item_embeddings_", "10 × 4", "bytes"))


def test_model_without_its_arrays(run, odd_model, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "manifest.json").write_bytes((odd_model / "manifest.json").read_bytes())
    assert "IALS" in run("inspect", copy).stdout  # nothing else is read


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
