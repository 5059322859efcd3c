"""Recommenders whose score is an inner product of a context's and an item's embedding."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from shortlist.data.rows import Rows
from shortlist.data.vocabulary import Codes, Unknown
from shortlist.errors import StorageError
from shortlist.recommenders.base import History, Queries, Recommender
from shortlist.scoring import DotProductScorer


@dataclass(kw_only=True, repr=False, eq=False)
class DotProduct(Recommender):
    """ŷ(i|c) = ⟨φ(c), ψ(i)⟩: `context_embeddings_` (contexts × d) and `item_embeddings_` (items × d), by code."""

    _arrays: ClassVar[tuple[str, ...]] = ("context_embeddings_", "item_embeddings_")

    context_embeddings_: ClassVar[npt.NDArray[np.float32]]
    item_embeddings_: ClassVar[npt.NDArray[np.float32]]

    @property
    def _latent(self) -> int:
        """How many of the columns are coordinates of the embeddings; behind them there may be biases."""
        return int(self.item_embeddings_.shape[1])

    @abstractmethod
    def _fold_in(self, histories: Rows, threads: int | None = None) -> npt.NDArray[np.float32]:
        """Embeddings of contexts with these histories, the items being as they are."""

    def fold_in(self, history: History, *, unknown: Unknown = "raise") -> npt.NDArray[np.float32]:
        """Embeddings of contexts that need not have been in the training data, from their histories.

        Args:
            history: one history per context: item ids, {id: weight}, or `Interactions`.
            unknown: items that are not known `"raise"` an error, or are passed over (`"skip"`).
        """
        return self._fold_in(self._queries(None, history, unknown).histories)

    def _scorer(self, queries: Queries, threads: int | None = None) -> DotProductScorer:
        if queries.codes is not None:
            return DotProductScorer(self.context_embeddings_[queries.codes], self.item_embeddings_)
        return DotProductScorer(self._fold_in(queries.histories, threads), self.item_embeddings_)

    def _scores(self, queries: Queries, codes: list[Codes]) -> list[npt.NDArray[np.float32]]:  # type: ignore[override]
        contexts = self._scorer(queries).contexts
        scores = []
        for q, wanted in enumerate(codes):
            # A product rounds by a row's place in the matrix: an item that is named twice is scored once.
            distinct, place = np.unique(wanted, return_inverse=True)
            scores.append((self.item_embeddings_[distinct] @ contexts[q])[place])
        return scores

    @property
    def _item_vectors(self) -> npt.NDArray[np.float32]:
        return self.item_embeddings_[:, : self._latent]  # without biases

    def _similarity(self, codes: Codes) -> DotProductScorer:
        """Cosine of the items' embeddings; an item without any observation has none and is near to nothing."""
        latent = self._item_vectors
        norms = np.linalg.norm(latent, axis=1, keepdims=True)
        unit = latent / np.where(norms > 0, norms, 1)
        return DotProductScorer(unit[codes], unit)

    def _check_arrays(self) -> None:
        shape = self.item_embeddings_.shape
        if len(shape) != 2 or not shape[1]:
            raise StorageError(f"item_embeddings_ has the shape {shape}; expected items × dimensions")
        self._require_shape("item_embeddings_", (len(self.items_), shape[1]))
        self._require_shape("context_embeddings_", (len(self.contexts_), shape[1]))
        self._require_finite(longest(self.context_embeddings_) * longest(self.item_embeddings_))


def longest(vectors: npt.NDArray[np.float32]) -> float:
    """The greatest Euclidean length of a row."""
    return float(np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64).max()))
