"""Base class of recommenders that learn a sparse items × items matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from shortlist._kernel_views import for_kernels
from shortlist.data.sparse_rows import SparseRows, csr_error
from shortlist.data.vocabulary import Codes
from shortlist.errors import StorageError
from shortlist.objectives.weighting import BY_DEFAULT, Weighting, strengths
from shortlist.ranking.queries import Queries
from shortlist.recommenders.base import Recommender
from shortlist.scoring.sparse_scorer import SparseScorer


@dataclass(kw_only=True, repr=False, eq=False)
class SparseItems(Recommender):
    """A linear model ŷ(i|c) = Σ_{j∈I_c} x_{cj}·W_{ij} over the items j of a history, with sparse W.

    New histories are scored directly, without folding in.
    """

    weighting: Weighting = BY_DEFAULT

    # The items with a weight in row i of W are `weight_items_[weight_bounds_[i]:weight_bounds_[i + 1]]`.
    weight_bounds_: ClassVar[npt.NDArray[np.int64]]
    weight_items_: ClassVar[npt.NDArray[np.int32]]
    weight_values_: ClassVar[npt.NDArray[np.float32]]
    _arrays: ClassVar[tuple[str, ...]] = ("weight_bounds_", "weight_items_", "weight_values_")
    _on_first_use: ClassVar[dict[str, str]] = Recommender._on_first_use | dict.fromkeys(
        ("_weights", "_by_history"), "_check_weights"
    )

    @property
    def n_weights(self) -> int:
        """The number of nonzero entries of W."""
        self.require_fit()
        return len(self.weight_items_)

    def _set_weights(self, by_item: SparseRows) -> None:
        """Set W; its row i has the weights for the score of item i."""
        assert by_item.values is not None
        self.weight_bounds_ = by_item.indptr  # type: ignore[misc]
        self.weight_items_ = by_item.indices  # type: ignore[misc]
        self.weight_values_ = by_item.values  # type: ignore[misc]
        self._weights, self._by_history = by_item, by_item.transpose()

    def scorer(self, queries: Queries, threads: int | None = None) -> SparseScorer:
        """Return a scorer of all items for these queries."""
        rows = queries.histories.sets()
        return SparseScorer(rows, strengths(rows.values, self.weighting), self._by_history)

    def _similarity(self, codes: Codes) -> SparseScorer:
        """Return a scorer of how much all other items add to the score of each item: its row of W."""
        rows = SparseRows(np.arange(len(codes) + 1, dtype=np.int64), codes, None, len(self.items_))
        return SparseScorer(rows, np.ones(1, np.float32), self._weights)

    def _check_arrays(self) -> None:
        shapes = {"weight_items_": self.weight_values_.shape, "weight_bounds_": (len(self.items_) + 1,)}
        types = {"weight_items_": np.int32, "weight_bounds_": np.int64, "weight_values_": np.float32}
        for name, dtype in types.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.ndim != 1 or array.shape != shapes.get(name, array.shape):
                raise StorageError(
                    f"its item weights are damaged: {name} is {array.dtype} {array.shape}", code="model-damaged"
                )

    def _check_weights(self) -> None:
        """Check the weights of a loaded model, and prepare them for histories."""
        bounds, items = for_kernels(self.weight_bounds_), for_kernels(self.weight_items_)
        weights = SparseRows(bounds, items, for_kernels(self.weight_values_), len(self.items_))
        if problem := csr_error(weights, len(self.items_)):
            raise StorageError(f"its item weights are damaged: {problem}", code="model-damaged")
        self._weights, self._by_history = weights, weights.transpose()

    def _largest(self) -> float:
        return self._strongest(self.weighting) * float(np.abs(self.weight_values_).max(initial=0))
