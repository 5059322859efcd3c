"""What a step does on average, by going through all draws: the gradient of the loss that is declared."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.objectives import LambdaRank, Linear, Pairwise, Pointwise, Reciprocal, Step, TopN
from shortlist.sampling import AdaptiveRank, InBatch, Popularity, Rejection, Uniform, implied_weight, rounds_law
from shortlist.solvers.sgd import touches
from shortlist.solvers.sgd_tables import PAIRWISE, POINTWISE
from solvers.sampled_steps import ITEMS, STRENGTHS, Task, same_step

LOSSES = ["square", "logistic", "hinge"]
SAMPLERS = [
    Uniform(),
    Uniform("positive"),
    Popularity(0.7),
    Popularity(0.7, "positive"),
    InBatch(),
    InBatch("positive"),
]
WEIGHTED = {"positive_context_exponent": -0.5, "positive_item_exponent": 0.8}


def implied(task, step_weight=1.0):
    """α(c) or α(c, i) of every negative, as the sampler's q and the step weight imply it."""
    objective = task.recommender.recipe().objective
    negative_weight = objective.negative_weight if isinstance(objective, Pointwise) else 1.0

    def alpha(c, i=None):
        kind = "pointwise" if isinstance(objective, Pointwise) else "pairwise"
        if (i is None) != (kind == "pointwise"):
            return np.zeros(ITEMS)
        weight = step_weight(c, i) if callable(step_weight) else step_weight
        return implied_weight(
            kind, task.negatives, c, positive=i, n_negatives=task.m, step_weight=negative_weight * weight,
            **task.about(c),
        )  # fmt: skip

    return alpha


# --- distributions that do not depend on the model: the gradient of a loss -------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", [Pointwise, Pairwise])
def test_the_mean_step_is_the_gradient(kind, loss, sampler):
    task = Task({"objective": kind(loss), "sampler": sampler})
    same_step(task.expected(task.plain), task.gradient(implied(task)))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", [Pointwise, Pairwise])
def test_with_several_negatives(kind, loss):
    task = Task({"objective": kind(loss), "sampler": Popularity(0.5), "n_negatives": 2})
    same_step(task.expected(task.plain), task.gradient(implied(task)))


@pytest.mark.parametrize(
    ("objective", "more"),
    [
        (Pointwise("logistic", negative_weight=0.3), {}),
        (Pointwise("square", negative_weight=2.0), {"strength_as": "label", "weighting": "log"}),
        (Pointwise("hinge", negative_weight=0.5), {"strength_as": "label", "weighting": "log", **WEIGHTED}),
        (Pointwise("logistic"), WEIGHTED),
        (Pointwise("logistic", 0.6, temperature=0.4), {}),
        (Pairwise("hinge", 2.5), {}),
        (Pairwise("square", 2.5), {"n_negatives": 2}),
        (Pairwise("logistic", 0.3), {"normalize": True}),
        (Pairwise("logistic"), {}),
        (Pairwise("square"), WEIGHTED),
        (Pairwise("hinge"), {**WEIGHTED, "n_negatives": 2}),
    ],
    ids=repr,
)
def test_with_strengths_and_weights(objective, more):
    task = Task({"objective": objective, "sampler": Uniform(), **more}, strengths=STRENGTHS)
    same_step(task.expected(task.plain), task.gradient(implied(task)))


@pytest.mark.parametrize("kind", [Pointwise, Pairwise])
@pytest.mark.parametrize("more", [{"normalize": True}, {"biases": True}, {"normalize": True, "biases": True}], ids=repr)
def test_with_cosines_and_biases(kind, more):
    task = Task({"objective": kind("logistic"), "sampler": Uniform(), **more})
    expected = task.gradient(implied(task))
    found = task.expected(task.plain)
    same_step(found, expected)
    if task.recommender.biases:
        assert not found[0][:, 3].any()  # the ones stay
        assert not found[1][:, 4].any()
        assert found[1][:, 3].any()
        assert found[0][:, 4].any() == (kind is Pointwise)


def test_a_row_of_zeros_has_no_direction():
    task = Task({"objective": Pointwise(), "sampler": Uniform(), "normalize": True})
    task.start[0][0] = 0
    of_contexts, of_items = task.step(0, [1], [1.0])
    assert not of_contexts[0].any()
    assert not of_items.any()


# --- those that do: the weights that they imply, held constant -------------------------------------------------------


@pytest.mark.parametrize("exclude", ["history", "positive"])
@pytest.mark.parametrize("more", [{}, {"biases": True}, {"n_negatives": 2}], ids=repr)
def test_adaptive_ranks(exclude, more):
    for objective in (Pairwise("logistic"), Pointwise("square")):
        task = Task({"objective": objective, "sampler": AdaptiveRank(2.0, exclude), **more})
        same_step(task.expected(task.plain), task.gradient(implied(task)))


@pytest.mark.parametrize("penalty", [Reciprocal(), Linear(), Step(3), TopN(2)], ids=repr)
@pytest.mark.parametrize("exclude", ["history", "positive"])
def test_rejection_with_a_penalty(exclude, penalty):
    margin, rounds = 0.8, 4
    task = Task({"objective": Pairwise("hinge"), "sampler": Rejection(margin, rounds, exclude), "weight": penalty})
    table, y = penalty.table(ITEMS), task.scores()

    def violators(c, i):
        barred = {i, *(task.lists[c] if exclude == "history" else [])}
        left = [j for j in range(ITEMS) if j not in barred]
        return [j for j in left if y[c, j] + margin > y[c, i]], ITEMS - 1

    def draws(c, i):
        """The exact law of the item and the number of rounds."""
        found, left = violators(c, i)
        law = rounds_law(len(found) / left, rounds)
        each = [
            (j, float(table[(ITEMS - 1) // n]), law[n - 1] / len(found)) for j in found for n in range(1, rounds + 1)
        ]
        return [*each, (-1, 1.0, 1 - law.sum())]

    def mean_weight(c, i):
        found, left = violators(c, i)
        law = rounds_law(len(found) / left, rounds)
        estimates = (ITEMS - 1) // np.arange(1, rounds + 1)
        return float(law @ table[estimates] / law.sum()) if found else 0.0

    same_step(task.expected(draws), task.gradient(implied(task, mean_weight)))


@pytest.mark.parametrize("metric", ["ndcg", "ndcg@2", "ap", "auc", "recall@2"])
def test_lambdas_of_exact_ranks(metric):
    weight = LambdaRank(metric, "exact")
    task = Task({"objective": Pairwise("logistic"), "sampler": Uniform(), "weight": weight})
    ranks = 1 + np.argsort(np.argsort(-task.scores(), axis=1), axis=1)

    def change(c, i):
        positives = ranks[c, task.lists[c]]
        return np.array(
            [
                0 if j in task.lists[c] else weight.change(ranks[c, i], ranks[c, j], positives, ITEMS)
                for j in range(ITEMS)
            ]
        )

    def draws(c, i):
        return [(j, float(change(c, i)[j]), q) for j, _, q in task.plain(c, i)]

    same_step(task.expected(draws), task.gradient(implied(task, change)))


# --- regularization --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize(
    ("objective", "negatives", "of_context", "of_positive"),
    [
        (Pairwise("logistic"), [1, 4], 2, 2),
        (Pairwise("logistic"), [1, -1], 1, 1),
        (Pairwise("logistic"), [-1, -1], 0, 0),
        (Pointwise("logistic"), [1, 4], 3, 1),
        (Pointwise("logistic"), [-1, -1], 1, 1),
    ],
)
def test_a_row_is_shrunk_once_for_each_loss_that_it_is_in(optimizer, objective, negatives, of_context, of_positive):
    common = {"objective": objective, "n_negatives": 2, "biases": True}
    ridges = {"context_regularization": 0.02, "item_regularization": 0.03, "bias_regularization": 0.05}
    plain, shrunk = Task(common), Task({**common, **ridges})
    by_context = np.array([0.02] * 3 + [0, 0.05 if isinstance(objective, Pointwise) else 0])
    by_item = np.array([0.03] * 3 + [0.05, 0])
    times = np.zeros(ITEMS)
    times[0] = of_positive
    for j in negatives:
        times[j] += j >= 0
    W, H = plain.start
    found, without = (one.step(0, negatives, [1.0, 1.0]) for one in (shrunk, plain))
    np.testing.assert_allclose((found[0] - without[0])[0], -of_context * by_context * W[0], atol=1e-6)
    np.testing.assert_allclose(found[1] - without[1], -times[:, None] * by_item * H, atol=1e-6)
    assert not found[0][1:].any()


def test_the_pair_in_one_pass_is_the_pair_in_any_step():
    """One negative by plain steps has a kernel of its own; Adagrad's first step has the sign of every step."""
    common = {"objective": Pairwise("logistic"), "regularization": 0.05, "biases": True}
    fast, general = Task(common), Task({**common, "n_negatives": 2})
    for e, (_, i) in enumerate(fast.pairs):
        for j in {1, 4} - {i}:
            for one, other in zip(fast.step(e, [j], [0.7]), general.step(e, [j, -1], [0.7, 1.0])):
                np.testing.assert_allclose(one, other, atol=1e-6)
    adagrad = Task({**common, "optimizer": "adagrad"})
    for one, other in zip(fast.step(0, [1], [0.7]), adagrad.step(0, [1], [0.7])):
        np.testing.assert_allclose(np.sign(one), other, atol=1e-4)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("objective", "m"), [(Pairwise(), 1), (Pairwise(), 3), (Pointwise(), 1), (Pointwise(), 3)])
def test_the_exponent_of_the_regularization(objective, m, exponent):
    """In an epoch a row gets λ·(times touched)^ν, where it is λ·(times touched) without ν."""
    task = Task({"objective": objective, "n_negatives": m, "regularization_exponent": exponent})
    lengths, counts = task.rows.lengths, task.rows.column_counts()
    drawn = m * len(task.pairs) / ITEMS
    if isinstance(objective, Pairwise):
        of_contexts, of_items = m * lengths, m * counts + drawn
    else:
        of_contexts, of_items = (1 + m) * lengths, counts + drawn
    kind = PAIRWISE if isinstance(objective, Pairwise) else POINTWISE
    for found, expected in zip(touches(kind, m, lengths, counts), (of_contexts, of_items)):
        np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(task.rules.context_scales * of_contexts, of_contexts**exponent, rtol=1e-6)
    np.testing.assert_allclose(task.rules.item_scales * of_items, of_items**exponent, rtol=1e-6)


def test_scales_are_what_the_ridge_of_a_step_is_multiplied_by():
    settings = {"objective": Pairwise(), "n_negatives": 2, "regularization": 0.1, "regularization_exponent": 0.0}
    scaled, plain = Task(settings), Task({**settings, "regularization": 0.0})
    found, without = (one.step(2, [0, 5], [1.0, 1.0]) for one in (scaled, plain))
    rules = scaled.rules
    W, H = scaled.start
    np.testing.assert_allclose((found[0] - without[0])[1], -0.1 * 2 * rules.context_scales[1] * W[1], atol=1e-6)
    for item, times in ((1, 2), (0, 1), (5, 1)):
        np.testing.assert_allclose(
            (found[1] - without[1])[item], -0.1 * times * rules.item_scales[item] * H[item], atol=1e-6
        )
