"""Filters in the form that index kernels use: one item at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist._numba import bare_kernel, lean_kernel
from shortlist.retrieval.filters import Filters

Codes = npt.NDArray[np.int32]
MARKS = 1 << 12  # bits of a hash table of exclusions: enough to make collisions rare


class ItemFilter(NamedTuple):
    """The items that a search may return."""

    bits: npt.NDArray[np.uint64]  # one bit per item; empty if all items are allowed
    starts: npt.NDArray[np.int64]  # the start of each query's exclusions; empty if there are none
    excluded: Codes  # ascending within a query


def make_item_filter(filters: Filters, n_queries: int) -> ItemFilter:
    """Convert filters into this form. `allow` and `deny` must be prepared by `Filters.with_item_mask`."""
    bits = np.empty(0, np.uint64) if filters.item_mask is None else filters.item_mask.bits
    starts, excluded = np.empty(0, np.int64), np.empty(0, np.int32)
    if filters.exclude is not None:
        starts, excluded = filters.exclude
        codes = excluded[starts[0] : starts[-1]]
        if np.any(codes[1:] < codes[:-1]):  # several rows, or a row that is not sorted
            row = np.repeat(np.arange(n_queries), np.diff(starts))
            excluded = excluded.copy()
            excluded[starts[0] : starts[-1]] = codes[np.lexsort((codes, row))]
    return ItemFilter(bits, starts, excluded)


@bare_kernel
def mark(item_filter: ItemFilter, q: int, marks: npt.NDArray[np.uint64], on: bool) -> None:
    """Set or clear the marks of query q's exclusions."""
    if len(item_filter.starts) == 0:
        return
    for p in range(item_filter.starts[q], item_filter.starts[q + 1]):
        code = np.uint64(item_filter.excluded[p]) % np.uint64(MARKS)
        if on:
            marks[code >> np.uint64(6)] |= np.uint64(1) << (code & np.uint64(63))
        else:
            marks[code >> np.uint64(6)] = np.uint64(0)


@lean_kernel
def admitted(
    i: int,
    bits: npt.NDArray[np.uint64],
    marks: npt.NDArray[np.uint64],
    excluded: Codes,
    start: np.int64,
    stop: np.int64,
) -> bool:
    """Return whether a query with the exclusions `excluded[start:stop]` may return item i."""
    code = np.uint64(i)
    if len(bits) > 0 and not (bits[code >> np.uint64(6)] >> (code & np.uint64(63))) & np.uint64(1):
        return False
    if start == stop:
        return True
    code %= np.uint64(MARKS)
    if not (marks[code >> np.uint64(6)] >> (code & np.uint64(63))) & np.uint64(1):
        return True
    end = stop
    while start < stop:
        middle = (start + stop) // np.int64(2)
        if excluded[middle] < i:
            start = middle + np.int64(1)
        else:
            stop = middle
    return bool(start == end or excluded[start] != i)
