"""The one way kernels are compiled here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])
_FAST = {"reassoc", "contract", "nsz", "arcp"}  # not nnan and ninf: infinities mark excluded items
_LEAN = {"_nrt": False, "forceinline": True}


def kernel(function: F) -> F:
    """Compile `function` with Numba: serial, without the GIL, cached on disk.

    Kernels never use `prange`: threads are driven from outside (`shortlist._threads`), so that work is balanced
    dynamically and calls from many threads, or after a fork, are safe.
    """
    return _compiled(function, fastmath=False)


def fast_kernel(function: F) -> F:
    """`kernel` with reassociated sums: for dot products and reductions whose last bits do not matter."""
    return _compiled(function, fastmath=_FAST)


def lean_kernel(function: F) -> F:
    """`kernel` without reference counts and always inlined: for what is called from the innermost loops.

    A kernel counts references to the arrays that it hands on, with an atomic addition for each array of a tuple at
    each call: some 100 ns, and far more where several threads hold the same arrays. Whoever calls owns the arrays
    anyway. Such a function must not make arrays; views are fine. Numba's cache on disk does not see when an inlined
    function in another file changes: remove it (`make clean`) after such a change.
    """
    return _compiled(function, fastmath=False, **_LEAN)


def fast_lean_kernel(function: F) -> F:
    """`lean_kernel` with reassociated sums, as `fast_kernel`."""
    return _compiled(function, fastmath=_FAST, **_LEAN)


def _compiled(function: F, **options: Any) -> F:
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        return cast("F", numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no folder to keep a cache in, as in a read-only container: compile in every process
        return cast("F", numba.njit(**options)(function))
