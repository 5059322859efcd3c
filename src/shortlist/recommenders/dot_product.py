"""Recommenders whose score is an inner product of a context's and an item's embedding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import one_of
from shortlist._kernel_views import for_kernels
from shortlist._phrases import count
from shortlist._threads import blas_threads
from shortlist._wording import Message
from shortlist.data.id_lists import as_list
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Codes, Id, Unknown
from shortlist.errors import DataError, SettingError, StorageError
from shortlist.ranking.inputs import SKIP, History, as_floats, histories_of_lists, refuse_frame
from shortlist.ranking.queries import Queries
from shortlist.recommenders.base import Recommender
from shortlist.scoring import DotProductScorer

if TYPE_CHECKING:
    from shortlist.ranking.index import Index

Confidence: TypeAlias = Sequence[Mapping[Id, float]]
_MOST = 1e30  # largest allowed number in a folded-in embedding, so that scores are finite


@dataclass(kw_only=True, repr=False, eq=False)
class DotProduct(Recommender):
    """Base class of recommenders with embeddings: ŷ(i|c) = ⟨φ(c), ψ(i)⟩.

    `context_embeddings_` is contexts × d and `item_embeddings_` is items × d, in the order of `contexts_` and `items_`.
    """

    _arrays: ClassVar[tuple[str, ...]] = ("context_embeddings_", "item_embeddings_")

    context_embeddings_: ClassVar[npt.NDArray[np.float32]]
    item_embeddings_: ClassVar[npt.NDArray[np.float32]]

    @property
    def latent_dim(self) -> int:
        """The number of columns without the biases, which come last."""
        return int(self.item_embeddings_.shape[1])

    # --- new contexts and items ---------------------------------------------------------------------------------------

    @abstractmethod
    def _fold_in(self, histories: SparseRows, threads: int | None = None) -> npt.NDArray[np.float32]:
        """Return embeddings of contexts with these histories, with the items fixed; see `fold_in`.

        A row must not depend on the other rows or on the threads, must be zero for an empty history, and must respect
        `histories.confidence`.
        """

    def _folded(self, histories: SparseRows, threads: int | None = None) -> npt.NDArray[np.float32]:
        """Call `_fold_in`; raise DataError if the weights of a history make its row overflow."""
        with np.errstate(over="ignore", invalid="ignore"), _solvable():
            embeddings = self._fold_in(histories, threads)
        return self._require_finite(embeddings, histories, "history {}")

    def _require_finite(
        self, embeddings: npt.NDArray[np.float32], rows: SparseRows, name: str
    ) -> npt.NDArray[np.float32]:
        """Return the embeddings of these rows; raise DataError if one is too large for finite scores."""
        finite = np.abs(embeddings).max(axis=1, initial=0) < _MOST
        if finite.all():
            return embeddings
        k, rate = int(np.argmin(finite)), getattr(self, "learning_rate", None)
        values = rows.take(np.array([k])).values
        largest = 1.0 if values is None else float(values.max())
        raise DataError(
            f"the embedding of {name.format(k)} would overflow: its weights, up to {largest:.3g}, are too large"
            f"{'' if rate is None else f' for learning_rate={rate:g}'}",
            code="diverged",
            hint=Message("use smaller weights or {weighting}", weighting="log"),
        )

    def fold_in(
        self,
        history: History,
        *,
        confidence: Confidence | None = None,
        unknown: Unknown = "raise",
        threads: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Compute embeddings from histories, for users who need not be in the training data (section 6.3).

        It minimises the context's part of the training loss with the item embeddings fixed. How close it gets depends
        on the loss:

        * Square losses are solved exactly. If the loss is over all pairs, as in `IALS`, a training context gets the
          same row that `fit` gave it. With sampled negatives (`SquareMF`), the row minimises the expected loss.
        * `SoftmaxMF` stops near the minimum.
        * Other models with sampled negatives take `fold_in_epochs` passes with decreasing steps and end some way from
          the minimum.

        For every model:

        * The result is float32, contexts × d, one row per history. An empty history gives a row of zeros, and zero
          scores mean the popular items.
        * A row depends only on the items of its history and their weights, not on their order, the other histories or
          the number of threads. Weights of repeated items add up.
        * Weights count as in training: with `weighting="binary"` they are ignored. Weights so large that a row would
          overflow are refused.
        * A history has no context features, and no parts of a context except the first. For models that use these, the
          row for a training context's history differs from the row that `fit` gave it.
        * Items known only by their features, such as those of `add_items`, count as observed, with the embedding that
          their features give them. They never count as unobserved.

        Args:
            history: one history per context, each a list of item ids or {id: weight}; or `Interactions`.
            confidence: for each history {item: confidence}, with a confidence from 0 to 1; items that are not named
                have 1. A pair with confidence g counts as observed with fraction g and as unobserved with fraction
                1 − g: its α is multiplied by g, whatever the `weighting`, and it counts g where the loss counts a
                context's pairs (λ_c, ω_c). With `convention="total"` it also gets 1 − g times the weight of an
                unobserved pair. Confidence 0 is the same as dropping the item. For models with sampled negatives this
                is only approximately true, because the draws depend on all named items. `UserState` uses confidences to
                let events fade.
            unknown: what to do with unknown items: `"raise"` an error, or `"skip"` them.
            threads: number of threads; all CPUs by default.

        >>> import shortlist as sl
        >>> events = sl.datasets.load("online-retail").interactions
        >>> model = sl.IALS(dim=8, epochs=2).fit(events)
        >>> model.fold_in([events.history(12347), []]).shape
        (2, 8)
        """
        queries = self.queries(None, history, unknown=unknown)
        if confidence is None:
            with blas_threads(threads):
                return self.encode(queries, threads)
        if self.ordered:
            raise SettingError(
                f"{type(self).__name__} reads histories in order, without confidences",
                code="no-effect",
                field="confidence",
                hint="omit confidence",
            )
        rows = self._with_confidence(queries.histories.sets(), confidence, unknown)
        with blas_threads(threads):
            return self._folded(rows, threads)

    def _with_confidence(self, rows: SparseRows, confidence: Confidence, unknown: Unknown) -> SparseRows:
        """Return the rows with these confidences, without items of confidence 0."""
        expected = "one {item: confidence} per history"
        if isinstance(confidence, str | bytes | Mapping):
            raise SettingError(f"confidence is {confidence!r:.80}; expected {expected}", field="confidence")
        entries = as_list(confidence, f"{expected} as confidence", "confidence")
        if len(entries) != rows.n_rows:
            raise SettingError(
                f"confidence has {count(len(entries), 'entry', 'entries')} for "
                f"{count(rows.n_rows, 'history', 'histories')}; expected {expected}",
                field="confidence",
            )
        fractions = np.ones(len(rows), np.float32)
        for r, of_items in enumerate(entries):
            if not isinstance(of_items, Mapping):
                raise SettingError(
                    f"confidence {r} is {of_items!r:.80}; expected {{item: a number from 0 to 1}}", field="confidence"
                )
            codes = self.items_.encode(list(of_items), unknown="mark" if unknown == "skip" else "raise", what="item")
            values = as_floats(of_items)
            if not ((values >= 0) & (values <= 1)).all():
                raise DataError(
                    f"confidence {r}: expected numbers from 0 to 1; got {dict(of_items)!r:.200}", field="confidence"
                )
            row = rows.row(r)
            at = np.minimum(np.searchsorted(row, codes), max(0, len(row) - 1))
            in_row = row[at] == codes if len(row) else np.zeros(len(codes), np.bool_)
            if not (in_row | (codes < 0)).all():
                stray = list(of_items)[int(np.argmin(in_row | (codes < 0)))]
                raise DataError(
                    f"confidence {r} names the item {stray!r}, which is not in the history",
                    hint="drop it",
                    field="confidence",
                )
            fractions[rows.indptr[r] + at[in_row]] = values[in_row]
        return replace(rows, confidence=fractions).settled()

    def fold_in_items(
        self,
        contexts: Sequence[Iterable[Id] | Mapping[Id, float]],
        *,
        unknown: Unknown = "raise",
        threads: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Compute embeddings of items from the contexts that had them; the items need not be in the training data.

        It minimises the item's part of the training loss exactly, with the context embeddings fixed: ⟨φ(c), ψ⟩ is the
        score that context c would give the item. An item without contexts gets zeros.

        Models that learn from sampled negatives refuse: an item's loss as a negative depends on how often it is drawn,
        and a new item is never drawn. Use their `partial_fit` to learn new items.

        Args:
            contexts: for each item the ids of its contexts, or {id: weight}.
            unknown: what to do with unknown contexts: `"raise"` an error, or `"skip"` them.
            threads: number of threads; all CPUs by default.
        """
        self.require_fit()
        one_of("unknown", unknown, ("raise", "skip"))
        expected = "a list with the contexts of each item"
        refuse_frame("contexts", contexts, "one list of context ids per item")
        if isinstance(contexts, str | bytes | Mapping):
            raise SettingError(f"contexts is {contexts!r:.80}; expected {expected}", field="contexts")
        lists = as_list(contexts, expected, "contexts")
        rows = histories_of_lists(lists, self.contexts_, unknown, "contexts of item {}", "context", SKIP).sets()
        with blas_threads(threads), np.errstate(over="ignore", invalid="ignore"), _solvable():
            return self._require_finite(self._fold_in_items(rows, threads), rows, "item {}")

    @abstractmethod
    def _fold_in_items(self, rows: SparseRows, threads: int | None = None) -> npt.NDArray[np.float32]:
        """Return embeddings of items that these contexts had, with the contexts fixed; see `fold_in_items`.

        Raise `SettingError` if the loss does not define this.
        """

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
        """Build an index over the items, for catalogues so large that scoring every item takes too long.

        The recall and speed of the index are measured when it is built, against exact search, with a sample of the
        model's contexts as queries. The attributes `measured` and `why` of the result tell what was measured and why
        these settings were chosen; its `repr` shows both.

        Args:
            kind: "exact"; "quantized", Shortlist's own approximate index; "ivf-flat", "ivf-pq" or "hnsw" of faiss
                (extra `ann`); or "auto": exact for small catalogues, else the fastest kind that reaches
                `target_recall`.
            target_recall: the fraction of the exact top n that the index should find. Search settings that you omit
                are set to the fastest that reach it.
            n: length of the lists whose recall is measured.
            seed: seed of the samples that the index is built from and measured on.
            progress: show the current stage and the result; by default only if standard error is a terminal.
            threads: number of threads; all CPUs by default.
            **settings: settings of the kind. More `probes`, `refine` or `ef_search` give higher recall and slower
                searches.
                * "exact": `precision`. "float32" is the default; with "float16" or "int8", a smaller copy of the items
                  is searched first.
                * "quantized": `lists`, the number of clusters of items; `probes`, the number of blocks of 64 items that
                  a query scans; `refine`: a query for n items computes exact scores for refine · n + 100 candidates.
                * "ivf-flat": `lists` as above; `probes`, the number of clusters that a query searches.
                * "ivf-pq": `lists` and `probes` as for "ivf-flat"; `refine` as for "quantized".
                * "hnsw": `M`, the number of links per item; `ef_construction`, the number of neighbours considered
                  while building; `ef_search`, the number of candidates that a query keeps.
                * every faiss kind: `space`, which is "inner product" or "l2".

        >>> from shortlist import IALS, datasets
        >>> model = IALS(dim=16, epochs=2).fit(datasets.load("online-retail").interactions)
        >>> index = model.index("quantized", probes=10**6, refine=10**6)
        >>> index.search([12347], n=3).ids == model.recommend([12347], n=3).ids
        True
        """
        from shortlist.ranking.index import model_index

        return model_index(self, kind, target_recall, n, seed, progress, threads, settings)

    def encode(self, queries: Queries, threads: int | None = None) -> npt.NDArray[np.float32]:
        """Return the embeddings of queries: those of training contexts, and folded-in histories."""
        if queries.codes is not None:
            return self.context_embeddings_[queries.codes]
        return self._folded(queries.histories.sets(), threads)

    def scorer(self, queries: Queries, threads: int | None = None) -> DotProductScorer:
        """Return a scorer of all items for these queries."""
        return DotProductScorer(self.encode(queries, threads), self.item_embeddings_)

    @property
    def _item_vectors(self) -> npt.NDArray[np.float32]:
        return for_kernels(self.item_embeddings_)[:, : self.latent_dim]  # without biases

    def _similarity(self, codes: Codes) -> DotProductScorer:
        """Return a scorer of the cosine of item embeddings; an item without events has cosine 0 with all items."""
        unit = self.unit_item_vectors()
        return DotProductScorer(unit[codes], unit)

    def unit_item_vectors(self) -> npt.NDArray[np.float32]:
        """Return the item embeddings without biases, scaled to length 1; items without events keep zeros."""
        latent = self._item_vectors
        norms = np.linalg.norm(latent, axis=1, keepdims=True)
        return np.asarray(latent / np.where(norms > 0, norms, 1))

    def _check_arrays(self) -> None:
        shape = self.item_embeddings_.shape
        if len(shape) != 2 or not shape[1]:
            raise StorageError(f"item_embeddings_ has the shape {shape}; expected items × dimensions")
        self._require_shape("item_embeddings_", (len(self.items_), shape[1]))
        self._require_shape("context_embeddings_", (len(self.contexts_), shape[1]))

    def _largest(self) -> float:
        return longest(self.context_embeddings_) * longest(self.item_embeddings_)


@contextmanager
def _solvable() -> Iterator[None]:
    """Turn the failure of a linear system into a StorageError: only damaged models have such systems."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise StorageError(
            f"this model is damaged: folding in failed ({error})",
            code="model-damaged",
            hint="load it with verify=True, or fit it again",
        ) from error


def longest(vectors: npt.NDArray[np.float32]) -> float:
    """Return the largest Euclidean norm of a row."""
    return float(np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64).max()))
