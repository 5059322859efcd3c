"""Conjugate gradients in the eigenbasis: against the twin, against the exact solution, and where float32 gives up."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from problems import Problem, dense_loss, make, problems
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives import PointwiseSquare
from shortlist.solvers import eigen
from shortlist.solvers.cg_limits import CGLimits
from shortlist.solvers.exact import ExactSolver
from shortlist.solvers.half_step import half_step
from shortlist.solvers.normal_equations import row_system, solve_rows_reference

LOSS_SLACK = 1e-5
STEP = eigen.EigenSolver()


def stepped(problem: Problem, solver=STEP, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Both sides after a half-step of the contexts, in whatever basis it left them."""
    W, H = problem.W.copy(), problem.H.copy()
    half_step(solver, problem.by_context, problem.context_terms, H, W, threads)
    return W, H


@pytest.fixture(params=["row by row", "tile by tile"])
def way(request, monkeypatch):
    """Both ways through the other side, on problems of any size."""
    if request.param == "tile by tile":
        monkeypatch.setattr(eigen, "_IN_CACHE", 0)
        monkeypatch.setattr(eigen, "_TILE", 64)
        monkeypatch.setattr(eigen, "_SEGMENT", 0)


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(1, 4), st.sampled_from([0.0, 0.3]))
def test_equals_the_twin(problem, max_steps, tolerance):
    W, H = problem.W.copy(), problem.H.copy()
    terms = problem.context_terms
    basis = eigen.EigenSolver().prepare(problem.by_context, terms, H, W)
    start = W.astype(np.float64)
    limits = CGLimits(1.0, tolerance, max_steps)
    eigen.solve_eigen(problem.by_context, terms, H, basis, W, None, limits)
    for r in range(len(W)):
        A, b = row_system(problem.by_context, terms, H, np.diag(basis.spectrum), r)
        if problem.by_context.lengths[r]:
            expected = eigen.pcg_reference(A, b, start[r], limits)
            if max_steps <= 2 or np.linalg.cond(A) < 100:
                scale = np.sqrt(np.diagonal(A))  # directions of little weight may be far off at no cost
                np.testing.assert_allclose(
                    W[r] * scale, expected * scale, atol=1e-2 * (1 + np.abs(start[r] * scale).max()), rtol=5e-3
                )
            else:  # float32 may need one more step: ours is at least as near to the minimum as the twin one step before
                before = eigen.pcg_reference(A, b, start[r], limits._replace(max_steps=max_steps - 1))
                minimum = np.linalg.solve(A, b)
                ours, twins, first = ((w - minimum) @ A @ (w - minimum) for w in (W[r], before, start[r]))
                assert ours <= twins + 1e-2 * first + 1e-5 * (minimum @ A @ minimum)
        else:
            assert (W[r] == 0).all()


@settings(max_examples=100, deadline=None)
@given(problems())
def test_to_the_end_it_is_the_exact_solution(problem):
    W, H = stepped(problem, eigen.TO_CONVERGENCE)
    expected = solve_rows_reference(problem.by_context, problem.context_terms, H)
    best = sum(dense_loss(problem, W=expected, H=H))
    assert sum(dense_loss(problem, W=W, H=H)) <= best * (1 + 1e-5) + 1e-6
    np.testing.assert_allclose(W @ H.T, expected @ H.T, rtol=1e-2, atol=2e-3)


@settings(max_examples=100, deadline=None)
@given(problems(), st.sampled_from([0.5, 1.0, 1.5, 1.99]), st.integers(1, 3))
def test_no_relaxation_below_two_raises_the_loss(problem, relaxation, max_steps):
    W, H = stepped(problem, eigen.EigenSolver(CGLimits(relaxation, 0.3, max_steps)))
    before = sum(dense_loss(problem))
    assert sum(dense_loss(problem, W=W, H=H)) <= before * (1 + LOSS_SLACK) + LOSS_SLACK


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e20, 0.0])
def test_the_end_does_not_depend_on_the_start(scale):
    """Not on one so long that nothing is left of the solution's digits either."""
    problem = make(n_contexts=40, n_items=30, dim=8)
    problem.W *= np.float32(scale)
    W, H = stepped(problem, eigen.TO_CONVERGENCE)
    expected = solve_rows_reference(problem.by_context, problem.context_terms, H)
    np.testing.assert_allclose(W, expected, rtol=1e-3, atol=1e-4)


def test_the_end_where_many_are_as_good_is_the_smallest_of_them():
    """λ = 0 and α₀ = 0: what a start has in directions that nothing depends on must not stay."""
    problem = make(n_contexts=6, n_items=5, dim=12, regularization=0.0, unobserved_weight=0.0)
    W, H = stepped(problem, eigen.TO_CONVERGENCE)
    expected = solve_rows_reference(problem.by_context, problem.context_terms, H)
    np.testing.assert_allclose(W, expected, rtol=1e-2, atol=1e-3)


def test_relaxation_gains_over_epochs():
    """What a step beyond the minimum loses at once, it gains within a few epochs."""
    problem = make(n_contexts=300, n_items=120, dim=12, density=0.1, regularization_exponent=0.0, regularization=0.5)

    def after(relaxation: float) -> float:
        W, H, solver = np.zeros_like(problem.W), 0.1 * problem.H, eigen.EigenSolver(CGLimits(relaxation))
        for _ in range(8):
            half_step(solver, problem.by_context, problem.context_terms, H, W)
            half_step(solver, problem.by_item, problem.item_terms, W, H)
        return problem.objective.loss(problem.by_context, problem.by_item, W, H).total

    assert after(CGLimits().relaxation) < after(1.0)


@pytest.mark.usefixtures("way")
def test_both_ways_reach_the_end():
    problem = make(n_contexts=40, n_items=300, dim=5, density=0.4)
    W, H = stepped(problem, eigen.TO_CONVERGENCE)
    expected = solve_rows_reference(problem.by_context, problem.context_terms, H)
    np.testing.assert_allclose(W, expected, rtol=1e-3, atol=1e-4)


def test_tiles_take_the_same_steps(monkeypatch):
    problem = make(n_contexts=60, n_items=200, dim=7, density=0.3)
    whole, _ = stepped(problem)
    monkeypatch.setattr(eigen, "_IN_CACHE", 0)
    monkeypatch.setattr(eigen, "_SEGMENT", 0)
    for tile in (28, 700, 2800):  # bytes: 1, 25 and 100 items
        monkeypatch.setattr(eigen, "_TILE", tile)
        np.testing.assert_allclose(stepped(problem)[0], whole, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("way")
def test_the_number_of_threads_does_not_matter():
    problem = make(n_contexts=300, n_items=50, dim=8)
    one, _ = stepped(problem, threads=1)
    for threads in (2, 5):
        np.testing.assert_array_equal(stepped(problem, threads=threads)[0], one)


def test_calls_from_several_threads_at_once():
    problem = make(n_contexts=200, n_items=50, dim=8)
    alone = stepped(problem)[0]
    with ThreadPoolExecutor(4) as pool:
        for W, _ in pool.map(lambda _: stepped(problem, threads=2), range(8)):
            np.testing.assert_array_equal(W, alone)


def test_rows_in_another_order_give_the_same():
    problem = make(n_contexts=50, n_items=30, dim=6)
    order = np.random.default_rng(0).permutation(50)
    other = Problem(problem.objective, problem.by_context.take(order), problem.W[order], problem.H)
    np.testing.assert_array_equal(stepped(other)[0], stepped(problem)[0][order])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "settings_",
    [
        {"regularization": 0.0, "unobserved_weight": 0.0},  # singular: fewer pairs than dimensions
        {"regularization": 1e-30, "unobserved_weight": 0.0},
        {"regularization": 1e-12, "unobserved_weight": 1e-9},
        {"regularization": 1e30},
        {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 0.3},  # α < α₀
        {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 1.0},  # α = α₀
        {"observed_weight": 1e12, "weighting": "raw"},
        {"observed_weight": 1e30},
    ],
)
@pytest.mark.parametrize("dim", [1, 3, 37])
@pytest.mark.parametrize("step", [eigen.EigenSolver(), eigen.TO_CONVERGENCE], ids=["step", "to convergence"])
def test_extreme_settings_never_give_nan(settings_, dim, step):
    problem = make(n_contexts=20, n_items=11, dim=dim, **settings_)
    for _ in range(3):
        problem.W, problem.H = stepped(problem, step)
        assert np.isfinite(problem.W).all()
        assert np.isfinite(problem.H).all()
    if step is eigen.TO_CONVERGENCE and settings_.get("observed_weight", 1) <= 1:
        other = Problem(problem.objective, problem.by_context, problem.W, problem.H)
        V, K = stepped(other, ExactSolver())
        assert sum(dense_loss(problem)) <= sum(dense_loss(problem, W=V, H=K)) * (1 + 1e-3) + 1e-3


@pytest.mark.parametrize("dim", [1, 100, 2048])
def test_long_rows_and_large_dimensions(dim):
    """Rows longer than 10⁵ at small d; d of any size."""
    n = 120_000 if dim <= 100 else 300
    rng = np.random.default_rng(1)
    rows = SparseRows(np.array([0, n, n + 3, n + 3], np.int64), np.r_[np.arange(n), 0, 1, 2].astype(np.int32), None, n)
    objective = PointwiseSquare(regularization=0.01)
    W, H = np.zeros((3, dim), np.float32), rng.standard_normal((n, dim), dtype=np.float32) / np.float32(np.sqrt(dim))
    half_step(eigen.TO_CONVERGENCE, rows, objective.terms(rows), H, W)
    assert (W[2] == 0).all()
    G = H.astype(np.float64).T @ H.astype(np.float64)
    for r in range(2):
        A, b = row_system(rows, objective.terms(rows), H, G, r)
        assert np.linalg.norm(A @ W[r] - b) <= 1e-3 * np.linalg.norm(b)


@pytest.mark.slow  # tests/test_kernel_cache.py has the law for one small kernel
def test_the_second_process_compiles_nothing(tmp_path):
    code = (
        "import numpy as np; from problems import make; from shortlist.solvers import eigen; p = make();"
        "from shortlist.solvers.half_step import half_step;"
        "half_step(eigen.EigenSolver(), p.by_context, p.context_terms, p.H, p.W);"
        "print(sum(eigen._solve.stats.cache_misses.values()))"
    )
    env = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join(p for p in sys.path if p)}
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, env=env, capture_output=True, text=True, check=False) for _ in range(2)]
    assert [run.stdout.strip() for run in runs] == ["1", "0"], runs[0].stderr + runs[1].stderr
