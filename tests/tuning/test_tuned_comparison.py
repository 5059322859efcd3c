"""Which recommender to take: the verdict on constructed results, budgets, and who is left out."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.event import Listener, register, unregister

import shortlist as sl
from shortlist.data import splits
from shortlist.errors import DataError, SettingError
from shortlist.evaluation import Evaluation, evaluate
from shortlist.recommenders.ease import EASE
from shortlist.recommenders.ials import IALS
from shortlist.recommenders.popularity import Popularity
from shortlist.recommenders.search_space import Real
from shortlist.tuning import Trial, Tuned
from shortlist.tuning.tuned_comparison import (
    MODELS,
    TunedComparison,
    TunedModel,
    compare_tuned,
    rank_models,
    validation_within,
)

home = importlib.import_module("shortlist.tuning.tuned_comparison")


def events(n=1500, seed=0, timed=True, users=40, items=25):
    rng = np.random.default_rng(seed)
    user = rng.integers(0, users, n)
    frame = pl.DataFrame({"u": user, "i": (rng.zipf(1.6, n) + 5 * (user % 4)) % items, "t": np.arange(n)})
    return sl.Interactions.from_frame(frame, context="u", item="i", time="t" if timed else None)


def row(name, values, seconds=1.0, metric="ndcg@20"):
    contexts = pl.DataFrame({"u": np.arange(len(values))})
    result = Evaluation(name, "a test", contexts, {metric: np.asarray(values, float)})
    return TunedModel(name=name, result=result, fit_seconds=seconds)


@pytest.fixture
def tuned(monkeypatch):
    """What `tune` is asked for; it answers with the settings as they are."""
    asked = []

    def tune(model, data, **how):
        asked.append((model, data, how))
        trial = Trial(0, {}, "complete", 0.5)
        found = {"settings": model.settings(), "value": 0.5, "trials": [trial] * 3, "best": trial, "seconds": 1.0}
        return SimpleNamespace(**found, start=None, interrupted=False)

    monkeypatch.setattr(home, "tune", tune)
    return asked


def test_a_model_that_begins_from_another_is_fitted_after_it(monkeypatch):
    start, settings = {"dim": 2, "epochs": 2}, {"dim": 4, "epochs": 3}

    def tune(model, data, **how):
        if not isinstance(model, IALS):
            trial = Trial(0, {}, "complete", 0.5)
            return Tuned("Popularity", "ndcg@20", model.settings(), trial, [trial], {}, 1.0)
        trial = Trial(1, settings, "complete", 0.5, start=0, start_epoch=2)
        return Tuned("IALS", "ndcg@20", model.settings() | settings, trial, [trial], {}, 1.0, start=start)

    monkeypatch.setattr(home, "tune", tune)
    split = splits.by_time(events())
    row = next(one for one in compare_tuned(split, models=["ials"]).rows if one.name == "IALS")
    assert row.start == start
    again = IALS(**settings).fit(split.train, start=IALS(**start).fit(split.train))
    np.testing.assert_array_equal(row.model.item_embeddings_, again.item_embeddings_)


def test_an_interrupt_ends_the_whole_contest(monkeypatch):
    def tune(model, data, **how):
        trial = Trial(0, {}, "complete", 0.5)
        return Tuned("IALS", "ndcg@20", model.settings(), trial, [trial], {}, 1.0, interrupted=True)

    monkeypatch.setattr(home, "tune", tune)
    with pytest.raises(KeyboardInterrupt):
        compare_tuned(splits.by_time(events()), models=["ials", "ease"])


def test_fits_are_timed_without_compilation(tuned, monkeypatch):
    now, fit = [0.0], Popularity.learn
    monkeypatch.setattr("shortlist._clock.time.perf_counter", lambda: now[0])

    class Slow(Listener):
        def on_start(self, event):
            now[0] += 1000

        def on_end(self, event):
            pass

    def compiling(self, *arguments):
        now[0] += 2
        numba.njit(lambda x: x + 1)(1)
        fit(self, *arguments)

    monkeypatch.setattr(Popularity, "learn", compiling)
    slow = Slow()
    register("numba:compile", slow)
    try:
        (row,) = compare_tuned(splits.by_time(events()), models=["popularity"]).rows
    finally:
        unregister("numba:compile", slow)
    assert row.fit_seconds == pytest.approx(2)


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_a_real_difference():
    noise = np.random.default_rng(0).normal(0, 0.01, 200)
    base = np.linspace(0.2, 0.8, 200)
    result = rank_models([row("A", base - 0.1), row("B", base + noise), row("C", base - 0.3)], "ndcg@20")
    assert [one.name for one in result.rows] == ["B", "A", "C"]
    assert [one.verdict for one in result.rows] == ["best", "worse", "worse"]
    assert result.winner.name == "B"
    assert result.verdict.startswith("B is best; the difference to A (ndcg@20 -0.1")
    assert result.verdict.endswith("is real")
    assert result.rows[1].low < result.rows[1].difference < result.rows[1].high < 0
    assert result.comparison.best("ndcg@20") == ["B"]


def test_no_real_difference_goes_to_the_faster():
    rng = np.random.default_rng(0)
    base = rng.random(200)
    rows = [row("Slow", base + rng.normal(0.001, 0.2, 200), 9.0), row("Fast", base, 2.0), row("Bad", base - 0.5, 0.1)]
    result = rank_models(rows, "ndcg@20")
    verdicts = {one.name: one.verdict for one in result.rows}
    assert verdicts["Bad"] == "worse"
    assert sorted([verdicts["Slow"], verdicts["Fast"]]) == ["best", "no real difference"]
    assert result.winner.name == "Fast"
    assert result.verdict.startswith("no real difference between ")
    assert " (ndcg@20" in result.verdict
    assert result.verdict.endswith("Fast is the faster to train")


def test_a_little_faster_is_no_reason():
    rng = np.random.default_rng(0)
    base = rng.random(200)
    better = base + np.tile([0.2, -0.19], 100)
    result = rank_models([row("Better", better, 1.5), row("Faster", base, 1.0)], "ndcg@20")
    assert [one.verdict for one in result.rows] == ["best", "no real difference"]
    assert result.winner.name == "Better"
    assert result.verdict.endswith("Better has the highest ndcg@20, and the other is not much faster to train")


def test_three_that_cannot_be_told_apart():
    rng = np.random.default_rng(0)
    base = rng.random(200)
    rows = [row(name, base + rng.normal(0, 0.2, 200), seconds) for name, seconds in (("A", 9), ("B", 4), ("C", 1))]
    result = rank_models(rows, "ndcg@20")
    assert result.verdict.endswith("C is the fastest to train")
    assert all(name in result.verdict.split("cannot")[0] for name in "ABC")


def test_one_between_two_that_cannot_be_told_apart():
    base = np.random.default_rng(0).random(200)
    rows = [row("A", base, 9.0), row("Close", base - 0.01, 5.0), row("Noisy", base + np.tile([0.5, -0.54], 100), 1.0)]
    result = rank_models(rows, "ndcg@20")
    assert [(one.name, one.verdict) for one in result.rows] == [
        ("A", "best"),
        ("Close", "worse"),
        ("Noisy", "no real difference"),
    ]
    assert result.verdict.startswith("no real difference between A and Noisy (ndcg@20 -0.0200, ")
    assert result.winner.name == "Noisy"


def test_equal_ones_are_equal():
    result = rank_models([row("A", [0.5] * 20, 2.0), row("B", [0.5] * 20, 1.0)], "ndcg@20")
    assert result.winner.name == "B"
    assert "no real difference" in result.verdict


def test_too_few_contexts_to_tell():
    result = rank_models([row("A", [0.1] * 9, 0.1), row("B", [0.9] * 9, 5.0)], "ndcg@20")
    assert result.winner.name == "B"  # not the faster one: nothing says that they are alike
    assert result.verdict.startswith("too few contexts to tell (9): B has the highest ndcg@20")
    assert [one.verdict for one in result.rows] == ["best", "too few contexts to tell"]


def test_who_was_left_out_comes_last():
    result = rank_models(
        [TunedModel(name="EASE", reason="too large"), row("A", [0.1] * 20), row("B", [0.9] * 20)], "ndcg@20"
    )
    assert [one.name for one in result.rows] == ["B", "A", "EASE"]
    assert result.rows[-1].verdict == "left out"
    assert "left out: too large" in repr(result)
    assert result.to_polars()["reason"].to_list() == [None, None, "too large"]


def test_only_one_is_left():
    result = rank_models([TunedModel(name="EASE", reason="too large"), row("A", [0.1] * 20)], "ndcg@20")
    assert result.winner.name == "A"
    assert result.comparison is None
    assert "only recommender" in result.verdict
    with pytest.raises(DataError, match="EASE: too large"):
        rank_models([TunedModel(name="EASE", reason="too large")], "ndcg@20")


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 9)), min_size=1, max_size=6))
def test_the_frontier(figures):
    rows = [row(f"M{k}", [mean] * 3, seconds) for k, (mean, seconds) in enumerate(figures)]
    result = rank_models(rows, "ndcg@20")
    on = {one.name for one in result.rows if one.frontier}
    best, fastest = max(m for m, _ in figures), min(s for _, s in figures)
    assert {f"M{k}" for k, (_, s) in enumerate(figures) if s == fastest} <= on
    # the fastest of the best, and nobody whom someone as good beats in time
    assert f"M{min((s, k) for k, (m, s) in enumerate(figures) if m == best)[1]}" in on
    for k, (mean, seconds) in enumerate(figures):
        beaten = any(m >= mean and s < seconds for m, s in figures)
        assert (f"M{k}" in on) == (not beaten)


# --- budgets and who takes part --------------------------------------------------------------------------------------


def test_everyone_has_the_same_budget(tuned, tmp_path):
    split = splits.by_time(events(), 0.2, repeats="keep")
    result = compare_tuned(
        split, models=["ease", IALS, sl.ItemKNN(neighbours=7)], trials=5, seconds=2.5, seed=3, study=tmp_path, threads=1
    )
    assert [type(model).__name__ for model, _, _ in tuned] == ["Popularity", "EASE", "IALS", "ItemKNN"]
    for model, data, how in tuned:
        assert (how["trials"], how["seconds"], how["seed"], how["metric"]) == (5, 2.5, 3, "ndcg@20")
        assert how["refit"] is False
        assert how["study"] == str(tmp_path / f"{type(model).__name__.lower()}.study")
        assert data is tuned[0][1]
        assert data.train.times.max() < data.truth.times.min() <= split.train.times.max()  # within the training part
    assert tuned[3][0].neighbours == 7
    assert {one.name for one in result.rows} == {"Popularity", "EASE", "IALS", "ItemKNN"}
    assert {one.trials for one in result.rows} == {3}


def test_who_has_nothing_to_search_is_fitted_as_it_is(tuned):
    frame = events(timed=False).to_polars().unique(["u", "i"])
    split = splits.at_random(sl.Interactions.from_frame(frame, context="u", item="i"), 0.3)
    result = compare_tuned(split, models=["ease"])
    assert [type(model).__name__ for model, _, _ in tuned] == ["EASE"]
    assert {one.name: one.trials for one in result.rows} == {"Popularity": 0, "EASE": 3}


def test_popularity_is_always_in_once(tuned):
    split = splits.by_time(events(), 0.2, repeats="keep")
    for models in (["ease"], ["ease", "popularity"], [Popularity(), EASE()]):
        names = [one.name for one in compare_tuned(split, models=models).rows]
        assert sorted(names) == ["EASE", "Popularity"]
    assert "popularity" in MODELS


def test_spaces_reach_the_search(tuned):
    split = splits.by_time(events(), 0.2, repeats="keep")
    own = {"regularization": Real(1.0, 2.0)}
    compare_tuned(split, models=["ease", "slim"], spaces={"EASE": own})
    assert [how["space"] for _, _, how in tuned] == [None, own, None]
    with pytest.raises(SettingError, match="IALS"):
        compare_tuned(split, models=["ease"], spaces={"IALS": own})


def test_who_fails_is_left_out_and_the_others_go_on(tuned, monkeypatch):
    def refuse(n_items):
        raise DataError("too large a catalogue")

    monkeypatch.setattr(importlib.import_module("shortlist.recommenders.ease"), "_refuse_too_large", refuse)
    result = compare_tuned(splits.by_time(events(), 0.2, repeats="keep"), models=["ease", "itemknn"])
    assert [one.reason for one in result.rows] == [None, None, "too large a catalogue"]
    assert result.rows[-1].name == "EASE"


def test_a_wrong_setting_is_no_reason_to_go_on(monkeypatch):
    def tune(*_, **__):
        raise SettingError("the study of another search")

    monkeypatch.setattr(home, "tune", tune)
    with pytest.raises(SettingError, match="another search"):
        compare_tuned(splits.by_time(events(), 0.2, repeats="keep"), models=["ease"])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"models": ["nonsense"]}, "unknown recommender"),
        ({"models": ["ease", EASE]}, "expected each recommender only once"),
        ({"models": [3]}, "expected names"),
        ({"metric": "coverage@20"}, "expected an accuracy metric"),
        ({"metrics": "nonsense"}, "nonsense"),
    ],
)
def test_what_makes_no_sense_is_refused(how, message):
    with pytest.raises(SettingError, match=message):
        compare_tuned(splits.by_time(events(), 0.2, repeats="keep"), **how)
    with pytest.raises(SettingError, match="takes a Split"):
        compare_tuned(events())


def test_from_end_to_end(tmp_path):
    pytest.importorskip("optuna")
    split = splits.by_time(events(), 0.2, repeats="keep")
    how = {"models": ["ease", "itemknn"], "metric": "recall@3", "metrics": "hit@2", "trials": 3, "progress": False}
    result = compare_tuned(split, **how, study=tmp_path)
    assert isinstance(result, TunedComparison)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["ease.study", "itemknn.study", "popularity.study"]
    for one in result.rows:
        again = evaluate(one.model, split, list(one.result))
        assert dict(again) == dict(one.result)
        assert list(one.result) == ["recall@3", "hit@2", "coverage@20", "popularity@20"]
        assert one.model.items_.ids() == split.train.items.ids()
        assert one.model.settings() == one.settings
    table = result.to_polars()
    assert table["model"].to_list() == [one.name for one in result.rows]
    assert table["recall@3"].to_list() == [one.result["recall@3"] for one in result.rows]
    assert result.verdict in repr(result)
    again = compare_tuned(split, **how, study=tmp_path)
    assert [one.settings for one in again.rows] == [one.settings for one in result.rows]


# --- validation ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::shortlist.errors.ShortlistWarning")
def test_a_validation_split_is_of_the_same_kind():
    data = events()
    late = validation_within(splits.by_time(data, 0.2, repeats="keep"))
    assert late.protocol.startswith("time")
    assert late.repeats == "keep"
    assert 0.15 * 1200 < 1200 - len(late.train) < 0.25 * 1200
    last = validation_within(splits.leave_last_out(data, 2, repeats="keep"))
    assert "last 2" in last.protocol
    by_chance = validation_within(splits.at_random(data, 0.3, repeats="keep", seed=5), seed=7)
    assert by_chance.protocol.startswith("chance")
    assert "seed 7" in by_chance.protocol
    new_contexts = validation_within(splits.held_out_contexts(data, 10, fold_in=0.5), fold_in=0.5)
    assert new_contexts.fold_in
    assert "held-out contexts: 10, 50%" in new_contexts.protocol


def test_that_of_a_published_split():
    data = events(timed=False)
    outer = splits.at_random(data, 0.2, repeats="keep")
    published = splits.given(outer.train, outer.truth, repeats="keep")
    assert validation_within(published).protocol.startswith("chance")
    strong = splits.held_out_contexts(data, 8, fold_in=0.5)
    published = splits.given(strong.train, strong.truth, history=strong.history)
    assert validation_within(published, fold_in=0.5).fold_in


def test_a_warning_comes_once():
    with pytest.warns(sl.ShortlistWarning):
        split = splits.leave_last_out(events(), repeats="keep")
    validation_within(split)  # a further warning would be an error here


@given(st.integers(0, 99), st.sampled_from(["time", "random", "contexts"]))
def test_a_validation_split_holds_nothing_of_the_test(seed, kind):
    data = events(400, seed=seed, users=20)
    outer = {
        "time": lambda: splits.by_time(data, 0.2, repeats="keep"),
        "random": lambda: splits.at_random(data, 0.2, repeats="keep", seed=seed),
        "contexts": lambda: splits.held_out_contexts(data, 5, fold_in=0.5, seed=seed),
    }[kind]()
    inner = validation_within(outer, fold_in=0.5, seed=seed)
    moments = set(outer.train.times.tolist())  # each event has its own
    for part in (inner.train, inner.history, inner.truth):
        assert set(part.times.tolist()) <= moments


def test_too_little_for_a_validation_says_where():
    frame = pl.DataFrame({"u": [1, 1, 2, 2], "i": [1, 2, 1, 2], "t": [1, 4, 2, 3]})
    data = sl.Interactions.from_frame(frame, context="u", item="i", time="t")
    with pytest.raises(DataError, match="cannot split off a validation part"):
        validation_within(splits.by_time(data, 0.25))


def test_the_test_is_not_for_choosing_settings():
    split = sl.splits.by_time(events(), test=0.2)
    with pytest.raises(sl.DataError, match="pairs of the test part; make it a split of"):
        compare_tuned(split, models=["ease"], validation=split, trials=1)
    with pytest.raises(sl.SettingError, match=r"validation is of type Interactions; expected a Split of split\.train"):
        compare_tuned(split, models=["ease"], validation=split.train, trials=1)


def test_a_split_by_contexts_shows_as_much_within():
    split = sl.splits.held_out_contexts(events(), 10, fold_in=0.5)
    inner = validation_within(split)
    assert inner.fold_in
    shown = inner.history.n_pairs / (inner.history.n_pairs + inner.truth.n_pairs)
    assert 0.45 < shown < 0.65
