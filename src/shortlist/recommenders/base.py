"""The base class of all recommenders: settings in the constructor, learned state with a trailing `_`, answers by id."""

from __future__ import annotations

import copy
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import Parameter, Signature, signature
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import flag, integer, memory_bytes, one_of
from shortlist._fork import require_polars_threads
from shortlist._phrases import count, format_settings, join_words, n_of, suggest
from shortlist._renamed import attribute_of, new_settings
from shortlist._threads import Step, blas_threads
from shortlist.data.features.table import Features
from shortlist.data.id_lists import as_list, is_frame
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.splits import Split
from shortlist.data.unchecked_rows import UncheckedRows
from shortlist.data.vocabulary import Codes, Id, Unknown, Vocabulary, is_id
from shortlist.errors import DataError, NotFittedError, SettingError, ShortlistWarning, StorageError, UnknownIdError
from shortlist.objectives.weighting import Weighting, strengths
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.fit_progress import Monitor, watched
from shortlist.recommenders.given import (
    ANY,
    EACH,
    SKIP,
    Advice,
    as_rows,
    check_unknown,
    refuse_frame,
    rows_of_lists,
    summed_rows,
)
from shortlist.recommenders.recommendations import QueryLabels, Recommendations
from shortlist.recommenders.search_space import Space
from shortlist.recommenders.unused_settings import refuse_unused, unused_weights
from shortlist.retrieval import Filters, item_ranks, top_n
from shortlist.retrieval.slates.base import Catalogue, Slate, check_slate
from shortlist.scoring import BlockScorer
from shortlist.solvers.epochs import Callback

if TYPE_CHECKING:
    from shortlist.data.mapped_ids import MappedIds
    from shortlist.storage import StoredModel

History: TypeAlias = Sequence[Iterable[Id] | Mapping[Id, float]] | Interactions
_BLOCK = 1 << 20  # scores computed at a time
_OF_EMBEDDINGS = ("index", "fold_in", "fold_in_items")  # methods of `DotProduct` only
FLOAT32_MAX = float(np.finfo(np.float32).max)
ItemLists: TypeAlias = Iterable[Id] | Sequence[Iterable[Id]]


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries in codes: known contexts, or histories of any users."""

    labels: QueryLabels
    codes: Codes | None
    histories: SparseRows
    known: npt.NDArray[np.bool_]  # for each requested query, whether it is in here; the others were skipped
    skipped: list[Id] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, which: npt.NDArray[Any]) -> Queries:
        """Return the queries at these positions."""
        labels = replace(self.labels, codes=self.labels.codes[which])
        codes = None if self.codes is None else self.codes[which]
        return Queries(labels, codes, self.histories.take(which), np.ones(len(labels), np.bool_))


class _TakesOldNames(ABCMeta):
    """Metaclass whose constructors accept old names of settings, and raise SettingError for unknown ones."""

    if not TYPE_CHECKING:  # type checkers and `help` see the signature of the constructor

        def __call__(cls, *args, **settings):
            settings = new_settings(cls, settings)
            cls._refuse_unknown(args, settings)
            return super().__call__(*args, **settings)

        def _refuse_unknown(cls, args, settings):
            parameters = signature(cls).parameters
            kinds = {parameter.kind for parameter in parameters.values()}
            if args and kinds <= {Parameter.KEYWORD_ONLY}:
                like = f": pass {next(iter(parameters))}=…, for example" if parameters else ""
                raise SettingError(f"{cls.__name__} takes settings by name only{like}; got {args[0]!r:.80}")
            unknown = [name for name in settings if name not in parameters]
            if unknown and Parameter.VAR_KEYWORD not in kinds:
                name = unknown[0]
                raise SettingError(f"{cls.__name__} has no setting {name!r:.80}; {suggest(name, parameters)}")

        @property
        def __signature__(cls):
            _, *settings = signature(cls.__init__).parameters.values()  # without self
            return Signature(settings)


@dataclass(kw_only=True, repr=False, eq=False)
class Recommender(metaclass=_TakesOldNames):
    """Base class of all recommenders.

    A subclass defines `_fit`, `_scorer` and the names of its learned arrays.
    """

    _arrays: ClassVar[tuple[str, ...]] = ()  # learned arrays, each saved under its name
    _in_epochs: ClassVar[bool] = False  # whether it learns in epochs and so has the setting `epochs`
    _described: ClassVar[bool] = False  # whether it also learns from features
    _derivable: ClassVar[dict[str, Any]] = {}  # settings that may be None, with valid values for the checks of settings
    # Attributes that a loaded model computes or checks when they are first used, with the methods that set them.
    _on_first_use: ClassVar[dict[str, str]] = {
        "seen_": "_check_seen",
        "popularity_": "_set_popularity",
        "_priority": "_set_popularity",
    }

    def __post_init__(self) -> None:
        self.derived_: dict[str, Any] = {}
        self._fitted = False
        self._unchecked_seen: UncheckedRows | None = None
        self._check_settings()

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name in self._on_first_use and vars(self).get("_fitted"):
                try:
                    getattr(self, self._on_first_use[name])()
                except (TypeError, ValueError, OverflowError, IndexError) as error:
                    who = type(self).__name__
                    raise StorageError(f"this {who} is damaged: {error!s:.300}; load it with verify=True") from error
                return vars(self)[name]
            if name in _OF_EMBEDDINGS:
                raise AttributeError(
                    f"{type(self).__name__} has no embeddings, so it has no {name}; use recommend", name=name, obj=self
                )
            return getattr(self, attribute_of(type(self), name))

    # --- what a recommender defines ----------------------------------------------------------------------------------

    @abstractmethod
    def _check(self) -> None:
        """Raise SettingError for invalid settings."""

    def _unused(self) -> dict[str, str]:
        """Return the settings that have no effect given the other settings, as {name: reason}."""
        return {}

    def _unused_inputs(self, interactions: Interactions, options: FitOptions) -> list[str]:
        """Return a warning for each input that this fit ignores."""
        return unused_weights(self, interactions)

    def _fit_warnings(self) -> list[str]:
        """Return a warning for each sign that the fitted model is poor."""
        return []

    def _derive(self, interactions: Interactions, options: FitOptions) -> dict[str, Any]:
        """Compute settings that are None from the data, as {name: value}."""
        return {}

    def _check_settings(self) -> None:
        unset = {name: value for name, value in self._derivable.items() if getattr(self, name) is None}
        filled = copy.copy(self)
        vars(filled).update(unset)
        filled._check()
        refuse_unused(self, {name: why for name, why in filled._unused().items() if name not in unset})

    @classmethod
    def space(cls) -> Space:
        """Return the default search space of `shortlist.tune`: the settings worth tuning and their ranges."""
        return {}

    def _ending_at(self, epoch: int) -> dict[str, Any]:
        """Return the settings with which a fit from scratch ends with the model of this epoch."""
        return {"epochs": epoch}

    @abstractmethod
    def _fit(self, interactions: Interactions, options: FitOptions, monitor: Monitor, threads: int | None) -> None:
        """Learn, and set the learned arrays at the end."""

    @abstractmethod
    def _scorer(self, queries: Queries, threads: int | None = None) -> BlockScorer:
        """Return a scorer of all items for these queries."""

    def _similarity(self, codes: Codes) -> BlockScorer:
        """Return a scorer of the similarity of all items to these items."""
        raise SettingError(f"{type(self).__name__} cannot find similar items")

    @property
    def _item_vectors(self) -> npt.NDArray[np.float32] | None:
        """The vectors by which slates compare items; if None, slates compare them by the contexts that had them."""
        return None

    @abstractmethod
    def _check_arrays(self) -> None:
        """Check the shapes of loaded arrays. The methods of `_on_first_use` compute what is derived from them."""

    def _largest(self) -> float:
        """Return a bound on the scores and on all intermediate numbers; NaN or infinite if one of them is."""
        return 0.0

    # --- fitting -----------------------------------------------------------------------------------------------------

    def fit(
        self,
        interactions: Interactions,
        *,
        validation: Split | None = None,
        metric: str = "ndcg@20",
        patience: int = 3,
        every: int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        start: Recommender | None = None,
        context_features: Features | None = None,
        item_features: Features | None = None,
        callbacks: Callback | Sequence[Callback] = (),
        progress: bool | None = None,
        threads: int | None = None,
    ) -> Self:
        """Learn from interactions and return the recommender itself.

        `validation`, `checkpoint` and `start` are for recommenders that learn in epochs; the others refuse them.

        Args:
            interactions: the observed events.
            validation: a split; pass its `train` as `interactions`. `fit` evaluates the model on it while it learns and
                keeps the model of the best epoch; `best_epoch_` is the number of that epoch. Each evaluation is of the
                model that `fit` would return if it stopped there.
            metric: the metric that decides which epoch is best, such as "ndcg@20"; see `shortlist.metrics`. `metric`,
                `patience` and `every` need `validation`.
            patience: stop after this many evaluations without improvement.
            every: evaluate after every `every` epochs. The default is 1; for models that learn from sampled negatives,
                such as `BPR`, it is 5, because their epochs are short.
            checkpoint: a folder for the state of the fit, written after each epoch. A later `fit` with the same
                settings and data resumes from it and returns the same model as a fit without interruption. Only
                `epochs` may be larger. The folder stays after the last epoch; delete it when you no longer need it.
            start: a fitted model whose embeddings are the start values, matched by id.
            context_features: features of contexts, for `FactorizationMachine` and `FeatureIALS`; others refuse them.
                Contexts that have features but no events become known too.
            item_features: features of items, for the same models. Items that have features but no events become part
                of the catalogue.
            callbacks: a function or a list of functions, called with an `Epoch` after each epoch. Recommenders that do
                not learn in epochs never call them.
            progress: show a progress bar; by default only if standard error is a terminal.
            threads: number of threads; all CPUs by default. The result does not depend on it, with one exception:
                models that learn from sampled negatives (except with the softmax loss) run threads without locks, so
                they repeat exactly only with the same seed and `threads=1`.
        """
        options = FitOptions(
            validation,
            metric,
            patience,
            every,
            checkpoint,
            start,
            context_features=context_features,
            item_features=item_features,
        )
        if not self._in_epochs:
            options.refuse_for(type(self).__name__)
        options.refuse_without_validation()
        if not self._described:
            options.refuse_features(type(self).__name__)
        self._check_events(interactions, "fit")
        for message in self._unused_inputs(interactions, options):
            warnings.warn(message, ShortlistWarning, stacklevel=2)
        self._learn(interactions, options, "fit", callbacks, progress, threads)
        for message in self._fit_warnings():
            warnings.warn(message, ShortlistWarning, stacklevel=2)
        return self

    def _learn(
        self,
        interactions: Interactions,
        options: FitOptions,
        who: str,
        callbacks: Callback | Sequence[Callback],
        progress: bool | None,
        threads: int | None,
        step: Step | None = None,
    ) -> Self:
        self._check_events(interactions, who)
        self._check_settings()  # they may have changed since the constructor checked them
        expected = "a function that takes an Epoch, or a list of them, as callbacks"
        listeners = [callbacks] if callable(callbacks) else as_list(callbacks, expected)
        if not all(map(callable, listeners)):
            raise SettingError(f"expected {expected}, got {callbacks!r:.80}")
        model = copy.copy(self)  # a fit that fails must leave self unchanged
        if options.start is not self:  # partial_fit keeps its derived settings
            model._settle(interactions, options)
        derived = f"{format_settings(model.derived_)}, from the data" if model.derived_ else ""
        with watched(type(self).__name__, listeners, progress, derived) as monitor, blas_threads(threads):
            model._fit(interactions, options, monitor if step is None else replace(monitor, step=step), threads)
            model._remember(interactions)
            model._refuse_diverged()
        vars(self).update(vars(model))
        return self

    def _settle(self, interactions: Interactions, options: FitOptions) -> None:
        """Derive the settings that are not set; settings that an earlier fit derived are derived again."""
        vars(self).update(self._unset())
        values = self._derive(interactions, options)
        self.derived_ = {name: values[name] for name in self._derivable if getattr(self, name) is None}
        vars(self).update(self.derived_)

    def _unset(self) -> dict[str, None]:
        """Return {name: None} for the settings that a fit derived and that were not set afterwards."""
        return {name: None for name, value in self.derived_.items() if getattr(self, name) == value}

    def _given(self) -> dict[str, Any]:
        """Return the constructor's arguments as they were given, None for derived settings."""
        return self.settings() | self._unset()

    @staticmethod
    def _check_events(interactions: Interactions, who: str) -> None:
        if not isinstance(interactions, Interactions):
            raise DataError(
                f"{who} expects Interactions, got {type(interactions).__name__}; create them with "
                "Interactions.from_frame, .read or .from_csr"
            )
        if not len(interactions):
            raise DataError("there are no events to learn from")

    def _remember(self, interactions: Interactions) -> None:
        """Keep the parts of the data that answers need."""
        self.contexts_ = interactions.contexts
        self.items_ = interactions.items
        self.seen_, self._unchecked_seen = interactions.by_context, None
        self._set_popularity()
        self._fitted = True

    def _refuse_diverged(self) -> None:
        """Refuse a model whose scores may overflow; `load` would refuse it too."""
        largest = self._bound()
        if not largest <= FLOAT32_MAX:
            remedies = {"learning_rate": "a smaller learning_rate", "regularization": "another regularization"}
            ways = [text for name, text in remedies.items() if hasattr(self, name)]
            raise SettingError(
                f"the fit diverged: scores could reach {largest:.2g}, but float32 ends at 3.4e+38; try "
                f"{', '.join([*ways, 'settings nearer to their defaults, or smaller weights'])}"
            )

    def _set_popularity(self) -> None:
        self.popularity_ = self.seen_.column_counts()
        # Ties go to the more popular item, so an empty history gets the popular items.
        order = np.argsort(-self.popularity_, kind="stable")
        self._priority = np.empty(len(order), np.int32)
        self._priority[order] = np.arange(len(order), dtype=np.int32)

    def _require_fit(self) -> None:
        if not self._fitted:
            raise NotFittedError(f"this {type(self).__name__} has not been fitted; call its fit(interactions) first")

    # --- answers -----------------------------------------------------------------------------------------------------

    def recommend(
        self,
        contexts: Iterable[Id] | None = None,
        n: int = 10,
        *,
        history: History | None = None,
        exclude_seen: bool = True,
        allow: ItemLists | None = None,
        deny: ItemLists | None = None,
        unknown: Unknown = "raise",
        slate: Slate | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
    ) -> Recommendations:
        """Return the n best items of the whole catalogue for each context or each history.

        Ties are ordered by popularity, so an empty history gets the popular items.

        Args:
            contexts: ids of contexts from the training data, as a list or as a frame with their columns (polars,
                pandas, Arrow, or {column: ids}). Models of contexts with several parts, such as (user, weekday), also
                accept unseen combinations of known parts.
            n: number of items per list. A list is shorter only if the filters leave fewer items.
            history: used instead of `contexts`, for users who need not be in the training data. A list with one history
                per query, each a list of item ids or {id: weight}; or `Interactions`. Weights count as in training:
                with `weighting="binary"` they are ignored.
            exclude_seen: drop the items of the context's training history, or of the given history. For contexts with
                several parts, only items seen in exactly the same combination are dropped; use `deny` to drop more.
            allow: recommend only these items: one list for all queries, or one list per query. Unknown ids are ignored.
            deny: never recommend these items: one list for all queries, or one list per query. Unknown ids are ignored.
            unknown: what to do with unknown contexts and with unknown items of a history: `"raise"` an error, or
                `"skip"` them. Skipped contexts are listed in the result's `skipped`. Models of contexts with several
                parts also accept `"average"` if at least one part is known: an unknown part, such as a weekday, then
                counts as the average of all known weekdays, or adds nothing in a `FactorizationMachine`.
            slate: a method that picks the n items from a larger pool of best items, for diversity or calibration: for
                example `shortlist.slates.MMR(0.3)`. Filters apply to the pool. Items are in the order in which they
                were picked, with the model's scores, so scores may rise along a list.
            memory: memory limit for blocks of scores, in bytes or as text such as "256MB".
            threads: number of threads; all CPUs by default.
        """
        n = integer("n", n)
        if slate is not None:
            check_slate(slate)
        queries = self._queries(contexts, history, unknown)
        filters = self._filters(queries, exclude_seen, allow, deny)
        with blas_threads(threads):
            return self._answer(queries, filters, n, slate, memory, threads)

    def _answer(
        self,
        queries: Queries,
        filters: Filters,
        n: int,
        slate: Slate | None,
        memory: int | str | None,
        threads: int | None,
    ) -> Recommendations:
        return self._search(self._scorer(queries, threads), n, queries, filters, memory, threads, slate=slate)

    def _search(
        self,
        scorer: BlockScorer,
        n: int,
        queries: Queries,
        filters: Filters,
        memory: int | str | None,
        threads: int | None,
        answer: str | None = None,
        slate: Slate | None = None,
    ) -> Recommendations:
        n = min(n, len(self.items_))
        codes, scores = top_n(
            scorer,
            n if slate is None else slate.depth(n, len(self.items_)),
            filters=filters,
            priority=self._priority,
            memory=memory_bytes(memory),
            threads=threads,
        )
        if slate is not None:
            codes, scores = self._slate(slate, codes, scores, queries, n, memory, threads)
        return Recommendations(queries.labels, self.items_, codes, scores, answer=answer, skipped=queries.skipped)

    def _slate(
        self,
        slate: Slate,
        codes: Codes,
        scores: npt.NDArray[np.floating[Any]],
        queries: Queries,
        n: int,
        memory: int | str | None = None,
        threads: int | None = None,
    ) -> tuple[Codes, npt.NDArray[Any]]:
        """Let a slate pick n items from the pool of each query."""
        catalogue = Catalogue(self.seen_, self._item_vectors)
        histories, budget = queries.histories, memory_bytes(memory)
        return slate.pick(codes, scores, n, catalogue=catalogue, histories=histories, memory=budget, threads=threads)

    def score(
        self,
        contexts: Iterable[Id] | None,
        items: Sequence[Iterable[Id]],
        *,
        history: History | None = None,
        unknown: Unknown = "raise",
    ) -> list[npt.NDArray[np.float32]]:
        """Return the scores of given items, one array per context or per history.

        Args:
            contexts: ids of contexts from the training data, or None if `history` is given.
            items: one list of item ids per query.
            history: used instead of `contexts`, as in `recommend`.
            unknown: `"raise"`, or `"average"` for models of contexts with several parts, as in `recommend`.
        """
        queries = self._every_query(contexts, history, unknown)
        codes = self._item_lists(items, len(queries))
        return self._scores(queries, codes)

    def _scores(self, queries: Queries, codes: Sequence[Codes]) -> list[npt.NDArray[np.float32]]:
        scorer = self._scorer(queries)
        size = max(1, min(len(codes), _BLOCK // max(1, scorer.n_items)))
        block = np.empty((size, scorer.n_items), np.float32)
        out: list[npt.NDArray[np.float32]] = []
        for start in range(0, len(codes), size):
            stop = min(start + size, len(codes))
            scorer.score(slice(start, stop), slice(0, scorer.n_items), block[: stop - start])
            out += [row[item_codes] for row, item_codes in zip(block, codes[start:stop])]
        return out

    def rank(
        self,
        contexts: Iterable[Id] | None,
        items: Sequence[Iterable[Id]],
        *,
        history: History | None = None,
        exclude_seen: bool = False,
        allow: ItemLists | None = None,
        deny: ItemLists | None = None,
        unknown: Unknown = "raise",
        memory: int | str | None = None,
        threads: int | None = None,
    ) -> list[npt.NDArray[np.int64]]:
        """Return the ranks of given items in the whole catalogue, r̂(i|c) in the article; the best item has rank 1.

        With filters, ranks are among the items that remain: with the same filters the k-th item of `recommend` has
        rank k, and an item that is filtered out has rank 0.

        Args:
            contexts: ids of contexts from the training data, or None if `history` is given.
            items: one list of item ids per query.
            history: used instead of `contexts`, as in `recommend`.
            exclude_seen: drop the items of the history, as in `recommend`; here the default is False.
            allow: rank only these items, as in `recommend`.
            deny: drop these items, as in `recommend`.
            unknown: `"raise"`, or `"average"` for models of contexts with several parts, as in `recommend`.
            memory: memory limit for blocks of scores, in bytes or as text such as "256MB".
            threads: number of threads; all CPUs by default.
        """
        queries = self._every_query(contexts, history, unknown)
        codes = self._item_lists(items, len(queries))
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in codes])]).astype(np.int64)
        flat = np.concatenate(codes) if codes else np.empty(0, np.int32)
        filters = self._filters(queries, exclude_seen, allow, deny)
        with blas_threads(threads):
            ranks, _ = item_ranks(
                self._scorer(queries, threads),
                (indptr, flat),
                filters=filters,
                priority=self._priority,
                memory=memory_bytes(memory),
                threads=threads,
            )
        return [ranks[start:stop] for start, stop in pairwise(indptr)]

    def similar_items(
        self,
        items: Iterable[Id],
        n: int = 10,
        *,
        allow: ItemLists | None = None,
        deny: ItemLists | None = None,
        unknown: Unknown = "raise",
        memory: int | str | None = None,
        threads: int | None = None,
    ) -> Recommendations:
        """Return the n items most similar to each given item, the item itself excluded.

        Args:
            items: item ids from the training data, as a list or a frame.
            n: number of items per list.
            allow: return only these items, as in `recommend`.
            deny: never return these items, as in `recommend`.
            unknown: what to do with unknown items: `"raise"` an error, or `"skip"` them.
            memory: memory limit for blocks of scores, in bytes or as text such as "256MB".
            threads: number of threads; all CPUs by default.
        """
        self._require_fit()
        n = integer("n", n)
        items = as_rows(items, self.items_, "items")
        codes, known, skipped = self._known(self.items_, items, unknown, "item", SKIP)
        themselves = SparseRows(np.arange(len(codes) + 1, dtype=np.int64), codes, None, len(self.items_))
        queries = Queries(QueryLabels(self.items_, codes), None, themselves, known, skipped)
        filters = self._filters(queries, True, allow, deny)
        answer = f"similar_{self.items_.names[0]}"
        return self._search(self._similarity(codes), n, queries, filters, memory, threads, answer)

    # --- queries as codes --------------------------------------------------------------------------------------------

    def _queries(
        self, contexts: Iterable[Id] | None, history: History | None, unknown: Unknown, advice: Advice = ANY
    ) -> Queries:
        self._require_fit()
        if (contexts is None) == (history is None):
            raise SettingError("pass either contexts (ids from the training data) or history=, exactly one of the two")
        if history is not None:
            return self._history_queries(history, unknown, advice.items)
        assert contexts is not None
        contexts = as_rows(contexts, self.contexts_, "contexts")
        codes, known, skipped = self._known(self.contexts_, contexts, unknown, "context", advice.contexts)
        return Queries(QueryLabels(self.contexts_, codes), codes, self._histories(codes), known, skipped)

    @property
    def _composes(self) -> bool:
        """Whether the model composes contexts of their parts, so that it can answer unseen combinations."""
        return False

    def _context_codes(self, contexts: pl.DataFrame, way_out: str) -> Codes:
        """Return the codes of contexts; −1 for contexts that are new but can be answered from their parts."""
        return self.contexts_.encode(contexts, what="context", way_out=way_out)

    def _answerable(self, contexts: pl.DataFrame) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """Return the codes of contexts, −1 for new ones, and which of them can be answered."""
        codes = self.contexts_.encode(contexts, unknown="mark")
        return codes, codes >= 0

    def _histories(self, codes: Codes) -> SparseRows:
        """Return the training histories of these contexts; empty for code −1."""
        if not (codes < 0).any():
            unchecked = self._unchecked_seen
            return self.seen_.take(codes) if unchecked is None else unchecked.take(codes)
        seen = self.seen_
        longer = SparseRows(np.append(seen.indptr, seen.indptr[-1]), seen.indices, seen.values, seen.n_columns)
        return longer.take(np.where(codes < 0, seen.n_rows, codes))

    def _every_query(self, contexts: Iterable[Id] | None, history: History | None, unknown: Unknown) -> Queries:
        """Return queries for a method that must answer all of them, because each has a list of items."""
        one_of("unknown", unknown, ("raise", "average"))
        return self._queries(contexts, history, unknown, EACH)

    @staticmethod
    def _known(
        vocabulary: Vocabulary, ids: Iterable[Id], unknown: Unknown, what: str, way_out: str
    ) -> tuple[Codes, npt.NDArray[np.bool_], list[Id]]:
        """Return the codes of the known ids, a mask of the known ids, and the skipped ids."""
        check_unknown(unknown)
        if not isinstance(ids, str | bytes | int | np.integer | tuple | pl.Series | np.ndarray):
            ids = as_list(ids, f"a list of {what}s")
        codes = vocabulary.encode(ids, unknown="mark" if unknown == "skip" else "raise", what=what, way_out=way_out)
        known = codes >= 0
        return codes[known], known, [] if known.all() else [id_ for id_, kept in zip(ids, known) if not kept]

    def _history_queries(self, history: History, unknown: Unknown, way_out: str = SKIP) -> Queries:
        one_of("unknown", unknown, ("raise", "skip"))
        refuse_frame("history", history, "convert it with Interactions.from_frame(frame, context=…, item=…)")
        if isinstance(history, Interactions):
            labels = QueryLabels(history.contexts, np.arange(history.n_contexts, dtype=np.int32))
            rows = self._with_own_items(history.by_context, history.items, unknown, way_out)
        else:
            if isinstance(history, str | bytes | int | np.integer | Mapping):
                single = history if isinstance(history, Mapping) else [history]
                raise SettingError(
                    f"history is {history!r}; expected a list with one history per query: write history={[single]!r}"
                )
            histories = as_list(history, "a list with one history per query")
            labels = QueryLabels(None, np.arange(len(histories), dtype=np.int32))
            rows = rows_of_lists(histories, self.items_, unknown, "history {}", "item", way_out)
        return Queries(labels, None, rows, np.ones(len(labels), np.bool_))

    def _with_own_items(self, rows: SparseRows, items: Vocabulary, unknown: Unknown, way_out: str = SKIP) -> SparseRows:
        """Recode rows of another item vocabulary to this model's items."""
        if items is self.items_ or items == self.items_:
            return rows
        codes: Codes = self.items_.encode(items.frame, unknown="mark")[rows.indices]
        known = codes >= 0
        if not known.all() and unknown == "raise":
            first = items.ids([rows.indices[int(np.argmin(known))]])[0]
            raise UnknownIdError(
                f"unknown item {first!r} in a history ({n_of(int((~known).sum()), len(codes), 'event')} unknown; the "
                f"model knows {count(len(self.items_), 'item')}); {way_out}"
            )
        row_of = np.repeat(np.arange(rows.n_rows, dtype=np.int32), rows.lengths)
        values = rows.values
        if not known.all():
            codes, row_of, values = codes[known], row_of[known], None if values is None else values[known]
        return summed_rows(row_of, codes, values, rows.n_rows, len(self.items_))

    def _item_lists(self, items: Sequence[Iterable[Id]], n_queries: int) -> list[Codes]:
        refuse_frame("items", items, "one list of item ids per query")
        lists = as_list(items, "one list of items per query")
        if len(lists) != n_queries:
            raise SettingError(
                f"{count(len(lists), 'list')} of items for {count(n_queries, 'query', 'queries')}; "
                "expected one list per query"
            )
        for ids in lists:
            refuse_frame("a list of items", ids, "pass its column of item ids")
        lists = [ids if isinstance(ids, str | bytes | int) else as_list(ids, "a list of items") for ids in lists]
        return [self.items_.encode(ids, what="item", way_out=EACH.items) for ids in lists]

    def _filters(
        self, queries: Queries, exclude_seen: bool, allow: ItemLists | None, deny: ItemLists | None
    ) -> Filters:
        exclude = (queries.histories.indptr, queries.histories.indices) if flag("exclude_seen", exclude_seen) else None
        allow_all, allow_rows = self._filter_codes("allow", allow, queries.known)
        deny_all, deny_rows = self._filter_codes("deny", deny, queries.known)
        if deny_rows is not None:
            exclude = _merged(exclude, deny_rows)
        return Filters(exclude=exclude, deny=deny_all, allow=allow_all, allow_rows=allow_rows)

    def _filter_codes(
        self, name: str, given: ItemLists | None, answered: npt.NDArray[np.bool_]
    ) -> tuple[Codes | None, tuple[npt.NDArray[np.int64], Codes] | None]:
        """Encode a filter: one list for all queries, or one per query, of which only answered ones are kept.

        Unknown ids are ignored, since they cannot be recommended anyway; ids of a wrong type are an error.
        """
        if given is None:
            return None, None
        if isinstance(given, str | bytes | int | Mapping) or is_frame(given):
            raise SettingError(f"{name} is {given!r:.80}; expected a list of item ids, or one such list per query")
        entries = as_list(given, f"a list of item ids as {name}")
        nested = [isinstance(entry, Iterable) and not isinstance(entry, str | bytes) for entry in entries]
        if any(nested) and not all(nested):
            raise SettingError(f"{name} mixes ids and lists of ids; expected a list of ids, or one list per query")
        if not any(nested):
            return self._known_items(name, entries), None
        for ids in entries:
            refuse_frame(f"a list of {name}", ids, "pass its column of item ids")
        if len(entries) != len(answered):
            raise SettingError(
                f"{name} has {count(len(entries), 'list')} for {count(len(answered), 'query', 'queries')}; "
                "expected one per query"
            )
        rows = [self._known_items(name, as_list(ids, "a list")) for ids, kept in zip(entries, answered) if kept]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return None, (indptr, np.concatenate([np.empty(0, np.int32), *rows]))

    def _known_items(self, name: str, ids: list[Id]) -> Codes:
        codes = self.items_.encode(ids, unknown="mark")
        text = self.items_.dtypes[0] == pl.String
        for id_ in ids:
            if not is_id(id_) or isinstance(id_, str) != text:
                expected = "text" if text else "integers"
                raise UnknownIdError(f"{name}: {id_!r} is of type {type(id_).__name__}, but item ids are {expected}")
        return codes[codes >= 0]

    # --- storage -----------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments; after `fit`, settings that were None have their derived values."""
        values = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        values = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
        return {name: str(value) if isinstance(value, str) else value for name, value in values.items()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model with its ids to a directory; `shortlist.load` reads it back.

        An existing model in that directory is replaced in one step: after a crash it holds either the old model or the
        new one. A checkpoint of a fit is never replaced. A model that `load` would refuse is refused before anything
        is written.
        """
        from shortlist.recommenders.checkpoint import refuse_checkpoint
        from shortlist.recommenders.registry import require_loadable, require_registered, restored
        from shortlist.storage import save_model

        require_polars_threads("saving a model")
        stored = self._stored()
        require_registered(self)
        require_loadable(path, stored, restored)
        refuse_checkpoint(path)
        save_model(path, stored)

    def _stored(self) -> StoredModel:
        """Return the model as settings, arrays and tables; `registry.restored` builds it again."""
        self._require_fit()
        self._check_settings()
        from shortlist.storage import StoredModel

        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in self._arrays}
        arrays["seen.indptr"] = self.seen_.indptr
        arrays["seen.indices"] = self.seen_.indices
        if self.seen_.values is not None:
            arrays["seen.values"] = self.seen_.values
        arrays["popularity"], arrays["priority"] = self.popularity_, self._priority
        tables: dict[str, pl.DataFrame | MappedIds] = {"contexts": self.contexts_.frame, "items": self.items_.frame}
        for name, vocabulary in (("contexts", self.contexts_), ("items", self.items_)):
            if vocabulary.is_large:
                arrays[f"{name}.hashes"], arrays[f"{name}.codes"] = vocabulary.index.hashes, vocabulary.index.codes
        extra = {"derived": list(self.derived_)} if self.derived_ else {}
        stored = StoredModel(type(self).__name__, self.settings(), arrays, tables, extra)
        self._store_more(stored)
        return stored

    def _store_more(self, stored: StoredModel) -> None:
        """Add what a subclass stores in addition, such as features."""
        return

    def _restore_more(self, stored: StoredModel) -> None:
        """Read what `_store_more` added, and remove all of it from `stored`."""
        return

    def _restore(self, stored: StoredModel, contexts: Vocabulary, items: Vocabulary, verify: bool) -> None:
        """Take learned state from storage and check that it fits together.

        Names, dtypes and shapes are checked at once; everything else only if `verify` is set, or when it is first used.
        """
        arrays = stored.arrays
        required = {"seen.indptr", "seen.indices", *self._arrays}
        if missing := sorted(required - arrays.keys()):
            raise StorageError(f"the model lacks the arrays {', '.join(missing)}")
        if surplus := sorted(arrays.keys() - required - {"seen.values", "popularity", "priority"}):
            raise StorageError(
                f"the model has arrays that {type(self).__name__} does not use: {', '.join(surplus):.200}"
            )
        if not len(contexts) or not len(items):
            raise StorageError(
                f"it has {len(contexts)} contexts and {len(items)} items; a fitted model has at least one of each"
            )
        self.contexts_, self.items_ = contexts, items
        self._unchecked_seen = UncheckedRows.of(arrays, len(contexts), len(items))
        for name in self._arrays:
            setattr(self, name, arrays[name])
        if "popularity" in arrays or "priority" in arrays:  # earlier versions did not store them
            for name, dtype in {"popularity": np.int64, "priority": np.int32}.items():
                array = arrays.get(name)
                if array is None or array.dtype != dtype or array.shape != (len(items),):
                    raise StorageError(f"its {name} does not have one {np.dtype(dtype)} for each item")
            self.popularity_, self._priority = arrays["popularity"], arrays["priority"]
        self._fitted = True
        self._check_arrays()
        if verify:
            self._verify()

    def _check_seen(self) -> None:
        """Check all histories of a loaded model; until then `_histories` checks the rows that it returns."""
        unchecked = self._unchecked_seen
        if unchecked is not None:
            self.seen_, self._unchecked_seen = unchecked.checked(), None

    def _verify(self) -> None:
        """Check all numbers of a loaded model."""
        self._check_seen()
        self._check_popularity()
        with np.errstate(over="ignore", invalid="ignore"):
            for name, method in self._on_first_use.items():
                if name not in vars(self):
                    getattr(self, method)()
        if self.seen_.values is not None and len(self.seen_) and self.seen_.values.min() < 0:
            raise StorageError(
                "the model's histories do not fit its contexts and items: a weight is "
                f"{self.seen_.values.min()}; expected weights ≥ 0"
            )
        largest = self._bound()
        if not largest <= FLOAT32_MAX:
            raise StorageError(
                f"its numbers are too large: scores could reach {largest:.2g}, but float32 ends at 3.4e+38"
            )

    def _check_popularity(self) -> None:
        """Compare the stored popularity, if there is one, with the histories."""
        before = {name: array for name, array in vars(self).items() if name in ("popularity_", "_priority")}
        self._set_popularity()
        if not all(np.array_equal(array, getattr(self, name)) for name, array in before.items()):
            raise StorageError("its popularity or priority of items does not match its histories")
        vars(self).update(before)

    def _require_shape(self, name: str, shape: tuple[int, ...]) -> None:
        array = getattr(self, name)
        if array.shape != shape or array.dtype != np.float32:
            raise StorageError(f"array {name} is {array.dtype} {array.shape}; expected float32 {shape}")

    def _strongest(self, weighting: Weighting) -> float:
        """Return a bound on the sum of the strengths of a history."""
        return float(strengths(self.seen_.values, weighting).max(initial=1)) * float(self.seen_.lengths.max())

    def _bound(self) -> float:
        """Return `_largest` without NumPy's overflow warnings."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._largest()

    def __repr__(self) -> str:
        state = ""
        if self._fitted:
            state = f" fitted on {count(len(self.contexts_), 'context')} × {count(len(self.items_), 'item')}"
            if self.derived_:
                state += f", {join_words(self.derived_)} from the data"
        return f"{type(self).__name__}({format_settings(self.settings())}){state}"


def _merged(
    first: tuple[npt.NDArray[np.int64], Codes] | None, second: tuple[npt.NDArray[np.int64], Codes]
) -> tuple[npt.NDArray[np.int64], Codes]:
    """Join the entries of both, row by row."""
    if first is None:
        return second
    rows = [
        np.concatenate([first[1][a:b], second[1][c:d]])
        for (a, b), (c, d) in zip(pairwise(first[0]), pairwise(second[0]))
    ]
    return first[0] + second[0], np.concatenate([np.empty(0, np.int32), *rows])


def largest_of(*numbers: float) -> float:
    """Return the largest number, or NaN if any is NaN (`max` may ignore NaN).

    >>> largest_of(1.0, float("nan"))
    nan
    """
    return float(np.max(numbers))
