"""Rows that are blocks by themselves, each solved for in one go: the fast path of `least_squares_step`."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.solvers.cholesky import AHEAD
from shortlist.solvers.eigenbasis import eigenbasis
from shortlist.solvers.quadratic import FLAT, IndependentRows, send_for

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
_NOTHING = np.zeros((0, 0), np.float32)
_NEGLIGIBLE = np.float32(
    1e-9
)  # coordinates whose diagonal is below this share of the row's largest stay where they are


def solve_rows(
    quadratic: IndependentRows, own: Floats, ridge: Floats, prior: Floats | float, steps: int, enough: float
) -> None:
    """Improve rows by conjugate gradients, each from where it is, until its squared residual is `enough` of the first.

    In the eigenbasis of G, where its part of a row's matrix is a diagonal; so a step of a row with n pairs costs 4nd
    operations on vectors that stay in the cache. The generic step goes over all rows in memory a dozen times instead.
    """
    q = quadratic
    spectrum, Q = eigenbasis(q.G.astype(np.float64))
    turn = Q.astype(np.float32)
    other, rows = q.other @ turn, own @ turn
    more = _NOTHING
    if np.any(prior):
        more = ridge * (np.broadcast_to(np.asarray(prior, np.float32), own.shape) @ turn)
    if q.shift is not None:
        pulled = -q.dense[:, None] * (q.shift @ turn)
        more = more + pulled if len(more) else pulled
    weights = q.quad, q.lin, q.dense, spectrum.astype(np.float32)
    improve(q.rows, *weights, other, ridge[:, 0], more, rows, steps, enough, q.threads)
    own[:] = rows @ turn.T


def improve(
    rows: SparseRows,
    quad: Floats,
    lin: Floats,
    dense: Floats,
    spectrum: Floats,
    other: Floats,
    ridge: Floats,
    more: Floats,
    own: Floats,
    steps: int,
    enough: float,
    threads: int | None = None,
) -> None:
    """Conjugate gradients in every row of `own`, all of them in a basis in which G is the diagonal `spectrum`.

    A row θ moves to the minimum of θᵀ(dense·G + Σ quad·ψψᵀ + ridge)θ − 2⟨Σ lin·ψ + more, θ⟩, where `more`, which is by
    row, may be empty. Each row is computed by itself.
    """
    d = own.shape[1]

    def solve(start: int, stop: int) -> None:
        _solve(
            rows.indptr, rows.indices, quad, lin, dense, spectrum, other, ridge, more, own,
            steps, enough, np.zeros((5, d), np.float32), start, stop,
        )  # fmt: skip

    run_chunks(solve, balanced_chunks(rows.lengths + 8.0, 32 * thread_count(threads)), threads)


@fast_kernel
def _solve(
    indptr: Array,
    indices: Array,
    quad: Array,
    lin: Array,
    dense: Array,
    spectrum: Array,
    other: Array,
    ridge: Array,
    more: Array,
    own: Array,
    steps: int,
    enough: float,
    room: Array,
    start: int,
    stop: int,
) -> None:
    """Bound by the gathered rows of the other side at a row's first pass; later ones find them in the cache."""
    d, last = other.shape[1], len(indices) - 1
    r, M, p, q, x = room[0], room[1], room[2], room[3], room[4]
    for c in range(start, stop):
        begin, end, theta = indptr[c], indptr[c + 1], own[c]
        n, penalty = dense[c if len(dense) > 1 else 0], ridge[c]
        for f in range(d):
            x[f] = 0
            M[f] = n * spectrum[f] + penalty
            r[f] = -(n * spectrum[f] + penalty) * theta[f]
            if len(more) > 0:
                r[f] += more[c, f]
        for e in range(begin, end):
            i, score = indices[e], np.float32(0)
            send_for(other, indices[min(e + AHEAD, last)])
            for f in range(d):
                score += theta[f] * other[i, f]
            a = quad[e if len(quad) > 1 else 0]
            w = lin[e if len(lin) > 1 else 0] - a * score
            for f in range(d):
                r[f] += w * other[i, f]
                M[f] += a * other[i, f] * other[i, f]
        size = largest = np.float32(0)
        for f in range(d):
            largest = max(largest, M[f])
        for f in range(d):
            M[f] = np.float32(1) / M[f] if M[f] > _NEGLIGIBLE * largest else np.float32(0)
            p[f] = M[f] * r[f]
            size += r[f] * p[f]
        first = size
        for _ in range(steps):
            if not size > enough * first:
                break
            for f in range(d):
                q[f] = (n * spectrum[f] + penalty) * p[f]
            for e in range(begin, end):
                i, score = indices[e], np.float32(0)
                send_for(other, indices[min(e + AHEAD, last)])
                for f in range(d):
                    score += p[f] * other[i, f]
                score *= quad[e if len(quad) > 1 else 0]
                for f in range(d):
                    q[f] += score * other[i, f]
            along = scale = np.float32(0)
            for f in range(d):
                along += p[f] * q[f]
                scale += p[f] * p[f] / M[f] if M[f] > 0 else np.float32(0)
            if not along > FLAT * scale:
                break
            alpha = size / along
            new = np.float32(0)
            for f in range(d):
                x[f] += alpha * p[f]
                r[f] -= alpha * q[f]
                new += r[f] * M[f] * r[f]
            beta = new / size
            for f in range(d):
                p[f] = M[f] * r[f] + beta * p[f]
            size = new
        for f in range(d):
            theta[f] += x[f]
