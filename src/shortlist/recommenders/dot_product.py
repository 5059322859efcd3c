"""Recommenders whose score is an inner product of a context's and an item's embedding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import memory_bytes, one_of, whole
from shortlist._phrases import count
from shortlist._threads import blas_threads
from shortlist.data.id_lists import as_list
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Codes, Id, Unknown
from shortlist.errors import DataError, SettingError, StorageError
from shortlist.recommenders.base import History, ItemLists, Queries, Recommender
from shortlist.recommenders.given import as_floats, refuse_frame, rows_of_lists
from shortlist.recommenders.recommendations import QueryLabels, Recommendations
from shortlist.retrieval.slates.base import Slate, check_slate
from shortlist.scoring import DotProductScorer

if TYPE_CHECKING:
    from shortlist.recommenders.index import Index

Confidence: TypeAlias = Sequence[Mapping[Id, float]]
_MOST = 1e30  # of an embedding's numbers, so that scores are finite


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

    # --- who was not there in training -------------------------------------------------------------------------------

    @abstractmethod
    def _fold_in(self, histories: SparseRows, threads: int | None = None) -> npt.NDArray[np.float32]:
        """Embeddings of contexts with these histories, the items being as they are: see `fold_in`.

        Every row by itself, so that it does not depend on the others or on the threads; zero where it is empty. What
        `histories.confidence` says counts.
        """

    def _folded(self, histories: SparseRows, threads: int | None = None) -> npt.NDArray[np.float32]:
        """`_fold_in`, or an error where the weights of a history are too large for its row to be finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._fold_in(histories, threads)
        return self._moderate(found, histories, "history {}")

    def _moderate(self, found: npt.NDArray[np.float32], rows: SparseRows, name: str) -> npt.NDArray[np.float32]:
        """What was found for these rows, unless it has numbers from which no scores can be made."""
        fine = np.abs(found).max(axis=1, initial=0) < _MOST
        if fine.all():
            return found
        k, rate = int(np.argmin(fine)), getattr(self, "learning_rate", None)
        values = rows.take(np.array([k])).values
        most = 1.0 if values is None else float(values.max())
        raise DataError(
            f"{name.format(k)} folds in to numbers that are not finite, or nearly so: its weights, up to {most:.3g}, "
            f"are too large{'' if rate is None else f' for learning_rate={rate:g}'}; take smaller weights, or "
            "weighting='log'"
        )

    def fold_in(
        self,
        history: History,
        *,
        confidence: Confidence | None = None,
        unknown: Unknown = "raise",
        threads: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Embeddings of contexts that need not have been in the training data, from their histories (section 6.3).

        The context's part of the loss that the model was fitted with is minimised, the items being as they are. Under a
        square loss that is exact: over all pairs (`IALS` and its like) a context of the training data gets the row that
        `fit` ended with, and with sampled negatives (`SquareMF`) the minimum of the mean over all draws. `SoftmaxMF`
        stops near the minimum. Other models that learn from sampled negatives take `fold_in_epochs` passes with falling
        steps, which end some way from it. (Who had which features, or which parts a context has beside the first, a
        history does not say: where there are such, a training context's row is not that of its history.) For every
        model:

        * The answer is float32, contexts × d, a row a history; rows of an empty history are zero, and zero scores mean
          the popular items.
        * A row depends on the items of its history and their weights: not on their order, the other histories, the
          threads, or when it is asked for. Repeated items add up.
        * Weights count as in training: not at all with `weighting="binary"`. Those so large that a row would not be
          finite are refused.
        * Items that are known by their features only, as `add_items` makes them, count as had, with the embedding that
          their features give them; nobody is taken to have passed them over.

        Args:
            history: one history per context: item ids, {id: weight}, or `Interactions`.
            confidence: for each history {item: a number from 0 to 1}, which part of it is left, 1 where it is not
                named. A pair of confidence g is g parts observed and 1 − g parts unobserved: it counts g times its α,
                whatever the `weighting`, and g wherever the loss counts a context's pairs (λ_c, ω_c); with
                `convention="total"` it has 1 − g times the weight of an unobserved pair beside that. 0 is as if the
                item were not in the history, and an item fades to that: under square losses and the softmax to the same
                row, where negatives are sampled to one that differs by what was drawn, which depends on all items that
                are named. `UserState` lets events fade by it.
            unknown: items that are not known `"raise"` an error, or are passed over (`"skip"`).
            threads: how many to use; all CPUs by default.

        >>> import shortlist as sl
        >>> events = sl.datasets.load("online-retail").interactions
        >>> model = sl.IALS(dim=8, epochs=2).fit(events)
        >>> model.fold_in([events.history(12347), []]).shape
        (2, 8)
        """
        rows = self._queries(None, history, unknown).histories
        if confidence is not None:
            rows = self._with_confidence(rows, confidence, unknown)
        with blas_threads(threads):
            return self._folded(rows, threads)

    def _with_confidence(self, rows: SparseRows, confidence: Confidence, unknown: Unknown) -> SparseRows:
        """The rows with these confidences, and without what has none."""
        expected = "one {item: confidence} per history"
        if isinstance(confidence, str | bytes | Mapping):
            raise SettingError(f"confidence is {confidence!r:.80}; expected {expected}")
        listed = as_list(confidence, f"{expected} as confidence")
        if len(listed) != rows.n_rows:
            raise SettingError(
                f"confidence has {count(len(listed), 'entry', 'entries')} for "
                f"{count(rows.n_rows, 'history', 'histories')}; expected {expected}"
            )
        found = np.ones(len(rows), np.float32)
        for r, one in enumerate(listed):
            if not isinstance(one, Mapping):
                raise SettingError(f"confidence {r} is {one!r:.80}; expected {{item: a number from 0 to 1}}")
            codes = self.items_.encode(list(one), unknown="mark" if unknown == "skip" else "raise", what="item")
            values = as_floats(one)
            if not ((values >= 0) & (values <= 1)).all():
                raise DataError(f"confidence {r}: expected numbers from 0 to 1; got {dict(one)!r:.200}")
            row = rows.row(r)
            at = np.minimum(np.searchsorted(row, codes), max(0, len(row) - 1))
            there = row[at] == codes if len(row) else np.zeros(len(codes), np.bool_)
            if not (there | (codes < 0)).all():
                stray = list(one)[int(np.argmin(there | (codes < 0)))]
                raise DataError(f"confidence {r} names the item {stray!r}, which is not in the history; leave it out")
            found[rows.indptr[r] + at[there]] = values[there]
        return replace(rows, confidence=found).settled()

    def fold_in_items(
        self,
        contexts: Sequence[Iterable[Id] | Mapping[Id, float]],
        *,
        unknown: Unknown = "raise",
        threads: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Embeddings of items that need not have been in the training data, from the contexts that had them.

        The item's part of the loss is minimised, the contexts being as they are, exactly: ⟨φ(c), ψ⟩ is the score that
        context c would give such an item. An item that nobody had is zero. Models that learn from sampled negatives
        refuse: what an item loses as a negative depends on how often it is drawn, and one that is not there never is;
        their `partial_fit` learns new items, as that of the others does.

        Args:
            contexts: for each item the ids of its contexts, or {id: weight}.
            unknown: contexts that are not known `"raise"` an error, or are passed over (`"skip"`).
            threads: how many to use; all CPUs by default.
        """
        self._require_fit()
        one_of("unknown", unknown, ("raise", "skip"))
        expected = "a list with the contexts of each item"
        refuse_frame("contexts", contexts, "the context ids of each item, in a list of their own")
        if isinstance(contexts, str | bytes | Mapping):
            raise SettingError(f"contexts is {contexts!r:.80}; expected {expected}")
        way_out = "pass unknown='skip' to leave them out"
        listed = as_list(contexts, expected)
        rows = rows_of_lists(listed, self.contexts_, unknown, "contexts of item {}", "context", way_out)
        with blas_threads(threads), np.errstate(over="ignore", invalid="ignore"):
            return self._moderate(self._fold_in_items(rows, threads), rows, "item {}")

    @abstractmethod
    def _fold_in_items(self, rows: SparseRows, threads: int | None = None) -> npt.NDArray[np.float32]:
        """Embeddings of items that these contexts had, the contexts being as they are: see `fold_in_items`.

        Or a `SettingError`, where the loss does not say what would become of an item that was not there.
        """

    def _recommend_from(
        self,
        embeddings: npt.NDArray[np.float32],
        histories: SparseRows,
        n: int,
        *,
        exclude_seen: bool = True,
        allow: ItemLists | None = None,
        deny: ItemLists | None = None,
        slate: Slate | None = None,
        index: Index | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
    ) -> Recommendations:
        """`recommend` for contexts of which the embeddings are known, and what they have had; by an index, if any."""
        n = whole("n", n)
        memory_bytes(memory)  # whether it is one, also where an index has no use for it
        if slate is not None:
            check_slate(slate)
        labels = QueryLabels(None, np.arange(len(embeddings), dtype=np.int32))
        queries = Queries(labels, None, histories, np.ones(len(embeddings), np.bool_))
        if index is not None:
            from shortlist.recommenders.index import index_of

            return index_of(index, self)._answer(queries, embeddings, n, exclude_seen, allow, deny, slate, threads)
        filters = self._filters(queries, exclude_seen, allow, deny)
        with blas_threads(threads):
            scorer = DotProductScorer(embeddings, self.item_embeddings_)
            return self._search(scorer, n, queries, filters, memory, threads, slate=slate)

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
                `lists`, `probes` for "ivf-flat"; `M`, `ef_construction`, `ef_search` for "hnsw"; `space` for faiss's.

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
        return DotProductScorer(self._folded(queries.histories, threads), self.item_embeddings_)

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

    def _largest(self) -> float:
        return longest(self.context_embeddings_) * longest(self.item_embeddings_)


def longest(vectors: npt.NDArray[np.float32]) -> float:
    """The greatest Euclidean length of a row."""
    return float(np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64).max()))
