"""Scorers: the interface through which search gets scores of a block of queries for a range of items."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from shortlist.errors import SettingError


class BlockScorer(Protocol):
    """A scorer of a block of queries for a range of items.

    A scorer may also have `subset(items) -> BlockScorer`, which scores only these items (int32 codes, ascending), in
    that order. Then a query with `allow` only pays for the allowed items.
    """

    @property
    def n_queries(self) -> int:
        """The number of queries."""

    @property
    def n_items(self) -> int:
        """The number of items."""

    def score(self, queries: slice, items: slice, out: npt.NDArray[np.float32]) -> None:
        """Set `out[a, b]` to the score of query a of the slice for item b of the slice.

        `out` is C-contiguous and not initialised. Several threads call this at once.
        """


@runtime_checkable
class SubsetScorer(Protocol):
    """A scorer that can be limited to some items."""

    def subset(self, items: npt.NDArray[np.int32]) -> BlockScorer:
        """Return a scorer of the same queries whose item k is item `items[k]` of this scorer."""


@runtime_checkable
class PickScorer(Protocol):
    """A scorer that can score a few items of a query without scoring all."""

    def pick(self, query: int, items: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """Return the scores of these items for one query."""


MANY_QUERIES = 4096
MAX_TRANSPOSED = 128 * 2**20  # bytes of item vectors


class DotProductScorer:
    """Scores ⟨φ(c), ψ(i)⟩ of context vectors (queries × d) for item vectors (items × d), in float32.

    For many queries, the item vectors are transposed once, unless they are large. BLAS reads columns faster than rows,
    which makes a search 7 % faster because every chunk of queries reads all item vectors.
    """

    def __init__(self, contexts: npt.ArrayLike, items: npt.ArrayLike) -> None:
        self.contexts = _vectors(contexts, "contexts")
        self.items = _vectors(items, "items")
        if self.contexts.shape[1] != self.items.shape[1]:
            raise SettingError(
                f"context vectors have {self.contexts.shape[1]} dimensions and item vectors {self.items.shape[1]}; "
                "expected the same number"
            )
        self.n_queries = len(self.contexts)
        self.n_items = len(self.items)
        self._columns = self.items.T
        if self.n_queries >= MANY_QUERIES and self.items.nbytes <= MAX_TRANSPOSED:
            self._columns = np.empty(self._columns.shape, np.float32)
            for start in range(0, self.n_items, 256):  # a single transposition would take four times as long
                self._columns[:, start : start + 256] = self.items[start : start + 256].T

    def score(self, queries: slice, items: slice, out: npt.NDArray[np.float32]) -> None:
        """Fill `out` by one matrix product."""
        np.matmul(self.contexts[queries], self._columns[:, items], out=out)

    def subset(self, items: npt.NDArray[np.int32]) -> DotProductScorer:
        """Return a scorer of the same contexts for these items only."""
        return DotProductScorer(self.contexts, self.items[items])

    def pick(self, query: int, items: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """Return the scores of these items for one query.

        Rounding depends on a row's place in the matrix, so a repeated item is scored only once.
        """
        distinct, place = np.unique(items, return_inverse=True)
        return np.asarray((self.items[distinct] @ self.contexts[query])[place])


def _vectors(given: npt.ArrayLike, name: str) -> npt.NDArray[np.float32]:
    vectors = np.ascontiguousarray(given, dtype=np.float32)
    if vectors.ndim != 2:
        raise SettingError(
            f"{name} has shape {vectors.shape}; expected two dimensions, with one vector per row", field=name
        )
    return vectors
