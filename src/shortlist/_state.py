"""State as named arrays: what a trainer resumes from, and the strict check before it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist.errors import StorageError

State: TypeAlias = Mapping[str, npt.NDArray[Any]]


def check_state(state: State, expected: State, prefix: str = "") -> None:
    """Raise StorageError unless `state` has exactly the arrays of `expected`, with their shapes and types.

    Args:
        state: the arrays to check.
        expected: arrays with the right names, shapes and types; their values do not matter.
        prefix: what to put before a name in a message.

    >>> check_state({"items": np.zeros(2)}, {"items": np.zeros(3)})
    Traceback (most recent call last):
    shortlist.errors.StorageError: the array items is float64 (2,); expected float64 (3,)
    """
    for name, array in expected.items():
        if name not in state:
            raise StorageError(f"there is no array {prefix}{name}; expected {described(array)}")
        value = state[name]
        if not isinstance(value, np.ndarray) or value.shape != array.shape or value.dtype != array.dtype:
            raise StorageError(f"the array {prefix}{name} is {described(value)}; expected {described(array)}")
    if surplus := sorted(state.keys() - expected.keys()):
        names = ", ".join(f"{prefix}{name}" for name in expected) or "none"
        raise StorageError(
            f"the array {prefix}{surplus[0]}, {described(state[surplus[0]])}, is not expected; expected {names}"
        )


def load_state(target: State, state: State) -> None:
    """Copy the arrays of `state` into those of `target`; if they do not match exactly, change nothing and raise."""
    check_state(state, target)
    for name, array in target.items():
        array[...] = state[name]


def described(value: object) -> str:
    """Return the type and shape of an array as text, or the type of anything else."""
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
