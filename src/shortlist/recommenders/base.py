"""The base class of all recommenders: settings in the constructor, learned state with a trailing `_`, answers by id."""

from __future__ import annotations

import copy
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from inspect import Parameter, Signature, signature
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import one_of
from shortlist._fork import require_polars_threads
from shortlist._phrases import count, format_settings, join_words, suggest
from shortlist._renamed import attribute_of, new_setting, new_settings
from shortlist._threads import Step, blas_threads
from shortlist.data.features.table import Features
from shortlist.data.histories import Histories
from shortlist.data.history_arrays import HISTORIES, histories_of_arrays, ordered_arrays
from shortlist.data.id_lists import as_list
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.splits import Split
from shortlist.data.unchecked_rows import UncheckedRows
from shortlist.data.vocabulary import Codes, Id, Unknown, Vocabulary
from shortlist.errors import DataError, NotFittedError, SettingError, ShortlistWarning, StorageError
from shortlist.objectives.weighting import Weighting, strengths
from shortlist.ranking import engine
from shortlist.ranking.inputs import (
    ANY,
    EACH,
    SKIP,
    Advice,
    History,
    ItemLists,
    as_rows,
    history_queries,
    item_lists,
    known_codes,
)
from shortlist.ranking.protocols import TopItems
from shortlist.ranking.queries import Queries, QueryLabels
from shortlist.ranking.recommendations import Recommendations
from shortlist.ranking.request import Request
from shortlist.recommenders.first_use import first_use
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.fit_progress import Monitor, watched
from shortlist.recommenders.search_space import Space
from shortlist.recommenders.unused_settings import refuse_unused, unused_weights
from shortlist.retrieval import Filters
from shortlist.retrieval.slates.base import Catalogue, Slate
from shortlist.scoring import BlockScorer
from shortlist.solvers.train import Callback, Epoch

if TYPE_CHECKING:
    from shortlist.data.mapped_ids import MappedIds
    from shortlist.storage import StoredModel

_OF_EVERY_MODEL = ("seen.indptr", "seen.indices", "seen.values", "popularity", "priority")  # stored arrays
_OF_EMBEDDINGS = ("index", "fold_in", "fold_in_items")  # methods of `DotProduct` only
FLOAT32_MAX = float(np.finfo(np.float32).max)


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
                message = f"{cls.__name__} has no setting {name!r:.80}; {suggest(name, parameters)}"
                raise SettingError(message, code="unknown-setting", field=name)

        @property
        def __signature__(cls):
            _, *settings = signature(cls.__init__).parameters.values()  # without self
            return Signature(settings)


@dataclass(kw_only=True, repr=False, eq=False)
class Recommender(metaclass=_TakesOldNames):
    """Base class of all recommenders.

    A subclass defines `check_settings`, `learn` and `scorer`, and what is saved: the names of its arrays in `_arrays`,
    or `state_dict` and `load_state_dict`.
    """

    _arrays: ClassVar[tuple[str, ...]] = ()  # learned arrays, each saved under its name
    learns_in_epochs: ClassVar[bool] = False  # whether it learns in epochs and so has the setting `epochs`
    uses_features: ClassVar[bool] = False  # whether it also learns from features
    ordered: ClassVar[bool] = False  # whether the order of a history matters; if not, histories are sets
    derivable: ClassVar[dict[str, Any]] = {}  # settings that may be None, with valid values for the checks of settings
    # Attributes that a loaded model computes or checks when they are first used, with the methods that set them.
    _on_first_use: ClassVar[dict[str, str]] = {
        "seen_": "_check_seen",
        "popularity_": "_set_popularity",
        "item_priority_": "_set_popularity",
    }

    def __post_init__(self) -> None:
        self.derived_: dict[str, Any] = {}
        self._fitted = False
        self._checked: tuple[Any, ...] = ()  # the values of the settings when they were last checked
        self._unchecked_seen: UncheckedRows | None = None
        self.validate_settings()

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name in self._on_first_use and vars(self).get("_fitted"):
                try:
                    with first_use():
                        if name not in vars(self):  # another thread may have been faster
                            getattr(self, self._on_first_use[name])()
                except StorageError as error:
                    raise error.prefixed("", code="model-damaged") from None
                except (TypeError, ValueError, OverflowError, IndexError) as error:
                    who = type(self).__name__
                    raise StorageError(
                        f"this {who} is damaged: {error!s:.300}",
                        code="model-damaged",
                        hint="load it with verify=True",
                    ) from error
                return vars(self)[name]
            if name in _OF_EMBEDDINGS:
                raise AttributeError(
                    f"{type(self).__name__} has no embeddings, so it has no {name}; use recommend", name=name, obj=self
                )
            return getattr(self, attribute_of(type(self), name))

        def __setattr__(self, name, value):
            if name[0] != "_" and name[-1] != "_":
                name = self._settable(name)
            object.__setattr__(self, name, value)

    def _settable(self, name: str) -> str:
        """Return the current name of a public attribute that may be set; else raise SettingError."""
        kind = type(self)
        if name not in _settings_of(kind) and not hasattr(kind, name):
            name = new_setting(kind, name)
            if name not in _settings_of(kind):
                raise SettingError(
                    f"{kind.__name__} has no setting {name!r:.80}; {suggest(name, signature(kind).parameters)}",
                    code="unknown-setting",
                    field=name,
                    hint="Names of other attributes start or end with '_'",
                )
        if name in _settings_of(kind) and vars(self).get("_fitted"):
            raise SettingError(
                f"{name} cannot be set, because this {kind.__name__} is fitted",
                hint=f"fit a new one: {kind.__name__}(**{{**model.settings(), {name!r}: …}}).fit(…)",
                field=name,
            )
        return name

    # --- what a recommender defines ----------------------------------------------------------------------------------

    @abstractmethod
    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""

    def unused_settings(self) -> dict[str, str]:
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

    def validate_settings(self) -> None:
        """Raise SettingError for invalid settings, and for settings that have no effect."""
        unset = {name: value for name, value in self.derivable.items() if getattr(self, name) is None}
        filled = copy.copy(self)
        vars(filled).update(unset)
        filled.check_settings()
        refuse_unused(self, {name: why for name, why in filled.unused_settings().items() if name not in unset})
        self._checked = self._values()

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, setting.name) for setting in fields(self))

    @classmethod
    def space(cls) -> Space:
        """Return the default search space of `shortlist.tune`: the settings worth tuning and their ranges."""
        return {}

    def settings_ending_at(self, epoch: int) -> dict[str, Any]:
        """Return the settings with which a fit from scratch returns the model of this epoch."""
        return {"epochs": epoch}

    @abstractmethod
    def learn(self, interactions: Interactions, options: FitOptions, monitor: Monitor) -> None:
        """Learn, and set the learned state at the end; `options.threads` is the number of threads.

        A recommender that learns in epochs calls `epochs.learn_in_epochs`.
        """

    @abstractmethod
    def scorer(self, queries: Queries, threads: int | None = None) -> BlockScorer:
        """Return a scorer of all items for these queries.

        The histories of the queries are in `queries.histories`: in order if the class is `ordered`, else as sets. Most
        models read `queries.histories.sets()`.
        """

    def _similarity(self, codes: Codes) -> BlockScorer:
        """Return a scorer of the similarity of all items to these items."""
        raise SettingError(f"{type(self).__name__} cannot find similar items")

    @property
    def _item_vectors(self) -> npt.NDArray[np.float32] | None:
        """The vectors by which slates compare items; if None, slates compare them by the contexts that had them."""
        return None

    def _check_arrays(self) -> None:  # there may be nothing to check
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
                `epochs` may be larger. `training_` then lists the earlier epochs too; callbacks see only the new ones.
                (The checkpoint of an epoch is written before its callbacks are called. If the process is killed in
                between, no callback sees that epoch.) The folder stays after the last epoch; delete it when you no
                longer need it.
            start: a fitted model whose embeddings are the start values, matched by id.
            context_features: features of contexts, for `FactorizationMachine` and `FeatureIALS`; others refuse them.
                Contexts that have features but no events become known too.
            item_features: features of items, for the same models. Items that have features but no events become part
                of the catalogue.
            callbacks: a function or a list of functions, called with an `Epoch` after each epoch. If one returns
                `shortlist.STOP`, the fit ends with this epoch. The result is the same as with `epochs` set to this
                epoch's number, except that a schedule of the learning rate still goes by `epochs`. With `validation`,
                the result is the model of the best epoch so far. Other return values are ignored.
                Recommenders that do not learn in epochs never call callbacks.
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
        if not self.learns_in_epochs:
            options.refuse_for(type(self).__name__)
        options.refuse_without_validation()
        if not self.uses_features:
            options.refuse_features(type(self).__name__)
        self._check_events(interactions, "fit")
        for message in self._unused_inputs(interactions, options):
            warnings.warn(message, ShortlistWarning, stacklevel=2)
        self.fit_with(interactions, options, "fit", callbacks, progress, threads)
        for message in self._fit_warnings():
            warnings.warn(message, ShortlistWarning, stacklevel=2)
        return self

    def fit_with(
        self,
        interactions: Interactions,
        options: FitOptions,
        who: str,
        callbacks: Callback | Sequence[Callback],
        progress: bool | None,
        threads: int | None,
        step: Step | None = None,
    ) -> Self:
        """Learn with options that were checked; `fit`, `partial_fit` and `tune` call this.

        Args:
            interactions: the observed events.
            options: validation, checkpoint, start values and features.
            who: the name of the caller for messages.
            callbacks: as in `fit`.
            progress: as in `fit`.
            threads: as in `fit`.
            step: called with the finished parts of the work, by recommenders that do not learn in epochs.
        """
        self._check_events(interactions, who)
        if not _identical(self._checked, self._values()):  # settings were set after the constructor checked them
            self.validate_settings()
        expected = "a function that takes an Epoch, or a list of them, as callbacks"
        listeners = [callbacks] if callable(callbacks) else as_list(callbacks, expected, "callbacks")
        if not all(map(callable, listeners)):
            raise SettingError(f"expected {expected}, got {callbacks!r:.80}", field="callbacks")
        model = copy.copy(self)  # a fit that fails must leave self unchanged
        if options.start is not self:  # partial_fit keeps its derived settings
            model.settle(interactions, options)
        derived = f"{format_settings(model.derived_)}, from the data" if model.derived_ else ""
        with watched(type(self).__name__, listeners, progress, derived) as monitor, blas_threads(threads):
            reported = monitor if step is None else replace(monitor, step=step)
            model.learn(interactions, replace(options, threads=threads), reported)
            model.remember(interactions)
            model._refuse_diverged()
        vars(self).update(vars(model))
        return self

    def settle(self, interactions: Interactions, options: FitOptions) -> None:
        """Derive the settings that are not set; settings that an earlier fit derived are derived again."""
        vars(self).update(self._unset())
        values = self._derive(interactions, options)
        self.derived_ = {name: values[name] for name in self.derivable if getattr(self, name) is None}
        vars(self).update(self.derived_)

    def _unset(self) -> dict[str, None]:
        """Return {name: None} for the settings that a fit derived and that were not set afterwards."""
        return {name: None for name, value in self.derived_.items() if getattr(self, name) == value}

    def given_settings(self) -> dict[str, Any]:
        """Return the constructor's arguments as they were given, None for derived settings."""
        return self.settings() | self._unset()

    @staticmethod
    def _check_events(interactions: Interactions, who: str) -> None:
        if not isinstance(interactions, Interactions):
            raise DataError(
                f"{who} expects Interactions, got {type(interactions).__name__}",
                hint="create them with Interactions.from_frame, .read or .from_csr",
                field="interactions",
            )
        if not len(interactions):
            raise DataError("there are no events to learn from", code="empty-data", field="interactions")

    def remember(self, interactions: Interactions) -> None:
        """Keep the parts of the data that answers need."""
        self.contexts_ = interactions.contexts
        self.items_ = interactions.items
        self.seen_, self._unchecked_seen = interactions.by_context, None
        if self.ordered:
            self.histories_ = interactions.histories
        self._set_popularity()
        self._fitted = True

    def _refuse_diverged(self) -> None:
        """Refuse a model whose scores may overflow; `load` would refuse it too."""
        largest = self._bound()
        if not largest <= FLOAT32_MAX:
            remedies = {"learning_rate": "a smaller learning_rate", "regularization": "another regularization"}
            ways = [text for name, text in remedies.items() if hasattr(self, name)]
            raise SettingError(
                f"the fit diverged: scores could reach {largest:.2g}, but float32 ends at 3.4e+38",
                code="diverged",
                hint=f"try {', '.join([*ways, 'settings nearer to their defaults, or smaller weights'])}",
            )

    def _set_popularity(self) -> None:
        self.popularity_ = self.seen_.column_counts()
        # Ties go to the more popular item, so an empty history gets the popular items.
        order = np.argsort(-self.popularity_, kind="stable")
        priority = np.empty(len(order), np.int32)
        priority[order] = np.arange(len(order), dtype=np.int32)
        self.item_priority_ = priority  # complete: another thread may read it

    @property
    def is_fitted(self) -> bool:
        """Whether the recommender was fitted or loaded."""
        return self._fitted

    def require_fit(self) -> None:
        """Raise NotFittedError before `fit`."""
        if not self._fitted:
            raise NotFittedError(
                f"this {type(self).__name__} has not been fitted", hint="call its fit(interactions) first"
            )

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
        request = Request(
            n=n, exclude_seen=exclude_seen, allow=allow, deny=deny, slate=slate, memory=memory, threads=threads
        )
        return engine.recommend(self, self.queries(contexts, history, unknown=unknown), request)

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
        return engine.scores_of_items(self, queries, item_lists(items, self.items_, len(queries)))

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
        request = Request(exclude_seen=exclude_seen, allow=allow, deny=deny, memory=memory, threads=threads)
        queries = self._every_query(contexts, history, unknown)
        return engine.ranks_of_items(self, queries, item_lists(items, self.items_, len(queries)), request)

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
        self.require_fit()
        request = Request(n=n, allow=allow, deny=deny, memory=memory, threads=threads)
        items = as_rows(items, self.items_, "items")
        codes, known, skipped = known_codes(self.items_, items, unknown, "item", SKIP)
        themselves = SparseRows(np.arange(len(codes) + 1, dtype=np.int64), codes, None, len(self.items_))
        labels = QueryLabels(self.items_, codes)
        queries = Queries(labels, None, Histories.of_sets(themselves), known, skipped)
        with blas_threads(threads):
            lists = engine.best(self, self._similarity(codes), queries, self.filters(queries, request), request)
        name = f"similar_{self.items_.names[0]}"
        return Recommendations(labels, self.items_, *lists, answer=name, skipped=skipped)

    # --- what a ranker answers ---------------------------------------------------------------------------------------

    def queries(
        self,
        contexts: Iterable[Id] | None = None,
        history: History | None = None,
        *,
        unknown: Unknown = "raise",
        advice: Advice = ANY,
    ) -> Queries:
        """Return queries in codes for ids of contexts, or for histories of any users; see `recommend`."""
        self.require_fit()
        if (contexts is None) == (history is None):
            raise SettingError(
                "pass either contexts (ids from the training data) or history=, exactly one of the two",
                field="contexts",
            )
        if history is not None:
            return history_queries(history, self.items_, unknown, ordered=self.ordered, way_out=advice.items)
        assert contexts is not None
        contexts = as_rows(contexts, self.contexts_, "contexts")
        codes, known, skipped = known_codes(self.contexts_, contexts, unknown, "context", advice.contexts)
        return Queries(QueryLabels(self.contexts_, codes), codes, self.histories_of(codes), known, skipped)

    def _every_query(self, contexts: Iterable[Id] | None, history: History | None, unknown: Unknown) -> Queries:
        """Return queries for a method that must answer all of them, because each has a list of items."""
        one_of("unknown", unknown, ("raise", "average"))
        return self.queries(contexts, history, unknown=unknown, advice=EACH)

    @property
    def composes_contexts(self) -> bool:
        """Whether the model answers unseen combinations of known parts of contexts."""
        return False

    def context_codes(self, contexts: pl.DataFrame) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """Return the codes of contexts, −1 for new ones, and which of them the model can answer."""
        codes = self.contexts_.encode(contexts, unknown="mark")
        return codes, codes >= 0

    def histories_of(self, codes: Codes) -> Histories:
        """Return the training histories of contexts; empty for code −1."""
        known = not (codes < 0).any()
        unchecked = self._unchecked_seen
        if known and unchecked is not None and not self.ordered:
            return Histories.of_sets(unchecked.take(codes))
        histories = self.histories_ if self.ordered else Histories.of_sets(self.seen_)
        if known:
            return histories.take(codes)
        return histories.with_empty_row().take(np.where(codes < 0, histories.n_rows, codes))

    def filters(self, queries: Queries, request: Request) -> Filters:
        """Return the filters of a request in codes."""
        return request.filters(queries, self.items_)

    def top(self, queries: Queries, filters: Filters, request: Request) -> TopItems:
        """Return the n best items of each query."""
        return engine.best(self, self.scorer(queries, request.threads), queries, filters, request)

    @property
    def catalogue(self) -> Catalogue:
        """The item data that slates use."""
        return Catalogue(self.seen_, self._item_vectors, self.popularity_)

    # --- storage -----------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments; after `fit`, settings that were None have their derived values."""
        values = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        values = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
        return {name: str(value) if isinstance(value, str) else value for name, value in values.items()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model with its ids to a directory; `shortlist.load` reads it back.

        A model of your own class is loaded with `shortlist.load(path, code=[MyModel])`.

        An existing model in that directory is replaced in one step: after a crash it holds either the old model or the
        new one. A checkpoint of a fit is never replaced. A model that `load` would refuse is refused before anything
        is written.
        """
        from shortlist.recommenders.checkpoint import refuse_checkpoint
        from shortlist.recommenders.restoring import require_loadable, restored
        from shortlist.storage import save_model

        require_polars_threads("saving a model")
        stored = self.to_stored()
        require_loadable(path, stored, partial(restored, type(self)))
        refuse_checkpoint(path)
        save_model(path, stored)

    def to_stored(self) -> StoredModel:
        """Return the model as settings, arrays and tables; `restoring.restored` builds it again."""
        self.require_fit()
        self.validate_settings()
        from shortlist.recommenders.restoring import RESERVED, kind_name
        from shortlist.storage import StoredModel

        arrays = dict(self.state_dict())
        if reserved := [name for name in arrays if name in RESERVED or name.startswith(HISTORIES)]:
            raise StorageError(
                f"state_dict has an array {reserved[0]!r}, a name that Shortlist uses itself",
                code="model-unsupported",
                field=reserved[0],
                hint="rename it",
            )
        arrays["seen.indptr"] = self.seen_.indptr
        arrays["seen.indices"] = self.seen_.indices
        if self.seen_.values is not None:
            arrays["seen.values"] = self.seen_.values
        arrays["popularity"], arrays["priority"] = self.popularity_, self.item_priority_
        if self.ordered:
            arrays.update(ordered_arrays(self.histories_))
        tables: dict[str, pl.DataFrame | MappedIds] = {"contexts": self.contexts_.frame, "items": self.items_.frame}
        for name, vocabulary in (("contexts", self.contexts_), ("items", self.items_)):
            if vocabulary.is_large:
                arrays[f"{name}.hashes"], arrays[f"{name}.codes"] = vocabulary.index.hashes, vocabulary.index.codes
        extra = {"derived": list(self.derived_)} if self.derived_ else {}
        stored = StoredModel(kind_name(type(self)), self.settings(), arrays, tables, extra)
        self.store_more(stored)
        return stored

    def custom_code(self) -> list[str]:
        """Return the names of the user's own classes and functions, which cannot be stored: none."""
        return []

    def store_more(self, stored: StoredModel) -> None:
        """Add what a subclass stores in addition, such as features."""
        return

    def restore_more(self, stored: StoredModel) -> None:
        """Read what `store_more` added, and remove all of it from `stored`."""
        return

    def restore(self, stored: StoredModel, contexts: Vocabulary, items: Vocabulary, verify: bool) -> None:
        """Take learned state from storage and check that it fits together.

        Names, dtypes and shapes are checked at once; everything else only if `verify` is set, or when it is first used.
        """
        arrays = stored.arrays
        if missing := sorted({"seen.indptr", "seen.indices"} - arrays.keys()):
            raise StorageError(f"the model lacks the arrays {', '.join(missing)}")
        state = {name: array for name, array in arrays.items() if name not in _OF_EVERY_MODEL}
        if self.ordered:
            self.histories_ = histories_of_arrays(state, len(contexts), len(items))
        if not len(contexts) or not len(items):
            raise StorageError(
                f"it has {len(contexts)} contexts and {len(items)} items; a fitted model has at least one of each"
            )
        self.contexts_, self.items_ = contexts, items
        self._unchecked_seen = UncheckedRows.of(arrays, len(contexts), len(items))
        if "popularity" in arrays or "priority" in arrays:  # earlier versions did not store them
            for name, dtype in {"popularity": np.int64, "priority": np.int32}.items():
                array = arrays.get(name)
                if array is None or array.dtype != dtype or array.shape != (len(items),):
                    raise StorageError(f"its {name} does not have one {np.dtype(dtype)} for each item")
            self.popularity_, self.item_priority_ = arrays["popularity"], arrays["priority"]
        if self.learns_in_epochs:  # a loaded model does not know its epochs
            self.training_: list[Epoch] = []
            self.best_epoch_: int | None = None
        self._fitted = True
        self.load_state_dict(state)
        if verify:
            self._verify()

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return what was learned: any number of named arrays. By default the attributes that `_arrays` names."""
        return {name: np.ascontiguousarray(getattr(self, name)) for name in self._arrays}

    def load_state_dict(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what `state_dict` returned; refuse missing, extra and wrongly shaped arrays.

        The model has its settings, ids and histories already. Arrays of a loaded model are read-only.
        """
        if missing := sorted(set(self._arrays) - state.keys()):
            raise StorageError(f"the model lacks the arrays {', '.join(missing)}", code="model-damaged")
        if extra := sorted(state.keys() - set(self._arrays)):
            raise StorageError(
                f"the model has arrays that {type(self).__name__} does not use: {', '.join(extra):.200}",
                code="model-damaged",
            )
        for name in self._arrays:
            setattr(self, name, state[name])
        self._check_arrays()

    def _check_seen(self) -> None:
        """Check all histories of a loaded model; until then `histories_of` checks the rows that it returns."""
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
        before = {name: array for name, array in vars(self).items() if name in ("popularity_", "item_priority_")}
        self._set_popularity()
        if not all(np.array_equal(array, getattr(self, name)) for name, array in before.items()):
            raise StorageError("its popularity or priority of items does not match its histories")
        vars(self).update(before)

    def _require_shape(self, name: str, shape: tuple[int, ...]) -> None:
        array = getattr(self, name)
        if array.shape != shape or array.dtype != np.float32:
            raise StorageError(
                f"array {name} is {array.dtype} {array.shape}; expected float32 {shape}", code="model-damaged"
            )

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


def largest_of(*numbers: float) -> float:
    """Return the largest number, or NaN if any is NaN (`max` may ignore NaN).

    >>> largest_of(1.0, float("nan"))
    nan
    """
    return float(np.max(numbers))


def _identical(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return whether both have the same objects; equal ones such as 1 and True may differ in type."""
    return len(first) == len(second) and all(a is b for a, b in zip(first, second))


@cache
def _settings_of(kind: type[Recommender]) -> frozenset[str]:
    return frozenset(setting.name for setting in fields(kind))
