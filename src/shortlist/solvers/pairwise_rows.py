"""Exact half steps of RankALS: contexts in parallel, items one after the other (Takács and Tikk 2012; section 5.2)."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.solvers.cholesky import GATHERED, solve_tiles, workspace
from shortlist.solvers.multilinear_als import MultilinearAlternation
from shortlist.solvers.quadratic import CoupledItems, IndependentRows, Quadratic
from shortlist.solvers.tiles import WIDTH, add_product

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]


class PairwiseAlternation(MultilinearAlternation):
    """The trainer for `PairwiseSquare` with matrix factorization: every epoch solves for each row exactly.

    The items are coupled (`CoupledItems`): they are solved one after the other, with z and v updated after each.
    Solving all of them with the same z and v could raise the loss. Items use one thread; contexts use all threads.
    """

    def epoch(self) -> None:
        """Run one pass over both sides."""
        contexts, items = self._contexts.parameters[0], self._items.parameters[0]
        solve_contexts(self._loss.of_contexts(items), self._contexts.ridges[0], contexts)
        solve_items(self._loss.of_items(contexts, items), self._items.ridges[0], items)


def solve_contexts(quadratic: Quadratic, ridge: Floats, embeddings: Floats) -> None:
    """Set every context to its minimum: (Σaψψᵀ + nG + λ)w = Σaψ by Cholesky; Ψ is centred, see `square_losses`.

    Bound by n·d² operations for the products and d³/3 for the factor of each row. A row does not change if its matrix
    is not positive definite in float32.
    """
    q = quadratic
    assert isinstance(q, IndependentRows)
    d = embeddings.shape[1]

    def solve(start: int, stop: int) -> None:
        _solve_contexts(
            q.rows.indptr, q.rows.indices, q.quad, q.dense, q.other, q.G, ridge[:, 0], embeddings, start, stop,
            *workspace(d, 4),
        )  # fmt: skip

    run_chunks(solve, balanced_chunks(q.rows.lengths + d / 3.0, 16 * thread_count(q.threads)), q.threads)


def solve_items(quadratic: Quadratic, ridge: Floats, embeddings: Floats) -> None:
    """Set the items to their minima, one after the other: (aG + (1 − 2a)B_k + λ)h = B_k(z − 2ah) + p + a(v − q)."""
    q = quadratic
    assert isinstance(q, CoupledItems)
    d = embeddings.shape[1]
    _solve_items(
        q.rows.indptr, q.rows.indices, q.strength, q.share, q.other, q.G, q.q, q.z, q.v, ridge[:, 0], embeddings,
        *workspace(d, 6),
    )  # fmt: skip


@fast_kernel
def _add_products(
    indices: Array, quad: Array, other: Array, begin: int, end: int, size: int, matrices: Array, b: Array
) -> None:
    """Add Σ quad·ψψᵀ to the upper tiles of U, and Σ quad·ψ to b."""
    d = other.shape[1]
    P, Q, U = matrices[0], matrices[1], matrices[2]
    step = GATHERED // P.shape[1] + 1
    for first in range(begin, end, step):
        count = min(step, end - first)
        for k in range(count):
            e = first + k
            i, a = indices[e], quad[e if len(quad) > 1 else 0]
            for f in range(d):
                P[k, f] = other[i, f]
                Q[k, f] = a * other[i, f]
                b[f] += a * other[i, f]
            for f in range(d, size):
                P[k, f] = Q[k, f] = 0
        for i in range(0, size, WIDTH):
            for j in range(i, size, WIDTH):
                add_product(U, i, j, P, Q, count)


@fast_kernel
def _solve_contexts(
    indptr: Array,
    indices: Array,
    quad: Array,
    dense: Array,
    other: Array,
    G: Array,
    ridge: Array,
    out: Array,
    start: int,
    stop: int,
    matrices: Array,
    vectors: Array,
) -> None:
    d = other.shape[1]
    size = (d + WIDTH - 1) // WIDTH * WIDTH
    U, b = matrices[2], vectors[0]
    for r in range(start, stop):
        n = dense[r]
        for k in range(size):
            b[k] = 0
            for j in range(size):
                U[k, j] = 0
            U[k, k] = 1
        for k in range(d):
            for j in range(d):
                U[k, j] = n * G[k, j]
            U[k, k] += ridge[r]
        _add_products(indices, quad, other, indptr[r], indptr[r + 1], size, matrices, b)
        if solve_tiles(U, size, b, vectors[1], vectors[2]):
            good = True
            for f in range(d):
                good = good and np.isfinite(b[f])
            for f in range(d):
                out[r, f] = b[f] if good else out[r, f]


@fast_kernel
def _solve_items(
    indptr: Array,
    indices: Array,
    quad: Array,
    share: Array,
    other: Array,
    G: Array,
    q: Array,
    z: Array,
    v: Array,
    ridge: Array,
    out: Array,
    matrices: Array,
    vectors: Array,
) -> None:
    d = other.shape[1]
    size = (d + WIDTH - 1) // WIDTH * WIDTH
    U, b, x, change = matrices[2], vectors[0], vectors[3], vectors[4]
    for r in range(len(indptr) - 1):
        a, h = share[r], out[r]
        for k in range(size):
            b[k] = x[k] = 0
            for j in range(size):
                U[k, j] = 0
        _add_products(indices, quad, other, indptr[r], indptr[r + 1], size, matrices, b)  # U = B_k, b = p
        for f in range(d):
            b[f] += a * (v[f] - q[f])
            x[f] = z[f] - 2 * a * h[f]
        for e in range(indptr[r], indptr[r + 1]):
            i, score = indices[e], np.float32(0)
            for f in range(d):
                score += x[f] * other[i, f]
            score *= quad[e if len(quad) > 1 else 0]
            for f in range(d):
                b[f] += score * other[i, f]
        for k in range(d):
            for j in range(k, d):
                U[k, j] = (1 - 2 * a) * U[k, j] + a * G[k, j]
            U[k, k] += ridge[r]
        for k in range(d, size):
            U[k, k] = 1
        if not solve_tiles(U, size, b, vectors[1], vectors[2]):
            continue
        good = True
        for f in range(d):
            good = good and np.isfinite(b[f])
        if not good:
            continue
        for f in range(d):
            change[f] = b[f] - h[f]
            h[f] = b[f]
            z[f] += a * change[f]
        for e in range(indptr[r], indptr[r + 1]):
            i, score = indices[e], np.float32(0)
            for f in range(d):
                score += change[f] * other[i, f]
            score *= quad[e if len(quad) > 1 else 0]
            for f in range(d):
                v[f] += score * other[i, f]
