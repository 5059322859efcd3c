"""The eigenbasis of a Gramian: where the dense part of every row's system is a diagonal.

Gramians are summed in float32, which resolves eigenvalues down to about 1e-7 of the largest. A row's system adds its
ridge to them. Where neither the eigenvalues nor the ridge stand clear of that noise (more dimensions than the rank, and
a tiny λ), the basis is made in float64, and directions in which the embeddings hold nothing but rounding errors are set
to zero on both sides. Solutions along them would be noise divided by next to nothing.
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


def rotate(embeddings: npt.NDArray[np.float32], Q: Array, threads: int | None = None) -> None:
    """Multiply every row by Q, in place and in Q's precision, a block at a time, each by one thread."""

    def turn(start: int, stop: int) -> None:
        for k in range(start, stop):
            block = embeddings[k * _BLOCK : (k + 1) * _BLOCK]
            block[:] = block @ Q

    with single_threaded_blas():
        run_chunks(turn, [(k, k + 1) for k in range(-(-len(embeddings) // _BLOCK))], threads)


def is_clear(values: Array, terms: Terms) -> bool:
    """Whether eigenvalues of a Gramian summed in float32, largest first, are precise enough for these rows."""
    if values[-1] > CLEAR * values[0]:
        return True
    return least_ridge(terms.ridge) > CLEAR * float(values[0]) * float(terms.dense.max(initial=0.0))


def diagonalise(
    other: npt.NDArray[np.float32],
    own: npt.NDArray[np.float32],
    terms: Terms,
    threads: int | None = None,
) -> npt.NDArray[np.float64]:
    """Rotate both sides, in place, into the eigenbasis of the other side's Gramian, and return its eigenvalues.

    Scores do not change under a common rotation, so nothing is ever rotated back.
    """
    values, Q = eigenbasis(gramian(other, terms.omega, threads))
    clear = is_clear(values, terms)
    if not clear:
        values, Q = eigenbasis(gramian(other, terms.omega, threads, np.float64))
    turn = Q.astype(np.float32) if clear else Q
    rotate(other, turn, threads)
    rotate(own, turn, threads)
    if not clear:
        drop_noise(values, other, own)
    return values


def drop_noise(values: Array, other: Array, own: Array, longest: float | None = None) -> None:
    """Set to zero, on both sides, the coordinates in which `other` is nothing but rounding errors.

    Their eigenvalues become the largest, so that every solution stays at zero there. `longest` is the length of the
    longest column of all, where these are a part of them.
    """
    lengths = column_lengths(other)
    if longest is None:
        longest = lengths.max(initial=0.0)
    noise = lengths <= NOISE * np.sqrt(len(values)) * longest
    other[:, noise] = 0
    own[:, noise] = 0
    values[noise] = values.max(initial=0.0) or 1.0


def column_lengths(embeddings: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The Euclidean length of each column."""
    return np.asarray(np.sqrt(np.einsum("nd,nd->d", embeddings, embeddings, dtype=np.float64)))


class FoldInBasis:
    """Embeddings that stay as they are, seen in the eigenbasis of their Gramian; for folding in against them.

    What the eigen solver ends with is in that basis already, and is as a rule not copied.
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
        """Rotate solutions, in place, from the eigenbasis to that of the embeddings as they were given."""
        if self._Q is not None:
            rotate(solutions, self._Q.T)
        return solutions
