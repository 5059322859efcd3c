"""Indexes of the faiss library (extra `ann`): they find candidates, which are then filtered and scored exactly.

Over-fetching with widening: as many candidates are asked for as may be filtered, and where too few remain, four times
as many from four times as many lists, and so on; when half of the catalogue would be asked for, all items are scored.

Within a search faiss is kept to one thread, and our own take queries in turns: what faiss's threads leave behind in a
process would hang in one that is forked from it.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shortlist._checks import one_of, whole
from shortlist._threads import run_chunks, thread_count
from shortlist.errors import SettingError
from shortlist.retrieval.filters import Filters
from shortlist.retrieval.indexes.base import Codes, Found, VectorIndex, Vectors
from shortlist.retrieval.indexes.item_filter import make_admission
from shortlist.retrieval.indexes.partition import Advance
from shortlist.retrieval.indexes.rescoring import UNSURE, rescored

SPACES = ("inner product", "l2")
PER_LIST = 50  # vectors that the lists are learnt from, for each of them
CHUNK = 128  # queries that a thread takes at a time: lists are looked at for several at once
ROOM = 1 << 22  # candidates of those queries
MOST = 2**31 - 1  # that faiss's numbers can say


def faiss() -> Any:
    """The library, or an error that says how to get it."""
    try:
        return import_module("faiss")
    except ImportError:
        raise SettingError(
            'this kind of index needs faiss, which is not installed: pip install "shortlist[ann]"; '
            "kinds 'exact' and 'quantized' need nothing more"
        ) from None


class FaissIndex(VectorIndex):
    """An index of faiss over the item vectors.

    In the space "l2" each item has one more coordinate, √(M² − ‖x‖²) with M the greatest length, and each query a 0
    there: the nearest items then are those with the greatest inner products.
    """

    space: str

    def _build(self, space: str, threads: int | None, advance: Advance | None) -> None:
        self._faiss = faiss()
        self.space = one_of("space", space, SPACES)
        rows = self._padded(self.vectors)
        # What comes first does not depend on the scale, but what faiss rounds away, or cannot square, does.
        rows /= max(np.abs(rows).max(), np.finfo(np.float32).tiny)
        if self.space == "l2":
            squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
            rows[:, self.dim] = np.sqrt(np.maximum(0, squares.max() - squares))
        metric = self._faiss.METRIC_INNER_PRODUCT if self.space == "inner product" else self._faiss.METRIC_L2
        tell = advance or (lambda _: None)
        with _OpenMP(self._faiss, thread_count(threads)):
            self._index = self._made(rows, metric, tell)

    def _padded(self, vectors: Vectors) -> Vectors:
        """With the coordinates that the space and the codes add."""
        width = self.dim + (self.space == "l2")
        rows = np.zeros((len(vectors), -(-width // 4) * 4), np.float32)
        rows[:, : self.dim] = vectors
        return rows

    @abstractmethod
    def _made(self, rows: Vectors, metric: int, advance: Advance) -> Any:
        """The index, filled."""

    @abstractmethod
    def _parameters(self, wider: int, more: int) -> Any:
        """The settings of a search in faiss's words, so many times wider and for so many more candidates."""

    @abstractmethod
    def _fetch(self, n: int) -> int:
        """How many candidates to ask for where n items are wanted."""

    def _search(self, vectors: Vectors, n: int, filters: Filters, threads: int | None) -> Found:
        items = np.full((len(vectors), n), -1, np.int32)
        scores = np.full((len(vectors), n), -np.inf, np.float32)
        fetch = self._wanted(n, len(vectors), filters)
        order = np.argsort(fetch, kind="stable")  # whoever has had much is asked for with others who have
        order = order[: np.searchsorted(fetch[order], self.n_items // 2, side="right")]
        done = np.zeros(len(vectors), np.bool_)
        filtered = filters.item_mask is not None or filters.exclude is not None
        # Where one category is left, little of what is near may be: not only n are wanted then.
        enough = max(n, self._fetch(n) // 2) if filtered else n
        first = 1 if filters.item_mask is None else max(1, round(0.5 / max(filters.item_mask.share, 1e-9)))

        def search(start: int, stop: int) -> None:
            which, wider, most = order[start:stop], first, int(fetch[order[stop - 1]])
            with _OpenMP(self._faiss, 1):
                while len(which) and most <= self.n_items // 2:
                    parameters = self._parameters(wider, most - self._fetch(n))
                    _, found = self._index.search(self._asked(vectors[which]), most, params=parameters)
                    best, exact, counts = self._rescored(vectors[which], found.astype(np.int32), n, filters.of(which))
                    items[which], scores[which] = best, exact
                    done[which] = counts >= enough
                    which = which[counts < enough]
                    most, wider = 4 * most, 4 * wider

        chunks = _chunks(fetch[order])
        if len(chunks) == 1:
            search(*chunks[0])
        else:
            run_chunks(search, chunks, threads)
        left = np.flatnonzero(~done)
        if len(left):
            items[left], scores[left] = self._of_some(left, vectors, n, filters, threads)
        return items, scores

    def _asked(self, vectors: Vectors) -> Vectors:
        """Queries as faiss gets them, of length 1."""
        least = np.finfo(np.float32).tiny
        rows = self._padded(vectors)
        rows /= np.maximum(np.abs(rows).max(axis=1, keepdims=True), least)  # whose squares can be added up
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), least)
        return rows

    def _wanted(self, n: int, n_queries: int, filters: Filters) -> npt.NDArray[np.int64]:
        """How many candidates to ask for, so that the filters leave enough."""
        share = 1.0 if filters.item_mask is None else filters.item_mask.share
        gone = np.zeros(n_queries, np.int64) if filters.exclude is None else np.diff(filters.exclude[0])
        wanted = np.round((self._fetch(n) + gone) / max(share, 1e-9))
        return np.minimum(wanted, self.n_items).astype(np.int64)

    def _rescored(
        self, vectors: Vectors, candidates: Codes, n: int, filters: Filters
    ) -> tuple[Codes, Vectors, npt.NDArray[np.int64]]:
        items = np.empty((len(vectors), n), np.int32)
        scores = np.empty((len(vectors), n), np.float32)
        counts = np.empty(len(vectors), np.int64)
        bits, admission = scores.view(np.int32), make_admission(filters, len(vectors))
        rescored(vectors, self.vectors, candidates, 0, admission, UNSURE, self.ties, n, items, bits, counts)
        return items, scores, counts


class _Inverted(FaissIndex):
    """Lists of items by k-means; a query looks at the lists with the nearest centres."""

    def _lists(self, lists: int | None) -> int:
        if lists is None:
            lists = max(1, min(round(4 * self.n_items**0.5), self.n_items // 40))
        return whole("lists", lists, most=self.n_items)

    def _filled(self, index: Any, rows: Vectors, advance: Advance) -> Any:
        sample = np.random.default_rng([self.seed, 8]).permutation(self.n_items)[: max(1000, self.n_lists * PER_LIST)]
        own = self._faiss.extract_index_ivf(index)
        own.cp.min_points_per_centroid = 1
        own.cp.max_points_per_centroid = 10**6
        own.cp.seed = self.seed % 2**31
        advance("lists and codes")
        index.train(rows[np.resize(np.sort(sample), max(len(sample), 16))])  # for 16 points it wants as many vectors
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
        """How many lists there are, and the space."""
        return {"lists": self.n_lists, "space": self.space}

    @property
    def nbytes(self) -> int:
        """Of the items' numbers and what is kept of them, and of the lists' centres."""
        width = int(self._index.d)
        return self._code_bytes(width) + 8 * self.n_items + 4 * self.n_lists * width

    @abstractmethod
    def _code_bytes(self, width: int) -> int:
        """What is kept of items of so many coordinates."""

    def _parameters(self, wider: int, more: int) -> Any:
        return self._faiss.SearchParametersIVF(nprobe=min(self.n_lists, self.probes * wider))

    def _steps(self) -> list[int]:
        """Numbers of lists to look at, up by half."""
        steps = {max(1, round(self.n_lists / 256 * 1.5**k)) for k in range(14)} | {self.n_lists}
        return sorted(one for one in steps if one <= self.n_lists)


class IVFFlatIndex(_Inverted):
    """Lists by k-means, all items of the nearest lists scored exactly (faiss IndexIVFFlat).

    Args:
        vectors: items × dimensions.
        lists: how many; about 4·√items by default.
        probes: how many lists a query looks at.
        space: "inner product", or "l2" with one more coordinate.
        seed: of the sample that the lists are learnt from.
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
        self.n_lists, self.seed = self._lists(lists), whole("seed", seed, least=0)
        self._apply({"probes": max(1, self.n_lists // 16) if probes is None else probes})
        self._build(space, threads, advance)

    def _made(self, rows: Vectors, metric: int, advance: Advance) -> Any:
        return self._filled(self._faiss.index_factory(rows.shape[1], f"IVF{self.n_lists},Flat", metric), rows, advance)

    def _code_bytes(self, width: int) -> int:
        return 4 * width * self.n_items

    def _fetch(self, n: int) -> int:
        return n

    @property
    def settings(self) -> dict[str, Any]:
        """How many lists a query looks at."""
        return {"probes": self.probes}

    def _apply(self, settings: Mapping[str, Any]) -> None:
        self.probes = min(whole("probes", settings["probes"]), self.n_lists)

    def ladder(self, n: int) -> list[dict[str, Any]]:
        """Up to all lists."""
        return [{"probes": one} for one in self._steps()]


class IVFPQIndex(_Inverted):
    """Lists by k-means, codes of four bits for two coordinates, exact scores at the end (faiss IndexIVFPQFastScan).

    Args:
        vectors: items × dimensions.
        lists: how many; about 4·√items by default.
        probes: how many lists a query looks at.
        refine: how many candidates are scored exactly, for each item wanted; 100 more are.
        space: "inner product", or "l2" with one more coordinate.
        seed: of the sample that lists and codes are learnt from.
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
        self.n_lists, self.seed = self._lists(lists), whole("seed", seed, least=0)
        self._apply({"probes": max(1, self.n_lists // 16) if probes is None else probes, "refine": refine})
        self._build(space, threads, advance)

    def _made(self, rows: Vectors, metric: int, advance: Advance) -> Any:
        spec = f"IVF{self.n_lists},PQ{rows.shape[1] // 2}x4fs"
        index = self._faiss.index_factory(rows.shape[1], spec, metric)
        index.pq.cp.min_points_per_centroid = 1  # it would warn of small catalogues
        return self._filled(index, rows, advance)

    def _code_bytes(self, width: int) -> int:
        lists = self._faiss.extract_index_ivf(self._index).invlists
        slots = sum(-(-lists.list_size(k) // 32) * 32 for k in range(self.n_lists))  # whole blocks
        return int(slots) * width // 4

    def _fetch(self, n: int) -> int:
        return self.refine * n + 100

    @property
    def settings(self) -> dict[str, Any]:
        """How many lists a query looks at, and how many candidates it scores for each item wanted."""
        return {"probes": self.probes, "refine": self.refine}

    def _apply(self, settings: Mapping[str, Any]) -> None:
        self.probes = min(whole("probes", settings["probes"]), self.n_lists)
        self.refine = whole("refine", settings["refine"])

    def ladder(self, n: int) -> list[dict[str, Any]]:
        """Up to all lists, for each of three numbers of candidates."""
        return [{"probes": one, "refine": refine} for refine in (5, 10, 20) for one in self._steps()]


class HNSWIndex(FaissIndex):
    """A graph in which a query walks from neighbour to neighbour (faiss IndexHNSWFlat).

    Takes its own copy of the vectors and the longest to build. In the space of inner products a search is faster while
    little recall is asked for, but recall levels off, whatever `ef_search` is; with one more coordinate it does not.

    Args:
        vectors: items × dimensions.
        M: links of each item to its neighbours.
        ef_construction: how many neighbours are looked at while the graph is built.
        ef_search: how many items a query keeps in view.
        space: "l2", with one more coordinate, or "inner product".
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
        self.M = whole("M", M, least=2, most=4096)
        self.ef_construction = whole("ef_construction", ef_construction, most=MOST)
        self._apply({"ef_search": ef_search})
        self._build(space, threads, advance)

    def _made(self, rows: Vectors, metric: int, advance: Advance) -> Any:
        index = self._faiss.IndexHNSWFlat(rows.shape[1], self.M, metric)
        index.hnsw.efConstruction = self.ef_construction
        step = max(1000, len(rows) // 20)
        for start in range(0, len(rows), step):
            advance(f"graph, {100 * start // len(rows)} %")
            index.add(rows[start : start + step])
        return index

    @property
    def built(self) -> dict[str, Any]:
        """Links and effort of the graph, and the space."""
        return {"M": self.M, "ef_construction": self.ef_construction, "space": self.space}

    @property
    def nbytes(self) -> int:
        """Of its copy of the vectors and of the graph."""
        graph = self._index.hnsw
        parts = 4 * graph.neighbors.size() + 8 * graph.offsets.size() + 4 * graph.levels.size()
        return int(4 * self.n_items * self._index.d + parts)

    def _fetch(self, n: int) -> int:
        return n

    def _parameters(self, wider: int, more: int) -> Any:
        return self._faiss.SearchParametersHNSW(efSearch=min(self.n_items, self.ef_search * wider + 2 * more))

    @property
    def settings(self) -> dict[str, Any]:
        """How many items a query keeps in view."""
        return {"ef_search": self.ef_search}

    def _apply(self, settings: Mapping[str, Any]) -> None:
        self.ef_search = whole("ef_search", settings["ef_search"])

    def ladder(self, n: int) -> list[dict[str, Any]]:
        """From a few more than n, up by half."""
        return [{"ef_search": round(max(16, n) * 1.5**k)} for k in range(11)]


def _chunks(fetch: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Runs of queries that together ask for not too many candidates; each asks for as many as its last one."""
    chunks, start = [], 0
    while start < len(fetch):
        stop = min(start + CHUNK, len(fetch))
        while stop - start > 1 and (stop - start) * fetch[stop - 1] > ROOM:
            stop = start + (stop - start) // 2
        chunks.append((start, stop))
        start = stop
    return chunks


class _OpenMP:
    """faiss kept to so many threads; it is a setting of the calling thread, restored at the end.

    One thread in a process that was forked after faiss had started some: it would wait for them for ever.
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
