"""Which items may be returned: filters as a caller states them, and as kernels read them."""

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
    """What may be returned, in item codes; an item must pass every filter that is given.

    Rows are `(indptr, indices)` as in a CSR matrix, one row per query, in any order and with repeats allowed.

    Attributes:
        exclude: items never to return, per query: what was seen, and what is denied for this query.
        deny: items never to return, for all queries.
        allow: the only items to return, for all queries.
        allow_rows: the only items to return, per query.
        standing: `allow` and `deny` in the form that indexes ask, where it was made before (`with_item_mask`).
    """

    exclude: CsrRows | None = None
    deny: npt.NDArray[np.int32] | None = None
    allow: npt.NDArray[np.int32] | None = None
    allow_rows: CsrRows | None = None
    item_mask: ItemMask | None = None

    def kept(self, n_items: int) -> npt.NDArray[np.bool_]:
        """Which of so many items `allow` and `deny` leave."""
        if self.item_mask is not None:
            return self.item_mask.kept
        kept = np.full(n_items, self.allow is None)
        if self.allow is not None:
            kept[_codes(self.allow, n_items, "allow")] = True
        if self.deny is not None:
            kept[_codes(self.deny, n_items, "deny")] = False
        return kept

    def with_item_mask(self, n_items: int) -> Filters:
        """The same filters, prepared for many searches over so many items."""
        if self.item_mask is not None or (self.allow is None and self.deny is None):
            return self
        kept = self.kept(n_items)
        bytes_ = np.packbits(kept, bitorder="little")
        bits = np.pad(bytes_, (0, -len(bytes_) % 8)).view(np.uint64)
        return replace(self, item_mask=ItemMask(bits, n_items, int(np.count_nonzero(kept))))

    def checked(self, n_queries: int, n_items: int) -> Filters:
        """The same filters, of items that there are, and their rows being one for each query."""
        exclude, allow_rows = (
            None if given is None else item_rows(given, n_queries, n_items, name)
            for name, given in (("exclude", self.exclude), ("allow_rows", self.allow_rows))
        )
        same = replace(self, exclude=exclude, allow_rows=allow_rows)
        if self.item_mask is None:
            allow = None if self.allow is None else _codes(self.allow, n_items, "allow")
            return replace(same, allow=allow, deny=None if self.deny is None else _codes(self.deny, n_items, "deny"))
        if self.item_mask.n_items != n_items:
            raise SettingError(f"the filters were prepared for {self.item_mask.n_items} items; expected {n_items}")
        return same

    def of(self, queries: npt.NDArray[np.int64]) -> Filters:
        """The filters of some of the queries."""
        return replace(self, exclude=_taken(self.exclude, queries), allow_rows=_taken(self.allow_rows, queries))


@dataclass(frozen=True, eq=False)
class ItemMask:
    """What `allow` and `deny` leave.

    Attributes:
        bits: a bit for each item.
        n_items: how many there are.
        n_kept: how many of them are left.
    """

    bits: npt.NDArray[np.uint64]
    n_items: int
    n_kept: int

    @property
    def share(self) -> float:
        """Of the items."""
        return self.n_kept / self.n_items

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """Whether an item is left, for each."""
        return np.unpackbits(self.bits.view(np.uint8), count=self.n_items, bitorder="little").view(np.bool_)

    @cached_property
    def codes(self) -> npt.NDArray[np.int32]:
        """The items that are left, ascending."""
        return np.flatnonzero(self.kept).astype(np.int32)


def _taken(rows: CsrRows | None, queries: npt.NDArray[np.int64]) -> CsrRows | None:
    if rows is None:
        return None
    starts, codes = rows
    some = [codes[starts[q] : starts[q + 1]] for q in queries]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in some])]).astype(np.int64)
    return indptr, np.concatenate([np.empty(0, np.int32), *some])


class ColumnMasks(NamedTuple):
    """Filters in the columns of a scorer; an empty array stands for a filter that was not given."""

    exclude_starts: npt.NDArray[np.int64]
    exclude: npt.NDArray[np.int32]
    allow_starts: npt.NDArray[np.int64]
    allow: npt.NDArray[np.int32]
    blocked: npt.NDArray[np.int32]  # columns that no query may return, ascending
    columns: npt.NDArray[np.int32]  # the column of each item code, -1 for none; empty: a code is its column


def narrow(scorer: BlockScorer, filters: Filters | None) -> tuple[BlockScorer, ColumnMasks, npt.NDArray[np.int32]]:
    """The scorer to ask, the masks to lay on it, and the item code of each of its columns (empty: the column itself).

    Where `allow` names at most half of the items and the scorer can be narrowed to them, only they are scored.
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
    """The array in one form, copied if it is read-only: kernels are compiled anew for every other form."""
    codes = np.ascontiguousarray(given, dtype=np.int32).reshape(-1)
    if len(codes) and not 0 <= codes.min() <= codes.max() < n_items:
        raise SettingError(f"{name} holds item codes {codes.min()}…{codes.max()}; expected 0…{n_items - 1}")
    return codes if codes.flags.writeable else codes.copy()


def item_rows(given: CsrRows | None, n_queries: int, n_items: int, name: str) -> CsrRows:
    """Check that `given` is one row of item codes per query; None becomes two empty arrays."""
    if given is None:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    starts, codes = np.array(given[0], dtype=np.int64), _codes(given[1], n_items, name)
    expected = (n_queries + 1,)
    if starts.shape != expected or starts[0] < 0 or starts[-1] > len(codes) or np.any(starts[1:] < starts[:-1]):
        raise SettingError(
            f"{name} is not one row of items per query: its row starts have shape {starts.shape} over {len(codes)} "
            f"items; expected {expected[0]} ascending starts"
        )
    return starts, codes


@kernel
def sorted_starts(q0: int, masks: ColumnMasks, n_rows: int) -> npt.NDArray[np.int64]:
    """Where each query's exclusions begin, for queries whose exclusions ascend; -1 for the others."""
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
    room: npt.NDArray[np.int32],
) -> None:
    """Overwrite all of x, the bits of a query's scores from column j0 on, but for the allowed items."""
    w = len(x)
    for k in range(w):  # loops, as slices take half a second to compile
        room[k] = FILTERED_BITS
    for i in allowed:
        j = columns[i] - j0 if len(columns) > 0 else i - j0
        if 0 <= j < w:
            room[j] = x[j]
    for k in range(w):
        x[k] = room[k]


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
    """Overwrite the scores of `excluded[start:stop]` in x, the bits of a query's scores from column j0 on.

    `cursor` is where to go on if these items ascend, or -1; the next one is returned. Bound by the latency of
    scattered writes into a block that the product has just left in the cache.
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


def left_numpy(filters: Filters, q: int, n_items: int) -> npt.NDArray[np.bool_]:
    """NumPy twin of the kernels above: which items the filters leave for query q."""
    left = np.ones(n_items, bool)
    for rows, kept in ((filters.exclude, False), (filters.allow_rows, True)):
        if rows is not None:
            named = np.isin(np.arange(n_items), rows[1][rows[0][q] : rows[0][q + 1]])
            left &= named == kept
    if filters.deny is not None:
        left[filters.deny] = False
    if filters.allow is not None:
        left &= np.isin(np.arange(n_items), filters.allow)
    return left
