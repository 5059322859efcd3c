"""Softmax sums and gradients over many columns, computed with matrix products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import DEFAULT_MEMORY
from shortlist._threads import run_chunks, thread_count
from shortlist.solvers import softmax_kernels as kernels
from shortlist.solvers.row_products import (
    multiply,
    multiply_some,
    multiply_transposed,
    padded,
    transpose_padded,
    whole_tiles,
)

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
_ROWS, _COLUMNS = 256, 512  # of a tile: 512 KiB, which fit in a core's second-level cache
_GROUPS = 32  # groups of tiles with separate sums, independent of the number of threads
NOTHING = np.empty(0, np.float32)


class Tiles(NamedTuple):
    """The columns of H in the layouts that `row_products.multiply` takes."""

    transposed: Floats  # tiles of columns × width × columns of a tile
    wide: Floats  # columns × width, padded to whole tiles

    @classmethod
    def of(cls, H: Floats) -> Tiles:
        """Return the layouts of these rows of H."""
        n, width = H.shape
        wide = padded(H)
        by_tile = np.zeros((-(-n // _COLUMNS), _COLUMNS, wide.shape[1]), np.float32)
        by_tile.reshape(-1, wide.shape[1])[:n, :width] = H
        return cls(np.ascontiguousarray(by_tile.transpose(0, 2, 1)), wide)


class ScoreBatch(NamedTuple):
    """Rows of scores z = ⟨F_r, H_j⟩ + bias_j of the negatives j, and of the positives of each row.

    The positives of row r are the rows `at[firsts[r]:lasts[r]]` of H. Its negatives are the first `n_columns` rows of
    H, except for `columns[begins[r]:ends[r]]`. Bias and shift apply to negatives only, see `row_losses`.
    `spare` is the fraction of a positive that is a negative of the row's other positives, if they have separate
    partition functions. With `tiles`, the bits of a row's result do not depend on the other rows. Without `tiles`,
    products use `row_products` if `ours`, otherwise BLAS; `row_products` takes F and H padded to whole tiles.
    """

    F: Floats
    H: Floats
    n_columns: int
    firsts: npt.NDArray[np.int64]
    lasts: npt.NDArray[np.int64]
    at: npt.NDArray[np.int32]
    weights: Floats  # by positive
    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int32]
    bias: Floats = NOTHING  # by column, or empty
    shift: Floats = NOTHING  # by row, or empty
    together: bool = False  # whether the positives of a row share a partition function
    spare: Floats = NOTHING  # by positive, or empty
    tiles: Tiles | None = None  # of H, if rows must not depend on each other
    ours: bool = False


class SoftmaxPass:
    """Passes over the exponentials of a batch, and the buffer for them.

    Tile by tile (256 rows × 512 columns), Z = F Hᵀ becomes E = e^{Z − top}. U = E H, the gradient of the rows except
    for a factor, is computed while E is in the cache; E is kept for the gradient of the items. So besides the three
    products of a softmax, exponentials are written once and read once. Tiles are summed in fixed groups and BLAS runs
    on one thread, so the result does not depend on the number of threads.

    If the exponentials of all rows exceed `memory` bytes, rows are processed in blocks.
    """

    def __init__(self, threads: int | None, memory: int = DEFAULT_MEMORY) -> None:
        self._threads, self._memory = threads, memory
        self._buffer = NOTHING

    def blocks(self, n_rows: int, n_columns: int) -> list[tuple[int, int]]:
        """Return runs of rows whose exponentials fit in the memory, with at least one row each."""
        n_tiles = -(-n_columns // _COLUMNS)
        size = max(1, self._memory // max(1, 4 * n_tiles * _COLUMNS))
        size = size // _ROWS * _ROWS or size
        return [(a, min(n_rows, a + size)) for a in range(0, n_rows, size)]

    def run(self, batch: ScoreBatch, factor: float, backward: ItemGradients | None = None) -> PassLosses:
        """Return the losses of all rows and their gradients.

        Args:
            batch: the scores.
            factor: multiplies all gradients.
            backward: receives the gradients with respect to H, if given.
        """
        n_rows, width = batch.F.shape
        result = PassLosses(
            np.zeros(n_rows), np.empty((n_rows, width), np.float32), np.empty(len(batch.at), np.float32)
        )
        for start, stop in self.blocks(n_rows, batch.n_columns):
            part = self._losses(batch, result, factor, start, stop)
            if backward is not None:
                self._backward(part, batch, result, backward, start == 0, stop == n_rows)
        return result

    def _losses(self, batch: ScoreBatch, result: PassLosses, factor: float, start: int, stop: int) -> _Part:
        """Compute everything except the gradients with respect to H, for the rows `start` to `stop`."""
        tile_tops, tops, sums, U = self._forward(batch, start, stop)
        logs, push = np.empty(stop - start, np.float32), np.empty(stop - start, np.float32)
        F, shift = batch.F[start:stop], batch.shift[start:stop]
        firsts, lasts = batch.firsts[start:stop], batch.lasts[start:stop]

        def row_losses(a: int, b: int) -> None:
            kernels.row_losses(
                F, batch.H, tops, sums, U, shift, firsts, lasts, batch.at, batch.weights, batch.spare, batch.together,
                factor, logs, result.pull, push, result.rows[start:stop], result.losses[start:stop], a, b,
            )  # fmt: skip

        self.in_chunks(row_losses, stop - start, 32)
        n_rows = whole_tiles(stop - start) if batch.ours else stop - start
        return _Part(F, self._tiles(n_rows, batch.n_columns), tile_tops, logs, push)

    def in_chunks(self, work: Callable[[int, int], object], n: int, least: int) -> None:
        """Call `work` for runs of 0…n in parallel; if there are several runs, each has at least `least` elements."""
        n_chunks = max(1, min(4 * thread_count(self._threads), n // least))
        run_chunks(work, [(k * n // n_chunks, (k + 1) * n // n_chunks) for k in range(n_chunks)], self._threads)

    def _tiles(self, n_rows: int, n_columns: int) -> Floats:
        n_tiles = -(-n_columns // _COLUMNS)
        size = n_tiles * n_rows * _COLUMNS
        if len(self._buffer) < size:
            self._buffer = np.empty(size, np.float32)
        return self._buffer[:size].reshape(n_tiles, n_rows, _COLUMNS)

    def _forward(self, batch: ScoreBatch, start: int, stop: int) -> tuple[Floats, Floats, Floats, Floats]:
        """Return tops by tile, then tops, sums and U by group of tiles, for the rows `start` to `stop`."""
        F, H = batch.F[start:stop], batch.H
        n_rows, width = F.shape
        tiles = batch.tiles
        blas = tiles is None and not batch.ours
        F_wide = F if blas else padded(F)
        E = self._tiles(len(F_wide), batch.n_columns)
        n_tiles = len(E)
        n_groups = min(_GROUPS, n_tiles)
        tile_tops = np.empty((n_tiles, n_rows), np.float32)
        tops = np.full((n_groups, n_rows), -np.inf, np.float32)
        sums, U = np.zeros((n_groups, n_rows), np.float32), np.zeros((n_groups, n_rows, width), np.float32)
        begins, ends = batch.begins[start:stop], batch.ends[start:stop]
        n_bands = -(-n_rows // _ROWS)

        def sum_group(k: int, _: int) -> None:
            group, band = divmod(k, n_bands)
            rows = slice(band * _ROWS, min(n_rows, (band + 1) * _ROWS))
            whole = rows if blas else slice(rows.start, whole_tiles(rows.stop))
            new_U = np.empty((whole.stop - whole.start, F_wide.shape[1]), np.float32)
            transposed = np.empty((width, _COLUMNS) if batch.ours else 0, np.float32)
            new_sums = np.empty(_ROWS, np.float32)
            for tile in range(group * n_tiles // n_groups, (group + 1) * n_tiles // n_groups):
                first, last = tile * _COLUMNS, min(batch.n_columns, (tile + 1) * _COLUMNS)
                Z = E[tile, rows, : last - first]
                if blas:
                    np.matmul(F[rows], H[first:last].T, out=Z)
                elif tiles is None:
                    transpose_padded(H[first:last], transposed)
                    multiply(F_wide[whole], transposed, width, E[tile, whole])
                else:
                    multiply_some(F_wide[whole], tiles.transposed[tile], width, E[tile, whole], rows.stop - rows.start)
                kernels.exponentiate(
                    E[tile, rows], last - first, batch.bias[first:last], begins[rows], ends[rows], batch.columns, first,
                    tile_tops[tile, rows], new_sums,
                )  # fmt: skip
                if blas:
                    np.matmul(Z, H[first:last], out=new_U)
                elif tiles is None:
                    multiply(E[tile, whole], H[first:], last - first, new_U)
                else:
                    multiply_some(E[tile, whole], tiles.wide[first:], last - first, new_U, rows.stop - rows.start)
                kernels.merge(
                    tops[group, rows], sums[group, rows], U[group, rows], tile_tops[tile, rows], new_sums, new_U
                )

        run_chunks(sum_group, [(k, k + 1) for k in range(n_groups * n_bands)], self._threads)
        return tile_tops, tops, sums, U

    def _backward(
        self, part: _Part, batch: ScoreBatch, result: PassLosses, backward: ItemGradients, begin: bool, end: bool
    ) -> None:
        n_tiles = len(part.E)
        n_extra = -(-(len(batch.H) - batch.n_columns) // _COLUMNS)  # tiles of rows of H that are only positives
        n_chunks = min(8 * thread_count(self._threads), n_tiles + n_extra)
        D = backward.gradients

        def sum_tiles(a: int, b: int) -> None:
            scaled = np.empty_like(part.F)
            for tile in range(a * (n_tiles + n_extra) // n_chunks, b * (n_tiles + n_extra) // n_chunks):
                if tile < n_tiles:
                    first, last = tile * _COLUMNS, min(batch.n_columns, (tile + 1) * _COLUMNS)
                    with np.errstate(invalid="ignore"):  # −∞ − −∞ in a row without negatives
                        shares = part.push * np.exp(part.tops[tile] - part.logs)
                    np.multiply(part.F, np.where(part.logs > -np.inf, shares, 0)[:, None], out=scaled)
                    E = part.E[tile, : len(scaled), : last - first].T
                    if batch.ours:
                        multiply_transposed(part.E[tile], scaled, len(scaled), D[first:last], not begin)
                    elif begin:
                        np.matmul(E, scaled, out=D[first:last])
                    else:
                        D[first:last] += E @ scaled
                else:
                    first = batch.n_columns + (tile - n_tiles) * _COLUMNS
                    last = min(len(batch.H), first + _COLUMNS)
                    D[first:last] = 0
                if end:
                    kernels.add_positives(
                        D, backward.indptr, backward.entries, backward.row_of, result.pull, batch.F, first, last
                    )
                    backward.apply(first, last)

        run_chunks(sum_tiles, [(k, k + 1) for k in range(n_chunks)], self._threads)


@dataclass(frozen=True, eq=False)
class PassLosses:
    """The result of a pass."""

    losses: npt.NDArray[np.float64]  # by row, weighted
    rows: Floats  # gradients with respect to F
    pull: Floats  # gradients with respect to the scores of the positives


@dataclass(frozen=True, eq=False)
class ItemGradients:
    """The gradients with respect to H: they are summed into `gradients`, and `apply` is called for runs of rows."""

    gradients: Floats
    indptr: npt.NDArray[np.int64]  # the positives by row of H
    entries: npt.NDArray[np.int32]
    row_of: npt.NDArray[np.int32]  # rows of F of the positives
    apply: Callable[[int, int], object]


@dataclass(frozen=True, eq=False)
class _Part:
    """A block of rows with its exponentials."""

    F: Floats
    E: Floats
    tops: Floats
    logs: Floats
    push: Floats
