"""The boards of docs/benchmarks.md: settings come from studies, figures from stored results."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import numpy as np
import pytest

from benchmarks.lib import markdown, trials
from benchmarks.lib.paths import ROOT, SETTINGS
from benchmarks.lib.results import SLATES, stored
from benchmarks.quality import page, rows
from benchmarks.questions import slate_diversity
from benchmarks.studies import tune
from shortlist.recommenders.registry import recommender_class
from shortlist.tuning import Trial, Tuned

SETS = {name: rows.data_set(name) for name in rows.SETS}
ROWS = {row.key: row for one in SETS.values() for row in one.rows}


def test_every_file_of_settings_is_a_data_set_of_the_board():
    assert sorted(path.stem for path in SETTINGS.glob("*")) == sorted(SETS)
    assert len(ROWS) == sum(len(one.rows) for one in SETS.values()), "two rows of the same name"
    for one in SETS.values():
        assert one.protocol in ("ncf", "weak", "strong")
        assert one.verdict in one.metrics


@pytest.mark.parametrize("key", ROWS)
def test_settings_are_the_best_of_the_study(key):
    row = ROWS[key]
    recommender_class(row.model)(**row.settings)  # settings that it takes
    assert set(row.published) <= set(SETS[row.data].metrics)
    assert bool(row.published) <= bool(row.source)
    if row.tuned and not row.trials:  # no study yet: then no settings and no figures either
        assert not row.settings
        assert page.stored(row) is None
        return
    row.check()


@pytest.mark.parametrize("path", sorted(page.QUALITY.glob("*.json")), ids=lambda path: path.stem)
def test_stored_results_are_those_of_rows(path):
    result = json.loads(path.read_text(encoding="utf-8"))
    row = ROWS[path.stem]
    assert (result["set"], result["model"], result["label"]) == (row.data, row.model, row.label)
    assert result["settings"] == row.settings, "settings have changed since: run the board for this row"
    assert bool(result["device"]) == row.gpu
    assert set(SETS[row.data].metrics) <= set(result["metrics"])
    for one in result["metrics"].values():
        assert one["mean"] == pytest.approx(np.mean(one["seeds"]), abs=1e-9)
        assert 0 < one["stderr"] < one["mean"]
    if row.tuned:
        found = trials.complete(row.trials, row.validation)
        value = max(trial[row.validation] for trial in found)
        assert result["study"]["value"] == pytest.approx(value, abs=1e-5)
        assert (result["study"]["file"], result["study"]["trials"]) == (row.study, len(row.trials))
    if (values := path.with_suffix(".npz")).exists():
        assert page.per_context(row, result, SETS[row.data].verdict) is not None, f"{values.name} is of another run"


def test_the_page_shows_what_is_stored():
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.rendered(text) == text, "run python -m benchmarks.quality.board render"


def a_row(**changes):
    return dataclasses.replace(
        rows.Row("gowalla", "EASE", "EASE", "ndcg@20", "s.csv", {"regularization": 3.0}), **changes
    )


@pytest.fixture
def studies(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "TRIALS", tmp_path)
    (tmp_path / "s.csv").write_text(
        "regularization,weighting,epochs,state,ndcg@20,seconds\n"
        "1.0,,,complete,0.2,3.1\n"
        "3.0,,,complete,0.3,3.0\n"
        "9.0,,,pruned,0.4,1.0\n"
        "27.0,,,failed,,0.1\n"
    )
    return tmp_path


def test_best_of_a_study(studies):
    found = trials.trials(studies / "s.csv")
    assert trials.best(found, "ndcg@20") == {"regularization": 3.0}
    (studies / "old.csv").write_text("l1,positive,recall@20,ndcg@20,fit_seconds\n1,True,0.3,0.1,2\n2,False,0.2,0.2,2\n")
    assert trials.best(trials.trials(studies / "old.csv"), "ndcg@20") == {"l1": 2, "positive": False}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"regularization": 9.0}}, r"has \{'regularization': 9.0\}, but the best by ndcg@20 of s.csv are"),
        (
            {"study": "none.csv"},
            r"no benchmarks/studies/trials/none.csv with trials; run python -m benchmarks.studies.tune",
        ),
        ({"study": None}, r"names no study"),
    ],
)
def test_settings_that_no_study_chose(studies, changes, message):
    a_row().check()
    a_row(study=rows.PUBLISHED, settings={"regularization": 9.0}).check()
    with pytest.raises(rows.StudyError, match=message):
        a_row(**changes).check()


def test_settings_are_copied_from_studies(studies, capsys):
    text = (
        '# a comment\nprotocol = "weak"\nmetrics = ["ndcg@20"]\nverdict = "ndcg@20"\nvalidation = "ndcg@20"\n'
        '\n[[row]]\nmodel = "Popularity"\n'
        '\n[[row]]\nmodel = "EASE"\nstudy = "s.csv"\nsettings = { regularization = 9.0 }\nsource = "x"  # kept\n'
        '\n[[row]]\nmodel = "SLIM"\nstudy = "none.csv"\n'
    )
    (studies / "mine.toml").write_text(text)
    tune.refresh("mine", studies)
    assert (studies / "mine.toml").read_text() == text.replace("9.0", "3.0")
    assert "mine-slim: no study yet" in capsys.readouterr().out
    tune.refresh("mine", studies)
    assert "settings" not in capsys.readouterr().out


def test_trials_are_exported(tmp_path):
    searched = [
        Trial(0, {"dim": 64, "regularization": 0.1}, "complete", 0.25, 7, (0.2, 0.25), 1.0),
        Trial(1, {"dim": 64, "regularization": 1e-5}, "complete", 0.5, 3, (0.5,), 1.0),
        Trial(2, {"dim": 64, "regularization": 0.2}, "pruned", None, 1, (0.9,), 1.0),
        Trial(3, {"dim": 128, "regularization": 0.2}, "failed", reason="memory"),
        Trial(4, {"dim": 128, "regularization": 0.3}, "unfinished"),
    ]
    tuned = Tuned("IALS", "ndcg@20", {}, searched[1], searched, {}, 3.0)
    tune.export(tuned, tmp_path / "x.csv")
    found = trials.trials(tmp_path / "x.csv")
    assert [trial["state"] for trial in found] == ["complete", "complete", "pruned", "failed"]
    assert trials.best(found, "ndcg@20") == {"dim": 64, "regularization": 1e-5, "epochs": 3}


def result_of(row, means, device=None, **more):
    metrics = {
        metric: {"seeds": [mean, mean + 0.001], "mean": mean + 0.0005, "stderr": 0.01} for metric, mean in means.items()
    }
    about = {
        "when": "2026-01-02",
        "machine": "a machine",
        "versions": {"x": "1"},
        "command": "run it",
        "device": device,
    }
    return {
        "settings": row.settings, "metrics": metrics, "contexts": 50, "fit_seconds": [1.0, 3.0], "seeds": [0, 1],
        "study": {"file": row.study, "trials": 4, "metric": row.validation, "value": 0.3},
    } | about | more  # fmt: skip


def test_a_set_is_rendered(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "QUALITY", tmp_path)
    best, worse = a_row(model="IALS", label="IALS"), a_row(published={"ndcg@20": 0.123}, source="them")
    far, missing = a_row(label="Far", gpu=True), a_row(label="Missing")
    rng = np.random.default_rng(0)
    values = rng.uniform(0, 0.2, 50)
    found = []
    for row, level, device in ((best, 0.1, None), (worse, 0.0, None), (far, 0.0, "a GPU")):
        own = (values + level).astype(np.float32)
        result = result_of(row, {"ndcg@20": float(own.mean()) - 0.0005}, device)
        (tmp_path / f"{row.key}.json").write_text(json.dumps(result))
        if device is None:
            np.savez(tmp_path / f"{row.key}.npz", values=own)
        found.append((row, page.stored(row)))
    one = rows.DataSet("gowalla", "weak", ["ndcg@20"], "ndcg@20", "ndcg@20", [best, worse, far, missing])
    text = page._of_set(one, found)
    assert "By ndcg@20, best: IALS; worse: EASE (−.1000, −.1000 to −.1000). (Without Far†:" in text
    assert "| .1230 (them) |" in text
    assert "| .0007 | 2 | 2.0 |" in text  # between seeds, how many, seconds
    assert "deterministic, ties .0007" in text
    assert "| Far† | λ = 3 | `s.csv` | 4 | ndcg@20 .3000 |" in text
    assert "No figures with the present settings yet: Missing." in text
    mean = found[0][1]["metrics"]["ndcg@20"]["mean"]
    assert f"{markdown.figure(mean - 0.0196)} to {markdown.figure(mean + 0.0196)}" in text
    # values or settings of another run are not taken for this one's
    np.savez(tmp_path / f"{best.key}.npz", values=values)
    assert page.per_context(*found[0], "ndcg@20") is None
    assert page.stored(dataclasses.replace(best, settings={"regularization": 1.0})) is None


def test_provenance_names_the_few():
    ours = {"when": "2026-01-02", "machine": "here", "versions": {"x": "1"}, "command": "run", "device": None}
    many = [(f"row {k}", ours) for k in range(9)]
    assert markdown.provenance(many) == "* all: 2026-01-02 on here; x 1"
    told = markdown.provenance([*many, ("far", ours | {"device": "a GPU"})]).splitlines()
    assert told == ["* all others: 2026-01-02 on here; x 1", "* far: † 2026-01-02 on a GPU (here); x 1; `run`"]


@pytest.mark.parametrize("path", sorted(page.SPEED.glob("*.json")), ids=lambda path: path.stem)
def test_stored_ratios(path):
    row = json.loads(path.read_text(encoding="utf-8"))
    assert row["ratio"] > 0
    assert math.isfinite(row["ratio"])
    assert row["low"] is None or row["low"] <= row["ratio"] <= row["high"]
    assert page._script(path.stem) in page.SCRIPTS
    module = re.search(r"python -m benchmarks\.([\w.]+)", row["command"])[1]
    assert (ROOT / "benchmarks" / f"{module.replace('.', '/')}.py").exists()


def test_stored_slates():
    """The same list at 0, and what the number is for rising with it."""
    found = stored("curve", SLATES)["rows"]
    for model in slate_diversity.MODELS:
        begin = [row for row in found if row["model"] == model and row["number"] == 0]
        assert all(row["difference"] == 0 and row["ndcg@10"] == begin[0]["ndcg@10"] for row in begin)
        for slate, metric, sign in (
            ("mmr", "distance@10", 1),
            ("dpp", "distance@10", 1),
            ("calibrated", "miscalibration@10", -1),
        ):
            own = [row for row in found if (row["model"], row["slate"]) == (model, slate)]
            assert [row["number"] for row in own] == list(slate_diversity.NUMBERS)
            assert (sign * np.diff([row[metric] for row in own]) > 0).all()
