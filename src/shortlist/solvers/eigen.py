"""Half steps of alternating least squares by preconditioned conjugate gradients in the eigenbasis of the Gramian.

They solve the row systems of Algorithm 4 of the article approximately. In the basis where the other side's Gramian is
a diagonal Λ, the system of a row is

    (M + Σ excess·ψψᵀ) w = Σ target·ψ,   M = dense·Λ + ridge.

No d × d matrix is formed. For a row of n pairs, a step of conjugate gradients costs two passes of n·d multiply-adds.
The preconditioner is the diagonal of the whole system; the start is the row's last embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pointwise_square import Terms
from shortlist.solvers.cg_limits import END, FROZEN, NEAR, ON_THE_WAY, TO_THE_END, CGLimits
from shortlist.solvers.eigenbasis import diagonalise
from shortlist.solvers.exact import solve_exact
from shortlist.solvers.normal_equations import part

Array: TypeAlias = npt.NDArray[Any]
_LARGEST = np.finfo(np.float32).max
_DIGITS = np.float32(1e4)  # if the squared change is larger than this times the squared solution, digits were lost

_IN_CACHE = 2**24  # largest other side, in bytes, that stays in the last-level cache
_TILE = 2**23  # bytes of a tile of a larger other side
_SEGMENT = 24  # average number of a row's pairs in a tile from which tiles are faster
_STIFF = np.float32(1e-2)  # if M is below this fraction of a row's diagonal, the residual does not show convergence
_STATE = 2**25  # bytes of vectors of the rows that a thread solves at once


@dataclass(frozen=True, eq=False)
class EigenBasis:
    """What solving any row needs of the other side, besides its embeddings."""

    spectrum: npt.NDArray[np.float64]  # the eigenvalues of the other side's Gramian
    tiles: npt.NDArray[np.int64]  # bounds of the parts of the other side that a pass goes through one after the other


@dataclass(frozen=True)
class EigenSolver:
    """A half-step that moves every row towards its minimiser, in the eigenbasis of the other side's Gramian.

    A row takes steps of conjugate gradients until its residual (in the preconditioner's norm) is at most `tolerance`
    times its first residual, but no more than `max_steps`. If the total move is short enough, it is multiplied by
    `relaxation`. The minimum along that line is at 1, so any factor below 2 lowers the loss. A factor above 1 gains
    less in this half step but more in the next ones. This is successive over-relaxation: alternating least squares is
    a Gauss–Seidel iteration on two blocks.

    Args:
        limits: the limits of conjugate gradients.
        exact: whether rows that may not have converged are solved exactly. With the limits `TO_THE_END`, the result is
            that of `exact.ExactSolver`, with a slightly larger rounding error.
    """

    limits: CGLimits = ON_THE_WAY
    exact: bool = False

    def prepare(
        self,
        rows: SparseRows,
        terms: Terms,
        other: npt.NDArray[np.float32],
        embeddings: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> EigenBasis:
        """Rotate both sides, in place, into the eigenbasis of the other's Gramian."""
        return EigenBasis(diagonalise(other, embeddings, terms, threads), tile_bounds(rows, other))

    def solve(
        self,
        rows: SparseRows,
        terms: Terms,
        other: npt.NDArray[np.float32],
        basis: EigenBasis,
        out: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> None:
        """Improve these rows; see `HalfStep`."""
        unconverged = solve_eigen(rows, terms, other, basis, out, threads, self.limits)
        if self.exact and len(unconverged):
            solved = np.zeros((len(unconverged), out.shape[1]), np.float32)
            solve_exact(*part(rows, terms, unconverged), other, basis.spectrum, solved, threads)
            out[unconverged] = solved


TO_CONVERGENCE = EigenSolver(TO_THE_END, exact=True)


def tile_bounds(rows: SparseRows, other: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return the bounds of the other side's tiles: a single tile unless it is large and the rows are long.

    If the other side fits in the cache, rows are solved one after the other, with their vectors in the first-level
    cache. Otherwise every pass over a row would fetch each of its vectors from memory; a thread then solves many rows
    at once, and each pass goes through the other side tile by tile.
    """
    tile = max(1, _TILE // (4 * other.shape[1]))
    if other.nbytes > _IN_CACHE and len(rows) > _SEGMENT * rows.n_rows * (rows.n_columns / tile):
        return np.arange(0, rows.n_columns + tile, tile, dtype=np.int64)
    return np.array([0, rows.n_columns], np.int64)


def solve_eigen(
    rows: SparseRows,
    terms: Terms,
    other: npt.NDArray[np.float32],
    basis: EigenBasis,
    embeddings: npt.NDArray[np.float32],
    threads: int | None = None,
    limits: CGLimits = TO_THE_END,
) -> npt.NDArray[np.int64]:
    """Improve every row of `embeddings` and return the rows that may not have converged.

    `other` must be in the eigenbasis of its Gramian. A row's result depends on no other row, so the result does not
    depend on the number of threads.
    """
    n_chunks = (32 if len(basis.tiles) == 2 else 2) * thread_count(threads)
    state = np.zeros(len(embeddings), np.uint8)
    Lambda = basis.spectrum.astype(np.float32)
    numbers = np.array([limits.relaxation, limits.tolerance**2, NEAR**2, END**2, FROZEN], np.float32)

    def solve(start: int, stop: int) -> None:
        _solve(
            rows.indptr, rows.indices, terms.excess, terms.target, terms.ridge, terms.dense,
            Lambda, other, embeddings, basis.tiles, numbers, limits.max_steps, state, start, stop,
        )  # fmt: skip

    run_chunks(solve, balanced_chunks(rows.lengths + 8.0, n_chunks), threads)
    return np.flatnonzero(state)


def pcg_reference(
    A: npt.NDArray[np.float64], b: npt.NDArray[np.float64], x: npt.NDArray[np.float64], limits: CGLimits
) -> npt.NDArray[np.float64]:
    """Solve one row's system by preconditioned conjugate gradients; the NumPy twin of the kernel."""
    inverse = 1 / np.diagonal(A)
    r = b - A @ x
    p = inverse * r
    start = rz = r @ p
    for _ in range(limits.max_steps):
        if rz <= limits.tolerance**2 * start or rz <= END**2 * (x * x / inverse).sum():
            break
        step = rz / (p @ A @ p)
        x, r = x + step * p, r - step * (A @ p)
        before, rz = rz, r @ (inverse * r)
        p = inverse * r + rz / before * p
    return x


@fast_kernel
def _solve(
    indptr: Array, indices: Array, excess: Array, target: Array, ridge: Array, dense: Array,
    Lambda: Array, other: Array, embeddings: Array, bounds: Array, limits: Array, max_steps: int,
    state: Array, start: int, stop: int,
) -> None:  # fmt: skip
    """Solve the rows start…stop: one at a time if there is one tile, otherwise many at once.

    Bound by the bytes of the gathered vectors, 4·n·d a pass. They come from the second-level cache if a row's vectors
    fit in it, otherwise from the last-level cache. The 4·n·d flops of a pass are hidden behind these loads.
    """
    d = other.shape[1]
    relaxation, tolerance, near, at_end = limits[0], limits[1], limits[2], limits[3]
    n_tiles = len(bounds) - 1
    group = 1 if n_tiles == 1 else max(1, min(stop - start, _STATE // (24 * d)))
    M, DG, R = np.empty((group, d), np.float32), np.empty((group, d), np.float32), np.empty((group, d), np.float32)
    P, AP, X = np.empty((group, d), np.float32), np.empty((group, d), np.float32), np.empty((group, d), np.float32)
    rz, rz0, curvature = np.zeros(group, np.float32), np.zeros(group, np.float32), np.zeros(group, np.float32)
    cuts = np.empty((n_tiles + 1, group), np.int64)
    for first in range(start, stop, group):
        size = min(group, stop - first)
        # --- first residual and diagonal
        for g in range(size):
            r = first + g
            _cut(indices, indptr[r], indptr[r + 1], bounds, cuts[:, g])
            a = dense[r] if len(dense) > 1 else dense[0]
            b = ridge[r] if len(ridge) > 1 else ridge[0]
            for f in range(d):
                M[g, f] = a * Lambda[f] + b
                X[g, f] = embeddings[r, f]
                DG[g, f] = M[g, f]
                R[g, f] = -M[g, f] * X[g, f]
        for t in range(n_tiles):
            for g in range(size):
                _residual(indices, excess, target, cuts[t, g], cuts[t + 1, g], other, X[g], R[g], DG[g])
        for g in range(size):
            rz[g] = rz0[g] = _precondition(limits[4], DG[g], R[g], P[g])
        # --- steps; the last one only needs its length
        for step in range(max_steps):
            busy = 0
            for g in range(size):
                if rz[g] > 0 and (rz[g] <= tolerance * rz0[g] or rz[g] <= at_end * _length(DG[g], X[g])):
                    rz[g] = 0  # done
                if rz[g] > 0:
                    busy += 1
                    curvature[g] = _length(M[g], P[g])
                    for f in range(d):
                        AP[g, f] = M[g, f] * P[g, f]
            if busy == 0:
                break
            for t in range(n_tiles):
                for g in range(size):
                    if rz[g] > 0 and step + 1 < max_steps:
                        _product(indices, excess, cuts[t, g], cuts[t + 1, g], other, P[g], AP[g])
                    elif rz[g] > 0:
                        curvature[g] += _curvature(indices, excess, cuts[t, g], cuts[t + 1, g], other, P[g])
            for g in range(size):
                if rz[g] > 0 and step + 1 < max_steps:
                    rz[g] = _step(DG[g], rz[g], X[g], R[g], P[g], AP[g])
                elif rz[g] > 0 and curvature[g] > 0 and curvature[g] <= _LARGEST:
                    for f in range(d):
                        X[g, f] += rz[g] / curvature[g] * P[g, f]
        # --- results
        for g in range(size):
            r = first + g
            if indptr[r] == indptr[r + 1]:
                embeddings[r, :] = 0
            else:
                safe = _relax(relaxation, near, X[g], embeddings[r])
                state[r] = rz[g] != 0 or not safe or _is_stiff(M[g], DG[g])


@fast_kernel
def _cut(indices: Array, begin: int, end: int, bounds: Array, cuts: Array) -> None:
    """Set `cuts` to the positions where a row's pairs pass from one tile to the next."""
    e = begin
    cuts[0] = begin
    for t in range(1, len(bounds) - 1):
        while e < end and indices[e] < bounds[t]:
            e += 1
        cuts[t] = e
    cuts[len(bounds) - 1] = end


@fast_kernel
def _dots(other: Array, i0: Any, i1: Any, i2: Any, i3: Any, v: Array) -> Any:
    """Return ⟨ψ, v⟩ for four ψ, so that v is read once for all of them."""
    s0 = s1 = s2 = s3 = np.float32(0)
    for f in range(len(v)):
        a = v[f]
        s0 += other[i0, f] * a
        s1 += other[i1, f] * a
        s2 += other[i2, f] * a
        s3 += other[i3, f] * a
    return s0, s1, s2, s3


@fast_kernel
def _residual(
    indices: Array, excess: Array, target: Array, begin: int, end: int, other: Array, x: Array, r: Array, squares: Array
) -> None:
    """Add Σ (target − excess·⟨ψ, x⟩)·ψ to r and Σ excess·ψ² to `squares`, four pairs at a time."""
    unit, zero = np.float32(1), np.float32(0)
    for e in range(begin, end, 4):
        e1, e2, e3 = min(e + 1, end - 1), min(e + 2, end - 1), min(e + 3, end - 1)
        i0, i1, i2, i3 = np.uint64(indices[e]), np.uint64(indices[e1]), np.uint64(indices[e2]), np.uint64(indices[e3])
        s0, s1, s2, s3 = _dots(other, i0, i1, i2, i3, x)
        m1, m2, m3 = unit if e + 1 < end else zero, unit if e + 2 < end else zero, unit if e + 3 < end else zero
        if len(excess) > 1:
            a0, a1, a2, a3 = excess[e], excess[e1] * m1, excess[e2] * m2, excess[e3] * m3
        else:
            a0, a1, a2, a3 = excess[0], excess[0] * m1, excess[0] * m2, excess[0] * m3
        if len(target) > 1:
            c0, c1, c2, c3 = target[e], target[e1] * m1, target[e2] * m2, target[e3] * m3
        else:
            c0, c1, c2, c3 = target[0], target[0] * m1, target[0] * m2, target[0] * m3
        c0 -= a0 * s0
        c1 -= a1 * s1
        c2 -= a2 * s2
        c3 -= a3 * s3
        for f in range(len(x)):
            p0, p1, p2, p3 = other[i0, f], other[i1, f], other[i2, f], other[i3, f]
            r[f] += c0 * p0 + c1 * p1 + c2 * p2 + c3 * p3
            squares[f] += a0 * p0 * p0 + a1 * p1 * p1 + a2 * p2 * p2 + a3 * p3 * p3


@fast_kernel
def _product(indices: Array, excess: Array, begin: int, end: int, other: Array, p: Array, out: Array) -> None:
    """Add Σ excess·⟨ψ, p⟩·ψ to `out`, four pairs at a time."""
    zero = np.float32(0)
    for e in range(begin, end, 4):
        e1, e2, e3 = min(e + 1, end - 1), min(e + 2, end - 1), min(e + 3, end - 1)
        i0, i1, i2, i3 = np.uint64(indices[e]), np.uint64(indices[e1]), np.uint64(indices[e2]), np.uint64(indices[e3])
        s0, s1, s2, s3 = _dots(other, i0, i1, i2, i3, p)
        if len(excess) > 1:
            s0, s1, s2, s3 = s0 * excess[e], s1 * excess[e1], s2 * excess[e2], s3 * excess[e3]
        else:
            s0, s1, s2, s3 = s0 * excess[0], s1 * excess[0], s2 * excess[0], s3 * excess[0]
        s1 = s1 if e + 1 < end else zero
        s2 = s2 if e + 2 < end else zero
        s3 = s3 if e + 3 < end else zero
        for f in range(len(p)):
            out[f] += s0 * other[i0, f] + s1 * other[i1, f] + s2 * other[i2, f] + s3 * other[i3, f]


@fast_kernel
def _curvature(indices: Array, excess: Array, begin: int, end: int, other: Array, p: Array) -> Any:
    """Return Σ excess·⟨ψ, p⟩², four pairs at a time."""
    total = zero = np.float32(0)
    for e in range(begin, end, 4):
        e1, e2, e3 = min(e + 1, end - 1), min(e + 2, end - 1), min(e + 3, end - 1)
        i0, i1, i2, i3 = np.uint64(indices[e]), np.uint64(indices[e1]), np.uint64(indices[e2]), np.uint64(indices[e3])
        s0, s1, s2, s3 = _dots(other, i0, i1, i2, i3, p)
        s1 = s1 if e + 1 < end else zero
        s2 = s2 if e + 2 < end else zero
        s3 = s3 if e + 3 < end else zero
        if len(excess) > 1:
            total += s0 * s0 * excess[e] + s1 * s1 * excess[e1] + s2 * s2 * excess[e2] + s3 * s3 * excess[e3]
        else:
            total += excess[0] * (s0 * s0 + s1 * s1 + s2 * s2 + s3 * s3)
    return total


@fast_kernel
def _precondition(frozen: Any, diagonal: Array, r: Array, p: Array) -> Any:
    """Set p = r / diagonal and return ⟨r, p⟩, or −1 if not finite; coordinates with a tiny diagonal are frozen."""
    largest, rz = np.float32(0), np.float32(0)
    for f in range(len(r)):
        largest = max(largest, diagonal[f])
    for f in range(len(r)):
        if not diagonal[f] > frozen * largest:
            diagonal[f] = 0
        p[f] = r[f] / diagonal[f] if diagonal[f] > 0 else np.float32(0)
        rz += r[f] * p[f]
    return rz if rz <= _LARGEST else np.float32(-1)


@fast_kernel
def _length(diagonal: Array, x: Array) -> Any:
    """Return Σ diagonal·x²."""
    total = np.float32(0)
    for f in range(len(x)):
        total += diagonal[f] * x[f] * x[f]
    return total


@fast_kernel
def _step(diagonal: Array, rz: float, x: Array, r: Array, p: Array, product: Array) -> Any:
    """Take a step of conjugate gradients along p; return the new ⟨r, r/diagonal⟩, or −1 if no step is possible."""
    curvature = np.float32(0)
    for f in range(len(x)):
        curvature += p[f] * product[f]
    if not (curvature > 0 and curvature <= _LARGEST):
        return np.float32(-1)
    step = np.float32(rz / curvature)
    after = np.float32(0)
    for f in range(len(x)):
        x[f] += step * p[f]
        r[f] -= step * product[f]
        product[f] = r[f] / diagonal[f] if diagonal[f] > 0 else np.float32(0)
        after += r[f] * product[f]
    if not (after > 0 and after <= _LARGEST):
        return np.float32(0) if after == 0 else np.float32(-1)
    beta = np.float32(after / rz)
    for f in range(len(x)):
        p[f] = product[f] + beta * p[f]
    return after


@fast_kernel
def _is_stiff(M: Array, diagonal: Array) -> bool:
    """Return whether M is tiny in some direction, compared with the largest diagonal entry."""
    least, largest = M[0], diagonal[0]
    for f in range(len(M)):
        least, largest = min(least, M[f]), max(largest, diagonal[f])
    return not least > _STIFF * largest


@fast_kernel
def _relax(relaxation: Any, near: Any, x: Array, embeddings: Array) -> bool:
    """Move a row to x, or beyond x if x is close; do not move if x is not finite. Return False if digits were lost."""
    change, length = np.float32(0), np.float32(0)
    for f in range(len(x)):
        change += (x[f] - embeddings[f]) * (x[f] - embeddings[f])
        length += x[f] * x[f]
    if not (length <= _LARGEST and change <= _LARGEST):
        return False
    factor = relaxation if change <= near * length else np.float32(1)
    for f in range(len(x)):
        embeddings[f] += factor * (x[f] - embeddings[f])
    return bool(change <= _DIGITS * length)
