"""One row of an alternating least squares half-step, solved exactly: one function for contexts and for items."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.rows import Rows
from shortlist.objectives.pointwise import Terms, gramian

Array: TypeAlias = npt.NDArray[Any]
_GATHER = 512  # rows of the other side multiplied at once


def solve_rows(
    rows: Rows,
    terms: Terms,
    other: npt.NDArray[np.float32],
    unobserved_weight: float,
    out: npt.NDArray[np.float32],
    threads: int | None = None,
    *,
    G: npt.NDArray[np.float64] | None = None,
) -> None:
    """Set every row of `out` to the minimiser of the objective, the other side being fixed.

    Row by row (α₀G + Σ excess·ψψᵀ + λI) w = Σ target·ψ with G = Σψψᵀ over all of `other`, by Cholesky. Rows without
    observed pairs become zero. Rows are dealt to threads in chunks of equal work, and each is computed by itself, so
    the result does not depend on the number of threads. `G` may be given where it is known already.
    """
    d = other.shape[1]
    base = (unobserved_weight * (gramian(other) if G is None else G)).astype(np.float32)
    work = rows.lengths * d + d * d / 3 + 1.0

    def solve(start: int, stop: int) -> None:
        failed = _solve_rows(
            rows.indptr, rows.indices, terms.excess, terms.target, terms.ridge, other, base, out, start, stop
        )
        for r in failed:  # singular to float32: λ = 0, or extreme weights
            out[r] = _least_squares(rows, terms, other, base, int(r))

    run_chunks(solve, balanced_chunks(work, 16 * thread_count(threads)), threads)


def row_system(
    rows: Rows, terms: Terms, other: Array, base: Array, r: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The matrix and right-hand side of row `r` in float64: the plain form of what the kernel solves."""
    span = slice(rows.indptr[r], rows.indptr[r + 1])
    Psi = other[rows.indices[span]].astype(np.float64)
    excess = terms.excess[span] if len(terms.excess) > 1 else terms.excess
    target = terms.target[span] if len(terms.target) > 1 else terms.target
    A = base + (Psi.T * excess) @ Psi + terms.ridge[r] * np.eye(other.shape[1])
    b = (Psi.T * target).sum(axis=1)
    return A, b


def solve_rows_reference(
    rows: Rows, terms: Terms, other: npt.NDArray[np.float32], unobserved_weight: float
) -> npt.NDArray[np.float64]:
    """`solve_rows` in a few lines of NumPy."""
    base = unobserved_weight * other.astype(np.float64).T @ other.astype(np.float64)
    return np.array([_least_squares(rows, terms, other, base, r) for r in range(rows.n_rows)])


def _least_squares(rows: Rows, terms: Terms, other: Array, base: Array, r: int) -> npt.NDArray[np.float64]:
    """The solution, or the smallest of them where the system is singular."""
    A, b = row_system(rows, terms, other, base, r)
    return np.asarray(np.linalg.lstsq(A, b, rcond=1e-7)[0], np.float64)


@kernel
def _solve_rows(
    indptr: Array,
    indices: Array,
    excess: Array,
    target: Array,
    ridge: Array,
    other: Array,
    base: Array,
    out: Array,
    start: int,
    stop: int,
) -> list[int]:
    """Gather, multiply, factor, substitute; returns the rows whose matrix is not positive definite.

    Bound by flops: 2·n·d² for the product (a full GEMM, twice what SYRK would do) and d³/3 for the factor.
    """
    d = other.shape[1]
    P = np.empty((_GATHER, d), np.float32)
    Q = np.empty((_GATHER, d), np.float32)
    A = np.empty((d, d), np.float32)
    product = np.empty((d, d), np.float32)
    b = np.empty(d, np.float32)
    failed = [0 for _ in range(0)]
    for r in range(start, stop):
        begin, end = indptr[r], indptr[r + 1]
        if begin == end:
            out[r, :] = 0
            continue
        A[:, :] = base
        b[:] = 0
        for block in range(begin, end, _GATHER):
            size = min(_GATHER, end - block)
            for k in range(size):
                e = block + k
                row = other[indices[e]]
                a = excess[e] if len(excess) > 1 else excess[0]
                y = target[e] if len(target) > 1 else target[0]
                for f in range(d):
                    P[k, f] = row[f]
                    Q[k, f] = a * row[f]
                    b[f] += y * row[f]
            np.dot(P[:size].T, Q[:size], product)
            A += product
        good = True
        for f in range(d):
            A[f, f] += ridge[r]
            good = good and np.isfinite(A[f, f]) and A[f, f] > 0
        if good:
            try:
                L = np.linalg.cholesky(A)
            except Exception:
                good = False
        if not good:
            failed.append(r)
            continue
        for f in range(d):
            total = b[f]
            for g in range(f):
                total -= L[f, g] * b[g]
            b[f] = total / L[f, f]
        for f in range(d - 1, -1, -1):
            b[f] /= L[f, f]
            for g in range(f):
                b[g] -= L[f, g] * b[f]
        for f in range(d):
            good = good and np.isfinite(b[f])
            out[r, f] = b[f]
        if not good:
            failed.append(r)
    return failed
