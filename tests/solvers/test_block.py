"""A sweep by blocks: against the NumPy twin, the exact half-step, coordinate descent, and the loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from problems import dense_loss, make, problems
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives import PointwiseSquare
from shortlist.solvers.block import BlockSolver, half_step_reference
from shortlist.solvers.coordinate import CoordinateSolver
from shortlist.solvers.half_step import half_step
from shortlist.solvers.normal_equations import solve_rows_reference


def swept(problem, block, sweeps=1, threads=None):
    """Both sides after the sweeps: they are rotated together."""
    W, H = problem.W.copy(), problem.H.copy()
    for _ in range(sweeps):
        terms = problem.objective.terms(problem.by_context)
        half_step(BlockSolver(block), problem.by_context, terms, H, W, threads)
    return W, H


def scores(problem, block, **kw):
    W, H = swept(problem, block, **kw)
    return W @ H.T


def twin(problem, block):
    o = problem.objective
    W = half_step_reference(problem.by_context, o.terms(problem.by_context), problem.H, problem.W, block=block)
    return W @ problem.H.T.astype(np.float64)


def exact(problem):
    """Of rows with pairs; the others are zero by definition."""
    rows = problem.by_context
    W = np.zeros(problem.W.shape)
    some = np.flatnonzero(rows.lengths)
    if len(some):
        W[some] = solve_rows_reference(rows, problem.objective.terms(rows), problem.H)[some]
    return W @ problem.H.T.astype(np.float64)


@settings(max_examples=150, deadline=None)
@given(problems(), st.integers(1, 8))
def test_equals_the_twin(problem, block):
    np.testing.assert_allclose(scores(problem, block), twin(problem, block), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("dim", [1, 5, 64, 130])
@pytest.mark.parametrize("block", [1, 7, 16, 50, 64, 200])
@pytest.mark.parametrize("kind", [{}, {"convention": "total", "unobserved_weight": 1.5, "weighting": "raw"}])
def test_equals_the_twin_at_any_size(dim, block, kind):
    """Rows shorter and longer than the block and than what is gathered at once; excess of both signs."""
    for n_items, density in ((40, 0.3), (700, 0.6)):
        problem = make(n_contexts=12, n_items=n_items, dim=dim, density=density, **kind)
        np.testing.assert_allclose(scores(problem, block), twin(problem, block), rtol=2e-3, atol=2e-3)


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(0, 3))
def test_one_block_is_the_exact_half_step(problem, more):
    np.testing.assert_allclose(scores(problem, problem.W.shape[1] + more), exact(problem), rtol=2e-3, atol=1e-3)


@settings(max_examples=100, deadline=None)
@given(problems())
def test_blocks_of_one_are_coordinate_descent(problem):
    W, H = swept(problem, 1)
    np.testing.assert_array_equal(H, problem.H)  # there is nothing to rotate
    other = problem.W.copy()
    half_step(CoordinateSolver(), problem.by_context, problem.objective.terms(problem.by_context), H, other)
    np.testing.assert_allclose(W, other, rtol=1e-3, atol=2e-4)


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(1, 8), st.integers(1, 3))
def test_a_sweep_never_raises_the_printed_loss(problem, block, sweeps):
    before = sum(dense_loss(problem))
    W, H = swept(problem, block, sweeps)
    assert sum(dense_loss(problem, W=W, H=H)) <= before * (1 + 1e-5) + 1e-5


@pytest.mark.parametrize("block", [1, 2, 4, 5])
def test_many_sweeps_reach_the_minimum(block):
    for kind in ({}, {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 0.3}):
        problem = make(n_contexts=30, n_items=25, dim=6, regularization=0.3, **kind)
        assert not np.allclose(scores(problem, block), exact(problem), atol=1e-2)
        np.testing.assert_allclose(scores(problem, block, sweeps=60), exact(problem), rtol=1e-3, atol=1e-3)


def test_the_rotation_is_within_blocks():
    problem = make(n_contexts=30, n_items=25, dim=7)
    _, H = swept(problem, 3)
    for first in (0, 3, 6):
        B = slice(first, first + 3)
        np.testing.assert_allclose(H[:, B] @ H[:, B].T, problem.H[:, B] @ problem.H[:, B].T, atol=1e-4)
        G = H[:, B].T @ H[:, B]
        np.testing.assert_allclose(G, np.diag(np.diag(G)), atol=1e-4)


def test_a_row_of_very_many_pairs():
    rng = np.random.default_rng(0)
    n, d = 120_000, 20
    rows = SparseRows(np.array([0, n, n + 3], np.int64), np.r_[0:n, 5, 7, 9].astype(np.int32), None, n)
    terms = PointwiseSquare().terms(rows)
    H = (rng.standard_normal((n, d)) * 0.3).astype(np.float32)
    W = rng.standard_normal((2, d)).astype(np.float32)
    expected = half_step_reference(rows, terms, H, W, block=8) @ H.T
    half_step(BlockSolver(8), rows, terms, H, W)
    np.testing.assert_allclose(W @ H.T, expected, rtol=1e-3, atol=1e-3)


def test_the_number_of_threads_does_not_matter():
    problem = make(n_contexts=300, n_items=50, dim=19)
    one = swept(problem, 8, threads=1)
    for threads in (2, 5):
        for a, b in zip(swept(problem, 8, threads=threads), one):
            np.testing.assert_array_equal(a, b)


def test_rows_without_pairs_become_zero():
    problem = make(density=0.0)
    assert (swept(problem, 3)[0] == 0).all()
    assert (twin(problem, 3) == 0).all()


@pytest.mark.parametrize(
    "settings_",
    [
        {"regularization": 0.0, "unobserved_weight": 0.0},  # singular: fewer pairs than dimensions
        {"regularization": 1e-30, "unobserved_weight": 0.0},
        {"regularization": 1e30},
        {"regularization": 3e38, "regularization_exponent": 0.0},
        {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 0.3},  # α < α₀
        {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 1.0},  # α = α₀
        {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 1e-30, "regularization": 0.0},
        {"observed_weight": 1e12, "weighting": "raw"},
        {"observed_weight": 1e37, "weighting": "raw"},
    ],
)
@pytest.mark.parametrize("density", [0.3, 1.0])
@pytest.mark.parametrize("dim", [1, 5, 37])
@pytest.mark.parametrize("block", [4, 64])
def test_extreme_settings_never_give_nan(settings_, dim, density, block):
    problem = make(n_contexts=20, n_items=11, dim=dim, density=density, **settings_)
    for scale in (1.0, 1e9):
        problem.W *= np.float32(scale)
        assert np.isfinite(swept(problem, block, 2)[0]).all()


def test_a_singular_block_moves_least():
    """Nothing but five labels for twelve unknowns: all are met, from zero by the smallest embedding there is."""
    problem = make(n_contexts=6, n_items=5, dim=12, regularization=0.0, unobserved_weight=0.0)
    problem.W[:] = 0
    W, H = swept(problem, 12)
    mask, _ = problem.dense
    assert dense_loss(problem, W=W, H=H)[0] < 1e-6
    for c in range(6):
        smallest = np.linalg.pinv(H[mask[c]].astype(np.float64)) @ np.ones(mask[c].sum())
        np.testing.assert_allclose(W[c], smallest, rtol=1e-2, atol=1e-3)
