"""Elastic nets by coordinate descent: regress each column of a sparse matrix on the others, as SLIM does.

Ning and Karypis, "SLIM: Sparse Linear Methods for Top-N Recommender Systems", ICDM 2011.
"""

from __future__ import annotations

import warnings
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import refuse_large_squares
from shortlist._numba import fast_kernel, kernel
from shortlist._threads import Step, balanced_chunks, run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows, product_work
from shortlist.errors import ShortlistWarning

Array: TypeAlias = npt.NDArray[Any]

KEPT = 2**30  # largest Gramian, in bytes, that is computed once and kept


def solve_columns(
    by_column: SparseRows,
    column_strengths: npt.NDArray[np.float32],
    by_row: SparseRows,
    row_strengths: npt.NDArray[np.float32],
    *,
    l1: float,
    l2: float,
    positive: bool,
    tolerance: float,
    sweeps: int,
    threads: int | None = None,
    step: Step | None = None,
) -> SparseRows:
    """Solve w = argmin ½‖x_i − Xw‖² + λ₁‖w‖₁ + ½λ₂‖w‖² with w_i = 0 for every column i of X; w ≥ 0 if `positive`.

    Row i of the result is the w of column i. All computations use the Gramian G = XᵀX. With the residual correlation
    g_j = G_ji − Σ_k G_jk·w_k, the best value of a coordinate given the others is

        w_j = S(g_j + G_jj·w_j, λ₁) / (G_jj + λ₂),   S(z, λ) = sign(z)·max(|z| − λ, 0), or max(z − λ, 0) if positive.

    * With w ≥ 0 (and X ≥ 0), g_j never exceeds G_ji, so a column with G_ji ≤ λ₁ keeps weight 0 and is dropped at once.
    * Coordinate descent runs on a working set. The columns that violate the optimality conditions most are added, at
      most as many as are in the set. The set is swept until it converges. Then all columns are checked again, until
      none violates the conditions.
    * The non-zero entries of G are computed once if they fit into `KEPT` bytes. Otherwise column j of G is summed from
      the rows of X with j when j is added to a working set.

    Args:
        by_column: X by columns.
        column_strengths: the values of the entries of `by_column`; a single value applies to all.
        by_row: X by rows.
        row_strengths: the values of the entries of `by_row`; a single value applies to all.
        l1: λ₁, in the units of G: counts, if X is binary.
        l2: λ₂, in the units of G.
        positive: whether w ≥ 0.
        tolerance: how much a g_j may violate its optimality condition, as a fraction of the largest G_ji.
        sweeps: maximum number of sweeps over a working set.
        threads: number of threads; the result does not depend on it.
        step: called with the number of finished columns and the number of columns.
    """
    n = by_column.n_rows
    diagonal = np.zeros(n)
    _squares(by_column.indptr, column_strengths, diagonal)
    refuse_large_squares("an item", diagonal)
    work = product_work(by_column, by_row.lengths)
    G = _gramian(by_column, column_strengths, int(work.sum()))
    parts: dict[int, tuple[Array, Array, Array, int]] = {}

    def solve(start: int, stop: int) -> None:
        counts, items, values, n_missed = _solve(
            by_column.indptr, by_column.indices, column_strengths, by_row.indptr, by_row.indices, row_strengths,
            *G, diagonal, l1, l2, positive, tolerance, sweeps, start, stop,
        )  # fmt: skip
        size = int(counts.sum())
        parts[start] = counts, items[:size].copy(), values[:size].copy(), n_missed

    run_chunks(solve, balanced_chunks(work + work.mean() + 1, 64 * thread_count(threads)), threads, step)
    ordered = [parts[start] for start in sorted(parts)]
    if n_missed := sum(part[3] for part in ordered):
        warnings.warn(
            f"{n_missed:,} of {n:,} elastic nets did not converge to a tolerance of {tolerance:g} within {sweeps:,} "
            "sweeps; raise sweeps, l2 or tolerance",
            ShortlistWarning,
            stacklevel=5,
        )
    counts = np.concatenate([part[0] for part in ordered])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return SparseRows(indptr, np.concatenate([p[1] for p in ordered]), np.concatenate([p[2] for p in ordered]), n)


def _gramian(by_column: SparseRows, strengths: npt.NDArray[np.float32], additions: int) -> tuple[Array, Array, Array]:
    """Return XᵀX by rows (their columns in any order) if it is small for sure, otherwise empty arrays."""
    n = by_column.n_rows
    if min(additions, n * n) * 8 > KEPT:
        return np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
    import scipy.sparse as sp

    values = np.broadcast_to(strengths, len(by_column)).astype(np.float32)
    X = sp.csr_array((values, by_column.indices, by_column.indptr), shape=(n, by_column.n_columns))
    G = (X @ X.T).tocsr()
    return G.indptr.astype(np.int64), G.indices.astype(np.int32, copy=False), G.data


@kernel
def _squares(indptr: Array, strengths: Array, out: Array) -> None:
    for r in range(len(indptr) - 1):
        for e in range(indptr[r], indptr[r + 1]):
            x = float(strengths[e] if len(strengths) > 1 else strengths[0])
            out[r] += x * x


@kernel
def _solve(
    c_indptr: Array, c_indices: Array, c_values: Array, r_indptr: Array, r_indices: Array, r_values: Array,
    g_indptr: Array, g_indices: Array, g_values: Array, diagonal: Array,
    l1: float, l2: float, positive: bool, tolerance: float, sweeps: int, start: int, stop: int,
) -> tuple[Array, Array, Array, int]:  # fmt: skip
    """Solve for columns start…stop. The returned arrays of items and weights may have unused space at the end.

    Bound by reading columns of G. For each i and each j in its working set, this takes |G_j| steps if G is kept,
    otherwise Σ_{c∈C_j}|I_c|. Each step accesses a random position of a table that fits in the second-level cache.
    """
    n = len(c_indptr) - 1
    counts = np.zeros(stop - start, np.int64)
    out_items, out_values = np.empty(1024, np.int32), np.empty(1024, np.float32)
    n_out = 0
    n_missed = 0
    sums = np.zeros(n, np.float32)
    touched, sorting = np.empty(n, np.int32), np.empty(n, np.int32)
    place = np.empty(n, np.int32)  # position of a column among the candidates
    for j in range(n):
        place[j] = -1
    columns = np.empty(1 << 16, np.float32)  # columns of G, one for each member of the working set, at the candidates
    for i in range(start, stop):
        # --- G_ji for all j, and the columns that can have a weight
        n_touched = _overlaps(
            c_indptr, c_indices, c_values, r_indptr, r_indices, r_values, g_indptr, g_indices, g_values,
            i, sums, touched,
        )  # fmt: skip
        sums[i] = 0  # w_i is 0
        candidates, m = _candidates(i, positive, l1, sums, touched, n_touched, sorting)
        g = np.empty(m)
        largest = 0.0
        for p in range(m):
            g[p] = sums[candidates[p]]
            largest = max(largest, g[p])
            place[candidates[p]] = p
        for t in range(n_touched):
            sums[touched[t]] = 0
        # --- the working set grows until no column outside of it violates its optimality condition
        w = np.zeros(m)
        inside = np.zeros(m, np.bool_)
        members = np.empty(m, np.int32)
        size = 0
        slack = tolerance * largest
        good = True
        while largest > l1:
            first = size
            size = _join(g, inside, members, size, l1, slack, positive)
            if size == first:
                break
            if size * m > len(columns):
                columns = _grown(columns, first * m, 2 * size * m)
            for a in range(first, size):
                _column(
                    c_indptr, c_indices, c_values, r_indptr, r_indices, r_values, g_indptr, g_indices, g_values,
                    candidates[members[a]], place, columns[a * m : (a + 1) * m],
                )  # fmt: skip
            good = _descend(g, w, members, size, columns, diagonal, candidates, l1, l2, positive, slack, sweeps)
        n_missed += not good
        # --- store the non-zero weights
        for p in range(m):
            place[candidates[p]] = -1
            if w[p] != 0:
                if n_out == len(out_items):
                    out_items, out_values = _grown(out_items, n_out, 2 * n_out), _grown(out_values, n_out, 2 * n_out)
                out_items[n_out], out_values[n_out] = candidates[p], w[p]
                n_out += 1
                counts[i - start] += 1
    return counts, out_items, out_values, n_missed


@kernel
def _grown(array: Array, size: int, capacity: int) -> Array:
    """Copy the first `size` numbers into an array of size `capacity`; NumPy's functions take far longer to compile."""
    out = np.empty(capacity, array.dtype)
    for k in range(size):
        out[k] = array[k]
    return out


@kernel
def _candidates(
    i: int, positive: bool, l1: float, sums: Array, touched: Array, n_touched: int, buffer: Array
) -> tuple[Array, int]:
    """Return the columns that can have a weight, ascending, and their number; the array is reused by the next call."""
    m = 0
    if positive:
        for t in range(n_touched):
            if sums[touched[t]] > l1:
                buffer[m] = touched[t]
                m += 1
        return _sorted(buffer, np.empty(m, np.int32), m, len(sums)), m
    for j in range(len(sums)):
        if j != i:
            buffer[m] = j
            m += 1
    return buffer, m


@kernel
def _sorted(codes: Array, buffer: Array, size: int, n: int) -> Array:
    """Sort codes below n in ascending order, byte by byte; return the array with the result, `codes` or `buffer`."""
    starts = np.empty(257, np.int64)
    shift = 0
    while n >> shift > 0:
        for b in range(257):
            starts[b] = 0
        for k in range(size):
            starts[((codes[k] >> shift) & 255) + 1] += 1
        for b in range(256):
            starts[b + 1] += starts[b]
        for k in range(size):
            b = (codes[k] >> shift) & 255
            buffer[starts[b]] = codes[k]
            starts[b] += 1
        codes, buffer = buffer, codes
        shift += 8
    return codes


@kernel
def _overlaps(
    c_indptr: Array, c_indices: Array, c_values: Array, r_indptr: Array, r_indices: Array, r_values: Array,
    g_indptr: Array, g_indices: Array, g_values: Array, i: int, sums: Array, touched: Array,
) -> int:  # fmt: skip
    """Write column i of G to `sums` and its non-zero rows to `touched`; read G if it is kept, otherwise sum it up."""
    n_touched = 0
    if len(g_indptr) > 1:
        for p in range(g_indptr[i], g_indptr[i + 1]):
            touched[n_touched] = g_indices[p]
            n_touched += 1
            sums[g_indices[p]] = g_values[p]
        return n_touched
    for e in range(c_indptr[i], c_indptr[i + 1]):
        x = c_values[e] if len(c_values) > 1 else c_values[0]
        for p in range(r_indptr[c_indices[e]], r_indptr[c_indices[e] + 1]):
            j = r_indices[p]
            y = x * (r_values[p] if len(r_values) > 1 else r_values[0])
            if sums[j] == 0 and y > 0:
                touched[n_touched] = j
                n_touched += 1
            sums[j] += y
    return n_touched


@kernel
def _join(g: Array, inside: Array, members: Array, size: int, l1: float, slack: float, positive: bool) -> int:
    """Add the columns whose |g| exceeds λ₁ most: at most as many as are in the working set, and at first 16."""
    outside = np.empty(len(g), np.float64)
    n_outside = 0
    for p in range(len(g)):
        excess = (g[p] if positive else abs(g[p])) - l1
        if not inside[p] and excess > slack:
            outside[n_outside] = excess
            n_outside += 1
    if n_outside == 0:
        return size
    wanted = max(16, size)
    bar = 0.0
    if n_outside > wanted:
        bar = _kth(outside, n_outside, n_outside - wanted)
    for p in range(len(g)):
        excess = (g[p] if positive else abs(g[p])) - l1
        if not inside[p] and excess > slack and excess >= bar:
            inside[p] = True
            members[size] = p
            size += 1
    return size


@kernel
def _kth(values: Array, n: int, k: int) -> float:
    """Return the k-th smallest, from 0, of the first n values; reorders them (Hoare's selection)."""
    low, high = 0, n - 1
    while low < high:
        pivot = values[(low + high) // 2]
        a, b = low, high
        while a <= b:
            while values[a] < pivot:
                a += 1
            while values[b] > pivot:
                b -= 1
            if a <= b:
                values[a], values[b] = values[b], values[a]
                a += 1
                b -= 1
        if k <= b:
            high = b
        elif k >= a:
            low = a
        else:
            break
    return float(values[k])


@kernel
def _column(
    c_indptr: Array, c_indices: Array, c_values: Array, r_indptr: Array, r_indices: Array, r_values: Array,
    g_indptr: Array, g_indices: Array, g_values: Array, j: int, place: Array, out: Array,
) -> None:  # fmt: skip
    """Write column j of G at the candidates to `out`; read G if it is kept, otherwise sum it up."""
    for p in range(len(out)):
        out[p] = 0
    if len(g_indptr) > 1:
        for p in range(g_indptr[j], g_indptr[j + 1]):
            at = place[g_indices[p]]
            if at >= 0:
                out[at] = g_values[p]
        return
    for e in range(c_indptr[j], c_indptr[j + 1]):
        x = c_values[e] if len(c_values) > 1 else c_values[0]
        for p in range(r_indptr[c_indices[e]], r_indptr[c_indices[e] + 1]):
            at = place[r_indices[p]]
            if at >= 0:
                out[at] += x * (r_values[p] if len(r_values) > 1 else r_values[0])


@fast_kernel
def _descend(
    g: Array, w: Array, members: Array, size: int, columns: Array, diagonal: Array, candidates: Array,
    l1: float, l2: float, positive: bool, slack: float, sweeps: int,
) -> bool:  # fmt: skip
    """Sweep over the working set until its optimality conditions are met within the slack; return whether they are.

    `columns` has the columns of the working set one after the other. At the end the g of every candidate is updated.
    """
    m = len(g)
    residual = np.empty(size)  # g of the members
    among = np.empty((size, size), np.float32)  # G among the members
    moved = np.zeros(size)
    for a in range(size):
        residual[a] = g[members[a]]
        for b in range(size):
            among[a, b] = columns[a * m + members[b]]
    done = False
    for _ in range(sweeps):
        largest = 0.0
        for a in range(size):
            p = members[a]
            d = diagonal[candidates[p]]
            z = residual[a] + d * w[p]
            new = max(z - l1, 0.0) / (d + l2)
            if not positive and z < -l1:
                new = (z + l1) / (d + l2)
            change = new - w[p]
            if change != 0:
                w[p] = new
                moved[a] += change
                for b in range(size):
                    residual[b] -= change * among[a, b]
                largest = max(largest, abs(change) * (d + l2))
        if largest <= 0.5 * slack and _worst(residual, w, members, size, l1, l2, positive) <= 0.5 * slack:
            done = True
            break
    for a in range(size):
        if moved[a] != 0:
            column = columns[a * m : (a + 1) * m]
            for p in range(m):
                g[p] -= moved[a] * column[p]
    return done


@kernel
def _worst(residual: Array, w: Array, members: Array, size: int, l1: float, l2: float, positive: bool) -> float:
    """Return the largest violation of a member's optimality condition: g − λ₂w = ±λ₁ if w ≠ 0, otherwise |g| ≤ λ₁."""
    worst = 0.0
    for a in range(size):
        value = w[members[a]]
        if value != 0:
            worst = max(worst, abs(residual[a] - l2 * value - (l1 if value > 0 else -l1)))
        else:
            worst = max(worst, (residual[a] if positive else abs(residual[a])) - l1)
    return worst
