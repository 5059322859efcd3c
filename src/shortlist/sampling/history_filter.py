"""A small table of bits before each history: most items that are not in it need no search."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import lean_kernel
from shortlist._prefetch import prefetch_at
from shortlist._random import GOLDEN
from shortlist.data.sparse_rows import SparseRows, holds

Array: TypeAlias = npt.NDArray[Any]
_BITS_A_PAIR = 8  # so that at most an eighth of the items outside a history are searched for in vain
_WORD = 64


def history_filter(histories: SparseRows) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """A table of bits for each row, in the words `bits[offset[c]:offset[c + 1]]`; bit hash(j) is set for all its j.

    Its size is a power of two of at least 8 bits an entry and at least 64: one to two bytes a pair. An item whose bit
    is not set is not in the row; one whose bit is set may be.
    """
    wanted = np.maximum(histories.lengths * _BITS_A_PAIR, _WORD)
    words = 2 ** np.ceil(np.log2(wanted / _WORD)).astype(np.int64)
    offset = np.concatenate([[0], np.cumsum(words)]).astype(np.int64)
    bits = np.zeros(max(1, offset[-1]), np.uint64)
    _set_bits(histories.indptr, histories.indices, bits, offset)
    return bits, offset


@lean_kernel
def in_history(indptr: Array, indices: Array, bits: Array, offset: Array, c: int, j: int) -> bool:
    """Whether row c holds column j: by one bit, and by a binary search where that is set."""
    begin = offset[c]
    at = _hash(j) & ((offset[c + 1] - begin) * _WORD - 1)
    if (bits[begin + (at >> 6)] >> np.uint64(at & 63)) & np.uint64(1) == np.uint64(0):
        return False
    return holds(indices, indptr[c], indptr[c + 1], j)


@lean_kernel
def send_for_bit(bits: Array, offset: Array, c: int, j: int) -> None:
    """Ask for the bit that `in_history` will look at: tables of long histories are in no cache."""
    begin = offset[c]
    prefetch_at(bits, begin + ((_hash(j) & ((offset[c + 1] - begin) * _WORD - 1)) >> 6))


@lean_kernel
def _hash(j: int) -> int:
    return int(np.int64((np.uint64(j) * GOLDEN) >> np.uint64(32)))


@lean_kernel
def _set_bits(indptr: Array, indices: Array, bits: Array, offset: Array) -> None:
    for c in range(len(indptr) - 1):
        begin = offset[c]
        mask = (offset[c + 1] - begin) * _WORD - 1
        for e in range(indptr[c], indptr[c + 1]):
            at = _hash(indices[e]) & mask
            bits[begin + (at >> 6)] |= np.uint64(1) << np.uint64(at & 63)
