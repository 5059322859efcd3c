"""Views of read-only arrays for kernels.

Arrays of a loaded model are read-only. Numba would compile each kernel again for read-only arrays, and takes longer to
call it. The pages of a loaded file are private to the process, so a writable view is possible: even a write could not
reach the file.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)


def for_kernels(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Return the array as kernels expect it: writable, aligned and contiguous; without a copy if possible.

    Kernels only read from it. The array itself stays read-only.
    """
    if array.flags.carray:  # aligned, contiguous and writable
        return array
    if not (array.flags.aligned and array.flags.c_contiguous):
        return array.copy()
    view = array.view()
    try:
        view.flags.writeable = True
    except ValueError:  # the memory itself is read-only
        return array.copy()
    return view


def on_cache_line(array: npt.NDArray[Scalar]) -> bool:
    """Return whether an array starts at a cache line, as kernels that step on random rows prefer."""
    return array.ctypes.data % 64 == 0
