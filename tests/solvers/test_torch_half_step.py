"""The torch solver on a CPU: against the NumPy twins, and where float32 gives up; with a GPU also there."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings

from problems import dense_loss, make, problems
from shortlist.errors import DataError, SettingError
from shortlist.solvers import torch_half_step, triton_kernels
from shortlist.solvers.cg_limits import END, CGLimits
from shortlist.solvers.eigen import TO_CONVERGENCE, EigenSolver
from shortlist.solvers.half_step import half_step
from shortlist.solvers.normal_equations import row_system, solve_rows_reference

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'shortlist[torch]'")
GPU = torch.cuda.is_available()
TRITON = find_spec("triton") is not None and (GPU or os.environ.get("TRITON_INTERPRET") == "1")
fused_too = pytest.mark.parametrize(
    "fused",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.skipif(
                not TRITON, reason="needs triton, and a GPU or TRITON_INTERPRET=1 (with NumPy before 2.4)"
            ),
        ),
    ],
)


def terms_of(problem):
    """Of both sides, with the weights of both on the unobserved part."""
    o = problem.objective
    contexts, items = (omega.values for omega in o.omegas(problem.by_context))
    return o.terms(problem.by_context, contexts, items), o.terms(problem.by_item, items, contexts)


def solver(problem, contexts=None, **kw):
    return torch_half_step.DeviceSolver(
        problem.by_context,
        problem.by_item,
        *terms_of(problem),
        problem.H,
        contexts=contexts,
        device="cuda" if GPU else "cpu",
        **kw,
    )


def scores(embeddings):
    W, H = (one.astype(np.float64) for one in embeddings)
    return W @ H.T


TWO_STEPS = CGLimits(1.0, 0.0, 2)


def twin(rows, terms, other, own, relaxation, tolerance, max_steps):
    """A half-step row by row in float64, in the eigenbasis of the Gramian; both sides come back rotated."""
    other, own = other.astype(np.float64), own.astype(np.float64)
    values, Q = np.linalg.eigh((other.T * terms.omega) @ other)
    other, own = other @ Q, own @ Q
    for r in range(rows.n_rows):
        if rows.lengths[r] == 0:
            own[r] = 0
            continue
        A, b = row_system(rows, terms, other, np.diag(values), r)
        P = np.diag(A)
        w, v = own[r], b - A @ own[r]
        z = v / P
        p, start = z, v @ z
        for _ in range(max_steps):
            if v @ z <= max(tolerance**2 * start, END**2 * (P * w * w).sum()):
                break
            length = (v @ z) / (p @ A @ p)
            w = w + length * p
            new = v - length * (A @ p)
            p = new / P + (new @ (new / P)) / (v @ z) * p
            v, z = new, new / P
        near = np.linalg.norm(w - own[r]) <= 0.5 * np.linalg.norm(w)
        own[r] += (relaxation if near else 1) * (w - own[r])
    return other, own


def twin_scores(problem, limits):
    """After an epoch."""
    of_contexts, of_items = terms_of(problem)
    H, W = twin(problem.by_context, of_contexts, problem.H, problem.W, *limits)
    W, H = twin(problem.by_item, of_items, W, H, *limits)
    return W @ H.T


@fused_too
def test_an_epoch_is_two_steps_of_cg_for_each_row(fused):
    @settings(max_examples=8 if fused else 60, deadline=None)
    @given(problems())
    def check(problem):
        ours = solver(problem, problem.W, fused=fused, limits=TWO_STEPS)
        ours.epoch()
        np.testing.assert_allclose(scores(ours.embeddings()), twin_scores(problem, TWO_STEPS), rtol=2e-2, atol=2e-3)

    check()


@fused_too
def test_rows_stop_at_the_tolerance_and_go_beyond(fused):
    """Each limit matters to the result, and the result is the twin's."""
    problem = make(n_contexts=40, n_items=30, dim=6, density=0.4, regularization=0.02)
    problem.W *= 0.3
    found = []
    for values in ((1.5, 0.3, 3), (1.0, 0.3, 3), (1.5, 0.01, 3), (1.5, 0.01, 1)):
        limits = CGLimits(*values)
        ours = solver(problem, problem.W, fused=fused, limits=limits)
        ours.epoch()
        found.append(scores(ours.embeddings()))
        np.testing.assert_allclose(found[-1], twin_scores(problem, limits), rtol=1e-3, atol=1e-3)
    assert all(np.abs(a - b).max() > 0.01 for a, b in pairwise(found))


def test_by_default_it_is_the_solver_of_the_cpu():
    problem = make(n_contexts=300, n_items=200, dim=8, density=0.1)
    o = problem.objective
    terms = terms_of(problem)
    ours = solver(problem)
    W, H = np.zeros_like(problem.W), problem.H.copy()
    for _ in range(4):
        ours.epoch()
        half_step(EigenSolver(), problem.by_context, terms[0], H, W)
        half_step(EigenSolver(), problem.by_item, terms[1], W, H)
        expected = o.loss(problem.by_context, problem.by_item, W, H).total
        np.testing.assert_allclose(sum(ours.loss()), expected, rtol=1e-4)
    ours.finish()
    half_step(TO_CONVERGENCE, problem.by_context, terms[0], H, W)
    np.testing.assert_allclose(scores(ours.embeddings()), scores((W, H)), rtol=1e-2, atol=1e-3)


@fused_too
def test_finish_is_the_exact_half_step(fused):
    @settings(max_examples=8 if fused else 60, deadline=None)
    @given(problems())
    def check(problem):
        assume(len(problem.by_context) > 0)
        ours = solver(problem, fused=fused)
        ours.finish()
        terms, _ = terms_of(problem)
        expected = solve_rows_reference(problem.by_context, terms, problem.H) @ problem.H.T.astype(np.float64)
        np.testing.assert_allclose(scores(ours.embeddings()), expected, rtol=2e-3, atol=2e-3)

    check()


@fused_too
@pytest.mark.parametrize("dim", [1, 5, 16, 37])
def test_rows_of_all_lengths(fused, dim, monkeypatch):
    """None, few, and more pairs than fit one program, and than fit one segment."""
    monkeypatch.setattr(triton_kernels, "_SHORT", 40)
    monkeypatch.setattr(triton_kernels, "_SEGMENT", 24)
    problem = make(n_contexts=90, n_items=130, dim=dim, density=0.5, regularization=0.02)
    mask, _ = problem.dense
    keep = np.random.default_rng(1).random(mask.shape) < np.linspace(0, 1.2, 90)[:, None]
    problem = masked(problem, mask & keep)
    assert problem.by_context.lengths.min() == 0
    assert problem.by_context.lengths.max() > 48
    ours = solver(problem, problem.W, fused=fused, limits=TWO_STEPS)
    ours.epoch()
    np.testing.assert_allclose(scores(ours.embeddings()), twin_scores(problem, TWO_STEPS), rtol=1e-3, atol=1e-3)


def masked(problem, mask):
    indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)
    rows = type(problem.by_context)(indptr, np.nonzero(mask)[1].astype(np.int32), None, mask.shape[1])
    return type(problem)(problem.objective, rows, problem.W, problem.H)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_loss_is_that_of_the_objective(problem):
    ours = solver(problem, problem.W)
    parts = ours.loss(total=problem.objective.convention == "total")
    o = problem.objective.loss(problem.by_context, problem.by_item, problem.W, problem.H)
    expected = (o.observed, o.unobserved, o.regularizer)
    np.testing.assert_allclose(parts, expected, rtol=1e-4, atol=1e-4 * (1 + sum(expected)))


def test_the_loss_by_parts_of_the_pairs(monkeypatch):
    problem = make(n_contexts=200, n_items=40, density=0.3, convention="total")
    whole = solver(problem, problem.W).loss(total=True)
    monkeypatch.setattr(torch_half_step, "_LOSS_PAIRS", 100)
    np.testing.assert_allclose(solver(problem, problem.W).loss(total=True), whole, rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(problems())
def test_the_loss_never_rises(problem):
    total = problem.objective.convention == "total"
    ours = solver(problem)
    losses = []
    for _ in range(4):
        ours.epoch()
        losses.append(sum(ours.loss(total=total)))
    ours.finish()
    losses.append(sum(ours.loss(total=total)))
    assert all(b <= a * (1 + 1e-4) + 1e-5 for a, b in pairwise(losses)), losses
    W, H = ours.embeddings()
    np.testing.assert_allclose(losses[-1], sum(dense_loss(problem, W=W, H=H)), rtol=1e-4, atol=1e-5)


def test_weights_of_rows_and_columns_on_the_unobserved_part():
    """`dense` by row and `omega` by column: against the systems as `Terms` prints them, and the sum over all pairs."""
    problem = make(n_contexts=20, n_items=15, unobserved_item_exponent=0.5, unobserved_context_exponent=-0.5)
    ours = solver(problem)
    ours.epoch()
    ours.finish()
    W, H = ours.embeddings()
    np.testing.assert_allclose(
        W, solve_rows_reference(problem.by_context, terms_of(problem)[0], H), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(ours.loss(), dense_loss(problem, W=W, H=H), rtol=1e-4)


@fused_too
@pytest.mark.parametrize(
    "settings_",
    [
        {"regularization": 0.0, "unobserved_weight": 0.0},  # singular: fewer pairs than dimensions
        {"regularization": 1e-30, "unobserved_weight": 0.0},
        {"regularization": 1e30},
        {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 0.3},  # α < α₀
        {"convention": "total", "unobserved_weight": 1.0, "observed_weight": 1.0},  # α = α₀
        {"observed_weight": 1e12, "weighting": "raw"},
        {"observed_weight": 1e36, "weighting": "raw"},
        {"density": 0.0},
    ],
)
@pytest.mark.parametrize("dim", [1, 3, 37])
def test_extreme_settings_never_give_nan(settings_, dim, fused):
    ours = solver(make(n_contexts=20, n_items=11, dim=dim, **settings_), fused=fused)
    for _ in range(3):
        ours.epoch()
    ours.finish()
    assert all(np.isfinite(one).all() for one in ours.embeddings())
    assert np.isfinite(ours.loss(total="convention" in settings_)[2])


def test_rows_without_pairs_become_zero():
    ours = solver(make(density=0.0))
    ours.epoch()
    assert all((one == 0).all() for one in ours.embeddings())


@fused_too
def test_goes_on_bit_for_bit_from_the_embeddings_of_another(fused):
    problem = make(n_contexts=60, n_items=40, dim=6)
    one = solver(problem, fused=fused)
    one.epoch()
    W, H = one.embeddings()
    one.epoch()
    problem.H = H
    two = solver(problem, W, fused=fused)
    two.epoch()
    for a, b in zip(one.embeddings(), two.embeddings()):
        np.testing.assert_array_equal(a, b)


def test_what_is_handed_in_is_not_changed():
    problem = make()
    before = problem.W.copy(), problem.H.copy()
    ours = solver(problem, problem.W)
    ours.epoch()
    held = ours.embeddings()
    ours.restore(problem.H)
    kept = [one.copy() for one in held]
    ours.epoch()
    for a, b in zip((problem.W, problem.H, *held), (*before, *kept)):
        np.testing.assert_array_equal(a, b)


@fused_too
def test_restored_items_are_as_if_it_had_begun_with_them(fused):
    problem = make(n_contexts=60, n_items=40, dim=6)
    one, two = solver(problem, fused=fused), solver(problem, fused=fused)
    one.epoch()
    one.restore(problem.H)
    for both in (one, two):
        both.finish()
    for a, b in zip(one.embeddings(), two.embeddings()):
        np.testing.assert_array_equal(a, b)


@fused_too
def test_memory_is_free_as_soon_as_the_solver_is_gone(fused):
    """Nothing waits for the garbage collector, which does not know how full a GPU is."""
    ours = solver(make(), fused=fused)
    ours.epoch()
    held = weakref.ref(ours._by_context)
    del ours
    assert held() is None


def test_the_choice_of_precision_outside_is_kept():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        solver(make()).epoch()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("fused", [False, True])
def test_what_does_not_fit_is_refused_before_anything_is_allocated(monkeypatch, fused):
    problem = make(n_contexts=1000, n_items=3000, dim=64)
    sides = tuple(zip((problem.by_context, problem.by_item), terms_of(problem)))
    free = torch_half_step.needed_bytes(sides, 20, fused)
    monkeypatch.setattr(torch_half_step, "_free_bytes", lambda device: free)
    monkeypatch.setattr(torch_half_step, "_put", lambda *_: pytest.fail("allocated"))
    with pytest.raises(DataError, match=r"at dim 64 need \d.*GB free; dim up to 20 would fit"):
        solver(problem, fused=fused)
    free = torch_half_step.needed_bytes(sides, 1, fused) // 2
    with pytest.raises(DataError, match=r"pairs would fit at dim 1"):
        solver(problem, fused=fused)


@pytest.mark.skipif(GPU, reason="there is a GPU")
def test_without_a_gpu():
    problem = make()
    with pytest.raises(SettingError, match="sees no GPU"):
        torch_half_step.DeviceSolver(problem.by_context, problem.by_item, *terms_of(problem), problem.H, device="cuda")


def test_without_torch(monkeypatch):
    monkeypatch.setattr(torch_half_step, "torch", None)
    with pytest.raises(SettingError, match=r'pip install "shortlist\[torch\]"'):
        solver(make())


def test_needs_numpy_and_torch_only():
    code = (
        "import sys\n"
        "from shortlist.solvers import torch_half_step, triton_kernels\n"
        "print({'numba', 'polars', 'scipy'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


def test_the_modules_load_without_torch_and_triton():
    code = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['triton'] = None\n"
        "from shortlist.solvers import torch_half_step, triton_kernels"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("unobserved_weight", [0.0, 0.1, 1.0])
def test_more_dimensions_than_the_rank_and_hardly_any_lambda(unobserved_weight):
    options = {"unobserved_weight": unobserved_weight, "regularization_exponent": 0.0}
    for regularization in (0.0, 1e-10, 1e-7):
        for convention, items in (("added", 9), ("total", 12)):
            problem = make(60, items, 17, regularization=regularization, convention=convention, **options)
            learning = solver(problem)
            losses = [sum(dense_loss(problem, W=0 * problem.W, H=0 * problem.H))]
            for step in [learning.epoch] * 8 + [learning.finish]:
                step()
                losses.append(sum(dense_loss(problem, *learning.embeddings())))
            for before, after in pairwise(losses):
                assert after <= before + 1e-4 * before + 1e-5 * losses[0], (regularization, convention)
