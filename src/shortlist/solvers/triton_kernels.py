"""Triton kernels for `torch_half_step`, which gather every row of the other side once for both products of a CG pass.

They take the same steps, with the same limits, as `torch_half_step._conjugate_gradients`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from shortlist.solvers.optional_torch import Tensor, torch

try:
    import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ModuleNotFoundError:  # not part of PyTorch for CPUs
    triton = None

if TYPE_CHECKING:
    from shortlist.solvers.cg_limits import CGLimits

_SHORT = 512  # a row with at most this number of pairs is solved by one program
_SEGMENT = 256  # pairs of a longer row that one program sums
_GATHER = 1 << 10  # floats that a program gathers at once: 32 registers of each thread of a warp


class SideTensors(Protocol):
    """The pairs and terms of one side on the device, as in `torch_half_step.DeviceSide`."""

    indptr: Tensor
    indices: Tensor
    excess: Tensor
    target: Tensor
    ridge: Tensor
    dense: Tensor


class FusedRows:
    """The rows of one side, grouped by length for the kernels.

    A short row is solved by one program (a warp), whose registers hold all vectors of CG. A long row is cut into
    segments with one program each, and the partial sums are added in a fixed order. Segments start in the order of
    their columns. So segments that run at the same time gather from the same part of the other side, which then stays
    in the second-level cache.
    """

    def __init__(self, indptr: npt.NDArray[np.int64], indices: npt.NDArray[np.int32], dim: int, device: Any) -> None:
        block_d = max(16, triton.next_power_of_2(dim))
        self._shape = dim, block_d, max(1, min(16, _GATHER // block_d))
        self._warps = max(1, block_d // 512)
        lengths = np.diff(indptr)
        short = np.flatnonzero((lengths > 0) & (lengths <= _SHORT))
        short = short[np.argsort(-lengths[short], kind="stable")]  # longest first, so that none runs alone at the end
        long = np.flatnonzero(lengths > _SHORT)
        row, begin, end, bounds = segments(indptr, long)
        order = np.argsort(indices[begin], kind="stable") if len(long) else np.empty(0, np.int64)
        self._n_short, self._n_long, self._n_segments = len(short), len(long), len(row)
        self._short, self._long, self._slot, self._row, self._begin, self._end, self._bounds = (
            torch.tensor(array, device=device)
            for array in (short, long, order, row[order], begin[order], end[order], bounds)
        )

    def solve(self, side: SideTensors, other: Tensor, embeddings: Tensor, spectrum: Tensor, limits: CGLimits) -> None:
        """See `DeviceSide.solve`."""
        pairs = side.indices, side.excess, int(len(side.excess) > 1), side.target, int(len(side.target) > 1)
        of_rows = side.ridge, int(len(side.ridge) > 1), side.dense, int(len(side.dense) > 1)
        if self._n_short:
            _solve_short[(self._n_short,)](
                self._short, side.indptr, *pairs, *of_rows, spectrum, other, embeddings,
                limits.relaxation, limits.tolerance**2, limits.max_steps, *self._shape, num_warps=self._warps,
            )  # fmt: skip
        if self._n_long:
            self._solve_long(other, embeddings, spectrum, limits, pairs, of_rows)

    def _solve_long(
        self,
        other: Tensor,
        embeddings: Tensor,
        spectrum: Tensor,
        limits: CGLimits,
        pairs: tuple[Any, ...],
        of_rows: tuple[Any, ...],
    ) -> None:
        """Run a pass over the segments for each step of CG; after each pass, advance the rows by its sums."""
        dim, block_d, _ = self._shape
        w = embeddings[self._long]
        v, p, P = (torch.empty_like(w) for _ in range(3))
        vz, enough = (w.new_empty(self._n_long) for _ in range(2))
        moving = torch.ones(self._n_long, dtype=torch.int32, device=w.device)
        parts, squares = (w.new_empty(self._n_segments, w.shape[1]) for _ in range(2))
        state = w, v, p, P, vz, enough, moving
        for step in range(limits.max_steps + 1):
            if step > 3 and not moving.any():  # this check waits for the GPU, so it is skipped at first
                break
            _add_segments[(self._n_segments,)](
                self._row, self._begin, self._end, self._slot, *pairs, other, p if step else w, moving, parts, squares,
                *self._shape, step == 0, num_warps=self._warps,
            )  # fmt: skip
            _advance[(self._n_long,)](
                self._long, self._bounds, parts, squares, *of_rows, spectrum, *state, limits.tolerance**2,
                dim, block_d, max(1, 4 * _GATHER // block_d), step == 0, num_warps=4,
            )  # fmt: skip
        _relax[(self._n_long,)](self._long, embeddings, w, limits.relaxation, dim, block_d, num_warps=4)


def segments(indptr: npt.NDArray[np.int64], long: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
    """Return the segments of long rows: row (position in `long`), first and last pair; and the bounds of each row."""
    lengths = indptr[long + 1] - indptr[long]
    counts = -(-lengths // _SEGMENT)
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    row = np.repeat(np.arange(len(long)), counts)
    begin = indptr[long][row] + (np.arange(bounds[-1]) - bounds[row]) * _SEGMENT
    return row, begin, np.minimum(begin + _SEGMENT, indptr[long + 1][row]), bounds


def working_bytes(lengths: npt.NDArray[np.int64], dim: int) -> tuple[int, int]:
    """Return the bytes that one side keeps besides its pairs, and the bytes that its half step uses."""
    long = lengths[lengths > _SHORT]
    n_segments = int((-(-long // _SEGMENT)).sum())
    return 8 * len(lengths) + 16 * len(long) + 32 * n_segments, 4 * dim * (2 * n_segments + 5 * len(long))


def _jit(function: Callable[..., Any]) -> Any:
    return function if triton is None else triton.jit(function)


@_jit
def _pass(
    first: int, last: int, v: tl.tensor, indices: tl.tensor, excess: tl.tensor, excess_step: int, target: tl.tensor,
    target_step: int, other: tl.tensor, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
    FIRST: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:  # fmt: skip
    """Sum over pairs `first` to `last`: Σ(target − excess·ŷ)ψ, Σ excess·ψ² if FIRST, else Σ excess·(ψᵀv)ψ, zero."""
    f = tl.arange(0, BLOCK_D)
    total = tl.zeros([BLOCK_D], tl.float32)
    square = tl.zeros([BLOCK_D], tl.float32)
    for start in range(first, last, BLOCK_N):
        e = start + tl.arange(0, BLOCK_N)
        j = tl.load(indices + e, mask=e < last, other=0).to(tl.int64)
        a = tl.load(excess + e * excess_step, mask=e < last, other=0.0)
        psi = tl.load(other + j[:, None] * D + f[None, :], mask=(e < last)[:, None] & (f < D)[None, :], other=0.0)
        values = a * tl.sum(psi * v[None, :], 1)
        if FIRST:
            values = tl.load(target + e * target_step, mask=e < last, other=0.0) - values
            square += tl.sum(a[:, None] * psi * psi, 0)
        total += tl.sum(values[:, None] * psi, 0)
    return total, square


@_jit
def _solve_short(
    rows: tl.tensor, indptr: tl.tensor, indices: tl.tensor, excess: tl.tensor, excess_step: int, target: tl.tensor,
    target_step: int, ridge: tl.tensor, ridge_step: int, dense: tl.tensor, dense_step: int, spectrum: tl.tensor,
    other: tl.tensor, embeddings: tl.tensor, relaxation: float, tolerance: float, max_steps: int,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
) -> None:  # fmt: skip
    """Solve one row like `_conjugate_gradients`. Bound by the bytes gathered from the second-level cache."""
    r = tl.load(rows + tl.program_id(0))
    first, last = tl.load(indptr + r), tl.load(indptr + r + 1)
    f = tl.arange(0, BLOCK_D)
    x = tl.load(embeddings + r * D + f, mask=f < D, other=0.0)
    M = _dense_part(r, ridge, ridge_step, dense, dense_step, spectrum, D, BLOCK_D)
    v, square = _pass(
        first, last, x, indices, excess, excess_step, target, target_step, other, D, BLOCK_D, BLOCK_N, True
    )
    v -= M * x
    P = _preconditioner(M, square)
    p = _preconditioned(v, P)
    vz = tl.sum(v * p)
    enough = tolerance * vz
    w = x
    step = 0
    while (step < max_steps) & (vz > enough) & (vz > 1e-12 * tl.sum(P * w * w)):
        Ap, _ = _pass(
            first, last, p, indices, excess, excess_step, target, target_step, other, D, BLOCK_D, BLOCK_N, False
        )
        w, v, p, vz = _step(w, v, p, Ap + M * p, P, vz)
        step += 1
    tl.store(embeddings + r * D + f, _beyond(x, w, relaxation), mask=f < D)


@_jit
def _dense_part(
    r: tl.tensor, ridge: tl.tensor, ridge_step: int, dense: tl.tensor, dense_step: int, spectrum: tl.tensor,
    D: tl.constexpr, BLOCK_D: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Return M = dense·Λ + ridge."""
    f = tl.arange(0, BLOCK_D)
    Lambda = tl.load(spectrum + f, mask=f < D, other=0.0)
    return tl.load(dense + r * dense_step) * Lambda + tl.load(ridge + r * ridge_step)


@_jit
def _preconditioner(M: tl.tensor, square: tl.tensor) -> tl.tensor:
    """Return the diagonal of the system, or zero for an entry that is only rounding error."""
    P = tl.maximum(M + square, 1e-6 * M)
    return tl.where(1e-12 * tl.max(P) < P, P, 0.0)


@_jit
def _preconditioned(v: tl.tensor, P: tl.tensor) -> tl.tensor:
    """Return the residual divided by the preconditioner, or zero for an entry that is not finite."""
    z = v / P
    return tl.where((P > 0) & (tl.abs(z) < float("inf")), z, 0.0)


@_jit
def _step(
    w: tl.tensor, v: tl.tensor, p: tl.tensor, Ap: tl.tensor, P: tl.tensor, vz: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Take one step of CG; return w, the residual, the next direction and vᵀP⁻¹v, which is 0 if no step is possible."""
    pAp = tl.sum(p * Ap)
    length = vz / pAp
    good = (pAp > 0) & (length > 0) & (length < float("inf"))
    w = tl.where(good, w + length * p, w)
    v = tl.where(good, v - length * Ap, v)
    z = _preconditioned(v, P)
    after = tl.where(good, tl.sum(v * z), 0.0)
    return w, v, z + after / vz * p, after


@_jit
def _beyond(x: tl.tensor, w: tl.tensor, relaxation: float) -> tl.tensor:
    """Return w, or a point beyond w if w is close to x; return x if w is not finite."""
    size, change = tl.sum(w * w), w - x
    far = tl.where(tl.sum(change * change) <= 0.25 * size, relaxation, 1.0)
    return tl.where(size < float("inf"), x + far * change, x)


@_jit
def _add_segments(
    row: tl.tensor, begin: tl.tensor, end: tl.tensor, slot: tl.tensor, indices: tl.tensor, excess: tl.tensor,
    excess_step: int, target: tl.tensor, target_step: int, other: tl.tensor, vectors: tl.tensor,
    moving: tl.tensor, sums: tl.tensor, squares: tl.tensor,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, FIRST: tl.constexpr,
) -> None:  # fmt: skip
    """Write one segment's sums of a pass to its slot; zero if the row has converged.

    Bound by the bytes gathered from the second-level cache.
    """
    s = tl.program_id(0)
    f = tl.arange(0, BLOCK_D)
    r = tl.load(row + s)
    v = tl.load(vectors + r * D + f, mask=f < D, other=0.0)
    first = tl.load(begin + s)
    last = tl.where(tl.load(moving + r) != 0, tl.load(end + s), first)
    total, square = _pass(
        first, last, v, indices, excess, excess_step, target, target_step, other,
        D, BLOCK_D, BLOCK_N, FIRST,
    )  # fmt: skip
    at = tl.load(slot + s) * D
    tl.store(sums + at + f, total, mask=f < D)
    if FIRST:
        tl.store(squares + at + f, square, mask=f < D)


@_jit
def _added(
    parts: tl.tensor, first: tl.tensor, last: tl.tensor, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr
) -> tl.tensor:
    """Return the sum of a long row's parts, added in the order of its segments."""
    f = tl.arange(0, BLOCK_D)
    total = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    for start in range(first, last, BLOCK_N):
        s = start + tl.arange(0, BLOCK_N)
        total += tl.load(parts + s[:, None] * D + f[None, :], mask=(s < last)[:, None] & (f < D)[None, :], other=0.0)
    return tl.sum(total, 0)


@_jit
def _advance(
    rows: tl.tensor, bounds: tl.tensor, parts: tl.tensor, squares: tl.tensor, ridge: tl.tensor, ridge_step: int,
    dense: tl.tensor, dense_step: int, spectrum: tl.tensor, ws: tl.tensor, vs: tl.tensor, ps: tl.tensor, Ps: tl.tensor,
    vzs: tl.tensor, enoughs: tl.tensor, moving: tl.tensor, tolerance: float,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, FIRST: tl.constexpr,
) -> None:  # fmt: skip
    """Start CG for a long row after the first pass over its segments (FIRST), or take its next step."""
    k = tl.program_id(0).to(tl.int64)
    if tl.load(moving + k) != 0:
        f = tl.arange(0, BLOCK_D)
        at, real = k * D + f, f < D
        first, last = tl.load(bounds + k), tl.load(bounds + k + 1)
        M = _dense_part(tl.load(rows + k), ridge, ridge_step, dense, dense_step, spectrum, D, BLOCK_D)
        w = tl.load(ws + at, mask=real, other=0.0)
        if FIRST:
            v = _added(parts, first, last, D, BLOCK_D, BLOCK_N) - M * w
            P = _preconditioner(M, _added(squares, first, last, D, BLOCK_D, BLOCK_N))
            p = _preconditioned(v, P)
            vz = tl.sum(v * p)
            enough = tolerance * vz
            tl.store(Ps + at, P, mask=real)
            tl.store(enoughs + k, enough)
        else:
            v, p = tl.load(vs + at, mask=real, other=0.0), tl.load(ps + at, mask=real, other=0.0)
            P = tl.load(Ps + at, mask=real, other=0.0)
            enough = tl.load(enoughs + k)
            Ap = _added(parts, first, last, D, BLOCK_D, BLOCK_N) + M * p
            w, v, p, vz = _step(w, v, p, Ap, P, tl.load(vzs + k))
            tl.store(ws + at, w, mask=real)
        tl.store(vs + at, v, mask=real)
        tl.store(ps + at, p, mask=real)
        tl.store(vzs + k, vz)
        tl.store(moving + k, ((vz > enough) & (vz > 1e-12 * tl.sum(P * w * w))).to(tl.int32))


@_jit
def _relax(
    rows: tl.tensor, embeddings: tl.tensor, ws: tl.tensor, relaxation: float, D: tl.constexpr, BLOCK_D: tl.constexpr
) -> None:
    """Write the result of CG for a long row."""
    k = tl.program_id(0).to(tl.int64)
    f = tl.arange(0, BLOCK_D)
    at = tl.load(rows + k) * D + f
    x, w = tl.load(embeddings + at, mask=f < D, other=0.0), tl.load(ws + k * D + f, mask=f < D, other=0.0)
    tl.store(embeddings + at, _beyond(x, w, relaxation), mask=f < D)
