import json
import shutil

import pytest

import shortlist as sl
from cli.helpers import COLUMNS, SMALL
from golden.subjects import HERE
from shortlist.storage import read_manifest


def test_a_model_of_an_earlier_version(run, run_json, tmp_path):
    told = run_json("convert", HERE / "models" / "IALS", tmp_path / "new")
    assert (told["old"]["format_version"], told["new"]["format_version"]) == (1, 2)
    assert told["new"]["bytes"] == read_manifest(tmp_path / "new").total_bytes
    before, after = (sl.load(path) for path in (HERE / "models" / "IALS", tmp_path / "new"))
    contexts = before.contexts_.ids()
    assert before.recommend(contexts).ids == after.recommend(contexts).ids
    text = run("convert", HERE / "models" / "IALS", tmp_path / "again").stdout
    assert all(word in text for word in ("converted", "format 1", "format 2", str(tmp_path / "again")))


def test_never_in_place(run, odd_model, tmp_path):
    for target in (odd_model, tmp_path):
        assert "already exists" in run("convert", odd_model, target, code=1).stderr
    assert "no model at" in run("convert", tmp_path / "nothing", tmp_path / "new", code=1).stderr


@pytest.fixture
def altered(odd_model, tmp_path):
    """A model in which one byte of an embedding has changed."""
    shutil.copytree(odd_model, tmp_path / "altered")
    path = tmp_path / "altered" / read_manifest(odd_model).arrays_file
    raw = bytearray(path.read_bytes())
    raw[raw.index(sl.load(odd_model).context_embeddings_.tobytes())] ^= 1
    path.write_bytes(raw)
    return tmp_path / "altered"


def test_every_command_verifies_unless_told_otherwise(run, altered, odd_csv, tmp_path):
    item = sl.load(altered).items_.ids()[0]
    commands = {
        "recommend": ["recommend", altered, "--history", item],
        "similar": ["similar", altered, "--", item],
        "batch": ["batch", altered, "--out", tmp_path / "lists.parquet"],
        "fit": ["fit", odd_csv, *COLUMNS, *SMALL, "--start", altered, "--out", tmp_path / "m"],
    }
    for command in commands.values():
        assert "altered" in run(*command, code=1).stderr
        run(command[0], "--no-verify", *command[1:])
    assert "altered" in run("inspect", altered, "--check", code=1).stderr
    assert "altered" in run("convert", altered, tmp_path / "new", code=1).stderr
    refused = run("fit", odd_csv, *COLUMNS, *SMALL, "--no-verify", "--out", tmp_path / "n", "--json", code=2)
    assert "--start" in json.loads(refused.stderr)["error"]["message"]
