"""Fold-in for multilinear models: embed new contexts or items by solving for the block of their ids.

The other blocks keep their trained values.
"""

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
    """Embeddings φ = θJ + rest of new rows that differ only in θ; θ minimises the loss of the row.

    As a function of θ, the loss of a row has the same form as in φ, with ψJᵀ instead of ψ and JGJᵀ instead of G. The
    terms that depend only on the other side are computed once, in the eigenbasis of JGJᵀ. A row then only takes steps
    of conjugate gradients, until they converge.

    Args:
        side: a side with as many rows as θ has coordinates, each in a group of its own; it defines J and rest.
        other: Ψ, the embeddings of the other side.
        G: the Gramian of the other side, as in `IndependentRows`.
    """

    def __init__(self, side: Side, other: Floats, G: Floats) -> None:
        block = only_block(side)
        k = block.values.shape[1]
        self._prior: Floats = np.broadcast_to(np.asarray(block.prior, np.float32), block.values.shape)[0]
        J = block.forward(np.eye(k, dtype=np.float32))
        self._rest: Floats = (side.embeddings() - block.forward(block.values))[0]
        spectrum, Q = eigenbasis(J.astype(np.float64) @ G @ J.T)
        rotation = Q.astype(np.float32)
        self._spectrum, self._start = spectrum.astype(np.float32), self._prior @ rotation
        self._map: Floats = np.ascontiguousarray(rotation.T @ J)  # maps the eigenbasis to embeddings
        self._other: Floats = np.ascontiguousarray(other @ self._map.T)
        self._moved = bool(self._rest.any())
        self._level: Floats = other @ self._rest  # the part of each score that does not depend on θ
        self._pull: Floats = self._map @ (G @ self._rest)
        self.largest = float(np.einsum("ij,ij->i", other, other, dtype=np.float64).max(initial=0))  # ‖ψ‖²

    def __call__(self, loss: IndependentRows, ridge: Floats, threads: int | None = None) -> Floats:
        """Return the embeddings that minimise this loss plus ridge·‖θ − prior‖²."""
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
    """Return the last block of a side, in which its rows are independent."""
    side.regularize(np.ones(len(side.embeddings())), 1.0, 1.0)
    return next(iter(side.blocks(side.embeddings(), grouped=True, last=True)))
