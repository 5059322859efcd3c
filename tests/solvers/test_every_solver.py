"""What holds for every solver of a half-step, whatever its way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from problems import Problem, dense_loss, make, problems
from shortlist.solvers import eigen
from shortlist.solvers.block import BlockSolver
from shortlist.solvers.coordinate import CoordinateSolver
from shortlist.solvers.eigen import TO_CONVERGENCE, EigenSolver
from shortlist.solvers.exact import ExactSolver
from shortlist.solvers.half_step import half_step
from shortlist.solvers.normal_equations import part, solve_rows_reference

SOLVERS = {
    "eigen": EigenSolver(),
    "eigen to the end": TO_CONVERGENCE,
    "exact": ExactSolver(),
    "block": BlockSolver(3),
    "coordinate": CoordinateSolver(),
}


@pytest.fixture(params=SOLVERS)
def solver(request):
    return SOLVERS[request.param]


def stepped(problem: Problem, solver, threads: int | None = None, terms=None) -> tuple[np.ndarray, np.ndarray]:
    W, H = problem.W.copy(), problem.H.copy()
    half_step(solver, problem.by_context, problem.context_terms if terms is None else terms, H, W, threads)
    return W, H


@settings(max_examples=12, deadline=None)
@given(problems())
def test_all_reach_the_same_optimum(problem):
    """However many half-steps a solver needs for it, the other side being as it is.

    Coordinates need more of them than there is patience for where λ is small, so it is not.
    """
    problem.objective = replace(problem.objective, regularization=2.0)
    expected = solve_rows_reference(problem.by_context, problem.context_terms, problem.H)
    best = sum(dense_loss(problem, W=expected))
    rows, terms = problem.by_context, problem.context_terms
    for name, solver in SOLVERS.items():
        W, H = problem.W.copy(), problem.H.copy()
        most = {"exact": 1, "eigen to the end": 1, "eigen": 200}.get(name, 2000)
        for k in range(most):
            before = W.copy()
            half_step(solver, rows, terms, H, W, 1)
            if k % 10 == 9 and np.allclose(W, before, rtol=1e-6, atol=1e-7):
                break  # it has ended where it ends
        assert sum(dense_loss(problem, W=W, H=H)) <= best * (1 + 2e-4) + 2e-4, name


@settings(max_examples=60, deadline=None)
@given(problems())
def test_none_raises_the_loss(problem):
    before = sum(dense_loss(problem))
    for name, solver in SOLVERS.items():
        W, H = stepped(problem, solver)
        assert sum(dense_loss(problem, W=W, H=H)) <= before * (1 + 1e-5) + 1e-5, name


def test_permuted_items_permute_nothing_else(solver):
    problem = make(n_contexts=30, n_items=25, dim=6)
    order = np.random.default_rng(0).permutation(25)
    place = np.argsort(order).astype(np.int32)
    rows = replace(problem.by_context, indices=place[problem.by_context.indices])
    other = Problem(problem.objective, rows, problem.W, problem.H[order])
    (W, H), (V, K) = stepped(problem, solver), stepped(other, solver)
    np.testing.assert_allclose(V @ K.T, (W @ H.T)[:, order], rtol=1e-2, atol=2e-3)


def test_one_element_stands_for_all(solver):
    problem = make(n_contexts=30, n_items=20, dim=5, weighted=False, regularization_exponent=0.0)
    terms = problem.context_terms
    assert len(terms.excess) == len(terms.target) == len(terms.dense) == 1
    n, rows = len(problem.by_context), problem.by_context.n_rows
    long = replace(
        terms,
        excess=np.repeat(terms.excess, n),
        target=np.repeat(terms.target, n),
        dense=np.repeat(terms.dense, rows),
        omega=np.repeat(terms.omega, problem.by_context.n_columns),
    )
    short = replace(terms, ridge=terms.ridge[:1])
    for one in (stepped(problem, solver, terms=long), stepped(problem, solver, terms=short)):
        (W, H), (V, K) = one, stepped(problem, solver)
        np.testing.assert_allclose(W @ H.T, V @ K.T, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dim", [7, 501])
def test_the_number_of_threads_changes_no_bit(solver, dim):
    problem = make(n_contexts=120, n_items=90, dim=dim)
    W, H = stepped(problem, solver, threads=1)
    V, K = stepped(problem, solver, threads=2)
    np.testing.assert_array_equal(W, V)
    np.testing.assert_array_equal(H, K)


@pytest.mark.parametrize("dim", [13, 33])
@pytest.mark.parametrize("unobserved_weight", [0.0, 0.1])
def test_more_dimensions_than_the_rank_and_hardly_any_lambda(solver, unobserved_weight, dim):
    """No half-step raises the loss: along directions of rounding errors, solutions are noise divided by nothing."""
    for regularization in (0.0, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3):
        problem = make(
            30, 9, dim, regularization=regularization, unobserved_weight=unobserved_weight, regularization_exponent=0.0
        )
        W, H = np.zeros_like(problem.W), problem.H.copy()
        scale = before = sum(dense_loss(problem, W=W, H=0 * H))
        for _ in range(6):
            for rows, terms, other, own in (
                (problem.by_context, problem.context_terms, H, W),
                (problem.by_item, problem.item_terms, W, H),
            ):
                half_step(solver, rows, terms, other, own)
                after = sum(dense_loss(problem, W=W, H=H))
                assert after <= before + 1e-4 * before + 1e-5 * scale, regularization
                before = after
        half_step(ExactSolver(), problem.by_context, problem.context_terms, H, W)
        assert sum(dense_loss(problem, W=W, H=H)) <= before + 1e-4 * before + 1e-5 * scale, regularization


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("settings", [{}, {"regularization": 0.0, "unobserved_weight": 0.0}, {"convention": "total"}])
def test_rows_may_be_solved_in_pieces(solver, settings, tiled, monkeypatch):
    """Each piece gets its own rows, terms and start, the other side and the basis; the bits are those of one call."""
    if tiled:
        monkeypatch.setattr(eigen, "_IN_CACHE", 0)
        monkeypatch.setattr(eigen, "_TILE", 280)
        monkeypatch.setattr(eigen, "_SEGMENT", 1)
    problem = make(n_contexts=90, n_items=60, dim=13, **settings)
    rows, terms = problem.by_context, problem.context_terms
    whole, other = problem.W.copy(), problem.H.copy()
    half_step(solver, rows, terms, other, whole)
    H, W = problem.H.copy(), problem.W.copy()
    basis = solver.prepare(rows, terms, H, W)
    np.testing.assert_array_equal(H, other)
    order = np.random.default_rng(5).permutation(90)
    for chosen in (order[:1], order[1:30], np.sort(order[30:55]), order[55:]):
        out = W[chosen]
        solver.solve(*part(rows, terms, chosen), H, basis, out, 2)
        np.testing.assert_array_equal(out, whole[chosen])
    np.testing.assert_array_equal(H, other)  # solving changes nothing but the rows
