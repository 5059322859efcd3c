"""What every index over item vectors does: arrays in, arrays out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shortlist._checks import whole
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.errors import SettingError, StorageError
from shortlist.retrieval.exact_search import top_n
from shortlist.retrieval.filters import Filters
from shortlist.retrieval.indexes.item_filter import make_admission
from shortlist.retrieval.indexes.measurements import IndexMeasurements
from shortlist.retrieval.indexes.rescoring import rescored_rows
from shortlist.scoring.blocks import DotProductScorer

Vectors = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]
Found = tuple[Codes, Vectors]
NARROW = 64  # where so few items or fewer are allowed for each one wanted, they are all scored
SEVERAL = 8  # queries: for more, the products take longer than reading the vectors


class VectorIndex(ABC):
    """The items with the greatest inner products with a query, found without scoring all of them, or faster.

    An index is made once from the item vectors and never changes: any number of threads may search it at once. The
    vectors are not copied, and nobody may write to them. What a search costs and finds is said by `settings`;
    `with_settings` gives the same index with others, and shares all else.
    """

    kind: ClassVar[str]
    exact: ClassVar[bool] = False  # whether all items are scored

    def __init__(self, vectors: npt.ArrayLike, priority: npt.ArrayLike | None = None) -> None:
        self.vectors = checked_vectors(vectors, "item vectors")
        n_items = len(self.vectors)
        if not n_items:
            raise SettingError("there are no item vectors; expected at least one")
        given = np.arange(n_items) if priority is None else np.asarray(priority)
        if given.shape != (n_items,) or given.dtype.kind not in "iu":
            raise SettingError(f"priority is {given.dtype} of shape {given.shape}; expected ({n_items},) whole numbers")
        self.priority = given.astype(np.int64)
        self.ties = np.argsort(np.argsort(given, kind="stable"), kind="stable").astype(np.uint32)
        self.measured: IndexMeasurements | None = None

    # --- what an index defines ---------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What a search does, by name; the arguments of `with_settings`."""

    @property
    @abstractmethod
    def built(self) -> dict[str, Any]:
        """How it was made, by name."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """What the index takes beside the item vectors."""

    @abstractmethod
    def _apply(self, settings: Mapping[str, Any]) -> None:
        """Check and take settings."""

    @abstractmethod
    def _search(self, vectors: Vectors, n: int, filters: Filters, threads: int | None) -> Found:
        """`search` with checked arguments, n at most the number of items."""

    def ladder(self, n: int) -> list[dict[str, Any]]:
        """Settings to try for a recall that is aimed at, those with which a search is faster first."""
        return [self.settings]

    # --- searching ---------------------------------------------------------------------------------------------------

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """How many coordinates a vector has."""
        return int(self.vectors.shape[1])

    def with_settings(self, **settings: Any) -> Self:
        """The same index, searched with other settings."""
        if unknown := settings.keys() - self.settings.keys():
            known = ", ".join(self.settings) or "none"
            raise SettingError(
                f"a {self.kind} index has no search setting {', '.join(sorted(unknown))}; it has {known}"
            )
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._apply(self.settings | settings)
        other.measured = None
        return other

    def __deepcopy__(self, memo: object) -> Self:
        return self  # it never changes

    def __reduce__(self) -> Any:
        raise StorageError("an index is not written to a file or sent elsewhere; save the model, and make it anew")

    def search(
        self,
        vectors: npt.ArrayLike,
        n: int,
        filters: Filters | None = None,
        *,
        threads: int | None = None,
    ) -> Found:
        """The items with the greatest inner products with each vector, best first, and these products, exactly.

        Both arrays are queries × n. Whatever the filters leave is found: n items wherever n remain, else the rest is
        −1 with score −inf. Equal scores are in the order of the index's `priority`.
        """
        queries = checked_vectors(vectors, "query vectors")
        if queries.shape[1] != self.dim:
            raise SettingError(f"query vectors have {queries.shape[1]} dimensions; the items have {self.dim}")
        n = whole("n", n)
        thread_count(threads)  # refuses what is no number of threads
        if filters is not None and not isinstance(filters, Filters):
            raise SettingError(f"filters is {filters!r:.80}; expected Filters(...)")
        filters = (filters or Filters()).checked(len(queries), self.n_items)
        most = min(n, self.n_items)
        if filters.allow_rows is not None or (filters.allow is not None and self._are_few(len(filters.allow), most)):
            found = self._few_scored(queries, most, filters, threads)
        else:
            found = self._mostly_searched(queries, most, filters.with_item_mask(self.n_items), threads)
        return found if most == n else padded(found, n)

    def _are_few(self, count: int, n: int) -> bool:
        """Whether so many items are so few that scoring all of them is the best that can be done."""
        return count <= min(NARROW * n, self.n_items // 2)

    def _mostly_searched(self, queries: Vectors, n: int, filters: Filters, threads: int | None) -> Found:
        """By the index, but for filters that leave few items and queries that all items are equal to."""
        left = filters.item_mask
        if left is not None and self._are_few(left.n_kept, n):
            return self._few_scored(queries, n, replace(filters, allow=left.codes), threads)
        found = self._search(queries, n, filters, threads)
        aimless = np.flatnonzero(~queries.any(axis=1))
        if len(aimless):  # all scores are 0, and the order is that of the priority alone
            found[0][aimless], found[1][aimless] = self._of_some(aimless, queries, n, filters, threads)
        return found

    def _few_scored(self, queries: Vectors, n: int, filters: Filters, threads: int | None) -> Found:
        """The items that are allowed, scored one by one; or in blocks, where there are many queries."""
        if self.exact or (filters.allow_rows is None and len(queries) > SEVERAL):
            return self._all_scored(queries, n, filters, threads)
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
        admission = make_admission(filters, len(queries))

        def search(first: int, last: int) -> None:
            rescored_rows(
                queries, self.vectors, allowed, starts, stops, admission, self.ties, items, scores.view(np.int32),
                first, last,
            )  # fmt: skip

        if len(queries) <= SEVERAL:
            search(0, len(queries))
        else:
            run_chunks(search, balanced_chunks(stops - starts + 1, 8 * thread_count(threads)), threads)
        return items, scores

    def _all_scored(self, queries: Vectors, n: int, filters: Filters, threads: int | None) -> Found:
        """Every item that the filters leave, scored."""
        scorer = DotProductScorer(queries, self.vectors)
        return top_n(scorer, n, filters=filters, priority=self.priority, threads=threads)

    def _of_some(
        self, which: npt.NDArray[np.int64], queries: Vectors, n: int, filters: Filters, threads: int | None
    ) -> Found:
        """`_all_scored` for some of the queries."""
        return self._all_scored(queries[which], n, filters.of(which), threads)

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value}" for name, value in (self.built | self.settings).items())
        told = f": {self.measured}" if self.measured is not None else ""
        return f"{type(self).__name__}({self.n_items:,} items × {self.dim}{settings}){told}"


def checked_vectors(given: npt.ArrayLike, name: str) -> Vectors:
    """A contiguous float32 matrix of finite numbers."""
    try:
        numbers = np.asarray(given)
        with np.errstate(over="ignore"):  # what does not fit is told of below
            vectors = np.ascontiguousarray(numbers, dtype=np.float32 if numbers.dtype.kind in "fiu" else None)
    except (TypeError, ValueError):
        vectors = np.empty(0)
    if vectors.dtype != np.float32:
        raise SettingError(f"{name} are {given!r:.80}; expected a matrix of numbers, one vector per row")
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise SettingError(f"{name} have shape {vectors.shape}; expected two dimensions, one vector per row")
    if not np.isfinite(vectors).all():
        bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise SettingError(f"{name} are not all finite, the first that is not is number {bad}; expected numbers")
    return vectors if vectors.flags.writeable else vectors.copy()


def padded(found: Found, n: int) -> Found:
    """With columns of −1 and −inf up to n."""
    missing = ((0, 0), (0, n - found[0].shape[1]))
    return np.pad(found[0], missing, constant_values=-1), np.pad(found[1], missing, constant_values=-np.inf)
