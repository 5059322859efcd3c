"""The ranks of the relevant items, which is all that a metric sees of a model."""

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
    """For each context the set R of the ranks of its relevant items: R = {r̂(i|c): i relevant} (article, "Evaluation").

    Checked and made canonical when it is built: the ranks of a context are distinct (a ranking is a bijection), between
    1 and the number of items ranked, and are put into ascending order. Every relevant item has to be among those
    ranked, so take the excluded and unknown ones out of the ground truth first. A context without a relevant item has
    no value under any metric and is refused; so no metric gives a 0 or a NaN that means "nothing to measure". Having no
    context at all is allowed and gives empty results.

    Attributes:
        indptr: where each context's ranks begin in `ranks`, and the end: (contexts + 1,).
        ranks: the ranks, counted from 1, context after context; those beyond `cutoff` may be left out.
        n_relevant: #R of each context, counting also what was left out.
        n_ranked: how many items were ranked for each context: the catalogue, less what was excluded.
        cutoff: ranks above this may be missing; None means that all are there.

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
        """All the ranks of each context as lists; `n_items` were ranked, one number or one per context.

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
        """For each entry of `ranks` the position of its context.

        >>> Ranks.from_lists([[3, 1], [2]], n_items=5).rows
        array([0, 0, 1])
        """
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def select(self, contexts: npt.ArrayLike) -> Ranks:
        """Only some contexts: a boolean mask, or positions.

        >>> Ranks.from_lists([[3, 1], [2]], n_items=5).select([False, True]).ranks
        array([2])
        """
        try:
            chosen = np.arange(len(self))[np.asarray(contexts)]
        except (IndexError, ValueError, TypeError):
            chosen = np.empty((0, 0))
        if chosen.ndim != 1:
            raise SettingError(f"contexts is {contexts!r:.80}; expected a mask of {len(self):,} values, or positions")
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
                f"expected it to begin with 0, never to fall and to end with the number of ranks, {len(self.ranks)}"
            )
        for name in ("n_relevant", "n_ranked"):
            if len(getattr(self, name)) != len(self):
                raise SettingError(f"{name} has {len(getattr(self, name))} entries for {len(self)} contexts in indptr")

    def _check_range(self) -> None:
        _refuse(
            self.n_relevant < 1,
            "has no relevant item, so no metric has a value for it; leave such contexts out before ranking",
        )
        _refuse(
            self.n_relevant > self.n_ranked,
            "has more relevant items than items ranked; take excluded and unknown items out of the relevant ones",
        )
        _refuse(self.n_ranked >= 2**31, "has an n_ranked of 2³¹ or more; a catalogue has fewer items than that")
        rows = self.rows
        outside = rows[(self.ranks < 1) | (self.ranks > self.n_ranked[rows])]
        _refuse(np.bincount(outside, minlength=len(self)), "has a rank outside of 1…n_ranked; the best rank is 1")

    def _sort(self) -> None:
        rows = self.rows
        if np.any((np.diff(self.ranks) <= 0) & (np.diff(rows) == 0)):
            keys = np.sort(rows << 31 | self.ranks)  # one key for both: many times faster than lexsort
            self._put("ranks", keys & (2**31 - 1))
        twice = rows[1:][(np.diff(self.ranks) == 0) & (np.diff(rows) == 0)]
        _refuse(np.bincount(twice, minlength=len(self)), "has the same rank twice; break ties so that ranks differ")

    def _check_counts(self) -> None:
        rows, present = self.rows, np.diff(self.indptr)
        if self.cutoff is None:
            _refuse(
                present != self.n_relevant,
                "has another number of ranks than n_relevant; give all of them, or the cutoff beyond which some miss",
            )
            return
        beyond = np.bincount(rows[self.ranks > self.cutoff], minlength=len(self))
        _refuse(
            (present > self.n_relevant)
            | (self.n_relevant - present > np.maximum(self.n_ranked - self.cutoff, 0) - beyond),
            f"has a number of ranks that does not go with n_relevant: only ranks beyond cutoff={self.cutoff} may be "
            "missing",
        )


def check_n(n: object, name: str = "n") -> int:
    """`n` as an int if it is a whole number from 1 to 2³¹ − 1 (items are numbered in 32 bits).

    >>> check_n(np.int64(20))
    20
    """
    if isinstance(n, (int, np.integer)) and not isinstance(n, bool) and 1 <= n < 2**31:
        return int(n)
    raise SettingError(f"{name} is {n!r:.80}; expected a whole number from 1 to {2**31 - 1}")


def as_lists(name: str, given: Any) -> list[list[Any]]:
    """Lists of lists, whatever stands in them."""
    try:
        return [list(row) for row in given]
    except TypeError:
        raise SettingError(f"{name} is {given!r:.80}; expected a list for each context") from None


def _integers(name: str, values: Any) -> IntArray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise SettingError(
            f"{name} is an array of {array.ndim} dimensions and type {array.dtype}; expected one dimension of integers"
        )
    return np.ascontiguousarray(array, dtype=np.int64)


def _refuse(bad: npt.NDArray[Any], what: str) -> None:
    wrong = np.flatnonzero(bad)
    if len(wrong):
        raise SettingError(f"the context at position {wrong[0]} ({len(wrong)} of {len(bad)} contexts) {what}")
