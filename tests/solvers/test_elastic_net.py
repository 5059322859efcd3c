"""Elastic nets by coordinate descent against a slow solver of the same problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist import SettingError, ShortlistWarning
from shortlist.data.sparse_rows import SparseRows
from shortlist.solvers.elastic_net import solve_columns


def rows_of(dense: np.ndarray) -> SparseRows:
    at, columns = np.nonzero(dense)
    indptr = np.searchsorted(at, np.arange(len(dense) + 1)).astype(np.int64)
    return SparseRows(indptr, columns.astype(np.int32), dense[at, columns].astype(np.float32), dense.shape[1])


def solved(X: np.ndarray, **settings: Any) -> np.ndarray:
    by_row = rows_of(X)
    by_column = by_row.transpose()
    settings = {"tolerance": 1e-6, "sweeps": 2000, "positive": True, **settings}
    found = solve_columns(by_column, by_column.values, by_row, by_row.values, **settings)  # type: ignore[arg-type]
    W = np.zeros((X.shape[1],) * 2)
    for i in range(len(W)):
        W[i, found.row(i)] = found.values[found.indptr[i] : found.indptr[i + 1]]  # type: ignore[index]
    return W


def breaks(X: np.ndarray, W: np.ndarray, l1: float, l2: float, positive: bool) -> float:
    """How far the worst coordinate is from the optimality conditions, which have one solution since λ₂ > 0."""
    assert (np.diag(W) == 0).all()
    G = X.T @ X
    g = G - W @ G - l2 * W  # row i: Xᵀ(x_i − Xw_i) − λ₂w_i
    off = np.where(W != 0, np.abs(g - np.sign(W) * l1), (g if positive else np.abs(g)) - l1)
    np.fill_diagonal(off, 0)
    return float(off.max())


def descent(X: np.ndarray, l1: float, l2: float, positive: bool) -> np.ndarray:
    """Plain cyclic coordinate descent on the residual, as in the textbooks."""
    n = X.shape[1]
    W = np.zeros((n, n))
    for i in range(n):
        w, left = W[i], X[:, i].astype(float)
        for _ in range(200):
            for j in range(n):
                if j == i:
                    continue
                z = X[:, j] @ left + (X[:, j] ** 2).sum() * w[j]
                new = (max(z - l1, 0) - (0 if positive else max(-z - l1, 0))) / ((X[:, j] ** 2).sum() + l2)
                left += X[:, j] * (w[j] - new)
                w[j] = new
    return W


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("binary", [True, False])
def test_the_solution_is_the_textbooks(positive, binary):
    rng = np.random.default_rng(0)
    X = (rng.random((40, 12)) < 0.3) * (1.0 if binary else rng.integers(1, 4, (40, 12)))
    for l1, l2 in ((0.5, 1.0), (0.0, 4.0), (3.0, 0.1)):
        expected = descent(X, l1, l2, positive)
        np.testing.assert_allclose(solved(X, l1=l1, l2=l2, positive=positive), expected, atol=2e-5)
        assert (expected != 0).any()
    assert positive or (solved(X, l1=0.5, l2=1.0, positive=False) < 0).any()


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 2), min_size=n, max_size=n), min_size=1, max_size=12)
    ),
    st.sampled_from([0.0, 0.2, 1.0, 5.0]),
    st.sampled_from([0.3, 3.0, 100.0]),
    st.booleans(),
)
def test_optimality(lists, l1, l2, positive):
    X = np.array(lists, dtype=float)
    W = solved(X, l1=l1, l2=l2, positive=positive)
    assert breaks(X, W, l1, l2, positive) <= 1e-4 * max(1.0, float((X.T @ X).max()))
    assert not positive or (W >= 0).all()


def test_a_gramian_that_is_not_kept_gives_the_same(monkeypatch):
    rng = np.random.default_rng(5)
    X = (rng.random((80, 30)) < 0.3) * rng.integers(1, 4, (80, 30))
    kept = {positive: solved(X, l1=0.5, l2=2.0, positive=positive) for positive in (True, False)}
    monkeypatch.setattr("shortlist.solvers.elastic_net.KEPT", 0)
    for positive, W in kept.items():
        np.testing.assert_allclose(solved(X, l1=0.5, l2=2.0, positive=positive), W, atol=1e-6)


def test_large_working_sets():
    """More members than join at once, and columns that do not fit the first buffer."""
    rng = np.random.default_rng(1)
    X = (rng.random((300, 900)) < 0.2).astype(float)
    W = solved(X, l1=0.0, l2=200.0)
    assert (W != 0).sum(1).max() * 900 > 2**16
    assert breaks(X, W, 0.0, 200.0, True) <= 1e-3


def test_more_l1_leaves_fewer_weights():
    rng = np.random.default_rng(2)
    X = (rng.random((100, 40)) < 0.3).astype(float)
    counts = [np.count_nonzero(solved(X, l1=l1, l2=5.0)) for l1 in (0.0, 1.0, 3.0, 1e6)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[2] > counts[3] == 0


def test_tolerance_is_kept():
    rng = np.random.default_rng(3)
    X = (rng.random((200, 60)) < 0.2).astype(float)
    loose = solved(X, l1=0.5, l2=3.0, tolerance=1e-2)
    largest = (X.T @ X - np.diag(np.diag(X.T @ X))).max()
    assert breaks(X, loose, 0.5, 3.0, True) <= 2e-2 * largest


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 2.0]), st.sampled_from([1e-3, 0.1, 10.0]), st.booleans())
def test_the_tolerance_holds_for_everyone_or_there_is_a_warning(seed, l1, l2, positive):
    rng = np.random.default_rng(seed)
    X = (rng.random((30, 25)) < 0.3) * rng.integers(1, 5, (30, 25))
    W = solved(X, l1=l1, l2=l2, positive=positive, tolerance=1e-3, sweeps=100_000)
    G = X.T @ X
    np.fill_diagonal(G, 0)
    for i in range(25):
        g = (X.T @ X)[:, i] - X.T @ X @ W[i] - l2 * W[i]
        off = np.where(W[i] != 0, np.abs(g - np.sign(W[i]) * l1), (g if positive else np.abs(g)) - l1)
        off[i] = 0
        assert off.max() <= 1.1e-3 * G[:, i].max() + 1e-4


def test_too_few_sweeps_are_said():
    rng = np.random.default_rng(6)
    X = (rng.random((60, 30)) < 0.4).astype(float)
    with pytest.warns(ShortlistWarning, match=r"of 30 elastic nets did not converge .* within 1 sweeps"):
        solved(X, l1=0.1, l2=0.1, sweeps=1)


def test_weights_that_float32_cannot_square():
    X = np.full((3, 3), 1e20)
    with pytest.raises(SettingError, match="weights of an item are too large"):
        solved(X, l1=0.1, l2=0.1)


def test_threads_do_not_matter_and_progress_is_told():
    rng = np.random.default_rng(4)
    X = (rng.random((300, 90)) < 0.1).astype(float)
    told: list[tuple[int, int]] = []
    one = solved(X, l1=0.3, l2=2.0, threads=1)
    four = solved(X, l1=0.3, l2=2.0, threads=4, step=lambda *parts: told.append(parts))
    np.testing.assert_array_equal(one, four)
    assert told[-1] == (90, 90)
