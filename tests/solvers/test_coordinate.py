"""A sweep of coordinate descent: against the NumPy twin, against the loss, and where there is nothing to divide by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from problems import dense_loss, make, problems
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives import PointwiseSquare
from shortlist.solvers import coordinate
from shortlist.solvers.coordinate import CoordinateSolver, half_step_reference
from shortlist.solvers.half_step import half_step
from shortlist.solvers.normal_equations import solve_rows_reference


def swept(problem, sweeps=1, threads=None):
    out, before = problem.W.copy(), problem.H.copy()
    for _ in range(sweeps):
        terms = problem.objective.terms(problem.by_context)
        half_step(CoordinateSolver(), problem.by_context, terms, problem.H, out, threads)
    np.testing.assert_array_equal(problem.H, before)
    return out


def twin(problem):
    return half_step_reference(problem.by_context, problem.objective.terms(problem.by_context), problem.H, problem.W)


@settings(max_examples=150, deadline=None)
@given(problems())
def test_equals_the_twin(problem):
    np.testing.assert_allclose(swept(problem), twin(problem), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("dim", [1, 5, 8, 64, 130])
@pytest.mark.parametrize("n_items", [3, 9, 150])
def test_equals_the_twin_at_any_size(dim, n_items):
    problem = make(n_contexts=40, n_items=n_items, dim=dim)
    np.testing.assert_allclose(swept(problem), twin(problem), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dim", [3, 19, 24])
@pytest.mark.parametrize("panel", [0, 2000])
def test_rows_gathered_some_coordinates_at_a_time(dim, panel, monkeypatch):
    problem = make(n_contexts=5, n_items=150, dim=dim, density=0.7)
    whole = swept(problem)
    monkeypatch.setattr(coordinate, "_PANEL", panel)
    np.testing.assert_array_equal(swept(problem), whole)


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(1, 3))
def test_a_sweep_never_raises_the_printed_loss(problem, sweeps):
    before = sum(dense_loss(problem))
    assert sum(dense_loss(problem, W=swept(problem, sweeps))) <= before * (1 + 1e-5) + 1e-5


def test_many_sweeps_reach_the_minimum():
    for kw in ({}, {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 0.3}):
        problem = make(n_contexts=30, n_items=25, dim=6, regularization=0.1, **kw)
        expected = solve_rows_reference(problem.by_context, problem.objective.terms(problem.by_context), problem.H)
        expected[problem.by_context.lengths == 0] = 0
        assert not np.allclose(swept(problem), expected, atol=1e-2)
        np.testing.assert_allclose(swept(problem, 300), expected, rtol=1e-3, atol=1e-4)


def test_a_row_of_very_many_pairs():
    rng = np.random.default_rng(0)
    n, d = 120_000, 20
    rows = SparseRows(np.array([0, n, n + 3], np.int64), np.r_[0:n, 5, 7, 9].astype(np.int32), None, n)
    terms = PointwiseSquare().terms(rows)
    H = (rng.standard_normal((n, d)) * 0.3).astype(np.float32)
    W = rng.standard_normal((2, d)).astype(np.float32)
    expected = half_step_reference(rows, terms, H, W)
    half_step(CoordinateSolver(), rows, terms, H, W)
    np.testing.assert_allclose(W, expected, rtol=1e-3, atol=1e-4)


def test_the_number_of_threads_does_not_matter():
    problem = make(n_contexts=300, n_items=50, dim=19)
    one = swept(problem, threads=1)
    for threads in (2, 5):
        np.testing.assert_array_equal(swept(problem, threads=threads), one)


def test_a_row_does_not_depend_on_the_others():
    problem = make(n_contexts=40, n_items=50, dim=19)
    together = swept(problem)
    order = np.random.default_rng(1).permutation(40)
    problem.by_context, problem.W = problem.by_context.take(order), problem.W[order]
    np.testing.assert_array_equal(swept(problem), together[order])


def test_rows_without_pairs_become_zero():
    problem = make(density=0.0)
    assert (swept(problem) == 0).all()
    assert (twin(problem) == 0).all()


@pytest.mark.parametrize(
    "settings_",
    [
        {"regularization": 0.0, "unobserved_weight": 0.0},
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
def test_extreme_settings_never_give_nan(settings_, dim, density):
    problem = make(n_contexts=20, n_items=11, dim=dim, density=density, **settings_)
    for scale in (1.0, 1e9):
        problem.W *= np.float32(scale)
        assert np.isfinite(swept(problem, 3)).all()


def test_a_coordinate_that_does_not_count_stays():
    problem = make(regularization=0.0, dim=4)
    problem.H[:, 2] = 0
    got = swept(problem)
    some = problem.by_context.lengths > 0
    np.testing.assert_array_equal(got[some, 2], problem.W[some, 2])
    assert (got[some, 1] != problem.W[some, 1]).all()


def test_nothing_but_rounding_to_divide_by():
    """Every pair observed with almost no weight of its own: the loss is flat, and nothing moves."""
    problem = make(
        n_items=40, dim=7, density=1.0, weighted=False,
        convention="total", unobserved_weight=1.0, observed_weight=1e-9, regularization=0.0,
    )  # fmt: skip
    np.testing.assert_array_equal(swept(problem, 5), problem.W)
