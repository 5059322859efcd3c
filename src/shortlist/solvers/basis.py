"""The eigenbasis of a Gramian: where the dense part of every row's system is a diagonal."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist._threads import run_chunks, single_threaded_blas
from shortlist.errors import SettingError
from shortlist.objectives.pointwise import gramian

_BLOCK = 2048  # rows rotated at once


def eigenbasis(G: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Eigenvalues, largest first and none below zero, and the matrix Q of eigenvectors: G = QΛQᵀ.

    An eigenvector's sign is free; here its largest entry is positive. One thread of BLAS: more gain little, lose much
    where the machine is busy, and round in another way.
    """
    refuse_large(G)
    with single_threaded_blas():
        values, Q = np.linalg.eigh(G)
    values, Q = np.maximum(values[::-1], 0.0), Q[:, ::-1]
    largest = np.abs(Q).argmax(axis=0)
    return values, Q * np.where(Q[largest, np.arange(len(values))] < 0, -1.0, 1.0)


def refuse_large(G: npt.NDArray[np.float64]) -> None:
    """Refuse a Gramian that float32 cannot hold."""
    if not np.isfinite(G).all():
        raise SettingError(
            "the embeddings are too large: their inner products do not fit float32; lower init_scale, or raise "
            "regularization; where the fit has a start, its embeddings count too"
        )


def rotate(embeddings: npt.NDArray[np.float32], Q: npt.NDArray[np.float32], threads: int | None = None) -> None:
    """Multiply every row by Q, in place, a block at a time, each by one thread."""

    def turn(start: int, stop: int) -> None:
        for k in range(start, stop):
            block = embeddings[k * _BLOCK : (k + 1) * _BLOCK]
            block[:] = block @ Q

    with single_threaded_blas():
        run_chunks(turn, [(k, k + 1) for k in range(-(-len(embeddings) // _BLOCK))], threads)


def diagonalise(
    other: npt.NDArray[np.float32],
    own: npt.NDArray[np.float32],
    omega: npt.NDArray[np.float32],
    threads: int | None = None,
) -> npt.NDArray[np.float64]:
    """Rotate both sides, in place, into the eigenbasis of the other side's Gramian, and return its eigenvalues.

    Scores do not change under a common rotation, so nothing is ever rotated back.
    """
    values, Q = eigenbasis(gramian(other, omega, threads))
    Q32 = Q.astype(np.float32)
    rotate(other, Q32, threads)
    rotate(own, Q32, threads)
    return values


class Diagonal:
    """Embeddings that stay as they are, seen in the eigenbasis of their Gramian; for folding in against them.

    What the eigen solver ends with is in that basis already, and is as a rule not copied.
    """

    def __init__(self, embeddings: npt.NDArray[np.float32], omega: npt.NDArray[np.float32]) -> None:
        G = gramian(embeddings, omega)
        refuse_large(G)
        self.embeddings, self.spectrum = embeddings, np.diagonal(G).copy()
        self._Q: npt.NDArray[np.float32] | None = None
        scale = np.sqrt(np.outer(self.spectrum, self.spectrum))
        if (np.abs(G - np.diag(self.spectrum)) > 1e-6 * scale).any():
            self.spectrum, Q = eigenbasis(G)
            self._Q = Q.astype(np.float32)
            self.embeddings = embeddings.copy()
            rotate(self.embeddings, self._Q)

    def back(self, solutions: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Rotate solutions, in place, from the eigenbasis to that of the embeddings as they were given."""
        if self._Q is not None:
            rotate(solutions, self._Q.T)
        return solutions
