"""Multilinear models under a square loss, block by block: Algorithm 4 of the article (section 5.1.2).

Blocks are solved by least squares or coordinate descent, with a corrected Hessian (see `solvers.quadratic`). A model
defines its blocks, with J·, Jᵀ· and (J∘J)ᵀ· for each (`scoring.sides`). A loss defines 𝒜 and B
(`solvers.square_losses`). This module depends on no particular model or loss.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist._state import State, check_state
from shortlist._threads import single_threaded_blas
from shortlist.data.sparse_rows import by_key
from shortlist.objectives.loss_parts import LossParts
from shortlist.scoring.sides import Block, FeatureBlock, ScaledBlock, Side, TableBlock
from shortlist.solvers.group_steps import group_changes, is_faster
from shortlist.solvers.quadratic import FLAT, DirectionGains, IndependentRows, Quadratic
from shortlist.solvers.single_rows import solve_rows
from shortlist.solvers.square_losses import SquareLoss

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
Method: TypeAlias = Literal["als", "cd"]
MANY = 1000  # maximum number of steps when only the residual should end them
ENOUGH = 1e-12  # converged if the squared residual is at most this fraction of the first


def least_squares_step(block: Block, quadratic: Quadratic, Phi: Floats, steps: int) -> None:
    """Improve a block by steps of conjugate gradients; no step raises the loss, and enough steps reach the minimum.

    Independent groups have separate steps; otherwise all groups share them. The preconditioner is the diagonal. A step
    costs one product with 𝒜, J and Jᵀ each. Two fast paths do the same: `solve_rows` for a table of independent rows,
    as in matrix factorization, and `group_changes` for independent groups of several rows.
    """
    if isinstance(block, TableBlock) and isinstance(quadratic, IndependentRows) and len(Phi) >= Phi.shape[1]:
        solve_rows(quadratic, block.values, block.ridge, block.prior, steps, ENOUGH)
        Phi[:] = block.values
        return
    if block.values.size == 1:
        coordinate_step(block, quadratic, Phi)
        return
    if isinstance(block, ScaledBlock | FeatureBlock) and isinstance(quadratic, IndependentRows):
        local = quadratic if block.rows is None else quadratic.part(block.rows)
        if is_faster(block, local):
            current = Phi if block.rows is None else Phi[block.rows]
            residual = -(block.back(local.slope(current)) + block.ridge * (block.values - block.prior))
            _take(block, local, Phi, group_changes(block, local, residual, steps, ENOUGH))
            return
    generic_step(block, quadratic, Phi, steps)


def generic_step(block: Block, quadratic: Quadratic, Phi: Floats, steps: int) -> None:
    """Improve a block of any type; see `least_squares_step`."""
    local = quadratic if block.rows is None else quadratic.part(block.rows)
    current = Phi if block.rows is None else Phi[block.rows]
    independent = block.groups is not None and not local.coupled
    ridge = block.ridge
    residual = -(block.back(local.slope(current)) + ridge * (block.values - block.prior))
    diagonal = block.squared_transpose(local.diagonal()) + ridge
    inverse = np.divide(1, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    change = np.zeros_like(block.values)
    P: Floats = inverse * residual
    size = _dot(residual, P, independent)
    first = size.copy()
    for _ in range(steps):
        active = size > ENOUGH * first
        if not active.any():
            break
        product = block.back(local.apply(block.forward(P))) + ridge * P
        along = _dot(P, product, independent)
        active &= along > FLAT * _dot(P, diagonal * P, independent)
        alpha = np.divide(size, along, out=np.zeros_like(size), where=active).astype(np.float32)
        change += alpha * P
        residual -= alpha * product
        scaled = inverse * residual
        new = np.where(active, _dot(residual, scaled, independent), 0.0)
        beta = np.divide(new, size, out=np.zeros_like(size), where=active).astype(np.float32)
        P = scaled + beta * P
        size = new
    _take(block, local, Phi, change)


def _dot(a: Floats, b: Floats, independent: bool) -> npt.NDArray[np.float64]:
    """Return the inner product of each group, or of all groups together."""
    each = np.einsum("gk,gk->g", a, b).astype(np.float64)
    return np.asarray(each[:, None] if independent else each.sum(keepdims=True)[:, None])


def _take(block: Block, local: Quadratic, Phi: Floats, change: Floats) -> None:
    block.values += change
    moved = block.forward(change)
    if block.rows is None:
        Phi += moved
    else:
        Phi[block.rows] += moved
    local.moved(moved)


def coordinate_step(block: Block, quadratic: Quadratic, Phi: Floats) -> None:
    """Improve a block one column of its values at a time: set each group's value to its best, given all others.

    Independent groups move at once. If rows are coupled, groups move one after the other. A column costs one pass over
    the observed pairs, with ∇ŷ of each, and one pass over the rows.
    """
    assert block.groups is not None
    local = quadratic if block.rows is None else quadratic.part(block.rows)
    current = Phi if block.rows is None else Phi[block.rows]
    descent = local.descent(current)
    groups, n = block.groups, len(block.values)
    order = by_key(groups.astype(np.int32, copy=False), np.arange(len(groups), dtype=np.int32), n)
    ridge = np.broadcast_to(block.ridge, block.values.shape)
    off = block.values - block.prior
    for j in range(block.values.shape[1]):
        P, dims = block.direction(j)
        change = _best(descent.gains(current, P, dims), order, ridge[:, j], off[:, j])
        block.values[:, j] += change
        steps = change[groups]
        current[:, dims] += steps[:, None] * P
        descent.moved(steps)
    if block.rows is not None:
        Phi[block.rows] = current


def _best(
    gains: DirectionGains, order: tuple[npt.NDArray[np.int64], Array], ridge: npt.NDArray[Any], off: npt.NDArray[Any]
) -> Floats:
    """Return the move of each group's value."""
    none = np.zeros((0, 0), np.float32)
    out = np.zeros(len(ridge), np.float32)
    pull, push = (none if side is None else np.ascontiguousarray(side) for side in (gains.pull, gains.push))
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


class MultilinearAlternation:
    """The trainer of Algorithm 4: each epoch improves every block of the contexts, then every block of the items.

    Args:
        loss: the square loss.
        contexts: the side of the contexts.
        items: the side of the items.
        method: `"als"` or `"cd"`.
        steps: number of steps of conjugate gradients for each block in an epoch.

    BLAS runs on one thread, because some of its kernels sum in a different order on several threads and the result must
    not depend on the number of threads. The Numba kernels run on all threads.
    """

    samples: ClassVar[int] = 0

    def __init__(self, loss: SquareLoss, contexts: Side, items: Side, method: Method, steps: int) -> None:
        self._loss, self._contexts, self._items, self._method, self._steps = loss, contexts, items, method, steps

    @single_threaded_blas()
    def epoch(self) -> None:
        """Run one pass over both sides."""
        Psi = self._items.embeddings()
        Phi = self._contexts.embeddings()
        self._improve(self._contexts, self._loss.of_contexts(Psi), Phi)
        self._improve(self._items, self._loss.of_items(Phi, Psi), Psi)

    def _improve(self, side: Side, quadratic: Quadratic, Phi: Floats) -> None:
        for block in side.blocks(Phi, grouped=self._method == "cd"):
            if self._method == "cd":
                coordinate_step(block, quadratic, Phi)
            else:
                least_squares_step(block, quadratic, Phi, self._steps)
        side.settle()

    @single_threaded_blas()
    def finish(self) -> None:
        """Solve the last block of the contexts to convergence: the ids, or the ids of the first part."""
        finish(self._loss.of_contexts(self._items.embeddings()), self._contexts)

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the parameters of contexts and of items, each in one column."""
        return {"contexts": self._contexts.packed(), "items": self._items.packed()}

    def load_state_dict(self, state: State) -> None:
        """Continue from these parameters."""
        check_state(state, self.state_dict())
        self._contexts.unpack(state["contexts"])
        self._items.unpack(state["items"])

    def snapshot(self) -> dict[str, Array]:
        """Return the parameters of a fit that ends now; the state does not change."""
        before = self._contexts.packed()
        self.finish()
        contexts = self._contexts.packed()
        self._contexts.unpack(before)
        return {"contexts": contexts, "items": self._items.packed()}

    def restore(self, snapshot: State) -> None:
        """Set the parameters to these values."""
        self.load_state_dict(snapshot)

    def loss(self) -> LossParts:
        """Return the parts of the loss."""
        observed, everywhere = self._loss.value(self._contexts.embeddings(), self._items.embeddings())
        penalty = self._contexts.penalty() + self._items.penalty()
        return LossParts(observed=observed, unobserved=everywhere, regularizer=penalty)

    def embeddings(self) -> tuple[Floats, Floats]:
        """Return the parameters of contexts and of items, each in one column."""
        return self._contexts.packed(), self._items.packed()


def finish(quadratic: Quadratic, side: Side) -> None:
    """Set the last block of a side to its minimum."""
    Phi = side.embeddings()
    for block in side.blocks(Phi, grouped=True, last=True):
        least_squares_step(block, quadratic, Phi, MANY)
