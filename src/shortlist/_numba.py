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
    return _compiled(function, fastmath=False)


def fast_kernel(function: F) -> F:
    """`kernel` with reassociated sums: for dot products and reductions whose last bits do not matter."""
    # Not nnan and ninf: infinities mark excluded items.
    return _compiled(function, fastmath={"reassoc", "contract", "nsz", "arcp"})


def _compiled(function: F, **options: Any) -> F:
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        return cast("F", numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no folder to keep a cache in, as in a read-only container: compile in every process
        return cast("F", numba.njit(**options)(function))
