"""Half-steps by blocks of coordinates: iALS++ (Rendle, Krichene, Zhang and Koren 2021)."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist._prefetch import prefetch
from shortlist._threads import balanced_chunks, run_chunks, single_threaded_blas, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pointwise_square import Terms, gramian
from shortlist.solvers.cholesky import AHEAD, LINE, SPAN, room, solve_tiles
from shortlist.solvers.eigenbasis import column_lengths, drop_noise, eigenbasis, is_clear, rotate
from shortlist.solvers.normal_equations import SINGULAR, in_float32, row_system
from shortlist.solvers.tiles import WIDTH, add_product, transpose

Array: TypeAlias = npt.NDArray[Any]
_ROUNDING = 32 * float(np.finfo(np.float32).eps)


def half_step(
    rows: SparseRows,
    terms: Terms,
    other: npt.NDArray[np.float32],
    own: npt.NDArray[np.float32],
    threads: int | None = None,
    *,
    block: int = 64,
) -> None:
    """One sweep over blocks of coordinates for every row of `own`: each in turn becomes its best given the others.

    With A w = b the row's system (see `Terms`), a block B of `block` coordinates, the last of them shorter, moves by

        w_B ← w_B + A_BB⁻¹ (b − A w)_B

    where A itself is never formed: the scores at the observed pairs are kept and follow each move. `block = d` is the
    exact half-step, `block = 1` coordinate descent. Rows without pairs become zero, which is their minimum.

    Both sides are first rotated in place within each block, into the eigenvectors of G_BB. That changes no sweep, since
    the blocks span what they did; but the dense part of A_BB becomes a diagonal, and a row of n < |B| pairs needs a
    matrix of n × n only. Each row is computed by itself, so the result does not depend on the number of threads.
    """
    d = other.shape[1]
    block = min(block, d)
    G = _diagonalise_blocks(other, own, terms, block, threads)
    G32 = G.astype(np.float32)
    n = rows.lengths.astype(np.float64)
    short = np.minimum(n, block)
    work = d * (n * short + short**3 / (3 * block) + 10 * n + d) + 1.0

    def sweep(start: int, stop: int) -> None:
        longest = int(rows.lengths[start:stop].max())
        failed = _sweep_rows(
            rows.indptr, rows.indices, terms.excess, terms.target, terms.ridge, terms.dense,
            other, G32, own, block, start, stop, *room(block, 6), np.empty(longest, np.float32),
        )  # fmt: skip
        for r in failed:  # singular to float32: λ = 0, or extreme weights
            own[r] = in_float32(_swept(*row_system(rows, terms, other, G, int(r)), own[r].astype(np.float64), block))

    run_chunks(sweep, balanced_chunks(work, 16 * thread_count(threads)), threads)


def half_step_reference(
    rows: SparseRows, terms: Terms, other: npt.NDArray[np.float32], own: npt.NDArray[np.float32], *, block: int = 64
) -> npt.NDArray[np.float64]:
    """What `half_step` sets `own` to, without the rotation, in a few lines of NumPy."""
    exact = other.astype(np.float64)
    G = (exact.T * terms.omega) @ exact
    out = np.zeros(own.shape)
    for r in np.flatnonzero(rows.lengths):
        out[r] = _swept(*row_system(rows, terms, other, G, int(r)), own[r].astype(np.float64), block)
    return out


def _swept(
    A: npt.NDArray[np.float64], b: npt.NDArray[np.float64], w: npt.NDArray[np.float64], block: int
) -> npt.NDArray[np.float64]:
    """One row after a sweep; where a block has many best moves, the smallest of them.

    A block stays where its slope is nothing but float32's rounding errors: divided by next to nothing they would move
    it far.
    """
    for first in range(0, len(w), block):
        B = slice(first, first + block)
        slope = b[B] - A[B] @ w
        if (np.abs(slope) > _ROUNDING * (np.abs(b[B]) + np.abs(A[B]) @ np.abs(w))).any():
            w[B] += np.linalg.lstsq(A[B, B], slope, rcond=SINGULAR)[0]
    return w


def _diagonalise_blocks(
    other: npt.NDArray[np.float32],
    own: npt.NDArray[np.float32],
    terms: Terms,
    block: int,
    threads: int | None,
) -> npt.NDArray[np.float64]:
    """Rotate both sides, in place, so that the blocks on the diagonal of the Gramian are diagonal; returns it.

    In float64 where a block needs it, as `basis.diagonalise` does.
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
        turn = Q.astype(np.float32) if clear else Q
        rotate(other[:, B], turn, threads)
        rotate(own[:, B], turn, threads)
        with single_threaded_blas():  # which rounds in the same way however many threads there are
            G[B] = Q.T @ G[B]
            G[:, B] = G[:, B] @ Q
        if not clear:
            drop_noise(values, other[:, B], own[:, B], longest)
            gone = np.flatnonzero(~other[:, B].any(axis=0)) + B.start
            G[gone] = G[:, gone] = 0
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
    own: Array,
    block: int,
    start: int,
    stop: int,
    matrices: Array,
    vectors: Array,
    scores: Array,
) -> list[int]:
    """Sweep over rows one by one; returns those, left as they were, with a block that float32 cannot solve.

    The multiply-adds of ΨᵀDΨ, n·|B|²/2 for each block, run at the speed of the processor; at |B| = 64 they are less
    than half of the time of long rows, and most of the rest is the gathering of embeddings.
    """
    d = other.shape[1]
    M, x, move = vectors[0], vectors[1], vectors[5]
    w = np.empty(d, np.float32)
    failed = [0 for _ in range(0)]
    for r in range(start, stop):
        begin, end = indptr[r], indptr[r + 1]
        if begin == end:
            own[r, :] = 0
            continue
        for f in range(d):
            w[f] = own[r, f]
        a0 = dense[r] if len(dense) > 1 else dense[0]
        penalty = ridge[r] if len(ridge) > 1 else ridge[0]
        least = most = excess[begin] if len(excess) > 1 else excess[0]
        if len(excess) > 1:
            for e in range(begin, end):
                least, most = min(least, excess[e]), max(most, excess[e])
        good = True
        for first in range(0, d, block):
            count = min(block, d - first)
            lowest = highest = a0 * G[first, first] + penalty
            for f in range(count):
                M[f] = a0 * G[first + f, first + f] + penalty
                lowest, highest = min(lowest, M[f]), max(highest, M[f])
                x[f] = -(a0 * _dot(G[first + f], w) + penalty * w[first + f])
            small = end - begin < count and least > SPAN * most and lowest > SPAN * highest
            if small:
                solved = _solve_small(
                    indices, excess, target, other, begin, end, first, block, w, scores, matrices, vectors
                )
            else:
                solved = _solve_whole(
                    indices, excess, target, other, begin, end, first, block, w, scores, matrices, vectors, least < 0
                )
            good = good and solved
            for f in range(count):
                w[first + f] += move[f]
        for f in range(d):
            good = good and np.isfinite(w[f])
        if good:
            own[r] = w
        else:
            failed.append(r)
    return failed


@fast_kernel
def _rescore(
    indices: Array, other: Array, begin: int, n: int, first: int, block: int, w: Array, move: Array, scores: Array
) -> None:
    """The scores of n pairs: from all coordinates at the first block, then by the move of the block before.

    Embeddings further on are sent for: both what this reads of them and what is gathered next.
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
    """The move (M + ΨᵀDΨ)⁻¹ (b − Aw)_B: n·|B|² operations for the product and |B|³/3 for the factor."""
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
    """The same move for n < |B|: n²·|B| operations for the product and n³/3 for the factor.

    With (b − Aw)_B = Ψᵀq + h, q of the pairs and h of the dense part, Ũ = D^½ΨM^-½ and s = M^-½h, it is

        M^-½(s + Ũᵀ(I + ŨŨᵀ)⁻¹(D^-½q − Ũs))

    where nothing of the size of M⁻¹Ψᵀq is added and taken away again.
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


# Small loops over whole arrays: written out among the pairs, with offsets, they made a sweep take 1.7 times as long.


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
