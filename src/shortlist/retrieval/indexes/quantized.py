"""An approximate index of our own: lists by direction, blocks by length, codes of four bits, exact scores at the end.

Items are cut into lists by their direction. Within a list they are sorted by length, longest first, and cut into
blocks of 64: a block has a direction and a length, and the product of its length with ⟨query, direction⟩ tells what
to expect of its items. So a query that is far from a list looks at the longest items of it only, where other indexes
must take or leave a list as a whole. Lengths of learnt embeddings differ: with log-normal ones (σ = 0.25), a quarter of
the blocks was enough for the same recall. What is left of an item beside its block's vector is quantized (`codes`), and
sums of table entries (`scan`) choose the candidates, which are scored exactly. Filters are looked at while candidates
are collected, so that they take no candidate's place.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from shortlist._checks import whole
from shortlist._threads import run_chunks, thread_count
from shortlist.retrieval.filters import Filters, ItemMask
from shortlist.retrieval.indexes.base import Codes, Found, VectorIndex, Vectors
from shortlist.retrieval.indexes.block_sums import BLOCK
from shortlist.retrieval.indexes.codes import SAMPLE, encode, learn_points, padded_width
from shortlist.retrieval.indexes.item_filter import make_admission
from shortlist.retrieval.indexes.partition import Advance, partitioned
from shortlist.retrieval.indexes.scan import (
    Blocks,
    ScanWorkspace,
    count_left,
    from_line,
    make_room,
    products,
    search_blocks,
)

CHUNK = 64  # queries that a thread takes at a time
FEW = 4


class QuantizedIndex(VectorIndex):
    """Lists by direction, blocks by length, codes of four bits for two coordinates, exact scores at the end.

    Takes d/4 + 4 bytes an item beside the item vectors. Needs nothing that is not installed with Shortlist. Fast on
    processors with AVX2 or AVX-512; on others it works, but exact search may be faster.

    Args:
        vectors: items × dimensions.
        lists: into how many lists to cut the items; about 4·√items by default.
        probes: how many blocks of 64 items a query looks at.
        refine: how many candidates are scored exactly, for each item wanted; 100 more are.
        seed: of the samples that lists and codes are learnt from.
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
        n_lists = whole("lists", lists, most=n_items)
        whole("seed", seed, least=0)
        advance = advance or (lambda _: None)
        self._directions, own = partitioned(self.vectors, n_lists, seed=seed, threads=threads, advance=advance)
        advance("codes")
        self._blocks = self._quantized(own, seed, threads)
        self._rooms = threading.local()
        self._counts: WeakKeyDictionary[ItemMask, Codes] = WeakKeyDictionary()
        self._apply({"probes": max(1, len(self._blocks.lists) // 32) if probes is None else probes, "refine": refine})

    def _quantized(self, own: Codes, seed: int, threads: int | None) -> Blocks:
        """The items in their blocks: `own` is the list of each."""
        along = np.einsum("ij,ij->i", self.vectors, self._directions[own])
        order = np.lexsort((-along, own)).astype(np.int32)
        counts = np.bincount(own, minlength=len(self._directions))
        n_blocks = -(-counts // BLOCK)
        first = np.concatenate([[0], np.cumsum(n_blocks)])
        place = np.arange(len(own)) - np.concatenate([[0], np.cumsum(counts)])[own[order]]
        items = np.full(int(first[-1]) * BLOCK, -1, np.int32)
        items[first[own[order]] * BLOCK + place] = order
        lists = np.repeat(np.arange(len(counts), dtype=np.int32), n_blocks)
        held = items.reshape(-1, BLOCK) >= 0
        lengths = np.where(held, along[items.reshape(-1, BLOCK)], 0).sum(axis=1) / held.sum(axis=1)
        lengths = lengths.astype(np.float32)
        width = padded_width(self.dim)
        slots = np.sort(np.random.default_rng([seed, 32]).permutation(np.flatnonzero(items >= 0))[:SAMPLE])
        residuals = np.zeros((len(slots), width), np.float32)
        residuals[:, : self.dim] = self.vectors[items[slots]]
        block = slots // BLOCK
        residuals[:, : self.dim] -= lengths[block, None] * self._directions[lists[block]]
        points = learn_points(residuals, seed, threads)
        codes = from_line(len(lists) * width // 4 * BLOCK)
        codes[:] = 0
        packed = codes.reshape(len(lists), width // 4, BLOCK)

        def work(start: int, stop: int) -> None:
            room = np.zeros(width, np.float32)
            encode(self.vectors, self._directions, lists, lengths, items, points, packed, room, start, stop)

        run_chunks(work, [(a, min(a + 256, len(lists))) for a in range(0, len(lists), 256)], threads)
        return Blocks(lists, lengths, items, codes, points)

    @property
    def settings(self) -> dict[str, Any]:
        """How many blocks a query looks at, and how many candidates it scores for each item wanted."""
        return {"probes": self.probes, "refine": self.refine}

    def _apply(self, settings: Mapping[str, Any]) -> None:
        self.probes = min(whole("probes", settings["probes"]), len(self._blocks.lists))
        self.refine = whole("refine", settings["refine"])

    def ladder(self, n: int) -> list[dict[str, Any]]:
        """Probes up by half from a 512th of the blocks to all, for each of four numbers of candidates."""
        n_blocks = len(self._blocks.lists)
        probes = [max(1, round(n_blocks / 512 * 1.5**k)) for k in range(15)] + [n_blocks]
        steps = sorted({one for one in probes if one <= n_blocks})
        return [{"probes": one, "refine": refine} for refine in (3, 5, 8, 16, 48) for one in steps]

    @property
    def built(self) -> dict[str, Any]:
        """How many lists there are."""
        return {"lists": self.n_lists}

    @property
    def nbytes(self) -> int:
        """Of codes, slots, lengths and directions."""
        return int(sum(part.nbytes for part in self._blocks)) + self._directions.nbytes

    @property
    def n_lists(self) -> int:
        """How many lists there are."""
        return len(self._directions)

    @property
    def n_blocks(self) -> int:
        """How many blocks of up to 64 items there are."""
        return len(self._blocks.lists)

    def _search(self, vectors: Vectors, n: int, filters: Filters, threads: int | None) -> Found:
        items = np.empty((len(vectors), n), np.int32)
        scores = np.empty((len(vectors), n), np.float32)
        admission = make_admission(filters, len(vectors))
        counts, probes = self._left(filters.item_mask)
        candidates = min(self.refine * n + 100, self.n_items)

        def search(start: int, stop: int) -> None:
            near = np.empty((stop - start, self.n_lists), np.float32)
            if stop - start <= FEW:
                products(vectors[start:stop], self._directions, near)
            else:
                np.matmul(vectors[start:stop], self._directions.T, out=near)
            search_blocks(
                vectors[start:stop],
                near,
                start,
                self._blocks,
                self.vectors,
                admission,
                self.ties,
                counts,
                n,
                probes,
                candidates,
                self._room(candidates),
                items[start:stop],
                scores[start:stop].view(np.int32),
            )

        chunks = [(start, min(start + CHUNK, len(vectors))) for start in range(0, len(vectors), CHUNK)]
        if len(vectors) <= FEW:
            search(0, len(vectors))
        else:
            run_chunks(search, chunks, thread_count(threads))
        return items, scores

    def _left(self, item_mask: ItemMask | None) -> tuple[Codes, int]:
        """How many items filters for all leave of each block (empty: all), and at how many blocks to look then.

        So many blocks that about as many items that may be returned are looked at as without filters. Blocks without
        any are passed over: those of another category, say, however near they are.
        """
        if item_mask is None:
            return np.empty(0, np.int32), self.probes
        counts = self._counts.get(item_mask)
        if counts is None:
            counts = np.empty(self.n_blocks, np.int32)
            count_left(self._blocks.items, item_mask.bits, counts)
            self._counts[item_mask] = counts
        filled = int(np.count_nonzero(counts))
        wanted = self.probes * self.n_items * filled / max(1, self.n_blocks * item_mask.n_kept)
        return counts, max(1, min(self.n_blocks, round(wanted)))

    def _room(self, candidates: int) -> ScanWorkspace:
        """This thread's room; the last one is kept."""
        kept: tuple[int, ScanWorkspace] | None = getattr(self._rooms, "kept", None)
        if kept is None or kept[0] != candidates:
            kept = (candidates, make_room(self.n_blocks, len(self._blocks.points), candidates))
            self._rooms.kept = kept
        return kept[1]
