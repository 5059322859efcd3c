"""Systems of one row by Cholesky on register tiles: what the solvers that form matrices share."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist.solvers.tiles import WIDTH, eliminate, factor, substitute, substitute_back

Array: TypeAlias = npt.NDArray[Any]
GATHERED = 1 << 15  # floats gathered at once: with the matrix they are added to, they stay in the second cache
AHEAD = 8  # pairs ahead whose embeddings are sent for while one is gathered
LINE = 16  # floats in a line of cache; the widest tile
# Woodbury's identity is used while the diagonal M, and the weights in a row, span no more than this. Its solution is
# nearer to float64's until M spans 1e-6, but its scores lose digits earlier where embeddings do not shrink with M.
SPAN = np.float32(1e-5)
_PIVOT = np.float32(1e-6)  # what must be left of a diagonal entry for float32 to tell it from nothing


def room(d: int, n_vectors: int) -> tuple[Array, Array]:
    """Three matrices and some vectors to work in, of whole tiles, each row at the start of a line of cache."""
    lines = -(-d // LINE)
    stride = LINE * (lines | 1)  # an odd number of lines, so that columns spread over all of a cache
    height = max(lines * LINE, GATHERED // stride + 1)
    cut, size = 3 * height * stride, (3 * height + n_vectors) * stride
    memory = np.zeros(size + LINE, np.float32)
    start = -memory.ctypes.data // memory.itemsize % LINE
    memory = memory[start : start + size]
    return memory[:cut].reshape(3, height, stride), memory[cut:].reshape(n_vectors, stride)


@fast_kernel
def solve_tiles(U: Array, size: int, x: Array, diagonal: Array, inverse: Array) -> bool:
    """Set x to U⁻¹x, by Cholesky, for a symmetric U given by its upper tiles; False if it is not positive definite."""
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
