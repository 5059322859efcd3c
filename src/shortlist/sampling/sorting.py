"""A radix sort of the items along each coordinate of their embeddings."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel

Array: TypeAlias = npt.NDArray[Any]
_DIGIT = 11  # bits a pass: three passes for a float32, with counts that fit the first-level cache


@kernel
def sort_falling(columns: Array, lists: Array) -> None:
    """Fill `lists` with each row's positions, from its largest number to the smallest; ties keep their order.

    The result is that of `np.argsort(-columns, axis=1, kind="stable")`, about 8 times as fast. A radix sort, bound by
    three scattered writes of 8 bytes a number, which stay in the cache.

    >>> lists = np.empty((1, 3), np.int32)
    >>> sort_falling(np.array([[0.5, -2.0, 3.0]], dtype=np.float32), lists)
    >>> lists.tolist()
    [[2, 0, 1]]
    """
    n = columns.shape[1]
    size = 1 << _DIGIT
    keys, next_keys, order = np.empty(n, np.uint32), np.empty(n, np.uint32), np.empty(n, np.int32)
    numbers, start = np.empty(n, np.float32), np.empty(size + 1, np.int64)
    bits = numbers.view(np.uint32)
    for f in range(len(columns)):
        # The bits of floats grow with their magnitude; invert them for positive numbers. Adding 0 turns −0 into 0.
        for k in range(n):
            numbers[k] = columns[f, k] + np.float32(0)
        for k in range(n):
            keys[k] = bits[k] if bits[k] >> np.uint32(31) else bits[k] ^ np.uint32(0x7FFFFFFF)
            order[k] = k
        for digit in range(3):
            shift, mask = np.uint32(digit * _DIGIT), np.uint32(size - 1)
            for b in range(size + 1):
                start[b] = 0
            for k in range(n):
                start[np.int64((keys[k] >> shift) & mask) + 1] += 1
            for b in range(size):
                start[b + 1] += start[b]
            for k in range(n):
                value = np.int64((keys[k] >> shift) & mask)
                at = start[value]
                start[value] = at + 1
                next_keys[at] = keys[k]
                lists[f, at] = order[k]
            keys, next_keys = next_keys, keys
            for k in range(n):
                order[k] = lists[f, k]
