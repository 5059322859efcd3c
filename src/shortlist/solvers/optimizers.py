"""How a row of parameters follows its gradient: plain steps, Adagrad, Adam. Rows that a step does not touch stay."""

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
_LEAST = 1e-12  # of a step of Adam's: what is less is none


class OptimizerState(NamedTuple):
    """What an optimizer remembers of each row; arrays with a single row where it has nothing to remember."""

    first: npt.NDArray[np.float32]  # Adagrad: the sum of squared gradients; Adam: the mean gradient
    second: npt.NDArray[np.float32]  # Adam: the mean squared gradient
    counts: npt.NDArray[np.float32]  # Adam: how often each row has moved, parts of steps by parts

    @classmethod
    def of(cls, kind: int, shape: tuple[int, int]) -> OptimizerState:
        """That of rows which have not moved yet."""
        n, width = shape
        return cls(
            aligned(np.zeros((n if kind != SGD else 1, width), np.float32)),
            aligned(np.zeros((n if kind == ADAM else 1, width), np.float32)),
            np.zeros(n if kind == ADAM else 1, np.float32),
        )


def remembered(states: tuple[OptimizerState, OptimizerState]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of contexts and items by name: themselves, not copies."""
    sides = zip(("context", "item"), states)
    return {f"{side}_{name}": array for side, state in sides for name, array in state._asdict().items()}


def recall(own: dict[str, npt.NDArray[Any]], saved: dict[str, npt.NDArray[Any]]) -> None:
    """Fill arrays with those that were remembered; ValueError where they do not fit."""
    for name, array in own.items():
        found = saved.get(name)
        if found is None or found.shape != array.shape or found.dtype != array.dtype:
            told = "nothing" if found is None else f"{found.dtype} {found.shape}"
            raise ValueError(f"of {name} it has {told}; expected {array.dtype} {array.shape}")
        array[...] = found


@fast_lean_kernel
def apply_row(
    kind: int, theta: Array, r: int, gradient: Array, state: OptimizerState, rate: Array, ridge: Array, scale: float
) -> None:
    """θ_r ← θ_r − η∘direction, where the direction comes from g = ∇l + scale·λ∘θ_r.

        sgd      g
        adagrad  g / (√Σg² + ε), the sum over all steps of this row (Duchi et al. 2011)
        adam     m̂ / (√v̂ + ε), means that count the steps of this row only (Kingma and Ba 2015, lazily)

    η (`rate`) and λ (`ridge`) are given by coordinate, all but the last two the same; one whose η is 0 never moves.
    Bound by the bytes of the row and of what is remembered of it: 1, 2 or 3 rows read and written.
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
    """`apply_row` for an optimizer that is known beforehand; `end`: how many coordinates are `alike`."""
    if len(optimizer) == SGD:
        sgd_row(theta, r, gradient, rate, ridge, scale, end)
    elif len(optimizer) == ADAGRAD:
        adagrad_row(theta, r, gradient, state, rate, ridge, scale, end)
    else:
        adam_row(theta, r, gradient, state, rate, ridge, scale, end)


@fast_lean_kernel
def sgd_row(theta: Array, r: int, gradient: Array, rate: Array, ridge: Array, scale: float, end: int) -> None:
    """`apply_row` for plain steps; `end`: how many coordinates are `alike`."""
    s = np.float32(scale)
    for f in range(end):
        _sgd(theta, r, f, gradient, rate[0], s * ridge[0])
    for f in range(end, theta.shape[1]):
        _sgd(theta, r, f, gradient, rate[f], s * ridge[f])


@fast_lean_kernel
def adagrad_row(
    theta: Array, r: int, gradient: Array, state: OptimizerState, rate: Array, ridge: Array, scale: float, end: int
) -> None:
    """`apply_row` for Adagrad, likewise."""
    s = np.float32(scale)
    for f in range(end):
        _adagrad(theta, r, f, gradient, state, rate[0], s * ridge[0])
    for f in range(end, theta.shape[1]):
        _adagrad(theta, r, f, gradient, state, rate[f], s * ridge[f])


@fast_lean_kernel
def adam_row(
    theta: Array, r: int, gradient: Array, state: OptimizerState, rate: Array, ridge: Array, scale: float, end: int
) -> None:
    """`apply_row` for Adam; `end`: how many coordinates are `alike`."""
    count, s = state.counts[r] + 1, np.float32(scale)
    state.counts[r] = count
    # The corrections of both means for having begun at 0, once for all coordinates.
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
    """A part of the step of `apply_row`, and as small a part in what is remembered.

    So as the share goes to 0 the step goes to none: θ moves by share·η∘direction, Adagrad's sum grows by share·g², and
    Adam's means go 1 − β^share of the way, in a step that counts `share`.
    """
    count = np.float32(0)
    if len(optimizer) == ADAM:
        if share < _LEAST:
            return
        count = state.counts[r] + np.float32(share)
        state.counts[r] = count
    for f in range(theta.shape[1]):
        g = gradient[f] + np.float32(scale) * ridge[f] * theta[r, f]
        toward = g
        if len(optimizer) == ADAGRAD:
            first = state.first
            first[r, f] += share * g * g
            toward = g / (math.sqrt(first[r, f]) + EPSILON) if g != 0 else g
        elif len(optimizer) == ADAM:
            first, second = state.first, state.second
            first[r, f] += _moved(_BETA_1, share) * (g - first[r, f])
            second[r, f] += _moved(_BETA_2, share) * (g * g - second[r, f])
            mean, square = first[r, f] / _moved(_BETA_1, count), second[r, f] / _moved(_BETA_2, count)
            toward = mean / (math.sqrt(square) + EPSILON)
        theta[r, f] -= share * rate[f] * toward


@fast_lean_kernel
def _moved(beta: float, steps: Any) -> float:
    """1 − β^steps: how much of the way a mean has gone after so many steps."""
    whole = np.int64(steps)
    return 1.0 - beta**whole if whole == steps else -math.expm1(steps * math.log(beta))


@fast_lean_kernel
def _sgd(theta: Array, r: int, f: int, gradient: Array, rate: Any, ridge: Any) -> None:
    theta[r, f] -= rate * (gradient[f] + ridge * theta[r, f])


@fast_lean_kernel
def _adagrad(theta: Array, r: int, f: int, gradient: Array, state: OptimizerState, rate: Any, ridge: Any) -> None:
    g = gradient[f] + ridge * theta[r, f]
    total = state.first[r, f] + g * g
    state.first[r, f] = total
    theta[r, f] -= rate * g / (math.sqrt(total) + np.float32(EPSILON))


@fast_lean_kernel
def _adam(
    theta: Array, r: int, f: int, gradient: Array, state: OptimizerState, first: Any, second: Any, rate: Any, ridge: Any
) -> None:
    b1, b2, one = np.float32(_BETA_1), np.float32(_BETA_2), np.float32(1)
    g = gradient[f] + ridge * theta[r, f]
    m = b1 * state.first[r, f] + (one - b1) * g
    v = b2 * state.second[r, f] + (one - b2) * g * g
    state.first[r, f] = m
    state.second[r, f] = v
    theta[r, f] -= rate * (m * first) / (math.sqrt(v * second) + np.float32(EPSILON))


def n_alike(rate: Array, ridge: Array) -> int:
    """How many coordinates have the first one's η and λ: all, or all but the two that biases add.

    A loop over so many, with two numbers for all and from 0, is vectorised. With arrays, which could overlap with the
    rows, or from elsewhere, as an index below 0 means another place, it is not.
    """
    n = len(rate)
    for f in range(max(0, n - 2), n):
        if rate[f] != rate[0] or ridge[f] != ridge[0]:
            return max(0, n - 2)
    return n


alike = fast_lean_kernel(n_alike)  # for kernels
