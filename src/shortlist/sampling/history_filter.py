"""A bit filter for each history, with which most items outside the history need no search."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import lean_kernel
from shortlist._prefetch import prefetch_at
from shortlist._random import GOLDEN
from shortlist.data.sparse_rows import SparseRows, holds

Array: TypeAlias = npt.NDArray[Any]
_BITS_A_PAIR = 8  # at most 1/8 of the items outside a history then have their bit set and need a search
_WORD = 64


def history_filter(histories: SparseRows) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Return the filters' bits and the offset of each row's filter.

    Row c has the words `bits[offset[c]:offset[c + 1]]`, and bit hash(j) is set for each j in the row. If an item's bit
    is not set, the item is not in the row; if it is set, the item may be. A row's number of bits is the smallest power
    of two that is ≥ 64 and ≥ 8 bits for each entry: 1 to 2 bytes a pair in long rows.
    """
    wanted = np.maximum(histories.lengths * _BITS_A_PAIR, _WORD)
    words = 2 ** np.ceil(np.log2(wanted / _WORD)).astype(np.int64)
    offset = np.concatenate([[0], np.cumsum(words)]).astype(np.int64)
    bits = np.zeros(max(1, offset[-1]), np.uint64)
    _set_bits(histories.indptr, histories.indices, bits, offset)
    return bits, offset


@lean_kernel
def in_history(indptr: Array, indices: Array, bits: Array, offset: Array, c: int, j: int) -> bool:
    """Return whether row c has column j: look at one bit, and search the row if it is set."""
    begin = offset[c]
    at = _hash(j) & ((offset[c + 1] - begin) * _WORD - 1)
    if (bits[begin + (at >> 6)] >> np.uint64(at & 63)) & np.uint64(1) == np.uint64(0):
        return False
    return holds(indices, indptr[c], indptr[c + 1], j)


@lean_kernel
def prefetch_bit(bits: Array, offset: Array, c: int, j: int) -> None:
    """Prefetch the bit that `in_history` will read; filters of long histories are not in the cache."""
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
