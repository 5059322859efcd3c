from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from problems import alternate, dense_loss, make, problems
from shortlist.solvers.als import initial_embeddings
from shortlist.solvers.normal_equations import solve_rows_reference


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_loss_never_rises(problem):
    epochs = []
    alternate(problem.objective, problem.by_context, problem.by_item, problem.H, epochs=4, callbacks=[epochs.append])
    losses = [epoch.loss.total for epoch in epochs]
    assert all(b <= a * (1 + 1e-4) + 1e-5 for a, b in pairwise(losses)), losses
    assert [epoch.number for epoch in epochs] == [1, 2, 3, 4]


def test_reported_loss_is_that_of_the_result():
    problem = make(n_contexts=30, n_items=20)
    epochs = []
    W, H = alternate(
        problem.objective, problem.by_context, problem.by_item, problem.H, epochs=3, callbacks=[epochs.append]
    )
    np.testing.assert_allclose(epochs[-1].loss.total, sum(dense_loss(problem, W=W, H=H)), rtol=1e-4)


def test_ends_on_a_context_half_step():
    problem = make(n_contexts=30, n_items=20)
    o = problem.objective
    W, H = alternate(o, problem.by_context, problem.by_item, problem.H, epochs=2)
    np.testing.assert_allclose(
        W,
        solve_rows_reference(problem.by_context, o.terms(problem.by_context), H),
        rtol=1e-3,
        atol=1e-4,
    )


def test_start_values_have_the_stated_spread_and_are_seeded():
    start = initial_embeddings(20000, 16, 0.1, seed=3)
    assert start.dtype == np.float32
    np.testing.assert_allclose(start.std(), 0.1 / 4, rtol=0.01)
    assert abs(start.mean()) < 1e-3
    np.testing.assert_array_equal(start, initial_embeddings(20000, 16, 0.1, seed=3))
    assert not np.array_equal(start, initial_embeddings(20000, 16, 0.1, seed=4))


def test_what_is_handed_in_is_not_changed():
    problem = make()
    before = problem.H.copy()
    alternate(problem.objective, problem.by_context, problem.by_item, problem.H, epochs=1)
    np.testing.assert_array_equal(problem.H, before)


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(0, 1000))
def test_another_order_of_contexts_and_items_gives_the_same_scores_in_that_order(problem, seed):
    rng = np.random.default_rng(seed)
    contexts, items = rng.permutation(problem.by_context.n_rows), rng.permutation(problem.by_context.n_columns)
    swapped = problem.by_context.take(contexts).transpose().take(items).transpose()
    W, H = alternate(problem.objective, problem.by_context, problem.by_item, problem.H, epochs=2)
    W2, H2 = alternate(problem.objective, swapped, swapped.transpose(), problem.H[items], epochs=2)
    np.testing.assert_allclose(W2 @ H2.T, (W @ H.T)[contexts][:, items], rtol=2e-2, atol=2e-3)
