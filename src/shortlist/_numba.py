"""The one way kernels are compiled here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` with Numba: serial, without the GIL, cached on disk.

    Kernels never use `prange`: threads are driven from outside (`shortlist._threads`), so that work is balanced
    dynamically and calls from many threads, or after a fork, are safe.
    """
    return cast("F", numba.njit(nogil=True, cache=True, error_model="numpy")(function))


def fast_kernel(function: F) -> F:
    """`kernel` with reassociated sums: for dot products and reductions whose last bits do not matter."""
    flags = {"reassoc", "contract", "nsz", "arcp"}  # not nnan/ninf: infinities mark excluded items
    return cast("F", numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=flags)(function))
