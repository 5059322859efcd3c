import polars as pl
import pytest

import shortlist as sl


def test_list(run, run_json):
    (told,) = run_json("datasets")["datasets"]
    assert told["name"] == "online-retail"
    text = run("datasets").stdout
    assert "CC BY 4.0" in text
    assert told["attribution"] in text


def test_one(run, run_json):
    told = run_json("datasets", "online-retail")
    assert told["events"] == 386250
    assert told["columns"] == {"context": "customer", "item": "product", "weight": "quantity", "time": "time"}
    assert "386,250 events" in run("datasets", "online-retail").stdout
    assert "did you mean 'online-retail'" in run("datasets", "online-retial", code=1).stderr


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_write(run, run_json, tmp_path, suffix):
    path = tmp_path / f"events.{suffix}"
    assert run_json("datasets", "online-retail", "--out", path)["path"] == str(path)
    events = sl.Interactions.read(path, context="customer", item="product", weight="quantity", time="time")
    bundled = sl.datasets.load("online-retail").interactions
    assert events.to_polars().equals(bundled.to_polars().cast(events.to_polars().schema))
    before = path.stat().st_mtime_ns
    assert "--force" in run("datasets", "online-retail", "--out", path, code=1).stderr
    assert path.stat().st_mtime_ns == before
    run("datasets", "online-retail", "--out", path, "--force")
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_nothing_half_written_stays(run, tmp_path, monkeypatch):
    def full(self, file):
        file.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_csv", full)
    assert "No space left" in run("datasets", "online-retail", "--out", tmp_path / "x.csv", code=1).stderr
    assert "parquet" in run("datasets", "online-retail", "--out", tmp_path / "x.txt", code=1).stderr
    assert "directory" in run("datasets", "online-retail", "--out", tmp_path / "no" / "x.parquet", code=1).stderr
    assert not list(tmp_path.iterdir())
