"""Indexes of the faiss library (`pip install "shortlist[ann]"`). faiss finds candidates; we filter and rescore them.

Filters are applied by over-fetching. A search requests extra candidates for those that may be filtered. If too few
remain, it requests four times as many from four times as many lists, and so on. Once it would request half of the
catalogue, all items are scored instead.

During a search faiss runs with one thread, and our threads share the queries. faiss's own threads would make forked
processes hang.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer, one_of
from shortlist._threads import run_chunks, thread_count
from shortlist.errors import SettingError
from shortlist.retrieval.filters import Filters
from shortlist.retrieval.indexes.base import Codes, SearchResult, VectorIndex, Vectors
from shortlist.retrieval.indexes.item_filter import make_item_filter
from shortlist.retrieval.indexes.partition import Advance
from shortlist.retrieval.indexes.rescoring import UNSURE, rescore

SPACES = ("inner product", "l2")
PER_LIST = 50  # training vectors per list
CHUNK = 128  # queries per chunk of work for a thread: faiss scans a list for several queries at once
MOST_CANDIDATES = 1 << 22  # of the queries of a chunk
MOST = 2**31 - 1  # faiss uses 32-bit integers


def faiss() -> Any:
    """Import faiss, or raise an error that says how to install it."""
    try:
        return import_module("faiss")
    except ImportError:
        raise SettingError(
            'this kind of index needs faiss, which is not installed: pip install "shortlist[ann]"',
            code="package-missing",
            field="kind",
            hint="kinds 'exact' and 'quantized' work without it",
        ) from None


class FaissIndex(VectorIndex):
    """The base class of faiss indexes.

    In the space "l2" each item gets one more coordinate, √(M² − ‖x‖²), where M is the length of the longest item, and
    queries get 0. Then the nearest items are those with the highest inner products.
    """

    space: str

    def _build(self, space: str, threads: int | None, advance: Advance | None) -> None:
        self._faiss = faiss()
        self.space = one_of("space", space, SPACES)
        rows = self._padded(self.vectors)
        # Scaling does not change the order, but it avoids numbers that faiss would round away or overflow.
        rows /= max(np.abs(rows).max(), np.finfo(np.float32).tiny)
        if self.space == "l2":
            squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
            rows[:, self.dim] = np.sqrt(np.maximum(0, squares.max() - squares))
        metric = self._faiss.METRIC_INNER_PRODUCT if self.space == "inner product" else self._faiss.METRIC_L2
        report = advance or (lambda _: None)
        with _OpenMP(self._faiss, thread_count(threads)):
            self._index = self._build_index(rows, metric, report)

    def _padded(self, vectors: Vectors) -> Vectors:
        """Add the coordinates that the space and the codes need."""
        width = self.dim + (self.space == "l2")
        rows = np.zeros((len(vectors), -(-width // 4) * 4), np.float32)
        rows[:, : self.dim] = vectors
        return rows

    @abstractmethod
    def _build_index(self, rows: Vectors, metric: int, advance: Advance) -> Any:
        """Return the faiss index, with all items."""

    @abstractmethod
    def _parameters(self, factor: int, more: int) -> Any:
        """Return faiss's search parameters for `factor` times as many lists and `more` additional candidates."""

    @abstractmethod
    def _fetch(self, n: int) -> int:
        """Return the number of candidates to request for n items, without filters."""

    def _search(self, vectors: Vectors, n: int, filters: Filters, threads: int | None) -> SearchResult:
        items = np.full((len(vectors), n), -1, np.int32)
        scores = np.full((len(vectors), n), -np.inf, np.float32)
        fetch = self._candidates_needed(n, len(vectors), filters)
        order = np.argsort(fetch, kind="stable")  # queries with similar numbers of candidates share a chunk
        order = order[: np.searchsorted(fetch[order], self.n_items // 2, side="right")]
        done = np.zeros(len(vectors), np.bool_)
        filtered = filters.item_mask is not None or filters.exclude is not None
        # Filters may remove most near items. So n left-over candidates are not enough for a good recall.
        enough = max(n, self._fetch(n) // 2) if filtered else n
        first = 1 if filters.item_mask is None else max(1, round(0.5 / max(filters.item_mask.fraction, 1e-9)))

        def search(start: int, stop: int) -> None:
            which, factor, most = order[start:stop], first, int(fetch[order[stop - 1]])
            with _OpenMP(self._faiss, 1):
                while len(which) and most <= self.n_items // 2:
                    parameters = self._parameters(factor, most - self._fetch(n))
                    _, candidates = self._index.search(self._query_rows(vectors[which]), most, params=parameters)
                    best, exact, counts = self._rescore(
                        vectors[which], candidates.astype(np.int32), n, filters.of(which)
                    )
                    items[which], scores[which] = best, exact
                    done[which] = counts >= enough
                    which = which[counts < enough]
                    most, factor = 4 * most, 4 * factor

        chunks = _chunks(fetch[order])
        if len(chunks) == 1:
            search(*chunks[0])
        else:
            run_chunks(search, chunks, threads)
        rest = np.flatnonzero(~done)
        if len(rest):
            items[rest], scores[rest] = self._score_all_for(rest, vectors, n, filters, threads)
        return items, scores

    def _query_rows(self, vectors: Vectors) -> Vectors:
        """Return the queries for faiss: padded, and scaled to length 1."""
        least = np.finfo(np.float32).tiny
        rows = self._padded(vectors)
        rows /= np.maximum(np.abs(rows).max(axis=1, keepdims=True), least)  # so that squares do not overflow
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), least)
        return rows

    def _candidates_needed(self, n: int, n_queries: int, filters: Filters) -> npt.NDArray[np.int64]:
        """Return the number of candidates to request for each query, so that enough pass the filters."""
        fraction = 1.0 if filters.item_mask is None else filters.item_mask.fraction
        excluded = np.zeros(n_queries, np.int64) if filters.exclude is None else np.diff(filters.exclude[0])
        needed = np.round((self._fetch(n) + excluded) / max(fraction, 1e-9))
        return np.minimum(needed, self.n_items).astype(np.int64)

    def _rescore(
        self, vectors: Vectors, candidates: Codes, n: int, filters: Filters
    ) -> tuple[Codes, Vectors, npt.NDArray[np.int64]]:
        items = np.empty((len(vectors), n), np.int32)
        scores = np.empty((len(vectors), n), np.float32)
        counts = np.empty(len(vectors), np.int64)
        bits, item_filter = scores.view(np.int32), make_item_filter(filters, len(vectors))
        rescore(vectors, self.vectors, candidates, 0, item_filter, UNSURE, self.ties, n, items, bits, counts)
        return items, scores, counts


class _Inverted(FaissIndex):
    """An inverted-file index: items are in lists by k-means; a query searches the lists with the nearest centres."""

    def _lists(self, lists: int | None) -> int:
        if lists is None:
            lists = max(1, min(round(4 * self.n_items**0.5), self.n_items // 40))
        return integer("lists", lists, most=self.n_items)

    def _train_and_fill(self, index: Any, rows: Vectors, advance: Advance) -> Any:
        sample = np.random.default_rng([self.seed, 8]).permutation(self.n_items)[: max(1000, self.n_lists * PER_LIST)]
        ivf = self._faiss.extract_index_ivf(index)
        ivf.cp.min_points_per_centroid = 1
        ivf.cp.max_points_per_centroid = 10**6
        ivf.cp.seed = self.seed % 2**31
        advance("lists and codes")
        index.train(rows[np.resize(np.sort(sample), max(len(sample), 16))])  # faiss needs 16 vectors for 16 points
        advance("items into lists")
        step = 1 << 17
        for start in range(0, len(rows), step):
            index.add(rows[start : start + step])
        return index

    seed: int
    n_lists: int
    probes: int

    @property
    def built(self) -> dict[str, Any]:
        """The number of lists, and the space."""
        return {"lists": self.n_lists, "space": self.space}

    @property
    def nbytes(self) -> int:
        """The size of item ids, item codes and list centres in bytes."""
        width = int(self._index.d)
        return self._code_bytes(width) + 8 * self.n_items + 4 * self.n_lists * width

    @abstractmethod
    def _code_bytes(self, width: int) -> int:
        """Return the size of the codes of all items with `width` coordinates."""

    def _parameters(self, factor: int, more: int) -> Any:
        return self._faiss.SearchParametersIVF(nprobe=min(self.n_lists, self.probes * factor))

    def _steps(self) -> list[int]:
        """Return numbers of lists to try, in steps of 1.5."""
        steps = {max(1, round(self.n_lists / 256 * 1.5**k)) for k in range(14)} | {self.n_lists}
        return sorted(step for step in steps if step <= self.n_lists)


class IVFFlatIndex(_Inverted):
    """An inverted-file index without compression (faiss IndexIVFFlat).

    Items are in lists by k-means. A query scores all items of the nearest lists exactly.

    Args:
        vectors: the item vectors, items × dimensions.
        lists: the number of lists; about 4·√items by default.
        probes: the number of lists that a query searches. More gives higher recall and slower searches.
        space: "inner product", or "l2" (with one more coordinate).
        seed: of the sample from which the lists are learned.
    """

    kind: ClassVar[str] = "ivf-flat"

    def __init__(
        self,
        vectors: npt.ArrayLike,
        *,
        priority: npt.ArrayLike | None = None,
        lists: int | None = None,
        probes: int | None = None,
        space: str = "inner product",
        seed: int = 0,
        threads: int | None = None,
        advance: Advance | None = None,
    ) -> None:
        super().__init__(vectors, priority)
        self.n_lists, self.seed = self._lists(lists), integer("seed", seed, least=0)
        self._apply({"probes": max(1, self.n_lists // 16) if probes is None else probes})
        self._build(space, threads, advance)

    def _build_index(self, rows: Vectors, metric: int, advance: Advance) -> Any:
        index = self._faiss.index_factory(rows.shape[1], f"IVF{self.n_lists},Flat", metric)
        return self._train_and_fill(index, rows, advance)

    def _code_bytes(self, width: int) -> int:
        return 4 * width * self.n_items

    def _fetch(self, n: int) -> int:
        return n

    @property
    def settings(self) -> dict[str, Any]:
        """The number of lists that a query searches."""
        return {"probes": self.probes}

    def _apply(self, settings: Mapping[str, Any]) -> None:
        self.probes = min(integer("probes", settings["probes"]), self.n_lists)

    def ladder(self, n: int) -> list[dict[str, Any]]:
        """Return settings up to all lists."""
        return [{"probes": probes} for probes in self._steps()]


class IVFPQIndex(_Inverted):
    """An inverted-file index with product quantization (faiss IndexIVFPQFastScan).

    Items are in lists by k-means, and compressed to four bits for every two coordinates. The best candidates of the
    nearest lists are scored exactly.

    Args:
        vectors: the item vectors, items × dimensions.
        lists: the number of lists; about 4·√items by default.
        probes: the number of lists that a query searches. More gives higher recall and slower searches.
        refine: a query for n items scores refine · n + 100 candidates exactly.
        space: "inner product", or "l2" (with one more coordinate).
        seed: of the sample from which lists and codes are learned.
    """

    kind: ClassVar[str] = "ivf-pq"

    def __init__(
        self,
        vectors: npt.ArrayLike,
        *,
        priority: npt.ArrayLike | None = None,
        lists: int | None = None,
        probes: int | None = None,
        refine: int = 8,
        space: str = "inner product",
        seed: int = 0,
        threads: int | None = None,
        advance: Advance | None = None,
    ) -> None:
        super().__init__(vectors, priority)
        self.n_lists, self.seed = self._lists(lists), integer("seed", seed, least=0)
        self._apply({"probes": max(1, self.n_lists // 16) if probes is None else probes, "refine": refine})
        self._build(space, threads, advance)

    def _build_index(self, rows: Vectors, metric: int, advance: Advance) -> Any:
        spec = f"IVF{self.n_lists},PQ{rows.shape[1] // 2}x4fs"
        index = self._faiss.index_factory(rows.shape[1], spec, metric)
        index.pq.cp.min_points_per_centroid = 1  # avoids faiss's warning about small catalogues
        return self._train_and_fill(index, rows, advance)

    def _code_bytes(self, width: int) -> int:
        lists = self._faiss.extract_index_ivf(self._index).invlists
        slots = sum(-(-lists.list_size(k) // 32) * 32 for k in range(self.n_lists))  # whole blocks
        return int(slots) * width // 4

    def _fetch(self, n: int) -> int:
        return self.refine * n + 100

    @property
    def settings(self) -> dict[str, Any]:
        """The number of lists that a query searches, and of candidates per requested item that it scores."""
        return {"probes": self.probes, "refine": self.refine}

    def _apply(self, settings: Mapping[str, Any]) -> None:
        self.probes = min(integer("probes", settings["probes"]), self.n_lists)
        self.refine = integer("refine", settings["refine"])

    def ladder(self, n: int) -> list[dict[str, Any]]:
        """Return settings up to all lists, for each of three refines."""
        return [{"probes": probes, "refine": refine} for refine in (5, 10, 20) for probes in self._steps()]


class HNSWIndex(FaissIndex):
    """A graph index: a query walks from neighbour to neighbour (faiss IndexHNSWFlat).

    It takes the longest to build, and copies the vectors. With space "inner product", searches are faster at low
    recall, but recall levels off whatever `ef_search` is. With "l2" it does not.

    Args:
        vectors: the item vectors, items × dimensions.
        M: the number of links of each item to its neighbours.
        ef_construction: the number of neighbours considered while building the graph.
        ef_search: the number of candidates that a query keeps. More gives higher recall and slower searches.
        space: "l2" (with one more coordinate), or "inner product".
    """

    kind: ClassVar[str] = "hnsw"

    def __init__(
        self,
        vectors: npt.ArrayLike,
        *,
        priority: npt.ArrayLike | None = None,
        M: int = 32,
        ef_construction: int = 80,
        ef_search: int = 256,
        space: str = "l2",
        threads: int | None = None,
        advance: Advance | None = None,
    ) -> None:
        super().__init__(vectors, priority)
        self.M = integer("M", M, least=2, most=4096)
        self.ef_construction = integer("ef_construction", ef_construction, most=MOST)
        self._apply({"ef_search": ef_search})
        self._build(space, threads, advance)

    def _build_index(self, rows: Vectors, metric: int, advance: Advance) -> Any:
        index = self._faiss.IndexHNSWFlat(rows.shape[1], self.M, metric)
        index.hnsw.efConstruction = self.ef_construction
        step = max(1000, len(rows) // 20)
        for start in range(0, len(rows), step):
            advance(f"graph, {100 * start // len(rows)} %")
            index.add(rows[start : start + step])
        return index

    @property
    def built(self) -> dict[str, Any]:
        """The build settings of the graph, and the space."""
        return {"M": self.M, "ef_construction": self.ef_construction, "space": self.space}

    @property
    def nbytes(self) -> int:
        """The size of the graph and of the copy of the vectors in bytes."""
        graph = self._index.hnsw
        parts = 4 * graph.neighbors.size() + 8 * graph.offsets.size() + 4 * graph.levels.size()
        return int(4 * self.n_items * self._index.d + parts)

    def _fetch(self, n: int) -> int:
        return n

    def _parameters(self, factor: int, more: int) -> Any:
        return self._faiss.SearchParametersHNSW(efSearch=min(self.n_items, self.ef_search * factor + 2 * more))

    @property
    def settings(self) -> dict[str, Any]:
        """The number of candidates that a query keeps."""
        return {"ef_search": self.ef_search}

    def _apply(self, settings: Mapping[str, Any]) -> None:
        self.ef_search = integer("ef_search", settings["ef_search"])

    def ladder(self, n: int) -> list[dict[str, Any]]:
        """Return settings from max(16, n) up, in steps of 1.5."""
        return [{"ef_search": round(max(16, n) * 1.5**k)} for k in range(11)]


def _chunks(fetch: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Split queries into chunks with a limited total number of candidates.

    `fetch` has the number of candidates of each query, ascending. All queries of a chunk request its highest number.
    """
    chunks, start = [], 0
    while start < len(fetch):
        stop = min(start + CHUNK, len(fetch))
        while stop - start > 1 and (stop - start) * fetch[stop - 1] > MOST_CANDIDATES:
            stop = start + (stop - start) // 2
        chunks.append((start, stop))
        start = stop
    return chunks


class _OpenMP:
    """Limits faiss to a number of threads, and restores the calling thread's setting at the end.

    In a process forked after faiss had started threads, the limit is one thread. Otherwise faiss would wait forever for
    threads that do not exist in the fork.
    """

    _started_in: ClassVar[int | None] = None

    def __init__(self, library: Any, threads: int) -> None:
        self._library, self._threads = library, threads

    def __enter__(self) -> None:
        if self._threads > 1:
            if _OpenMP._started_in is None:
                _OpenMP._started_in = os.getpid()
            elif _OpenMP._started_in != os.getpid():
                self._threads = 1
        self._before = self._library.omp_get_max_threads()
        self._library.omp_set_num_threads(self._threads)

    def __exit__(self, *_: object) -> None:
        self._library.omp_set_num_threads(self._before)
