"""What a half-step of alternating least squares solves, row by row: the plain form that solvers are held against."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pointwise_square import Terms

SINGULAR = 1e-12  # of the largest singular value of a matrix in float64: what is below is taken for zero


def at(array: npt.NDArray[np.float32], index: int | slice) -> npt.NDArray[np.float32] | np.float32:
    """Entries of an array of `Terms`, where one element stands for all."""
    return array[0] if len(array) == 1 else array[index]


def row_system(
    rows: SparseRows,
    terms: Terms,
    other: npt.NDArray[np.float32],
    G: npt.NDArray[np.float64],
    r: int,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The matrix and right-hand side of row `r` in float64; `G` is the Gramian of `other`."""
    span = slice(rows.indptr[r], rows.indptr[r + 1])
    Psi = other[rows.indices[span]].astype(np.float64)
    A = at(terms.dense, r) * G + (Psi.T * at(terms.excess, span)) @ Psi + at(terms.ridge, r) * np.eye(other.shape[1])
    b = (Psi.T * at(terms.target, span)).sum(axis=1)
    return A, b


def solve_rows_reference(rows: SparseRows, terms: Terms, other: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Every row's minimiser, the smallest of them where there are many: a half-step in a few lines of NumPy."""
    exact = other.astype(np.float64)
    G = (exact.T * terms.omega) @ exact
    return np.array([least_squares(rows, terms, other, G, r) for r in range(rows.n_rows)])


def least_squares(
    rows: SparseRows, terms: Terms, other: npt.NDArray[np.float32], G: npt.NDArray[np.float64], r: int
) -> npt.NDArray[np.float64]:
    """The solution of one row, or the smallest of them where its matrix is singular."""
    A, b = row_system(rows, terms, other, G, r)
    return in_float32(np.linalg.lstsq(A, b, rcond=SINGULAR)[0])


def in_float32(solution: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Numbers beyond the range of float32 become its ends."""
    largest = float(np.finfo(np.float32).max)
    return np.asarray(np.clip(solution, -largest, largest), np.float64)


def part(rows: SparseRows, terms: Terms, chosen: npt.NDArray[np.int64]) -> tuple[SparseRows, Terms]:
    """Some of the rows, with their terms."""
    pairs = np.concatenate([np.arange(rows.indptr[r], rows.indptr[r + 1]) for r in chosen])

    def by(index: npt.NDArray[np.int64], array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return array if len(array) == 1 else array[index]

    return rows.take(chosen), Terms(
        by(pairs, terms.excess), by(pairs, terms.target), by(chosen, terms.ridge), by(chosen, terms.dense), terms.omega
    )
