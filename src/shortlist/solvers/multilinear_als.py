"""Algorithm 4 of the article: multilinear models under a square loss, block by block.

By least squares or by coordinate descent, with the corrections that its Hessian needs (`solvers.quadratic`). A model
names its blocks and what J·, Jᵀ· and (J∘J)ᵀ· are for each (`scoring.multilinear`); a loss gives 𝒜 and B
(`solvers.square_losses`). Nothing here knows any of them.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist._threads import single_threaded_blas
from shortlist.data.sparse_rows import by_key
from shortlist.objectives.pointwise_square import LossParts
from shortlist.scoring.sides import Block, FeatureBlock, ScaledBlock, Side, TableBlock
from shortlist.solvers.epochs import WholeRows
from shortlist.solvers.group_steps import group_changes, pays
from shortlist.solvers.quadratic import FLAT, DirectionGains, IndependentRows, Quadratic
from shortlist.solvers.single_rows import solve_rows
from shortlist.solvers.square_losses import SquareLoss

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
Method: TypeAlias = Literal["als", "cd"]
MANY = 1000  # steps, where only the residual ends them
ENOUGH = 1e-12  # of the squared residual that was there at first


def least_squares_step(block: Block, quadratic: Quadratic, Phi: Floats, steps: int) -> None:
    """Improve a block by conjugate gradients, from where it is: no step raises the loss, and enough reach the minimum.

    Where groups are by themselves, so are their steps; else all go together. The preconditioner is the diagonal. A step
    costs one product with 𝒜, J and Jᵀ: what bounds it is what bounds these. Where a block is a table of rows that do
    not know of each other, as in matrix factorization, `solve_rows` does the same faster, and where its groups have
    several such rows `group_changes` does.
    """
    if isinstance(block, TableBlock) and isinstance(quadratic, IndependentRows) and len(Phi) >= Phi.shape[1]:
        solve_rows(quadratic, block.values, block.ridge, block.prior, steps, ENOUGH)
        Phi[:] = block.values
        return
    if block.values.size == 1:
        coordinate_step(block, quadratic, Phi)
        return
    if isinstance(block, ScaledBlock | FeatureBlock) and isinstance(quadratic, IndependentRows):
        here = quadratic if block.rows is None else quadratic.part(block.rows)
        if pays(block, here):
            now = Phi if block.rows is None else Phi[block.rows]
            residual = -(block.back(here.slope(now)) + block.ridge * (block.values - block.prior))
            _take(block, here, Phi, group_changes(block, here, residual, steps, ENOUGH))
            return
    generic_step(block, quadratic, Phi, steps)


def generic_step(block: Block, quadratic: Quadratic, Phi: Floats, steps: int) -> None:
    """`least_squares_step` for blocks of any kind."""
    here = quadratic if block.rows is None else quadratic.part(block.rows)
    now = Phi if block.rows is None else Phi[block.rows]
    apart = block.groups is not None and not here.coupled
    ridge = block.ridge
    residual = -(block.back(here.slope(now)) + ridge * (block.values - block.prior))
    diagonal = block.squared_transpose(here.diagonal()) + ridge
    inverse = np.divide(1, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    change = np.zeros_like(block.values)
    P: Floats = inverse * residual
    size = _dot(residual, P, apart)
    first = size.copy()
    for _ in range(steps):
        active = size > ENOUGH * first
        if not active.any():
            break
        turn = block.back(here.apply(block.forward(P))) + ridge * P
        along = _dot(P, turn, apart)
        active &= along > FLAT * _dot(P, diagonal * P, apart)
        alpha = np.divide(size, along, out=np.zeros_like(size), where=active).astype(np.float32)
        change += alpha * P
        residual -= alpha * turn
        scaled = inverse * residual
        new = np.where(active, _dot(residual, scaled, apart), 0.0)
        beta = np.divide(new, size, out=np.zeros_like(size), where=active).astype(np.float32)
        P = scaled + beta * P
        size = new
    _take(block, here, Phi, change)


def _dot(a: Floats, b: Floats, apart: bool) -> npt.NDArray[np.float64]:
    """Of each group, or of all together."""
    each = np.einsum("gk,gk->g", a, b).astype(np.float64)
    return np.asarray(each[:, None] if apart else each.sum(keepdims=True)[:, None])


def _take(block: Block, here: Quadratic, Phi: Floats, change: Floats) -> None:
    block.values += change
    moved = block.forward(change)
    if block.rows is None:
        Phi += moved
    else:
        Phi[block.rows] += moved
    here.moved(moved)


def coordinate_step(block: Block, quadratic: Quadratic, Phi: Floats) -> None:
    """Improve a block one column of its values at a time, each group's number to its best given all others.

    Groups that are by themselves move at once; where rows are coupled they move one after the other, each in view of
    those before it. A column costs a pass over the observed pairs with ∇ŷ of each, and one over the rows.
    """
    assert block.groups is not None
    here = quadratic if block.rows is None else quadratic.part(block.rows)
    now = Phi if block.rows is None else Phi[block.rows]
    descent = here.descent(now)
    groups, n = block.groups, len(block.values)
    order = by_key(groups.astype(np.int32, copy=False), np.arange(len(groups), dtype=np.int32), n)
    ridge = np.broadcast_to(block.ridge, block.values.shape)
    off = block.values - block.prior
    for j in range(block.values.shape[1]):
        P, dims = block.direction(j)
        change = _best(descent.gains(now, P, dims), order, ridge[:, j], off[:, j])
        block.values[:, j] += change
        steps = change[groups]
        now[:, dims] += steps[:, None] * P
        descent.moved(steps)
    if block.rows is not None:
        Phi[block.rows] = now


def _best(
    gains: DirectionGains, order: tuple[npt.NDArray[np.int64], Array], ridge: npt.NDArray[Any], off: npt.NDArray[Any]
) -> Floats:
    """By how much each group's number moves."""
    none = np.zeros((0, 0), np.float32)
    out = np.zeros(len(ridge), np.float32)
    pull, push = (none if one is None else np.ascontiguousarray(one) for one in (gains.pull, gains.push))
    _best_of_groups(
        *order, gains.slope, gains.curvature, pull, push, ridge.astype(np.float64), off.astype(np.float64), out
    )
    return out


@kernel
def _best_of_groups(
    indptr: Array,
    order: Array,
    slope: Array,
    curvature: Array,
    pull: Array,
    push: Array,
    ridge: Array,
    off: Array,
    out: Array,
) -> None:
    t = pull.shape[1]
    dz, dv, pulled, pushed = (np.zeros(t), np.zeros(t), np.zeros(t), np.zeros(t))
    for g in range(len(indptr) - 1):
        first, second, scale = ridge[g] * off[g], ridge[g], ridge[g]
        for f in range(t):
            pulled[f] = pushed[f] = 0.0
        for e in range(indptr[g], indptr[g + 1]):
            r = order[e]
            first += slope[r]
            second += curvature[r]
            scale += abs(curvature[r])
            for f in range(t):
                first -= push[r, f] * dz[f] + pull[r, f] * dv[f]
                pulled[f] += pull[r, f]
                pushed[f] += push[r, f]
        for f in range(t):
            second -= 2.0 * pulled[f] * pushed[f]
            scale += abs(2.0 * pulled[f] * pushed[f])
        if second > 1e-30 and second > FLAT * scale:
            out[g] = np.float32(-first / second)
            for f in range(t):
                dz[f] += pulled[f] * out[g]
                dv[f] += pushed[f] * out[g]


class MultilinearAlternation(WholeRows):
    """Epochs of Algorithm 4 over both sides: every block of the contexts, then every block of the items.

    Args:
        loss: the square loss.
        contexts: the side of the contexts.
        items: the side of the items.
        method: `"als"` or `"cd"`.
        steps: of conjugate gradients, for each block in an epoch.

    BLAS has one thread here: some of its kernels sum in another order where more threads share a product, and the
    result must not depend on them. The threads are the kernels' own.
    """

    joint = True

    def __init__(self, loss: SquareLoss, contexts: Side, items: Side, method: Method, steps: int) -> None:
        self._loss, self._contexts, self._items, self._method, self._steps = loss, contexts, items, method, steps

    @single_threaded_blas()
    def epoch(self) -> None:
        """One pass over both sides."""
        Psi = self._items.embeddings()
        Phi = self._contexts.embeddings()
        self._improve(self._contexts, self._loss.of_contexts(Psi), Phi)
        self._improve(self._items, self._loss.of_items(Phi, Psi), Psi)

    def _improve(self, side: Side, quadratic: Quadratic, Phi: Floats) -> None:
        for block in side.blocks(Phi, apart=self._method == "cd"):
            if self._method == "cd":
                coordinate_step(block, quadratic, Phi)
            else:
                least_squares_step(block, quadratic, Phi, self._steps)
        side.settle()

    @single_threaded_blas()
    def finish(self) -> None:
        """Solve to the end for the last block of the contexts: their ids, or those of their first part."""
        finish(self._loss.of_contexts(self._items.embeddings()), self._contexts)

    def outcome(self) -> tuple[Floats, Floats]:
        """Items and contexts as they were if this were the last epoch; the state stays as it is."""
        before = self._contexts.packed()
        self.finish()
        contexts = self._contexts.packed()
        self._contexts.unpack(before)
        return self._items.packed(), contexts

    def restore(self, items: Floats, contexts: Floats | None) -> None:
        """Take these parameters."""
        self._items.unpack(items)
        if contexts is not None:
            self._contexts.unpack(contexts)

    def loss(self) -> LossParts:
        """The loss in its parts."""
        observed, everywhere = self._loss.value(self._contexts.embeddings(), self._items.embeddings())
        return LossParts(observed, everywhere, self._contexts.penalty() + self._items.penalty())

    def embeddings(self) -> tuple[Floats, Floats]:
        """The parameters of contexts and of items, each in one column."""
        return self._contexts.packed(), self._items.packed()


def finish(quadratic: Quadratic, side: Side) -> None:
    """Set the last block of a side to its minimum."""
    Phi = side.embeddings()
    for block in side.blocks(Phi, apart=True, last=True):
        least_squares_step(block, quadratic, Phi, MANY)
