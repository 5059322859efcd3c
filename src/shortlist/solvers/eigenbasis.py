"""The eigenbasis of a Gramian, in which the dense part of every row's system is diagonal.

Gramians are summed in float32, which resolves eigenvalues down to about 1e-7 of the largest. A row's system adds its
ridge to them. If both the eigenvalues and the ridge are below that noise (more dimensions than the rank, and a tiny λ),
the basis is computed in float64. Directions in which the embeddings are only rounding errors are then set to zero on
both sides: a solution along them would be noise divided by a tiny number.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._threads import run_chunks, single_threaded_blas
from shortlist.errors import SettingError
from shortlist.objectives.pointwise_square import Terms, gramian
from shortlist.solvers.cg_limits import CLEAR, NOISE, least_ridge

Array: TypeAlias = npt.NDArray[Any]
_BLOCK = 2048  # rows that are rotated at once


def eigenbasis(G: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the eigenvalues, largest first and none below zero, and the matrix Q of eigenvectors: G = QΛQᵀ.

    The sign of an eigenvector is chosen so that its largest entry is positive. BLAS runs on one thread: more threads
    gain little, lose a lot on a busy machine, and round differently.
    """
    refuse_large(G)
    with single_threaded_blas():
        values, Q = np.linalg.eigh(G)
    values, Q = np.maximum(values[::-1], 0.0), Q[:, ::-1]
    largest = np.abs(Q).argmax(axis=0)
    return values, Q * np.where(Q[largest, np.arange(len(values))] < 0, -1.0, 1.0)


def refuse_large(G: npt.NDArray[np.float64]) -> None:
    """Raise if a Gramian overflows float32."""
    if not np.isfinite(G).all():
        raise SettingError(
            "the embeddings are too large: their inner products overflow float32",
            hint="lower init_scale, or raise regularization; with start=, scale down its embeddings",
            code="diverged",
        )


def rotate(embeddings: npt.NDArray[np.float32], Q: Array, threads: int | None = None) -> None:
    """Multiply every row by Q, in place and in Q's precision; blocks of rows run in parallel."""

    def rotate_blocks(start: int, stop: int) -> None:
        for k in range(start, stop):
            block = embeddings[k * _BLOCK : (k + 1) * _BLOCK]
            block[:] = block @ Q

    with single_threaded_blas():
        run_chunks(rotate_blocks, [(k, k + 1) for k in range(-(-len(embeddings) // _BLOCK))], threads)


def is_clear(values: Array, terms: Terms) -> bool:
    """Return whether the eigenvalues of a float32 Gramian, largest first, are precise enough for these rows."""
    if values[-1] > CLEAR * values[0]:
        return True
    return least_ridge(terms.ridge) > CLEAR * float(values[0]) * float(terms.dense.max(initial=0.0))


def diagonalise(
    other: npt.NDArray[np.float32],
    embeddings: npt.NDArray[np.float32],
    terms: Terms,
    threads: int | None = None,
) -> npt.NDArray[np.float64]:
    """Rotate both sides, in place, into the eigenbasis of the other side's Gramian, and return its eigenvalues.

    A common rotation does not change scores, so nothing is rotated back.
    """
    values, Q = eigenbasis(gramian(other, terms.omega, threads))
    clear = is_clear(values, terms)
    if not clear:
        values, Q = eigenbasis(gramian(other, terms.omega, threads, np.float64))
    rotation = Q.astype(np.float32) if clear else Q
    rotate(other, rotation, threads)
    rotate(embeddings, rotation, threads)
    if not clear:
        drop_noise(values, other, embeddings)
    return values


def drop_noise(values: Array, other: Array, embeddings: Array, longest: float | None = None) -> None:
    """Set to zero, on both sides, the coordinates in which `other` has only rounding errors.

    Their eigenvalues become the largest, so that every solution stays at zero there. If the columns are only a part of
    the embeddings, `longest` is the length of the longest column of all.
    """
    lengths = column_lengths(other)
    if longest is None:
        longest = lengths.max(initial=0.0)
    noise = lengths <= NOISE * np.sqrt(len(values)) * longest
    other[:, noise] = 0
    embeddings[:, noise] = 0
    values[noise] = values.max(initial=0.0) or 1.0


def column_lengths(embeddings: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the Euclidean length of each column."""
    return np.asarray(np.sqrt(np.einsum("nd,nd->d", embeddings, embeddings, dtype=np.float64)))


class FoldInBasis:
    """Fixed embeddings in the eigenbasis of their Gramian, for fold-in.

    The result of the eigen solver is already in that basis and usually not copied.
    """

    def __init__(self, embeddings: npt.NDArray[np.float32], omega: npt.NDArray[np.float32]) -> None:
        G = gramian(embeddings, omega)
        refuse_large(G)
        self.embeddings, self.spectrum = embeddings, np.diagonal(G).copy()
        self._Q: Array | None = None
        scale = np.sqrt(np.outer(self.spectrum, self.spectrum))
        if (np.abs(G - np.diag(self.spectrum)) > 1e-6 * scale).any():
            self.spectrum, Q = eigenbasis(gramian(embeddings, omega, dtype=np.float64))
            self._Q = Q
            self.embeddings = embeddings.copy()
            rotate(self.embeddings, Q)
            drop_noise(self.spectrum, self.embeddings, self.embeddings)
        else:
            self.spectrum[self.spectrum == 0] = self.spectrum.max(initial=0.0) or 1.0

    def back(self, solutions: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Rotate solutions, in place, from the eigenbasis back to the basis of the given embeddings."""
        if self._Q is not None:
            rotate(solutions, self._Q.T)
        return solutions
