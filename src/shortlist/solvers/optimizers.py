"""Optimizers for rows of embeddings: SGD, Adagrad and Adam (sparse updates, section 4.1.2 of the article).

Only the rows of a step change, so Adam is lazy: its means are updated when a row is.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._aligned import aligned
from shortlist._numba import Static, fast_lean_kernel

Array: TypeAlias = npt.NDArray[Any]
OptimizerName: TypeAlias = Literal["sgd", "adagrad", "adam"]
SGD, ADAGRAD, ADAM = 0, 1, 2
CODES = {"sgd": SGD, "adagrad": ADAGRAD, "adam": ADAM}
EPSILON = 1e-8
_BETA_1, _BETA_2 = 0.9, 0.999
_LEAST = 1e-12  # a smaller fraction of a step of Adam is skipped


class OptimizerState(NamedTuple):
    """The state of an optimizer for each row; an array that it does not use has a single row."""

    first: npt.NDArray[np.float32]  # Adagrad: the sum of squared gradients; Adam: the mean gradient
    second: npt.NDArray[np.float32]  # Adam: the mean squared gradient
    counts: npt.NDArray[np.float32]  # Adam: the number of steps of each row; part of a step counts as a fraction

    @classmethod
    def of(cls, kind: int, shape: tuple[int, int]) -> OptimizerState:
        """Return the state before the first step."""
        n, width = shape
        return cls(
            aligned(np.zeros((n if kind != SGD else 1, width), np.float32)),
            aligned(np.zeros((n if kind == ADAM else 1, width), np.float32)),
            np.zeros(n if kind == ADAM else 1, np.float32),
        )


def state_arrays(states: tuple[OptimizerState, OptimizerState]) -> dict[str, npt.NDArray[Any]]:
    """Return the state of contexts and items as arrays by name; the arrays are not copied."""
    sides = zip(("context", "item"), states)
    return {f"{side}_{name}": array for side, state in sides for name, array in state._asdict().items()}


@fast_lean_kernel
def apply_row(
    kind: int, theta: Array, r: int, gradient: Array, state: OptimizerState, rate: Array, ridge: Array, scale: float
) -> None:
    """Update a row: θ_r ← θ_r − η∘direction. The direction depends on the optimizer and on g = ∇l + scale·λ∘θ_r.

        sgd      g
        adagrad  g / (√Σg² + ε), summed over all steps of this row (Duchi et al. 2011)
        adam     m̂ / (√v̂ + ε), with means over the steps of this row only (Kingma and Ba 2015, lazy)

    η (`rate`) and λ (`ridge`) have a value for each coordinate; all except the last two must be equal. A coordinate
    with η = 0 never moves. Bound by the bytes of the row and its state: 1, 2 or 3 rows are read and written.
    """
    end = alike(rate, ridge)
    if kind == SGD:
        sgd_row(theta, r, gradient, rate, ridge, scale, end)
    elif kind == ADAGRAD:
        adagrad_row(theta, r, gradient, state, rate, ridge, scale, end)
    else:
        adam_row(theta, r, gradient, state, rate, ridge, scale, end)


@fast_lean_kernel
def apply_known(
    optimizer: Static,
    theta: Array,
    r: int,
    gradient: Array,
    state: OptimizerState,
    rate: Array,
    ridge: Array,
    scale: float,
    end: int,
) -> None:
    """Apply `apply_row` with the optimizer as a compile-time constant; the first `end` coordinates are `alike`."""
    if len(optimizer) == SGD:
        sgd_row(theta, r, gradient, rate, ridge, scale, end)
    elif len(optimizer) == ADAGRAD:
        adagrad_row(theta, r, gradient, state, rate, ridge, scale, end)
    else:
        adam_row(theta, r, gradient, state, rate, ridge, scale, end)


@fast_lean_kernel
def sgd_row(theta: Array, r: int, gradient: Array, rate: Array, ridge: Array, scale: float, end: int) -> None:
    """Apply `apply_row` for SGD; the first `end` coordinates are `alike`."""
    s = np.float32(scale)
    for f in range(end):
        _sgd(theta, r, f, gradient, rate[0], s * ridge[0])
    for f in range(end, theta.shape[1]):
        _sgd(theta, r, f, gradient, rate[f], s * ridge[f])


@fast_lean_kernel
def adagrad_row(
    theta: Array, r: int, gradient: Array, state: OptimizerState, rate: Array, ridge: Array, scale: float, end: int
) -> None:
    """Apply `apply_row` for Adagrad; the first `end` coordinates are `alike`."""
    s = np.float32(scale)
    for f in range(end):
        adagrad_number(theta, r, f, gradient, state, rate[0], s * ridge[0])
    for f in range(end, theta.shape[1]):
        adagrad_number(theta, r, f, gradient, state, rate[f], s * ridge[f])


@fast_lean_kernel
def adam_row(
    theta: Array, r: int, gradient: Array, state: OptimizerState, rate: Array, ridge: Array, scale: float, end: int
) -> None:
    """Apply `apply_row` for Adam; the first `end` coordinates are `alike`."""
    count, s = state.counts[r] + 1, np.float32(scale)
    state.counts[r] = count
    # Bias corrections of both means, which start at 0: the same for all coordinates.
    first, second = np.float32(1.0 / _moved(_BETA_1, count)), np.float32(1.0 / _moved(_BETA_2, count))
    for f in range(end):
        _adam(theta, r, f, gradient, state, first, second, rate[0], s * ridge[0])
    for f in range(end, theta.shape[1]):
        _adam(theta, r, f, gradient, state, first, second, rate[f], s * ridge[f])


@fast_lean_kernel
def apply_part(
    optimizer: Static,
    theta: Array,
    r: int,
    gradient: Array,
    state: OptimizerState,
    rate: Array,
    ridge: Array,
    scale: float,
    share: float,
) -> None:
    """Take a fraction `share` of the step of `apply_row`, and change the optimizer's state by the same fraction.

    θ moves by share·η∘direction, Adagrad's sum grows by share·g², and Adam's means move by 1 − β^share of the
    difference, in a step that counts as `share` steps. As `share` goes to 0, so does the change.
    """
    count = np.float32(0)
    if len(optimizer) == ADAM:
        if share < _LEAST:
            return
        count = state.counts[r] + np.float32(share)
        state.counts[r] = count
    for f in range(theta.shape[1]):
        g = gradient[f] + np.float32(scale) * ridge[f] * theta[r, f]
        direction = g
        if len(optimizer) == ADAGRAD:
            first = state.first
            first[r, f] += share * g * g
            direction = g / (math.sqrt(first[r, f]) + EPSILON) if g != 0 else g
        elif len(optimizer) == ADAM:
            first, second = state.first, state.second
            first[r, f] += _moved(_BETA_1, share) * (g - first[r, f])
            second[r, f] += _moved(_BETA_2, share) * (g * g - second[r, f])
            mean, square = first[r, f] / _moved(_BETA_1, count), second[r, f] / _moved(_BETA_2, count)
            direction = mean / (math.sqrt(square) + EPSILON)
        theta[r, f] -= share * rate[f] * direction


@fast_lean_kernel
def _moved(beta: float, steps: Any) -> float:
    """Return 1 − β^steps: how far a mean has moved after this number of steps, which may be a fraction."""
    integer = np.int64(steps)
    return 1.0 - beta**integer if integer == steps else -math.expm1(steps * math.log(beta))


@fast_lean_kernel
def _sgd(theta: Array, r: int, f: int, gradient: Array, rate: Any, ridge: Any) -> None:
    theta[r, f] -= rate * (gradient[f] + ridge * theta[r, f])


@fast_lean_kernel
def adagrad_number(theta: Array, r: int, f: int, gradient: Array, state: OptimizerState, rate: Any, ridge: Any) -> None:
    """Take one step of Adagrad on one number of a row."""
    g = gradient[f] + ridge * theta[r, f]
    total = state.first[r, f] + g * g
    state.first[r, f] = total
    theta[r, f] -= rate * g / (math.sqrt(total) + np.float32(EPSILON))


@fast_lean_kernel
def _adam(
    theta: Array, r: int, f: int, gradient: Array, state: OptimizerState, first: Any, second: Any, rate: Any, ridge: Any
) -> None:
    b1, b2, unit = np.float32(_BETA_1), np.float32(_BETA_2), np.float32(1)
    g = gradient[f] + ridge * theta[r, f]
    m = b1 * state.first[r, f] + (unit - b1) * g
    v = b2 * state.second[r, f] + (unit - b2) * g * g
    state.first[r, f] = m
    state.second[r, f] = v
    theta[r, f] -= rate * (m * first) / (math.sqrt(v * second) + np.float32(EPSILON))


def n_alike(rate: Array, ridge: Array) -> int:
    """Return how many coordinates have the η and λ of the first: all, or all except the two that biases add.

    A loop from 0 over these coordinates, with two scalars, is vectorised. It would not be with arrays, which could
    overlap with the rows, nor with another start, because a negative index wraps around.
    """
    n = len(rate)
    for f in range(max(0, n - 2), n):
        if rate[f] != rate[0] or ridge[f] != ridge[0]:
            return max(0, n - 2)
    return n


alike = fast_lean_kernel(n_alike)  # for kernels
