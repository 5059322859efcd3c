"""The quantized index: lists by direction, blocks by length, four-bit codes, exact scores at the end.

Items are partitioned into lists by direction. Within a list they are sorted by length, longest first, and cut into
blocks of 64. A block has a direction and a length; length · ⟨query, direction⟩ estimates the scores of its items. So a
query that is far from a list scans only the longest items of it, while other indexes scan a whole list or none of it.
This helps because lengths of learned embeddings vary: with log-normal lengths (σ = 0.25), a quarter of the blocks was
enough for the same recall.

The residual of an item, without its block's vector, is quantized (`codes`). Sums of table entries (`scan`) select the
candidates, which are scored exactly. Filters are checked while candidates are collected, so that filtered items take no
candidate's place.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer
from shortlist._threads import run_chunks, thread_count
from shortlist.retrieval.filters import Filters, ItemMask
from shortlist.retrieval.indexes.base import Codes, SearchResult, VectorIndex, Vectors
from shortlist.retrieval.indexes.block_sums import BLOCK
from shortlist.retrieval.indexes.codes import SAMPLE, encode, learn_points, padded_width
from shortlist.retrieval.indexes.item_filter import make_item_filter
from shortlist.retrieval.indexes.partition import Advance, partition_items
from shortlist.retrieval.indexes.scan import (
    Blocks,
    ScanWorkspace,
    cache_aligned,
    count_allowed,
    direction_products,
    make_workspace,
    search_blocks,
)

CHUNK = 64  # queries per chunk of work for a thread
FEW = 4  # queries: for more, a BLAS product is faster


class QuantizedIndex(VectorIndex):
    """An approximate index with product quantization: fast, small, and without extra dependencies.

    Items are partitioned into lists by direction, and into blocks of 64 by length. They are compressed to four bits for
    every two coordinates, and the best candidates are scored exactly. The index takes d/4 + 4 bytes per item beside the
    item vectors. It is fast on processors with AVX2 or AVX-512; on others exact search may be faster.

    Args:
        vectors: the item vectors, items × dimensions.
        lists: the number of lists; about 4·√items by default.
        probes: the number of blocks of 64 items that a query scans. More gives higher recall and slower searches.
        refine: a query for n items scores refine · n + 100 candidates exactly.
        seed: of the samples from which lists and codes are learned.
    """

    kind: ClassVar[str] = "quantized"

    def __init__(
        self,
        vectors: npt.ArrayLike,
        *,
        priority: npt.ArrayLike | None = None,
        lists: int | None = None,
        probes: int | None = None,
        refine: int = 8,
        seed: int = 0,
        threads: int | None = None,
        advance: Advance | None = None,
    ) -> None:
        super().__init__(vectors, priority)
        n_items = self.n_items
        if lists is None:
            lists = max(1, min(round(4 * n_items**0.5), n_items // BLOCK))
        n_lists = integer("lists", lists, most=n_items)
        integer("seed", seed, least=0)
        advance = advance or (lambda _: None)
        self._directions, list_of = partition_items(self.vectors, n_lists, seed=seed, threads=threads, advance=advance)
        advance("codes")
        self._blocks = self._quantize(list_of, seed, threads)
        self._workspaces = threading.local()
        self._counts: WeakKeyDictionary[ItemMask, Codes] = WeakKeyDictionary()
        self._apply({"probes": max(1, len(self._blocks.lists) // 32) if probes is None else probes, "refine": refine})

    def _quantize(self, list_of: Codes, seed: int, threads: int | None) -> Blocks:
        """Sort the items into blocks and compute their codes. `list_of` is the list of each item."""
        along = np.einsum("ij,ij->i", self.vectors, self._directions[list_of])
        order = np.lexsort((-along, list_of)).astype(np.int32)
        counts = np.bincount(list_of, minlength=len(self._directions))
        n_blocks = -(-counts // BLOCK)
        first = np.concatenate([[0], np.cumsum(n_blocks)])
        place = np.arange(len(list_of)) - np.concatenate([[0], np.cumsum(counts)])[list_of[order]]
        items = np.full(int(first[-1]) * BLOCK, -1, np.int32)
        items[first[list_of[order]] * BLOCK + place] = order
        lists = np.repeat(np.arange(len(counts), dtype=np.int32), n_blocks)
        filled = items.reshape(-1, BLOCK) >= 0
        lengths = np.where(filled, along[items.reshape(-1, BLOCK)], 0).sum(axis=1) / filled.sum(axis=1)
        lengths = lengths.astype(np.float32)
        width = padded_width(self.dim)
        slots = np.sort(np.random.default_rng([seed, 32]).permutation(np.flatnonzero(items >= 0))[:SAMPLE])
        residuals = np.zeros((len(slots), width), np.float32)
        residuals[:, : self.dim] = self.vectors[items[slots]]
        block = slots // BLOCK
        residuals[:, : self.dim] -= lengths[block, None] * self._directions[lists[block]]
        points = learn_points(residuals, seed, threads)
        codes = cache_aligned(len(lists) * width // 4 * BLOCK)
        codes[:] = 0
        packed = codes.reshape(len(lists), width // 4, BLOCK)

        def work(start: int, stop: int) -> None:
            residual = np.zeros(width, np.float32)
            encode(self.vectors, self._directions, lists, lengths, items, points, packed, residual, start, stop)

        run_chunks(work, [(a, min(a + 256, len(lists))) for a in range(0, len(lists), 256)], threads)
        return Blocks(lists, lengths, items, codes, points)

    @property
    def settings(self) -> dict[str, Any]:
        """The number of blocks that a query scans, and of candidates per requested item that it scores."""
        return {"probes": self.probes, "refine": self.refine}

    def _apply(self, settings: Mapping[str, Any]) -> None:
        self.probes = min(integer("probes", settings["probes"]), len(self._blocks.lists))
        self.refine = integer("refine", settings["refine"])

    def ladder(self, n: int) -> list[dict[str, Any]]:
        """Return settings with probes from 1/512 of the blocks to all, in steps of 1.5, for each of five refines."""
        n_blocks = len(self._blocks.lists)
        steps = [max(1, round(n_blocks / 512 * 1.5**k)) for k in range(15)] + [n_blocks]
        steps = sorted({step for step in steps if step <= n_blocks})
        return [{"probes": probes, "refine": refine} for refine in (3, 5, 8, 16, 48) for probes in steps]

    @property
    def built(self) -> dict[str, Any]:
        """The number of lists."""
        return {"lists": self.n_lists}

    @property
    def nbytes(self) -> int:
        """The size of codes, slots, lengths and directions in bytes."""
        return int(sum(part.nbytes for part in self._blocks)) + self._directions.nbytes

    @property
    def n_lists(self) -> int:
        """The number of lists."""
        return len(self._directions)

    @property
    def n_blocks(self) -> int:
        """The number of blocks of up to 64 items."""
        return len(self._blocks.lists)

    def _search(self, vectors: Vectors, n: int, filters: Filters, threads: int | None) -> SearchResult:
        items = np.empty((len(vectors), n), np.int32)
        scores = np.empty((len(vectors), n), np.float32)
        item_filter = make_item_filter(filters, len(vectors))
        counts, probes = self._filtered_blocks(filters.item_mask)
        candidates = min(self.refine * n + 100, self.n_items)

        def search(start: int, stop: int) -> None:
            near = np.empty((stop - start, self.n_lists), np.float32)
            if stop - start <= FEW:
                direction_products(vectors[start:stop], self._directions, near)
            else:
                np.matmul(vectors[start:stop], self._directions.T, out=near)
            search_blocks(
                vectors[start:stop],
                near,
                start,
                self._blocks,
                self.vectors,
                item_filter,
                self.ties,
                counts,
                n,
                probes,
                candidates,
                self._workspace(candidates),
                items[start:stop],
                scores[start:stop].view(np.int32),
            )

        chunks = [(start, min(start + CHUNK, len(vectors))) for start in range(0, len(vectors), CHUNK)]
        if len(vectors) <= FEW:
            search(0, len(vectors))
        else:
            run_chunks(search, chunks, thread_count(threads))
        return items, scores

    def _filtered_blocks(self, item_mask: ItemMask | None) -> tuple[Codes, int]:
        """Return the number of allowed items in each block (empty array: all), and the number of blocks to scan.

        The number of blocks is chosen so that about as many allowed items are scanned as without filters. Blocks
        without allowed items are skipped.
        """
        if item_mask is None:
            return np.empty(0, np.int32), self.probes
        counts = self._counts.get(item_mask)
        if counts is None:
            counts = np.empty(self.n_blocks, np.int32)
            count_allowed(self._blocks.items, item_mask.bits, counts)
            self._counts[item_mask] = counts
        filled = int(np.count_nonzero(counts))
        wanted = self.probes * self.n_items * filled / max(1, self.n_blocks * item_mask.n_kept)
        return counts, max(1, min(self.n_blocks, round(wanted)))

    def _workspace(self, candidates: int) -> ScanWorkspace:
        """Return this thread's workspace. The last one is cached."""
        cached: tuple[int, ScanWorkspace] | None = getattr(self._workspaces, "cached", None)
        if cached is None or cached[0] != candidates:
            cached = (candidates, make_workspace(self.n_blocks, len(self._blocks.points), candidates))
            self._workspaces.cached = cached
        return cached[1]
