"""Conjugate gradients group by group: a fast path of `least_squares_step` for groups of several rows.

The generic step builds whole matrices of rows for every product with J, 𝒜 and Jᵀ. Here the part of a group's Hessian
that comes from all pairs, Σ_c J_cᵀ(dense·G)J_c, is summed into one k × k matrix. The part of its observed pairs is
applied pair by pair, with ∇ŷ = J_cᵀψ. All steps of a group stay in the cache.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.sparse_rows import by_key
from shortlist.scoring.sides import FeatureBlock, ScaledBlock
from shortlist.solvers.cholesky import AHEAD
from shortlist.solvers.quadratic import FLAT, IndependentRows, prefetch_row

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
_LARGEST = 0.3  # largest fraction of all pairs that a group may have


def is_faster(block: ScaledBlock | FeatureBlock, quadratic: IndependentRows) -> bool:
    """Return whether this path is faster. One thread works on a group, so no group may have most of the pairs.

    The decision must not depend on the number of threads, because the two paths round differently.
    """
    work = np.bincount(block.groups, quadratic.rows.lengths, len(block.values))
    return bool(work.max(initial=0) <= _LARGEST * work.sum())


def group_changes(
    block: ScaledBlock | FeatureBlock, quadratic: IndependentRows, residual: Floats, steps: int, enough: float
) -> Floats:
    """Return the change of the values after some steps of conjugate gradients, given the first residual.

    This takes O(k²) for each row, once, and 4nk operations for each step over a group's n pairs.
    """
    q = quadratic
    n, k = block.values.shape
    indptr, order = by_key(block.groups.astype(np.int32, copy=False), np.arange(len(block.groups), dtype=np.int32), n)
    x, bias = (block.x, block.bias) if isinstance(block, FeatureBlock) else (np.zeros(0, np.float32), -1)
    out = np.zeros((n, k), np.float32)
    ridge = np.ascontiguousarray(np.broadcast_to(block.ridge, (n, k))[:, 0])
    pairs = np.bincount(block.groups, q.rows.lengths + k / 4.0, n)

    def solve(start: int, stop: int) -> None:
        _solve(
            indptr, order, q.rows.indptr, q.rows.indices, q.quad, q.dense, q.other, q.G, x, block.rest, bias,
            ridge, residual, out, steps, enough,
            np.zeros((k, k), np.float32), np.zeros((4, k), np.float32), np.zeros((3, k + 1), np.float32), start, stop,
        )  # fmt: skip

    run_chunks(solve, balanced_chunks(pairs + 1.0, 32 * thread_count(q.threads)), q.threads)
    return out


@fast_kernel
def _forward(p: Array, rest: Array, x: Any, bias: int, out: Array) -> None:
    """Set `out` to J·p of one row: p ∘ rest, or x·[p, p_w + ⟨rest, p⟩] with a bias."""
    d = rest.shape[0]
    if bias < 0:
        for f in range(d):
            out[f] = p[f] * rest[f]
        return
    total = p[d]
    for f in range(d):
        out[f] = x * p[f]
        total += rest[f] * p[f]
    out[d] = out[d + 1] = 0
    out[bias] = x * total


@fast_kernel
def _add_back(vector: Array, rest: Array, x: Any, bias: int, out: Array) -> None:
    """Add Jᵀ·vector of one row to `out`: vector ∘ rest, or x·[vector + vector_bias·rest, vector_bias] with a bias."""
    d = rest.shape[0]
    if bias < 0:
        for f in range(d):
            out[f] += vector[f] * rest[f]
        return
    b = x * vector[bias]
    for f in range(d):
        out[f] += x * vector[f] + b * rest[f]
    out[d] += b


@fast_kernel
def _solve(
    group_indptr: Array,
    order: Array,
    indptr: Array,
    indices: Array,
    quad: Array,
    dense: Array,
    other: Array,
    G: Array,
    xs: Array,
    rests: Array,
    bias: int,
    ridges: Array,
    residual: Array,
    out: Array,
    steps: int,
    enough: float,
    K: Array,
    vectors: Array,
    wide: Array,
    start: int,
    stop: int,
) -> None:
    k = out.shape[1]
    d = rests.shape[1]
    D, last = other.shape[1], len(indices) - 1
    p, q, M, sums = vectors[0], vectors[1], vectors[2], vectors[3]
    ahead, seen, mixed = wide[0], wide[1], wide[2]
    for g in range(start, stop):
        r, change, ridge = residual[g], out[g], ridges[g]
        begin, end = group_indptr[g], group_indptr[g + 1]
        for i in range(k):
            sums[i] = M[i] = 0
            for j in range(k):
                K[i, j] = 0
        total = np.float32(0)
        for m in range(begin, end):  # Σ n·rest·restᵀ
            c = order[m]
            x = xs[c] if bias >= 0 else np.float32(1)
            n = dense[c if len(dense) > 1 else 0] * x * x
            total += n
            for i in range(d):
                a = n * rests[c, i]
                if a != 0:
                    sums[i] += a
                    for j in range(d):
                        K[i, j] += a * rests[c, j]
        if bias < 0:
            for i in range(d):
                for j in range(d):
                    K[i, j] *= G[i, j]
        else:
            b = G[bias, bias]
            for i in range(d):
                for j in range(d):
                    K[i, j] = b * K[i, j] + total * G[i, j] + sums[i] * G[bias, j] + G[i, bias] * sums[j]
                K[i, d] = total * G[i, bias] + b * sums[i]
                K[d, i] = K[i, d]
            K[d, d] = total * b
        for m in range(begin, end):
            c = order[m]
            x = xs[c] if bias >= 0 else np.float32(1)
            for f in range(D):  # the squares of ∇ŷ, summed before J: Σψ², and Σψψ_bias
                seen[f] = mixed[f] = 0
            for e in range(indptr[c], indptr[c + 1]):
                i, a = indices[e], quad[e if len(quad) > 1 else 0]
                prefetch_row(other, indices[min(e + AHEAD, last)])
                b = a * other[i, bias] if bias >= 0 else np.float32(0)
                for f in range(D):
                    seen[f] += a * other[i, f] * other[i, f]
                    mixed[f] += b * other[i, f]
            if bias < 0:
                for f in range(d):
                    M[f] += rests[c, f] * rests[c, f] * seen[f]
            else:
                for f in range(d):
                    M[f] += x * x * (seen[f] + rests[c, f] * (2 * mixed[f] + rests[c, f] * seen[bias]))
                M[d] += x * x * seen[bias]
        size = np.float32(0)
        for f in range(k):
            M[f] += K[f, f] + ridge
            M[f] = np.float32(1) / M[f] if M[f] > 0 else np.float32(0)
            p[f] = M[f] * r[f]
            size += r[f] * p[f]
        first = size
        for _ in range(steps):
            if not size > enough * first:
                break
            for i in range(k):
                total = ridge * p[i]
                for j in range(k):
                    total += K[i, j] * p[j]
                q[i] = total
            for m in range(begin, end):
                c = order[m]
                x = xs[c] if bias >= 0 else np.float32(1)
                _forward(p, rests[c], x, bias, ahead)
                for f in range(D):
                    seen[f] = 0
                for e in range(indptr[c], indptr[c + 1]):
                    i, score = indices[e], np.float32(0)
                    prefetch_row(other, indices[min(e + AHEAD, last)])
                    for f in range(D):
                        score += ahead[f] * other[i, f]
                    score *= quad[e if len(quad) > 1 else 0]
                    for f in range(D):
                        seen[f] += score * other[i, f]
                _add_back(seen, rests[c], x, bias, q)
            along = scale = np.float32(0)
            for f in range(k):
                along += p[f] * q[f]
                scale += p[f] * p[f] / M[f] if M[f] > 0 else np.float32(0)
            if not along > FLAT * scale:
                break
            alpha = size / along
            new = np.float32(0)
            for f in range(k):
                change[f] += alpha * p[f]
                r[f] -= alpha * q[f]
                new += r[f] * M[f] * r[f]
            beta = new / size
            for f in range(k):
                p[f] = M[f] * r[f] + beta * p[f]
            size = new
