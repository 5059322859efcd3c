"""How unlike each other the items of a list are: the kernels behind `distance@n` and slates, and their plain twins.

u_i is the column of item i in the matrix of training contexts × items, 1 where a context had the item, scaled to length
1; so cos(i, j) = #{contexts that had both} / √(#{had i} · #{had j}), and 0 where one of the two was never had.

The lists of many contexts share most of their pairs. So an item's counts with all others are taken once for all the
lists that it is in, by a walk over the histories of those who had it. Only items that are in some list take part.
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

PLACES = 2**24  # of lists that are looked at together, some 16 bytes each
SMALL = 2_000_000  # steps: a matter of some milliseconds, for which no threads are started


def cosine_sums(lists: npt.NDArray[np.int32], trained: SparseRows, threads: int | None = None) -> Values:
    """Σ_{i<j} cos(i, j) over the items of each list; -1 stands for no item.

    Whole numbers are counted, and each place adds up by itself, so the result does not depend on the threads.
    """
    n_lists, n = lists.shape
    sums = np.zeros(n_lists)
    step = max(1, PLACES // max(1, n))
    for start in range(0, n_lists, step):
        sums[start : start + step] = _sums_by_place(lists[start : start + step], trained, threads).sum(axis=1)
    return sums


class ListedItems(NamedTuple):
    """The histories of training cut to the items that take part, in codes of their own, which keep the items' order."""

    codes: Array  # of all items; of those that take no part, and of -1, the number of those that do: `end`
    histories: Array  # one after the other, `end` behind each
    entry_starts: Array
    entries: Array  # of each item, its places in `histories`
    scale: Values  # 1 / √#{had i}

    @property
    def end(self) -> int:
        """How many items take part."""
        return len(self.scale) - 1

    @property
    def work(self) -> Values:
        """Of each item, about how many steps a walk over the histories of those who had it takes."""
        had = np.diff(self.entry_starts)  # and behind the last item, how many histories there are
        return np.asarray(had[:-1] * (len(self.histories) / max(1, had[-1])))


def take_part(items: Array, trained: SparseRows) -> ListedItems:
    """The histories cut to these items, whatever the shape of the array and however often they are in it."""
    listed = np.zeros(trained.n_columns + 1, np.bool_)
    listed[items.ravel()] = True
    listed[-1] = False  # where -1 has left its mark
    end = int(listed.sum())
    # All is bound by memory, and few catalogues have more items in lists than 16 bits can number.
    codes = np.where(listed, np.cumsum(listed) - 1, end).astype(np.uint16 if end < 2**16 else np.int32)
    histories = listed_only(trained.indptr, trained.indices, codes, end)
    entries = np.arange(len(histories), dtype=np.int32 if len(histories) < 2**31 else np.int64)
    entry_starts, entries = by_key(histories, entries, end + 1)
    scale = 1.0 / np.sqrt(np.maximum(np.diff(entry_starts), 1))
    return ListedItems(codes, histories, entry_starts, entries, scale)


def _sums_by_place(lists: npt.NDArray[np.int32], trained: SparseRows, threads: int | None) -> Values:
    """For each place of the lists, sorted by item: the cosines of its item with those after it."""
    listed = take_part(lists, trained)
    own = np.sort(listed.codes[lists], axis=1)
    place_starts, places = by_key(own.ravel(), np.arange(own.size, dtype=np.int32), len(listed.scale))
    out = np.zeros(own.shape)

    def work(start: int, stop: int) -> None:
        add_cosines(start, stop, own, place_starts, places, *listed[1:], out)

    _by_item(work, listed.work + np.diff(place_starts)[:-1] * own.shape[1], threads)
    return out


def cosine_table(listed: ListedItems, threads: int | None = None) -> npt.NDArray[np.float32]:
    """cos(i, j) of all pairs of items that take part, by their codes, above the diagonal.

    Its size is the square of their number; the time goes into walks over the histories, as for `cosine_sums`.
    """
    out = np.zeros((listed.end, listed.end), np.float32)

    def work(start: int, stop: int) -> None:
        fill_cosines(start, stop, *listed[1:], out)

    _by_item(work, listed.work + listed.end, threads)
    return out


def _by_item(work: Callable[[int, int], None], steps: Values, threads: int | None) -> None:
    n_threads = thread_count(threads) if steps.sum() > SMALL else 1
    run_chunks(work, balanced_chunks(steps, 16 * n_threads if n_threads > 1 else 1), n_threads)


@kernel
def listed_only(indptr: Array, indices: Array, codes: Array, end: int) -> Array:
    """The histories one after the other, in new codes, without what has the code `end`, which stands after each."""
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
    """For the items start…stop, at each of their places: the sum of the cosines with what comes after in the list."""
    n = lists.shape[1]
    end = len(scale) - 1
    both = np.zeros(len(scale), np.int32)  # how many contexts had i and j, for the j > i
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
    """For the items start…stop: their cosines with the items of higher codes. Its walks are bound by memory."""
    end = len(scale) - 1
    both = np.zeros(len(scale), np.int32)  # how many contexts had i and j, for the j > i
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
    """u_i as the columns of a dense matrix: what the twins are made of."""
    U = np.zeros((trained.n_rows, trained.n_columns))
    U[np.repeat(np.arange(trained.n_rows), trained.lengths), trained.indices] = 1.0
    return np.asarray(U / np.maximum(np.linalg.norm(U, axis=0), 1.0))


def cosine_sums_numpy(lists: npt.NDArray[np.int32], trained: SparseRows) -> Values:
    """The twin of `cosine_sums`: Σ_{i≠j} cos(i, j) = ‖Σ_i u_i‖² − Σ_i ‖u_i‖², list by list, over a dense matrix."""
    U = unit_columns(trained)
    sums = np.zeros(len(lists))
    for q, row in enumerate(lists):
        u = U[:, row[row >= 0]]
        sums[q] = ((u.sum(axis=1) ** 2).sum() - (u**2).sum()) / 2
    return sums


def cosine_table_numpy(items: npt.NDArray[np.int32], trained: SparseRows) -> npt.NDArray[np.float32]:
    """The twin of `cosine_table` of these items: UᵀU above the diagonal."""
    U = unit_columns(trained)[:, np.unique(items[items >= 0])]
    return np.triu(U.T @ U, 1).astype(np.float32)
