"""Similarities of sparse rows, and search for the k nearest rows without a dense similarity matrix."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import number, one_of, refuse_large_squares
from shortlist._numba import kernel
from shortlist._threads import Step, balanced_chunks, run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows, product_work
from shortlist.errors import SettingError
from shortlist.scoring.sparse_scorer import SparseScorer

Array: TypeAlias = npt.NDArray[Any]
SimilarityName: TypeAlias = Literal["cosine", "tfidf", "bm25"]
SIMILARITIES = ("cosine", "tfidf", "bm25")

SHORT = 2**16  # up to this number of rows, row numbers fit in two bytes
NOTHING = np.float32(1.2e-38)  # below it, float32 has too few digits to divide by
BLOCK = 256  # rows that are compared at once
SMALL = 200_000  # below this number of additions, a fraction of a millisecond, one thread is faster


@dataclass(frozen=True)
class Similarity:
    """The similarity of a row x and a row y of a sparse matrix, computed from the columns t that they share.

        cosine   Σ_t x_t·y_t / (‖x‖^2a · ‖y‖^2(1−a) + h)
        tfidf    the cosine of x_t·idf_t and y_t·idf_t with idf_t = log(N / N_t): rare columns count more
        bm25     Σ_t b_t(x)·b_t(y) with b_t(x) = idf_t · x_t·(k₁ + 1) / (x_t + k₁·(1 − b + b·|x| / mean of |y|))

    N is the number of rows, N_t is the number of rows with column t, and |x| is the sum of a row.

    Args:
        name: `"cosine"`, `"tfidf"` or `"bm25"`.
        shrinkage: h, which lowers the similarity of rows that share little. Not for bm25, which uses b instead.
        asymmetry: a, from 0 to 1; ½ is the usual cosine. Not for bm25.
        k1: k₁ of bm25: a smaller k₁ makes repetitions count less.
        b: b of bm25, from 0 to 1: a larger b lowers the weight of long rows.
    """

    name: SimilarityName = "cosine"
    shrinkage: float = 0.0
    asymmetry: float = 0.5
    k1: float = 1.2
    b: float = 0.75

    def __post_init__(self) -> None:
        one_of("similarity", self.name, SIMILARITIES)
        for name in ("shrinkage", "asymmetry", "k1", "b"):
            value = number(name, getattr(self, name))
            if name in ("asymmetry", "b") and value > 1:
                raise SettingError(f"{name} is {value!r}; expected a number from 0 to 1", field=name)
        if self.name == "bm25" and (self.shrinkage != 0 or self.asymmetry != 0.5):
            raise SettingError(
                f"shrinkage is {self.shrinkage!r} and asymmetry is {self.asymmetry!r}, but similarity 'bm25' is "
                "normalised by k1 and b instead",
                hint="leave them at 0 and 0.5, or use 'tfidf'",
                field="shrinkage",
            )

    def saturated(self, x: npt.NDArray[Any], size: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return b_t without the idf, for entries x of rows of this size, in multiples of the mean size."""
        damping = (1 - self.b + self.b * size) * self.k1 / (self.k1 + 1)  # both sides are divided by k₁ + 1
        x = x.astype(np.float64)
        with np.errstate(invalid="ignore"):
            out = np.where(x > 0, x / (x / (self.k1 + 1) + damping), 0)
        return out.astype(np.float32)


class Neighbourhood:
    """The rows to compare queries with, and the search for the k nearest rows.

    Args:
        similarity: the similarity measure.
        rows: the rows.
        strengths: the values of the entries of `rows`, or one value for all.
        by_column: the same entries by columns.
        column_strengths: the values of the entries of `by_column`, or one value for all.
        keys: a key for each row. A query is never a neighbour of a row with its own key.
    """

    def __init__(
        self,
        similarity: Similarity,
        rows: SparseRows,
        strengths: npt.NDArray[np.float32],
        by_column: SparseRows,
        column_strengths: npt.NDArray[np.float32],
        keys: npt.NDArray[np.uint64],
    ) -> None:
        self.similarity = similarity
        self.keys = keys
        self.n_rows = rows.n_rows
        idf = np.ones(rows.n_columns)
        if similarity.name != "cosine":
            idf = np.log(max(1, rows.n_rows) / np.maximum(1, by_column.lengths))
        self._squared_idf = (idf**2).astype(np.float32)
        self._mean_size = 1.0
        if similarity.name == "bm25":
            sizes = _row_sums(rows, strengths)
            self._mean_size = float(sizes.mean()) or 1.0
            column_strengths = similarity.saturated(
                np.broadcast_to(column_strengths, len(by_column)), (sizes / self._mean_size)[by_column.indices]
            )
        self._lengths = self._length_power(rows, strengths, 1 - similarity.asymmetry)
        self._indptr = by_column.indptr
        self._column_lengths = by_column.lengths
        # The kernel is bound by the bytes of these indices, so two bytes are faster than four.
        self._indices = by_column.indices.astype(np.uint16) if rows.n_rows <= SHORT else by_column.indices
        self._values = column_strengths

    def _length_power(
        self, rows: SparseRows, strengths: npt.NDArray[np.float32], power: float
    ) -> npt.NDArray[np.float32]:
        """Return ‖x‖² to this power, for each row; 1 for bm25."""
        squares = _row_sums(rows, strengths, self._squared_idf)
        refuse_large_squares("a row", squares)
        return np.ones(rows.n_rows, np.float32) if self.similarity.name == "bm25" else (squares**power).astype("f4")

    def nearest(
        self,
        queries: SparseRows,
        strengths: npt.NDArray[np.float32],
        keys: npt.NDArray[np.uint64],
        k: int,
        *,
        threads: int | None = None,
        step: Step | None = None,
    ) -> SparseRows:
        """Return the k nearest rows of each query with their similarities; only rows that share something with it.

        Ties are broken by the lower row number. The result does not depend on the number of threads.
        """
        similarity, n = self.similarity, queries.n_rows
        k = max(1, min(k, self.n_rows))
        query_lengths = self._length_power(queries, strengths, similarity.asymmetry)
        x = np.broadcast_to(strengths, len(queries))
        if similarity.name == "bm25":
            sizes = np.repeat(_row_sums(queries, strengths) / self._mean_size, queries.lengths)
            x = similarity.saturated(x, sizes)
        if similarity.name != "cosine":
            x = x * self._squared_idf[queries.indices]
        elif len(strengths) == 1:
            x = strengths
        neighbours: npt.NDArray[np.int32] = np.empty((n, k), np.int32)
        values: npt.NDArray[np.float32] = np.empty((n, k), np.float32)
        counts: npt.NDArray[np.int64] = np.zeros(n, np.int64)
        work = product_work(queries, self._column_lengths)
        spaces = threading.local()

        def search(start: int, stop: int) -> None:
            if not hasattr(spaces, "sums"):
                spaces.sums = np.zeros(self.n_rows, np.float32)
                spaces.touched = np.empty(self.n_rows, np.int32)
            _nearest(
                queries.indptr, queries.indices, x, keys, query_lengths,
                self._indptr, self._indices, self._values, self.keys, self._lengths,
                np.float32(similarity.shrinkage), work, start, stop, spaces.sums, spaces.touched,
                neighbours, values, counts,
            )  # fmt: skip

        n_threads = thread_count(threads) if work.sum() > SMALL else 1
        run_chunks(search, balanced_chunks(work + 1, 64 * n_threads if n_threads > 1 or step else 1), n_threads, step)
        return _packed(neighbours, values, counts, self.n_rows)


class NeighbourScorer:
    """ŷ(i|q) = Σ_{d∈N_k(q)} sim(q, d)·W_{di}, with neighbours that are searched block by block.

    Args:
        neighbourhood: the rows to search.
        queries: the query rows.
        strengths: the values of the entries of `queries`, or one value for all.
        keys: a key for each query; rows with the same key are not its neighbours.
        k: number of neighbours.
        weights: the weights of items for each row.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        queries: SparseRows,
        strengths: npt.NDArray[np.float32],
        keys: npt.NDArray[np.uint64],
        k: int,
        weights: SparseRows,
    ) -> None:
        self.neighbourhood = neighbourhood
        self.queries = queries
        self.strengths = strengths
        self.keys = keys
        self.k = k
        self.weights = weights
        self.n_queries = queries.n_rows
        self.n_items = weights.n_columns
        self._last = threading.local()

    def score(self, queries: slice, items: slice, out: npt.NDArray[np.float32]) -> None:
        """Fill a block of scores."""
        block = (queries.start, queries.stop)
        if getattr(self._last, "block", None) != block:  # the next call usually has the same queries
            self._last.scorer = self._scorer(*block)
            self._last.block = block
        scorer: SparseScorer = self._last.scorer
        scorer.score(slice(0, block[1] - block[0]), items, out)

    def _scorer(self, start: int, stop: int) -> SparseScorer:
        rows = self.queries
        begin, end = int(rows.indptr[start]), int(rows.indptr[stop])
        part = SparseRows(rows.indptr[start : stop + 1] - begin, rows.indices[begin:end], None, rows.n_columns)
        strengths = self.strengths if len(self.strengths) == 1 else self.strengths[begin:end]
        near = self.neighbourhood.nearest(part, strengths, self.keys[start:stop], self.k, threads=1)
        assert near.values is not None
        return SparseScorer(near, near.values, self.weights)


def row_keys(rows: SparseRows) -> npt.NDArray[np.uint64]:
    """Return a hash of each row's columns: rows with the same columns have the same key."""
    keys = np.empty(rows.n_rows, np.uint64)
    _hash_rows(rows.indptr, rows.indices, keys)
    return keys


def _row_sums(
    rows: SparseRows, strengths: npt.NDArray[np.float32], column_weights: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float64]:
    """Return Σ_t x_t of every row; with column weights w, Σ_t x_t²·w_t."""
    sums = np.zeros(rows.n_rows)
    weights = np.empty(0, np.float32) if column_weights is None else column_weights
    _sum_rows(rows.indptr, rows.indices, strengths, weights, sums)
    return sums


def _packed(neighbours: Array, values: Array, counts: Array, n_columns: int) -> SparseRows:
    """Return sparse rows of the first `counts` entries of each row; compacts the arrays in place."""
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    flat, flat_values = neighbours.reshape(-1), values.reshape(-1)
    if indptr[-1] < len(flat):
        _compact(indptr, neighbours.shape[1], flat, flat_values)
        flat, flat_values = flat[: indptr[-1]].copy(), flat_values[: indptr[-1]].copy()
    return SparseRows(indptr, flat, flat_values, n_columns)


@kernel
def _hash_rows(indptr: Array, indices: Array, keys: Array) -> None:
    """Set the keys to FNV-1a hashes of the columns and their number."""
    for r in range(len(indptr) - 1):
        key = np.uint64(14695981039346656037)
        for e in range(indptr[r], indptr[r + 1]):
            mixed = np.uint64(indices[e]) * np.uint64(0x9E3779B97F4A7C15)
            key = (key ^ (mixed ^ (mixed >> np.uint64(32)))) * np.uint64(1099511628211)
        keys[r] = key ^ np.uint64(indptr[r + 1] - indptr[r])


@kernel
def _sum_rows(indptr: Array, indices: Array, strengths: Array, weights: Array, sums: Array) -> None:
    for r in range(len(indptr) - 1):
        total = 0.0
        for e in range(indptr[r], indptr[r + 1]):
            x = float(strengths[e] if len(strengths) > 1 else strengths[0])
            total += x * x * weights[indices[e]] if len(weights) > 0 else x
        sums[r] = total


@kernel
def _compact(indptr: Array, width: int, indices: Array, values: Array) -> None:
    for r in range(len(indptr) - 1):
        for e in range(indptr[r + 1] - indptr[r]):
            indices[indptr[r] + e] = indices[r * width + e]
            values[indptr[r] + e] = values[r * width + e]


@kernel
def _nearest(
    q_indptr: Array, q_indices: Array, q_values: Array, q_keys: Array, q_lengths: Array,
    c_indptr: Array, c_indices: Array, c_values: Array, keys: Array, lengths: Array,
    shrinkage: np.float32, work: Array, start: int, stop: int, sums: Array, touched: Array,
    neighbours: Array, values: Array, counts: Array,
) -> None:  # fmt: skip
    """For each query, sum the products with every row, then keep the k nearest rows in a heap with the worst on top.

    Bound by the bytes of the columns, mostly from the second-level cache and beyond: 2 or 4 bytes, plus 4 bytes for a
    value, for each of Σ_q Σ_t N_t entries. Each entry also takes one addition at a random place. With k = 100 the
    kernel takes about twice as long as these additions alone (benchmarks/speed/neighbours.py); the rest is the heap and
    the pass over all rows. If a query shares few entries with the rows, only the touched rows are visited.
    """
    n, k = len(sums), neighbours.shape[1]
    near = np.empty(BLOCK, np.float32)
    for q in range(start, stop):
        best, best_row = values[q], neighbours[q]
        size = 0
        q_length = q_lengths[q]
        dense = work[q] * 4 > n
        entries = slice(q_indptr[q], q_indptr[q + 1])
        x = q_values[entries] if len(q_values) > 1 else q_values
        if not dense:
            n_touched = _touch(q_indices[entries], x, c_indptr, c_indices, c_values, sums, touched)
        elif len(c_values) > 1:
            _add_columns(q_indices[entries], x, c_indptr, c_indices, c_values, sums)
        else:
            _count_columns(q_indices[entries], x, c_values[0], c_indptr, c_indices, sums)
        if dense:
            for left in range(0, n, BLOCK):
                width = min(BLOCK, n - left)
                for t in range(width):  # vectorised, 16 at once
                    length = q_length * lengths[left + t] + shrinkage
                    near[t] = sums[left + t] / length if length > NOTHING else np.float32(0)
                bar = best[0] if size == k else NOTHING
                for t in range(width):
                    if near[t] > bar and keys[left + t] != q_keys[q]:
                        size = _push(best, best_row, size, near[t], left + t)
                        bar = best[0] if size == k else NOTHING
            sums[:] = 0
        else:
            for m in range(n_touched):
                y = touched[m]
                length = q_length * lengths[y] + shrinkage
                nearness = sums[y] / length if length > NOTHING else np.float32(0)
                sums[y] = 0
                if nearness > NOTHING and keys[y] != q_keys[q]:
                    size = _push(best, best_row, size, nearness, y)
        _by_row(best, best_row, size)
        counts[q] = size


@kernel
def _by_row(best: Array, best_row: Array, size: int) -> None:
    """Sort the neighbours by row number with Shellsort, which compiles in a tenth of the time of NumPy's sort."""
    gap = 1
    while 3 * gap + 1 < size:
        gap = 3 * gap + 1
    while gap > 0:
        for t in range(gap, size):
            value, row = best[t], best_row[t]
            at = t
            while at >= gap and best_row[at - gap] > row:
                best[at], best_row[at] = best[at - gap], best_row[at - gap]
                at -= gap
            best[at], best_row[at] = value, row
        gap //= 3


@kernel
def _count_columns(
    columns: Array, values: Array, value: np.float32, indptr: Array, indices: Array, sums: Array
) -> None:
    """Sum columns whose entries all have the same value."""
    for e in range(len(columns)):
        x = (values[e] if len(values) > 1 else values[0]) * value
        for p in range(indptr[columns[e]], indptr[columns[e] + 1]):
            sums[indices[p]] += x


@kernel
def _add_columns(columns: Array, values: Array, indptr: Array, indices: Array, c_values: Array, sums: Array) -> None:
    """Sum columns."""
    for e in range(len(columns)):
        x = values[e] if len(values) > 1 else values[0]
        for p in range(indptr[columns[e]], indptr[columns[e] + 1]):
            sums[indices[p]] += x * c_values[p]


@kernel
def _touch(
    columns: Array, values: Array, indptr: Array, indices: Array, c_values: Array, sums: Array, touched: Array
) -> int:
    """Sum columns, list the rows with entries in them, and return their number."""
    n_touched = 0
    for e in range(len(columns)):
        x = values[e] if len(values) > 1 else values[0]
        for p in range(indptr[columns[e]], indptr[columns[e] + 1]):
            y = indices[p]
            if sums[y] == 0:
                touched[n_touched] = y
                n_touched += 1
            # Above 0, because a sum of 0 marks an untouched row.
            sums[y] = max(sums[y] + x * (c_values[p] if len(c_values) > 1 else c_values[0]), 1e-45)
    return n_touched


@kernel
def _push(best: Array, best_row: Array, size: int, value: Any, row: int) -> int:
    """Insert a row into a heap with the worst row on top: the least similar, or the highest number among ties."""
    if size < len(best):
        at = size
        size += 1
        while at > 0:
            above = (at - 1) // 2
            if best[above] < value or (best[above] == value and best_row[above] > row):
                break
            best[at], best_row[at] = best[above], best_row[above]
            at = above
    elif value < best[0] or (value == best[0] and row > best_row[0]):
        return size
    else:
        at = 0
        while True:
            below = 2 * at + 1
            if below >= size:
                break
            other = below + 1
            if other < size and (
                best[other] < best[below] or (best[other] == best[below] and best_row[other] > best_row[below])
            ):
                below = other
            if value < best[below] or (value == best[below] and row > best_row[below]):
                break
            best[at], best_row[at] = best[below], best_row[below]
            at = below
    best[at], best_row[at] = value, row
    return size
