"""Rows of a multilinear model that were not there in training, by the block that is theirs alone."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist.scoring.sides import Block, Side
from shortlist.solvers.eigenbasis import eigenbasis
from shortlist.solvers.multilinear_als import ENOUGH, MANY
from shortlist.solvers.quadratic import IndependentRows
from shortlist.solvers.single_rows import improve

Floats: TypeAlias = npt.NDArray[np.float32]
_NOTHING = np.zeros((0, 0), np.float32)


class MultilinearFoldIn:
    """Embeddings φ = θJ + rest of rows that differ in θ only, each with the θ of its least loss.

    In θ the loss of a row is a square like that in φ, with ψJᵀ for ψ and JGJᵀ for G. What depends on the other side
    only is made once, in the eigenbasis of JGJᵀ, so that a row takes no more than its conjugate gradients; they go on
    until the residual is next to nothing.

    Args:
        side: as many rows as θ has numbers, each of its own group: what is known of all of them but θ.
        other: Ψ, the embeddings of the other side.
        G: its Gramian, as in `IndependentRows`.
    """

    def __init__(self, side: Side, other: Floats, G: Floats) -> None:
        block = only_block(side)
        k = block.values.shape[1]
        self._prior: Floats = np.broadcast_to(np.asarray(block.prior, np.float32), block.values.shape)[0]
        J = block.forward(np.eye(k, dtype=np.float32))
        self._rest: Floats = (side.embeddings() - block.forward(block.values))[0]
        spectrum, Q = eigenbasis(J.astype(np.float64) @ G @ J.T)
        turn = Q.astype(np.float32)
        self._spectrum, self._start = spectrum.astype(np.float32), self._prior @ turn
        self._map: Floats = np.ascontiguousarray(turn.T @ J)  # from the eigenbasis to embeddings
        self._other: Floats = np.ascontiguousarray(other @ self._map.T)
        self._moved = bool(self._rest.any())
        self._level: Floats = other @ self._rest  # of each row of the other side, whatever θ is
        self._pull: Floats = self._map @ (G @ self._rest)
        self.largest = float(np.einsum("ij,ij->i", other, other, dtype=np.float64).max(initial=0))  # ‖ψ‖²

    def __call__(self, loss: IndependentRows, ridge: Floats, threads: int | None = None) -> Floats:
        """The embeddings of the rows of this loss, with ridge·‖θ − prior‖²."""
        n = loss.rows.n_rows
        theta = np.repeat(self._start[None], n, axis=0)
        more, lin = _NOTHING, loss.lin
        if self._start.any() or self._moved or loss.shift is not None:
            more = ridge[:, None] * self._start
        if self._moved:
            lin = lin - loss.quad * self._level[loss.rows.indices]
            more = more - np.broadcast_to(loss.dense, n)[:, None] * self._pull
        if loss.shift is not None:
            more = more - np.broadcast_to(loss.dense, n)[:, None] * (self._map @ loss.shift)
        weights = loss.quad, lin, loss.dense, self._spectrum
        improve(loss.rows, *weights, self._other, ridge, more, theta, MANY, ENOUGH, threads)
        return np.asarray(theta @ self._map + self._rest, np.float32)


def only_block(side: Side) -> Block:
    """The last block of a side, in which its rows are by themselves."""
    side.regularize(np.ones(len(side.embeddings())), 1.0, 1.0)
    return next(iter(side.blocks(side.embeddings(), apart=True, last=True)))
