"""What every slate is: settings, and n items picked out of a pool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import DEFAULT_MEMORY, share, whole
from shortlist._threads import run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError

Array: TypeAlias = npt.NDArray[Any]
Codes: TypeAlias = npt.NDArray[np.int32]
Scores: TypeAlias = npt.NDArray[np.floating[Any]]
Values: TypeAlias = npt.NDArray[np.float64]

LARGEST_POOL = 10_000
_BLOCK = 1 << 20  # places of pools that are looked at together, some 16 bytes each
SMALL = 2_000_000  # steps: a matter of some milliseconds, for which no threads are started


@dataclass(frozen=True, eq=False)
class Catalogue:
    """What slates know of the items.

    Attributes:
        trained: the training pairs, a row a context, a column an item; weights do not count.
        vectors: an embedding of each item, or None: then items are as near as their columns of the training pairs are.
    """

    trained: SparseRows
    vectors: npt.NDArray[np.float32] | None = None


class Slate(ABC):
    """Settings by which n items are picked out of a longer list, the pool: `MMR`, `DPP` and `Calibrated`.

    A slate is picked one item after the other, always the one with the best of relevance and something else: how
    unlike it is to those before it, or how well it fits the history. How much the other counts is one number, from 0,
    the list as it was, to 1, where relevance does not count but for the first of equals.

    **Relevance** is r = 1 / log2(1 + k) of the item that stands at place k of its pool, which is what NDCG holds the
    place to be worth. Only the order of the scores counts: they are numbers on a scale of the model's own, in which a
    difference means one thing for one model, or one context, and another for the next. By places the number means the
    same for all of them, and for pools of any size, and scores of ±inf or NaN do no harm. Items with equal scores are
    equally relevant, by the first of their places. What the model scores -inf or NaN is not relevant at all: r = 0.
    """

    pool: int

    def _check(self, **trade_off: float) -> None:
        """Refuse settings that make no sense; those that are equal become the same, so that they have one repr."""
        for name, value in trade_off.items():
            object.__setattr__(self, name, share(name, value))
        object.__setattr__(self, "pool", whole("pool", self.pool, most=LARGEST_POOL))

    def depth(self, n: int, n_items: int) -> int:
        """How many of the best items n are picked from; what they cost grows with the square, so there is an end."""
        if (wanted := min(n, n_items)) > LARGEST_POOL:
            raise SettingError(
                f"n is {wanted:,} of {n_items:,} items, with a slate; expected at most {LARGEST_POOL:,}: ask for "
                "fewer, or without slate="
            )
        return min(max(n, self.pool), n_items)

    @property
    @abstractmethod
    def trade_off(self) -> float:
        """The one number, from 0, the list as it was, to 1."""

    @abstractmethod
    def _places(
        self,
        codes: Codes,
        scores: Scores,
        n: int,
        catalogue: Catalogue,
        histories: SparseRows,
        memory: int,
        threads: int,
    ) -> npt.NDArray[np.int32]:
        """The places within the pools that are picked, queries × n, -1 behind the last."""

    def pick(
        self,
        codes: Codes,
        scores: Scores,
        n: int,
        *,
        catalogue: Catalogue,
        histories: SparseRows,
        memory: int = DEFAULT_MEMORY,
        threads: int | None = None,
    ) -> tuple[Codes, Scores]:
        """The n items of every pool that are picked, in the order they are, and their scores, as they were.

        Both arrays are queries × n, or × the pools' width where that is less; -1 with score -inf where a pool has fewer
        than n items. The result does not depend on threads and memory.

        Args:
            codes: pools of items, queries × places, best first, none twice; -1 where there is no item.
            scores: theirs, by any model.
            n: how many to pick.
            catalogue: what is known of the items.
            histories: what each query has had, a row a query.
            memory: bytes that a table of similarities may take; without one it takes longer.
            threads: how many to use; by default all that `shortlist` may use.
        """
        n = whole("n", n)
        n_items = catalogue.trained.n_columns
        if codes.ndim != 2 or codes.shape != scores.shape or len(codes) != histories.n_rows:
            raise SettingError(
                f"pools are of shape {codes.shape}, their scores {scores.shape}, with {histories.n_rows} histories; "
                "expected queries × places for both, and one history for each query"
            )
        if histories.n_columns != n_items or (catalogue.vectors is not None and len(catalogue.vectors) != n_items):
            vectors = "no" if catalogue.vectors is None else len(catalogue.vectors)
            raise SettingError(
                f"histories are of {histories.n_columns} items, the training pairs of {n_items}, and there are "
                f"{vectors} vectors; expected all of the same items"
            )
        self.depth(n, codes.shape[1])
        width = min(n, codes.shape[1])
        if not codes.size:
            return codes[:, :width], scores[:, :width]
        if codes.dtype.kind not in "iu" or not -1 <= codes.min() <= codes.max() < n_items:
            raise SettingError(
                f"pools are {codes.dtype} from {codes.min()} to {codes.max()}; expected codes of items, 0 to "
                f"{n_items - 1}, and -1 where there is none"
            )
        if ((codes[:, 1:] >= 0) & (codes[:, :-1] < 0)).any():
            together = np.argsort(codes < 0, axis=1, kind="stable")
            codes, scores = np.take_along_axis(codes, together, axis=1), np.take_along_axis(scores, together, axis=1)
        if self.trade_off == 0:
            return codes[:, :width].copy(), scores[:, :width].copy()
        count = thread_count(threads) if codes.size * width > SMALL else 1
        places = self._places(codes, scores, width, catalogue, histories, memory, count)
        picked = np.take_along_axis(codes, places, axis=1)
        there = places >= 0
        own = np.take_along_axis(scores, places, axis=1)
        return np.where(there, picked, np.int32(-1)), np.where(there, own, np.float32(-np.inf))


def relevance(codes: Codes, scores: Scores) -> Values:
    """The r of every place of pools whose -1s are at the end, as `Slate` says; 0 where there is no item.

    >>> relevance(np.array([[7, 3, 5, -1]]), np.array([[2.0, 2.0, 1.0, 0.0]], np.float32))
    array([[1. , 1. , 0.5, 0. ]])
    """
    out = np.tile(1 / np.log2(2 + np.arange(codes.shape[1])), (len(codes), 1))
    tied = scores[:, 1:] == scores[:, :-1]
    if tied.any():  # of equals, the first; what falls along the list is its own running minimum
        out[:, 1:][tied] = 1.0
        out = np.minimum.accumulate(out, axis=1)
    out[(codes < 0) | ~(scores > -np.inf)] = 0.0
    return out


def check_slate(slate: object) -> Slate:
    """A slate, and nothing else."""
    if not isinstance(slate, Slate):
        raise SettingError(f"slate is {slate!r:.80}; expected one of shortlist.slates, such as slates.MMR(0.3)")
    return slate


def over_pools(work: Callable[[slice, Codes, Values], None], codes: Codes, scores: Scores, threads: int) -> None:
    """Call `work(rows, codes of these, relevance of these)` for blocks of the pools."""

    def part(start: int, stop: int) -> None:
        rows = slice(start, stop)
        work(rows, codes[rows], relevance(codes[rows], scores[rows]))

    run_chunks(part, [(one.start, one.stop) for one in blocks(codes, 8 * threads if threads > 1 else 1)], threads)


def blocks(codes: Codes, least: int = 1) -> list[slice]:
    """The rows of pools in blocks of a bounded number of places, and in at least so many blocks, where there are."""
    size = max(1, min(-(-len(codes) // least), _BLOCK // max(1, codes.shape[1])))
    return [slice(start, min(start + size, len(codes))) for start in range(0, len(codes), size)]
