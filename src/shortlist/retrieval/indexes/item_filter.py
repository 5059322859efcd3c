"""Which items an index may return, as its kernels ask for it: one item at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist._numba import bare_kernel, lean_kernel
from shortlist.retrieval.filters import Filters

Codes = npt.NDArray[np.int32]
MARKS = 1 << 12  # bits: enough that few items share a remainder with an excluded one


class ItemFilter(NamedTuple):
    """Which items may be returned."""

    bits: npt.NDArray[np.uint64]  # a bit for each item; empty: all of them
    starts: npt.NDArray[np.int64]  # of each query's exclusions; empty: there are none
    excluded: Codes  # in ascending order within a query


def make_admission(filters: Filters, n_queries: int) -> ItemFilter:
    """What these filters admit, `allow` and `deny` being prepared (`Filters.with_item_mask`)."""
    bits = np.empty(0, np.uint64) if filters.item_mask is None else filters.item_mask.bits
    starts, excluded = np.empty(0, np.int64), np.empty(0, np.int32)
    if filters.exclude is not None:
        starts, excluded = filters.exclude
        given = excluded[starts[0] : starts[-1]]
        if np.any(given[1:] < given[:-1]):  # as it must where a row ends, and nowhere else
            row = np.repeat(np.arange(n_queries), np.diff(starts))
            excluded = excluded.copy()
            excluded[starts[0] : starts[-1]] = given[np.lexsort((given, row))]
    return ItemFilter(bits, starts, excluded)


@bare_kernel
def mark(admission: ItemFilter, q: int, marks: npt.NDArray[np.uint64], on: bool) -> None:
    """Set, or remove, the marks of query q's exclusions."""
    if len(admission.starts) == 0:
        return
    for p in range(admission.starts[q], admission.starts[q + 1]):
        code = np.uint64(admission.excluded[p]) % np.uint64(MARKS)
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
    """Whether item i may be returned to a query whose exclusions are `excluded[start:stop]`."""
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
