"""Filters on the items that a search may return, in the caller's form and in the form that kernels read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist._numba import bare_kernel, kernel
from shortlist.errors import SettingError
from shortlist.retrieval.order import FILTERED_BITS
from shortlist.scoring.blocks import BlockScorer, SubsetScorer

CsrRows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]


@dataclass(frozen=True)
class Filters:
    """Filters by item codes. A search returns only items that pass all of them.

    Rows are `(indptr, indices)` as in a CSR matrix, with one row per query. Indices may be in any order, and repeat.

    Attributes:
        exclude: items to exclude, per query: seen items and items denied for this query.
        deny: items to exclude, for all queries.
        allow: the only items to return, for all queries.
        allow_rows: the only items to return, per query.
        item_mask: `allow` and `deny` in the form that indexes use, if prepared by `with_item_mask`.
    """

    exclude: CsrRows | None = None
    deny: npt.NDArray[np.int32] | None = None
    allow: npt.NDArray[np.int32] | None = None
    allow_rows: CsrRows | None = None
    item_mask: ItemMask | None = None

    def kept(self, n_items: int) -> npt.NDArray[np.bool_]:
        """Return for each item whether it passes `allow` and `deny`."""
        if self.item_mask is not None:
            return self.item_mask.kept
        kept = np.full(n_items, self.allow is None)
        if self.allow is not None:
            kept[_codes(self.allow, n_items, "allow")] = True
        if self.deny is not None:
            kept[_codes(self.deny, n_items, "deny")] = False
        return kept

    def with_item_mask(self, n_items: int) -> Filters:
        """Return the same filters with `item_mask` set, for many searches over the same items."""
        if self.item_mask is not None or (self.allow is None and self.deny is None):
            return self
        kept = self.kept(n_items)
        bytes_ = np.packbits(kept, bitorder="little")
        bits = np.pad(bytes_, (0, -len(bytes_) % 8)).view(np.uint64)
        return replace(self, item_mask=ItemMask(bits, n_items, int(np.count_nonzero(kept))))

    def checked(self, n_queries: int, n_items: int) -> Filters:
        """Return the same filters after a check: all item codes exist, and there is one row per query."""
        exclude, allow_rows = (
            None if rows is None else item_rows(rows, n_queries, n_items, name)
            for name, rows in (("exclude", self.exclude), ("allow_rows", self.allow_rows))
        )
        same = replace(self, exclude=exclude, allow_rows=allow_rows)
        if self.item_mask is None:
            allow = None if self.allow is None else _codes(self.allow, n_items, "allow")
            return replace(same, allow=allow, deny=None if self.deny is None else _codes(self.deny, n_items, "deny"))
        if self.item_mask.n_items != n_items:
            raise SettingError(
                f"the filters were prepared for {self.item_mask.n_items} items; expected {n_items}", field="filters"
            )
        return same

    def of(self, queries: npt.NDArray[np.int64]) -> Filters:
        """Return the filters for some of the queries."""
        return replace(self, exclude=_take_rows(self.exclude, queries), allow_rows=_take_rows(self.allow_rows, queries))


@dataclass(frozen=True, eq=False)
class ItemMask:
    """The items that pass `allow` and `deny`, as a bit mask.

    Attributes:
        bits: one bit per item.
        n_items: the number of items.
        n_kept: the number of items that pass.
    """

    bits: npt.NDArray[np.uint64]
    n_items: int
    n_kept: int

    @property
    def fraction(self) -> float:
        """The fraction of items that pass."""
        return self.n_kept / self.n_items

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """For each item whether it passes."""
        return np.unpackbits(self.bits.view(np.uint8), count=self.n_items, bitorder="little").view(np.bool_)

    @cached_property
    def codes(self) -> npt.NDArray[np.int32]:
        """The items that pass, ascending."""
        return np.flatnonzero(self.kept).astype(np.int32)


def _take_rows(rows: CsrRows | None, queries: npt.NDArray[np.int64]) -> CsrRows | None:
    if rows is None:
        return None
    starts, codes = rows
    chosen = [codes[starts[q] : starts[q + 1]] for q in queries]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in chosen])]).astype(np.int64)
    return indptr, np.concatenate([np.empty(0, np.int32), *chosen])


class ColumnMasks(NamedTuple):
    """Filters in terms of a scorer's columns. A filter that is not given is an empty array."""

    exclude_starts: npt.NDArray[np.int64]
    exclude: npt.NDArray[np.int32]
    allow_starts: npt.NDArray[np.int64]
    allow: npt.NDArray[np.int32]
    blocked: npt.NDArray[np.int32]  # columns that no query may return, ascending
    columns: npt.NDArray[np.int32]  # the column of each item code, -1 for none; empty: a code is its column


def narrow(scorer: BlockScorer, filters: Filters | None) -> tuple[BlockScorer, ColumnMasks, npt.NDArray[np.int32]]:
    """Return the scorer to use, its masks, and the item code of each of its columns (empty: column = item code).

    If `allow` names at most half of the items, and the scorer supports subsets, only these items are scored.
    """
    filters = filters or Filters()
    n_items = scorer.n_items
    none = np.empty(0, np.int32)
    exclude = item_rows(filters.exclude, scorer.n_queries, n_items, "exclude")
    allow_rows = item_rows(filters.allow_rows, scorer.n_queries, n_items, "allow_rows")
    if filters.allow is None and filters.deny is None:
        return scorer, ColumnMasks(*exclude, *allow_rows, none, none), none
    kept = filters.kept(n_items)
    if filters.allow is None or not isinstance(scorer, SubsetScorer) or 2 * np.count_nonzero(kept) > n_items:
        blocked = np.flatnonzero(~kept).astype(np.int32)
        return scorer, ColumnMasks(*exclude, *allow_rows, blocked, none), none
    codes = np.flatnonzero(kept).astype(np.int32)
    columns = np.full(n_items, -1, np.int32)
    columns[codes] = np.arange(len(codes), dtype=np.int32)
    return scorer.subset(codes), ColumnMasks(*exclude, *allow_rows, none, columns), codes


def _codes(given: npt.ArrayLike, n_items: int, name: str) -> npt.NDArray[np.int32]:
    """Return a contiguous, writable int32 array. Kernels would be compiled again for any other form."""
    codes = np.ascontiguousarray(given, dtype=np.int32).reshape(-1)
    if len(codes) and not 0 <= codes.min() <= codes.max() < n_items:
        raise SettingError(
            f"{name} has item codes from {codes.min()} to {codes.max()}; expected 0 to {n_items - 1}", field=name
        )
    return codes if codes.flags.writeable else codes.copy()


def item_rows(given: CsrRows | None, n_queries: int, n_items: int, name: str) -> CsrRows:
    """Check that `given` has one row of item codes per query. None becomes two empty arrays."""
    if given is None:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    starts, codes = np.array(given[0], dtype=np.int64), _codes(given[1], n_items, name)
    expected = (n_queries + 1,)
    if starts.shape != expected or starts[0] < 0 or starts[-1] > len(codes) or np.any(starts[1:] < starts[:-1]):
        raise SettingError(
            f"{name} does not have one row of items per query: indptr has shape {starts.shape} for {len(codes)} "
            f"indices; expected {expected[0]} ascending numbers up to {len(codes)}",
            field=name,
        )
    return starts, codes


@kernel
def sorted_starts(q0: int, masks: ColumnMasks, n_rows: int) -> npt.NDArray[np.int64]:
    """Return the start of each query's exclusions if they are in ascending order, else -1."""
    cursors = np.empty(n_rows, np.int64)
    for r in range(n_rows):
        cursors[r] = -1
        if len(masks.exclude_starts) > 0:
            start, falls = masks.exclude_starts[q0 + r], 0
            for p in range(start + 1, masks.exclude_starts[q0 + r + 1]):
                falls += masks.exclude[p] < masks.exclude[p - 1]
            if falls == 0:
                cursors[r] = start
    return cursors


@bare_kernel
def keep_only(
    x: npt.NDArray[np.int32],
    j0: int,
    allowed: npt.NDArray[np.int32],
    columns: npt.NDArray[np.int32],
    workspace: npt.NDArray[np.int32],
) -> None:
    """Overwrite the scores of all items that are not allowed. x has the bits of a query's scores from column j0."""
    w = len(x)
    for k in range(w):  # loops, because slices take half a second to compile
        workspace[k] = FILTERED_BITS
    for i in allowed:
        j = columns[i] - j0 if len(columns) > 0 else i - j0
        if 0 <= j < w:
            workspace[j] = x[j]
    for k in range(w):
        x[k] = workspace[k]


@bare_kernel
def exclude_some(
    x: npt.NDArray[np.int32],
    j0: int,
    excluded: npt.NDArray[np.int32],
    columns: npt.NDArray[np.int32],
    cursor: int,
    start: int,
    stop: int,
) -> int:
    """Overwrite the scores of `excluded[start:stop]`. x has the bits of a query's scores from column j0.

    `cursor` is the position in `excluded` to resume from if the items are ascending, else -1. Returns the next cursor.
    Bound by the latency of scattered writes into a block that is still in the cache after the product.
    """
    w = len(x)
    if cursor >= 0:
        for p in range(cursor, stop):
            j = columns[excluded[p]] - j0 if len(columns) > 0 else excluded[p] - j0
            if j >= w:
                return p
            if j >= 0:  # an item without a column has -1
                x[j] = FILTERED_BITS
        return stop
    for p in range(start, stop):
        j = columns[excluded[p]] - j0 if len(columns) > 0 else excluded[p] - j0
        if 0 <= j < w:
            x[j] = FILTERED_BITS
    return cursor


def passes_numpy(filters: Filters, q: int, n_items: int) -> npt.NDArray[np.bool_]:
    """Return for each item whether it passes the filters of query q. The NumPy version of the kernels above."""
    passes = np.ones(n_items, bool)
    for rows, kept in ((filters.exclude, False), (filters.allow_rows, True)):
        if rows is not None:
            named = np.isin(np.arange(n_items), rows[1][rows[0][q] : rows[0][q + 1]])
            passes &= named == kept
    if filters.deny is not None:
        passes[filters.deny] = False
    if filters.allow is not None:
        passes &= np.isin(np.arange(n_items), filters.allow)
    return passes
