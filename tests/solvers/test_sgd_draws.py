"""The fused kernels, which draw and weigh by themselves, in the mean of many seeded runs from the same parameters."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from shortlist import MatrixFactorization
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives import LambdaRank, Pairwise, Pointwise, Reciprocal, Step
from shortlist.sampling import AdaptiveRank, InBatch, Popularity, Rejection, Uniform, rounds_law
from shortlist.solvers.optimizers import OptimizerState
from shortlist.solvers.sgd import for_histories, key
from shortlist.solvers.sgd_kernels import is_plain, run_chunk, run_plain, run_ranked
from shortlist.solvers.sgd_tables import ModelTables, TrainingPairs, work_space
from solvers.sampled_steps import ITEMS, Task, scores

RUNS = 6000
Z = 4.8  # some hundred comparisons, each fails by chance once in 600,000


def close(samples, expected):
    """The mean of the samples is the expected one, within their own error."""
    samples = samples.astype(float)
    error = samples.std(axis=0) / np.sqrt(len(samples))
    assert (np.abs(samples.mean(axis=0) - expected) <= Z * error + 2e-5).all()


def moved_contexts(task, *, ranked=False, seed=1):
    """How far the context of each pair moves: runs × pairs × coordinates, items fixed and a row for each run."""
    c, i = np.array(task.pairs).T
    rows = SparseRows.from_lists([np.array(task.lists[one], np.int32) for one in np.tile(c, RUNS)], n_columns=ITEMS)
    W = np.ascontiguousarray(np.tile(task.start[0][c], (RUNS, 1)))
    H = task.start[1].copy()
    before = W.copy()
    rules = task.rules._replace(frozen=1)
    model = ModelTables(W, H, *(OptimizerState.of(rules.optimizer, one.shape) for one in (W, H)))
    n = len(W)
    pairs = TrainingPairs(np.arange(n, dtype=np.int32), np.tile(i, RUNS).astype(np.int32), np.ones(1, np.float32))
    tables = for_histories(task.negatives.tables, rows)
    room = work_space(W.shape[1], rules.n_negatives, task.weigher)
    rest = (0, n, tables, task.weigher, rules, model, room, np.zeros(3))
    if ranked:
        table = scores(*task.start, rules.cosine).astype(np.float32)
        run_ranked(key(seed), pairs, np.tile(c, RUNS).astype(np.int32), table, *rest)
    else:
        run_chunk(key(seed), pairs, *rest)
    np.testing.assert_array_equal(H, task.start[1])
    return (W - before).reshape(RUNS, len(c), -1)


def expected_contexts(task, draws):
    """The same in the mean, over all draws."""
    return np.array([task.expected(draws, [e])[0][c] for e, (c, _) in enumerate(task.pairs)])


SAMPLERS = [
    Uniform(),
    Uniform("positive"),
    Popularity(0.7),
    InBatch(),
    AdaptiveRank(2.0),
    AdaptiveRank(2.0, "positive"),
]


@pytest.mark.parametrize(
    ("sampler", "objective"),
    [*product(SAMPLERS, [Pairwise("logistic")]), *product(SAMPLERS[:2], [Pointwise("square")])],
    ids=repr,
)
def test_draws_without_weights(sampler, objective):
    for more in ({}, {"n_negatives": 2}):
        task = Task({"objective": objective, "sampler": sampler, **more})
        close(moved_contexts(task), expected_contexts(task, task.plain))


def rejected(task, sampler, table, cosine=0):
    """The exact law of the item, the weight by the number of rounds, and their probability."""
    y = scores(*task.start, cosine)

    def draws(c, i):
        barred = {i, *(task.lists[c] if sampler.exclude == "history" else [])}
        left = [j for j in range(ITEMS) if j not in barred]
        found = [j for j in left if y[c, j] + sampler.margin > y[c, i]]
        law = rounds_law(len(found) / (ITEMS - 1), sampler.rounds)
        each = [
            (j, float(table[(ITEMS - 1) // n]), law[n - 1] / len(found))
            for j in found
            for n in range(1, sampler.rounds + 1)
        ]
        return [*each, (-1, 1.0, 1 - law.sum())]

    return draws


@pytest.mark.parametrize("penalty", [Reciprocal(), Step(2)], ids=repr)
@pytest.mark.parametrize("more", [{}, {"n_negatives": 2}, {"normalize": True}], ids=repr)
def test_rejection_weighs_by_its_rounds(more, penalty):
    sampler = Rejection(0.8, 3)
    task = Task({"objective": Pairwise("logistic"), "sampler": sampler, "weight": penalty, **more})
    draws = rejected(task, sampler, penalty.table(ITEMS), task.rules.cosine)
    close(moved_contexts(task), expected_contexts(task, draws))


def test_rejection_without_a_weight():
    sampler = Rejection(0.5, 2, "positive")
    task = Task({"objective": Pairwise("hinge"), "sampler": sampler})
    close(moved_contexts(task), expected_contexts(task, task.plain))


@pytest.mark.parametrize("metric", ["ndcg", "ap", "auc", "precision@2", "ap@3"])
@pytest.mark.parametrize(
    "more", [{}, {"n_negatives": 2}, pytest.param({"normalize": True}, marks=pytest.mark.slow)], ids=repr
)
def test_lambdas_of_exact_ranks(metric, more):
    weight = LambdaRank(metric, "exact")
    task = Task({"objective": Pairwise("logistic"), "weight": weight, **more})
    ranks = 1 + np.argsort(np.argsort(-task.scores(), axis=1), axis=1)

    def draws(c, i):
        positives = ranks[c, task.lists[c]]
        return [(j, weight.change(ranks[c, i], ranks[c, j], positives, ITEMS), q) for j, _, q in task.plain(c, i)]

    close(moved_contexts(task, ranked=True), expected_contexts(task, draws))


@pytest.mark.parametrize(
    ("metric", "more"),
    [  # every metric and every option once; all combinations are slow, as each is compiled by itself
        pytest.param(metric, more, marks=() if fast else pytest.mark.slow, id=f"{more}-{metric}")
        for m, metric in enumerate(["ndcg", "ap", "auc"])
        for k, more in enumerate([{}, {"normalize": True}, {"sampler": AdaptiveRank(2.0)}])
        for fast in [m == k]
    ],
)
def test_lambdas_of_estimated_ranks(metric, more):
    """Where k of n random items score higher; here over all pairs of two such items."""
    weight = LambdaRank(metric, "sampled", candidates=2)
    task = Task({"objective": Pairwise("logistic"), "weight": weight, **more})
    y = task.scores()
    places = np.arange(ITEMS) / (ITEMS - 1)
    worth = 1 + np.arange(ITEMS) if metric == "auc" else 1 / np.log2(2 + np.arange(ITEMS))
    apart = np.abs(worth[:, None] - worth)

    def above(c, item, candidates):
        return sum(y[c, k] > y[c, item] for k in candidates)

    def law(k):
        likely = places**k * (1 - places) ** (2 - k)
        return likely / likely.sum()

    def change_of(c, i, j, some):
        if metric == "ap":
            ranks = [1 + (above(c, one, some) + 1) * (ITEMS - 1) // 4 for one in (i, j, *task.lists[c])]
            return weight.change(ranks[0], ranks[1], ranks[2:], ITEMS)
        n = len(task.lists[c])
        norm = n * (ITEMS - n) if metric == "auc" else worth[:n].sum()
        return law(above(c, i, some)) @ apart @ law(above(c, j, some)) / norm

    def change(c, i, j):
        return float(np.mean([change_of(c, i, j, some) for some in product(range(ITEMS), repeat=2)]))

    close(
        moved_contexts(task),
        expected_contexts(task, lambda c, i: [(j, change(c, i, j), q) for j, _, q in task.plain(c, i)]),
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": Pairwise("logistic")},
        {"objective": Pointwise("logistic"), "n_negatives": 2, "biases": True},
        {"objective": Pairwise("hinge"), "sampler": Rejection(0.8, 3), "weight": Reciprocal(), "regularization": 0.1},
    ],
    ids=repr,
)
def test_both_sides_move(settings):
    """The same with items that move, one pair at a time."""
    task = Task(settings)
    draws = task.plain
    if task.recommender.recipe().weight is not None:
        sampler = task.recommender.recipe().sampler
        draws = rejected(task, sampler, Reciprocal().table(ITEMS))
    runs, e = 1500, 3
    room = work_space(task.start[0].shape[1], task.m, task.weigher)
    moved = ([], [])
    for run in range(runs):
        W, H = (one.copy() for one in task.start)
        model = ModelTables(W, H, *(OptimizerState.of(task.rules.optimizer, one.shape) for one in (W, H)))
        told = (0, 1, task.negatives.tables, task.weigher, task.rules, model, room, np.zeros(3))
        run_chunk(key(5, run), task.given([e]), *told)
        for out, one, before in zip(moved, (W, H), task.start):
            out.append(one - before)
    for found, expected in zip(moved, task.expected(draws, [e])):
        close(np.array(found), expected)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "square"])
def test_bpr_has_a_kernel_that_can_do_nothing_else(loss):
    """Which draws and moves as the one that can do everything; a context here has everything."""
    rng = np.random.default_rng(0)
    lists = [np.flatnonzero(rng.random(30) < 0.2) for _ in range(50)]
    lists[7] = np.arange(30)
    rows = SparseRows.from_lists([one.astype(np.int32) for one in lists], n_columns=30)
    settings = {"dim": 5, "objective": Pairwise(loss), "learning_rate": 0.05, "regularization": 0.1, "optimizer": "sgd"}
    model = MatrixFactorization(**settings)
    prepared = model._precompute(rows)
    rules, weigher = model._step_tables(prepared, rows.effective_counts), model._weigher(prepared, 30)
    tables = Uniform().bind(rows).tables
    assert is_plain(tables, weigher, rules)
    order = rng.permutation(len(rows))
    contexts = np.repeat(np.arange(50, dtype=np.int32), rows.lengths)[order]
    pairs = TrainingPairs(contexts, rows.indices[order], np.ones(1, np.float32))
    found = []
    for start, stop in ((0, len(rows)), (37, 118), (5, 6), (9, 9)):
        W, H = (rng.normal(size=(n, 5)).astype(np.float32) for n in (50, 30))
        for plain in (True, False):
            both = W.copy(), H.copy()
            state = ModelTables(*both, *(OptimizerState.of(rules.optimizer, one.shape) for one in both))
            room, sums = work_space(5, 1, weigher), np.zeros(3)
            if plain:
                run_plain(key(start), pairs, start, stop, tables, rules, state, room, sums)
            else:
                run_chunk(key(start), pairs, start, stop, tables, weigher, rules, state, room, sums)
            found.append((*both, sums[0]))
            assert (both[0] != W).any() == (stop > start)
        for one, other in zip(found[-2], found[-1]):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_what_that_kernel_is_not_for():
    for settings in (
        {"objective": Pointwise()},
        {"n_negatives": 2},
        {"sampler": Popularity()},
        {"weight": LambdaRank()},
        {"optimizer": "adam"},
        {"normalize": True},
        {"biases": True},
        {"positive_item_exponent": 0.5},
        {"positive_context_exponent": 0.5},
        {"regularization_exponent": 0.5, "regularization": 0.1},
    ):
        task = Task(settings)
        assert not is_plain(task.negatives.tables, task.weigher, task.rules)
    alone = Task({"regularization_exponent": 0.0, "regularization": 0.1}, lists=[[0, 1, 2]])
    assert not is_plain(alone.negatives.tables, alone.weigher, alone.rules)
    bpr = Task({})
    assert is_plain(bpr.negatives.tables, bpr.weigher, bpr.rules)


def test_the_same_seed_draws_the_same():
    task = Task({"objective": Pairwise("logistic")})
    first = moved_contexts(task, seed=1)
    np.testing.assert_array_equal(first, moved_contexts(task, seed=1))
    assert (first != moved_contexts(task, seed=2)).any()
