"""One half-step: against the NumPy twin, against the gradient, and where float32 gives up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from problems import dense_loss, make, problems
from shortlist.solvers.rows import solve_rows, solve_rows_reference


def solved(problem, threads=None):
    out = np.full(problem.W.shape, np.nan, np.float32)
    o = problem.objective
    solve_rows(problem.by_context, o.terms(problem.by_context), problem.H, o.unobserved_weight, out, threads)
    return out


@settings(max_examples=150, deadline=None)
@given(problems())
def test_equals_the_twin(problem):
    o = problem.objective
    expected = solve_rows_reference(problem.by_context, o.terms(problem.by_context), problem.H, o.unobserved_weight)
    np.testing.assert_allclose(solved(problem), expected, rtol=2e-3, atol=2e-4)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_is_the_minimum_of_the_printed_loss(problem):
    """No small move of any row lowers the brute-force loss."""
    best = solved(problem).astype(np.float64)
    at_best = sum(dense_loss(problem, W=best))
    assert at_best <= sum(dense_loss(problem)) * (1 + 1e-6) + 1e-6
    rng = np.random.default_rng(0)
    for size in (0.3, 0.03):
        moved = best + size * rng.standard_normal(best.shape)
        assert sum(dense_loss(problem, W=moved)) > at_best - 1e-6


def test_long_rows_are_gathered_in_blocks():
    problem = make(n_contexts=2, n_items=1500, dim=5, density=0.9)
    o = problem.objective
    expected = solve_rows_reference(problem.by_context, o.terms(problem.by_context), problem.H, o.unobserved_weight)
    np.testing.assert_allclose(solved(problem), expected, rtol=1e-3, atol=1e-4)


def test_the_number_of_threads_does_not_matter():
    problem = make(n_contexts=300, n_items=50, dim=8)
    one = solved(problem, threads=1)
    for threads in (2, 5):
        np.testing.assert_array_equal(solved(problem, threads=threads), one)


def test_rows_without_pairs_become_zero():
    problem = make(density=0.0)
    assert (solved(problem) == 0).all()


@pytest.mark.parametrize(
    "settings_",
    [
        {"regularization": 0.0, "unobserved_weight": 0.0},  # singular: fewer pairs than dimensions
        {"regularization": 1e-30, "unobserved_weight": 0.0},
        {"regularization": 1e30},
        {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 0.3},  # α < α₀
        {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 1.0},  # α = α₀
        {"observed_weight": 1e12, "weighting": "raw"},
    ],
)
@pytest.mark.parametrize("dim", [1, 3, 37])
def test_extreme_settings_never_give_nan(settings_, dim):
    assert np.isfinite(solved(make(n_contexts=20, n_items=11, dim=dim, **settings_))).all()


def test_the_smallest_of_many_minima_where_the_system_is_singular():
    problem = make(n_contexts=6, n_items=5, dim=12, regularization=0.0, unobserved_weight=0.0)
    got = solved(problem)
    mask, _ = problem.dense
    assert dense_loss(problem, W=got)[0] < 1e-6  # five labels, twelve unknowns: all are met
    for c in range(6):
        smallest = np.linalg.pinv(problem.H[mask[c]].astype(np.float64)) @ np.ones(mask[c].sum())
        np.testing.assert_allclose(got[c], smallest, rtol=1e-2, atol=1e-3)
