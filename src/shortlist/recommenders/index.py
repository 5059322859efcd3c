"""An index over a model's items that is asked by ids, as the model itself is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from shortlist._checks import flag, one_of, whole
from shortlist._compile_notes import silent
from shortlist.data.id_lists import as_list, is_frame
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Id, Unknown
from shortlist.errors import SettingError, ShortlistWarning
from shortlist.recommenders.base import History, ItemLists, Queries
from shortlist.recommenders.fit_progress import is_shown
from shortlist.recommenders.recommendations import QueryLabels, Recommendations
from shortlist.retrieval.filters import Filters
from shortlist.retrieval.indexes import IndexMeasurements, VectorIndex, make_index
from shortlist.retrieval.indexes.partition import Advance
from shortlist.retrieval.slates.base import Slate, check_slate

if TYPE_CHECKING:
    from shortlist.recommenders.dot_product import DotProduct

MOST_QUERIES = 4096  # contexts from which those to measure with are drawn


class Index:
    """The best items for a context, faster than by scoring all of them; made by `model.index(...)`.

    It belongs to the model as it was when the index was made, and never changes: any number of threads may ask it at
    once. After a new fit, make a new one and put it in the old one's place.

    Attributes:
        measured: recall and time a query on contexts of the model, beside exact search; see `IndexMeasurements`.
        why: why this kind, with these settings.
    """

    def __init__(self, model: DotProduct, vectors: VectorIndex, why: str, item_mask: Filters | None = None) -> None:
        self._model, self._items, self._contexts = model, model.item_embeddings_, model.context_embeddings_
        self._vocabulary = model.items_
        self._index = vectors
        self._filters = item_mask
        self.why = why

    @property
    def kind(self) -> str:
        """Its name: "exact", "quantized", "ivf-flat", "ivf-pq" or "hnsw"."""
        return self._index.kind

    @property
    def settings(self) -> dict[str, Any]:
        """What a search does, by name."""
        return self._index.settings

    @property
    def measured(self) -> IndexMeasurements | None:
        """What was measured when it was made; None for a model without contexts to measure with."""
        return self._index.measured

    @property
    def vectors(self) -> VectorIndex:
        """The index without ids: arrays in, arrays out."""
        return self._index

    def __len__(self) -> int:
        return self._index.n_items

    def only(self, allow: Iterable[Id] | None = None, deny: Iterable[Id] | None = None) -> Index:
        """The same index for part of the catalogue: what is in stock, what may be shown in a country.

        `allow` and `deny` are as in `search`, here for all searches that follow: they are looked up once, which with
        many items takes longer than a search. Both indexes share all else. Unknown ids are passed over.

        >>> from shortlist import IALS, datasets
        >>> model = IALS(dim=16, epochs=2).fit(datasets.load("online-retail").interactions)
        >>> index = model.index("exact")
        >>> best = index.search([12347], n=3).ids[0]
        >>> index.only(deny=best[:1]).search([12347], n=2).ids[0] == best[1:]
        True
        """
        found = self._narrowed(_common(self._model, allow, deny))
        return Index(self._model, self._index, self.why, found.with_item_mask(len(self)))

    def _narrowed(self, filters: Filters) -> Filters:
        """Filters of a question, and those that stand."""
        own = self._filters
        if own is None:
            return filters
        if filters.allow is None and filters.deny is None:
            return replace(own, exclude=filters.exclude, allow_rows=filters.allow_rows)
        allows = [one for one in (own.allow, filters.allow) if one is not None]
        denies = [one for one in (own.deny, filters.deny) if one is not None]
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
        """The n best items for each query: what `model.recommend` answers, as far as the index finds it.

        Args:
            queries: contexts of the model by their ids; or vectors, an array of floating point numbers with a row for
                each query, such as `model.fold_in` gives.
            n: how many items; fewer come back only where the filters leave fewer, as in `recommend`.
            contexts: another name for queries that are ids, as in `recommend`.
            history: instead of queries: the items each one has had, who is then folded in.
            exclude_seen: leave out what the context, or the history, has had. Vectors have had nothing.
            allow: recommend only these items: one list for all, or one per query.
            deny: never recommend these: one list for all, or one per query.
            unknown: what to do about contexts, or items of a history, that are not known: as in `recommend`.
            slate: pick the n out of more, for diversity or calibration: see `shortlist.slates`.
            threads: how many to use; all CPUs by default.
        """
        n = whole("n", n)
        if slate is not None:
            check_slate(slate)
        if contexts is not None:
            if queries is not None or _are_vectors(contexts):
                raise SettingError("pass either queries (ids or vectors) or contexts=, ids from the training data")
            queries = contexts
        self._require_same_model()
        model = self._model
        if _are_vectors(queries):
            one_of("unknown", unknown, ("raise", "skip", "average"))
            if history is not None:
                raise SettingError("pass either vectors or history=, one of the two")
            asked, vectors = _vector_queries(queries, len(self)), queries
        else:
            asked = model._queries(queries, history, unknown)
            vectors = model._scorer(asked, threads).contexts
        return self._answer(asked, vectors, n, exclude_seen, allow, deny, slate, threads)

    def _answer(
        self,
        asked: Queries,
        vectors: npt.NDArray[Any],
        n: int,
        exclude_seen: bool,
        allow: ItemLists | None,
        deny: ItemLists | None,
        slate: Slate | None,
        threads: int | None,
    ) -> Recommendations:
        """What is found for queries whose embeddings are known."""
        model, exclude_seen = self._model, flag("exclude_seen", exclude_seen)
        n = min(n, len(self))
        most = n if slate is None else slate.depth(n, len(self))
        codes, scores = self._found(vectors, most, model._filters(asked, exclude_seen, allow, deny), threads)
        if slate is not None:
            codes, scores = model._slate(slate, codes, scores, asked, n, threads=threads)
        self._require_same_model()  # nor has it changed meanwhile, while filters and answers were looked up in it
        return Recommendations(asked.labels, self._vocabulary, codes, scores, skipped=asked.skipped)

    def _found(
        self, vectors: npt.NDArray[Any], n: int, filters: Filters, threads: int | None
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Codes and scores, filters that stand included."""
        self._require_same_model()
        return self._index.search(vectors, n, self._narrowed(filters), threads=threads)

    def _require_same_model(self) -> None:
        model = self._model
        if model.item_embeddings_ is not self._items or model.context_embeddings_ is not self._contexts:
            raise SettingError(
                "the model has been fitted again, or got new items, since this index was made; make a new one with "
                "model.index(...)"
            )

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value}" for name, value in (self._index.built | self.settings).items())
        item_mask = None if self._filters is None else self._filters.item_mask
        part = "" if item_mask is None else f", of which {item_mask.share:.1%} may be returned"
        size = f"{len(self):,} items × {self._index.dim}"
        of = f"Index({self.kind!r}{settings}) of {type(self._model).__name__}, {size}{part}"
        return of if self.measured is None else f"{of}\n  {self.measured}\n  {self.why}"


def index_of(index: object, model: object) -> Index:
    """The index, if it is one of this model."""
    if not isinstance(index, Index):
        raise SettingError(f"index is {index!r:.80}; expected what index(...) of the model gives")
    if index._model is not model:
        raise SettingError("the index is of another model; make one with index(...) of this one")
    return index


def model_index(
    model: DotProduct,
    kind: str,
    target_recall: float,
    n: int,
    seed: int,
    progress: bool | None,
    threads: int | None,
    settings: dict[str, Any],
) -> Index:
    """An index over the model's items, measured on its contexts."""
    model._require_fit()
    rng = np.random.default_rng([whole("seed", seed, least=0), 128])
    drawn = np.sort(rng.permutation(len(model.context_embeddings_))[:MOST_QUERIES])
    with _told(progress) as (advance, tell):
        made, why = make_index(
            kind,
            model.item_embeddings_,
            model.context_embeddings_[drawn],
            target_recall=target_recall,
            n=n,
            priority=model._priority,
            seed=seed,
            threads=threads,
            advance=advance,
            settings=settings,
        )
        index = Index(model, made, why)
        tell(repr(index))
    short = index.measured is not None and index.measured.recall < target_recall - 3 * index.measured.stderr
    if short and "as asked for" not in why:
        import warnings

        warnings.warn(
            f"recall@{index.measured.n} is {index.measured.recall:.4f}, below the {target_recall:g} aimed at: "  # type: ignore[union-attr]
            f"{why}; take another kind, or 'auto'",
            ShortlistWarning,
            stacklevel=3,
        )
    return index


def _common(model: DotProduct, allow: Iterable[Id] | None, deny: Iterable[Id] | None) -> Filters:
    """Filters for everybody."""
    codes = []
    for name, given in (("allow", allow), ("deny", deny)):
        # `_filter_codes` says what is wrong.
        wrong = given is None or is_frame(given) or isinstance(given, str | bytes | int | Mapping)
        ids = given if wrong else as_list(given, f"a list of item ids as {name}")
        if not wrong and any(isinstance(one, Iterable) and not isinstance(one, str | bytes) for one in ids or ()):
            raise SettingError(f"{name} is a list of lists; here it is one list of item ids, for all queries")
        codes.append(model._filter_codes(name, ids, np.zeros(0, np.bool_))[0])
    return Filters(allow=codes[0], deny=codes[1])


def _are_vectors(queries: object) -> TypeGuard[npt.NDArray[Any]]:
    """Whether these are vectors, and not ids."""
    if isinstance(queries, list | tuple) and len(queries) and isinstance(queries[0], np.ndarray):
        raise SettingError("vectors are given as one array with a row for each query: np.stack(vectors)")
    if not isinstance(queries, np.ndarray) or queries.dtype.kind != "f":
        return False
    if queries.ndim != 2:
        raise SettingError(
            f"vectors have the shape {queries.shape}; expected a row for each query: one is vector[None]"
        )
    return True


def _vector_queries(vectors: npt.NDArray[Any], n_items: int) -> Queries:
    labels = QueryLabels(None, np.arange(len(vectors), dtype=np.int32), name="query")
    nothing = SparseRows(np.zeros(len(vectors) + 1, np.int64), np.empty(0, np.int32), None, n_items)
    return Queries(labels, None, nothing, np.ones(len(vectors), np.bool_))


@contextmanager
def _told(progress: bool | None) -> Iterator[tuple[Advance, Any]]:
    """Who is told what is being done, and who is told the result; unless `progress` is False, standard error."""
    shown = is_shown(progress)
    shower = _shown() if shown else nullcontext(((lambda _: None), (lambda _: None)))
    with silent(progress is not None and not shown), shower as told:
        yield told


@contextmanager
def _shown() -> Iterator[tuple[Advance, Any]]:
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
