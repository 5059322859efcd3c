"""Sparse matrices by rows, and the kernels that build them from a list of events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel

Array: TypeAlias = npt.NDArray[Any]

SUM, COUNT, LATEST = 0, 1, 2  # how the weights of a repeated pair are combined


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A sparse matrix by rows: row r has the columns `indices[indptr[r]:indptr[r + 1]]`, ascending.

    `values` is None if every value is 1. `confidence` is for folded-in histories: a factor from 0 to 1 for each entry;
    None means 1 for all. A loss that needs the number of entries of a row uses `effective_counts`.
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32] | None
    n_columns: int
    confidence: npt.NDArray[np.float32] | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows, including empty ones."""
        return len(self.indptr) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of entries of each row."""
        return np.diff(self.indptr)

    @property
    def effective_counts(self) -> npt.NDArray[np.float64]:
        """The effective number of entries of each row: the sum of their confidences."""
        return self.lengths.astype(np.float64) if self.confidence is None else self.sums(self.confidence)

    def sums(self, numbers: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Return the sum of `numbers` over each row's entries; `numbers` has one element per entry, or one for all."""
        row_of = np.repeat(np.arange(self.n_rows), self.lengths)
        return np.asarray(np.bincount(row_of, np.broadcast_to(numbers, len(self)), self.n_rows), np.float64)

    def __len__(self) -> int:
        return len(self.indices)

    def row(self, r: int) -> npt.NDArray[np.int32]:
        """Return the columns of row `r`."""
        return self.indices[self.indptr[r] : self.indptr[r + 1]]

    def take(self, rows: npt.NDArray[Any]) -> SparseRows:
        """Return the given rows, in the given order."""
        lengths = self.indptr[rows + 1] - self.indptr[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        where = np.repeat(self.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        values, confidence = (None if array is None else array[where] for array in (self.values, self.confidence))
        return SparseRows(indptr, self.indices[where], values, self.n_columns, confidence)

    def keep(self, chosen: npt.NDArray[np.bool_]) -> SparseRows:
        """Return only these entries. All rows remain, even empty ones."""
        indptr = np.concatenate([[0], np.cumsum(chosen)])[self.indptr].astype(np.int64)
        values, confidence = (None if array is None else array[chosen] for array in (self.values, self.confidence))
        return SparseRows(indptr, self.indices[chosen], values, self.n_columns, confidence)

    def settled(self) -> SparseRows:
        """Remove entries with confidence 0; if all confidences are 1, remove the confidences."""
        if self.confidence is None or (self.confidence == 1).all():
            return replace(self, confidence=None)
        return self.keep(self.confidence > 0)

    def column_counts(self) -> npt.NDArray[np.int64]:
        """Count the entries of each column, block by block: NumPy's bincount copies its input to int64."""
        step = max(1 << 20, self.n_columns)
        counts = np.zeros(self.n_columns, np.int64)
        for start in range(0, len(self), step):
            counts += np.bincount(self.indices[start : start + step], minlength=self.n_columns)
        return counts

    def transpose(self) -> SparseRows:
        """Return the transpose: the same entries by columns."""
        row_of = np.repeat(np.arange(self.n_rows, dtype=np.int32), self.lengths)
        values = np.empty(0, np.float32) if self.values is None else self.values
        indptr, indices, out = _sort_by_key(self.indices, row_of, values, np.empty(0, np.uint32), self.n_columns)
        return SparseRows(indptr, indices, None if self.values is None else out, self.n_rows)

    @classmethod
    def from_lists(cls, lists: list[npt.NDArray[Any]], n_columns: int) -> SparseRows:
        """Build rows from lists of columns; repeated columns are merged."""
        rows = [np.unique(np.asarray(columns, dtype=np.int32)) for columns in lists]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        indices = np.concatenate(rows) if rows else np.empty(0, np.int32)
        return cls(indptr, indices.astype(np.int32, copy=False), None, n_columns)


def rows_of(
    keys: npt.NDArray[np.int32],
    columns: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32] | None,
    order: npt.NDArray[np.uint32] | None,
    n_rows: int,
    n_columns: int,
    merge: int,
) -> SparseRows:
    """Build a sparse matrix from events (row, column, weight); repeated pairs are merged.

    Args:
        keys: the row of each event.
        columns: the column of each event.
        weights: the weight of each event, or None if every weight is 1.
        order: the positions of the events in time order, or None if they are sorted already.
        n_rows: the number of rows.
        n_columns: the number of columns.
        merge: `SUM`, `COUNT` or `LATEST`: how the weights of a repeated pair are combined.

    Two stable counting sorts, by column and then by row. Bound by memory traffic: three scattered writes per event. It
    needs 16 bytes per event, of which the result keeps 8.
    """
    if merge == COUNT:
        weights = None
    no_order = np.empty(0, np.uint32)
    given = np.empty(0, np.float32) if weights is None else weights
    start, first, first_weights = _sort_by_key(columns, keys, given, no_order if order is None else order, n_columns)
    column_of = np.repeat(np.arange(n_columns, dtype=np.int32), np.diff(start))  # implied by the order of `first`
    indptr, indices, values = _sort_by_key(first, column_of, first_weights, no_order, n_rows)
    del first, first_weights, column_of
    if weights is None:
        values = np.ones(len(indices), np.float32)
    size = _merge_repeats(indptr, indices, values, merge)
    if size < len(indices):
        indices, values = indices[:size].copy(), values[:size].copy()
        plain = weights is None and merge == LATEST
    else:
        plain = weights is None
    return SparseRows(indptr, indices, None if plain else values, n_columns)


def csr_error(rows: SparseRows, n_rows: int) -> str | None:
    """Return what is wrong with rows that should be a valid `SparseRows` with `n_rows` rows; None if they are valid.

    Kernels do not check their input: they follow `indptr` and rely on sorted columns. So check data from outside, such
    as files, first. Takes one pass over the columns and one byte per entry.

    >>> csr_error(SparseRows(np.array([0, 2]), np.array([3, 1], dtype=np.int32), None, 4), 1)
    'row 0 has column 1 after column 3; expected rising columns, each once'
    """
    indptr, indices, values = rows.indptr, rows.indices, rows.values
    if indptr.dtype != np.int64 or indptr.shape != (n_rows + 1,):
        return f"indptr is {indptr.dtype} {indptr.shape}; expected int64 {(n_rows + 1,)}"
    if indices.dtype != np.int32 or indices.ndim != 1:
        return f"the columns are {indices.dtype} {indices.shape}; expected int32 in one dimension"
    if values is not None and (values.dtype != np.float32 or values.shape != indices.shape):
        return f"the values are {values.dtype} {values.shape}; expected float32 {indices.shape}, one per column"
    if indptr[0] != 0 or indptr[-1] != len(indices):
        return f"the rows go from {indptr[0]} to {indptr[-1]}; expected 0 to {len(indices)}, the number of entries"
    falling = indptr[1:] < indptr[:-1]  # a difference could overflow
    if falling.any():
        r = int(np.argmax(falling))
        return f"row {r} goes from {indptr[r]} back to {indptr[r + 1]}"
    if len(indices) and not (indices.min() >= 0 and indices.max() < rows.n_columns):
        return f"the columns go from {indices.min()} to {indices.max()}; expected 0 to {rows.n_columns - 1}"
    rising = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    rising[starts[(starts > 0) & (starts < len(indices))] - 1] = True  # the next row may start anywhere
    if not rising.all():
        e = int(np.argmin(rising)) + 1
        r = int(np.searchsorted(indptr, e, side="right")) - 1
        return f"row {r} has column {indices[e]} after column {indices[e - 1]}; expected rising columns, each once"
    if values is not None and not np.isfinite(values).all():
        e = int(np.argmin(np.isfinite(values)))
        return f"the value of entry {e} is {values[e]}; expected finite numbers"
    return None


def product_work(rows: SparseRows, column_lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the cost of multiplying each row with all rows: the number of entries in all its columns."""
    work = np.zeros(rows.n_rows, np.int64)
    _add_lengths(rows.indptr, rows.indices, column_lengths, work)
    return work


def by_key(
    keys: npt.NDArray[np.int32], values: Array, n_keys: int, order: npt.NDArray[np.uint32] | None = None
) -> tuple[npt.NDArray[np.int64], Array]:
    """Group values by key: those of key k are at `indptr[k]:indptr[k + 1]`, in `order` (None: input order)."""
    no_order = np.empty(0, np.uint32)
    indptr, out, _ = _sort_by_key(keys, values, np.empty(0, np.float32), no_order if order is None else order, n_keys)
    return indptr, out


@kernel
def _add_lengths(indptr: Array, indices: Array, lengths: Array, work: Array) -> None:
    for r in range(len(indptr) - 1):
        total = 0
        for e in range(indptr[r], indptr[r + 1]):
            total += lengths[indices[e]]
        work[r] = total


@kernel
def has_pairs(indptr: Array, indices: Array, rows: Array, columns: Array) -> Array:
    """Return for each pair (row, column) whether it is an entry of a sparse matrix with sorted rows."""
    present = np.zeros(len(rows), np.bool_)
    for p in range(len(rows)):
        present[p] = holds(indices, indptr[rows[p]], indptr[rows[p] + 1], columns[p])
    return present


@kernel
def holds(indices: Array, begin: int, end: int, column: int) -> bool:
    """Return whether the sorted `indices[begin:end]` contain a column (binary search)."""
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < column:
            low = middle + 1
        else:
            high = middle
    return bool(low < end and indices[low] == column)


@kernel
def _sort_by_key(keys: Array, payload: Array, weights: Array, order: Array, n_keys: int) -> tuple[Array, Array, Array]:
    """Sort (payload, weight) by key: a stable counting sort that reads the events in `order` unless it is empty."""
    n = len(keys)
    start = np.zeros(n_keys + 1, np.int64)
    for e in range(n):
        start[keys[e] + 1] += 1
    for k in range(n_keys):
        start[k + 1] += start[k]
    cursor = start[:-1].copy()
    out = np.empty(n, payload.dtype)
    out_weights = np.empty(len(weights), np.float32)
    for position in range(n):
        e = int(order[position]) if len(order) > 0 else position
        at = cursor[keys[e]]
        cursor[keys[e]] = at + 1
        out[at] = payload[e]
        if len(weights) > 0:
            out_weights[at] = weights[e]
    return start, out, out_weights


@kernel
def _merge_repeats(indptr: Array, indices: Array, values: Array, merge: int) -> int:
    """Merge equal columns within each row in place, update `indptr`, and return the number of entries left."""
    at = 0
    begin = indptr[0]
    for r in range(len(indptr) - 1):
        end = indptr[r + 1]
        indptr[r] = at
        p = begin
        while p < end:
            column = indices[p]
            total = 0.0
            last = values[p]
            run = 0
            while p < end and indices[p] == column:
                total += values[p]
                last = values[p]
                run += 1
                p += 1
            indices[at] = column
            if merge == 0:
                values[at] = total
            elif merge == 1:
                values[at] = run
            else:
                values[at] = last
            at += 1
        begin = end
    indptr[len(indptr) - 1] = at
    return at
