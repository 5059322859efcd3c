"""RankALS row by row, against the formulas in a few lines of NumPy and against the triple sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.objectives.pairwise_square import PairwiseSquare
from shortlist.scoring.sides import EmbeddingTable
from shortlist.solvers.pairwise_rows import solve_contexts, solve_items
from shortlist.solvers.square_losses import square_loss
from solvers.test_multilinear_als import random_rows


def problem(seed, d):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 12)), int(rng.integers(2, 10))
    rows = random_rows(rng, n, m, 0.4, weighted=bool(seed % 2))
    objective = PairwiseSquare(item_exponent=0.6, weighting="log", regularization=0.1)
    W, H = (rng.standard_normal((k, d)).astype(np.float32) for k in (n, m))
    loss = square_loss(objective, rows, rows.transpose(), 1)
    sides = EmbeddingTable(W), EmbeddingTable(H)
    for side, sizes in zip(sides, loss.sizes):
        side.regularize(sizes, 0.1, 1.0)
    a = np.zeros((n, m))
    for c in range(n):
        a[c, rows.row(c)] = np.broadcast_to(objective.strengths(rows), len(rows))[rows.indptr[c] : rows.indptr[c + 1]]
    return loss, W, H, [side.ridges[0] for side in sides], a, objective.shares(rows).astype(np.float64)


def total(W, H, a, share, ridges):
    y = W.astype(np.float64) @ H.astype(np.float64).T
    off = (y[:, :, None] - y[:, None, :] - 1) ** 2
    penalties = sum((ridge * np.square(one, dtype=np.float64)).sum() for one, ridge in zip((W, H), ridges))
    return float(np.einsum("ci,j,cij->", a, share, off) + penalties)


@given(seed=st.integers(0, 10_000), d=st.sampled_from([1, 3, 17]))
@settings(max_examples=40, deadline=None)
def test_contexts_are_at_their_minimum(seed, d):
    loss, W, H, ridges, a, share = problem(seed, d)
    solve_contexts(loss.of_contexts(H), ridges[0], W)
    exact, z = H.astype(np.float64), share @ H
    G = (exact.T * share) @ exact
    for c in range(len(W)):
        s, n = a[c] @ exact, a[c].sum()
        A = (exact.T * a[c]) @ exact + n * G - np.outer(s, z) - np.outer(z, s) + ridges[0][c] * np.eye(d)
        if n:
            np.testing.assert_allclose(W[c], np.linalg.solve(A, s - n * z), rtol=2e-3, atol=2e-3)
    before = total(W, H, a, share, ridges)
    for _ in range(3):
        other = W + 0.1 * np.random.default_rng(seed).standard_normal(W.shape).astype(np.float32)
        assert total(other, H, a, share, ridges) >= before - 1e-4 * max(1, before)


@given(seed=st.integers(0, 10_000), d=st.sampled_from([1, 3, 17]))
@settings(max_examples=40, deadline=None)
def test_items_follow_each_other(seed, d):
    """Each item's system as in the plain derivation, z and v brought up to date after each."""
    loss, W, H, ridges, a, share = problem(seed, d)
    expected, w = H.astype(np.float64), W.astype(np.float64)
    z, n = share @ expected, a.sum(axis=1)
    v = sum(((w.T * a[:, k]) @ w) @ expected[k] for k in range(len(H)))
    G, q = (w.T * n) @ w, n @ w
    losses = [total(W, H, a, share, ridges)]
    for k in range(len(H)):
        B, p = (w.T * a[:, k]) @ w, a[:, k] @ w
        A = share[k] * G + (1 - 2 * share[k]) * B + ridges[1][k] * np.eye(d)
        best = np.linalg.solve(A, B @ (z - 2 * share[k] * expected[k]) + p + share[k] * (v - q))
        change, expected[k] = best - expected[k], best
        z, v = z + share[k] * change, v + B @ change
        losses.append(total(W, expected, a, share, ridges))
    assert (np.diff(losses) <= 1e-6 * losses[0]).all()
    solve_items(loss.of_items(W, H), ridges[1], H)
    np.testing.assert_allclose(H, expected, rtol=5e-3, atol=5e-3)
    assert total(W, H, a, share, ridges) == pytest.approx(losses[-1], rel=1e-3)
