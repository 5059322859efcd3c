"""Weights and settings that change nothing: nobody is left to believe that they do."""

from __future__ import annotations

import warnings
from dataclasses import fields

import numpy as np
import pytest

import shortlist as sl
from shortlist.objectives.weighting import is_stated
from shortlist.recommenders.registry import REGISTRY, recommender_class
from shortlist.recommenders.search_space import When
from shortlist.storage import save_model
from shortlist.tuning import Choice, Increasing, Integer, Real

FRAME = {"user": ["a", "a", "b", "b", "c"], "item": ["x", "y", "x", "z", "y"], "w": [1, 5, 2, 1, 3]}
SMALL = {"dim": 2, "epochs": 1}


def events(**named):
    return sl.Interactions.from_frame(FRAME, context="user", item="item", **named)


def small(name, **settings):
    kind = recommender_class(name)
    known = {one.name for one in fields(kind)}
    return kind(**{key: value for key, value in SMALL.items() if key in known}, **settings)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_weights_that_are_ignored_by_default_are_warned_of(name):
    weighted = events(weight="w")
    with pytest.warns(sl.ShortlistWarning, match=r"weights of column 'w' are ignored.*weighting='log'") as told:
        fitted = small(name).fit(weighted, threads=1)
    assert len(told) == 1
    assert f"to {name} to use them" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(name, weighting="log").fit(weighted, threads=1)
        small(name, weighting="binary").fit(weighted, threads=1)
        small(name).fit(events(), threads=1)
    if hasattr(fitted, "partial_fit"):
        with pytest.warns(sl.ShortlistWarning, match="are ignored"):
            fitted.partial_fit(weighted, epochs=1, threads=1)


def test_equal_weights_and_published_ones_are_not_warned_of():
    same = sl.Interactions.from_frame({**FRAME, "w": [2.0] * 5}, context="user", item="item", weight="w")
    sl.Popularity().fit(same)
    sl.Popularity().fit(sl.datasets.load("online-retail").interactions)


def test_matrices_and_counts_are_warned_of():
    matrix = events(weight="w").to_csr()[0]
    with pytest.warns(sl.ShortlistWarning, match="weights of column 'weight' are ignored"):
        sl.Popularity().fit(sl.Interactions.from_csr(matrix))
    sl.Popularity().fit(sl.Interactions.from_csr(matrix, weighted=False))
    with pytest.warns(sl.ShortlistWarning, match="aggregate='count'"):
        sl.Popularity().fit(events(aggregate="count"))


def test_a_weighting_that_nobody_wrote_is_the_default_all_the_way(tmp_path):
    model = sl.EASE()
    assert model.weighting == "binary"
    assert repr(model) == "EASE(regularization=300.0, weighting='binary')"
    assert not is_stated(model.weighting)
    assert {type(one) for one in model.settings().values()} == {float, str}
    model.fit(events()).save(tmp_path / "m")
    assert sl.load(tmp_path / "m").settings() == model.settings()
    model = sl.EASE()
    model.weighting = "binary"
    assert is_stated(model.weighting)


UNUSED = [
    (sl.IALS, {"block": 8}, "solver='block'"),
    (sl.IALS, {"block": 8, "solver": "exact"}, "solver='block'"),
    (sl.IALS, {"strength_as": "label"}, "only with weighting='log'"),
    (sl.PARAFAC, {"solver": "cd", "steps": 5}, "conjugate gradients"),
    (sl.FeatureIALS, {"solver": "cd", "steps": 5}, "conjugate gradients"),
    (sl.RankALS, {"solver": "als", "steps": 5}, "conjugate gradients"),
    (sl.RankALS, {"solver": "cd", "steps": 5}, "conjugate gradients"),
    (sl.Tucker, {"loss": "pairwise", "unobserved_weight": 0.5}, "loss='pairwise'"),
    (sl.FactorizationMachine, {"loss": "pairwise", "convention": "total"}, "loss='pairwise'"),
    (sl.ItemKNN, {"k1": 2.0}, "similarity='bm25'"),
    (sl.UserKNN, {"similarity": "tfidf", "b": 0.5}, "similarity='bm25'"),
    (sl.MatrixFactorization, {"batch": 7}, "only with Softmax"),
    (sl.MatrixFactorization, {"batch": 7, "objective": "Pointwise()"}, "only with Softmax"),
    (
        sl.MatrixFactorization,
        {"objective": "Softmax(0.1)", "sampler": "AllItems()", "n_negatives": 4},
        "draws no negatives",
    ),
    (sl.LogisticMF, {"schedule_epochs": 10, "schedule": "constant"}, "schedule='constant'"),
    (sl.BPR, {"bias_regularization": 0.1}, "biases=False"),
    (sl.SquareMF, {"strength_as": "label"}, "only with weighting='log'"),
    (sl.SoftmaxMF, {"beta": 0.7}, "n_negatives=0"),
    (sl.SoftmaxMF, {"regularization_exponent": 0.5}, "as often as it is observed"),
]


@pytest.mark.parametrize(("kind", "settings", "why"), UNUSED)
def test_settings_that_change_nothing_are_refused(kind, settings, why):
    with pytest.raises(sl.SettingError, match="has no effect") as told:
        kind(**settings)
    assert why in str(told.value)
    changed = next(name for name in settings if str(told.value).startswith(f"{name}="))
    model = kind(**{name: value for name, value in settings.items() if name != changed})  # as the message advises
    setattr(model, changed, settings[changed])
    with pytest.raises(sl.SettingError, match="has no effect"):
        model.fit(events())


def test_settings_that_are_refused_do_change_nothing():
    """For those that are cheap to see: with the check out of the way, the model is the same."""
    data = events()
    for kind, settings, _ in UNUSED:
        if kind is sl.ItemKNN or kind is sl.UserKNN or "dim" not in {one.name for one in fields(kind)}:
            continue
        plain, changed = kind(**SMALL), kind(**SMALL)
        vars(plain).update({k: v for k, v in settings.items() if k in {"solver", "loss", "objective", "sampler"}})
        vars(changed).update(settings)
        changed.unused_settings = dict
        first, second = (one.fit(data, threads=1).score(["a"], [["x", "y", "z"]])[0] for one in (plain, changed))
        np.testing.assert_array_equal(first, second, err_msg=f"{kind.__name__} {settings}")


def test_how_to_validate_needs_a_validation():
    for more in ({"patience": 1}, {"metric": "recall@5"}, {"every": 2}):
        with pytest.raises(sl.SettingError, match="has no effect without validation"):
            sl.IALS(**SMALL).fit(events(), **more)
        with pytest.raises(sl.SettingError, match=f"does not accept {next(iter(more))}"):
            sl.EASE().fit(events(), **more)


def test_what_the_data_have_no_use_for_is_warned_of():
    for model, more, what in [
        (sl.FeatureIALS(**SMALL, feature_strength=3.0), {}, "feature_strength=3.0.*without features"),
        (sl.PARAFAC(**SMALL, part_strength=3.0), {}, "part_strength=3.0.*only the part 'user'"),
        (sl.Tucker(**SMALL, part_dim=2), {}, "part_dim=2.*only the part 'user'"),
        (
            sl.LogisticMF(**SMALL, init="random"),
            {"start": sl.BPR(**SMALL).fit(events())},
            "init='random'.*from start",
        ),
        (sl.BPR(**SMALL, init="random"), {"start": sl.BPR(**SMALL).fit(events())}, "init='random'.*from start"),
    ]:
        with pytest.warns(sl.ShortlistWarning, match=what):
            model.fit(events(), threads=1, **more)


def test_a_search_tries_nothing_that_is_refused():
    data = sl.datasets.synthetic(60, 30, 600)
    space = {"similarity": Choice("cosine", "bm25"), "shrinkage": Real(1.0, 5.0), "k1": Real(1.0, 3.0)}
    found = sl.tune("itemknn", data, space=space, trials=6, progress=False)  # conditions of the space are gone
    assert {one.state for one in found.trials} == {"complete"}
    assert sl.ItemKNN(**found.settings).settings() == found.settings
    fixed = sl.tune(sl.PARAFAC(dim=2, epochs=1, loss="pairwise"), data, trials=3, progress=False)
    assert "unobserved_weight" not in fixed.trials[0].settings
    assert all(one.state in ("complete", "pruned") for one in fixed.trials)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_spaces_are_about_settings_that_matter(name):
    kind = recommender_class(name)
    for setting, dimension in kind.space().items():
        when = getattr(dimension, "when", None)
        condition = {when.setting: when.options[0]} if isinstance(when, When) else {}
        value = {Real: "low", Integer: "low", Choice: "options", Increasing: "values"}[type(dimension)]
        first = getattr(dimension, value)
        kind(**condition, **{setting: first[0] if isinstance(first, tuple) else first})


def test_patience_of_a_search_is_for_models_that_learn_in_epochs():
    with pytest.raises(sl.SettingError, match="EASE does not learn in epochs and does not accept patience"):
        sl.tune("ease", sl.datasets.synthetic(60, 30, 600), trials=1, patience=1, progress=False)


def test_models_saved_with_a_setting_that_changes_nothing_still_load(tmp_path):
    """Earlier versions took such settings."""
    model = sl.IALS(dim=4, epochs=2).fit(events())
    stored = model.to_stored()
    stored.settings["block"] = 32
    save_model(tmp_path / "model", stored)
    loaded = sl.load(tmp_path / "model")
    assert loaded.block == 64
    np.testing.assert_array_equal(loaded.item_embeddings_, model.item_embeddings_)
    stored.settings["dim"] = 0
    save_model(tmp_path / "broken", stored)
    with pytest.raises(sl.StorageError, match="dim is 0"):
        sl.load(tmp_path / "broken")
