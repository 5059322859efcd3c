"""Exact search: the n best items of each query, and the ranks of given items, without a full score matrix.

Queries are cut into chunks for the threads, items into tiles. The scorer fills one chunk × tile of scores at a time,
small enough to stay in the cache. A kernel processes it before the next one overwrites it.

The order is the same everywhere. Higher scores come first. Ties go to the lower `priority` (by default the item code).
With a `tie_seed`, ties go to the lower hash of seed, query key and item: they are random, but do not depend on blocks,
threads or the other queries. Remaining ties go to the lower item code. NaN ranks below everything, even -inf, and all
NaNs are equal.

Scores are exactly those of the scorer. Note that a matrix product may round differently in blocks of another shape, so
that nearly equal scores change places.
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
from shortlist.retrieval.numpy_search import FEW_QUERIES, best_of_few
from shortlist.retrieval.order import make_order
from shortlist.retrieval.rank_kernels import rank_block
from shortlist.retrieval.select import SelectWorkspace, finish, no_candidates, select_block
from shortlist.scoring.blocks import BlockScorer

CHUNK = 512  # queries: fewer make the product slower, more balance the threads worse
TILE = 1_300_000  # scores per tile, 5 MB: larger tiles leave the cache before the kernel reads them
ROW_TILE = 5_000_000  # scores per tile of whole rows: cache misses cost less here than a product with fewer queries
SMALL = 2_000_000  # scores: a few milliseconds of work, not worth starting threads


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
    """Return the n best items of each query, best first, and their scores.

    Both arrays are queries × n. If the filters leave fewer than n items, the rest is -1 with score -inf. Items that the
    model itself scores -inf or NaN are returned like any other.

    Args:
        scorer: computes blocks of scores.
        n: the number of items per query.
        filters: restrict which items may be returned.
        priority: one integer per item; among items with equal scores, the lowest comes first.
        tie_seed: break ties at random, with this seed, instead of by priority.
        query_keys: integers that identify the queries for `tie_seed`; by default their positions.
        memory: the limit for the score blocks and candidates of all threads together, in bytes.
        threads: the number of threads; by default all that `shortlist` may use.
        in_numpy: search with NumPy, which compiles nothing, instead of kernels; by default for up to four queries.
            NumPy needs at least one whole row of scores in memory, even if `memory` is less.
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
    n_threads, cells = _per_thread(memory, threads, n_queries * n_columns)
    rows, width = _tile_shape(n_queries, n_columns, n, n_threads, cells)
    if in_numpy is None:
        in_numpy = n_queries <= FEW_QUERIES and n_columns <= width
    if in_numpy:
        rows, width = _chunk_of_whole_rows(n_queries, n_columns, n_threads, cells), n_columns
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
    """Return the rank of each target item among the items that pass the filters, and the number of those per query.

    Ranks start at 1 and follow the order of `top_n`: its k-th item has rank k. A target that does not pass the filters
    has rank 0. `targets` is `(indptr, indices)` with one row of item codes per query. The first array returned has one
    rank for each of its indices, the second one count per query.

    The other arguments are those of `top_n`. Blocks have whole rows of scores, so that a target and the items around it
    are scored in the same product. At least one row is in memory, even if `memory` is less.
    """
    n_queries = scorer.n_queries
    target_starts, target_items = item_rows(targets, scorer.n_queries, scorer.n_items, "targets")
    ranks = np.zeros(len(target_items), np.int64)
    n_ranked = np.empty(n_queries, np.int64)
    narrowed, masks, codes = narrow(scorer, filters)
    order = make_order(n_queries, scorer.n_items, priority, tie_seed, query_keys, codes)
    n_columns = narrowed.n_items
    n_threads, cells = _per_thread(memory, threads, n_queries * n_columns)
    rows = _chunk_of_whole_rows(n_queries, max(1, n_columns), n_threads, cells)
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
        raise SettingError(f"{name} is {value!r}; expected an integer ≥ 1", field=name)


def _per_thread(memory: int, threads: int | None, n_scores: int) -> tuple[int, int]:
    """Return the number of threads, and how many float32 scores fit into each thread's memory."""
    _at_least_one(memory, "memory")
    n_threads = thread_count(threads)
    if n_scores < SMALL:
        n_threads = 1
    return n_threads, int(memory) // (4 * n_threads)


def _chunk_rows(n_queries: int, n_threads: int, most: int) -> int:
    """Return the number of queries per chunk: at most `most`, so that each thread gets about as many chunks."""
    rounds = -(-n_queries // (n_threads * max(1, most)))
    return max(1, -(-n_queries // max(1, rounds * n_threads)))


def _chunk_of_whole_rows(n_queries: int, n_columns: int, n_threads: int, cells: int) -> int:
    """Return the number of queries per chunk if a tile has all their scores."""
    return _chunk_rows(n_queries, n_threads, min(CHUNK, ROW_TILE // n_columns, cells // n_columns))


def _tile_shape(n_queries: int, n_columns: int, n: int, n_threads: int, cells: int) -> tuple[int, int]:
    """Return the number of queries per chunk and of items per tile."""
    candidates = 6 * n  # memory of a query's candidates, in scores: 2n candidates of 12 bytes
    rows = _chunk_rows(n_queries, n_threads, min(CHUNK, cells // (candidates + 1024)))
    return rows, _tile_width(n_columns, min(TILE // rows, cells // rows - candidates))


def _tile_width(n_columns: int, most: int) -> int:
    """Return the number of items per tile: all, or an odd multiple of 16.

    Rows whose distance is a power of two would share cache sets.
    """
    if n_columns <= most:
        return max(1, n_columns)
    return max(16, (most - 16) // 32 * 32 + 16)


def _block(blocks: threading.local, most: int, n_rows: int, width: int) -> npt.NDArray[np.float32]:
    """Return this thread's block, allocated once per search and cut to size."""
    if not hasattr(blocks, "scores"):
        blocks.scores = np.empty(most, np.float32)
    scores: npt.NDArray[np.float32] = blocks.scores
    return scores[: n_rows * width].reshape(n_rows, width)


def _run(work: Callable[[int, int], None], n_queries: int, rows: int, n_threads: int, threads: int | None) -> None:
    chunks = [(start, min(start + rows, n_queries)) for start in range(0, n_queries, rows)]
    if n_threads > 1 or threads == 1:
        run_chunks(work, chunks, n_threads)
        return
    for start, stop in chunks:  # little work: BLAS may still use its own threads
        work(start, stop)
