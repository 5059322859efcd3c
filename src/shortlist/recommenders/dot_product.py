"""Recommenders whose score is an inner product of a context's and an item's embedding."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from shortlist.data.rows import Rows
from shortlist.data.vocabulary import Codes, Unknown
from shortlist.errors import StorageError
from shortlist.recommenders.base import History, Queries, Recommender
from shortlist.scoring import DotProductScorer

if TYPE_CHECKING:
    from shortlist.recommenders.index import Index


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

    def index(
        self,
        kind: str = "auto",
        *,
        target_recall: float = 0.95,
        n: int = 100,
        seed: int = 0,
        progress: bool | None = None,
        threads: int | None = None,
        **settings: Any,
    ) -> Index:
        """An index over the items, for catalogues in which scoring every item takes too long.

        What it finds and how fast is measured on contexts of the model, beside exact search, when it is made: the
        answer's `measured` and `why` say it, and its `repr` shows it.

        Args:
            kind: "exact"; "quantized", lists and codes of our own; "ivf-flat", "ivf-pq" or "hnsw" of faiss (extra
                `ann`); or "auto": exact for small catalogues, else the fastest that reaches `target_recall`.
            target_recall: the share of the exact best n to be found; search settings that are not given are chosen as
                the fastest that reach it.
            n: how many items the recall is about.
            seed: of the samples that lists and codes are learnt from, and of the contexts that are measured.
            progress: tell what is being done, and what was measured; by default where standard error is a terminal.
            threads: how many to use; all CPUs by default.
            **settings: of the kind: `precision` for "exact"; `lists`, `probes`, `refine` for "quantized" and "ivf-pq";
                `lists`, `probes` for "ivf-flat"; `links`, `effort`, `breadth` for "hnsw"; `space` for faiss's.

        >>> from shortlist import IALS, datasets
        >>> model = IALS(dim=16, epochs=2).fit(datasets.load("online-retail").interactions)
        >>> index = model.index("quantized", probes=10**6, refine=10**6)
        >>> index.search([12347], n=3).ids == model.recommend([12347], n=3).ids
        True
        """
        from shortlist.recommenders.index import model_index

        return model_index(self, kind, target_recall, n, seed, progress, threads, settings)

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
