"""Arrays that start at a cache-line boundary."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_LINE = 64  # bytes


def aligned(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the array if it is contiguous, writable and starts at a cache line; otherwise return a copy that is.

    A row of 16, 32, … floats then spans the smallest possible number of cache lines. NumPy aligns arrays to 16 bytes
    only, which can cost one more line per row. That matters for steps on random rows, which are bound by cache misses.
    """
    if array.ctypes.data % _LINE == 0 and array.flags.c_contiguous and array.flags.writeable:
        return array
    buffer = np.empty(array.nbytes + _LINE, np.uint8)
    start = -buffer.ctypes.data % _LINE
    out = buffer[start : start + array.nbytes].view(np.float32).reshape(array.shape)
    out[...] = array
    return out
