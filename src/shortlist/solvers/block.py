"""Half steps of alternating least squares by blocks of coordinates.

This is iALS++ (Rendle, Krichene, Zhang and Koren 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist._prefetch import prefetch
from shortlist._threads import balanced_chunks, run_chunks, single_threaded_blas, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pointwise_square import Terms, gramian
from shortlist.solvers.cholesky import AHEAD, LINE, SPAN, solve_tiles, workspace
from shortlist.solvers.eigenbasis import column_lengths, drop_noise, eigenbasis, is_clear, rotate
from shortlist.solvers.normal_equations import SINGULAR, in_float32, row_system
from shortlist.solvers.tiles import WIDTH, add_product, transpose

Array: TypeAlias = npt.NDArray[Any]
_ROUNDING = 32 * float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class BlockSolver:
    """A half-step that sweeps once over the blocks of coordinates of every row, minimising over one block at a time.

    With A w = b the row's system (see `Terms`), a block B of `block` coordinates (the last may be shorter) moves by

        w_B ← w_B + A_BB⁻¹ (b − A w)_B

    A is never formed: the scores of the observed pairs are kept and updated after each move. `block = d` is the exact
    half step, `block = 1` is coordinate descent. Rows without pairs become zero, which is their minimum.

    Both sides are first rotated in place within each block, into the eigenvectors of G_BB. The blocks span the same
    spaces as before, so the sweep does not change. But the dense part of A_BB becomes diagonal, and a row of n < |B|
    pairs only needs an n × n matrix. A row's result depends on no other row, so the result does not depend on the
    number of threads.

    Its basis is the other side's Gramian after the rotation.
    """

    block: int = 64

    def prepare(
        self,
        rows: SparseRows,
        terms: Terms,
        other: npt.NDArray[np.float32],
        embeddings: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> npt.NDArray[np.float64]:
        """Rotate both sides, in place, within each block; return the other side's Gramian."""
        return _diagonalise_blocks(other, embeddings, terms, min(self.block, other.shape[1]), threads)

    def solve(
        self,
        rows: SparseRows,
        terms: Terms,
        other: npt.NDArray[np.float32],
        basis: npt.NDArray[np.float64],
        out: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> None:
        """Sweep over these rows; see `HalfStep`."""
        d = other.shape[1]
        block = min(self.block, d)
        G32 = basis.astype(np.float32)
        n = rows.lengths.astype(np.float64)
        short = np.minimum(n, block)
        work = d * (n * short + short**3 / (3 * block) + 10 * n + d) + 1.0

        def sweep(start: int, stop: int) -> None:
            longest = int(rows.lengths[start:stop].max())
            failed = _sweep_rows(
                rows.indptr, rows.indices, terms.excess, terms.target, terms.ridge, terms.dense,
                other, G32, out, block, start, stop, *workspace(block, 6), np.empty(longest, np.float32),
            )  # fmt: skip
            for r in failed:  # singular in float32: λ = 0 or extreme weights
                system = row_system(rows, terms, other, basis, int(r))
                out[r] = in_float32(_swept(*system, out[r].astype(np.float64), block))

        run_chunks(sweep, balanced_chunks(work, 16 * thread_count(threads)), threads)


def half_step_reference(
    rows: SparseRows,
    terms: Terms,
    other: npt.NDArray[np.float32],
    embeddings: npt.NDArray[np.float32],
    *,
    block: int = 64,
) -> npt.NDArray[np.float64]:
    """Return the result of a half-step, without the rotation; the NumPy twin of the kernel."""
    exact = other.astype(np.float64)
    G = (exact.T * terms.omega) @ exact
    out = np.zeros(embeddings.shape)
    for r in np.flatnonzero(rows.lengths):
        out[r] = _swept(*row_system(rows, terms, other, G, int(r)), embeddings[r].astype(np.float64), block)
    return out


def _swept(
    A: npt.NDArray[np.float64], b: npt.NDArray[np.float64], w: npt.NDArray[np.float64], block: int
) -> npt.NDArray[np.float64]:
    """Return one row after a sweep; if a block has several best moves, the smallest is taken.

    A block does not move if its slope is only float32 rounding error: divided by a tiny number, it would move far.
    """
    for first in range(0, len(w), block):
        B = slice(first, first + block)
        slope = b[B] - A[B] @ w
        if (np.abs(slope) > _ROUNDING * (np.abs(b[B]) + np.abs(A[B]) @ np.abs(w))).any():
            w[B] += np.linalg.lstsq(A[B, B], slope, rcond=SINGULAR)[0]
    return w


def _diagonalise_blocks(
    other: npt.NDArray[np.float32],
    embeddings: npt.NDArray[np.float32],
    terms: Terms,
    block: int,
    threads: int | None,
) -> npt.NDArray[np.float64]:
    """Rotate both sides, in place, so that the diagonal blocks of the Gramian are diagonal; return the Gramian.

    It is computed in float64 if a block needs it, like in `eigenbasis.diagonalise`.
    """
    blocks = [slice(first, first + block) for first in range(0, other.shape[1], block)]
    G = gramian(other, terms.omega, threads)
    bases = [eigenbasis(G[B, B]) for B in blocks]
    clear = all(is_clear(values, terms) for values, _ in bases)
    if not clear:
        G = gramian(other, terms.omega, threads, np.float64)
        bases = [eigenbasis(G[B, B]) for B in blocks]
        longest = float(column_lengths(other).max(initial=0.0))
    for B, (values, Q) in zip(blocks, bases):
        rotation = Q.astype(np.float32) if clear else Q
        rotate(other[:, B], rotation, threads)
        rotate(embeddings[:, B], rotation, threads)
        with single_threaded_blas():  # the rounding must not depend on the number of threads
            G[B] = Q.T @ G[B]
            G[:, B] = G[:, B] @ Q
        if not clear:
            drop_noise(values, other[:, B], embeddings[:, B], longest)
            dropped = np.flatnonzero(~other[:, B].any(axis=0)) + B.start
            G[dropped] = G[:, dropped] = 0
        G[B, B] = np.diag(values)
    return G


@fast_kernel
def _sweep_rows(
    indptr: Array,
    indices: Array,
    excess: Array,
    target: Array,
    ridge: Array,
    dense: Array,
    other: Array,
    G: Array,
    embeddings: Array,
    block: int,
    start: int,
    stop: int,
    matrices: Array,
    vectors: Array,
    scores: Array,
) -> list[int]:
    """Sweep over rows one by one; return the rows, unchanged, with a block that float32 cannot solve.

    The multiply-adds of ΨᵀDΨ, n·|B|²/2 for each block, run at the speed of the processor. At |B| = 64 they take less
    than half of the time of long rows; largest of the rest is gathering embeddings.
    """
    d = other.shape[1]
    M, x, move = vectors[0], vectors[1], vectors[5]
    w = np.empty(d, np.float32)
    failed = [0 for _ in range(0)]
    for r in range(start, stop):
        begin, end = indptr[r], indptr[r + 1]
        if begin == end:
            embeddings[r, :] = 0
            continue
        for f in range(d):
            w[f] = embeddings[r, f]
        a0 = dense[r] if len(dense) > 1 else dense[0]
        penalty = ridge[r] if len(ridge) > 1 else ridge[0]
        smallest = largest = excess[begin] if len(excess) > 1 else excess[0]
        if len(excess) > 1:
            for e in range(begin, end):
                smallest, largest = min(smallest, excess[e]), max(largest, excess[e])
        good = True
        for first in range(0, d, block):
            count = min(block, d - first)
            lowest = highest = a0 * G[first, first] + penalty
            for f in range(count):
                M[f] = a0 * G[first + f, first + f] + penalty
                lowest, highest = min(lowest, M[f]), max(highest, M[f])
                x[f] = -(a0 * _dot(G[first + f], w) + penalty * w[first + f])
            small = end - begin < count and smallest > SPAN * largest and lowest > SPAN * highest
            if small:
                solved = _solve_small(
                    indices, excess, target, other, begin, end, first, block, w, scores, matrices, vectors
                )
            else:
                solved = _solve_whole(
                    indices, excess, target, other, begin, end, first, block, w, scores, matrices, vectors, smallest < 0
                )
            good = good and solved
            for f in range(count):
                w[first + f] += move[f]
        for f in range(d):
            good = good and np.isfinite(w[f])
        if good:
            embeddings[r] = w
        else:
            failed.append(r)
    return failed


@fast_kernel
def _rescore(
    indices: Array, other: Array, begin: int, n: int, first: int, block: int, w: Array, move: Array, scores: Array
) -> None:
    """Compute the scores of n pairs: from all coordinates at the first block, then from the previous block's move.

    Embeddings of later pairs are prefetched, both the part that is read here and the part that is gathered next.
    """
    low, high = (first - block, min(first + block, len(w))) if first > 0 else (0, len(w))
    last = len(indices) - 1
    for k in range(n):
        ahead = indices[min(begin + k + AHEAD, last)]
        for f in range(low, high, LINE):
            prefetch(other, ahead, f)
        row = other[indices[begin + k]]
        if first == 0:
            scores[k] = _dot(row, w)
        else:
            scores[k] += _dot(row[first - block : first], move)


@fast_kernel
def _solve_whole(
    indices: Array,
    excess: Array,
    target: Array,
    other: Array,
    begin: int,
    end: int,
    first: int,
    block: int,
    w: Array,
    scores: Array,
    matrices: Array,
    vectors: Array,
    signs: bool,
) -> bool:
    """Compute the move (M + ΨᵀDΨ)⁻¹ (b − Aw)_B: n·|B|² operations for the product and |B|³/3 for the factor."""
    P, Q, U = matrices[0], matrices[1], matrices[2]
    M, x, move = vectors[0], vectors[1], vectors[5]
    count = min(block, len(w) - first)
    size, height = (count + WIDTH - 1) // WIDTH * WIDTH, len(P)
    for f in range(size):
        U[f, :size] = 0
        U[f, f] = M[f] if f < count else np.float32(1)
    P[:, count:size] = 0
    Q[:, count:size] = 0
    x[count:size] = 0
    for at in range(begin, end, height):
        n = min(height, end - at)
        _rescore(indices, other, at, n, first, block, w, move, scores[at - begin :])
        for k in range(n):
            e = at + k
            psi = other[indices[e]][first : first + count]
            a = excess[e] if len(excess) > 1 else excess[0]
            y = target[e] if len(target) > 1 else target[0]
            root = np.sqrt(abs(a))
            _times(root, psi, P[k])
            if signs:
                _times(-root if a < 0 else root, psi, Q[k])
            _add(y - a * scores[e - begin], psi, x)
        for i in range(0, size, WIDTH):
            for j in range(i, size, WIDTH):
                add_product(U, i, j, P, Q if signs else P, n)
    good = solve_tiles(U, size, x, vectors[3], vectors[4])
    for f in range(count):
        move[f] = x[f]
    return good


@fast_kernel
def _solve_small(
    indices: Array,
    excess: Array,
    target: Array,
    other: Array,
    begin: int,
    end: int,
    first: int,
    block: int,
    w: Array,
    scores: Array,
    matrices: Array,
    vectors: Array,
) -> bool:
    """Compute the same move for n < |B|: n²·|B| operations for the product and n³/3 for the factor.

    With (b − Aw)_B = Ψᵀq + h, q from the pairs and h from the dense part, Ũ = D^½ΨM^-½ and s = M^-½h, the move is

        M^-½(s + Ũᵀ(I + ŨŨᵀ)⁻¹(D^-½q − Ũs))

    This form never adds and subtracts terms as large as M⁻¹Ψᵀq.
    """
    P, Q, U = matrices[0], matrices[1], matrices[2]
    scale, x, s, move = vectors[0], vectors[1], vectors[2], vectors[5]
    n, count = end - begin, min(block, len(w) - first)
    size = (count + WIDTH - 1) // WIDTH * WIDTH
    side = (n + WIDTH - 1) // WIDTH * WIDTH
    for f in range(count):
        scale[f] = 1 / np.sqrt(scale[f])
        s[f] = scale[f] * x[f]
    _rescore(indices, other, begin, n, first, block, w, move, scores)
    for k in range(n):
        e = begin + k
        psi = other[indices[e]][first : first + count]
        a = excess[e] if len(excess) > 1 else excess[0]
        y = target[e] if len(target) > 1 else target[0]
        root = np.sqrt(a)
        _times_both(root, scale, psi, P[k])
        P[k, count:size] = 0
        x[k] = (y - a * scores[k]) / root - _dot(s[:count], P[k])
    P[n:side, :size] = 0
    x[n:side] = 0
    for k in range(side):
        U[k, :side] = 0
        U[k, k] = 1
    for f in range(0, size, WIDTH):
        for k in range(0, side, WIDTH):
            transpose(Q, f, k, P)
    for i in range(0, side, WIDTH):
        for j in range(i, side, WIDTH):
            add_product(U, i, j, Q, Q, size)
    good = solve_tiles(U, side, x, vectors[3], vectors[4])
    for k in range(n):
        _add(x[k], P[k, :count], s)
    for f in range(count):
        move[f] = scale[f] * s[f]
    return good


# Small loops over whole arrays. Inlined in the loop over pairs, with offsets, they made a sweep take 1.7 times as long.


@fast_kernel
def _dot(a: Array, b: Array) -> Any:
    total = np.float32(0)
    for f in range(len(a)):
        total += a[f] * b[f]
    return total


@fast_kernel
def _add(factor: float, a: Array, out: Array) -> None:
    for f in range(len(a)):
        out[f] += factor * a[f]


@fast_kernel
def _times(factor: float, a: Array, out: Array) -> None:
    for f in range(len(a)):
        out[f] = factor * a[f]


@fast_kernel
def _times_both(factor: float, scale: Array, a: Array, out: Array) -> None:
    for f in range(len(a)):
        out[f] = factor * scale[f] * a[f]
