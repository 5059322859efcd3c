import json
import os
import signal
import subprocess
import sys
import threading
import time

import polars as pl
import pytest

import shortlist as sl
from cli.helpers import COLUMNS, SMALL, program, write_events
from shortlist.storage.draft import folder_of


@pytest.fixture(scope="module")
def model(odd_model):
    return sl.load(odd_model)


def test_everybody(run, run_json, odd_model, model, tmp_path):
    out = tmp_path / "lists.parquet"
    told = run_json("batch", odd_model, "--out", out, "-n", 3)
    expected = model.recommend(model.contexts_.ids(), n=3).to_polars()
    assert pl.read_parquet(out).equals(expected)
    assert {name: told[name] for name in ("path", "contexts", "rows", "short", "resumed", "skipped")} == {
        "path": str(out),
        "contexts": 8,
        "rows": expected.height,
        "short": sum(len(one) < 3 for one in model.recommend(model.contexts_.ids(), n=3).ids),
        "resumed": 0,
        "skipped": [],
    }
    assert told["bytes"] == out.stat().st_size
    result = run("batch", odd_model, "--out", tmp_path / "all.csv", "--keep-seen", "--quiet")
    assert result.stderr == ""
    assert "recommendations  80" in result.stdout
    assert pl.read_csv(tmp_path / "all.csv").height == 80


def test_a_file_that_is_there(run, odd_model, tmp_path):
    out = tmp_path / "lists.parquet"
    run("batch", odd_model, "--out", out, "-n", 1)
    told = run("batch", odd_model, "--out", out, "-n", 2, code=1).stderr
    assert "already exists; pass --overwrite to replace it" in told
    run("batch", odd_model, "--out", out, "-n", 2, "--overwrite", "--keep-seen")
    assert pl.read_parquet(out).height == 16


def test_lists_and_filters(run, odd_model, tmp_path):
    out, deny = tmp_path / "lists.jsonl", tmp_path / "deny.txt"
    deny.write_text("a,b\ntea\n")
    run("batch", odd_model, "--out", out, "--lists", "--keep-seen", "--deny", f"@{deny}", "--allow", "tea,@at, spaced ")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(set(row["product"]) == {"@at", " spaced "} for row in rows)
    told = run("batch", odd_model, "--out", tmp_path / "x.csv", "--lists", code=1).stderr
    assert "omit --lists, or use a .parquet or .jsonl" in told
    run("batch", odd_model, "--out", tmp_path / "x.parquet", "--allow", "tea", "--deny", "tea")
    assert not pl.read_parquet(tmp_path / "x.parquet").height


def test_contexts_of_a_file(run, run_json, odd_model, int_model, tmp_path):
    chosen = ["Ünï", "ann", "bob, jr."]
    (tmp_path / "who.txt").write_text("\n".join(chosen) + "\n", encoding="utf-8")
    pl.DataFrame({"other": [1, 2, 3, 4], "user": [*chosen, "ann"]}).write_csv(tmp_path / "who.csv")
    pl.DataFrame({"user": chosen}).write_parquet(tmp_path / "who.parquet")
    pl.DataFrame({"user": chosen}).write_ndjson(tmp_path / "who.jsonl")
    for ending in ("txt", "csv", "parquet", "jsonl"):
        out = tmp_path / f"lists-{ending}.parquet"
        assert run_json("batch", odd_model, "--out", out, "--contexts", tmp_path / f"who.{ending}")["contexts"] == 3
        assert set(pl.read_parquet(out)["user"]) == set(chosen)
    (tmp_path / "few.csv").write_text("user\n105\n101\n")
    told = run_json("batch", int_model, "--out", tmp_path / "i.parquet", "--contexts", tmp_path / "few.csv")
    assert told["contexts"] == 2
    (tmp_path / "few.txt").write_text("105\nann\n999\n")
    told = run("batch", int_model, "--out", tmp_path / "j.parquet", "--contexts", tmp_path / "few.txt", code=1).stderr
    assert "unknown context 'ann'" in told
    told = run_json(
        "batch", int_model, "--out", tmp_path / "j.parquet", "--contexts", tmp_path / "few.txt", "--unknown", "skip"
    )
    assert (told["contexts"], told["skipped"]) == (1, ["ann", 999])


def test_ids_that_look_like_numbers(run, tmp_path):
    """A model of text ids, some of which look like numbers, and a CSV of those alone."""
    write_events(tmp_path / "events.csv", ["7", "8", "nine", "007"], ["1", "2", "x"])
    run("fit", tmp_path / "events.csv", *COLUMNS, *SMALL, "--out", tmp_path / "m")
    (tmp_path / "who.csv").write_text("user\n8\n7\n")
    run("batch", tmp_path / "m", "--out", tmp_path / "x.csv", "--contexts", tmp_path / "who.csv", "--keep-seen")
    assert set(pl.read_csv(tmp_path / "x.csv", infer_schema=False)["user"]) == {"7", "8"}


def test_pairs(run, run_json, odd_csv, tmp_path):
    columns = ["--context", "user", "--context", "day", "--item", "product"]
    run("fit", odd_csv, *columns, "--model", "parafac", *SMALL, "--out", tmp_path / "m")
    (tmp_path / "who.txt").write_text("ann,mon\nu6,tue\n")
    told = run_json("batch", tmp_path / "m", "--out", tmp_path / "x.parquet", "--contexts", tmp_path / "who.txt")
    assert told["contexts"] == 2
    assert pl.read_parquet(tmp_path / "x.parquet").columns == ["user", "day", "product", "rank", "score"]
    (tmp_path / "who.csv").write_text("day,user\nmon,ann\nwed,u6\n")
    out = ["--out", tmp_path / "y.parquet", "--contexts", tmp_path / "who.csv"]
    assert "unknown context ('u6', 'wed')" in run("batch", tmp_path / "m", *out, code=1).stderr
    assert run_json("batch", tmp_path / "m", *out, "--unknown", "skip")["skipped"] == [["u6", "wed"]]
    assert run_json("batch", tmp_path / "m", *out, "--unknown", "average", "--overwrite")["contexts"] == 2


def test_a_cell_that_is_no_number(run, run_json, day_model, int_model, tmp_path):
    """It is not known, and changes nothing for the other cells of its column."""
    model = sl.load(day_model)
    rows = ["u1,1", "u2,1", "u3,sunday", "u4,003", "u4,3"]
    ids = [("u1", 1), ("u2", 1), ("u3", "sunday"), ("u4", "003"), ("u4", 3)]
    (tmp_path / "who.csv").write_text("\n".join(["user,day", *rows]) + "\n")
    (tmp_path / "who.txt").write_text("\n".join(rows) + "\n")
    for ending in ("csv", "txt"):
        words = ["batch", day_model, "--contexts", tmp_path / f"who.{ending}", "--overwrite"]
        out = tmp_path / "x.parquet"
        assert run_json(*words, "--out", out, "--unknown", "skip")["skipped"] == [["u3", "sunday"], ["u4", "003"]]
        assert pl.read_parquet(out).equals(model.recommend(ids, n=100, unknown="skip").to_polars())
        told = run(*words, "--out", out, "--unknown", "average", code=1).stderr
        assert "context ('u3', 'sunday'): 'day' is not of type Int64" in told
        assert "correct it, or pass --unknown skip to drop it" in told
        told = run(*words, "--out", out, code=1).stderr
        assert "unknown context ('u3', 'sunday') (2 of 5 contexts have an unknown part" in told
        assert "pass --unknown skip to drop them, or --unknown average to use the average" in told
    for name, lines in (("few.csv", "user\n105\nann\n101\n"), ("few.txt", "101\nann\n105\n")):
        (tmp_path / name).write_text(lines)
        out = tmp_path / f"of-{name}.csv"
        told = run_json("batch", int_model, "--contexts", tmp_path / name, "--out", out, "--unknown", "skip")
        assert (told["contexts"], told["skipped"]) == (2, ["ann"])
        assert pl.read_csv(out)["user"].unique(maintain_order=True).to_list() == [101, 105]


def test_lines_with_another_number_of_parts(run, run_json, day_model, tmp_path):
    (tmp_path / "who.txt").write_text("u1,1\n\nu2\nu3,1,2\n")
    words = ["batch", day_model, "--out", tmp_path / "x.parquet", "--contexts", tmp_path / "who.txt"]
    for more in ([], ["--unknown", "average"]):
        told = run(*words, *more, code=1).stderr
        assert "who.txt: line 3 'u2' has 1 part; expected 2, separated by commas (user,day)" in told
        assert "fix it, or pass --unknown skip to drop it" in told
    told = run_json(*words, "--unknown", "skip")
    assert (told["contexts"], told["skipped"]) == (1, ["u2", "u3,1,2"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe(run_json, int_model, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("105\n101\n",))
    writer.start()
    assert run_json("batch", int_model, "--out", tmp_path / "x.parquet", "--contexts", pipe)["contexts"] == 2
    writer.join()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "user,x\n101,1\n,2\n", "column 'user' is null in 1 of 2 rows. Fix the data\n"),
        ("a.csv", "user,x\n101,1\n102\n", "(line 3 of a.csv has 1: '102'). Fix the file\n"),
        ("a.jsonl", '{"user": 101}\n{"user": null}\n', "is null in 1 of 2 rows (first: line 2 "),
        ("a.csv", "user\n", "there are no rows below the header; expected one line per context\n"),
        ("a.csv", "", "is empty (0 bytes); expected contexts"),
        ("a.csv", "user;x\n101;1\n", "is the separator a semicolon? Then use commas, or tabs in a .tsv\n"),
        ("a.csv", "101\n102\n", "is this the first context? Then put a header line above it"),
        ("a.doc", "101\n", "expected CSV (.csv), "),
        ("a.doc", "101\n", "; or .txt, with one context per line\n"),
        ("a.csv", "PAR1", "its name says csv; rename it\n"),
        ("a.parquet", "user\n101\n", "but with 'user'; if it is CSV, rename it\n"),
        (
            "a.txt",
            "101\n999\n",
            "unknown context 999 (1 of 2 ids is unknown; the model knows 8 ids); pass --unknown skip",
        ),
    ],
)
def test_advice_that_can_be_followed(run, int_model, tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    told = run("batch", int_model, "--out", tmp_path / "x.csv", "--contexts", tmp_path / name, "-q", code=1).stderr
    assert message in told
    for strange in ("--on-bad", "--format", "--separator", "fold_in", "event"):
        assert strange not in told
    assert os.listdir(tmp_path) == [name]


def test_nobody_is_known(run, int_model, tmp_path):
    (tmp_path / "who.txt").write_text("ann\n999\n")
    words = ["batch", int_model, "--out", tmp_path / "x.csv", "--contexts", tmp_path / "who.txt", "--unknown"]
    assert "all 2 requested contexts are unknown, such as 'ann'" in run(*words, "skip", code=1).stderr
    assert "'average', which needs contexts of several parts" in run(*words, "average", code=1).stderr


def test_slates(run, odd_model, model, tmp_path):
    run("batch", odd_model, "--out", tmp_path / "x.parquet", "-n", 3, "--slate", "mmr", "--diversity", 1, "--keep-seen")
    expected = model.recommend(model.contexts_.ids(), n=3, exclude_seen=False, slate=sl.slates.MMR(1.0)).to_polars()
    assert pl.read_parquet(tmp_path / "x.parquet").equals(expected)


def test_two_stages(run_json, odd_csv, tmp_path):
    pytest.importorskip("lightgbm")
    data = sl.Interactions.read(odd_csv, context="user", item="product")
    split = sl.splits.at_random(data, test=0.3, seed=0)
    first = sl.IALS(dim=4, epochs=3).fit(split.train)
    two = sl.TwoStage(first, sl.LambdaMART(trees=5, min_leaf=1), candidates=6).fit(split)
    two.save(tmp_path / "m")
    told = run_json("batch", tmp_path / "m", "--out", tmp_path / "x.parquet", "-n", 4)
    assert told["contexts"] == 8
    assert pl.read_parquet(tmp_path / "x.parquet").equals(two.recommend(two.contexts_.ids(), n=4).to_polars())


@pytest.mark.parametrize("out", ["", ".", "/", "x.doc", "x"])
def test_names_that_say_nothing(run, odd_model, tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    assert "expected a name that ends in .parquet" in run("batch", odd_model, "--out", out, code=1).stderr
    assert os.listdir(tmp_path) == []


def test_wrong_files(run, odd_model, tmp_path):
    def fails(*args):
        return run("batch", odd_model, *args, code=1).stderr

    out = ["--out", tmp_path / "x.parquet"]
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "head.csv").write_text("user\n")
    (tmp_path / "other.csv").write_text("customer\nann\n")
    pl.DataFrame({"user": []}, schema={"user": pl.String}).write_parquet(tmp_path / "none.parquet")
    assert "is empty; expected one context per line" in fails(*out, "--contexts", tmp_path / "empty.txt")
    assert "no rows" in fails(*out, "--contexts", tmp_path / "head.csv")
    assert "no rows" in fails(*out, "--contexts", tmp_path / "none.parquet")
    assert "user" in fails(*out, "--contexts", tmp_path / "other.csv")
    assert "no such file" in fails(*out, "--contexts", tmp_path / "nowhere.csv")
    assert "no such file" in fails(*out, "--contexts", tmp_path / "nowhere.txt")
    assert "expected a name that ends in .parquet" in fails("--out", tmp_path / "x.doc")
    assert "is a directory" in fails("--out", tmp_path / "folder.parquet")
    assert "cannot write to" in fails("--out", tmp_path / "empty.txt" / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()
    assert not folder_of(tmp_path / "x.parquet").exists()


def test_options_from_a_file(run, odd_model, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(f'[batch]\nout = "{tmp_path / "x.csv"}"\nn = 2\ndeny = ["a,b"]\nkeep-seen = true\n')
    run("batch", odd_model, "--config", config)
    found = pl.read_csv(tmp_path / "x.csv")
    assert found.height == 16
    assert "a,b" not in set(found["product"])


_SLOW = """
import sys, time
from shortlist.batch import list_writer as batch
from shortlist.storage.draft import Draft
batch.ROWS = 2  # a context at a time
append = Draft.append
def slow(self, content, about):
    append(self, content, about)
    time.sleep(0.3)
Draft.append = slow
from shortlist.cli import main
sys.argv[0] = "shortlist"
main()
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_going_on(run, odd_model, model, tmp_path, sent):
    out = tmp_path / "lists.parquet"
    words = ["batch", str(odd_model), "--out", str(out), "-n", "2"]
    child = subprocess.Popen([sys.executable, "-c", _SLOW, *words], stderr=subprocess.PIPE, text=True)
    journal = folder_of(out) / "journal"
    with child:
        for _ in range(600):
            time.sleep(0.05)
            if journal.exists() and journal.read_bytes().count(b"\n") >= 3:
                break
        child.send_signal(sent)
        told = child.stderr.read()
    assert not out.exists()
    if sent is signal.SIGINT:
        assert child.returncode == 130
        assert f"interrupted: finished work is in {folder_of(out)}; run the same command again to resume" in told
    # other settings are refused: here the size of a block is one of them
    told = run(*words, code=1).stderr
    assert "block was 1 and is 65536" in told
    assert "pass --restart to start over" in told
    assert "resuming" not in told
    done = subprocess.run([sys.executable, "-c", _SLOW, *words, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["resumed"] >= 2
    assert done.stderr.startswith("resuming lists.parquet: ")
    found, expected = pl.read_parquet(out), model.recommend(model.contexts_.ids(), n=2).to_polars()
    assert found.drop("score").equals(expected.drop("score"))
    assert sorted(os.listdir(tmp_path)) == ["lists.parquet"]


def test_standard_streams(odd_model, tmp_path):
    done = program("batch", odd_model, "--out", tmp_path / "x.parquet", "--json")
    assert json.loads(done.stdout)["contexts"] == 8
    assert done.stderr == "writing x.parquet: 8/8 contexts\n"
