"""The normal equations of each row in alternating least squares (Algorithm 4), in plain NumPy.

The solvers are tested against these functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pointwise_square import Terms

SINGULAR = 1e-12  # singular values below this fraction of the largest count as zero, in float64


def at(array: npt.NDArray[np.float32], index: int | slice) -> npt.NDArray[np.float32] | np.float32:
    """Return entries of an array of `Terms`, in which a single element applies to all."""
    return array[0] if len(array) == 1 else array[index]


def row_system(
    rows: SparseRows,
    terms: Terms,
    other: npt.NDArray[np.float32],
    G: npt.NDArray[np.float64],
    r: int,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the matrix and right-hand side of row `r` in float64; `G` is the Gramian of `other`."""
    span = slice(rows.indptr[r], rows.indptr[r + 1])
    Psi = other[rows.indices[span]].astype(np.float64)
    A = at(terms.dense, r) * G + (Psi.T * at(terms.excess, span)) @ Psi + at(terms.ridge, r) * np.eye(other.shape[1])
    b = (Psi.T * at(terms.target, span)).sum(axis=1)
    return A, b


def solve_rows_reference(rows: SparseRows, terms: Terms, other: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return every row's minimiser, the shortest if there are several; the NumPy twin of an exact half step."""
    exact = other.astype(np.float64)
    G = (exact.T * terms.omega) @ exact
    return np.array([least_squares(rows, terms, other, G, r) for r in range(rows.n_rows)])


def least_squares(
    rows: SparseRows, terms: Terms, other: npt.NDArray[np.float32], G: npt.NDArray[np.float64], r: int
) -> npt.NDArray[np.float64]:
    """Return the solution of one row, the shortest if its matrix is singular."""
    A, b = row_system(rows, terms, other, G, r)
    return in_float32(np.linalg.lstsq(A, b, rcond=SINGULAR)[0])


def in_float32(solution: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Clip numbers to the range of float32."""
    largest = float(np.finfo(np.float32).max)
    return np.asarray(np.clip(solution, -largest, largest), np.float64)


def part(rows: SparseRows, terms: Terms, chosen: npt.NDArray[np.int64]) -> tuple[SparseRows, Terms]:
    """Return the chosen rows with their terms."""
    pairs = np.concatenate([np.arange(rows.indptr[r], rows.indptr[r + 1]) for r in chosen])

    def by(index: npt.NDArray[np.int64], array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return array if len(array) == 1 else array[index]

    return rows.take(chosen), Terms(
        by(pairs, terms.excess), by(pairs, terms.target), by(chosen, terms.ridge), by(chosen, terms.dense), terms.omega
    )
