import importlib
import shlex

import numpy as np
import pytest

import shortlist as sl
from cli.helpers import COLUMNS, words, write_events
from shortlist.errors import DataError

pytest.importorskip("optuna")

TIMED = [*COLUMNS, "--time", "when", "--repeats", "keep"]
FEW = ["--model", "ease", "--model", "itemknn", "--trials", 2]


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    """Enough contexts to tell models apart."""
    users, items = [f"u{k}" for k in range(40)], [f"i{k}" for k in range(12)]
    return write_events(tmp_path_factory.mktemp("compare") / "events.csv", users, items)


def module(name):
    return importlib.import_module(f"shortlist.{name}")


def test_what_it_says(run, csv):
    result = run("compare", csv, *TIMED, *FEW)
    text = result.stdout
    assert "Split by time" in text
    assert "recall@20" in text
    assert "ndcg@20" in text
    assert "coverage@20" in text
    assert "popularity@20" in text
    assert "95% interval" in text
    assert "best" in text
    assert all(text.count(name) >= 2 for name in ("EASE", "ItemKNN", "Popularity"))  # in both tables
    assert "shortlist fit" in text
    tables = "\n".join(text.split("\n\n")[:3])
    assert max(map(len, tables.splitlines())) <= 100
    assert "EASE, 2 of 3" in result.stderr
    assert run("compare", csv, *TIMED, *FEW, "--quiet").stderr == ""


def test_json(run, run_json, csv, tmp_path):
    args = ["--metric", "recall@3", "--metrics", "hit@3", "--out", tmp_path / "m"]
    told = run_json("compare", csv, *TIMED, *FEW, *args)
    assert {one["model"] for one in told["models"]} == {"Popularity", "EASE", "ItemKNN"}
    assert {one["trials"] for one in told["models"]} == {2}
    means = [one["metrics"]["recall@3"]["mean"] for one in told["models"]]
    assert means == sorted(means, reverse=True)
    assert list(told["models"][0]["metrics"]) == ["recall@3", "hit@3", "coverage@20", "popularity@20"]
    assert told["models"][0]["verdict"] == "best"
    assert told["models"][1]["low"] <= told["models"][1]["difference"] <= told["models"][1]["high"]
    assert any(one["frontier"] for one in told["models"])
    winner = next(one for one in told["models"] if one["model"] == told["winner"])
    assert winner["model"] in told["verdict"]
    model = sl.load(tmp_path / "m")
    assert type(model).__name__ == told["winner"]
    assert model.settings() == winner["settings"]
    assert len(model.contexts_) == 40  # fitted to all events
    run(*shlex.split(told["command"])[1:])
    assert sl.load(tmp_path / "m").settings() == winner["settings"]


@pytest.mark.parametrize(
    ("args", "outer", "inner"),
    [
        (["--repeats", "keep"], "time: test from 2024-01-11", "time: test from 2024-01-09"),
        (["--test", "2024-01-07", "--repeats", "keep"], "time: test from 2024-01-07", "time: test from 2024-01-04"),
        (["--split", "last", "--test", "2", "--repeats", "keep"], "last 2 out", "last 2 out"),
        (["--split", "random", "--test", "0.3", "--repeats", "keep"], "chance: 30% of", "chance: 3"),
        (
            ["--split", "contexts", "--test", "10", "--fold-in", "0.5"],
            "held-out contexts: 10, 50%",
            "held-out contexts: 10, 50%",
        ),
    ],
)
def test_validation_is_of_the_same_kind(run_json, csv, args, outer, inner):
    told = run_json("compare", csv, *COLUMNS, "--time", "when", "--model", "ease", "--trials", 1, *args)
    assert outer in told["split"]["protocol"]
    assert inner in told["validation"]["protocol"]
    assert told["validation"]["train"]["events"] < told["split"]["train"]["events"]


def test_published_data(run_json, tmp_path):
    rng = np.random.default_rng(0)
    for name, size in (("train", 6), ("test", 2)):
        rows = [f"{u} {' '.join(map(str, rng.choice(20, size, replace=False)))}\n" for u in range(30)]
        (tmp_path / f"{name}.txt").write_text("".join(rows))
    args = ["compare", tmp_path, "--model", "ease", "--trials", 1]
    told = run_json(*args)
    assert "train.txt and test.txt" in told["split"]["protocol"]
    assert "chance" in told["validation"]["protocol"]
    (tmp_path / "valid.txt").write_text("".join(f"{u} {rng.integers(20)}\n" for u in range(30)))
    assert "valid.txt" in run_json(*args)["validation"]["protocol"]
    assert "chance" in run_json(*args, "--split", "random")["validation"]["protocol"]


def test_who_cannot_is_left_out(run, run_json, csv, monkeypatch):
    def refuse(n_items):
        raise DataError(f"EASE on {n_items} items needs too much")

    monkeypatch.setattr(module("recommenders.ease"), "_refuse_too_large", refuse)
    result = run("compare", csv, *TIMED, *FEW)
    assert "EASE was skipped" in result.stdout
    assert "needs too much" in result.stdout
    told = run_json("compare", csv, *TIMED, *FEW)
    assert [one["model"] for one in told["models"]][-1] == "EASE"
    assert told["models"][-1]["metrics"] is None
    assert told["winner"] != "EASE"


def test_studies_go_on(run_json, csv, tmp_path):
    args = ["compare", csv, *TIMED, *FEW[:-1]]
    run_json(*args, 1, "--study", tmp_path / "s")
    assert sorted(one.name for one in (tmp_path / "s").iterdir()) == ["ease.study", "itemknn.study", "popularity.study"]
    search, calls = module("tuning.problem").Problem.attempt, []

    def counted(self, *rest):
        calls.append(type(self.template).__name__)
        return search(self, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module("tuning.problem").Problem, "attempt", counted)
        told = run_json(*args, 3, "--study", tmp_path / "s")
    assert sorted(calls) == ["EASE", "EASE", "ItemKNN", "ItemKNN", "Popularity"]  # which has two settings in all
    assert [one["trials"] for one in told["models"] if one["model"] == "EASE"] == [3]


@pytest.mark.parametrize(
    ("args", "models", "trials", "seconds"),
    [
        (["--quick"], 4, 40, 30),
        ([], 6, None, 180),
        (["--thorough"], 6, None, 1200),
        (["--quick", "--trials", 3], 4, 3, None),
        (["--minutes", 0.5, "--model", "ials"], 1, None, 30),
        (["--minutes", 0.5, "--trials", 7], 6, 7, 30),
    ],
)
def test_efforts(run, csv, monkeypatch, args, models, trials, seconds):
    asked = {}

    def fake(split, **kwargs):
        asked.update(kwargs)
        raise DataError("enough")

    monkeypatch.setattr(module("tuning.tuned_comparison"), "compare_tuned", fake)
    run("compare", csv, *TIMED, *args, code=1)
    assert len(asked["models"]) == models
    assert asked["trials"] == trials
    assert asked["seconds"] == seconds


def test_quick_searches_no_large_dimension(run_json, csv):
    told = run_json("compare", csv, *TIMED, "--quick", "--trials", 1, "--model", "ials")
    (ials,) = [one for one in told["models"] if one["model"] == "IALS"]
    assert ials["settings"]["dim"] == 64


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--quick", "--thorough"], 2, "cannot be combined"),
        (["--model", "eaze"], 1, "did you mean 'ease'"),
        (["--metric", "gini@20"], 1, "expected an accuracy metric"),
        (["--metrics", "nonsense@20"], 1, "nonsense"),
        (["--minutes", "-1"], 2, "expected a number of minutes > 0"),
    ],
)
def test_mistakes_are_told_before_any_data_is_read(run, args, code, message):
    result = run("compare", "nowhere.csv", *COLUMNS, *args, code=code)
    assert message in words(result.stderr)
    assert result.stdout == ""


def test_places_that_cannot_be_written_to(run, tmp_path):
    (tmp_path / "file").touch()
    for option, place in (
        ("--out", tmp_path / "file"),
        ("--study", tmp_path / "file"),
        ("--study", tmp_path / "file/s"),
    ):
        assert str(tmp_path) in run("compare", "nowhere.csv", *COLUMNS, option, place, code=1).stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file"]


def test_interrupted(run, csv, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(module("tuning.problem").Problem, "attempt", stop)
    result = run("compare", csv, *TIMED, *FEW, "--study", tmp_path / "s", "--quiet", code=130)
    assert (
        result.stderr
        == f"interrupted: all trials so far are in {tmp_path / 's'}; run the same command again to resume\n"
    )
    assert "nothing was saved" in run("compare", csv, *TIMED, *FEW, code=130).stderr
