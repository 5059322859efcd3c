"""Epochs of steps: their order, what is the same and what varies, that they learn; and folding in."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2

import shortlist as sl
from recommenders.factorizations import PLAIN_SGD, events, same
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives import LambdaRank, Pairwise, Pointwise, Reciprocal, loss_values
from shortlist.sampling import AdaptiveRank, InBatch, Popularity, Rejection, Uniform
from shortlist.solvers.sgd import SCHEDULES, SampledSteps, fold_in, for_histories, key, learning_rate
from shortlist.solvers.sgd_order import count_buckets, fill_buckets, shuffle
from shortlist.solvers.sgd_tables import TrainingPairs


def steps(data, *, threads=1, epochs=5, start=None, **settings) -> SampledSteps:
    """What `fit` runs, before the first epoch."""
    model = sl.MatrixFactorization(**{**PLAIN_SGD, "dim": 4, "learning_rate": 0.1, **settings})
    basis = model._precompute(data.by_context)
    return model._trainer(data, basis, *model._start(data, basis, start, threads), threads, epochs)


def told(loop: SampledSteps) -> np.ndarray:
    """The pairs in the order of the last epoch."""
    return np.stack([loop._pairs.contexts, loop._pairs.items], 1)


def observed(rows: SparseRows) -> np.ndarray:
    return np.stack([np.repeat(np.arange(rows.n_rows), rows.lengths), rows.indices], 1)


# --- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [(60, 30), (400, 60), (1, 30)])
def test_every_pair_comes_once_an_epoch_in_another_order(size, threads):
    data = events(*size)
    loop, orders = steps(data, threads=threads), []
    for _ in range(3):
        loop.epoch()
        order = told(loop)
        np.testing.assert_array_equal(order[np.lexsort(order.T[::-1])], observed(data.by_context))
        orders.append(order)
    if len(orders[0]) > 20:
        assert not (orders[0] == orders[1]).all()
        assert not (orders[1] == orders[2]).all()


def test_the_order_is_a_function_of_the_seed_and_not_of_the_threads():
    data, orders = events(400, 60), []
    for seed, threads in ((3, 1), (3, 2), (4, 1)):
        loop = steps(data, seed=seed, threads=threads)
        loop.epoch()
        orders.append(told(loop))
    np.testing.assert_array_equal(orders[0], orders[1])
    assert not (orders[0] == orders[2]).all()


def test_strengths_go_with_their_pairs():
    data = events(400, 60, weighted=True)
    loop = steps(data, weighting="raw")
    rows = data.by_context
    weight_of = dict(zip(map(tuple, observed(rows).tolist()), rows.values.tolist()))
    for _ in range(2):
        loop.epoch()
        assert [weight_of[tuple(pair)] for pair in told(loop).tolist()] == loop._pairs.strengths.tolist()


@pytest.mark.parametrize("ranks", [None, "exact", "sampled"])
def test_every_context_is_stepped_on_as_often_as_it_has_pairs(ranks):
    """By the counts of Adam; blocks of contexts, where ranks are exact, leave none out."""
    data = events(150, 30, weighted=True)
    weight = None if ranks is None else LambdaRank("ap", ranks)
    loop = steps(data, optimizer="adam", weight=weight, weighting="log")
    for number in (1, 2):
        loop.epoch()
        np.testing.assert_array_equal(loop.states[0].counts, number * data.by_context.lengths)
        assert loop.states[1].counts.sum() == 2 * number * data.n_pairs


def shuffled(seed: int, n: int, n_buckets: int) -> list[int]:
    """An order of n pairs as an epoch makes it."""
    counts = np.zeros(n_buckets, np.int64)
    count_buckets(key(seed, 0), 0, n, counts)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    pairs = TrainingPairs(np.empty(n, np.int32), np.empty(n, np.int32), np.ones(1, np.float32))
    codes = np.arange(n, dtype=np.int32)
    fill_buckets(key(seed, 0), 0, n, codes, codes, pairs.strengths, bounds[:-1].copy(), *pairs[:3])
    for k in range(n_buckets):
        shuffle(key(seed, 1, k), pairs, bounds[k], bounds[k + 1])
    return pairs.contexts.tolist()


def uniform(counts, tail: float = 1e-4) -> bool:
    """Whether these counts may be those of equally likely outcomes."""
    counts = np.asarray(counts, float).ravel()
    mean = counts.mean()
    return bool(((counts - mean) ** 2 / mean).sum() < chi2.isf(tail, counts.size - 1))


@pytest.mark.parametrize("n_buckets", [1, 3])
def test_every_order_is_as_likely(n_buckets):
    counts = dict.fromkeys(permutations(range(4)), 0)
    for seed in range(2400):
        counts[tuple(shuffled(seed, 4, n_buckets))] += 1
    assert uniform(list(counts.values()))


def test_every_pair_is_as_likely_at_every_place_across_buckets():
    """The 7 + 6 + … pairs of a small problem cut into the buckets that `_buckets` makes of 1,100 pairs."""
    data = events(200, 40)
    loop = steps(data, learning_rate=0.0)
    rows = observed(data.by_context)
    place_of = {pair: k for k, pair in enumerate(map(tuple, rows.tolist()))}
    n, counts = len(rows), np.zeros((8, 8))
    for _ in range(30):
        assert len(loop._buckets()) > 2
        loop.epoch()
        at = np.array([place_of[tuple(pair)] for pair in told(loop).tolist()])
        np.add.at(counts, (at * 8 // n, np.arange(n) * 8 // n), 1)
    expected = np.outer(*(np.bincount(np.arange(n) * 8 // n),) * 2) * 30 / n
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-4, 49)


# --- what is the same, and learning ----------------------------------------------------------------------------------

COMPOSITIONS = [
    {},
    {"objective": Pointwise("logistic"), "n_negatives": 3, "biases": True},
    {"objective": Pointwise("square"), "sampler": Popularity(0.5), "optimizer": "adagrad"},
    {"objective": Pairwise("hinge"), "sampler": Rejection(1.0, 20), "weight": Reciprocal(), "optimizer": "adagrad"},
    {"sampler": AdaptiveRank(20.0, refresh=500)},
    {"sampler": InBatch(), "normalize": True},
    {"weight": LambdaRank("ndcg", "exact"), "learning_rate": 1.0},
    {"weight": LambdaRank("ap@10", "sampled"), "learning_rate": 1.0},
]


@pytest.mark.parametrize(
    "settings", [pytest.param(s, marks=pytest.mark.slow if k % 2 else ()) for k, s in enumerate(COMPOSITIONS)], ids=repr
)
def test_one_thread_is_reproducible_bit_for_bit(settings):
    data = events(weighted=True)
    chosen = {**PLAIN_SGD, "dim": 5, "epochs": 3, "learning_rate": 0.1, "weighting": "log", **settings}
    first, again, other = (sl.MatrixFactorization(**chosen, seed=seed).fit(data, threads=1) for seed in (1, 1, 2))
    same(first, again)
    assert [one.loss for one in first.training_] == [one.loss for one in again.training_]
    assert not np.array_equal(first.item_embeddings_, other.item_embeddings_)


@pytest.fixture(scope="module")
def planted():
    return sl.splits.by_time(events(200, 60), test=0.2)


LEARNING = [
    *COMPOSITIONS,
    {"optimizer": "adam", "learning_rate": 0.01},
    {"optimizer": "adagrad"},
    *({"schedule": schedule} for schedule in SCHEDULES[1:]),
    {"biases": True, "normalize": True},
    {"objective": Pairwise("square"), "n_negatives": 2, "learning_rate": 0.02},
    {"objective": Pointwise("hinge"), "biases": True},
    {"regularization_exponent": 0.5, "positive_item_exponent": -0.5, "positive_context_exponent": -1.0},
]


@pytest.mark.parametrize("settings", LEARNING, ids=repr)
def test_it_learns_with_two_threads(settings, planted):
    """Contexts like a third of the items: chance is far below what popularity gets, 0.10, and IALS gets 0.30."""
    model = sl.MatrixFactorization(**{**PLAIN_SGD, "dim": 8, "epochs": 60, "learning_rate": 0.1, **settings})
    model.fit(planted.train, threads=2)
    assert sl.evaluate(model, planted, "ndcg@10")["ndcg@10"] > 0.2
    losses = [one.loss.observed + one.loss.unobserved for one in model.training_]
    if model.recipe().sampler == Uniform() and model.weight is None:  # others look for what is hard
        assert losses[-1] < 0.8 * losses[0]
    assert all(one.samples == planted.train.n_pairs for one in model.training_)


def test_schedules():
    assert [learning_rate("constant", e, 4) for e in range(4)] == [1, 1, 1, 1]
    assert [learning_rate("linear", e, 4) for e in range(5)] == [1, 0.75, 0.5, 0.25, 0]
    np.testing.assert_allclose(
        [learning_rate("cosine", e, 4) for e in range(5)], [(1 + math.cos(math.pi * e / 4)) / 2 for e in range(5)]
    )
    np.testing.assert_allclose([learning_rate("inverse", e, 9) for e in range(10)], [1 / (1 + e) for e in range(10)])
    for schedule in SCHEDULES:
        rates = [learning_rate(schedule, e, 10) for e in range(13)]
        assert rates[0] == 1
        assert rates == sorted(rates, reverse=True)
        assert min(rates) >= 0


def test_an_epoch_has_the_rate_of_its_schedule():
    """Two loops that differ in the schedule alone, at an epoch in which both rates are the same."""
    data = events()
    late, plain = steps(data, schedule="linear", epochs=4), steps(data, learning_rate=0.05, epochs=4)
    late.number = plain.number = 2
    late.epoch()
    plain.epoch()
    np.testing.assert_array_equal(late.items, plain.items)
    assert late.number == 3


def test_a_rate_of_zero_moves_nothing_and_the_loss_is_that_of_the_parameters():
    """In the mean of epochs, over negatives and over the eighth of the pairs that is looked at."""
    data = events(200, 40)
    rows = data.by_context
    for objective, m in ((Pairwise("logistic"), 1), (Pointwise("square", negative_weight=0.5), 2)):
        settings = {"objective": objective, "n_negatives": m, "init_scale": 2.0, "regularization": 0.03}
        loop = steps(data, **{**settings, "learning_rate": 0.0})
        W, H = (one.copy() for one in loop.embeddings())
        found = []
        for _ in range(40):
            loop.epoch()
            found.append((loop.loss().observed, loop.loss().unobserved))
        np.testing.assert_array_equal(loop.contexts, W)
        np.testing.assert_array_equal(loop.items, H)
        y, expected = W.astype(float) @ H.T.astype(float), np.zeros(2)
        for c in range(rows.n_rows):
            own = rows.row(c)
            out = np.setdiff1d(np.arange(rows.n_columns), own)
            if isinstance(objective, Pairwise):
                differences = y[c, own][:, None] - y[c, out]
                expected[0] += loss_values("logistic", differences, 1.0).mean(axis=1).sum()
            else:
                expected[0] += loss_values("square", y[c, own], 1.0).sum()
                expected[1] += len(own) * m * 0.5 * loss_values("square", y[c, out], 0.0).mean()
        error = np.std(found, axis=0) / math.sqrt(len(found))
        assert (np.abs(np.mean(found, axis=0) - expected) <= 4.5 * error).all()
        if isinstance(objective, Pairwise):
            often = (rows.lengths, rows.column_counts() + data.n_pairs / rows.n_columns)
        else:
            often = (3 * rows.lengths, rows.column_counts() + 2 * data.n_pairs / rows.n_columns)
        shrink = [0.5 * 0.03 * float((n * (X.astype(float) ** 2).sum(axis=1)).sum()) for n, X in zip(often, (W, H))]
        assert loop.loss().regularizer == pytest.approx(sum(shrink), rel=1e-5)


def test_the_lists_of_adaptive_ranks_follow_the_model():
    data = events(400, 60)
    loop = steps(data, sampler=AdaptiveRank(5.0, refresh=300))
    seen, refresh = [], loop.negatives.refresh

    def note(items, threads):
        seen.append(items.copy())
        refresh(items, threads)

    loop.negatives.refresh = note
    loop.epoch()
    assert len(seen) > 2
    assert all((a != b).any() for a, b in pairwise(seen))
    rare = steps(data, sampler=AdaptiveRank(5.0, refresh=10**9))
    rare.epoch()
    assert rare.negatives.tables.lists.shape == (4, data.n_items)


@pytest.mark.parametrize("kind", [sl.BPR, sl.SquareMF])
def test_a_fit_that_diverges_says_so(kind, tmp_path):
    """Scores that are no numbers have an order too, and an NDCG that may look good."""
    split = sl.splits.by_time(events(), test=0.2)
    for more in ({}, {"validation": split}, {"checkpoint": tmp_path / "c"}):
        model = kind(dim=4, epochs=10, learning_rate=1e3, optimizer="sgd")
        with pytest.raises(sl.SettingError, match=r"not finite after epoch \d.* use a smaller learning_rate"):
            model.fit(split.train, threads=2, **more)
        with pytest.raises(sl.NotFittedError):
            model.recommend([0])


def test_a_fit_diverges_where_embeddings_are_finite_and_scores_are_not():
    many = events()
    split = sl.splits.by_time(many, test=0.2)
    model = sl.HingeMF(optimizer="sgd", dim=8, learning_rate=3, epochs=2)
    for more in ({}, {"validation": split}, {"start": sl.HingeMF(dim=8, epochs=1).fit(split.train)}):
        with pytest.raises(sl.SettingError, match=r"the fit diverged: .* learning_rate or a larger regularization"):
            model.fit(split.train, threads=1, **more)
    fitted = sl.HingeMF(optimizer="sgd", dim=8, epochs=1).fit(many, threads=1)
    before = fitted.recommend([0], n=5)
    steep = sl.HingeMF(**{**fitted.settings(), "learning_rate": 3, "epochs": 2})
    with pytest.raises(sl.SettingError, match="the fit diverged"):
        steep.fit(many, start=fitted, threads=1)
    with pytest.raises(sl.NotFittedError):
        steep.recommend([0])
    huge = sl.Interactions.from_frame(
        {"user": [0], "product": ["i00"], "w": [1e38]}, context="user", item="product", weight="w"
    )
    fitted = sl.HingeMF(optimizer="sgd", dim=8, epochs=1, weighting="raw").fit(many, threads=1)
    before = fitted.recommend([0], n=5)
    with pytest.raises(sl.SettingError, match="the fit diverged"):
        fitted.partial_fit(huge, threads=1)
    assert fitted.recommend([0], n=5).ids == before.ids  # it is as it was


# --- folding in ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=COMPOSITIONS, ids=repr)
def fitted(request):
    settings = {"dim": 4, "epochs": 20, "learning_rate": 0.1, "weighting": "log", **request.param}
    return sl.MatrixFactorization(**settings).fit(events(weighted=True), threads=1)


def test_it_is_near_to_what_was_learnt_beside_the_items(fitted):
    """Not the same: a trained context has seen the items of every epoch."""
    trained, found = (
        one @ fitted.item_embeddings_.T for one in (fitted.context_embeddings_, fitted._fold_in(fitted.seen_))
    )
    alike = [np.corrcoef(a, b)[0, 1] for a, b in zip(trained, found)]
    assert np.median(alike) > 0.9


def test_it_does_not_depend_on_the_place_or_the_threads(fitted):
    rows = fitted.seen_
    together = fitted._fold_in(rows, 1)
    np.testing.assert_array_equal(fitted._fold_in(rows, 2), together)
    order = np.random.default_rng(0).permutation(rows.n_rows)
    np.testing.assert_array_equal(fitted._fold_in(rows.take(order)), together[order])
    for c in (0, 17, 41):
        np.testing.assert_array_equal(fitted._fold_in(rows.take(np.array([c]))), together[[c]])


def test_it_does_not_depend_on_the_order_of_the_items(fitted):
    given = {"i03": 2.0, "i12": 1.0, "i27": 4.0, "i06": 1.0}
    turned = dict(reversed(given.items()))
    np.testing.assert_array_equal(fitted.fold_in([given]), fitted.fold_in([turned]))
    assert not np.array_equal(fitted.fold_in([given]), fitted.fold_in([{**given, "i09": 1.0}]))


def test_items_stay_and_a_loaded_model_folds_in_alike(fitted, tmp_path):
    before = fitted.item_embeddings_.copy()
    found = fitted._fold_in(fitted.seen_)
    np.testing.assert_array_equal(fitted.item_embeddings_, before)
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(sl.load(tmp_path / "model")._fold_in(fitted.seen_), found)


def test_items_may_be_read_only():
    model = sl.BPR(dim=4, epochs=2).fit(events(), threads=1)
    found = model._fold_in(model.seen_)
    model.item_embeddings_.setflags(write=False)
    np.testing.assert_array_equal(model._fold_in(model.seen_), found)


def test_no_history_is_zero(fitted):
    found = fitted.fold_in([[], ["i03", "i06"], []])
    assert not found[[0, 2]].any()
    assert found[1].any()


def test_a_context_without_pairs_is_as_if_it_had_no_history(fitted):
    data = events(weighted=True)
    model = sl.MatrixFactorization(**fitted.settings()).fit(data.select(np.flatnonzero(data.context_codes != 3)))
    assert not model.context_embeddings_[3].any()
    assert model.context_embeddings_[[2, 4]].any(axis=1).all()


def test_it_knows_taste(fitted):
    """Contexts like items of one of three kinds."""
    found = fitted.recommend(history=[["i03", "i06", "i12"], ["i04", "i07", "i13"]], n=4).ids
    for kind, ids in enumerate(found):
        assert sum(int(one[1:]) % 3 == kind for one in ids) >= 3


def bpr_loss(w, H, history, ridge, left=None):
    """A context's own part of BPR's loss, and its gradient; of an item so much may be left.

    What is left of a pair multiplies all of its loss, and the rest of the item is a negative of the others.
    """
    left = np.ones(len(history)) if left is None else left
    q = np.ones(len(H))
    q[history] -= left
    differences = H[history][:, None] - H
    shares = np.tile(q, (len(history), 1))
    shares[np.arange(len(history)), history] = 0
    shares *= (left / shares.sum(axis=1))[:, None]
    z = differences @ w
    value = (np.logaddexp(0, -z) * shares).sum() + 0.5 * ridge * left.sum() * w @ w
    return value, np.einsum("ij,ijd->d", -shares / (1 + np.exp(z)), differences) + ridge * left.sum() * w


def folded(H, rows, *, passes, rate, ridge, seed=0):
    model = sl.MatrixFactorization(dim=H.shape[1], learning_rate=rate, regularization=ridge, **PLAIN_SGD)
    negatives = Uniform().bind(rows)
    return fold_in(
        rows,
        np.ones(1, np.float32),
        H,
        dim=H.shape[1],
        tables=for_histories(negatives.tables, rows, seed),
        weigher=model._weigher(model._precompute(rows), 8),
        rules=model._step_tables(model._precompute(rows), rows.effective_counts),
        passes=passes,
        seed=seed,
        threads=1,
    )


def test_many_passes_find_the_minimum():
    H = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
    lists = [[0, 3, 5], [2], [1, 4, 6, 7]]
    rows = SparseRows.from_lists([np.array(one, np.int32) for one in lists], n_columns=8)
    found = folded(H, rows, passes=20_000, rate=0.05, ridge=0.1)
    for w, history in zip(found.astype(float), lists):
        best = minimize(bpr_loss, np.zeros(3), (H.astype(float), np.array(history), 0.1), jac=True, tol=1e-10).x
        np.testing.assert_allclose(H @ w, H @ best, atol=0.05 * np.abs(H @ best).max())
        assert (np.argsort(-H @ w)[:3] == np.argsort(-H @ best)[:3]).all()


def test_many_passes_find_the_minimum_where_items_have_faded():
    """Over seeds, as an item that has half faded is among the negatives under half of them."""
    H = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
    history, left = np.array([0, 3, 5, 6]), np.array([1.0, 0.5, 0.05, 0.5], np.float32)
    rows = replace(SparseRows.from_lists([history.astype(np.int32)], n_columns=8), confidence=left)
    found = np.mean([folded(H, rows, passes=4000, rate=0.05, ridge=0.1, seed=k)[0] for k in range(40)], axis=0)
    best = minimize(bpr_loss, np.zeros(3), (H.astype(float), history, 0.1, left.astype(float)), jac=True, tol=1e-10).x
    np.testing.assert_allclose(H @ found, H @ best, atol=0.1 * np.abs(H @ best).max())
    whole = minimize(bpr_loss, np.zeros(3), (H.astype(float), history, 0.1), jac=True, tol=1e-10).x
    assert np.abs(H @ whole - H @ best).max() > 0.3 * np.abs(H @ best).max()


def test_a_few_passes_go_most_of_the_way():
    model = sl.BPR(dim=6, epochs=40, learning_rate=0.1, regularization=0.02).fit(events(), threads=1)
    H, rows = model.item_embeddings_.astype(float), model.seen_
    left = []
    for c in range(rows.n_rows):
        gradients = [
            bpr_loss(w, H, rows.row(c), 0.02)[1] for w in (model.context_embeddings_[c].astype(float), np.zeros(6))
        ]
        left.append(np.linalg.norm(gradients[0]) / np.linalg.norm(gradients[1]))
    assert np.median(left) < 0.2


def test_seeds_differ_and_are_kept_to():
    H = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
    rows = SparseRows.from_lists([np.array([0, 3, 5], np.int32)], n_columns=8)
    first, again, other = (folded(H, rows, passes=5, rate=0.05, ridge=0.1, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_context_with_everything_has_nothing_to_learn_from():
    """No negative is left: pairwise losses stay where they begin, at the mean of the items where it is folded in;
    pointwise ones know positives only."""
    data = sl.Interactions.from_frame({"u": [0, 0, 0, 1, 1, 2], "i": [0, 1, 2, 0, 1, 2]}, context="u", item="i")
    ranked = sl.BPR(dim=2, epochs=3).fit(data, threads=1)
    begun = replace(ranked, epochs=1).fit(data, threads=1)
    np.testing.assert_array_equal(ranked.context_embeddings_[0], begun.context_embeddings_[0])
    np.testing.assert_allclose(ranked.fold_in([[0, 1, 2]])[0], ranked.item_embeddings_.mean(axis=0), rtol=1e-5)
    assert np.isfinite(ranked.item_embeddings_).all()
    pointwise = sl.LogisticMF(dim=2, epochs=3).fit(data, threads=1)
    assert (pointwise.fold_in([[0, 1, 2]]) @ pointwise.item_embeddings_.T > 0).all()


@pytest.mark.parametrize("objective", [Pointwise("square"), Pairwise("square")])
def test_heavy_pairs_go_to_their_label_and_not_beyond(objective):
    """Steps of the square loss would run away: 2ηα‖ψ‖² of the score's error is far above 2."""
    model = sl.MatrixFactorization(dim=4, epochs=5, learning_rate=0.05, objective=objective, weighting="raw")
    model.fit(events(weighted=True), threads=1)
    for weight in (1e3, 1e6, 1e12):
        (scores,) = model.fold_in([{"i03": weight}]) @ model.item_embeddings_.T
        own = scores[model.items_.encode(["i03"])[0]]
        assert own == pytest.approx(1, abs=0.05) if isinstance(objective, Pointwise) else own > scores.mean() + 0.5
        assert np.abs(scores).max() < 30
