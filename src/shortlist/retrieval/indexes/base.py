"""The base class of indexes over item vectors. They take and return arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.errors import SettingError, StorageError
from shortlist.retrieval.exact_search import top_n
from shortlist.retrieval.filters import Filters
from shortlist.retrieval.indexes.item_filter import make_item_filter
from shortlist.retrieval.indexes.measurements import IndexMeasurements
from shortlist.retrieval.indexes.rescoring import rescore_rows
from shortlist.scoring.blocks import DotProductScorer

Vectors = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]
SearchResult = tuple[Codes, Vectors]
NARROW = 64  # if at most this many items per requested item are allowed, score them all
SEVERAL = 8  # queries: for more, the products take longer than reading the vectors


class VectorIndex(ABC):
    """An index for maximum inner product search: find the items with the highest inner products with a query.

    An index is built once from the item vectors and never changes, so any number of threads may search it at once. The
    vectors are not copied; do not write to them. The search settings (`settings`) trade speed for recall.
    `with_settings` returns the same index with other search settings, sharing everything else.

    Attributes:
        vectors: the item vectors, items × dimensions.
        measured: recall and speed, if the index was made by `make_index`.
    """

    kind: ClassVar[str]
    exact: ClassVar[bool] = False  # whether all items are scored

    def __init__(self, vectors: npt.ArrayLike, priority: npt.ArrayLike | None = None) -> None:
        self.vectors = checked_vectors(vectors, "item vectors")
        n_items = len(self.vectors)
        if not n_items:
            raise SettingError("there are no item vectors; expected at least one", field="vectors")
        given = np.arange(n_items) if priority is None else np.asarray(priority)
        if given.shape != (n_items,) or given.dtype.kind not in "iu":
            raise SettingError(
                f"priority is {given.dtype} of shape {given.shape}; expected integers of shape ({n_items},)",
                field="priority",
            )
        self.priority = given.astype(np.int64)
        self.ties = np.argsort(np.argsort(given, kind="stable"), kind="stable").astype(np.uint32)
        self.measured: IndexMeasurements | None = None

    # --- what an index defines ---------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The search settings by name: the arguments of `with_settings`."""

    @property
    @abstractmethod
    def built(self) -> dict[str, Any]:
        """The build settings by name."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The size of the index in bytes, without the item vectors."""

    @abstractmethod
    def _apply(self, settings: Mapping[str, Any]) -> None:
        """Check and set the search settings."""

    @abstractmethod
    def _search(self, vectors: Vectors, n: int, filters: Filters, threads: int | None) -> SearchResult:
        """Search with checked arguments; n is at most the number of items."""

    def ladder(self, n: int) -> list[dict[str, Any]]:
        """Return the search settings to try for a target recall, from fast to slow."""
        return [self.settings]

    # --- searching ---------------------------------------------------------------------------------------------------

    @property
    def n_items(self) -> int:
        """The number of items."""
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """The number of dimensions of a vector."""
        return int(self.vectors.shape[1])

    def with_settings(self, **settings: Any) -> Self:
        """Return the same index with other search settings."""
        if unknown := settings.keys() - self.settings.keys():
            known = ", ".join(self.settings) or "none"
            raise SettingError(
                f"the {self.kind} index has no search setting {', '.join(sorted(unknown))}; it has {known}",
                code="unknown-setting",
                field=sorted(unknown)[0],
            )
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._apply(self.settings | settings)
        other.measured = None
        return other

    def __deepcopy__(self, memo: object) -> Self:
        return self  # immutable

    def __reduce__(self) -> Any:
        raise StorageError("an index cannot be pickled or saved", hint="save the model, and make the index again")

    def search(
        self,
        vectors: npt.ArrayLike,
        n: int,
        filters: Filters | None = None,
        *,
        threads: int | None = None,
    ) -> SearchResult:
        """Return the n items with the highest inner products with each query vector, best first, and their scores.

        Both arrays are queries × n. Scores are exact, even if an approximate index misses some items. Filters never
        shorten the lists: if at least n items pass them, n items are returned; otherwise the rest is −1 with score
        −inf. Ties are in the order of the index's `priority`.
        """
        queries = checked_vectors(vectors, "query vectors")
        if queries.shape[1] != self.dim:
            raise SettingError(
                f"query vectors have {queries.shape[1]} dimensions; the items have {self.dim}", field="vectors"
            )
        n = integer("n", n)
        thread_count(threads)  # refuses invalid values
        if filters is not None and not isinstance(filters, Filters):
            raise SettingError(f"filters is {filters!r:.80}; expected Filters(...)", field="filters")
        filters = (filters or Filters()).checked(len(queries), self.n_items)
        most = min(n, self.n_items)
        if filters.allow_rows is not None or (filters.allow is not None and self._are_few(len(filters.allow), most)):
            items, scores = self._score_allowed(queries, most, filters, threads)
        else:
            items, scores = self._search_or_score(queries, most, filters.with_item_mask(self.n_items), threads)
        return (items, scores) if most == n else padded(items, scores, n)

    def _are_few(self, count: int, n: int) -> bool:
        """Return whether items are so few that scoring all of them is faster than a search."""
        return count <= min(NARROW * n, self.n_items // 2)

    def _search_or_score(self, queries: Vectors, n: int, filters: Filters, threads: int | None) -> SearchResult:
        """Search the index, except if few items pass the filters, and for queries of zeros."""
        mask = filters.item_mask
        if mask is not None and self._are_few(mask.n_kept, n):
            return self._score_allowed(queries, n, replace(filters, allow=mask.codes), threads)
        items, scores = self._search(queries, n, filters, threads)
        zeros = np.flatnonzero(~queries.any(axis=1))
        if len(zeros):  # all scores are 0, so only the priority counts
            items[zeros], scores[zeros] = self._score_all_for(zeros, queries, n, filters, threads)
        return items, scores

    def _score_allowed(self, queries: Vectors, n: int, filters: Filters, threads: int | None) -> SearchResult:
        """Score the allowed items one by one, or all items in blocks if there are many queries."""
        if self.exact or (filters.allow_rows is None and len(queries) > SEVERAL):
            return self._score_all(queries, n, filters, threads)
        if filters.allow_rows is not None:
            filters = filters.with_item_mask(self.n_items)
            bounds, allowed = filters.allow_rows  # type: ignore[misc]
            starts, stops = bounds[:-1], bounds[1:]
        else:
            assert filters.allow is not None
            if filters.item_mask is not None:
                allowed = filters.item_mask.codes
            else:
                allowed = filters.allow if filters.deny is None else np.setdiff1d(filters.allow, filters.deny)
            starts, stops = np.zeros(len(queries), np.int64), np.full(len(queries), len(allowed))
        items = np.empty((len(queries), n), np.int32)
        scores = np.empty((len(queries), n), np.float32)
        item_filter = make_item_filter(filters, len(queries))

        def search(first: int, last: int) -> None:
            rescore_rows(
                queries, self.vectors, allowed, starts, stops, item_filter, self.ties, items, scores.view(np.int32),
                first, last,
            )  # fmt: skip

        if len(queries) <= SEVERAL:
            search(0, len(queries))
        else:
            run_chunks(search, balanced_chunks(stops - starts + 1, 8 * thread_count(threads)), threads)
        return items, scores

    def _score_all(self, queries: Vectors, n: int, filters: Filters, threads: int | None) -> SearchResult:
        """Score all items that pass the filters."""
        scorer = DotProductScorer(queries, self.vectors)
        return top_n(scorer, n, filters=filters, priority=self.priority, threads=threads)

    def _score_all_for(
        self, which: npt.NDArray[np.int64], queries: Vectors, n: int, filters: Filters, threads: int | None
    ) -> SearchResult:
        """Score all items that pass the filters, for some of the queries."""
        return self._score_all(queries[which], n, filters.of(which), threads)

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value}" for name, value in (self.built | self.settings).items())
        measured = f": {self.measured}" if self.measured is not None else ""
        return f"{type(self).__name__}({self.n_items:,} items × {self.dim}{settings}){measured}"


def checked_vectors(given: npt.ArrayLike, name: str) -> Vectors:
    """Return the vectors as a contiguous float32 matrix, or refuse anything but finite numbers."""
    try:
        numbers = np.asarray(given)
        with np.errstate(over="ignore"):  # overflows are refused below
            vectors = np.ascontiguousarray(numbers, dtype=np.float32 if numbers.dtype.kind in "fiu" else None)
    except (TypeError, ValueError):
        vectors = np.empty(0)
    if vectors.dtype != np.float32:
        raise SettingError(f"{name} are {given!r:.80}; expected a matrix of numbers, one vector per row", field=name)
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise SettingError(
            f"{name} have shape {vectors.shape}; expected two dimensions, one vector per row", field=name
        )
    if not np.isfinite(vectors).all():
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        raise SettingError(
            f"{len(bad):,} of {len(vectors):,} {name} are not finite (first: row {bad[0]}); expected finite numbers",
            field=name,
        )
    return vectors if vectors.flags.writeable else vectors.copy()


def padded(items: Codes, scores: Vectors, n: int) -> SearchResult:
    """Add columns of −1 and −inf up to n."""
    missing = ((0, 0), (0, n - items.shape[1]))
    return np.pad(items, missing, constant_values=-1), np.pad(scores, missing, constant_values=-np.inf)
