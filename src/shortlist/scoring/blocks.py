"""What search asks of a model: scores of a block of queries against a range of items."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from shortlist.errors import SettingError


class BlockScorer(Protocol):
    """Anything that can score a block of queries against a range of items.

    A scorer may also offer `subset(items) -> BlockScorer`, which scores only those items (int32 codes, ascending) in
    that order: then a narrow `allow` costs no more than the items it names.
    """

    @property
    def n_queries(self) -> int:
        """How many queries there are."""

    @property
    def n_items(self) -> int:
        """How many items there are."""

    def score(self, queries: slice, items: slice, out: npt.NDArray[np.float32]) -> None:
        """Fill `out[a, b]` with the score of the a-th query of the slice for the b-th item of the slice.

        `out` is C-contiguous and holds anything before the call. Several threads call this at once.
        """


@runtime_checkable
class SubsetScorer(Protocol):
    """A scorer that can be narrowed to some items."""

    def subset(self, items: npt.NDArray[np.int32]) -> BlockScorer:
        """A scorer over the same queries whose item k is `items[k]` of this one."""


MANY_QUERIES = 4096
TURNED_AT_MOST = 128 * 2**20  # bytes


class DotProductScorer:
    """Scores ⟨φ(c), ψ(i)⟩: context vectors (queries × d) against item vectors (items × d), in float32.

    For many queries the item vectors are copied once with one column per item, unless they are large: BLAS takes in
    columns faster than rows, which is felt (7 % of a search) because every chunk of queries reads all of them anew.
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
        if self.n_queries >= MANY_QUERIES and self.items.nbytes <= TURNED_AT_MOST:
            self._columns = np.empty(self._columns.shape, np.float32)
            for start in range(0, self.n_items, 256):  # in one go it would take four times as long
                self._columns[:, start : start + 256] = self.items[start : start + 256].T

    def score(self, queries: slice, items: slice, out: npt.NDArray[np.float32]) -> None:
        """Fill `out` with one matrix product."""
        np.matmul(self.contexts[queries], self._columns[:, items], out=out)

    def subset(self, items: npt.NDArray[np.int32]) -> DotProductScorer:
        """The same contexts against the named items only."""
        return DotProductScorer(self.contexts, self.items[items])


def _vectors(given: npt.ArrayLike, name: str) -> npt.NDArray[np.float32]:
    vectors = np.ascontiguousarray(given, dtype=np.float32)
    if vectors.ndim != 2:
        raise SettingError(f"{name} has shape {vectors.shape}; expected two dimensions, one vector per row")
    return vectors
