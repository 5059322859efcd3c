"""Exact search: the best n items of every query, and the ranks of given items, without a full matrix of scores.

Queries are cut into chunks for the threads, items into tiles. One chunk × tile of scores at a time is filled by the
scorer, small enough to stay in the cache, and a kernel takes from it what is needed before the next one overwrites it.

The order, everywhere: higher scores first; equal scores by lower `priority` (by default the item code), or, with a
`tie_seed`, by a hash of seed, query key and item, so that ties fall at random and yet the same way whatever the
blocks, the threads and the other queries are; what is still equal, by lower item code. A NaN score ranks below
everything else, -inf included; all NaNs are equal. Scores are exactly those of the scorer; a matrix product may round
differently in blocks of another shape, and near-equal scores may then change places.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from shortlist._checks import DEFAULT_MEMORY
from shortlist._threads import run_chunks, thread_count
from shortlist.errors import SettingError
from shortlist.retrieval.filters import CsrRows, Filters, item_rows, narrow, sorted_starts
from shortlist.retrieval.numpy_search import QUERIES, best_of_few
from shortlist.retrieval.order import make_order
from shortlist.retrieval.rank_kernels import rank_block
from shortlist.retrieval.select import SelectWorkspace, finish, no_candidates, select_block
from shortlist.scoring.blocks import BlockScorer

CHUNK = 512  # queries: fewer make the product slower, more balance the threads worse
TILE = 1_300_000  # scores in a tile, 5 MB: more fall out of the cache before they are looked at
ROW_TILE = (
    5_000_000  # the same where a tile must hold whole rows, and fewer queries would cost more than the cache does
)
SMALL = 2_000_000  # scores: a matter of some milliseconds, for which no threads are started


def top_n(
    scorer: BlockScorer,
    n: int,
    *,
    filters: Filters | None = None,
    priority: npt.ArrayLike | None = None,
    tie_seed: int | None = None,
    query_keys: npt.ArrayLike | None = None,
    memory: int = DEFAULT_MEMORY,
    threads: int | None = None,
    in_numpy: bool | None = None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """The best n items of every query, best first, and their scores.

    Both arrays are queries × n. Where the filters leave fewer than n items, the rest is -1 with score -inf; an item
    that the model itself scores -inf or NaN is returned like any other.

    Args:
        scorer: what to search.
        n: how many items per query.
        filters: which items may be returned.
        priority: whole numbers, one per item; of items with equal scores the lower comes first.
        tie_seed: break ties at random instead, by this seed.
        query_keys: whole numbers that identify the queries for `tie_seed`; by default their positions.
        memory: bytes that the score blocks and candidates of all threads together may take.
        threads: how many threads to use; by default all that `shortlist` may use.
        in_numpy: search with NumPy, which compiles nothing, or with kernels; by default with NumPy for up to four
            queries. NumPy needs blocks of whole rows, at least one, whatever `memory` says.
    """
    _at_least_one(n, "n")
    n_queries = scorer.n_queries
    items = np.empty((n_queries, n), np.int32)
    scores = np.empty((n_queries, n), np.float32)
    narrowed, masks, codes = narrow(scorer, filters)
    order = make_order(n_queries, scorer.n_items, priority, tie_seed, query_keys, codes)
    n_columns = narrowed.n_items
    if not n_columns:
        items[:], scores[:] = -1, -np.inf
        return items, scores
    n_threads, cells = _share(memory, threads, n_queries * n_columns)
    rows, width = _tile_of(n_queries, n_columns, n, n_threads, cells)
    if in_numpy is None:
        in_numpy = n_queries <= QUERIES and n_columns <= width
    if in_numpy:
        rows, width = _rows_of_whole(n_queries, n_columns, n_threads, cells), n_columns
    blocks = threading.local()

    def search(start: int, stop: int) -> None:
        if in_numpy:
            block = _block(blocks, rows * width, stop - start, n_columns)
            narrowed.score(slice(start, stop), slice(0, n_columns), block)
            if best_of_few(block, n, start, masks, order, items[start:stop], scores[start:stop]):
                return
        best = no_candidates(stop - start, n, sorted_starts(start, masks, stop - start))
        for left in range(0, n_columns, width):
            right = min(left + width, n_columns)
            if not in_numpy:
                block = _block(blocks, rows * width, stop - start, right - left)
                narrowed.score(slice(start, stop), slice(left, right), block)
            select_block(block.view(np.int32), n, start, left, masks, order, best, SelectWorkspace.of(block.shape[1]))
        finish(n, best, items[start:stop], scores[start:stop].view(np.int32))

    _run(search, n_queries, rows, n_threads, threads)
    return items, scores


def item_ranks(
    scorer: BlockScorer,
    targets: CsrRows,
    *,
    filters: Filters | None = None,
    priority: npt.ArrayLike | None = None,
    tie_seed: int | None = None,
    query_keys: npt.ArrayLike | None = None,
    memory: int = DEFAULT_MEMORY,
    threads: int | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rank of every target among the items that the filters leave for its query, and how many those are.

    Ranks start at 1 and follow the order of `top_n`: the k-th item that it returns has rank k. A target that is
    filtered itself has rank 0. `targets` is `(indptr, indices)`, one row of item codes per query, and the first
    array returned has one rank for each of its indices; the second has one count per query.

    The other arguments are those of `top_n`. A block holds whole rows of scores, so that a target is compared with
    the very number that it was scored with; at least one row is held, whatever `memory` says.
    """
    n_queries = scorer.n_queries
    target_starts, target_items = item_rows(targets, scorer.n_queries, scorer.n_items, "targets")
    ranks = np.zeros(len(target_items), np.int64)
    n_ranked = np.empty(n_queries, np.int64)
    narrowed, masks, codes = narrow(scorer, filters)
    order = make_order(n_queries, scorer.n_items, priority, tie_seed, query_keys, codes)
    n_columns = narrowed.n_items
    n_threads, cells = _share(memory, threads, n_queries * n_columns)
    rows = _rows_of_whole(n_queries, max(1, n_columns), n_threads, cells)
    blocks = threading.local()

    def rank(start: int, stop: int) -> None:
        block = _block(blocks, rows * n_columns, stop - start, n_columns)
        if n_columns:
            narrowed.score(slice(start, stop), slice(0, n_columns), block)
        rank_block(block.view(np.int32), start, masks, order, target_starts, target_items, ranks, n_ranked)

    _run(rank, n_queries, rows, n_threads, threads)
    return ranks, n_ranked


def _at_least_one(value: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise SettingError(f"{name} is {value!r}; expected a whole number of at least 1")


def _share(memory: int, threads: int | None, n_scores: int) -> tuple[int, int]:
    """How many threads to use, and how many float32 scores each may hold at once."""
    _at_least_one(memory, "memory")
    n_threads = thread_count(threads)
    if n_scores < SMALL:
        n_threads = 1
    return n_threads, int(memory) // (4 * n_threads)


def _chunk_rows(n_queries: int, n_threads: int, most: int) -> int:
    """Queries per chunk: at most so many, with about as many chunks for each thread."""
    rounds = -(-n_queries // (n_threads * max(1, most)))
    return max(1, -(-n_queries // max(1, rounds * n_threads)))


def _rows_of_whole(n_queries: int, n_columns: int, n_threads: int, cells: int) -> int:
    """Queries per chunk where a tile holds all their scores."""
    return _chunk_rows(n_queries, n_threads, min(CHUNK, ROW_TILE // n_columns, cells // n_columns))


def _tile_of(n_queries: int, n_columns: int, n: int, n_threads: int, cells: int) -> tuple[int, int]:
    """Queries per chunk and items per tile where a chunk's scores come tile by tile."""
    candidates = 6 * n  # as many bytes as so many scores: twice n candidates of twelve bytes
    rows = _chunk_rows(n_queries, n_threads, min(CHUNK, cells // (candidates + 1024)))
    return rows, _tile_width(n_columns, min(TILE // rows, cells // rows - candidates))


def _tile_width(n_columns: int, most: int) -> int:
    """Items per tile: an odd multiple of 16 unless one tile does, since rows a power of two apart share cache sets."""
    if n_columns <= most:
        return max(1, n_columns)
    return max(16, (most - 16) // 32 * 32 + 16)


def _block(blocks: threading.local, most: int, n_rows: int, width: int) -> npt.NDArray[np.float32]:
    """This thread's block, made once per call and cut to size."""
    if not hasattr(blocks, "scores"):
        blocks.scores = np.empty(most, np.float32)
    scores: npt.NDArray[np.float32] = blocks.scores
    return scores[: n_rows * width].reshape(n_rows, width)


def _run(work: Callable[[int, int], None], n_queries: int, rows: int, n_threads: int, threads: int | None) -> None:
    chunks = [(start, min(start + rows, n_queries)) for start in range(0, n_queries, rows)]
    if n_threads > 1 or threads == 1:
        run_chunks(work, chunks, n_threads)
        return
    for start, stop in chunks:  # little work: here BLAS may use its own threads, if it finds that worth while
        work(start, stop)
