"""Slates that look at how near the items of a pool are to each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from shortlist.data.rows import Rows
from shortlist.metrics.cosines import cosine_table
from shortlist.retrieval.slates.base import Catalogue, Codes, Values, over_queries
from shortlist.retrieval.slates.kernels import Near

Kernel = Callable[..., None]


def pick_apart(
    kernel: Kernel,
    codes: Codes,
    relevance: Values,
    n: int,
    catalogue: Catalogue,
    diversity: float,
    memory: int,
    threads: int,
) -> npt.NDArray[np.int32]:
    """The places that a kernel picks, which is given what is near to what.

    With vectors all queries are run through at once. Without them there is a table of all pairs of a block of queries'
    items: pools share most of their items, so the more queries there are in a block, the less a table costs each.
    """
    places = np.empty((len(codes), n), np.int32)
    for start, stop, near in _blocks(codes, catalogue, memory, threads):
        pools, own, out = codes[start:stop], relevance[start:stop], places[start:stop]

        def work(
            begin: int,
            end: int,
            pools: Codes = pools,
            own: Values = own,
            near: Near = near,
            out: npt.NDArray[np.int32] = out,
        ) -> None:
            kernel(begin, end, pools, own, near, diversity, out)

        over_queries(work, stop - start, threads)
    return places


def _blocks(codes: Codes, catalogue: Catalogue, memory: int, threads: int) -> Iterator[tuple[int, int, Near]]:
    no_table, no_rows = np.empty((0, 0), np.float32), np.empty(0, np.int32)
    if catalogue.vectors is not None:
        yield 0, len(codes), Near(catalogue.vectors, no_table, no_rows)
        return
    no_vectors = np.empty((catalogue.trained.n_columns, 0), np.float32)
    for start, stop in blocks_of_items(codes, catalogue.trained, int((memory // 4) ** 0.5)):
        rows, table = cosine_table(codes[start:stop], catalogue.trained, threads)
        yield start, stop, Near(no_vectors, table, rows.astype(np.int32))


def blocks_of_items(codes: Codes, trained: Rows, most: int) -> Iterator[tuple[int, int]]:
    """Cut queries into blocks whose pools have at most so many different items, or are of one query.

    >>> codes = np.array([[0, 1], [1, 2], [3, 4], [4, -1]], np.int32)
    >>> list(blocks_of_items(codes, Rows.from_lists([], 5), 3))
    [(0, 2), (2, 4)]
    """
    block_of = np.full(trained.n_columns + 1, -1)  # the block that last had each item; the last is that of -1
    start, different = 0, 0
    for q, pool in enumerate(codes):
        own = pool[pool >= 0]
        fresh = int(np.count_nonzero(block_of[own] != start))
        if q > start and different + fresh > most:
            yield start, q
            start, different, fresh = q, 0, len(own)
        different += fresh
        block_of[own] = start
    if len(codes):
        yield start, len(codes)
