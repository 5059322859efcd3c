"""Every recommender gives the scores and the order it gave when the golden answers were written."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import shortlist as sl
from golden import subjects
from golden.names import today
from golden.subjects import HERE, INTERRUPTED, SAVED, SUBJECTS, answers, fit, fit_in_folder
from shortlist.storage import load_model

SCORES = dict(np.load(HERE / "scores.npz"))
RESUMED = dict(np.load(HERE / "resumed.npz"))
FACTS = today(json.loads((HERE / "facts.json").read_text()))
RELATIVE = 1e-5
LOOSER = {
    # Three steps of conjugate gradients on ids and features that nearly determine each other: rounding is amplified,
    # and another processor rounds otherwise.
    "FactorizationMachine": 1e-4,
    "FactorizationMachine, features": 5e-3,
}


def tolerance(name: str, table: np.ndarray) -> float:
    """How far a score may be from the golden one: a share of the largest score."""
    return LOOSER.get(name, RELATIVE) * float(np.nanmax(np.abs(table)))


def assert_same(name: str, question: str, now: np.ndarray) -> None:
    before = SCORES[f"{name}/{question}"]
    assert now.shape == before.shape
    worst = np.nanmax(np.abs(now - before))
    assert worst <= tolerance(name, before), f"{name}, {question}: a score moved by {worst}"


def assert_same_order(listed: list[list[str]], items: list[str], golden: np.ndarray, allowed: float) -> None:
    """Lists are in the golden order, up to scores too near each other to tell."""
    place = {item: k for k, item in enumerate(items)}
    for ids, scores in zip(listed, golden):
        in_order = scores[[place[item] for item in ids]]
        assert (np.diff(in_order) <= 2 * allowed).all()
        left_out = np.setdiff1d(np.arange(len(items)), [place[item] for item in ids])
        assert len(left_out) == 0 or scores[left_out].max() <= in_order[-1] + 2 * allowed


@pytest.mark.parametrize("name", SUBJECTS)
def test_scores_and_order(name):
    model = fit(SUBJECTS[name])
    scores, facts = answers(model)
    assert {f"{name}/{question}" for question in scores} == {key for key in SCORES if key.rsplit("/", 1)[0] == name}
    assert facts["refused"] == FACTS[name]["refused"]
    assert facts["derived"] == pytest.approx(FACTS[name]["derived"])
    for question, table in scores.items():
        assert_same(name, question, table)
    golden, items = SCORES[f"{name}/known"], model.items_.ids()
    listed = model.recommend(model.contexts_.ids(), n=8, exclude_seen=False, threads=1).ids
    assert_same_order(listed, items, golden, tolerance(name, golden))


@pytest.mark.parametrize("name", SAVED)
def test_a_saved_model_loads_and_answers(name):
    model = sl.load(HERE / "models" / name)
    scores, facts = answers(model)
    assert facts["refused"] == FACTS[name]["refused"]
    assert facts["derived"] == pytest.approx(FACTS[name]["derived"])
    for question, table in scores.items():
        assert_same(name, question, table)


@pytest.mark.parametrize("loaded", [False, True], ids=["fitted", "loaded"])
def test_two_stages(loaded):
    pytest.importorskip("lightgbm")
    model = sl.load(HERE / "models" / "TwoStage") if loaded else subjects.two_stage()
    now, before = subjects.two_stage_answers(model)["known"], SCORES["TwoStage/known"]
    np.testing.assert_array_equal(np.isnan(now), np.isnan(before))
    assert_same("TwoStage", "known", now)


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupted_fit_resumes(name, tmp_path):
    shutil.copytree(HERE / "checkpoints" / name, tmp_path / "checkpoint")
    model = fit_in_folder(SUBJECTS[name], tmp_path / "checkpoint")
    stored = load_model(HERE / "checkpoints" / name)
    assert model.training_[0].seconds == stored.arrays["seconds"][0]  # the first epoch did not run again
    now, before = answers(model)[0]["known"], RESUMED[name]
    assert np.abs(now - before).max() <= tolerance(name, before)


def test_a_changed_score_is_noticed():
    table = SCORES["IALS/known"].copy()
    assert_same("IALS", "known", table)
    table[3, 4] += 2e-5 * np.abs(table).max()
    with pytest.raises(AssertionError, match="IALS, known: a score moved"):
        assert_same("IALS", "known", table)


def test_a_changed_order_is_noticed():
    golden = np.array([[0.5, 0.3, 0.300001, 0.1]], np.float32)
    assert_same_order([["a", "b", "c"]], list("abcd"), golden, 1e-5)
    for wrong in (["b", "a", "c"], ["a", "b", "d"]):
        with pytest.raises(AssertionError):
            assert_same_order([wrong], list("abcd"), golden, 1e-5)
