"""LambdaMART by itself: the same trees again, what it says of features, and what it refuses."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest

import shortlist as sl
from reranking.worlds import ByFeature, planted
from shortlist._phrases import count

pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def training_set():
    data, items, _ = planted()
    split = sl.splits.by_time(sl.splits.by_time(data, test=2.0).train, test=1.0)
    spy = ByFeature("rank")
    sl.TwoStage(sl.IALS(dim=6, epochs=4).fit(split.train), spy, candidates=60, item_features=items).fit(split)
    return spy.candidates, spy.relevance


def test_the_same_seed_gives_the_same_trees_at_any_number_of_threads(training_set, monkeypatch):
    monkeypatch.setattr("shortlist.reranking.lambdamart.SMALL", 0)
    candidates, relevance = training_set
    one = sl.LambdaMART(trees=30).fit(dataclasses.replace(candidates, threads=1), relevance)
    two = sl.LambdaMART(trees=30).fit(dataclasses.replace(candidates, threads=2), relevance)
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, two.arrays()[name], err_msg=name)
    other = sl.LambdaMART(trees=30, seed=5).fit(candidates, relevance)
    assert one.n_trees_ == two.n_trees_
    assert one.settings() != other.settings()


def test_validation_decides_how_many_trees(training_set):
    candidates, relevance = training_set
    full = sl.LambdaMART(trees=80, validation=0.0).fit(candidates, relevance)
    short = sl.LambdaMART(trees=80, validation=0.3, patience=3).fit(candidates, relevance)
    assert full.n_trees_ == 80
    assert 1 <= short.n_trees_ < 80
    # Grown from all queries: the first trees are those of a fit without validation.
    np.testing.assert_array_equal(short.trees_.threshold, full.trees_.threshold[: len(short.trees_.threshold)])


def test_it_says_which_features_decide(training_set):
    candidates, relevance = training_set
    model = sl.LambdaMART().fit(candidates, relevance)
    frame = model.importance()
    assert frame["feature"][0] == "item:season"
    assert frame["share"].sum() == pytest.approx(1)
    assert sorted(frame["feature"]) == sorted(candidates.feature_names)
    assert f"fitted: {count(model.n_trees_, 'tree')} of {len(candidates.feature_names)} features" in repr(model)
    season = candidates.column("item:season") > 0
    assert model.score(candidates)[season].mean() > model.score(candidates)[~season].mean() + 0.05


def test_other_features_are_refused(training_set):
    candidates, relevance = training_set
    model = sl.LambdaMART(trees=3).fit(candidates, relevance)
    names = candidates.feature_names
    with pytest.raises(sl.SettingError, match="missing: 'score'; unexpected: 'mine'"):
        model.score(candidates.with_features(candidates.features, ("mine", *names[1:])))
    with pytest.raises(sl.SettingError, match="the same in another order"):
        model.score(candidates.with_features(candidates.features, names[::-1]))
    with pytest.raises(sl.SettingError, match=r"fitted on 10 \(missing: "):
        model.score(candidates.with_features(candidates.features[:, :-1], names[:-1]))
    with pytest.raises(sl.SettingError, match="features has shape"):
        candidates.with_features(candidates.features[:, :-1], names)


def test_too_little_to_learn_from_is_said(training_set):
    candidates, relevance = training_set
    few = candidates.select([0, 1, 2])
    with pytest.warns(sl.ShortlistWarning, match=r"leaves of at least 1,000 candidates no tree can split"):
        sl.LambdaMART(trees=3, min_leaf=1000).fit(few, relevance[: len(few)])
    assert sl.LambdaMART(trees=3, min_leaf=5).fit(few, relevance[: len(few)]).trees_.feature.size


@pytest.mark.parametrize(
    ("relevance", "told"),
    [
        (lambda y: y[:-1], "expected .* integers"),
        (lambda y: y.astype(np.float64), "relevance is float64"),
        (lambda y: y - 1, "ranges from -1"),
        (lambda y: y * 31, "expected grades from 0 to 30"),
        (lambda y: y * 0, "no candidate is relevant"),
    ],
)
def test_relevance_that_is_none(training_set, relevance, told):
    with pytest.raises(sl.DataError, match=told):
        sl.LambdaMART().fit(training_set[0], relevance(training_set[1]))


@pytest.mark.parametrize(
    "settings",
    [
        {"trees": 0},
        {"leaves": 1},
        {"learning_rate": 0.0},
        {"min_leaf": 0},
        {"regularization": -1.0},
        {"at": 0},
        {"validation": 1.0},
        {"patience": 0},
        {"seed": -1},
    ],
)
def test_settings_that_make_no_sense(settings):
    with pytest.raises(sl.SettingError, match=next(iter(settings))):
        sl.LambdaMART(**settings)


def test_unfitted_use_is_refused(training_set):
    for call in (lambda m: m.score(training_set[0]), lambda m: m.importance(), lambda m: m.n_trees_):
        with pytest.raises(sl.NotFittedError, match="has not been fitted"):
            call(sl.LambdaMART())


def test_without_lightgbm_it_says_how_to_get_it(training_set, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)  # importing it fails
    with pytest.raises(sl.SettingError, match=r'not installed: pip install "shortlist\[rerank\]"'):
        sl.LambdaMART().fit(*training_set)
