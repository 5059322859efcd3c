"""Cholesky solution of a row's system on register tiles, shared by the `exact` and `block` solvers."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist.solvers.tiles import WIDTH, eliminate, factor, substitute, substitute_back

Array: TypeAlias = npt.NDArray[Any]
GATHERED = 1 << 15  # floats gathered at once: they stay in the second-level cache, with the matrix they are added to
AHEAD = 8  # embeddings are prefetched this many pairs ahead
LINE = 16  # floats in a cache line; the widest tile
# Woodbury's identity is used if min/max of the diagonal M, and of the weights in a row, is above SPAN. Its solution is
# the more accurate one down to 1e-6, but its scores lose digits earlier if embeddings do not shrink with M.
SPAN = np.float32(1e-5)
_PIVOT = np.float32(1e-6)  # a pivot below this fraction of its diagonal entry is rounding error


def workspace(d: int, n_vectors: int) -> tuple[Array, Array]:
    """Allocate three matrices and some vectors of whole tiles; every row starts at a cache line."""
    lines = -(-d // LINE)
    stride = LINE * (lines | 1)  # an odd number of lines, so that columns spread over all cache sets
    height = max(lines * LINE, GATHERED // stride + 1)
    cut, size = 3 * height * stride, (3 * height + n_vectors) * stride
    memory = np.zeros(size + LINE, np.float32)
    start = -memory.ctypes.data // memory.itemsize % LINE
    memory = memory[start : start + size]
    return memory[:cut].reshape(3, height, stride), memory[cut:].reshape(n_vectors, stride)


@fast_kernel
def solve_tiles(U: Array, size: int, x: Array, diagonal: Array, inverse: Array) -> bool:
    """Set x to U⁻¹x by Cholesky for a symmetric U, given by its upper tiles; return False if not positive definite."""
    for f in range(size):
        diagonal[f] = U[f, f]
    for i in range(0, size, WIDTH):
        factor(U, i, inverse)
        for j in range(i + WIDTH, size, WIDTH):
            eliminate(U, i, j, inverse)
        substitute(U, i, inverse, x)
    for i in range(size - WIDTH, -1, -WIDTH):
        substitute_back(U, i, size, inverse, x)
    good = True
    for f in range(size):
        good = good and U[f, f] * U[f, f] > _PIVOT * diagonal[f]
    return good
