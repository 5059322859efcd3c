"""Square losses as quadratic functions of one side's embeddings, for Algorithm 4 of the article.

For a fixed other side Ψ, both square losses are

    L(Φ) = ⟨Φ, 𝒜Φ⟩ − 2⟨B, Φ⟩ + a constant

with a symmetric 𝒜 ≥ 0. The matrix 𝒜 is never formed. Applying it costs one pass over the observed pairs and a product
with a Gramian of Ψ. For parameters θ in which Φ = Jθ + rest is linear, half of the gradient is Jᵀ(𝒜Φ − B) and half of
the Hessian is Jᵀ𝒜J. (The Hessian printed in the article, ∇φ ⊗ ∇φ, lacks ψ: ∇ŷ = ⟨∇φ, ψ⟩.)
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel, fast_lean_kernel
from shortlist._prefetch import prefetch
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.solvers.cholesky import AHEAD, LINE

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
NONE = np.zeros(1, np.float32)
_NO_LEVEL = np.zeros(0, np.float32)
# A direction is flat if its curvature is below this fraction of what the diagonal alone predicts. Float32 cannot
# distinguish such a curvature from zero, and a step along it would be rounding error divided by a tiny number.
FLAT = np.float32(1e-6)


class DirectionGains(NamedTuple):
    """Half of the first and second derivatives of the loss along a direction P_k for each row, for coordinate descent.

    If rows are coupled, moving row k by δ changes the slope of every other row j along P_j by
    −δ·(⟨B_jP_j, a_kP_k⟩ + a_j⟨P_j, B_kP_k⟩). Then `pull` is a_k P_k and `push` is B_kP_k, both in the coordinates that
    move.
    """

    slope: npt.NDArray[np.float64]
    curvature: npt.NDArray[np.float64]
    pull: Floats | None = None
    push: Floats | None = None


class Quadratic(Protocol):
    """𝒜 and B of some rows while the other rows are fixed. Arrays have these rows and all coordinates."""

    coupled: bool  # whether 𝒜 has entries between different rows

    def apply(self, P: Floats) -> Floats:
        """Return 𝒜P, for a P that is 0 in all other rows."""

    def slope(self, Phi: Floats) -> Floats:
        """Return 𝒜Φ − B, half of the gradient."""

    def diagonal(self) -> Floats:
        """Return the diagonal of 𝒜."""

    def part(self, rows: npt.NDArray[np.int64]) -> Quadratic:
        """Return the quadratic of some of these rows."""

    def moved(self, change: Floats) -> None:
        """Update the state after these rows have changed by `change`."""

    def descent(self, Phi: Floats) -> Descent:
        """Return the state of coordinate descent in these rows, whose current embeddings are Φ."""


class Descent(Protocol):
    """Scores of the observed pairs, updated while coordinates of the rows move one after the other."""

    def gains(self, Phi: Floats, P: Floats, dims: npt.NDArray[np.int64]) -> DirectionGains:
        """Return the derivatives along P, which has a column for each of the coordinates `dims`; the others are 0."""

    def moved(self, steps: Floats) -> None:
        """Update the scores after each row has moved by its step times its direction in the last `gains`."""


class IndependentRows:
    """A quadratic with independent rows: `PointwiseSquare` on both sides, `PairwiseSquare` for contexts.

    The block of 𝒜 of a row is dense·G + Σ quad·ψψᵀ, and its B is Σ lin·ψ − dense·shift; `shift` is 0 by default. An
    array of one element applies to all rows or pairs.
    """

    coupled = False

    def __init__(
        self,
        rows: SparseRows,
        other: Floats,
        G: Floats,
        *,
        quad: Floats,
        lin: Floats,
        dense: Floats,
        shift: Floats | None = None,
        threads: int | None = None,
    ) -> None:
        self.rows, self.other, self.G = rows, other, G
        self.quad, self.lin, self.dense, self.shift, self.threads = quad, lin, dense, shift, threads

    def apply(self, P: Floats) -> Floats:
        """Return 𝒜P. Bound by the gathered rows of the other side."""
        return self._with_pairs(P, NONE)

    def slope(self, Phi: Floats) -> Floats:
        """Return 𝒜Φ − B."""
        out = self._with_pairs(Phi, self.lin)
        if self.shift is not None:
            out += self.dense[:, None] * self.shift
        return out

    def _with_pairs(self, P: Floats, lin: Floats) -> Floats:
        if len(self.dense) == 1:
            out: Floats = P @ (self.dense[0] * self.G)
        else:
            out = P @ self.G
            out *= self.dense[:, None]
        add_pairs(self.rows, self.quad, lin, self.other, P, out, self.threads)
        return out

    def diagonal(self) -> Floats:
        """Return the diagonal of every row's block."""
        out: Floats = np.diagonal(self.G) * self.dense[:, None]
        if len(out) != self.rows.n_rows:
            out = np.repeat(out, self.rows.n_rows, axis=0)
        add_squares(self.rows, self.quad, self.other, out, self.threads)
        return out

    def part(self, rows: npt.NDArray[np.int64]) -> IndependentRows:
        """Return the quadratic of some of the rows."""
        pairs = pairs_of(self.rows, rows)
        return IndependentRows(
            self.rows.take(rows),
            self.other,
            self.G,
            quad=_some(self.quad, pairs),
            lin=_some(self.lin, pairs),
            dense=_some(self.dense, rows),
            shift=self.shift,
            threads=self.threads,
        )

    def moved(self, change: Floats) -> None:
        """Do nothing: rows are independent."""

    def descent(self, Phi: Floats) -> RowDescent:
        """See `Quadratic`."""
        return RowDescent(self, Phi)


class RowDescent:
    """Coordinate descent in independent rows. A coordinate of n rows costs O(|S| + n·d)."""

    def __init__(self, quadratic: IndependentRows, Phi: Floats) -> None:
        self._q = quadratic
        self._pairs = PairScores(quadratic.rows, quadratic.other, Phi, quadratic.threads)

    def gains(self, Phi: Floats, P: Floats, dims: npt.NDArray[np.int64]) -> DirectionGains:
        """See `Descent`."""
        q = self._q
        slope, curvature, _ = self._pairs.gains(P, dims, q.quad, q.lin, _NO_LEVEL)
        slope += q.dense * np.einsum("rt,rt->r", P, Phi @ q.G[:, dims], dtype=np.float64)
        curvature += q.dense * np.einsum("rt,rt->r", P @ q.G[np.ix_(dims, dims)], P, dtype=np.float64)
        if q.shift is not None:
            slope += q.dense * (P @ q.shift[dims])
        return DirectionGains(slope, curvature)

    def moved(self, steps: Floats) -> None:
        """See `Descent`."""
        self._pairs.moved(steps)


class CoupledItems:
    """The quadratic of `PairwiseSquare` in its items, which are coupled through z = Σa_jψ_j and v = ΣB_jψ_j.

        (𝒜Ψ)_k = B_k(ψ_k − z) + a_k(Gψ_k − v),   row k of B: Σ_{c∈C_k} a_ck φ_c − a_k q

    with B_k = Σ_{c∈C_k} a_ck φ_cφ_cᵀ, G = Σ n_cφ_cφ_cᵀ and q = Σ n_cφ_c; Σ_j a_j = 1.

    Args:
        rows: the contexts of each item.
        other: Φ.
        G: see above.
        q: see above.
        strength: a_ck by pair.
        share: a_k by item.
        z: z of all items, updated by `moved`.
        v: v of all items, updated by `moved`.
        threads: number of threads.
    """

    coupled = True

    def __init__(
        self,
        rows: SparseRows,
        other: Floats,
        G: Floats,
        q: Floats,
        *,
        strength: Floats,
        share: Floats,
        z: Floats,
        v: Floats,
        threads: int | None = None,
    ) -> None:
        self.rows, self.other, self.G, self.q, self.threads = rows, other, G, q, threads
        self.strength, self.share, self.z, self.v = strength, share, z, v
        weights = np.broadcast_to(strength, len(rows))
        self._of_contexts = np.bincount(rows.indices, weights, rows.n_columns).astype(
            np.float32
        )  # Σ_k a_ck, by context

    def _shared(self, P: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the changes dz and dv of z and v when the items move by P, and B_k(P_k − dz)."""
        dz: Floats = self.share @ P
        out = np.zeros_like(P)
        add_pairs(self.rows, self.strength, NONE, self.other, P - dz, out, self.threads)
        dv: Floats = out.sum(axis=0) + (self._of_contexts * (self.other @ dz)) @ self.other
        return dz, dv, out

    def apply(self, P: Floats) -> Floats:
        """Return 𝒜P in one pass over the pairs, using Σ_kB_k dz = Σ_c (Σ_k a_ck)⟨φ_c, dz⟩φ_c."""
        _, dv, out = self._shared(P)
        out += self.share[:, None] * (P @ self.G - dv)
        return out

    def slope(self, Phi: Floats) -> Floats:
        """Return 𝒜Ψ − B of the current items."""
        out: Floats = self.share[:, None] * (Phi @ self.G - self.v + self.q)
        add_pairs(self.rows, self.strength, self.strength, self.other, Phi - self.z, out, self.threads)
        return out

    def diagonal(self) -> Floats:
        """Return (1 − 2a_k)·diag B_k + a_k·diag G."""
        out = np.zeros((self.rows.n_rows, self.other.shape[1]), np.float32)
        add_squares(self.rows, self.strength, self.other, out, self.threads)
        out *= 1 - 2 * self.share[:, None]
        out += self.share[:, None] * np.diagonal(self.G)
        return out

    def part(self, rows: npt.NDArray[np.int64]) -> CoupledItems:
        """Return the quadratic of some of the items; it shares the arrays z and v."""
        some = self.rows.take(rows)
        strength = _some(self.strength, pairs_of(self.rows, rows))
        state = {"z": self.z, "v": self.v, "threads": self.threads}
        return CoupledItems(some, self.other, self.G, self.q, strength=strength, share=self.share[rows], **state)  # type: ignore[arg-type]

    def moved(self, change: Floats) -> None:
        """Update z and v."""
        dz, dv, _ = self._shared(change)
        self.z += dz
        self.v += dv

    def descent(self, Phi: Floats) -> CoupledDescent:
        """See `Quadratic`."""
        return CoupledDescent(self, Phi)


class CoupledDescent:
    """Coordinate descent in coupled items.

    Besides the scores it keeps x_c = ⟨φ_c, z⟩ of every context, and updates z and v after each move.
    """

    def __init__(self, quadratic: CoupledItems, Phi: Floats) -> None:
        self._q = quadratic
        self._pairs = PairScores(quadratic.rows, quadratic.other, Phi, quadratic.threads)
        self._x: Floats = quadratic.other @ quadratic.z
        self._last: tuple[Floats, npt.NDArray[np.int64]] | None = None

    def gains(self, Phi: Floats, P: Floats, dims: npt.NDArray[np.int64]) -> DirectionGains:
        """See `Descent`."""
        q = self._q
        slope, curvature, push = self._pairs.gains(P, dims, q.strength, q.strength, self._x, push=True)
        dense = Phi @ q.G[:, dims] - q.v[dims] + q.q[dims]
        slope += q.share * np.einsum("rt,rt->r", P, dense, dtype=np.float64)
        curvature += q.share * np.einsum("rt,rt->r", P @ q.G[np.ix_(dims, dims)], P, dtype=np.float64)
        self._last = P, dims
        return DirectionGains(slope, curvature, q.share[:, None] * P, push)

    def moved(self, steps: Floats) -> None:
        """See `Descent`; updates z, v and x too."""
        assert self._last is not None
        q, (P, dims) = self._q, self._last
        self._pairs.moved(steps)
        dz = (q.share * steps) @ P
        q.z[dims] += dz
        self._x += q.other[:, dims] @ dz
        by_context = np.zeros(q.rows.n_columns, np.float32)
        _scatter(q.rows.indptr, q.rows.indices, q.strength, self._pairs.along, steps, by_context)
        q.v += by_context @ q.other


class PairScores:
    """The scores of the observed pairs of some rows, and their derivatives ∇ŷ along the rows' directions."""

    def __init__(self, rows: SparseRows, other: Floats, Phi: Floats, threads: int | None) -> None:
        self._rows, self._other, self._threads = rows, other, threads
        self._chunks = balanced_chunks(rows.lengths + 1.0, 16 * thread_count(threads))
        self.scores, self.along = (np.empty(len(rows), np.float32) for _ in range(2))

        def score(start: int, stop: int) -> None:
            _score(rows.indptr, rows.indices, other, Phi, self.scores, start, stop)

        run_chunks(score, self._chunks, threads)

    def gains(
        self,
        P: Floats,
        dims: npt.NDArray[np.int64],
        quad: Floats,
        lin: Floats,
        level: Floats,
        push: bool = False,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], Floats | None]:
        """Return Σ(quad·(ŷ − level) − lin)·∇ŷ and Σ quad·∇ŷ² for each row; with `push` also Σ quad·∇ŷ·ψ.

        `level` has a value for each column; an empty array means 0.
        """
        rows = self._rows
        sums = np.zeros((rows.n_rows, 2))
        pushed = np.zeros((rows.n_rows, len(dims) if push else 0), np.float32)
        columns, P = np.ascontiguousarray(self._other[:, dims]), np.ascontiguousarray(P)

        def add(start: int, stop: int) -> None:
            _gains(
                rows.indptr, rows.indices, quad, lin, level, columns, P, self.scores, self.along,
                sums, pushed, start, stop,
            )  # fmt: skip

        run_chunks(add, self._chunks, self._threads)
        return sums[:, 0], sums[:, 1], pushed if push else None

    def moved(self, steps: Floats) -> None:
        """Update the scores after each row has moved by its step along its direction."""
        self.scores += np.repeat(steps, self._rows.lengths) * self.along


def pairs_of(rows: SparseRows, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the positions of the pairs of these rows."""
    lengths = rows.lengths[chosen]
    ends = np.cumsum(lengths)
    return np.repeat(rows.indptr[chosen] - (ends - lengths), lengths) + np.arange(int(lengths.sum()))


def _some(array: Floats, index: npt.NDArray[np.int64]) -> Floats:
    return array if len(array) == 1 else array[index]


def add_pairs(
    rows: SparseRows, quad: Floats, lin: Floats, other: Floats, P: Floats, out: Floats, threads: int | None
) -> None:
    """Add Σ (quad·⟨P_r, ψ⟩ − lin)·ψ over the pairs of each row r to out_r."""

    def add(start: int, stop: int) -> None:
        _add_pairs(rows.indptr, rows.indices, quad, lin, other, P, out, start, stop)

    run_chunks(add, balanced_chunks(rows.lengths + 1.0, 16 * thread_count(threads)), threads)


def add_squares(rows: SparseRows, quad: Floats, other: Floats, out: Floats, threads: int | None) -> None:
    """Add Σ quad·ψ² over the pairs of each row r to out_r."""

    def add(start: int, stop: int) -> None:
        _add_squares(rows.indptr, rows.indices, quad, other, out, start, stop)

    run_chunks(add, balanced_chunks(rows.lengths + 1.0, 16 * thread_count(threads)), threads)


@fast_lean_kernel
def prefetch_row(other: Array, i: int) -> None:
    """Prefetch a row that will be read soon."""
    for f in range(0, other.shape[1], LINE):
        prefetch(other, i, f)


@fast_kernel
def _add_pairs(
    indptr: Array, indices: Array, quad: Array, lin: Array, other: Array, P: Array, out: Array, start: int, stop: int
) -> None:
    """Compute `add_pairs`. Bound by the gathered rows, 4d bytes a pair; each is used twice while it is in the cache."""
    d, last = other.shape[1], indptr[stop] - 1
    for r in range(start, stop):
        for e in range(indptr[r], indptr[r + 1]):
            i = indices[e]
            prefetch_row(other, indices[min(e + AHEAD, last)])
            score = np.float32(0)
            for f in range(d):
                score += P[r, f] * other[i, f]
            a = quad[e if len(quad) > 1 else 0] * score - lin[e if len(lin) > 1 else 0]
            for f in range(d):
                out[r, f] += a * other[i, f]


@fast_kernel
def _add_squares(indptr: Array, indices: Array, quad: Array, other: Array, out: Array, start: int, stop: int) -> None:
    last = indptr[stop] - 1
    for r in range(start, stop):
        for e in range(indptr[r], indptr[r + 1]):
            a, i = quad[e if len(quad) > 1 else 0], indices[e]
            prefetch_row(other, indices[min(e + AHEAD, last)])
            for f in range(other.shape[1]):
                out[r, f] += a * other[i, f] * other[i, f]


@fast_kernel
def _score(indptr: Array, indices: Array, other: Array, Phi: Array, scores: Array, start: int, stop: int) -> None:
    last = indptr[stop] - 1
    for r in range(start, stop):
        for e in range(indptr[r], indptr[r + 1]):
            i, score = indices[e], np.float32(0)
            prefetch_row(other, indices[min(e + AHEAD, last)])
            for f in range(other.shape[1]):
                score += Phi[r, f] * other[i, f]
            scores[e] = score


@fast_kernel
def _gains(
    indptr: Array,
    indices: Array,
    quad: Array,
    lin: Array,
    level: Array,
    columns: Array,
    P: Array,
    scores: Array,
    along: Array,
    sums: Array,
    pushed: Array,
    start: int,
    stop: int,
) -> None:
    """Compute `PairScores.gains`. Bound by the index, score and ∇ŷ of each pair, 12 bytes."""
    for r in range(start, stop):
        for e in range(indptr[r], indptr[r + 1]):
            i, y = indices[e], np.float32(0)
            for t in range(columns.shape[1]):
                y += P[r, t] * columns[i, t]
            along[e] = y
            a = quad[e if len(quad) > 1 else 0]
            below = level[i] if len(level) > 0 else np.float32(0)
            sums[r, 0] += (a * (scores[e] - below) - lin[e if len(lin) > 1 else 0]) * y
            sums[r, 1] += a * y * y
            for t in range(pushed.shape[1]):
                pushed[r, t] += a * y * columns[i, t]


@fast_kernel
def _scatter(indptr: Array, indices: Array, quad: Array, along: Array, steps: Array, out: Array) -> None:
    for r in range(len(indptr) - 1):
        for e in range(indptr[r], indptr[r + 1]):
            out[indices[e]] += quad[e if len(quad) > 1 else 0] * along[e] * steps[r]
