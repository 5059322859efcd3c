"""Matrix products in which the result of a row does not depend on the other rows.

BLAS uses different instructions for different numbers of rows, so the last bits of a row depend on how many rows are
multiplied at once. Iterations amplify these differences: a query's result would depend on the other queries.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist.solvers.tiles import ROW, WIDTH, add_product, add_row, add_vector, transpose

OURS = WIDTH == 16  # with AVX-512; on processors newer than it, OpenBLAS may use AVX2, which is half as fast
_FEW = 3  # up to this number, rows are multiplied one by one, which is faster than a tile
_DEPTH = 512  # rows of both factors that are multiplied at once, so that they stay in the cache
Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]


def whole_tiles(n: int) -> int:
    """Round n up to a multiple of the width of a tile."""
    return -(-n // WIDTH) * WIDTH


def padded(A: Floats) -> Floats:
    """Return a copy, padded with zeros to whole tiles."""
    out = np.zeros([whole_tiles(n) for n in A.shape], np.float32)
    out[: A.shape[0], : A.shape[1]] = A
    return out


def product(A: Floats, B: Floats) -> Floats:
    """Return A @ B."""
    out = np.empty((whole_tiles(len(A)), whole_tiles(B.shape[1])), np.float32)
    multiply_some(padded(A), padded(B), A.shape[1], out, len(A))
    return out[: len(A), : B.shape[1]]


def multiply_some(A: Floats, B: Floats, count: int, out: Floats, n_rows: int) -> None:
    """Compute at least the first `n_rows` rows of `multiply`; the other rows may stay unchanged."""
    if n_rows <= _FEW:
        _multiply_few(A, B, count, out, n_rows)
    else:
        multiply(A, B, count, out)


@fast_kernel
def multiply(A: Array, B: Array, count: int, out: Array) -> None:
    """Set out to A[:, :count] @ B[:count]. All sides must be whole tiles, but B may have only `count` rows.

    Bound by the multiply-adds of `tiles.add_product`; with about 16 rows, bound by the bytes of B.
    """
    columns = np.empty(((count + WIDTH - 1) // WIDTH * WIDTH, WIDTH), np.float32)
    for first in range(0, out.shape[0], WIDTH):
        rows, sums = A[first : first + WIDTH], out[first : first + WIDTH]
        for k in range(0, len(columns), WIDTH):
            transpose(columns, k, 0, rows)
        sums[:] = 0
        for j in range(0, out.shape[1], WIDTH):
            add_product(sums, 0, j, columns, B, count)


@fast_kernel
def _multiply_few(A: Array, B: Array, count: int, out: Array, n_rows: int) -> None:
    """Compute the first rows of `multiply` one by one, to the same bits. Bound by the bytes of B, read for each row."""
    whole = out.shape[1] // (ROW * WIDTH) * (ROW * WIDTH)
    for r in range(n_rows):
        for j in range(out.shape[1]):
            out[r, j] = 0
        for j in range(0, whole, ROW * WIDTH):
            add_row(out, r, j, A, B, count)
        for j in range(whole, out.shape[1], WIDTH):
            add_vector(out, r, j, A, B, count)


def multiply_transposed(A: Floats, B: Floats, count: int, out: Floats, add: bool) -> None:
    """Set out to A[:count].T @ B[:count], or add the product to it; the columns of A and B are whole tiles.

    A may have more columns than `out` has rows.
    """
    n_strips = -(-len(out) // WIDTH)
    strips = np.empty((n_strips, min(count, _DEPTH), WIDTH), np.float32)
    _multiply_transposed(A, B, count, out, add, strips, np.zeros((n_strips, WIDTH, out.shape[1]), np.float32))


@fast_kernel
def _multiply_transposed(A: Array, B: Array, count: int, out: Array, add: bool, strips: Array, sums: Array) -> None:
    """Compute `multiply_transposed` with buffers for strips of A and for the sums, which must be 0.

    Bound by the multiply-adds of `tiles.add_product`. A is read once, row by row, so it may come from main memory.
    """
    n_strips = len(sums)
    for begin in range(0, count, _DEPTH):
        depth = min(_DEPTH, count - begin)
        for k in range(depth):
            for strip in range(n_strips):
                for n in range(WIDTH):
                    strips[strip, k, n] = A[begin + k, strip * WIDTH + n]
        for strip in range(n_strips):
            for j in range(0, out.shape[1], WIDTH):
                add_product(sums[strip], 0, j, strips[strip], B[begin : begin + depth], depth)
    for i in range(out.shape[0]):
        for f in range(out.shape[1]):
            out[i, f] = sums[i // WIDTH, i % WIDTH, f] + (out[i, f] if add else np.float32(0))


@fast_kernel
def transpose_padded(A: Array, out: Array) -> None:
    """Set out to Aᵀ, padded with zeros; the sides of `out` and the columns of A are whole tiles."""
    whole = len(A) // WIDTH * WIDTH
    for i in range(0, out.shape[0], WIDTH):
        for j in range(0, whole, WIDTH):
            transpose(out, i, j, A)
    for i in range(out.shape[0]):
        for j in range(whole, len(A)):
            out[i, j] = A[j, i]
        for j in range(len(A), out.shape[1]):
            out[i, j] = 0
