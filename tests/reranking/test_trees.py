"""Trees kept as arrays score as LightGBM does, and arrays that are no trees are refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import shortlist as sl
from shortlist.reranking.trees import Trees, from_lightgbm, scores_numpy

lgb = pytest.importorskip("lightgbm")


def grown(seed: int = 0, missing: bool = True, **more):
    """Trees of LightGBM, and rows that it has not seen, NaN, zeros and thresholds themselves among them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1500, 5)).astype(np.float32)
    X[:, 4] = rng.integers(0, 3, len(X))
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
        X[:, 3] = np.nan_to_num(X[:, 3])  # a feature without NaN, so that NaN later is a surprise
    y = (np.nan_to_num(X[:, 0]) + (X[:, 4] == 1) + rng.normal(size=len(X)) > 1).astype(int)
    settings = {"objective": "lambdarank", "num_leaves": 7, "verbosity": -1, "min_data_in_leaf": 5, "num_threads": 1}
    booster = lgb.train(settings | more, lgb.Dataset(X, y, group=[30] * 50), 12)
    new = rng.normal(size=(400, 5)).astype(np.float32)
    new[rng.random(new.shape) < 0.15] = np.nan
    new[rng.random(new.shape) < 0.1] = 0
    trees = from_lightgbm(booster.model_to_string())
    thresholds = trees.threshold[trees.feature == 0]
    new[: len(thresholds), 0] = thresholds.astype(np.float32)
    return booster, trees, new


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("missing", [True, False])
def test_scores_are_those_of_lightgbm(seed, missing):
    booster, trees, rows = grown(seed, missing)
    assert len(trees) == 12
    ours = trees.scores(rows)
    np.testing.assert_array_equal(ours, booster.predict(rows, raw_score=True))
    np.testing.assert_array_equal(ours, [scores_numpy(trees, row) for row in rows])


def test_threads_change_nothing():
    _, trees, rows = grown()
    many = np.tile(rows, (40, 1))
    np.testing.assert_array_equal(trees.scores(many, threads=1), trees.scores(many, threads=3))


def test_a_tree_of_one_leaf():
    booster, trees, rows = grown(min_data_in_leaf=1500)
    assert not len(trees.feature)
    np.testing.assert_array_equal(trees.scores(rows), booster.predict(rows, raw_score=True))


def test_there_and_back():
    _, trees, rows = grown()
    again = Trees.from_arrays(trees.arrays(), 5)
    np.testing.assert_array_equal(again.scores(rows), trees.scores(rows))


def changed(trees: Trees, name: str, place, value) -> dict:
    array = getattr(trees, name).copy()
    array[place] = value
    return dataclasses.replace(trees, **{name: array}).arrays()


@pytest.mark.parametrize(
    ("name", "place", "value", "told"),
    [
        ("feature", 3, 5, "uses feature 5; expected 0 to 4"),
        ("feature", 3, -1, "uses feature"),
        ("left", 0, 0, "not behind its parent"),
        ("right", 2, 1, "not behind its parent"),
        ("left", 1, 6, "not behind its parent"),
        ("right", 1, -8, "not behind its parent"),
        ("left", 0, -(2**31), "not behind its parent"),
        ("missing", 0, 3, "missing has values from 0 to 3; expected 0 to 2"),
        ("threshold", 0, np.nan, "not finite"),
        ("value", 0, np.inf, "not finite"),
        ("value", slice(None), 1e38, "scores could reach 1.2e"),
        ("value", slice(None), 1e308, "scores could reach inf"),
        ("node_starts", 0, 1, "node_starts does not split"),
        ("node_starts", 1, 7, "one more leaf than nodes"),
        ("node_starts", -1, 1000, "node_starts does not split"),
        ("leaf_starts", 1, 10**6, "leaf_starts does not split"),
    ],
)
def test_what_is_no_tree_is_refused(name, place, value, told):
    _, trees, _ = grown()
    with pytest.raises(sl.StorageError, match=told):
        Trees.from_arrays(changed(trees, name, place, value), 5)


def test_arrays_of_other_kinds_are_refused():
    _, trees, _ = grown()
    with pytest.raises(sl.StorageError, match="expected"):
        Trees.from_arrays(trees.arrays() | {"left": trees.left.astype(np.int64)}, 5)
    with pytest.raises(sl.StorageError, match="expected"):
        Trees.from_arrays({name: array for name, array in trees.arrays().items() if name != "left"}, 5)
    with pytest.raises(sl.StorageError, match="different lengths"):
        Trees.from_arrays(trees.arrays() | {"left": trees.left[:-1]}, 5)


def test_kinds_of_trees_that_were_not_asked_for_are_refused():
    with pytest.raises(ValueError, match="zeros"):
        grown(zero_as_missing=True)
    with pytest.raises(ValueError, match="categorical or linear tree"):
        grown(linear_tree=True)
