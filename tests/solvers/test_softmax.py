from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.solvers import row_products, softmax, softmax_fold_in, softmax_pass
from shortlist.solvers.optimizers import ADAGRAD, ADAM, SGD, OptimizerState
from shortlist.solvers.softmax import BatchNegatives, CatalogueNegatives, SoftmaxSteps
from shortlist.solvers.softmax_fold_in import SoftmaxFoldIn
from shortlist.solvers.softmax_kernels import exp_below


@dataclass
class Fixed:
    """Draws what it is told to."""

    log_q: np.ndarray
    draws: np.ndarray

    def draw(self, rng, positives):
        return np.asarray(self.draws, np.int32)


@dataclass
class Task:
    rows: SparseRows
    W: np.ndarray
    H: np.ndarray
    weights: np.ndarray
    dim: int
    temperature: float = 0.7
    normalize: bool = False
    exclude: str = "history"
    negatives: object = None
    ridges: tuple = field(default=(0.0, 0.0))

    @property
    def pairs(self):
        return [(c, int(i)) for c in range(self.rows.n_rows) for i in self.rows.row(c)]

    def steps(self, *, batch=10_000, kind=SGD, rate=1.0, **kw):
        width = self.W.shape[1]
        context_rate, item_rate = np.full((2, width), rate, np.float32)
        if width > self.dim:
            context_rate[self.dim], item_rate[self.dim + 1] = 0, 0
        ridges = [np.where(r == 0, 0, lam).astype(np.float32) for r, lam in zip((context_rate, item_rate), self.ridges)]
        W, H = self.W.astype(np.float32), self.H.astype(np.float32)
        return SoftmaxSteps(
            self.rows,
            self.weights.astype(np.float32),
            W,
            H,
            temperature=self.temperature,
            dim=self.dim,
            normalize=self.normalize,
            exclude=self.exclude,
            negatives=self.negatives,
            batch=batch,
            kind=kind,
            states=(OptimizerState.of(kind, W.shape), OptimizerState.of(kind, H.shape)),
            rates=(context_rate, item_rate),
            ridges=tuple(ridges),
            **kw,
        )

    def gradients(self, **kw):
        """By what a plain step of rate 1 on everything subtracts; and the loss it reports."""
        steps = self.steps(**kw)
        loss = steps.epoch()
        W, H = steps.embeddings()
        return self.W.astype(np.float32) - W, self.H.astype(np.float32) - H, loss

    def scores(self, W, H):
        if self.normalize:
            W, H = W.copy(), H.copy()
            for side in (W, H):
                side[:, : self.dim] /= np.linalg.norm(side[:, : self.dim], axis=1, keepdims=True)
        return W @ H.T / self.temperature

    def loss(self, W, H, draws=None):
        """The mean loss as the docstring prints it, in float64 and without haste."""
        Z = self.scores(W, H)
        total = 0.0
        weights = np.broadcast_to(self.weights, len(self.pairs))
        left = np.ones(len(self.rows)) if self.rows.confidence is None else self.rows.confidence
        faded = {pair: 1 - float(one) for pair, one in zip(self.pairs, left)}
        for (c, i), weight in zip(self.pairs, weights):
            hidden = set(self.rows.row(c).tolist()) if self.exclude == "history" else {i}
            if draws is None:
                others = [Z[c, j] for j in range(len(H)) if j not in hidden]
            else:
                q = np.exp(self.negatives.log_q)
                kept = [j for j in draws if j not in hidden]
                outside = 1 - q[list(hidden)].sum()
                others = [Z[c, j] - np.log(len(kept) * q[j] / outside) for j in kept]
            if self.exclude == "history":  # the part of its others that is outside of it
                others += [Z[c, j] + np.log(faded[c, j]) for j in hidden - {i} if faded[c, j] > 0]
            total += weight * (np.logaddexp.reduce([Z[c, i], *others]) - Z[c, i])
        return total / weights.sum()


def task(n_contexts=4, n_items=7, dim=3, biases=False, seed=0, weighted=True, **kw):
    rng = np.random.default_rng(seed)
    lists = [rng.choice(n_items, rng.integers(1, 4), replace=False) for _ in range(n_contexts)]
    rows = SparseRows.from_lists(lists, n_items)
    W, H = rng.standard_normal((n_contexts, dim)), rng.standard_normal((n_items, dim))
    if biases:
        W = np.column_stack([W, np.ones(n_contexts), rng.standard_normal(n_contexts)])
        H = np.column_stack([H, rng.standard_normal(n_items), np.ones(n_items)])
    weights = rng.uniform(0.5, 2, len(rows)) if weighted else np.ones(1)
    W, H, weights = (x.astype(np.float32).astype(np.float64) for x in (W, H, weights))
    return Task(rows, W, H, weights, dim, **kw)


def slope(f, x, h=1e-5):
    out = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[at] += h
        down[at] -= h
        out[at] = (f(up) - f(down)) / (2 * h)
    return out


def assert_gradients(t, draws=None):
    by_context, by_item, loss = t.gradients()
    want_context = slope(lambda W: t.loss(W, t.H, draws), t.W)
    want_item = slope(lambda H: t.loss(t.W, H, draws), t.H)
    if t.W.shape[1] > t.dim:
        want_context[:, t.dim], want_item[:, t.dim + 1] = 0, 0
    np.testing.assert_allclose(loss, t.loss(t.W, t.H, draws), rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(by_context, want_context, atol=2e-6)
    np.testing.assert_allclose(by_item, want_item, atol=2e-6)


OPTIONS = list(product((False, True), ("history", "positive"), (False, True)))


def test_exponentials_are_exact_to_two_units_in_the_last_place():
    x = -np.concatenate([np.linspace(0, 60, 50_001), np.geomspace(1e-30, 60, 1000)]).astype(np.float32)
    got = np.array([exp_below(one) for one in x])
    want = np.exp(x.astype(np.float64))
    assert np.max(np.abs(got - want) / np.spacing(want.astype(np.float32))) <= 2
    assert exp_below(np.float32(0)) == 1
    assert exp_below(np.float32(-61)) == exp_below(np.float32(-np.inf)) == 0


@pytest.mark.parametrize(("normalize", "exclude", "biases"), OPTIONS)
def test_gradients_of_the_full_softmax(normalize, exclude, biases):
    assert_gradients(task(normalize=normalize, exclude=exclude, biases=biases))


@pytest.mark.parametrize(("normalize", "exclude", "biases"), OPTIONS)
def test_gradients_of_the_sampled_softmax(normalize, exclude, biases):
    q = np.random.default_rng(5).dirichlet(np.ones(7))
    draws = [0, 3, 3, 6, 2, 3, 0]
    t = task(normalize=normalize, exclude=exclude, biases=biases, negatives=Fixed(np.log(q), draws))
    assert_gradients(t, draws)


@pytest.mark.parametrize("exclude", ["history", "positive"])
def test_negatives_of_a_batch_are_its_own_items(exclude):
    t = task(exclude=exclude, n_contexts=5)
    t.negatives = BatchNegatives(t.rows.column_counts())
    assert_gradients(t, t.rows.indices.tolist())  # of one batch with all pairs, in whichever order


def test_a_batch_has_one_negative_less_than_pairs():
    """m ≤ B − 1: with one context and no history to exclude, a pair has the batch's other pairs as negatives."""
    rows = SparseRows.from_lists([np.array([0]), np.array([1]), np.array([2]), np.array([3])], n_columns=5)
    counts = rows.column_counts()
    negatives = BatchNegatives(counts)
    drawn = negatives.draw(np.random.default_rng(0), rows.indices)
    for positive in rows.indices:
        assert np.count_nonzero(drawn != positive) == len(rows.indices) - 1
    assert np.isneginf(negatives.log_q[4])  # an item without pairs is never drawn: no q > 0 there, so always a bias


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.integers(2, 12),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from(["history", "positive"]),
    st.booleans(),
    st.sampled_from([0.1, 1.0, 3.0]),
)
def test_gradients_of_any_tiny_problem(seed, n_contexts, n_items, dim, normalize, exclude, weighted, temperature):
    rng = np.random.default_rng(seed)
    lists = [rng.choice(n_items, rng.integers(1, n_items + 1), replace=False) for _ in range(n_contexts)]
    rows = SparseRows.from_lists(lists, n_items)
    W, H = (rng.standard_normal((n, dim)).astype(np.float32).astype(np.float64) for n in (n_contexts, n_items))
    weights = rng.uniform(0.5, 2, len(rows)).astype(np.float32) if weighted else np.ones(1)
    t = Task(rows, W, H, weights.astype(np.float64), dim, temperature, normalize, exclude)
    by_context, by_item, loss = t.gradients()
    tolerance = 2e-5 / temperature * (1 + 1 / min(np.linalg.norm(W, axis=1).min(), np.linalg.norm(H, axis=1).min()))
    np.testing.assert_allclose(loss, t.loss(W, H), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_context, slope(lambda x: t.loss(x, H), W, 1e-6), atol=tolerance)
    np.testing.assert_allclose(by_item, slope(lambda x: t.loss(W, x), H, 1e-6), atol=tolerance)


def one_pair(negatives=None, n_items=5, **kw):
    """One context with one observed item, item 2."""
    t = task(n_contexts=1, n_items=n_items, weighted=False, temperature=1.0, exclude="positive", seed=8, **kw)
    t.rows = SparseRows.from_lists([np.array([2])], n_items)
    t.negatives = negatives
    return t


def expected_gradient(t, q, m):
    """Of the sampled softmax, over all ways to draw m items that are not item 2; q is over the whole catalogue."""
    others = [j for j in range(len(q)) if j != 2]
    total = 0.0
    for draws in product(others, repeat=m):
        t.negatives = Fixed(np.log(q), draws)
        chance = np.prod(q[list(draws)] / (1 - q[2]))
        total += chance * np.concatenate([g.ravel() for g in t.gradients()[:2]])
    return total


def full_gradient(t):
    t.negatives = None
    return np.concatenate([g.ravel() for g in t.gradients()[:2]])


@pytest.mark.parametrize("m", [1, 2, 3])
def test_drawing_by_the_softmax_itself_has_no_bias(m):
    t = one_pair()
    p = np.exp(t.W @ t.H.T)[0]
    p /= p.sum()
    np.testing.assert_allclose(expected_gradient(t, p, m), full_gradient(t), atol=2e-6)


def test_the_bias_of_uniform_draws_falls_with_their_number():
    t = one_pair()
    want, q = full_gradient(t), np.full(5, 0.2)
    bias = [np.linalg.norm(expected_gradient(t, q, m) - want) for m in (1, 2, 3, 4)]
    assert all(b < 0.9 * a for a, b in pairwise(bias)), bias


def test_the_bias_stays_if_the_positive_can_be_drawn():
    """By an oracle without the mask: the solver cannot be made to do it."""
    p = np.array([0.1, 0.2, 0.5, 0.15, 0.05])

    def by_scores(m):
        total = np.zeros(5)
        for draws in product(range(5), repeat=m):
            z = np.log(p)
            terms = np.exp(np.array([z[2], *[z[j] - np.log(m * p[j]) for j in draws]]))
            for j, share in zip((2, *draws), terms / terms.sum()):
                total[j] += np.prod(p[list(draws)]) * share
        total[2] -= 1
        return total

    full = p - (np.arange(5) == 2)
    bias = [np.linalg.norm(by_scores(m) - full) for m in (1, 2, 3, 4)]
    np.testing.assert_allclose(bias, bias[0])  # p/(1 + p_i) stands in place of p, for any m
    assert bias[0] > 0.1


@pytest.mark.parametrize("j", [0, 1, 3, 4])
def test_one_negative_is_the_pairwise_logistic_loss_shifted_by_its_log_q(j):
    q = np.random.default_rng(1).dirichlet(np.ones(5))
    t = one_pair(Fixed(np.log(q), [j]))
    by_context, by_item, loss = t.gradients()
    w, H = t.W[0], t.H
    x = w @ (H[2] - H[j]) + np.log(q[j] / (1 - q[2]))
    np.testing.assert_allclose(loss, np.log1p(np.exp(-x)), rtol=1e-6)
    a = 1 / (1 + np.exp(x))
    np.testing.assert_allclose(by_context[0], -a * (H[2] - H[j]), atol=1e-6)
    want = np.zeros_like(H)
    want[2], want[j] = -a * w, a * w
    np.testing.assert_allclose(by_item, want, atol=1e-6)


def test_a_pair_whose_draws_are_all_excluded_does_nothing():
    t = one_pair(Fixed(np.log(np.full(5, 0.2)), [2, 2]))
    by_context, by_item, loss = t.gradients()
    assert loss == 0
    assert not by_context.any()
    assert not by_item.any()


def test_a_context_that_has_everything_does_nothing():
    t = one_pair()
    t.exclude, t.rows = "history", SparseRows.from_lists([np.arange(5)], 5)
    by_context, by_item, loss = t.gradients()
    assert loss == 0
    assert not by_context.any()
    assert not by_item.any()


@pytest.mark.parametrize("exclude", ["history", "positive"])
@pytest.mark.parametrize("sampled", [False, True])
def test_scores_of_any_size_leave_finite_numbers(exclude, sampled):
    t = task(exclude=exclude, temperature=1e-3)
    if sampled:
        t.negatives = Fixed(np.log(np.full(7, 1 / 7)), [0, 1, 2, 5])
    by_context, by_item, loss = t.gradients()
    want = t.loss(t.W, t.H, [0, 1, 2, 5] if sampled else None)
    np.testing.assert_allclose(loss, want, rtol=1e-5)
    assert loss > 100
    assert np.isfinite(by_context).all()
    assert np.isfinite(by_item).all()


@pytest.mark.parametrize("sampled", [False, True])
def test_rows_are_regularised_as_often_as_observed(sampled):
    t = task(biases=True)
    if sampled:
        t.negatives = Fixed(np.log(np.full(7, 1 / 7)), [0, 1, 2, 5])
    plain = t.gradients()
    t.ridges = 0.3, 0.2
    ridged = t.gradients()
    of_context, of_item = np.zeros(4), np.zeros(7)
    for (c, i), weight in zip(t.pairs, t.weights):
        of_context[c] += weight / t.weights.sum()
        of_item[i] += weight / t.weights.sum()
    by_context, by_item = 0.3 * of_context[:, None] * t.W, 0.2 * of_item[:, None] * t.H
    by_context[:, t.dim], by_item[:, t.dim + 1] = 0, 0
    np.testing.assert_allclose(ridged[0] - plain[0], by_context, atol=1e-6)
    np.testing.assert_allclose(ridged[1] - plain[1], by_item, atol=1e-6)
    steps = t.steps(rate=1e-12)
    steps.epoch()
    free = [np.delete(x, k, axis=1) for x, k in ((t.W, t.dim), (t.H, t.dim + 1))]
    want = 0.15 * of_context @ (free[0] ** 2).sum(axis=1) + 0.1 * of_item @ (free[1] ** 2).sum(axis=1)
    np.testing.assert_allclose(steps.loss().regularizer, want, rtol=1e-5)


def wide(seed=0, n_contexts=700, n_items=1700, **kw):
    """Several tiles each way."""
    rng = np.random.default_rng(seed)
    lists = [rng.choice(n_items, rng.integers(0, 9), replace=False) for _ in range(n_contexts)]
    rows = SparseRows.from_lists(lists, n_items)
    W, H = (0.3 * rng.standard_normal((n, 8)) for n in (n_contexts, n_items))
    return Task(rows, W, H, rng.uniform(0.5, 2, len(rows)), 8, **kw)


def by_the_book(t, draws=None):
    """Gradients of the plain dot product as sums over pairs of (p_j − [j = i])·∂ŷ_j, in float64."""
    Z = t.W @ t.H.T / t.temperature
    slopes = np.zeros_like(Z)
    for (c, i), weight in zip(t.pairs, t.weights / t.weights.sum()):
        hidden = t.rows.row(c) if t.exclude == "history" else np.array([i])
        terms = np.zeros(len(t.H))
        if draws is None:
            terms[:] = np.exp(Z[c])
        else:
            q, counts = np.exp(t.negatives.log_q), np.bincount(draws, minlength=len(t.H))
            m, left = len(draws) - counts[hidden].sum(), 1 - q[hidden].sum()
            terms[:] = counts * np.exp(Z[c]) * left / (m * q)
        terms[hidden] = 0
        terms[i] = np.exp(Z[c, i])
        terms /= terms.sum()
        terms[i] -= 1
        slopes[c] += weight * terms
    return slopes @ t.H / t.temperature, slopes.T @ t.W / t.temperature


@pytest.mark.parametrize("exclude", ["history", "positive"])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize("tile", [(512, 512), (112, 48)])
def test_gradients_over_many_tiles(monkeypatch, exclude, sampled, tile, ours):
    monkeypatch.setattr(softmax, "OURS", ours)
    for name, value in zip(("_ROWS", "_COLUMNS", "_GROUPS"), (*tile, 5)):
        monkeypatch.setattr(softmax_pass, name, value)
    t, draws = wide(exclude=exclude, temperature=0.1), None
    if sampled:
        draws = np.random.default_rng(1).integers(0, 1700, 3000)
        t.negatives = Fixed(np.log(np.random.default_rng(2).dirichlet(np.full(1700, 3.0))), draws)
    got = t.gradients()
    for a, b in zip(got, by_the_book(t, draws)):
        np.testing.assert_allclose(a, b, atol=1e-6 * np.abs(b).max() + 1e-7)


@pytest.mark.parametrize("n_rows", [1, 3, 4, 17])
@pytest.mark.parametrize("shape", [(5, 16), (48, 300), (130, 40)])
def test_products_of_some_rows_have_the_bits_of_those_of_all(n_rows, shape):
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((40, shape[0]), np.float32), rng.standard_normal(shape, np.float32)
    every = row_products.product(A, B)
    np.testing.assert_allclose(every, A @ B, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(row_products.product(A[:n_rows], B), every[:n_rows])


@pytest.mark.parametrize("count", [1, 16, 700])
@pytest.mark.parametrize("n_out", [1, 16, 35])
def test_products_of_a_turned_matrix(count, n_out):
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((count, 48), np.float32), rng.standard_normal((count, 32), np.float32)
    out = np.full((n_out, 32), 7, np.float32)
    row_products.multiply_transposed(A, B, count, out, True)
    want = A[:, :n_out].T @ B
    np.testing.assert_allclose(out, want + 7, atol=1e-4)
    row_products.multiply_transposed(A, B, count, out, False)
    np.testing.assert_allclose(out, want, atol=1e-4)
    transposed = np.full((48, row_products.whole_tiles(count) + 16), 7, np.float32)
    row_products.transpose_padded(A, transposed)
    np.testing.assert_array_equal(transposed[:, :count], A.T)
    assert not transposed[:, count:].any()


def samplers(t):
    popular = t.rows.column_counts() + 1.0
    return {
        "full": None,
        "popular": CatalogueNegatives(popular**0.5, 900),
        "batch": BatchNegatives(t.rows.column_counts()),
    }


@pytest.mark.parametrize("which", ["full", "popular", "batch"])
@pytest.mark.parametrize("kind", [SGD, ADAGRAD, ADAM])
def test_threads_change_nothing(which, kind):
    t = wide(normalize=True, exclude="history")
    t.negatives = samplers(t)[which]
    results = []
    for threads in (1, 2, 3):
        steps = t.steps(batch=300, kind=kind, rate=0.05, threads=threads, seed=4)
        losses = [steps.epoch(), steps.epoch()]
        results.append((losses, *(x.tobytes() for x in steps.embeddings())))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("which", ["full", "popular"])
def test_little_memory_means_more_parts_of_the_same(which):
    t = wide(exclude="positive")
    t.negatives = samplers(t)[which]
    much = t.gradients(batch=500)
    little = t.gradients(batch=500, memory=4 * 2048 * 30)
    for a, b in zip(much, little):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("which", ["full", "popular", "batch"])
def test_an_epoch_depends_on_its_number_only(which):
    t = wide()
    t.negatives = samplers(t)[which]
    through = t.steps(batch=300, rate=0.5, seed=1)
    for _ in range(3):
        through.epoch()
    before = t.steps(batch=300, rate=0.5, seed=1)
    before.epoch()
    after = t.steps(batch=300, rate=0.5, seed=1)
    for old, new in zip(before.embeddings(), after.embeddings()):
        new[:] = old
    after.number = 1
    after.epoch()
    after.epoch()
    assert after.number == 3
    for a, b in zip(through.embeddings(), after.embeddings()):
        np.testing.assert_array_equal(a, b)
    other = t.steps(batch=300, rate=0.5, seed=2)
    for _ in range(3):
        other.epoch()
    assert not np.array_equal(other.embeddings()[0], through.embeddings()[0])


def test_the_schedule_multiplies_the_rates():
    t = wide()
    fractions = []

    def schedule(done):
        fractions.append(done)
        return 0.0 if done < 1 else 1.0

    steps = t.steps(batch=350, schedule=schedule)
    steps.epoch()
    np.testing.assert_array_equal(steps.embeddings()[1], t.H.astype(np.float32))
    steps.epoch()
    assert not np.array_equal(steps.embeddings()[1], t.H.astype(np.float32))
    assert fractions == [0, 0.5, 1, 1.5]


@pytest.mark.parametrize("which", ["full", "popular", "batch"])
@pytest.mark.parametrize("normalize", [False, True])
def test_it_learns_what_was_planted(which, normalize):
    """Ten groups of contexts, each of which takes items of its own tenth."""
    rng = np.random.default_rng(0)
    lists = [c % 10 * 20 + rng.choice(20, 8, replace=False) for c in range(200)]
    rows = SparseRows.from_lists(lists, 200)
    W, H = 0.1 * rng.standard_normal((200, 16)), 0.1 * rng.standard_normal((200, 16))
    t = Task(rows, W, H, np.ones(1), 16, 0.2 if normalize else 1.0, normalize, "positive")
    t.negatives = samplers(t)[which]
    steps = t.steps(batch=64, kind=ADAM, rate=0.02)
    losses = [steps.epoch() for _ in range(20)]
    assert losses[-1] < losses[0] - 1.5, losses
    assert steps.loss().observed == losses[-1]
    Z = t.scores(*(x.astype(np.float64) for x in steps.embeddings()))
    own = np.arange(200)[:, None] % 10 == np.arange(200)[None, :] // 20
    assert np.mean([own[c, np.argsort(-Z[c])[:20]].mean() for c in range(200)]) > 0.9


def test_wrong_settings_are_refused():
    t = task()
    with pytest.raises(SettingError, match="weights; expected 1 or"):
        Task(t.rows, t.W, t.H, np.ones(2), 3).steps()
    with pytest.raises(SettingError, match="exclude"):
        Task(t.rows, t.W, t.H, np.ones(1), 3, exclude="everything").steps()
    with pytest.raises(SettingError, match="temperature"):
        Task(t.rows, t.W, t.H, np.ones(1), 3, temperature=0).steps()
    fold = SoftmaxFoldIn(
        t.H.astype(np.float32), temperature=1, dim=3, normalize=False, exclude="history", ridge=np.ones(3, np.float32)
    )
    with pytest.raises(SettingError, match="have 9 items; expected 7"):
        fold(SparseRows.from_lists([np.array([1])], 9), np.ones(1, np.float32))


def folded(t, ridge, threads=None, **kw):
    solver = SoftmaxFoldIn(
        t.H.astype(np.float32), temperature=t.temperature, dim=t.dim, normalize=t.normalize, exclude=t.exclude,
        ridge=np.full(t.H.shape[1], ridge, np.float32), threads=threads, **kw,
    )  # fmt: skip
    return solver(t.rows, t.weights.astype(np.float32), threads)


def loss_of_rows(t, W, ridge, draws=None):
    total = t.loss(W, t.H, draws) * np.broadcast_to(t.weights, len(t.rows)).sum()
    own = np.zeros(t.rows.n_rows)
    for (c, _), weight in zip(t.pairs, np.broadcast_to(t.weights, len(t.rows))):
        own[c] += weight
    return total + 0.5 * ridge * own @ (W[:, : t.dim] ** 2).sum(axis=1)


@pytest.mark.parametrize(("normalize", "exclude", "biases"), OPTIONS)
def test_fold_in_ends_where_its_loss_is_flat(normalize, exclude, biases):
    t = task(n_contexts=6, n_items=30, dim=4, normalize=normalize, exclude=exclude, biases=biases, temperature=0.5)
    ridge = 0.0 if normalize else 0.02
    W = folded(t, ridge)
    if biases:
        np.testing.assert_array_equal(W[:, t.dim :], np.tile([1, 0], (6, 1)))
    flat = slope(lambda x: loss_of_rows(t, x, ridge), W.astype(np.float64))[:, : t.dim]
    start = W.astype(np.float64).copy()
    start[:, : t.dim] = np.random.default_rng(0).standard_normal((6, t.dim))
    steep = slope(lambda x: loss_of_rows(t, x, ridge), start)[:, : t.dim]
    assert np.abs(flat).max() < 1e-3 * np.abs(steep).max()
    if normalize:
        np.testing.assert_allclose(np.linalg.norm(W[:, : t.dim], axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(("normalize", "exclude", "biases"), OPTIONS)
def test_fold_in_of_what_has_faded_ends_where_its_loss_is_flat(normalize, exclude, biases):
    t = task(n_contexts=6, n_items=30, dim=4, normalize=normalize, exclude=exclude, biases=biases, temperature=0.5)
    left = np.random.default_rng(2).choice([1.0, 0.6, 0.2, 0.01], len(t.rows)).astype(np.float32)
    t.rows, t.weights = replace(t.rows, confidence=left), t.weights * left
    ridge = 0.0 if normalize else 0.02
    W = folded(t, ridge)
    flat = slope(lambda x: loss_of_rows(t, x, ridge), W.astype(np.float64))[:, : t.dim]
    start = W.astype(np.float64).copy()
    start[:, : t.dim] = np.random.default_rng(0).standard_normal((6, t.dim))
    steep = slope(lambda x: loss_of_rows(t, x, ridge), start)[:, : t.dim]
    assert np.abs(flat).max() < 1e-3 * np.abs(steep).max()


def test_fold_in_over_a_large_catalogue_is_flat_under_its_draws(monkeypatch):
    monkeypatch.setattr(softmax_fold_in, "_WHOLE", 10)
    draws = np.random.default_rng(3).integers(0, 40, 25)
    q = np.random.default_rng(4).dirichlet(np.full(40, 5.0))
    t = task(n_contexts=6, n_items=40, dim=4, exclude="history", negatives=Fixed(np.log(q), draws))
    for left in (None, np.linspace(0.1, 1, len(t.rows), dtype=np.float32)):
        t.rows = replace(t.rows, confidence=left)
        W = folded(t, 0.02, negatives=t.negatives)
        flat = slope(lambda x: loss_of_rows(t, x, 0.02, draws.tolist()), W.astype(np.float64))
        assert np.abs(flat).max() < 1e-3


@pytest.mark.parametrize("exclude", ["history", "positive"])
@pytest.mark.parametrize("normalize", [False, True])
def test_fold_in_by_draws_comes_near_the_whole(monkeypatch, exclude, normalize):
    t = task(n_contexts=20, n_items=300, dim=4, exclude=exclude, normalize=normalize, temperature=1.0)
    whole = folded(t, 0.1)
    monkeypatch.setattr(softmax_fold_in, "_WHOLE", 10)
    drawn = folded(t, 0.1)
    assert np.linalg.norm(drawn - whole) < 0.05 * np.linalg.norm(whole)
    assert not np.array_equal(drawn, whole)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("temperature", "ridge"), [(0.3, 0.05), (0.05, 0.0)])
def test_fold_in_row_by_row_on_any_threads(monkeypatch, large, normalize, temperature, ridge):
    """Not a bit depends on the other histories, also where rows do not come to an end."""
    if large:
        monkeypatch.setattr(softmax_fold_in, "_WHOLE", 10)
        monkeypatch.setattr(softmax_fold_in, "_DRAWS", 600)
    t = wide(n_contexts=60, normalize=normalize, temperature=temperature)
    together = folded(t, ridge, threads=2)
    np.testing.assert_array_equal(together, folded(t, ridge, threads=1))
    for c in range(0, 60, 7):
        begin, end = t.rows.indptr[c : c + 2]
        alone = Task(t.rows.take(np.array([c])), t.W, t.H, t.weights[begin:end], 8, temperature, normalize)
        np.testing.assert_array_equal(folded(alone, ridge)[0], together[c])
    empty = t.rows.lengths == 0
    assert empty.any()
    assert not together[empty].any()
    assert together[~empty].any(axis=1).all()


def test_fold_in_arrives_in_few_passes():
    t = wide(n_contexts=60)
    width = t.H.shape[1]
    near, there = (
        SoftmaxFoldIn(
            (4 * t.H).astype(np.float32), temperature=0.7, dim=8, normalize=False, exclude="positive",
            ridge=np.full(width, 0.01, np.float32), passes=passes,
        )(t.rows, t.weights.astype(np.float32))
        for passes in (25, 300)
    )  # fmt: skip
    assert np.linalg.norm(near - there) < 1e-4 * np.linalg.norm(there)
