"""Half steps of alternating least squares by coordinate descent.

This is iCD (Bayer, He, Kanagal and Rendle 2017).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types

from shortlist._numba import fast_kernel
from shortlist._prefetch import intrinsic, prefetch
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pointwise_square import Terms, gramian
from shortlist.solvers.eigenbasis import drop_noise
from shortlist.solvers.normal_equations import row_system

Array: TypeAlias = npt.NDArray[Any]
_TILE = 8  # pairs and coordinates that are transposed at once
_AHEAD = 8  # embeddings are prefetched this many pairs ahead
_LINE = 16  # floats in a cache line
_PANEL = 2**17  # floats of a row's pairs that are kept at once: half of a second-level cache


class CoordinateSolver:
    """A half-step that sweeps once over the coordinates of every row, minimising over one coordinate at a time.

    With the residuals q = excess·ŷ − target of the row's observed pairs and G the Gramian of all of `other`,

        w_f ← w_f − (Σ q·ψ_f + dense·(Gw)_f + ridge·w_f) / (Σ excess·ψ_f² + dense·G_ff + ridge)

    and the residuals are updated. This takes O(n·d + d²) for a row of n pairs. Rows without pairs become zero, which is
    their minimum. A coordinate does not change if the loss does not depend on it. A row's result depends on no other
    row, so the result does not depend on the number of threads.

    Its basis is G.
    """

    def prepare(
        self,
        rows: SparseRows,
        terms: Terms,
        other: npt.NDArray[np.float32],
        embeddings: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Return the other side's Gramian; coordinates that are only rounding errors become zero on both sides."""
        if not terms.ridge.any() and not terms.dense.any():  # only the observed pairs determine a coordinate
            drop_noise(np.ones(other.shape[1]), other, embeddings)
        return gramian(other, terms.omega, threads).astype(np.float32)

    def solve(
        self,
        rows: SparseRows,
        terms: Terms,
        other: npt.NDArray[np.float32],
        basis: npt.NDArray[np.float32],
        out: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> None:
        """Sweep over these rows; see `HalfStep`."""

        def sweep(start: int, stop: int) -> None:
            _sweep_rows(
                rows.indptr, rows.indices, terms.excess, terms.target, terms.ridge, terms.dense,
                other, basis, out, _PANEL, start, stop,
            )  # fmt: skip

        chunks = balanced_chunks(rows.lengths + other.shape[1] / 8 + 1.0, 16 * thread_count(threads))
        run_chunks(sweep, chunks, threads)


def half_step_reference(
    rows: SparseRows, terms: Terms, other: npt.NDArray[np.float32], embeddings: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    """Return the result of a half-step, a Gauss–Seidel sweep of each row's system; the NumPy twin of the kernel."""
    exact, out = other.astype(np.float64), embeddings.astype(np.float64)
    G = (exact.T * terms.omega) @ exact
    out[rows.lengths == 0] = 0
    for r in np.flatnonzero(rows.lengths):
        A, b = row_system(rows, terms, other, G, int(r))
        for f in np.flatnonzero(np.diag(A) > 0):
            out[r, f] += (b[f] - A[f] @ out[r]) / A[f, f]
    return out


@intrinsic
def _transpose_tile(_: Any, source: Any, lines: Any, column: Any, out: Any, row: Any, at: Any) -> Any:
    """out[row : row + 8, at : at + 8] = source[lines, column : column + 8].T for 8 lines; contiguous float32 arrays.

    8 loads, 3 rounds of 8 shuffles and 8 stores; two plain loops take about twice as long.
    """
    vector, lane, whole = ir.VectorType(ir.FloatType(), _TILE), ir.IntType(32), ir.IntType(64)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        def place(array: Any, i: Any, j: Any) -> Any:
            offset = builder.add(builder.mul(builder.extract_value(array.shape, 1), i), j)
            return builder.bitcast(builder.gep(array.data, [offset]), vector.as_pointer())

        def pick(a: Any, b: Any, lanes: list[int]) -> Any:
            return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(lane, _TILE), lanes))

        source, lines, out = (context.make_array(signature.args[k])(context, builder, values[k]) for k in (0, 1, 3))
        column, row, at = values[2], values[4], values[5]
        numbers = [builder.load(builder.gep(lines.data, [whole(i)])) for i in range(_TILE)]
        v = [builder.load(place(source, number, column), align=4) for number in numbers]
        for h in (1, 2, 4):  # swap the off-diagonal quarters of every 2h × 2h square
            low = [q + _TILE - h if q & h else q for q in range(_TILE)]
            high = [q + _TILE if q & h else q + h for q in range(_TILE)]
            v = [pick(v[i & ~h], v[i | h], high if i & h else low) for i in range(_TILE)]
        for i in range(_TILE):
            builder.store(v[i], place(out, builder.add(row, whole(i)), at), align=4)
        return context.get_dummy_value()

    return types.void(source, lines, column, out, row, at), generate


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
    panel: int,
    start: int,
    stop: int,
) -> None:
    """Gather the embeddings of a row's pairs coordinate by coordinate, then sweep, so that every pass is contiguous.

    `panel` limits the floats gathered at once, but at least 8 coordinates are: memory grows by 40 bytes for each pair
    of the longest row. Long rows are bound by the bytes of the gathered embeddings. Short rows are bound by latency: a
    coordinate waits about 30 ns for the sums of the coordinate before.
    """
    d = other.shape[1]
    longest = 0
    for r in range(start, stop):
        longest = max(longest, indptr[r + 1] - indptr[r])
    longest = -(-longest // _TILE) * _TILE
    buffer = np.empty(max(min(panel, longest * d), longest * min(d, _TILE)), np.float32)
    q = np.empty(longest, np.float32)
    D = np.empty(longest, np.float32)
    curve = np.empty(d, np.float32)  # Σ excess·ψ_f²
    lines = np.empty(_TILE, np.int64)
    last = len(indices) - 1
    for r in range(start, stop):
        begin, end = indptr[r], indptr[r + 1]
        w = embeddings[r]
        if begin == end:
            w[:] = 0
            continue
        m = -(-(end - begin) // _TILE) * _TILE
        curve[:] = 0
        for k in range(m):
            e = begin + k
            if e >= end:  # padding, with weight 0
                q[k] = 0
                D[k] = 0
                continue
            ahead = indices[min(e + _AHEAD, last)]
            for f in range(0, d, _LINE):
                prefetch(other, ahead, f)
            psi = other[indices[e]]
            a = excess[e] if len(excess) > 1 else excess[0]
            score = np.float32(0)
            for f in range(d):
                score += w[f] * psi[f]
                curve[f] += a * psi[f] * psi[f]
            D[k] = a
            q[k] = a * score - (target[e] if len(target) > 1 else target[0])
        a0 = np.float64(dense[r] if len(dense) > 1 else dense[0])
        penalty = np.float64(ridge[r] if len(ridge) > 1 else ridge[0])
        width = d if d * m <= len(buffer) else len(buffer) // m // _TILE * _TILE
        P = buffer[: width * m].reshape((width, m))
        for first in range(0, d, width):
            size = min(d - first, width)
            for k in range(0, m, _TILE):
                for t in range(_TILE):
                    lines[t] = indices[min(begin + k + t, end - 1)]
                if size < _TILE:
                    for t in range(_TILE):
                        for f in range(size):
                            P[f, k + t] = other[lines[t], first + f]
                else:
                    for tile in range(0, size, _TILE):
                        f = min(tile, size - _TILE)
                        _transpose_tile(other, lines, first + f, P, f, k)
            for f in range(first, first + size):
                p = P[f - first]
                slope = np.float32(0)
                for k in range(m):
                    slope += q[k] * p[k]
                wide_slope = np.float32(0)
                for g in range(d):
                    wide_slope += G[f, g] * w[g]
                # In float64, so that no setting overflows. With excess < 0 the sum may be nothing but rounding error.
                fixed = a0 * G[f, f] + penalty
                total = fixed + curve[f]
                move = np.float32(-(slope + a0 * wide_slope + penalty * w[f]) / total)
                if total > 1e-5 * fixed and total > 0 and np.isfinite(move):
                    w[f] += move
                    for k in range(m):
                        q[k] += move * D[k] * p[k]
