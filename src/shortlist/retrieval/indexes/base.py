"""What every index over item vectors does: arrays in, arrays out."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shortlist._settings import whole
from shortlist._threads import thread_count
from shortlist.errors import SettingError
from shortlist.retrieval.exact import top_n
from shortlist.retrieval.filters import Filters
from shortlist.retrieval.indexes.measured import Measured
from shortlist.scoring.blocks import DotProductScorer

Vectors = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]
Found = tuple[Codes, Vectors]
NARROW = 64  # where so few items or fewer are allowed for each one wanted, they are all scored


class VectorIndex(ABC):
    """The items with the greatest inner products with a query, found without scoring all of them, or faster.

    An index is made once from the item vectors and never changes: any number of threads may search it at once. What a
    search costs and finds is said by `settings`; `with_settings` gives the same index with others, and shares all else.
    """

    kind: ClassVar[str]

    def __init__(self, vectors: npt.ArrayLike, priority: npt.ArrayLike | None = None) -> None:
        self.vectors = checked_vectors(vectors, "item vectors")
        n_items = len(self.vectors)
        if not n_items:
            raise SettingError("there are no item vectors; expected at least one")
        given = np.arange(n_items) if priority is None else np.asarray(priority)
        if given.shape != (n_items,):
            raise SettingError(f"priority has shape {given.shape}; expected ({n_items},), one number per item")
        self.priority = given.astype(np.int64)
        self.ties = np.argsort(np.argsort(given, kind="stable"), kind="stable").astype(np.uint32)
        self.measured: Measured | None = None

    # --- what an index defines ---------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What a search does, by name; the arguments of `with_settings`."""

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
        other = copy.copy(self)
        other._apply(self.settings | settings)
        other.measured = None
        return other

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
        filters = filters or Filters()
        most = min(n, self.n_items)
        if self._narrow(filters, most):
            found = self._all_scored(queries, most, filters, threads)
        else:
            found = self._search(queries, most, filters, threads)
            aimless = np.flatnonzero(~queries.any(axis=1))
            if len(aimless):  # all scores are 0, and the order is that of the priority alone
                found[0][aimless], found[1][aimless] = self._of_some(aimless, queries, most, filters, threads)
        return found if most == n else padded(found, n)

    def _narrow(self, filters: Filters, n: int) -> bool:
        """Whether so few items are allowed that scoring them all is the best that can be done."""
        if filters.allow_rows is not None:
            return True
        return filters.allow is not None and len(filters.allow) <= min(NARROW * n, self.n_items // 2)

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
        settings = "".join(f", {name}={value}" for name, value in self.settings.items())
        told = f": {self.measured}" if self.measured is not None else ""
        return f"{type(self).__name__}({self.n_items:,} items × {self.dim}{settings}){told}"


def checked_vectors(given: npt.ArrayLike, name: str) -> Vectors:
    """A contiguous float32 matrix of finite numbers."""
    try:
        vectors = np.ascontiguousarray(given, dtype=np.float32)
    except (TypeError, ValueError):
        raise SettingError(f"{name} are {given!r:.80}; expected a matrix of numbers, one vector per row") from None
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
