"""Recommended lists and training data: the input of the metrics beyond accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.metrics.ranks import as_lists, check_n

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, eq=False)
class Lists:
    """The ordered list of recommended items of each context, with the training data.

    The constructor checks that codes are within the catalogue, that no list has an item twice, and that -1 is only at
    the end of a list.

    Attributes:
        items: item codes, contexts × positions; -1 for empty positions at the end of a list.
        trained: the training pairs, contexts × items of the catalogue; weights are ignored.
        histories: the history of each list's context, if known; only used by `miscalibration`.

    >>> lists = Lists.from_lists([[2, 0], [1]], trained=[[0, 1], [0]], n_items=4)
    >>> lists.items.tolist(), lists.had.tolist()
    ([[2, 0], [1, -1]], [2, 1, 0, 0])
    """

    items: npt.NDArray[np.int32]
    trained: SparseRows
    histories: SparseRows | None = None

    def __post_init__(self) -> None:
        items = np.asarray(self.items)
        if items.ndim != 2 or (items.size and items.dtype.kind not in "iu"):
            raise SettingError(
                f"items is an array of {items.ndim} dimensions and type {items.dtype}; expected two dimensions "
                "of integers, contexts × positions",
                field="items",
            )
        if items.size and not (items.min() >= -1 and items.max() < self.n_items):
            raise SettingError(
                f"items has codes from {items.min()} to {items.max()}; expected 0 to {self.n_items - 1}, or -1 after "
                "the end of a list",
                field="items",
            )
        if self.histories is not None and (self.histories.n_rows, self.histories.n_columns) != (
            len(items),
            self.n_items,
        ):
            raise SettingError(
                f"histories has {self.histories.n_rows} rows over {self.histories.n_columns} items for {len(items)} "
                f"lists over {self.n_items} items; expected one row per list, over the same items",
                field="histories",
            )
        sorted_items = np.sort(items, axis=1)
        _refuse((sorted_items[:, 1:] == sorted_items[:, :-1]) & (sorted_items[:, 1:] >= 0), "has an item twice")
        _refuse((items[:, 1:] >= 0) & (items[:, :-1] < 0), "has an item after a -1; put the -1s at the end")
        object.__setattr__(self, "items", items.astype(np.int32, copy=False))

    @classmethod
    def from_lists(
        cls,
        lists: Sequence[Sequence[int]],
        trained: Sequence[Sequence[int]],
        n_items: int,
        histories: Sequence[Sequence[int]] | None = None,
    ) -> Lists:
        """Build from lists of item codes below `n_items`: recommended items and training items of each context.

        `histories` are the histories of the lists' contexts, if known.

        >>> Lists.from_lists([[2, 0], []], trained=[[0, 1], [0]], n_items=4).lengths(2)
        array([2, 0])
        """
        n_items, listed = check_n(n_items, "n_items"), as_lists("lists", lists)
        items = np.full((len(listed), max(map(len, listed), default=0)), -1, np.int32)
        for q, row in enumerate(_codes("lists", listed)):
            items[q, : len(row)] = row
        history_rows = None if histories is None else _rows("histories", histories, n_items)
        return cls(items, _rows("trained", trained, n_items), history_rows)

    def __len__(self) -> int:
        """The number of contexts."""
        return len(self.items)

    @property
    def n_items(self) -> int:
        """The number of items in the catalogue."""
        return self.trained.n_columns

    @cached_property
    def had(self) -> npt.NDArray[np.int64]:
        """The number of training contexts that have each item."""
        return np.bincount(self.trained.indices, minlength=self.n_items)

    @cached_property
    def n_trained_contexts(self) -> int:
        """The number of contexts with at least one training item.

        >>> Lists.from_lists([[0]], trained=[[0, 1], [], [0]], n_items=2).n_trained_contexts
        2
        """
        return int(np.count_nonzero(self.trained.lengths))

    def lengths(self, n: int) -> npt.NDArray[np.int64]:
        """Return the number of items in the first n positions of each list."""
        lengths: npt.NDArray[np.int64] = (self.items[:, : check_n(n)] >= 0).sum(axis=1)
        return lengths


def _codes(name: str, lists: list[list[Any]]) -> list[npt.NDArray[np.int32]]:
    arrays = [np.asarray(row) for row in lists]
    for row in arrays:
        if row.ndim != 1 or (len(row) and not (row.dtype.kind in "iu" and -(2**31) <= row.min() <= row.max() < 2**31)):
            raise SettingError(f"{name} has {row.tolist()!r:.80}; expected item codes (integers)", field=name)
    return [row.astype(np.int32) for row in arrays]


def _rows(name: str, lists: Sequence[Sequence[int]], n_items: int) -> SparseRows:
    rows = SparseRows.from_lists(_codes(name, as_lists(name, lists)), n_items)
    if len(rows) and not (rows.indices.min() >= 0 and rows.indices.max() < n_items):
        raise SettingError(
            f"{name} has codes from {rows.indices.min()} to {rows.indices.max()}; expected 0 to {n_items - 1}",
            field=name,
        )
    return rows


def _refuse(bad: npt.NDArray[Any], what: str) -> None:
    wrong = np.flatnonzero(bad.any(axis=1))
    if len(wrong):
        raise SettingError(f"the list at position {wrong[0]} ({len(wrong)} of {len(bad)} lists) {what}", field="items")
