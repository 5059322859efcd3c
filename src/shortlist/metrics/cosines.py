"""Cosines between the items of lists: the kernels behind `distance@n` and slates, and NumPy versions of them.

u_i is the column of item i in the binary matrix of training contexts × items, scaled to length 1. So
cos(i, j) = #{contexts with i and j} / √(#{with i} · #{with j}), and 0 if i or j has no context.

Lists of different contexts have many pairs in common. So the kernels count the contexts of an item with every other
item once for all lists, by walking the histories that contain it. Items that are in no list are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows, by_key

Array: TypeAlias = npt.NDArray[Any]
Values: TypeAlias = npt.NDArray[np.float64]

PLACES = 2**24  # list places processed at once, about 16 bytes each
SMALL = 2_000_000  # steps; up to here, a few milliseconds, no threads are started


def cosine_sums(lists: npt.NDArray[np.int32], trained: SparseRows, threads: int | None = None) -> Values:
    """Return Σ_{i<j} cos(i, j) over the items of each list; -1 is an empty place.

    The result does not depend on the number of threads: counts are integers, and each place has its own sum.
    """
    n_lists, n = lists.shape
    sums = np.zeros(n_lists)
    step = max(1, PLACES // max(1, n))
    for start in range(0, n_lists, step):
        sums[start : start + step] = _sums_by_place(lists[start : start + step], trained, threads).sum(axis=1)
    return sums


class ListedItems(NamedTuple):
    """The listed items with new codes (in the same order), and the training histories with only these items."""

    codes: Array  # the new code of each item; `end` for items that are not listed, and for -1
    histories: Array  # concatenated; each ends with `end`
    entry_starts: Array
    entries: Array  # positions of each item in `histories`
    scale: Values  # 1 / √#{with i}

    @property
    def end(self) -> int:
        """The number of listed items."""
        return len(self.scale) - 1

    @property
    def work(self) -> Values:
        """The approximate number of steps to walk the histories with each item."""
        counts = np.diff(self.entry_starts)  # the last one, that of `end`, is the number of histories
        return np.asarray(counts[:-1] * (len(self.histories) / max(1, counts[-1])))


def listed_items(items: Array, trained: SparseRows) -> ListedItems:
    """Return the distinct items of an array of any shape, with their training histories."""
    listed = np.zeros(trained.n_columns + 1, np.bool_)
    listed[items.ravel()] = True
    listed[-1] = False  # set by -1, an empty place
    end = int(listed.sum())
    # The kernels are bound by memory traffic, and most catalogues have fewer than 2^16 listed items.
    codes = np.where(listed, np.cumsum(listed) - 1, end).astype(np.uint16 if end < 2**16 else np.int32)
    histories = without_unlisted(trained.indptr, trained.indices, codes, end)
    entries = np.arange(len(histories), dtype=np.int32 if len(histories) < 2**31 else np.int64)
    entry_starts, entries = by_key(histories, entries, end + 1)
    scale = 1.0 / np.sqrt(np.maximum(np.diff(entry_starts), 1))
    return ListedItems(codes, histories, entry_starts, entries, scale)


def _sums_by_place(lists: npt.NDArray[np.int32], trained: SparseRows, threads: int | None) -> Values:
    """Sort each list by item; return for each place the sum of the cosines of its item with those after it."""
    listed = listed_items(lists, trained)
    codes = np.sort(listed.codes[lists], axis=1)
    place_starts, places = by_key(codes.ravel(), np.arange(codes.size, dtype=np.int32), len(listed.scale))
    out = np.zeros(codes.shape)

    def work(start: int, stop: int) -> None:
        add_cosines(start, stop, codes, place_starts, places, *listed[1:], out)

    _run_by_item(work, listed.work + np.diff(place_starts)[:-1] * codes.shape[1], threads)
    return out


def cosine_table(listed: ListedItems, threads: int | None = None) -> npt.NDArray[np.float32]:
    """Return cos(i, j) of all pairs of listed items, by their new codes, above the diagonal.

    The table has (number of listed items)² elements. Most of the time is spent in walks over the histories, as for
    `cosine_sums`.
    """
    out = np.zeros((listed.end, listed.end), np.float32)

    def work(start: int, stop: int) -> None:
        fill_cosines(start, stop, *listed[1:], out)

    _run_by_item(work, listed.work + listed.end, threads)
    return out


def _run_by_item(work: Callable[[int, int], None], steps: Values, threads: int | None) -> None:
    n_threads = thread_count(threads) if steps.sum() > SMALL else 1
    run_chunks(work, balanced_chunks(steps, 16 * n_threads if n_threads > 1 else 1), n_threads)


@kernel
def without_unlisted(indptr: Array, indices: Array, codes: Array, end: int) -> Array:
    """Return the concatenated histories in new codes, without unlisted items; `end` follows each history."""
    out = np.empty(len(indices) + len(indptr) - 1, codes.dtype)
    at = 0
    for r in range(len(indptr) - 1):
        for p in range(indptr[r], indptr[r + 1]):
            out[at] = codes[indices[p]]
            at += out[at] != end
        out[at] = end
        at += 1
    return out[:at].copy()


@kernel
def add_cosines(
    start: int,
    stop: int,
    lists: Array,
    place_starts: Array,
    places: Array,
    histories: Array,
    entry_starts: Array,
    entries: Array,
    scale: Array,
    out: Array,
) -> None:
    """Compute the cosine sums at all places of items start … stop − 1: with the items after the place in its list."""
    n = lists.shape[1]
    end = len(scale) - 1
    both = np.zeros(len(scale), np.int32)  # number of contexts with i and j, for j > i
    for i in range(start, stop):
        steps = 0
        for e in range(entry_starts[i], entry_starts[i + 1]):
            p = entries[e] + 1
            while histories[p] != end:
                both[histories[p]] += 1
                p += 1
            steps += p - entries[e]
        for e in range(place_starts[i], place_starts[i + 1]):
            q = places[e] // n
            k = places[e] - q * n
            total = 0.0
            for after in range(k + 1, n):
                j = lists[q, after]
                total += both[j] * scale[j]
            out[q, k] = total * scale[i]
        if steps > len(both):
            both[:] = 0
            continue
        for e in range(entry_starts[i], entry_starts[i + 1]):
            p = entries[e] + 1
            while histories[p] != end:
                both[histories[p]] = 0
                p += 1


@kernel
def fill_cosines(
    start: int, stop: int, histories: Array, entry_starts: Array, entries: Array, scale: Array, out: Array
) -> None:
    """Compute the cosines of items start … stop − 1 with items of higher codes. Bound by memory traffic."""
    end = len(scale) - 1
    both = np.zeros(len(scale), np.int32)  # number of contexts with i and j, for j > i
    for i in range(start, stop):
        for e in range(entry_starts[i], entry_starts[i + 1]):
            p = entries[e] + 1
            while histories[p] != end:
                both[histories[p]] += 1
                p += 1
        for j in range(i + 1, end):
            out[i, j] = both[j] * scale[j] * scale[i]
        both[:] = 0


def unit_columns(trained: SparseRows) -> Values:
    """Return the dense matrix with columns u_i, for the NumPy versions."""
    U = np.zeros((trained.n_rows, trained.n_columns))
    U[np.repeat(np.arange(trained.n_rows), trained.lengths), trained.indices] = 1.0
    return np.asarray(U / np.maximum(np.linalg.norm(U, axis=0), 1.0))


def cosine_sums_numpy(lists: npt.NDArray[np.int32], trained: SparseRows) -> Values:
    """NumPy version of `cosine_sums` with a dense matrix: Σ_{i≠j} cos(i, j) = ‖Σ_i u_i‖² − Σ_i ‖u_i‖² for each list."""
    U = unit_columns(trained)
    sums = np.zeros(len(lists))
    for q, row in enumerate(lists):
        u = U[:, row[row >= 0]]
        sums[q] = ((u.sum(axis=1) ** 2).sum() - (u**2).sum()) / 2
    return sums


def cosine_table_numpy(items: npt.NDArray[np.int32], trained: SparseRows) -> npt.NDArray[np.float32]:
    """NumPy version of `cosine_table` for these items: UᵀU above the diagonal."""
    U = unit_columns(trained)[:, np.unique(items[items >= 0])]
    return np.triu(U.T @ U, 1).astype(np.float32)
