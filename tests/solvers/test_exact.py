"""One half-step: against the NumPy twin, against the gradient, and where float32 gives up."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist
from problems import dense_loss, make, problems
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pointwise_square import Terms
from shortlist.solvers.exact import ExactSolver, solve_exact
from shortlist.solvers.half_step import half_step
from shortlist.solvers.normal_equations import row_system, solve_rows_reference


def solved(problem, threads=None):
    """The contexts, and the items that they belong to: rotated with them."""
    W, H = problem.W.copy(), problem.H.copy()
    half_step(ExactSolver(), problem.by_context, problem.objective.terms(problem.by_context), H, W, threads)
    return W, H


def expected(problem, H):
    return solve_rows_reference(problem.by_context, problem.objective.terms(problem.by_context), H)


def systems(seed, dim, lengths, excess, span=1e-2, n_columns=None):
    """Rows of the given lengths with M spanning from 1 to `span`; weights are drawn from the list `excess`."""
    rng = np.random.default_rng(seed)
    n_columns = n_columns or max([1, *lengths])
    indices = [np.sort(rng.choice(n_columns, n, replace=False)) for n in lengths]
    rows = SparseRows(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate(indices).astype(np.int32),
        None,
        n_columns,
    )
    spectrum = np.geomspace(1, span, dim) * (dim > 1) + (dim == 1)
    other = (rng.standard_normal((n_columns, dim)) * np.sqrt(spectrum)).astype(np.float32)
    terms = Terms(
        rng.choice(np.asarray(excess, np.float32), len(rows)),
        rng.uniform(0.5, 2, len(rows)).astype(np.float32),
        np.full(len(lengths), span / 10, np.float32),
        np.ones(1, np.float32),
        np.ones(1, np.float32),
    )
    return rows, terms, other, spectrum


def solutions(rows, terms, other, spectrum, threads=1):
    out = np.full((rows.n_rows, other.shape[1]), 7, np.float32)
    solve_exact(rows, terms, other, spectrum, out, threads)
    return out


def oracle(rows, terms, other, spectrum):
    return np.array(
        [np.linalg.solve(*row_system(rows, terms, other, np.diag(spectrum), r)) for r in range(rows.n_rows)]
    )


def assert_near(got, truth, within=2e-4):
    """By rows, and relative to the length of each."""
    scale = np.linalg.norm(truth, axis=1, keepdims=True)
    assert (np.abs(got - truth) <= within * scale + 1e-30).all(), (np.abs(got - truth) / scale).max()


@settings(max_examples=150, deadline=None)
@given(problems())
def test_equals_the_twin(problem):
    W, H = solved(problem)
    np.testing.assert_allclose(W, expected(problem, H), rtol=2e-3, atol=2e-4)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_both_sides_are_rotated_alike(problem):
    """Scores are those of the twin that knows no rotation."""
    W, H = solved(problem)
    np.testing.assert_allclose(W @ H.T, expected(problem, problem.H) @ problem.H.T, rtol=2e-3, atol=1e-3)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_is_the_minimum_of_the_printed_loss(problem):
    """No small move of any row lowers the brute-force loss, and the half-step has not raised it."""
    W, H = solved(problem)
    best = W.astype(np.float64)
    at_best = sum(dense_loss(problem, W=best, H=H))
    assert at_best <= sum(dense_loss(problem)) * (1 + 1e-5) + 1e-6
    rng = np.random.default_rng(0)
    for size in (0.3, 0.03):
        moved = best + size * rng.standard_normal(best.shape)
        assert sum(dense_loss(problem, W=moved, H=H)) > at_best - 1e-6


DIMS = [1, 2, 7, 15, 16, 17, 37, 128, 300]


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("excess", [[1.0], [1.0, 0.01, 30.0], [0.0], [0.0, 1.0], [1.0, -0.002]], ids=str)
def test_rows_shorter_and_longer_than_the_embeddings(dim, excess):
    lengths = sorted({0, 1, 2, 15, 16, 17, dim - 1, dim, dim + 1, 2 * dim, 600})
    rows, terms, other, spectrum = systems(dim, dim, lengths, excess)
    if min(excess) < 0:
        # Kept positive definite, as where G holds the pair's own ψψᵀ.
        terms = Terms(terms.excess, terms.target, terms.ridge + 600 * 0.002 * 4 * dim, terms.dense, terms.omega)
    got = solutions(rows, terms, other, spectrum)
    assert (got[0] == 0).all()
    assert_near(got[1:], oracle(rows, terms, other, spectrum)[1:], within=1e-3)


@settings(max_examples=80)
@given(
    st.integers(0, 10**6),
    st.integers(1, 70),
    st.lists(st.integers(0, 90), min_size=1, max_size=6),
    st.sampled_from([1.0, 1e-2, 1e-4]),
)
def test_equals_float64_at_any_shape(seed, dim, lengths, span):
    rows, terms, other, spectrum = systems(seed, dim, lengths, [1.0, 0.1], span)
    truth = oracle(rows, terms, other, spectrum)
    assert_near(solutions(rows, terms, other, spectrum), truth, within=2e-3)


def test_weights_far_above_the_diagonal_keep_all_digits_of_short_rows():
    """Where the d × d matrix would lose them: its condition is 10⁷."""
    rows, terms, other, spectrum = systems(0, 64, [3, 20, 40], [1e5], span=1.0)
    assert_near(solutions(rows, terms, other, spectrum), oracle(rows, terms, other, spectrum), within=2e-5)


@pytest.mark.parametrize("span", [1e-6, 1e-9])
def test_a_diagonal_near_zero_in_some_directions(span):
    """Embeddings that do not shrink with it: the n × n matrix would be near singular, the d × d one is not."""
    rows, terms, other, spectrum = systems(1, 40, [38, 39, 45], [1.0], span)
    other = np.random.default_rng(2).standard_normal(other.shape).astype(np.float32)
    got, truth = solutions(rows, terms, other, spectrum), oracle(rows, terms, other, spectrum)
    for r in range(rows.n_rows):
        Psi = other[rows.row(r)].astype(np.float64)
        np.testing.assert_allclose(Psi @ got[r], Psi @ truth[r], rtol=1e-3, atol=1e-3)


def test_a_spectrum_in_any_order():
    rows, terms, other, spectrum = systems(3, 40, [5, 30, 80], [1.0])
    order = np.random.default_rng(4).permutation(40)
    assert_near(
        solutions(rows, terms, np.ascontiguousarray(other[:, order]), spectrum[order]),
        oracle(rows, terms, other, spectrum)[:, order],
    )


def test_embeddings_in_any_layout():
    rows, terms, other, spectrum = systems(3, 20, [5, 30], [1.0])
    np.testing.assert_array_equal(
        solutions(rows, terms, np.asfortranarray(other), spectrum), solutions(rows, terms, other, spectrum)
    )


def test_weights_of_contexts_and_items():
    """`dense` by row and `omega` by column."""
    problem = make(n_contexts=30, n_items=40, dim=9)
    rows, plain = problem.by_context, problem.objective.terms(problem.by_context)
    rng = np.random.default_rng(0)
    terms = Terms(
        plain.excess,
        plain.target,
        plain.ridge,
        rng.uniform(0.1, 1, 30).astype(np.float32),
        rng.uniform(0, 2, 40).astype(np.float32),
    )
    W, H = np.zeros((30, 9), np.float32), problem.H.copy()
    half_step(ExactSolver(), rows, terms, H, W)
    np.testing.assert_allclose(W, solve_rows_reference(rows, terms, H), rtol=2e-3, atol=1e-5)


def test_a_row_of_very_many_pairs():
    rows, terms, other, spectrum = systems(5, 20, [120_000, 3], [1.0, 2.0])
    assert_near(solutions(rows, terms, other, spectrum), oracle(rows, terms, other, spectrum))


def test_the_number_of_threads_does_not_matter():
    problem = make(n_contexts=300, n_items=50, dim=24)
    one, _ = solved(problem, threads=1)
    for threads in (2, 5):
        np.testing.assert_array_equal(solved(problem, threads=threads)[0], one)


def test_a_row_is_solved_by_itself():
    """Other rows before or after it change no bit: permuted rows give permuted results."""
    rows, terms, other, spectrum = systems(6, 33, [0, 50, 1, 7, 32, 33, 20, 0, 41], [1.0])
    terms = Terms(np.ones(1, np.float32), np.ones(1, np.float32), terms.ridge, terms.dense, terms.omega)
    all_rows = solutions(rows, terms, other, spectrum)
    order = np.random.default_rng(0).permutation(rows.n_rows)
    np.testing.assert_array_equal(solutions(rows.take(order), terms, other, spectrum), all_rows[order])
    for r in range(rows.n_rows):
        one = solutions(rows.take(np.array([r])), terms, other, spectrum, threads=None)
        np.testing.assert_array_equal(one[0], all_rows[r])


def test_calls_from_several_threads_at_once():
    problem = make(n_contexts=200, n_items=60, dim=20)
    alone, _ = solved(problem, threads=1)
    with ThreadPoolExecutor(4) as pool:
        for W, _ in pool.map(lambda _: solved(problem, threads=2), range(12)):
            np.testing.assert_array_equal(W, alone)


def test_rows_without_pairs_become_zero():
    problem = make(density=0.0)
    assert (solved(problem)[0] == 0).all()


@pytest.mark.parametrize(
    "settings_",
    [
        {"regularization": 0.0, "unobserved_weight": 0.0},  # singular: fewer pairs than dimensions
        {"regularization": 1e-30, "unobserved_weight": 0.0},
        {"regularization": 1e30},
        {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 0.3},  # α < α₀
        {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 1.0},  # α = α₀
        {"observed_weight": 1e12, "weighting": "raw"},
        {"observed_weight": 1e-30},
        {"observed_weight": 1e-42},
        {"convention": "total", "unobserved_weight": 0.0, "observed_weight": 1e30},
    ],
    ids=str,
)
@pytest.mark.parametrize("dim", [1, 3, 37])
def test_extreme_settings_never_give_nan(settings_, dim):
    assert np.isfinite(solved(make(n_contexts=20, n_items=11, dim=dim, **settings_))[0]).all()


def test_the_smallest_of_many_minima_where_the_system_is_singular():
    problem = make(n_contexts=6, n_items=5, dim=12, regularization=0.0, unobserved_weight=0.0)
    W, H = solved(problem)
    mask, _ = problem.dense
    assert dense_loss(problem, W=W, H=H)[0] < 1e-6  # five labels, twelve unknowns: all are met
    for c in range(6):
        smallest = np.linalg.pinv(H[mask[c]].astype(np.float64)) @ np.ones(mask[c].sum())
        np.testing.assert_allclose(W[c], smallest, rtol=1e-2, atol=1e-3)


@pytest.mark.slow  # tests/test_kernel_cache.py has the law for one small kernel
def test_a_second_process_finds_the_compiled_kernel(tmp_path):
    program = (
        "from problems import make; from shortlist.solvers import exact; p = make();"
        "from shortlist.solvers.half_step import half_step;"
        "half_step(exact.ExactSolver(), p.by_context, p.objective.terms(p.by_context), p.H, p.W);"
        "print(sum(exact._solve_rows.stats.cache_hits.values()), sum(exact._solve_rows.stats.cache_misses.values()))"
    )
    places = [str(Path(shortlist.__file__).parents[1]), str(Path(__file__).parents[1])]
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(places), "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert found == [["0", "1"], ["1", "0"]]
