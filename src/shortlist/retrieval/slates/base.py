"""The base class of slates: settings, and the selection of n items from a pool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import DEFAULT_MEMORY, fraction, integer
from shortlist._threads import run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError

Array: TypeAlias = npt.NDArray[Any]
Codes: TypeAlias = npt.NDArray[np.int32]
Scores: TypeAlias = npt.NDArray[np.floating[Any]]
Values: TypeAlias = npt.NDArray[np.float64]

LARGEST_POOL = 10_000
_BLOCK = 1 << 20  # places of pools per block, about 16 bytes each
SMALL = 2_000_000  # steps: a few milliseconds of work, not worth starting threads


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The item data that slates use.

    Attributes:
        trained: the training pairs, with one row per context and one column per item; weights are ignored.
        vectors: the item embeddings. If None, item similarities are computed from the columns of `trained`.
        counts: the number of training pairs of each item. If None, they are counted.
    """

    trained: SparseRows
    vectors: npt.NDArray[np.float32] | None = None
    counts: npt.NDArray[np.int64] | None = None


class Slate(ABC):
    """A method to choose n items together from a longer list, the pool. The base class of `MMR`, `DPP`, `Calibrated`.

    A slate is chosen greedily, item by item. Each step takes the item with the best weighted sum of its relevance and a
    second criterion: how different it is from the items before it, or how well it fits the history. The weight of the
    second criterion is one setting from 0 (the n best items) to 1 (relevance only breaks ties).

    **Relevance** of the item at position k of the pool is r = 1 / log2(1 + k), the weight that NDCG gives to the
    position. Only the order of the scores matters, because the scale of the scores differs between models and contexts.
    So a setting means the same for all models, contexts and pool sizes, and scores of ±inf or NaN are allowed. Items
    with equal scores get the relevance of the first of them. Items that the model scores -inf or NaN have r = 0.
    """

    pool: int

    def _check(self, **trade_off: float) -> None:
        """Check the settings and convert their types, so that equal settings have equal reprs."""
        for name, value in trade_off.items():
            object.__setattr__(self, name, fraction(name, value))
        object.__setattr__(self, "pool", integer("pool", self.pool, most=LARGEST_POOL))

    def depth(self, n: int, n_items: int) -> int:
        """Return the size of the pool for n items. It has a limit, because the cost grows with its square."""
        if (wanted := min(n, n_items)) > LARGEST_POOL:
            raise SettingError(
                f"n is {wanted:,} of {n_items:,} items, with a slate; expected at most {LARGEST_POOL:,}: reduce n or "
                "omit slate=",
                field="n",
            )
        return min(max(n, self.pool), n_items)

    @property
    @abstractmethod
    def trade_off(self) -> float:
        """The setting that trades relevance for the second criterion, from 0 (the n best items) to 1."""

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
        """Return the chosen positions within the pools, queries × n, padded with -1."""

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
        """Choose n items from each pool. Return them in the order chosen, with their scores.

        Both arrays are queries × min(n, positions). Pools with fewer than n items are padded with -1 and score -inf.
        The result does not depend on threads and memory.

        Args:
            codes: pools of distinct items, queries × positions, best first; -1 in empty positions.
            scores: the scores of the items, by any model.
            n: the number of items to choose.
            catalogue: the item data.
            histories: the history of each query, one row per query.
            memory: the limit for a table of item similarities, in bytes. Without a table the search is slower.
            threads: the number of threads; by default all that `shortlist` may use.
        """
        n = integer("n", n)
        n_items = catalogue.trained.n_columns
        if codes.ndim != 2 or codes.shape != scores.shape or len(codes) != histories.n_rows:
            raise SettingError(
                f"codes has shape {codes.shape}, scores has shape {scores.shape}, and there are {histories.n_rows} "
                "histories; expected queries × positions for both, and one history for each query",
                field="codes",
            )
        if histories.n_columns != n_items or (catalogue.vectors is not None and len(catalogue.vectors) != n_items):
            vectors = "no" if catalogue.vectors is None else len(catalogue.vectors)
            raise SettingError(
                f"histories have {histories.n_columns} items, the training pairs have {n_items}, and there are "
                f"{vectors} vectors; expected the same items in all",
                field="histories",
            )
        self.depth(n, codes.shape[1])
        width = min(n, codes.shape[1])
        if not codes.size:
            return codes[:, :width], scores[:, :width]
        if codes.dtype.kind not in "iu" or not -1 <= codes.min() <= codes.max() < n_items:
            raise SettingError(
                f"codes is {codes.dtype} from {codes.min()} to {codes.max()}; expected item codes from 0 to "
                f"{n_items - 1}, or -1 in empty positions",
                field="codes",
            )
        if ((codes[:, 1:] >= 0) & (codes[:, :-1] < 0)).any():
            filled_first = np.argsort(codes < 0, axis=1, kind="stable")
            codes = np.take_along_axis(codes, filled_first, axis=1)
            scores = np.take_along_axis(scores, filled_first, axis=1)
        if self.trade_off == 0:
            return codes[:, :width].copy(), scores[:, :width].copy()
        count = thread_count(threads) if codes.size * width > SMALL else 1
        places = self._places(codes, scores, width, catalogue, histories, memory, count)
        picked = np.take_along_axis(codes, places, axis=1)
        picked_scores = np.take_along_axis(scores, places, axis=1)
        filled = places >= 0
        return np.where(filled, picked, np.int32(-1)), np.where(filled, picked_scores, np.float32(-np.inf))


def relevance(codes: Codes, scores: Scores) -> Values:
    """Return the relevance r (see `Slate`) of each place of pools whose -1s are at the end; 0 for empty places.

    >>> relevance(np.array([[7, 3, 5, -1]]), np.array([[2.0, 2.0, 1.0, 0.0]], np.float32))
    array([[1. , 1. , 0.5, 0. ]])
    """
    out = np.tile(1 / np.log2(2 + np.arange(codes.shape[1])), (len(codes), 1))
    tied = scores[:, 1:] == scores[:, :-1]
    if tied.any():  # a place tied with the one before it takes the running minimum: the first of the tied places
        out[:, 1:][tied] = 1.0
        out = np.minimum.accumulate(out, axis=1)
    out[(codes < 0) | ~(scores > -np.inf)] = 0.0
    return out


def check_slate(slate: object) -> Slate:
    """Return the slate, or refuse an object that is not one."""
    if not isinstance(slate, Slate):
        raise SettingError(
            f"slate is {slate!r:.80}; expected one of shortlist.slates, such as slates.MMR(0.3)", field="slate"
        )
    return slate


def over_pools(work: Callable[[slice, Codes, Values], None], codes: Codes, scores: Scores, threads: int) -> None:
    """Call `work(rows, codes[rows], relevance of these)` for blocks of pools, in threads."""

    def part(start: int, stop: int) -> None:
        rows = slice(start, stop)
        work(rows, codes[rows], relevance(codes[rows], scores[rows]))

    chunks = [(block.start, block.stop) for block in blocks(codes, 8 * threads if threads > 1 else 1)]
    run_chunks(part, chunks, threads)


def blocks(codes: Codes, least: int = 1) -> list[slice]:
    """Split the rows of pools into at least `least` blocks (if there are as many rows) of a limited size."""
    size = max(1, min(-(-len(codes) // least), _BLOCK // max(1, codes.shape[1])))
    return [slice(start, min(start + size, len(codes))) for start in range(0, len(codes), size)]
