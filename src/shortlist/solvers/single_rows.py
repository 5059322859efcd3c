"""Conjugate gradients row by row: a fast path of `least_squares_step` for independent rows."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.solvers.cholesky import AHEAD
from shortlist.solvers.eigenbasis import eigenbasis
from shortlist.solvers.quadratic import FLAT, IndependentRows, prefetch_row

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
_NOTHING = np.zeros((0, 0), np.float32)
# Coordinates do not move if their diagonal entry is below this fraction of the row's largest.
_NEGLIGIBLE = np.float32(1e-9)


def solve_rows(
    quadratic: IndependentRows, embeddings: Floats, ridge: Floats, prior: Floats | float, steps: int, enough: float
) -> None:
    """Improve each row by conjugate gradients until its squared residual is at most `enough` times the first.

    In the eigenbasis of G the dense part of a row's matrix is diagonal. A step of a row with n pairs then costs 4nd
    operations on vectors that stay in the cache. The generic step would read all rows from memory a dozen times.
    """
    q = quadratic
    spectrum, Q = eigenbasis(q.G.astype(np.float64))
    rotation = Q.astype(np.float32)
    other, rows = q.other @ rotation, embeddings @ rotation
    more = _NOTHING
    if np.any(prior):
        more = ridge * (np.broadcast_to(np.asarray(prior, np.float32), embeddings.shape) @ rotation)
    if q.shift is not None:
        pulled = -q.dense[:, None] * (q.shift @ rotation)
        more = more + pulled if len(more) else pulled
    weights = q.quad, q.lin, q.dense, spectrum.astype(np.float32)
    improve(q.rows, *weights, other, ridge[:, 0], more, rows, steps, enough, q.threads)
    embeddings[:] = rows @ rotation.T


def improve(
    rows: SparseRows,
    quad: Floats,
    lin: Floats,
    dense: Floats,
    spectrum: Floats,
    other: Floats,
    ridge: Floats,
    more: Floats,
    embeddings: Floats,
    steps: int,
    enough: float,
    threads: int | None = None,
) -> None:
    """Improve each row of `embeddings` by conjugate gradients in a basis in which G is the diagonal `spectrum`.

    A row θ moves to the minimum of θᵀ(dense·G + Σ quad·ψψᵀ + ridge)θ − 2⟨Σ lin·ψ + more, θ⟩. `more` has a row for each
    row, or is empty. The result of a row does not depend on the other rows.
    """
    d = embeddings.shape[1]

    def solve(start: int, stop: int) -> None:
        _solve(
            rows.indptr, rows.indices, quad, lin, dense, spectrum, other, ridge, more, embeddings,
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
    embeddings: Array,
    steps: int,
    enough: float,
    vectors: Array,
    start: int,
    stop: int,
) -> None:
    """Compute `improve`. Bound by the gathered rows of the other side in a row's first pass; then they are cached."""
    d, last = other.shape[1], len(indices) - 1
    r, M, p, q, x = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    for c in range(start, stop):
        begin, end, theta = indptr[c], indptr[c + 1], embeddings[c]
        n, penalty = dense[c if len(dense) > 1 else 0], ridge[c]
        for f in range(d):
            x[f] = 0
            M[f] = n * spectrum[f] + penalty
            r[f] = -(n * spectrum[f] + penalty) * theta[f]
            if len(more) > 0:
                r[f] += more[c, f]
        for e in range(begin, end):
            i, score = indices[e], np.float32(0)
            prefetch_row(other, indices[min(e + AHEAD, last)])
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
                prefetch_row(other, indices[min(e + AHEAD, last)])
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
