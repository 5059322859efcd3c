"""How a row of parameters follows its gradient: plain steps, Adagrad, Adam. Rows that a step does not touch stay."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_lean_kernel

Array: TypeAlias = npt.NDArray[Any]
OptimizerName: TypeAlias = Literal["sgd", "adagrad", "adam"]
SGD, ADAGRAD, ADAM = 0, 1, 2
CODES = {"sgd": SGD, "adagrad": ADAGRAD, "adam": ADAM}
_EPSILON = 1e-8
_BETA_1, _BETA_2 = 0.9, 0.999


class State(NamedTuple):
    """What an optimizer remembers of each row; arrays with a single row where it has nothing to remember."""

    first: npt.NDArray[np.float32]  # Adagrad: the sum of squared gradients; Adam: the mean gradient
    second: npt.NDArray[np.float32]  # Adam: the mean squared gradient
    counts: npt.NDArray[np.int32]  # Adam: how often each row has moved

    @classmethod
    def of(cls, kind: int, shape: tuple[int, int]) -> State:
        """That of rows which have not moved yet."""
        n, width = shape
        return cls(
            np.zeros((n if kind != SGD else 1, width), np.float32),
            np.zeros((n if kind == ADAM else 1, width), np.float32),
            np.zeros(n if kind == ADAM else 1, np.int32),
        )


def remembered(states: tuple[State, State]) -> dict[str, npt.NDArray[Any]]:
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
    kind: int, theta: Array, r: int, gradient: Array, state: State, rate: Array, ridge: Array, scale: float
) -> None:
    """θ_r ← θ_r − η∘direction, where the direction comes from g = ∇l + scale·λ∘θ_r.

        sgd      g
        adagrad  g / (√Σg² + ε), the sum over all steps of this row (Duchi et al. 2011)
        adam     m̂ / (√v̂ + ε), means that count the steps of this row only (Kingma and Ba 2015, lazily)

    η (`rate`) and λ (`ridge`) are given by coordinate; one whose η is 0 never moves. Bound by the bytes of the row and
    of what is remembered of it: 1, 2 or 3 rows read and written.
    """
    width = theta.shape[1]
    s = np.float32(scale)
    if kind == SGD:
        for f in range(width):
            theta[r, f] -= rate[f] * (gradient[f] + s * ridge[f] * theta[r, f])
    elif kind == ADAGRAD:
        first = state.first
        for f in range(width):
            g = gradient[f] + s * ridge[f] * theta[r, f]
            total = first[r, f] + g * g
            first[r, f] = total
            theta[r, f] -= rate[f] * g / (np.sqrt(total) + np.float32(_EPSILON))
    else:
        first, second = state.first, state.second
        count = state.counts[r] + 1
        state.counts[r] = count
        b1, b2 = np.float32(_BETA_1), np.float32(_BETA_2)
        one = np.float32(1)
        unbias_1 = np.float32(1.0 / (1.0 - _BETA_1**count))
        unbias_2 = np.float32(1.0 / (1.0 - _BETA_2**count))
        for f in range(width):
            g = gradient[f] + s * ridge[f] * theta[r, f]
            m = b1 * first[r, f] + (one - b1) * g
            v = b2 * second[r, f] + (one - b2) * g * g
            first[r, f] = m
            second[r, f] = v
            theta[r, f] -= rate[f] * (m * unbias_1) / (np.sqrt(v * unbias_2) + np.float32(_EPSILON))


@fast_lean_kernel
def apply_rows(
    kind: int,
    theta: Array,
    rows: Array,
    gradients: Array,
    state: State,
    rate: Array,
    ridge: Array,
    scales: Array,
) -> None:
    """`apply_row` for the listed rows, each listed once, by their gradients; one scale may stand for all."""
    for k in range(len(rows)):
        scale = scales[k if len(scales) > 1 else 0]
        apply_row(kind, theta, rows[k], gradients[k], state, rate, ridge, scale)
