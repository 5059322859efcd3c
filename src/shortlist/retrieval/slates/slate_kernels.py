"""Kernels that choose slates, pool by pool. Their NumPy versions, for one pool, are at the end.

A pool is a row of `codes`, with -1 in empty places, and a row of `relevance`. Kernels write the chosen places within
the pool, or -1 if it has run out of items. Ties go to the first place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_lean_kernel, kernel, lean_kernel

Array: TypeAlias = npt.NDArray[Any]
Values: TypeAlias = npt.NDArray[np.float64]

RIDGE = 1e-3  # ε: the weight of the identity in a DPP's kernel


class ItemSimilarity(NamedTuple):
    """Item similarities in one of three forms: vectors, a table of cosines, or training columns.

    The arrays of the other two forms are empty.
    """

    vectors: Array  # items × d, of any length
    table: Array  # cosines, only above the diagonal
    starts: Array  # the start of each row in `contexts`
    contexts: Array  # the training contexts of each row's item
    scale: Array  # 1 / √(number of contexts) of each row
    rows: Array  # the row of each item in `table` or `starts`
    n_contexts: int


# --- similarity within a pool ----------------------------------------------------------------------------------------


@fast_lean_kernel
def take_units(codes: Array, vectors: Array, units: Array) -> None:
    """Write the vectors of the pool's items, scaled to length 1; zero vectors stay 0."""
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
    """Write ⟨u_j, u_k⟩ for all k that are left."""
    for k in range(len(left)):
        if left[k]:
            total = np.float32(0)
            for f in range(units.shape[1]):
                total += units[j, f] * units[k, f]
            out[k] = total


@lean_kernel
def shared_with(j: int, codes: Array, left: Array, similarity: ItemSimilarity, marks: Array, out: Array) -> None:
    """Write the cosines of training columns: mark the contexts of j, then count marks for each k.

    The results are bit for bit those of a table.
    """
    row_j = similarity.rows[codes[j]]
    for p in range(similarity.starts[row_j], similarity.starts[row_j + 1]):
        marks[similarity.contexts[p]] = 1
    for k in range(len(left)):
        if left[k]:
            row = similarity.rows[codes[k]]
            both = 0
            for p in range(similarity.starts[row], similarity.starts[row + 1]):
                both += marks[similarity.contexts[p]]
            out[k] = np.float32(both * similarity.scale[max(row_j, row)] * similarity.scale[min(row_j, row)])
    for p in range(similarity.starts[row_j], similarity.starts[row_j + 1]):
        marks[similarity.contexts[p]] = 0


@lean_kernel
def cosines_with(
    j: int, codes: Array, left: Array, similarity: ItemSimilarity, units: Array, marks: Array, out: Array
) -> None:
    """Write the cosine of each remaining item of the pool with the item at place j."""
    if len(similarity.rows) == 0:
        dots_with(j, left, units, out)
    elif len(similarity.table) == 0:
        shared_with(j, codes, left, similarity, marks, out)
    else:
        row_j = similarity.rows[codes[j]]
        for k in range(len(left)):
            if left[k]:
                row = similarity.rows[codes[k]]
                out[k] = similarity.table[min(row_j, row), max(row_j, row)]


# --- slates ----------------------------------------------------------------------------------------------------------


@kernel
def mmr_rows(codes: Array, relevance: Array, similarity: ItemSimilarity, diversity: float, out: Array) -> None:
    """Choose slates by maximal marginal relevance.

    For n of m items the cost is n · m · d multiplications with vectors of length d, n · m look-ups with a table, or n
    passes over the training columns of the pool. The vectors or columns of a pool are read from memory once, and then
    stay in the cache.
    """
    m = codes.shape[1]
    units = np.zeros((m, similarity.vectors.shape[1]), np.float32)
    marks = np.zeros(similarity.n_contexts, np.uint8)
    nearest, cosines = np.zeros(m), np.zeros(m)
    left = np.zeros(m, np.bool_)
    for q in range(len(codes)):
        for k in range(m):
            left[k] = codes[q, k] >= 0
            nearest[k] = 0.0
        take_units(codes[q], similarity.vectors, units)
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
            cosines_with(best, codes[q], left, similarity, units, marks, cosines)
            for k in range(m):
                nearest[k] = cosines[k] if t == 0 else max(nearest[k], cosines[k])


@kernel
def dpp_rows(codes: Array, relevance: Array, similarity: ItemSimilarity, diversity: float, out: Array) -> None:
    """Choose slates by the greedy mode of a DPP with an incremental Cholesky factor (Chen et al. 2018).

    `rest[k]` is the factor by which candidate k would multiply det S: 1 − Σ_s factor[s, k]² over the rows s < t of the
    Cholesky factor. This takes n² · m / 2 multiplications beside the n · m · d of `mmr_rows`.
    """
    m, n = codes.shape[1], out.shape[1]
    units = np.zeros((m, similarity.vectors.shape[1]), np.float32)
    factor = np.zeros((n, m))
    marks = np.zeros(similarity.n_contexts, np.uint8)
    rest, cosines = np.zeros(m), np.zeros(m)
    left = np.zeros(m, np.bool_)
    for q in range(len(codes)):
        for k in range(m):
            left[k] = codes[q, k] >= 0
            rest[k] = 1.0
        take_units(codes[q], similarity.vectors, units)
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
            cosines_with(best, codes[q], left, similarity, units, marks, cosines)
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
                rest[k] = max(rest[k] - row[k] * row[k], RIDGE)  # below RIDGE only by rounding


@kernel
def calibrated_rows(codes: Array, relevance: Array, groups: Array, wanted: Array, strength: float, out: Array) -> None:
    """Choose slates whose item groups have shares close to `wanted`, which has one row per pool.

    For pools whose row is 0, only relevance counts. Reads n · m numbers per pool, from the cache.
    """
    m, n_groups = codes.shape[1], wanted.shape[1]
    left = np.zeros(m, np.bool_)
    counts, divergences = np.zeros(n_groups), np.zeros(n_groups)
    for q in range(len(codes)):
        for k in range(m):
            left[k] = codes[q, k] >= 0
        weight = 0.0
        for g in range(n_groups):
            counts[g] = 0.0
            if wanted[q, g] > 0:
                weight = strength
        for t in range(out.shape[1]):
            for g in range(n_groups):
                counts[g] += 1
                divergences[g] = (t + 1) * divergence_from(counts, t + 1, wanted[q])
                counts[g] -= 1
            best, highest = -1, 0.0
            for k in range(m):
                if left[k]:
                    value = (1.0 - weight) * relevance[q, k] - weight * divergences[groups[codes[q, k]]]
                    if best < 0 or value > highest:
                        best, highest = k, value
            out[q, t] = best
            if best >= 0:
                left[best] = False
                counts[groups[codes[q, best]]] += 1


@kernel
def divergence_from(counts: Array, total: float, wanted: Array) -> float:
    """Return the Jensen–Shannon divergence, in bits, of counts/total and wanted."""
    bits = 0.0
    for g in range(len(counts)):
        share, other = counts[g] / total, wanted[g]
        if share > 0:
            bits += share * np.log2(2 * share / (share + other))
        if other > 0:
            bits += other * np.log2(2 * other / (share + other))
    return 0.5 * bits


# --- NumPy versions --------------------------------------------------------------------------------------------------


def greedy_numpy(m: int, n: int, value: Callable[[list[int]], float]) -> list[int]:
    """Choose n of the places 0…m-1 greedily, each maximising the value of all chosen so far. Ties go to the first."""
    picked: list[int] = []
    for _ in range(min(n, m)):
        left = [k for k in range(m) if k not in picked]
        picked.append(left[int(np.argmax([value([*picked, k]) for k in left]))])
    return picked


def mmr_value(picked: list[int], relevance: Values, cosines: Values, diversity: float) -> float:
    """Return (1 − δ) · r_i − δ · max_{j ∈ Y} cos(i, j) for the last item picked, where Y are the items before it."""
    *before, last = picked
    nearest = max((cosines[last, j] for j in before), default=0.0)
    return float((1 - diversity) * relevance[last] - diversity * nearest)


def dpp_value(picked: list[int], relevance: Values, cosines: Values, diversity: float) -> float:
    """Return (1 − δ) Σ_{i ∈ Y} r_i + δ ln det S_Y with S = (1 − ε) cos + ε I: for δ > 0, δ · ln det L_Y of `DPP`."""
    S = (1 - RIDGE) * cosines[np.ix_(picked, picked)]
    np.fill_diagonal(S, 1.0)
    return float((1 - diversity) * relevance[picked].sum() + diversity * np.linalg.slogdet(S)[1])


def calibrated_value(picked: list[int], relevance: Values, groups: Array, wanted: Values, strength: float) -> float:
    """Return (1 − σ) · mean of r over Y − σ · JS(shares of groups in Y, wanted), times the number of items picked."""
    shares = np.bincount(groups[picked], minlength=len(wanted)) / len(picked)
    middle = (shares + wanted) / 2
    bits = sum((p[p > 0] * np.log2(p[p > 0] / middle[p > 0])).sum() / 2 for p in (shares, wanted))
    return float((1 - strength) * relevance[picked].sum() - strength * len(picked) * bits)
