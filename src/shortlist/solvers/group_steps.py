"""Blocks whose groups have several rows each, group by group: a fast path of `least_squares_step`.

The generic step makes whole matrices of rows for every product with J, 𝒜 and Jᵀ. Here a group's part of the Hessian
that comes from all pairs, Σ_c J_cᵀ(dense·G)J_c, is summed into one k × k matrix, and that of its observed pairs is
applied with ∇ŷ = J_cᵀψ made on the way, so that a group's steps stay in the cache.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.rows import by_key
from shortlist.scoring.multilinear import FeatureBlock, ScaledBlock
from shortlist.solvers.quadratic import RowWise

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
_NOTHING = np.zeros((0, 0), np.float32)


def group_changes(
    block: ScaledBlock | FeatureBlock, quadratic: RowWise, residual: Floats, steps: int, enough: float
) -> Floats:
    """What steps of conjugate gradients change the values by, of groups whose residual at first is given.

    O(k²) for each row, once, and 3nk operations for each step over a group's n pairs.
    """
    q = quadratic
    n, k = block.values.shape
    indptr, order = by_key(block.groups.astype(np.int32, copy=False), np.arange(len(block.groups), dtype=np.int32), n)
    x, bias = (block.x, block.bias) if isinstance(block, FeatureBlock) else (np.zeros(0, np.float32), -1)
    s, z = (_NOTHING, np.zeros(0, np.float32)) if q.z is None or q.s is None else (q.s, q.z)
    out = np.zeros((n, k), np.float32)
    ridge = np.ascontiguousarray(np.broadcast_to(block.ridge, (n, k))[:, 0])
    pairs = np.bincount(block.groups, q.rows.lengths + k / 4.0, n)

    def solve(start: int, stop: int) -> None:
        _solve(
            indptr, order, q.rows.indptr, q.rows.indices, q.quad, q.dense, q.other, q.G, s, z, x, block.rest, bias,
            ridge, residual, out, steps, enough,
            np.zeros((k, k), np.float32), np.zeros((7, k), np.float32), start, stop,
        )  # fmt: skip

    run_chunks(solve, balanced_chunks(pairs + 1.0, 32 * thread_count(q.threads)), q.threads)
    return out


@fast_kernel
def _back(vector: Array, rest: Array, x: Any, bias: int, out: Array) -> None:
    """Jᵀ·vector of one row: vector ∘ rest, or with a bias x·[vector + vector_bias·rest, vector_bias]."""
    d = rest.shape[0]
    if bias < 0:
        for f in range(d):
            out[f] = vector[f] * rest[f]
        return
    b = x * vector[bias]
    for f in range(d):
        out[f] = x * vector[f] + b * rest[f]
    out[d] = b


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
    s: Array,
    z: Array,
    xs: Array,
    rests: Array,
    bias: int,
    ridges: Array,
    residual: Array,
    out: Array,
    steps: int,
    enough: float,
    K: Array,
    room: Array,
    start: int,
    stop: int,
) -> None:
    k = out.shape[1]
    d = rests.shape[1]
    p, q, y, M, sigma, zeta, sums = room[0], room[1], room[2], room[3], room[4], room[5], room[6]
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
            if len(z) > 0:
                _back(s[c], rests[c], x, bias, sigma)
                _back(z, rests[c], x, bias, zeta)
                for i in range(k):
                    for j in range(k):
                        K[i, j] -= sigma[i] * zeta[j] + zeta[i] * sigma[j]
            for e in range(indptr[c], indptr[c + 1]):
                _back(other[indices[e]], rests[c], x, bias, y)
                a = quad[e if len(quad) > 1 else 0]
                for f in range(k):
                    M[f] += a * y[f] * y[f]
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
                for e in range(indptr[c], indptr[c + 1]):
                    _back(other[indices[e]], rests[c], x, bias, y)
                    score = np.float32(0)
                    for f in range(k):
                        score += y[f] * p[f]
                    score *= quad[e if len(quad) > 1 else 0]
                    for f in range(k):
                        q[f] += score * y[f]
            along = np.float32(0)
            for f in range(k):
                along += p[f] * q[f]
            if not along > 0:
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
