"""Exact half steps of alternating smallest squares by Cholesky (Algorithm 4 of the article; Hu et al. 2008).

The same function solves for contexts and for items.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist._prefetch import prefetch
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pointwise_square import Terms
from shortlist.solvers.cholesky import AHEAD, GATHERED, LINE, SPAN, solve_tiles, workspace
from shortlist.solvers.eigenbasis import diagonalise
from shortlist.solvers.normal_equations import least_squares
from shortlist.solvers.tiles import WIDTH, add_product, transpose

Array: TypeAlias = npt.NDArray[Any]


class ExactSolver:
    """A half-step that sets every row to its minimiser, in the eigenbasis of the other side's Gramian.

    Its basis is the eigenvalues.
    """

    def prepare(
        self,
        rows: SparseRows,
        terms: Terms,
        other: npt.NDArray[np.float32],
        embeddings: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> npt.NDArray[np.float64]:
        """Rotate both sides, in place, into the eigenbasis of the other's Gramian; return its eigenvalues."""
        return diagonalise(other, embeddings, terms, threads)

    def solve(
        self,
        rows: SparseRows,
        terms: Terms,
        other: npt.NDArray[np.float32],
        basis: npt.NDArray[np.float64],
        out: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> None:
        """Set these rows to their minimisers; see `HalfStep`."""
        solve_exact(rows, terms, other, basis, out, threads)


def solve_exact(
    rows: SparseRows,
    terms: Terms,
    other: npt.NDArray[np.float32],
    spectrum: npt.NDArray[np.float64],
    out: npt.NDArray[np.float32],
    threads: int | None = None,
) -> None:
    """Set every row of `out` to the minimiser of the objective; `other` must be in the eigenbasis of its Gramian.

    For each row, (M + ΨᵀDΨ) w = Ψᵀb is solved by Cholesky. Here M = dense·Λ + λ is diagonal, Λ = diag(spectrum),
    b = target, D = diag(excess), and Ψ are the n embeddings of the row's pairs. If n < d, Woodbury's identity needs
    only an n × n matrix: w = M^-½Φᵀ(I + ΦΦᵀ)⁻¹D^-½b with Φ = D^½ΨM^-½. Rows without observed pairs become zero. A row's
    result depends on no other row, so the result does not depend on the number of threads.
    """
    d = other.shape[1]
    shorter = np.minimum(rows.lengths, d).astype(np.float64)
    work = rows.lengths * d * (shorter + WIDTH) + shorter**3 / 3 + 1.0
    contiguous, diagonal = np.ascontiguousarray(other), spectrum.astype(np.float32)
    failed = np.zeros(len(out), np.bool_)

    def solve(start: int, stop: int) -> None:
        _solve_rows(
            rows.indptr, rows.indices, terms.excess, terms.target, terms.ridge, terms.dense,
            contiguous, diagonal, out, failed, start, stop, *workspace(d, 5),
        )  # fmt: skip
        for r in start + np.flatnonzero(failed[start:stop]):  # singular in float32: λ = 0 or extreme weights
            out[r] = least_squares(rows, terms, other, np.diag(spectrum), int(r))

    run_chunks(solve, balanced_chunks(work, 16 * thread_count(threads)), threads)


@fast_kernel
def _solve_rows(
    indptr: Array,
    indices: Array,
    excess: Array,
    target: Array,
    ridge: Array,
    dense: Array,
    other: Array,
    spectrum: Array,
    out: Array,
    failed: Array,
    start: int,
    stop: int,
    matrices: Array,
    vectors: Array,
) -> None:
    """Solve rows one by one; mark a row as failed if its matrix is not positive definite in float32.

    With s = min(n, d), bound by nds operations for the product and s³/3 for the factor. Products of tiles reach
    116 GFLOP/s on a Zen 4 core. The kernel reached 0.5 of that at d = 128, 0.5 to 0.7 at d = 256 with rows of 72 and
    496 pairs on average, and 0.3 with rows of 27 pairs. Whole tiles take (1 + WIDTH/s) times the operations. With 496
    random rows out of 138,000, a fifth of the time is spent waiting for them.
    """
    d = other.shape[1]
    P, Q, U = matrices[0], matrices[1], matrices[2]
    M, b, scale = vectors[0], vectors[1], vectors[2]
    size, step = _whole_tiles(d), GATHERED // P.shape[1] + 1
    for k in range(P.shape[0]):
        for f in range(d, size):
            P[k, f] = Q[k, f] = 0
    low = high = spectrum[0]
    for f in range(d):
        low, high = min(low, spectrum[f]), max(high, spectrum[f])
    last = indptr[stop] - 1
    for r in range(start, stop):
        begin, end = indptr[r], indptr[r + 1]
        n, w = end - begin, out[r]
        for f in range(d):
            w[f] = 0
        if n == 0:
            continue
        smallest = largest = excess[begin] if len(excess) > 1 else excess[0]
        if len(excess) > 1:
            for e in range(begin, end):
                smallest, largest = min(smallest, excess[e]), max(largest, excess[e])
        a0 = dense[r] if len(dense) > 1 else dense[0]
        penalty = ridge[r] if len(ridge) > 1 else ridge[0]
        for f in range(d):
            M[f] = a0 * spectrum[f] + penalty
        short = n < d and smallest > SPAN * largest and a0 * low + penalty > SPAN * (a0 * high + penalty)
        side = _whole_tiles(n) if short else size
        for k in range(side):
            b[k] = 0
            for j in range(side):
                U[k, j] = 0
            U[k, k] = M[k] if k < d and not short else np.float32(1.0)
        for first in range(begin, end, d if short else step):
            if short:
                for f in range(d):
                    scale[f] = np.float32(1.0) / np.sqrt(M[f])
                _gather_short(indices, excess, target, other, begin, end, last, scale, P, b)
                for k in range(0, side, WIDTH):
                    for f in range(0, size, WIDTH):
                        transpose(Q, f, k, P)
                A, B, count = Q, Q, size
            else:
                count = min(step, end - first)
                _gather_long(indices, excess, target, other, first, first + count, last, P, Q, b)
                A, B = P, Q
            for i in range(0, side, WIDTH):
                for j in range(i, side, WIDTH):
                    add_product(U, i, j, A, B, count)
        good = solve_tiles(U, side, b, vectors[3], vectors[4])
        if short:
            for k in range(n):
                for f in range(d):
                    w[f] += b[k] * P[k, f]
        for f in range(d):
            w[f] = w[f] * scale[f] if short else b[f]
            good = good and np.isfinite(w[f])
        failed[r] = not good


@fast_kernel
def _gather_short(
    indices: Array,
    excess: Array,
    target: Array,
    other: Array,
    begin: int,
    end: int,
    last: int,
    scale: Array,
    P: Array,
    b: Array,
) -> None:
    """Set P = D^½ΨM^-½ and b = D^-½b, with rows of zeros up to the end of the last tile; `scale` is M^-½."""
    d, n = other.shape[1], end - begin
    for k in range(n):
        e = begin + k
        _prefetch_row(other, indices[min(e + AHEAD, last)])
        i = indices[e]
        a = np.sqrt(excess[e] if len(excess) > 1 else excess[0])
        for f in range(d):
            P[k, f] = a * scale[f] * other[i, f]
        b[k] = (target[e] if len(target) > 1 else target[0]) / a
    for k in range(n, _whole_tiles(n)):
        for f in range(d):
            P[k, f] = 0


@fast_kernel
def _gather_long(
    indices: Array,
    excess: Array,
    target: Array,
    other: Array,
    begin: int,
    end: int,
    last: int,
    P: Array,
    Q: Array,
    b: Array,
) -> None:
    """Set P = Ψ and Q = DΨ, and add Ψᵀb to b."""
    for k in range(end - begin):
        e = begin + k
        _prefetch_row(other, indices[min(e + AHEAD, last)])
        i = indices[e]
        a = excess[e] if len(excess) > 1 else excess[0]
        y = target[e] if len(target) > 1 else target[0]
        for f in range(other.shape[1]):
            P[k, f] = other[i, f]
            Q[k, f] = a * other[i, f]
            b[f] += y * other[i, f]


@fast_kernel
def _whole_tiles(n: int) -> int:
    return (n + WIDTH - 1) // WIDTH * WIDTH


@fast_kernel
def _prefetch_row(other: Array, i: int) -> None:
    for f in range(0, other.shape[1], LINE):
        prefetch(other, i, f)
