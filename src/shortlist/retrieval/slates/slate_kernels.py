"""What picks the slates, a row of a pool after the other; the plain twins, which take one pool, are below.

A pool is a row of `codes`, -1 where there is no item, with a row of `relevance`. Kernels write places within the pool,
-1 where it has run out of items. Of candidates that are equally good, the one that stands first in the pool is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_lean_kernel, kernel, lean_kernel

Array: TypeAlias = npt.NDArray[Any]
Values: TypeAlias = npt.NDArray[np.float64]

RIDGE = 1e-3  # ε: how much of a DPP's kernel is the identity


class ItemSimilarity(NamedTuple):
    """What says how near items are: vectors, a table of cosines, or who had them; two of the three are empty."""

    vectors: Array  # items × d, of any length
    table: Array  # above its diagonal
    starts: Array  # of each row, its place in `contexts`
    contexts: Array  # who had the item of a row
    scale: Array  # 1 / √#{had it}
    rows: Array  # of the table, or of `starts`, by item
    n_contexts: int


# --- similarity within a pool ----------------------------------------------------------------------------------------


@fast_lean_kernel
def take_units(codes: Array, vectors: Array, units: Array) -> None:
    """The directions of the pool's items; 0 of those that have none."""
    for k in range(len(codes)):
        i = codes[k]
        if i < 0:
            continue
        square = 0.0
        for f in range(units.shape[1]):
            x = np.float64(vectors[i, f])
            square += x * x
        scale = 1.0 / np.sqrt(square) if square > 0 else 0.0
        for f in range(units.shape[1]):
            units[k, f] = vectors[i, f] * scale


@fast_lean_kernel
def dots_with(j: int, left: Array, units: Array, out: Array) -> None:
    """⟨u_j, u_k⟩ of all k that are left."""
    for k in range(len(left)):
        if left[k]:
            total = np.float32(0)
            for f in range(units.shape[1]):
                total += units[j, f] * units[k, f]
            out[k] = total


@lean_kernel
def shared_with(j: int, codes: Array, left: Array, near: ItemSimilarity, marks: Array, out: Array) -> None:
    """The same of training columns, to the last bit what a table has: who had j is marked, who had k gone through."""
    own = near.rows[codes[j]]
    for p in range(near.starts[own], near.starts[own + 1]):
        marks[near.contexts[p]] = 1
    for k in range(len(left)):
        if left[k]:
            row = near.rows[codes[k]]
            both = 0
            for p in range(near.starts[row], near.starts[row + 1]):
                both += marks[near.contexts[p]]
            out[k] = np.float32(both * near.scale[max(own, row)] * near.scale[min(own, row)])
    for p in range(near.starts[own], near.starts[own + 1]):
        marks[near.contexts[p]] = 0


@lean_kernel
def cosines_with(
    j: int, codes: Array, left: Array, near: ItemSimilarity, units: Array, marks: Array, out: Array
) -> None:
    """The cosine of every item of the pool that is left with the one at place j."""
    if len(near.rows) == 0:
        dots_with(j, left, units, out)
    elif len(near.table) == 0:
        shared_with(j, codes, left, near, marks, out)
    else:
        own = near.rows[codes[j]]
        for k in range(len(left)):
            if left[k]:
                other = near.rows[codes[k]]
                out[k] = near.table[min(own, other), max(own, other)]


# --- slates ----------------------------------------------------------------------------------------------------------


@kernel
def mmr_rows(codes: Array, relevance: Array, near: ItemSimilarity, diversity: float, out: Array) -> None:
    """Slates of pools by maximal marginal relevance.

    For n of m items there are n · m · d multiplications with vectors of length d, n · m look-ups with a table, and as
    many steps as n times the pool's columns are long without one. The vectors or columns of a pool have to come from
    memory once, and then stay in the cache.
    """
    m = codes.shape[1]
    units = np.zeros((m, near.vectors.shape[1]), np.float32)
    marks = np.zeros(near.n_contexts, np.uint8)
    nearest, cosines = np.zeros(m), np.zeros(m)
    left = np.zeros(m, np.bool_)
    for q in range(len(codes)):
        for k in range(m):
            left[k] = codes[q, k] >= 0
            nearest[k] = 0.0
        take_units(codes[q], near.vectors, units)
        for t in range(out.shape[1]):
            best, highest = -1, 0.0
            for k in range(m):
                if left[k]:
                    value = (1.0 - diversity) * relevance[q, k] - diversity * nearest[k]
                    if best < 0 or value > highest:
                        best, highest = k, value
            out[q, t] = best
            if best < 0 or t + 1 == out.shape[1]:
                continue
            left[best] = False
            cosines_with(best, codes[q], left, near, units, marks, cosines)
            for k in range(m):
                nearest[k] = cosines[k] if t == 0 else max(nearest[k], cosines[k])


@kernel
def dpp_rows(codes: Array, relevance: Array, near: ItemSimilarity, diversity: float, out: Array) -> None:
    """Slates of pools: the greedy mode of a DPP with an incremental Cholesky factor (Chen et al. 2018).

    `rest[k]` is what candidate k would multiply det S by: its 1 on the diagonal without what its row of the factor, so
    far `factor[:t, k]`, explains. Beside the n · m · d multiplications of `mmr_rows` there are n² · m / 2.
    """
    m, n = codes.shape[1], out.shape[1]
    units = np.zeros((m, near.vectors.shape[1]), np.float32)
    factor = np.zeros((n, m))
    marks = np.zeros(near.n_contexts, np.uint8)
    rest, cosines = np.zeros(m), np.zeros(m)
    left = np.zeros(m, np.bool_)
    for q in range(len(codes)):
        for k in range(m):
            left[k] = codes[q, k] >= 0
            rest[k] = 1.0
        take_units(codes[q], near.vectors, units)
        for t in range(n):
            best, highest = -1, 0.0
            for k in range(m):
                if left[k]:
                    value = (1.0 - diversity) * relevance[q, k] + diversity * np.log(rest[k])
                    if best < 0 or value > highest:
                        best, highest = k, value
            out[q, t] = best
            if best < 0 or t + 1 == out.shape[1]:
                continue
            left[best] = False
            cosines_with(best, codes[q], left, near, units, marks, cosines)
            row = factor[t]
            for k in range(m):
                row[k] = (1.0 - RIDGE) * cosines[k]
            for s in range(t):
                explained = factor[s, best]
                for k in range(m):
                    row[k] -= explained * factor[s, k]
            scale = 1.0 / np.sqrt(rest[best])
            for k in range(m):
                row[k] *= scale if left[k] else 0.0
                rest[k] = max(rest[k] - row[k] * row[k], RIDGE)  # less it cannot be, but for roundings


@kernel
def calibrated_rows(codes: Array, relevance: Array, groups: Array, wanted: Array, strength: float, out: Array) -> None:
    """Slates of pools whose groups of items are to have the shares `wanted`, a row a pool.

    Pools whose row is 0 want nothing. It reads n · m numbers, which the cache holds.
    """
    m, n_groups = codes.shape[1], wanted.shape[1]
    left = np.zeros(m, np.bool_)
    counts, divergences = np.zeros(n_groups), np.zeros(n_groups)
    for q in range(len(codes)):
        for k in range(m):
            left[k] = codes[q, k] >= 0
        own = 0.0
        for g in range(n_groups):
            counts[g] = 0.0
            if wanted[q, g] > 0:
                own = strength
        for t in range(out.shape[1]):
            for g in range(n_groups):
                counts[g] += 1
                divergences[g] = (t + 1) * divergence_from(counts, t + 1, wanted[q])
                counts[g] -= 1
            best, highest = -1, 0.0
            for k in range(m):
                if left[k]:
                    value = (1.0 - own) * relevance[q, k] - own * divergences[groups[codes[q, k]]]
                    if best < 0 or value > highest:
                        best, highest = k, value
            out[q, t] = best
            if best >= 0:
                left[best] = False
                counts[groups[codes[q, best]]] += 1


@kernel
def divergence_from(counts: Array, total: float, wanted: Array) -> float:
    """The Jensen–Shannon divergence, in bits, of counts/total and wanted."""
    bits = 0.0
    for g in range(len(counts)):
        share, other = counts[g] / total, wanted[g]
        if share > 0:
            bits += share * np.log2(2 * share / (share + other))
        if other > 0:
            bits += other * np.log2(2 * other / (share + other))
    return 0.5 * bits


# --- twins -----------------------------------------------------------------------------------------------------------


def greedy_numpy(m: int, n: int, value: Callable[[list[int]], float]) -> list[int]:
    """Places 0…m-1, n of them: always the one with which what is picked has the highest value, the first of equals."""
    picked: list[int] = []
    for _ in range(min(n, m)):
        left = [k for k in range(m) if k not in picked]
        picked.append(left[int(np.argmax([value([*picked, k]) for k in left]))])
    return picked


def mmr_value(picked: list[int], relevance: Values, cosines: Values, diversity: float) -> float:
    """(1 − δ) · r_i − δ · max_{j ∈ Y} cos(i, j) of the last that is picked, where Y are those before it."""
    *before, last = picked
    nearest = max((cosines[last, j] for j in before), default=0.0)
    return float((1 - diversity) * relevance[last] - diversity * nearest)


def dpp_value(picked: list[int], relevance: Values, cosines: Values, diversity: float) -> float:
    """(1 − δ) Σ_{i ∈ Y} r_i + δ ln det S_Y with S = (1 − ε) cos + ε I: for δ > 0, δ · ln det L_Y of `DPP`."""
    S = (1 - RIDGE) * cosines[np.ix_(picked, picked)]
    np.fill_diagonal(S, 1.0)
    return float((1 - diversity) * relevance[picked].sum() + diversity * np.linalg.slogdet(S)[1])


def calibrated_value(picked: list[int], relevance: Values, groups: Array, wanted: Values, strength: float) -> float:
    """(1 − σ) · mean of r over Y − σ · JS(shares of groups in Y, wanted), times the number of items picked."""
    shares = np.bincount(groups[picked], minlength=len(wanted)) / len(picked)
    between = (shares + wanted) / 2
    bits = sum((one[one > 0] * np.log2(one[one > 0] / between[one > 0])).sum() / 2 for one in (shares, wanted))
    return float((1 - strength) * relevance[picked].sum() - strength * len(picked) * bits)
