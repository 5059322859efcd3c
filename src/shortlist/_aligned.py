"""Arrays that begin where a cache line does."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_LINE = 64  # bytes


def aligned(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The array itself where it begins at a cache line and can be written to, else a copy that does.

    A row of 16, 32, … floats then is in as few lines as can be. NumPy begins arrays at any 16 bytes, so that each row
    is in one line more; steps on rows in random places are bound by their lines.
    """
    if array.ctypes.data % _LINE == 0 and array.flags.c_contiguous and array.flags.writeable:
        return array
    room = np.empty(array.nbytes + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    out = room[start : start + array.nbytes].view(np.float32).reshape(array.shape)
    out[...] = array
    return out
