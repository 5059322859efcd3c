"""An index over a model's items, searched by ids like the model itself."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import reduce
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer, one_of
from shortlist._compile_notes import silent
from shortlist._progress import is_shown
from shortlist.data.histories import Histories
from shortlist.data.vocabulary import Id, Unknown
from shortlist.errors import SettingError, ShortlistWarning
from shortlist.ranking.engine import slate_of
from shortlist.ranking.inputs import History, ItemLists, filter_codes, filter_for_all
from shortlist.ranking.protocols import EmbeddingRanker, TopItems
from shortlist.ranking.queries import Queries, QueryLabels
from shortlist.ranking.recommendations import Recommendations
from shortlist.ranking.request import Request
from shortlist.retrieval.filters import Filters
from shortlist.retrieval.indexes import AS_REQUESTED, IndexMeasurements, VectorIndex, make_index
from shortlist.retrieval.indexes.partition import Advance
from shortlist.retrieval.slates.base import Slate

MOST_QUERIES = 4096  # contexts passed to the measurement, which draws its queries from them


class Index:
    """An index that finds the best items for a context without scoring all items; made by `model.index(...)`.

    An index belongs to the state that the model had when the index was made, and never changes. Any number of threads
    may search it at once. After a new fit, make a new index and replace the old one.

    Attributes:
        measured: recall and time per query, compared with exact search on contexts of the model; see
            `IndexMeasurements`.
        why: the reason for this kind and these settings.
    """

    def __init__(
        self, model: EmbeddingRanker, vectors: VectorIndex, why: str, item_mask: Filters | None = None
    ) -> None:
        self.model = model
        self._items, self._vocabulary = model.item_embeddings_, model.items_
        self._index = vectors
        self._filters = item_mask
        self.why = why

    @property
    def kind(self) -> str:
        """The kind of index: "exact", "quantized", "ivf-flat", "ivf-pq" or "hnsw"."""
        return self._index.kind

    @property
    def settings(self) -> dict[str, Any]:
        """The search settings, by name."""
        return self._index.settings

    @property
    def measured(self) -> IndexMeasurements | None:
        """The measurements made when the index was built; None if the model has no contexts to measure with."""
        return self._index.measured

    @property
    def vectors(self) -> VectorIndex:
        """The underlying index, which takes and returns arrays instead of ids."""
        return self._index

    def __len__(self) -> int:
        return self._index.n_items

    def only(self, allow: Iterable[Id] | None = None, deny: Iterable[Id] | None = None) -> Index:
        """Return this index restricted to part of the catalogue, such as the items in stock or allowed in a country.

        The ids are looked up once, not in every search; for many ids the lookup takes longer than a search. The two
        indexes share their data.

        Args:
            allow: return only these items in all searches. Unknown ids are ignored.
            deny: never return these items. Unknown ids are ignored.

        >>> from shortlist import IALS, datasets
        >>> model = IALS(dim=16, epochs=2).fit(datasets.load("online-retail").interactions)
        >>> index = model.index("exact")
        >>> best = index.search([12347], n=3).ids[0]
        >>> index.only(deny=best[:1]).search([12347], n=2).ids[0] == best[1:]
        True
        """
        self._require_same_model()
        nobody = np.zeros(0, np.bool_)
        codes = [
            filter_codes(name, filter_for_all(name, given, "queries"), self._vocabulary, nobody)[0]
            for name, given in (("allow", allow), ("deny", deny))
        ]
        filters = self._combined(Filters(allow=codes[0], deny=codes[1]))
        return Index(self.model, self._index, self.why, filters.with_item_mask(len(self)))

    def _combined(self, filters: Filters) -> Filters:
        """Combine the filters of a search with those of the index."""
        standing = self._filters
        if standing is None:
            return filters
        if filters.allow is None and filters.deny is None:
            return replace(standing, exclude=filters.exclude, allow_rows=filters.allow_rows)
        allows = [codes for codes in (standing.allow, filters.allow) if codes is not None]
        denies = [codes for codes in (standing.deny, filters.deny) if codes is not None]
        return replace(
            filters,
            allow=reduce(np.intersect1d, allows) if allows else None,
            deny=np.concatenate(denies) if denies else None,
        )

    def search(
        self,
        queries: Iterable[Id] | npt.NDArray[Any] | None = None,
        n: int = 10,
        *,
        contexts: Iterable[Id] | None = None,
        history: History | None = None,
        exclude_seen: bool = True,
        allow: ItemLists | None = None,
        deny: ItemLists | None = None,
        unknown: Unknown = "raise",
        slate: Slate | None = None,
        threads: int | None = None,
    ) -> Recommendations:
        """Return the n best items for each query; like `model.recommend`, but an approximate index may miss items.

        Args:
            queries: ids of contexts; or query vectors, a float array with one row per query, such as the result of
                `model.fold_in`.
            n: number of items per list. A list is shorter only if the filters leave fewer items.
            contexts: the same as `queries` for ids, for code that also calls `recommend`.
            history: used instead of `queries`: one history per query, which is folded in; see `recommend`.
            exclude_seen: drop the items of the context's training history, or of the given history. Query vectors have
                no history.
            allow: recommend only these items: one list for all queries, or one list per query.
            deny: never recommend these items: one list for all queries, or one list per query.
            unknown: what to do with unknown contexts and with unknown items of a history, as in `recommend`.
            slate: a method that picks the n items from a larger pool, for diversity or calibration; see
                `shortlist.slates`.
            threads: number of threads; all CPUs by default.
        """
        request = Request(n=n, exclude_seen=exclude_seen, allow=allow, deny=deny, slate=slate, threads=threads)
        if contexts is not None:
            if queries is not None or _are_vectors(contexts):
                raise SettingError(
                    "pass either queries (ids or vectors) or contexts= (ids from the training data), not both",
                    field="contexts",
                )
            queries = contexts
        self._require_same_model()
        if _are_vectors(queries):
            one_of("unknown", unknown, ("raise", "skip", "average"))
            if history is not None:
                raise SettingError("pass either vectors or history=, not both", field="history")
            labels = QueryLabels.numbers(len(queries), "query")
            encoded, vectors = Queries.of(labels, None, Histories.empty(len(queries), len(self))), queries
        else:
            encoded = self.model.queries(queries, history, unknown=unknown)
            vectors = self.model.encode(encoded, threads)
        return self.search_encoded(encoded, vectors, request)

    def search_encoded(self, queries: Queries, vectors: npt.NDArray[Any], request: Request) -> Recommendations:
        """Return the lists for queries in codes whose embeddings are given."""
        filters = self.model.filters(queries, request)
        lists = self.top(vectors, request.depth(len(self)), filters, request.threads)
        if request.slate is not None:
            lists = slate_of(self.model.catalogue, lists, queries.histories, request)
        self._require_same_model()  # another thread may have fitted the model while this one searched
        return Recommendations(queries.labels, self._vocabulary, *lists, skipped=queries.skipped)

    def top(self, vectors: npt.NDArray[Any], n: int, filters: Filters, threads: int | None) -> TopItems:
        """Return the n best items for each vector, under the given filters and those of the index."""
        self._require_same_model()
        return TopItems(*self._index.search(vectors, n, self._combined(filters), threads=threads))

    def _require_same_model(self) -> None:
        if self.model.item_embeddings_ is not self._items:
            raise SettingError(
                "the model was fitted again or got new items after this index was made",
                code="stale-index",
                field="index",
                hint="make a new index with model.index(...)",
            )

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value}" for name, value in (self._index.built | self.settings).items())
        item_mask = None if self._filters is None else self._filters.item_mask
        part = "" if item_mask is None else f", {item_mask.fraction:.1%} of them allowed"
        size = f"{len(self):,} items × {self._index.dim}"
        text = f"Index({self.kind!r}{settings}) of {type(self.model).__name__}, {size}{part}"
        return text if self.measured is None else f"{text}\n  {self.measured}\n  {self.why}"


def index_of(index: object, model: object) -> Index:
    """Return the index if it belongs to this model; else raise SettingError."""
    if not isinstance(index, Index):
        raise SettingError(f"index is {index!r:.80}; expected an Index, made with model.index(...)", field="index")
    if index.model is not model:
        hint = "make one with model.index(...) of this model"
        raise SettingError("the index belongs to another model", code="stale-index", field="index", hint=hint)
    return index


def model_index(
    model: EmbeddingRanker,
    kind: str,
    target_recall: float,
    n: int,
    seed: int,
    progress: bool | None,
    threads: int | None,
    settings: dict[str, Any],
) -> Index:
    """Return an index over the model's items, measured on its contexts."""
    model.require_fit()
    rng = np.random.default_rng([integer("seed", seed, least=0), 128])
    drawn = np.sort(rng.permutation(len(model.contexts_))[:MOST_QUERIES]).astype(np.int32)
    queries = Queries.of(QueryLabels(model.contexts_, drawn), drawn, model.histories_of(drawn))
    with _reporting(progress) as (advance, tell):
        vectors, why = make_index(
            kind,
            model.item_embeddings_,
            model.encode(queries, threads),
            target_recall=target_recall,
            n=n,
            priority=model.item_priority_,
            seed=seed,
            threads=threads,
            advance=advance,
            settings=settings,
        )
        index = Index(model, vectors, why)
        tell(repr(index))
    short = index.measured is not None and index.measured.recall < target_recall - 3 * index.measured.stderr
    if short and why != AS_REQUESTED:
        import warnings

        warnings.warn(
            f"recall@{index.measured.n} is {index.measured.recall:.4f}, below target_recall={target_recall:g}: "  # type: ignore[union-attr]
            f"{why}; try another kind, or 'auto'",
            ShortlistWarning,
            stacklevel=3,
        )
    return index


def _are_vectors(queries: object) -> TypeGuard[npt.NDArray[Any]]:
    """Return whether these are vectors rather than ids."""
    if isinstance(queries, list | tuple) and len(queries) and isinstance(queries[0], np.ndarray):
        raise SettingError(
            "queries is a list of vectors; expected one array with a row for each query: np.stack(vectors)",
            field="queries",
        )
    if not isinstance(queries, np.ndarray) or queries.dtype.kind != "f":
        return False
    if queries.ndim != 2:
        raise SettingError(
            f"vectors have the shape {queries.shape}; expected a row for each query",
            field="queries",
            hint="for a single vector write vector[None]",
        )
    return True


@contextmanager
def _reporting(progress: bool | None) -> Iterator[tuple[Advance, Any]]:
    """Yield functions that report the current stage and the result; they do nothing if progress is not shown."""
    shown = is_shown(progress)
    reporters = _reporters() if shown else nullcontext(((lambda _: None), (lambda _: None)))
    with silent(progress is not None and not shown), reporters as functions:
        yield functions


@contextmanager
def _reporters() -> Iterator[tuple[Advance, Any]]:
    def tell(text: str) -> None:
        sys.stderr.write(text + "\n")

    if not sys.stderr.isatty():
        yield (lambda stage: tell(f"index: {stage}")), tell
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("index: {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield (lambda stage: bar.update(task, description=stage)), lambda text: bar.console.print(text, highlight=False)
