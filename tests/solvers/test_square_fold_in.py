"""Folding in under the pointwise square loss: the minimum of the mean over all draws of negatives, written out."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist as sl
from shortlist.objectives import Pointwise
from shortlist.sampling import InBatch, Popularity, Uniform

SETTINGS = [
    {},
    {"sampler": Popularity(0.5), "n_negatives": 2},
    {"sampler": Uniform("positive"), "n_negatives": 3},
    {"sampler": InBatch(), "weighting": "log"},
    {"biases": True, "bias_regularization": 0.1},
    {"biases": True, "weighting": "log", "strength_as": "label", "bias_regularization": 0.0},
    {
        "sampler": Popularity(0.5, "positive"),
        "positive_context_exponent": -0.5,
        "positive_item_exponent": -0.3,
        "regularization_exponent": 0.5,
    },
]


def data():
    rng = np.random.default_rng(0)
    n = 500
    frame = {"user": rng.integers(0, 30, n), "item": (25 * rng.random(n) ** 2).astype(int), "w": rng.integers(1, 6, n)}
    return sl.Interactions.from_frame(frame, context="user", item="item", weight="w")


def fitted(**settings):
    objective = Pointwise("square", negative_weight=0.7, temperature=1.3)
    rest = {"dim": 4, "epochs": 10, "learning_rate": 0.03, "regularization": 0.02, "weighting": "binary"}
    return sl.MatrixFactorization(**{"objective": objective, "sampler": Uniform(), **rest, **settings}).fit(
        data(), threads=1
    )


def mean_loss(model, rows, c, w):
    """Of an epoch over the pairs of context c, when its embedding is w."""
    objective, sampler, _ = model.recipe()
    folding = Popularity(1.0) if isinstance(sampler, InBatch) else sampler
    negatives = folding.bind(rows)
    scores = model.item_embeddings_.astype(float) @ w / objective.temperature
    begin, end = rows.indptr[c : c + 2]
    strengths = np.log2(1 + rows.values[begin:end]) if model.weighting == "log" else np.ones(end - begin)
    lengths, counts = rows.lengths, rows.column_counts()
    of_context = lengths[c] ** model.positive_context_exponent / (lengths**model.positive_context_exponent).mean()
    of_items = counts**model.positive_item_exponent / (counts**model.positive_item_exponent).mean()
    total = 0.0
    for i, strength in zip(rows.row(c), strengths):
        as_label = model.strength_as == "label"
        alpha = of_context * of_items[i] * (1 if as_label else strength)
        total += alpha * (scores[i] - (strength if as_label else 1)) ** 2
        q = negatives.probabilities(c, int(i))
        total += model.n_negatives * of_context * objective.negative_weight * (q * scores**2).sum()
    touched = (1 + model.n_negatives) * lengths[c]
    ridge = np.full(len(w), model.regularization)
    if model.biases:
        ridge[model.dim], ridge[model.dim + 1] = 0, model.bias_regularization
    return total + 0.5 * touched**model.regularization_exponent * (ridge * w**2).sum()


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_it_ends_where_the_mean_loss_is_flat(settings):
    model = fitted(**settings)
    rows = model.seen_
    free = [*range(4), *([5] if model.biases else [])]
    for c in (0, 11, 29):
        (w,) = model._fold_in(rows.take(np.array([c]))).astype(float)
        assert w[4] == 1 if model.biases else len(w) == 4
        least = mean_loss(model, rows, c, w)
        for f in free:
            up, down = (mean_loss(model, rows, c, w + 1e-3 * sign * np.eye(len(w))[f]) for sign in (1, -1))
            assert abs(up - down) / 2e-3 < 2e-4 * least  # and a square that is flat is at its minimum


def test_rows_depend_on_no_other_row_and_on_no_thread():
    model = fitted()
    together = model._fold_in(model.seen_, 2)
    np.testing.assert_array_equal(model._fold_in(model.seen_, 1), together)
    for c in (0, 3, 29):
        np.testing.assert_array_equal(model._fold_in(model.seen_.take(np.array([c])))[0], together[c])


def test_who_had_everything_is_learnt_from_that_alone():
    model = fitted()
    (found,) = model.fold_in([model.items_.ids()])
    H = model.item_embeddings_.astype(float)
    A = H.T @ H / 1.3**2 + 0.5 * len(H) * 0.02 * np.eye(4)
    np.testing.assert_allclose(found, np.linalg.solve(A, H.sum(axis=0) / 1.3), rtol=1e-3, atol=1e-4)
