import importlib
import json
import re
import shlex

import polars as pl
import pytest

import shortlist as sl
from cli.helpers import COLUMNS, ODD_USERS, words
from shortlist.cli.space_options import described, read_spaces
from shortlist.errors import DataError, SettingError
from shortlist.recommenders.ease import EASE
from shortlist.recommenders.ials import IALS
from shortlist.recommenders.neighbours import ItemKNN
from shortlist.recommenders.search_space import Choice, Increasing, Integer, Real, When
from shortlist.tuning.problem import Problem

pytest.importorskip("optuna")

TIMED = [*COLUMNS, "--time", "when", "--repeats", "keep"]
TINY = [*TIMED, "--space", "dim=2,4", "--set", "epochs=3"]


def test_the_best_settings_are_fitted_to_all_events_and_saved(run, run_json, odd_csv, tmp_path):
    told = run_json("tune", odd_csv, *TINY, "--trials", 6, "--out", tmp_path / "m")
    assert told["path"] == str(tmp_path / "m")
    assert sum(told["states"].values()) == len(told["trials"]) == 6
    assert told["value"] == max(one["value"] for one in told["trials"] if one["state"] == "complete")
    assert {one["settings"]["dim"] for one in told["trials"]} == {2, 4}
    assert told["settings"]["epochs"] == told["best"]["epoch"] <= 3
    model = sl.load(tmp_path / "m")
    assert model.settings() == told["settings"]
    assert set(model.contexts_.ids()) == set(ODD_USERS)
    assert not (tmp_path / "m.study").exists()  # of no more use


def test_what_it_prints_to_go_on_with_works(run, run_json, odd_csv, tmp_path):
    told = run_json("tune", odd_csv, *TINY, "--trials", 3, "--out", tmp_path / "m")
    tuned = sl.load(tmp_path / "m")
    program, *args = shlex.split(told["command"])
    assert program == "shortlist"
    run(*args[:-1], tmp_path / "by-command")
    (tmp_path / "fit.toml").write_text(told["toml"], encoding="utf-8")
    run("fit", "--config", tmp_path / "fit.toml", "--out", tmp_path / "by-file")
    for name in ("by-command", "by-file"):
        model = sl.load(tmp_path / name)
        assert model.settings() == tuned.settings()
        assert model.recommend(ODD_USERS, n=3).ids == tuned.recommend(ODD_USERS, n=3).ids


def test_a_model_that_begins_from_another_is_fitted_after_it(run, run_json, odd_csv, tmp_path, monkeypatch):
    attempt = Problem.attempt

    def warm_is_better(self, settings, start, *rest):
        value, epoch = attempt(self, settings, start, *rest)
        return (value if start is None else value + 1, epoch)

    monkeypatch.setattr(Problem, "attempt", warm_is_better)
    told = run_json("tune", odd_csv, *TINY, "--trials", 16, "--out", tmp_path / "m")
    assert told["value"] > 1
    assert told["start"]["dim"] == 2
    assert told["settings"]["dim"] == 4
    assert told["best"]["start_epoch"] == told["start"]["epochs"]
    tuned = sl.load(tmp_path / "m")
    first, second = told["command"].split(" && ")
    run(*shlex.split(first)[1:])
    run(*shlex.split(second)[1:-1], tmp_path / "by-command")
    (tmp_path / "fit.toml").write_text(told["toml"], encoding="utf-8")
    run("fit", "--config", tmp_path / "fit.toml", "--out", tmp_path / "by-file")
    for name in ("by-command", "by-file"):
        again = sl.load(tmp_path / name)
        assert again.settings() == tuned.settings()
        assert (again.item_embeddings_ == tuned.item_embeddings_).all()
    text = run("tune", odd_csv, *TINY, "--trials", 16).stdout
    assert f"Trial {told['best']['number']} started from a model with the settings of trial" in text
    assert "--start models/ials-start" in text


def test_factorizations_by_sampling(run_json, odd_csv, tmp_path):
    args = ["--model", "bpr", "--set", "dim=2", "--set", "epochs=6", "--trials", 2, "--out", tmp_path / "m"]
    told = run_json("tune", odd_csv, *TIMED, *args)
    assert told["model"] == "BPR"
    assert told["searched"].keys() >= {"learning_rate", "regularization"}
    assert [one["state"] for one in told["trials"]] == ["complete", "complete"]
    assert told["settings"]["epochs"] == told["best"]["epoch"] <= 6
    assert sl.load(tmp_path / "m").settings() == told["settings"]


def test_what_it_says(run, odd_csv, tmp_path):
    result = run("tune", odd_csv, *TINY, "--trials", 12, "--out", tmp_path / "m")
    text = result.stdout
    assert "Split by time" in text
    assert "12 trials" in text
    assert "2, then 4" in text
    assert described(IALS.space()["regularization"]) in text
    assert "importance" in text
    assert "%" in text
    assert "[fit.set]" in text
    assert "shortlist fit" in text
    assert f"saved to {tmp_path / 'm'}" in text
    assert max(len(line) for line in text.split("To repeat this")[0].splitlines()) <= 110
    assert "trial 0" in result.stderr
    assert run("tune", odd_csv, *TINY, "--trials", 2, "--quiet").stderr == ""


def test_what_is_set_is_not_searched(run_json, odd_csv):
    args = ["--set", "regularization=0.003", "--set", "dim=4", "--set", "unobserved_weight=.2"]
    told = run_json("tune", odd_csv, *TIMED, *args, "--trials", 3)
    assert {"regularization", "dim", "unobserved_weight"}.isdisjoint(told["searched"])
    for one in told["trials"]:
        assert one["settings"].keys() == told["searched"].keys()
    assert told["settings"]["regularization"] == 0.003  # the default, but set
    assert told["settings"]["unobserved_weight"] == 0.2
    assert told["path"] is None


def test_ranges_are_kept_to(run_json, odd_csv):
    args = ["--model", "ease", "--space", "regularization=2..5", "--space", "weighting=log"]
    told = run_json("tune", odd_csv, *TIMED, *args, "--trials", 6)
    assert told["model"] == "EASE"
    assert all(2 <= one["settings"]["regularization"] <= 5 for one in told["trials"])
    assert {one["settings"]["weighting"] for one in told["trials"]} == {"log"}


@pytest.mark.parametrize(
    ("kind", "text", "dimension"),
    [
        (EASE, "regularization=1..50", Real(1.0, 50.0, log=True)),  # its own is on a log scale
        (IALS, "regularization_exponent=0.5..1", Real(0.5, 1.0)),
        (IALS, "regularization_exponent=0.5..1:log", Real(0.5, 1.0, log=True)),
        (IALS, "init_scale=1e-2..1:log", Real(0.01, 1.0, log=True)),
        (IALS, "ials.dim = 64, 16", Increasing(16, 64)),
        (IALS, "dim=8..64", Integer(8, 64)),
        (IALS, "weighting=binary,raw", Choice("binary", "raw")),
        (ItemKNN, "neighbours=10..20", Integer(10, 20, log=True)),
        (ItemKNN, "shrinkage=1..9", Real(1.0, 9.0, log=True, when=When("similarity", "cosine", "tfidf"))),
    ],
)
def test_spaces(kind, text, dimension):
    assert list(read_spaces(kind, [text]).values()) == [dimension]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["regularisation=1..2"], "did you mean 'regularization'"),
        (["dim"], "expected a range"),
        (["dim="], "expected a range"),
        (["regularization=2..1"], "--space regularization=2..1: the range from 2 to 1 is empty"),
        (["regularization=0..1"], "has no logarithm"),
        (["regularization=a..1"], "expected a number"),
        (["regularization=..1"], "expected a number"),
        (["dim=1.5..3"], "expected an integer"),
        (["weighting=a..b"], "expected one of"),
        (["weighting=binary..log"], "is not a number; list the values"),
        (["dim=4,4"], "distinct"),
        (["dim=4,8", "dim=2,4"], "given twice"),
        (["ease.dim=4,8"], "'ease' is not the model"),
    ],
)
def test_spaces_that_make_no_sense(texts, message):
    with pytest.raises(SettingError, match=message):
        read_spaces(IALS, texts)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--space", "dimm=4,8"], 1, "did you mean 'dim'"),
        (["--space", "regularization=5..1"], 1, "is empty"),
        (["--space", "dim=4,8", "--set", "dim=4"], 1, "drop one of them"),
        (["--set", "nonsense=1"], 1, "no setting 'nonsense'"),
        (["--model", "nonsense"], 1, "unknown recommender"),
        (["--metric", "coverage@20"], 1, "expected an accuracy metric"),
        (["--minutes", "0"], 2, "expected a number of minutes > 0"),
        (["--trials", "0"], 2, "--trials"),
        (["--trials-out", "trials.xlsx"], 2, ".csv or .parquet"),
        (["--split", "contexts", "--repeats", "keep"], 2, "cannot be used with a split by contexts"),
        (["--fold-in", "0.5"], 2, "--split contexts"),
    ],
)
def test_mistakes_are_told_before_any_data_is_read(run, args, code, message):
    result = run("tune", "nowhere.csv", *COLUMNS, *args, code=code)
    assert message in words(result.stderr)
    assert result.stdout == ""
    if code == 1:
        assert len(result.stderr.splitlines()) == 1


def test_places_that_cannot_be_written_to(run, odd_csv, tmp_path):
    (tmp_path / "file").touch()
    for option, place in (
        ("--out", tmp_path / "file"),
        ("--out", tmp_path / "file" / "m"),
        ("--study", tmp_path),
        ("--study", tmp_path / "file" / "s"),
        ("--trials-out", tmp_path / "file" / "t.csv"),
    ):
        result = run("tune", "nowhere.csv", *COLUMNS, option, place, code=1)
        assert str(tmp_path) in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file"]


def test_without_optuna(run, monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib.import_module("shortlist.tuning.optuna_adapter"), "import_module", missing)
    for command in ("tune", "compare"):
        result = run(command, "nowhere.csv", *COLUMNS, code=1)
        assert "shortlist[tune]" in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_nothing_to_search(run, odd_csv):
    args = ["--model", "popularity", "--set", "weighting=binary"]
    assert "use shortlist fit" in run("tune", odd_csv, *TIMED, *args, code=1).stderr


def test_a_study_goes_on(run_json, odd_csv, tmp_path):
    args = ["tune", odd_csv, *TIMED, "--model", "ease", "--study", tmp_path / "a.study"]
    first = run_json(*args, "--trials", 3)
    again = run_json(*args, "--trials", 5)
    assert again["trials"][:3] == first["trials"]
    assert len(again["trials"]) == 5
    assert again["study"] == str(tmp_path / "a.study")
    assert (tmp_path / "a.study").is_file()


def test_a_study_of_something_else_is_refused(run, odd_csv, tmp_path):
    args = ["tune", odd_csv, *TINY, "--trials", 2, "--study", tmp_path / "a.study"]
    run(*args)
    assert "metric" in run(*args, "--metric", "recall@3", code=1).stderr


def test_without_a_refit_the_study_stays(run, run_json, odd_csv, tmp_path):
    args = ["tune", odd_csv, *TINY, "--trials", 2, "--out", tmp_path / "m"]
    first = run_json(*args, "--no-refit")
    assert first["path"] is None
    assert first["refit_seconds"] is None
    assert str(tmp_path / "m") in first["command"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.study"]
    result = run(*args)
    assert "resuming from" in result.stderr
    assert sl.load(tmp_path / "m").settings() == first["settings"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m"]


def test_interrupted(run, odd_csv, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("shortlist.tuning.problem").Problem, "attempt", stop)
    args = ["tune", odd_csv, *TINY, "--quiet"]
    result = run(*args, "--out", tmp_path / "m", code=130)
    assert result.stderr.startswith("interrupted: all trials so far")
    assert "m.study" in result.stderr
    assert (tmp_path / "m.study").exists()
    assert "nothing was saved" in run(*args, code=130).stderr
    monkeypatch.undo()
    run(*args, "--out", tmp_path / "m", "--trials", 2)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m"]


def test_interrupted_without_a_study_it_tells_the_best_so_far(run, odd_csv, monkeypatch):
    attempt, tried = Problem.attempt, []

    def interrupted(self, *arguments):
        tried.append(arguments)
        if len(tried) % 3 == 0:
            raise KeyboardInterrupt
        return attempt(self, *arguments)

    monkeypatch.setattr(Problem, "attempt", interrupted)
    result = run("tune", odd_csv, *TINY, code=130)
    assert "IALS: 4 trials (1 unfinished, 1 not started)" in result.stdout
    assert "shortlist fit" in result.stdout
    assert "interrupted: the result is the best so far; pass --study" in result.stderr
    assert json.loads(run("tune", odd_csv, *TINY, "--json", code=130).stdout)["interrupted"]


def test_failed_trials_are_told(run, run_json, odd_csv, monkeypatch):
    fit = EASE.learn

    def fails(self, *args):
        if self.regularization > 300:
            raise DataError("too much of it")
        fit(self, *args)

    monkeypatch.setattr(EASE, "learn", fails)
    args = ["tune", odd_csv, *TIMED, "--model", "ease", "--space", "regularization=200..400", "--trials", 8]
    told = run_json(*args)
    assert told["states"]["failed"] >= 1
    assert {one["reason"] for one in told["trials"] if one["state"] == "failed"} == {"too much of it"}
    text = run(*args).stdout
    assert re.search(rf"^{told['states']['failed']} trials? failed: too much of it$", text, re.MULTILINE)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_table_of_trials(run, odd_csv, tmp_path, ending):
    place = tmp_path / "new" / f"trials.{ending}"
    run("tune", odd_csv, *TINY, "--trials", 3, "--trials-out", place)
    table = pl.read_csv(place) if ending == "csv" else pl.read_parquet(place)
    assert table.height == 3
    assert {"dim", "regularization", "state", "ndcg@20", "seconds"} <= set(table.columns)


def test_published_data(run, run_json, tmp_path):
    folder = tmp_path / "lightgcn"
    folder.mkdir()
    (folder / "train.txt").write_text("".join(f"{u} {u % 4} {u % 4 + 1} {u % 3 + 5}\n" for u in range(12)))
    (folder / "test.txt").write_text("".join(f"{u} {(u + 2) % 4}\n" for u in range(12)))
    args = ["tune", folder, "--model", "ease", "--trials", 2]
    told = run_json(*args, "--test", "0.3", "--out", tmp_path / "m")
    assert told["split"]["protocol"].startswith("chance: 30%")
    assert told["split"]["train"]["events"] < 36
    assert len(sl.load(tmp_path / "m").seen_) == 36  # the test stays aside
    assert "is set aside" in run(*args).stderr
    (folder / "valid.txt").write_text("".join(f"{u} {(u + 3) % 4}\n" for u in range(12)))
    assert "valid.txt" in run_json(*args)["split"]["protocol"]
    assert "chance" in run_json(*args, "--split", "random")["split"]["protocol"]


def test_a_file_of_options(run_json, odd_csv, tmp_path):
    config = tmp_path / "tune.toml"
    config.write_text(
        'context = "user"\nitem = "product"\n[tune]\ntime = "when"\nrepeats = "keep"\ntrials = 2\n'
        'space = ["dim=2,3", "regularization=0.01..0.1"]\n[tune.set]\nepochs = 2\nunobserved_weight = 0.5\n'
    )
    told = run_json("tune", odd_csv, "--config", config)
    assert told["searched"]["dim"] == "2, then 3"
    assert told["settings"]["unobserved_weight"] == 0.5
    assert len(told["trials"]) == 2


@pytest.mark.usefixtures("default_threads")
def test_workers_make_no_difference(run_json, odd_csv):
    args = ["tune", odd_csv, *TINY, "--trials", 4, "--sample", 0, "--patience", 2]
    one, two = (run_json(*args, "--workers", n)["trials"] for n in (1, 2))
    assert [trial["settings"] for trial in one] == [trial["settings"] for trial in two]
    assert [trial["value"] for trial in one] == [trial["value"] for trial in two]
