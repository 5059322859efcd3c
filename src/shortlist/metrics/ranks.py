"""Ranks of the relevant items: the input of the accuracy metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shortlist._checks import numbers
from shortlist.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ranks:
    """The set R of the ranks of each context's relevant items: R = {r̂(i|c): i relevant} (article, "Evaluation").

    The constructor checks that the ranks of a context are distinct and between 1 and the number of ranked items, and
    sorts them. Every relevant item must be ranked: remove excluded and unknown items from the ground truth first. A
    context without relevant items is an error, because metrics are not defined for it. No contexts at all are allowed
    and give empty results.

    Attributes:
        indptr: the start of each context's ranks in `ranks`, and the end: (contexts + 1,).
        ranks: the ranks, counted from 1, concatenated over contexts; ranks beyond `cutoff` may be omitted.
        n_relevant: #R of each context, including omitted ranks.
        n_ranked: the number of ranked items of each context: the catalogue without excluded items.
        cutoff: ranks greater than this may be omitted; None if all ranks are present.

    >>> ranks = Ranks(indptr=[0, 2, 2], ranks=[4, 1], n_relevant=[2, 3], n_ranked=[100, 100], cutoff=20)
    >>> len(ranks), ranks.ranks
    (2, array([1, 4]))
    """

    indptr: IntArray
    ranks: IntArray
    n_relevant: IntArray
    n_ranked: IntArray
    cutoff: int | None = None

    def __post_init__(self) -> None:
        for name in ("indptr", "ranks", "n_relevant", "n_ranked"):
            self._put(name, _integers(name, getattr(self, name)))
        if self.cutoff is not None:
            object.__setattr__(self, "cutoff", check_n(self.cutoff, "cutoff"))
        self._check_shapes()
        self._check_range()
        self._sort()
        self._check_counts()

    @classmethod
    def from_lists(cls, ranks: Sequence[Sequence[int]], n_items: int | Sequence[int]) -> Ranks:
        """Build from all ranks of each context; `n_items` is the number of ranked items, for all or for each context.

        >>> Ranks.from_lists([[3, 1], [2]], n_items=5).indptr
        array([0, 2, 3])
        """
        rows, n_ranked = as_lists("ranks", ranks), numbers("n_items", n_items)
        n_relevant = np.array([len(row) for row in rows], dtype=np.int64)
        flat = [rank for row in rows for rank in row]
        return cls(
            indptr=np.concatenate([[0], np.cumsum(n_relevant)]),
            ranks=np.array(flat) if flat else np.empty(0, np.int64),
            n_relevant=n_relevant,
            n_ranked=n_ranked if n_ranked.ndim else np.full(len(rows), n_ranked),
            cutoff=None,
        )

    def __len__(self) -> int:
        """The number of contexts."""
        return len(self.indptr) - 1

    @property
    def rows(self) -> IntArray:
        """The position of the context of each entry of `ranks`.

        >>> Ranks.from_lists([[3, 1], [2]], n_items=5).rows
        array([0, 0, 1])
        """
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def select(self, contexts: npt.ArrayLike) -> Ranks:
        """Return only some contexts, given by a boolean mask or by positions.

        >>> Ranks.from_lists([[3, 1], [2]], n_items=5).select([False, True]).ranks
        array([2])
        """
        try:
            chosen = np.arange(len(self))[np.asarray(contexts)]
        except (IndexError, ValueError, TypeError):
            chosen = np.empty((0, 0))
        if chosen.ndim != 1:
            raise SettingError(
                f"contexts is {contexts!r:.80}; expected a mask of {len(self):,} values, or positions", field="contexts"
            )
        lengths = np.diff(self.indptr)[chosen]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.repeat(self.indptr[chosen] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return Ranks(indptr, self.ranks[entries], self.n_relevant[chosen], self.n_ranked[chosen], self.cutoff)

    def _put(self, name: str, values: IntArray) -> None:
        view = values.view()  # so that the caller's own array stays writable
        view.flags.writeable = False
        object.__setattr__(self, name, view)

    def _check_shapes(self) -> None:
        indptr = self.indptr
        if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(self.ranks) or np.any(np.diff(indptr) < 0):
            raise SettingError(
                f"indptr has {len(indptr)} entries and runs from {indptr[:1].tolist()} to {indptr[-1:].tolist()}; "
                f"expected 0 first, ascending values, and {len(self.ranks)} (the number of ranks) last",
                field="indptr",
            )
        for name in ("n_relevant", "n_ranked"):
            if len(getattr(self, name)) != len(self):
                raise SettingError(
                    f"{name} has {len(getattr(self, name))} entries for {len(self)} contexts in indptr", field=name
                )

    def _check_range(self) -> None:
        _refuse(
            self.n_relevant < 1,
            "has no relevant item, so metrics are not defined for it; drop such contexts before ranking",
        )
        _refuse(
            self.n_relevant > self.n_ranked,
            "has more relevant items than ranked items; remove excluded and unknown items from the relevant ones",
        )
        _refuse(self.n_ranked >= 2**31, "has n_ranked ≥ 2³¹; the maximum is 2³¹ − 1")
        rows = self.rows
        outside = rows[(self.ranks < 1) | (self.ranks > self.n_ranked[rows])]
        _refuse(np.bincount(outside, minlength=len(self)), "has a rank outside 1…n_ranked; the best rank is 1")

    def _sort(self) -> None:
        rows = self.rows
        if np.any((np.diff(self.ranks) <= 0) & (np.diff(rows) == 0)):
            keys = np.sort(rows << 31 | self.ranks)  # one sort by a combined key is much faster than lexsort
            self._put("ranks", keys & (2**31 - 1))
        twice = rows[1:][(np.diff(self.ranks) == 0) & (np.diff(rows) == 0)]
        _refuse(np.bincount(twice, minlength=len(self)), "has the same rank twice; break ties so that ranks differ")

    def _check_counts(self) -> None:
        rows, present = self.rows, np.diff(self.indptr)
        if self.cutoff is None:
            _refuse(
                present != self.n_relevant,
                "has a number of ranks that differs from n_relevant; pass all ranks, or the cutoff of the ranks",
            )
            return
        beyond = np.bincount(rows[self.ranks > self.cutoff], minlength=len(self))
        _refuse(
            (present > self.n_relevant)
            | (self.n_relevant - present > np.maximum(self.n_ranked - self.cutoff, 0) - beyond),
            f"has a number of ranks that does not match n_relevant: only ranks beyond cutoff={self.cutoff} may be "
            "omitted",
        )


def check_n(n: object, name: str = "n") -> int:
    """Check that `n` is an integer from 1 to 2³¹ − 1 (item codes have 32 bits) and return it as an int.

    >>> check_n(np.int64(20))
    20
    """
    if isinstance(n, (int, np.integer)) and not isinstance(n, bool) and 1 <= n < 2**31:
        return int(n)
    raise SettingError(f"{name} is {n!r:.80}; expected an integer from 1 to {2**31 - 1}", field=name)


def as_lists(name: str, rows: Any) -> list[list[Any]]:
    """Convert any iterable of iterables to a list of lists."""
    try:
        return [list(row) for row in rows]
    except TypeError:
        raise SettingError(f"{name} is {rows!r:.80}; expected one list per context", field=name) from None


def _integers(name: str, values: Any) -> IntArray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise SettingError(
            f"{name} is an array of {array.ndim} dimensions and type {array.dtype}; expected one dimension of integers",
            field=name,
        )
    return np.ascontiguousarray(array, dtype=np.int64)


def _refuse(bad: npt.NDArray[Any], what: str) -> None:
    wrong = np.flatnonzero(bad)
    if len(wrong):
        raise SettingError(
            f"the context at position {wrong[0]} ({len(wrong)} of {len(bad)} contexts) {what}", field="ranks"
        )
