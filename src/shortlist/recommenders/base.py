"""Everything a user fits: settings in the constructor, learnt things with a trailing `_`, answers by ids."""

from __future__ import annotations

import copy
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import Signature, signature
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import flag, memory_bytes, one_of, whole
from shortlist._fork import require_polars_threads
from shortlist._phrases import count, joined, listed
from shortlist._renamed import attribute_of, new_settings
from shortlist._threads import Step, blas_threads
from shortlist.data.features.table import Features
from shortlist.data.id_lists import as_list, is_frame
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows, csr_error
from shortlist.data.splits import Split
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
    from shortlist.storage import StoredModel

History: TypeAlias = Sequence[Iterable[Id] | Mapping[Id, float]] | Interactions
_BLOCK = 1 << 20  # scores at a time
FLOAT32_MAX = float(np.finfo(np.float32).max)
ItemLists: TypeAlias = Iterable[Id] | Sequence[Iterable[Id]]


@dataclass(frozen=True, eq=False)
class Queries:
    """Whom answers are wanted for: known contexts by their codes, or histories of anyone."""

    labels: QueryLabels
    codes: Codes | None
    histories: SparseRows
    known: npt.NDArray[np.bool_]  # which of those asked for are here; the others were skipped
    skipped: list[Id] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, which: npt.NDArray[Any]) -> Queries:
        """Some of them, by their numbers."""
        labels = replace(self.labels, codes=self.labels.codes[which])
        codes = None if self.codes is None else self.codes[which]
        return Queries(labels, codes, self.histories.take(which), np.ones(len(labels), np.bool_))


class _TakesOldNames(ABCMeta):
    """Lets constructors take old names of settings."""

    if not TYPE_CHECKING:  # type checkers and `help` see the signature of the constructor

        def __call__(cls, *args, **settings):
            return super().__call__(*args, **new_settings(cls, settings))

        @property
        def __signature__(cls):
            _, *others = signature(cls.__init__).parameters.values()
            return Signature(others)


@dataclass(kw_only=True, repr=False, eq=False)
class Recommender(metaclass=_TakesOldNames):
    """What every recommender does. A new one defines `_fit`, `_scorer`, and the names of its learnt arrays."""

    _arrays: ClassVar[tuple[str, ...]] = ()  # learnt arrays, each saved under its name
    _in_epochs: ClassVar[bool] = False  # whether it learns in epochs, as its settings then say how many
    _described: ClassVar[bool] = False  # whether it learns from features too
    _derivable: ClassVar[dict[str, Any]] = {}  # settings that may be None; with values that are checked in their place

    def __post_init__(self) -> None:
        self.derived_: dict[str, Any] = {}
        self._fitted = False
        self._check_settings()

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            return getattr(self, attribute_of(type(self), name))

    # --- what a recommender defines ----------------------------------------------------------------------------------

    @abstractmethod
    def _check(self) -> None:
        """Refuse settings that make no sense."""

    def _unused(self) -> dict[str, str]:
        """Settings that change nothing, given what the others are: by name, why."""
        return {}

    def _unused_on(self, interactions: Interactions, options: FitOptions) -> list[str]:
        """What this fit has no use for: a warning each."""
        return unused_weights(self, interactions)

    def _doubts(self) -> list[str]:
        """What came of this fit that its user will hardly want: a warning each."""
        return []

    def _derive(self, interactions: Interactions, options: FitOptions) -> dict[str, Any]:
        """Return the values of settings that are None, from the data: by name."""
        return {}

    def _check_settings(self) -> None:
        left_out = {name: one for name, one in self._derivable.items() if getattr(self, name) is None}
        filled = copy.copy(self)
        vars(filled).update(left_out)
        filled._check()
        refuse_unused(self, {name: why for name, why in filled._unused().items() if name not in left_out})

    @classmethod
    def space(cls) -> Space:
        """The settings worth searching, and where: what `shortlist.tune` begins with."""
        return {}

    def _ending_at(self, epoch: int) -> dict[str, Any]:
        """The settings with which a fit from nothing ends with what was this epoch, where it learns in epochs."""
        return {"epochs": epoch}

    @abstractmethod
    def _fit(self, interactions: Interactions, options: FitOptions, monitor: Monitor, threads: int | None) -> None:
        """Learn, and set the learnt arrays at the end."""

    @abstractmethod
    def _scorer(self, queries: Queries, threads: int | None = None) -> BlockScorer:
        """Scores of all items for these queries, block by block."""

    def _similarity(self, codes: Codes) -> BlockScorer:
        """How near all items are to these items."""
        raise SettingError(f"{type(self).__name__} has no notion of similar items")

    @property
    def _item_vectors(self) -> npt.NDArray[np.float32] | None:
        """By what a slate tells how near items are to each other; by who had them, if None."""
        return None

    @abstractmethod
    def _check_arrays(self) -> None:
        """After loading: refuse arrays whose shapes do not fit together, and derive what is not stored."""

    def _largest(self) -> float:
        """A bound on the scores and on all numbers on the way to them, NaN or infinite where one of them is."""
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

        Validation, checkpoint and start are for recommenders that learn in epochs; others refuse them.

        Args:
            interactions: what was observed.
            validation: a split whose `train` the interactions are. After epochs the model, as it would be if that
                epoch were the last, is evaluated on it; the best epoch's model is what remains, and `best_epoch_`
                tells which one it was.
            metric: by which it is the best, such as "ndcg@20"; see `shortlist.metrics`. Without validation it is
                refused, as are the next two.
            patience: stop after this many evaluations without improvement.
            every: evaluate after every so many epochs; by default after each, and for factorizations by sampling, whose
                epochs are short, after every fifth.
            checkpoint: a folder that gets the state of the fit after each epoch. A later `fit` of the same settings on
                the same data goes on from it, to the very model that would have come without a break; only `epochs`
                may have grown. It stays there after the last epoch; remove it when it is of no more use.
            start: a fitted model to begin from; its embeddings are taken by ids.
            context_features: what is known of contexts, for `FactorizationMachine` and `FeatureIALS`; others refuse it.
                Contexts that have features and no events become known too.
            item_features: likewise of items; those that nobody has had become part of the catalogue.
            callbacks: one or several, called after each epoch with an `Epoch`, where the recommender learns in epochs.
            progress: show a progress bar; by default where standard error is a terminal.
            threads: how many to use; all CPUs by default. The result does not depend on it, but for factorizations by
                sampling, where threads do not wait for each other: with 1 the same seed gives the same model.
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
        for one in self._unused_on(interactions, options):
            warnings.warn(one, ShortlistWarning, stacklevel=2)
        self._learn(interactions, options, "fit", callbacks, progress, threads)
        for one in self._doubts():
            warnings.warn(one, ShortlistWarning, stacklevel=2)
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
        self._check_settings()  # they may have been changed since they were given
        expected = "a function that takes an Epoch, or a list of them, as callbacks"
        listeners = [callbacks] if callable(callbacks) else as_list(callbacks, expected)
        if not all(map(callable, listeners)):
            raise SettingError(f"expected {expected}, got {callbacks!r:.80}")
        model = copy.copy(self)  # self stays as it is until the fit has succeeded
        if options.start is not self:  # which goes on with the settings it has
            model._settle(interactions, options)
        told = f"{listed(model.derived_)}, from the data" if model.derived_ else ""
        with watched(type(self).__name__, listeners, progress, told) as monitor, blas_threads(threads):
            model._fit(interactions, options, monitor if step is None else replace(monitor, step=step), threads)
            model._remember(interactions)
            model._refuse_diverged()
        vars(self).update(vars(model))
        return self

    def _settle(self, interactions: Interactions, options: FitOptions) -> None:
        """Derive the settings that are left out; what an earlier fit derived is derived again."""
        vars(self).update(self._left_out())
        found = self._derive(interactions, options)
        self.derived_ = {name: found[name] for name in self._derivable if getattr(self, name) is None}
        vars(self).update(self.derived_)

    def _left_out(self) -> dict[str, None]:
        """Return None for each setting that a fit derived and nobody has set since."""
        return {name: None for name, value in self.derived_.items() if getattr(self, name) == value}

    def _given(self) -> dict[str, Any]:
        """Return the constructor's arguments as they were given."""
        return self.settings() | self._left_out()

    @staticmethod
    def _check_events(interactions: Interactions, who: str) -> None:
        if not isinstance(interactions, Interactions):
            raise DataError(
                f"{who} takes Interactions, got {type(interactions).__name__}; make them with Interactions.from_frame, "
                ".read or .from_csr"
            )
        if not len(interactions):
            raise DataError("there are no events to learn from")

    def _remember(self, interactions: Interactions) -> None:
        """Keep of the data what answers need."""
        self.contexts_ = interactions.contexts
        self.items_ = interactions.items
        self.seen_ = interactions.by_context
        self._set_popularity()
        self._fitted = True

    def _refuse_diverged(self) -> None:
        """Refuse what was learnt where scores need not be finite; `load` would refuse it too."""
        largest = self._bound()
        if not largest <= FLOAT32_MAX:
            remedies = {"learning_rate": "a smaller learning_rate", "regularization": "another regularization"}
            ways = [text for name, text in remedies.items() if hasattr(self, name)]
            raise SettingError(
                f"the fit diverged: scores could reach {largest:.2g}, and float32 ends at 3.4e+38; take "
                f"{', '.join([*ways, 'settings nearer to their defaults, or smaller weights'])}"
            )

    def _set_popularity(self) -> None:
        self.popularity_ = self.seen_.column_counts()
        # Equal scores go to the more popular item: whoever has no history so gets the popular items.
        order = np.argsort(-self.popularity_, kind="stable")
        self._priority = np.empty(len(order), np.int32)
        self._priority[order] = np.arange(len(order), dtype=np.int32)

    def _require_fit(self) -> None:
        if not self._fitted:
            name = type(self).__name__
            raise NotFittedError(f"this {name} has not been fitted; call {name}(...).fit(interactions) first")

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
        """The n best items of the whole catalogue for each context, or for each history.

        Args:
            contexts: ids of contexts that were in the training data, as a list or as a frame with their columns
                (polars, pandas, Arrow, or {column: ids}). Models of contexts with several parts also answer
                combinations of known parts that were not there.
            n: how many items; fewer come back only where the filters leave fewer.
            history: instead of contexts: for each query the items someone has had, as ids or as {id: weight}, or
                `Interactions`. Nobody needs to have been in the training data. Weights count as in training: not at
                all with `weighting="binary"`.
            exclude_seen: leave out the items of the training data's (or the given) history. Of contexts with several
                parts this is what was seen in the same combination; `deny` leaves out more.
            allow: recommend only these items: one list for all, or one per query. Unknown ids are passed over.
            deny: never recommend these: one list for all, or one per query. Unknown ids are passed over.
            unknown: what to do about contexts, or items of a history, that are not known: `"raise"` an error, or
                `"skip"` them (contexts left out are listed in the answer's `skipped`). Models of contexts with several
                parts also know `"average"`, as long as one part is known: an unknown part counts as an average one, or,
                for a `FactorizationMachine`, for nothing.
            slate: how to pick the n out of more, such as `shortlist.slates.MMR(0.3)`: its pool of best items is
                searched as ever, filters and all, then n of them are picked, in an order of their own. Scores are
                still those of the model, so they need not fall along the list.
            memory: what blocks of scores may take, bytes or text such as "256MB".
            threads: how many to use; all CPUs by default.

        Equal scores are ordered by popularity, so an empty history is answered with the popular items.
        """
        n = whole("n", n)
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
        """The n that a slate picks of the pool of each query, however the pool was found."""
        about = Catalogue(self.seen_, self._item_vectors)
        histories, budget = queries.histories, memory_bytes(memory)
        return slate.pick(codes, scores, n, catalogue=about, histories=histories, memory=budget, threads=threads)

    def score(
        self,
        contexts: Iterable[Id] | None,
        items: Sequence[Iterable[Id]],
        *,
        history: History | None = None,
        unknown: Unknown = "raise",
    ) -> list[npt.NDArray[np.float32]]:
        """The scores of given items, one list of items per context (or per history).

        `unknown` is `"raise"`, or `"average"` for models of contexts with several parts, as in `recommend`.
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
            out += [row[wanted] for row, wanted in zip(block, codes[start:stop])]
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
        """The article's r̂(i|c): the place, from 1, of given items in the whole ranked catalogue.

        One list of items per context (or per history). With filters, the place among the items that they leave: under
        the same filters the k-th recommended item has rank k, and an item that is filtered out has rank 0. `unknown` is
        as in `score`.
        """
        queries = self._every_query(contexts, history, unknown)
        codes = self._item_lists(items, len(queries))
        indptr = np.concatenate([[0], np.cumsum([len(one) for one in codes])]).astype(np.int64)
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
        """The n items nearest to each given item, itself left out. The filters are those of `recommend`."""
        self._require_fit()
        n = whole("n", n)
        items = as_rows(items, self.items_, "items")
        codes, known, skipped = self._known(self.items_, items, unknown, "item", SKIP)
        own = SparseRows(np.arange(len(codes) + 1, dtype=np.int64), codes, None, len(self.items_))
        queries = Queries(QueryLabels(self.items_, codes), None, own, known, skipped)
        filters = self._filters(queries, True, allow, deny)
        answer = f"similar_{self.items_.names[0]}"
        return self._search(self._similarity(codes), n, queries, filters, memory, threads, answer)

    # --- questions into codes ----------------------------------------------------------------------------------------

    def _queries(
        self, contexts: Iterable[Id] | None, history: History | None, unknown: Unknown, advice: Advice = ANY
    ) -> Queries:
        self._require_fit()
        if (contexts is None) == (history is None):
            raise SettingError("pass either contexts (ids from the training data) or history=, one of the two")
        if history is not None:
            return self._history_queries(history, unknown, advice.items)
        assert contexts is not None
        contexts = as_rows(contexts, self.contexts_, "contexts")
        codes, known, skipped = self._known(self.contexts_, contexts, unknown, "context", advice.contexts)
        return Queries(QueryLabels(self.contexts_, codes), codes, self.seen_.take(codes), known, skipped)

    @property
    def _composes(self) -> bool:
        """Whether contexts are made of their parts, so that combinations that were not there can be answered."""
        return False

    def _context_codes(self, contexts: pl.DataFrame, way_out: str) -> Codes:
        """The codes of contexts; −1 for those that were not there in training and can be answered all the same."""
        return self.contexts_.encode(contexts, what="context", way_out=way_out)

    def _answerable(self, contexts: pl.DataFrame) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """The codes of contexts, −1 where they were not there in training, and which of them can be answered."""
        codes = self.contexts_.encode(contexts, unknown="mark")
        return codes, codes >= 0

    def _histories(self, codes: Codes) -> SparseRows:
        """What the contexts with these codes have had; nothing where the code is −1."""
        if not (codes < 0).any():
            return self.seen_.take(codes)
        seen = self.seen_
        longer = SparseRows(np.append(seen.indptr, seen.indptr[-1]), seen.indices, seen.values, seen.n_columns)
        return longer.take(np.where(codes < 0, seen.n_rows, codes))

    def _every_query(self, contexts: Iterable[Id] | None, history: History | None, unknown: Unknown) -> Queries:
        """Queries of which none is left out: each has a list of items."""
        one_of("unknown", unknown, ("raise", "average"))
        return self._queries(contexts, history, unknown, EACH)

    @staticmethod
    def _known(
        vocabulary: Vocabulary, ids: Iterable[Id], unknown: Unknown, what: str, way_out: str
    ) -> tuple[Codes, npt.NDArray[np.bool_], list[Id]]:
        """The codes of the known ids, which ones they are, and the ids that were skipped."""
        check_unknown(unknown)
        if not isinstance(ids, str | bytes | int | np.integer | tuple | pl.Series | np.ndarray):
            ids = as_list(ids, f"a list of {what}s")
        codes = vocabulary.encode(ids, unknown="mark" if unknown == "skip" else "raise", what=what, way_out=way_out)
        known = codes >= 0
        return codes[known], known, [] if known.all() else [one for one, good in zip(ids, known) if not good]

    def _history_queries(self, history: History, unknown: Unknown, way_out: str = SKIP) -> Queries:
        one_of("unknown", unknown, ("raise", "skip"))
        refuse_frame("history", history, "make Interactions.from_frame(frame, context=…, item=…) of it")
        if isinstance(history, Interactions):
            labels = QueryLabels(history.contexts, np.arange(history.n_contexts, dtype=np.int32))
            rows = self._with_own_items(history.by_context, history.items, unknown, way_out)
        else:
            if isinstance(history, str | bytes | int | np.integer | Mapping):
                one = history if isinstance(history, Mapping) else [history]
                raise SettingError(
                    f"history is {history!r}; expected a list with one history per query: write history={[one]!r}"
                )
            listed = as_list(history, "a list with one history per query")
            labels = QueryLabels(None, np.arange(len(listed), dtype=np.int32))
            rows = rows_of_lists(listed, self.items_, unknown, "history {}", "item", way_out)
        return Queries(labels, None, rows, np.ones(len(labels), np.bool_))

    def _with_own_items(self, rows: SparseRows, items: Vocabulary, unknown: Unknown, way_out: str = SKIP) -> SparseRows:
        """Rows over other items, as rows over this model's."""
        if items is self.items_ or items == self.items_:
            return rows
        own: Codes = self.items_.encode(items.frame, unknown="mark")[rows.indices]
        known = own >= 0
        if not known.all() and unknown == "raise":
            first = items.ids([rows.indices[int(np.argmin(known))]])[0]
            raise UnknownIdError(
                f"unknown item {first!r} in a history: {int((~known).sum()):,} of {len(own):,} entries are not in the "
                f"catalogue; {way_out}"
            )
        row_of = np.repeat(np.arange(rows.n_rows, dtype=np.int32), rows.lengths)
        values = rows.values
        if not known.all():
            own, row_of, values = own[known], row_of[known], None if values is None else values[known]
        return summed_rows(row_of, own, values, rows.n_rows, len(self.items_))

    def _item_lists(self, items: Sequence[Iterable[Id]], n_queries: int) -> list[Codes]:
        refuse_frame("items", items, "one list of item ids per query")
        lists = as_list(items, "one list of items per query")
        if len(lists) != n_queries:
            raise SettingError(
                f"{count(len(lists), 'list')} of items for {count(n_queries, 'query', 'queries')}; "
                "expected one list per query"
            )
        for one in lists:
            refuse_frame("a list of items", one, "pass its column of item ids")
        lists = [one if isinstance(one, str | bytes | int) else as_list(one, "a list of items") for one in lists]
        return [self.items_.encode(one, what="item", way_out=EACH.items) for one in lists]

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
        self, name: str, given: ItemLists | None, asked: npt.NDArray[np.bool_]
    ) -> tuple[Codes | None, tuple[npt.NDArray[np.int64], Codes] | None]:
        """One list for all, or one per query. Unknown ids cannot be recommended anyway; a wrong type is a mistake."""
        if given is None:
            return None, None
        if isinstance(given, str | bytes | int | Mapping) or is_frame(given):
            raise SettingError(f"{name} is {given!r:.80}; expected a list of item ids, or one such list per query")
        listed = as_list(given, f"a list of item ids as {name}")
        nested = [isinstance(one, Iterable) and not isinstance(one, str | bytes) for one in listed]
        if any(nested) and not all(nested):
            raise SettingError(f"{name} mixes ids and lists of ids; expected a list of ids, or one list per query")
        if not any(nested):
            return self._known_items(name, listed), None
        for one in listed:
            refuse_frame(f"a list of {name}", one, "pass its column of item ids")
        if len(listed) != len(asked):
            raise SettingError(
                f"{name} has {count(len(listed), 'list')} for {count(len(asked), 'query', 'queries')}; "
                "expected one per query"
            )
        rows = [self._known_items(name, as_list(one, "a list")) for one, known in zip(listed, asked) if known]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return None, (indptr, np.concatenate([np.empty(0, np.int32), *rows]))

    def _known_items(self, name: str, ids: list[Id]) -> Codes:
        codes = self.items_.encode(ids, unknown="mark")
        text = self.items_.frame.dtypes[0] == pl.String
        for one in ids:
            if not is_id(one) or isinstance(one, str) != text:
                wanted = "text" if text else "integers"
                raise UnknownIdError(f"{name}: {one!r} is of type {type(one).__name__}, but item ids are {wanted}")
        return codes[codes >= 0]

    # --- storage -----------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments; after `fit`, those that were left out have their derived values."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
        return {name: str(value) if isinstance(value, str) else value for name, value in values.items()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a directory: all of it, ids included, or nothing. `shortlist.load` reads it back.

        A model that is already there is replaced in one step: a crash leaves the old one or the new one. A checkpoint
        of a fit is not replaced. A model that `load` would refuse is refused before anything is written.
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
        """The model taken apart into what can be written down; `registry.restored` puts it together."""
        self._require_fit()
        self._check_settings()
        from shortlist.storage import StoredModel

        arrays = {one: np.ascontiguousarray(getattr(self, one)) for one in self._arrays}
        arrays["seen.indptr"] = self.seen_.indptr
        arrays["seen.indices"] = self.seen_.indices
        if self.seen_.values is not None:
            arrays["seen.values"] = self.seen_.values
        tables = {"contexts": self.contexts_.frame, "items": self.items_.frame}
        extra = {"derived": list(self.derived_)} if self.derived_ else {}
        stored = StoredModel(type(self).__name__, self.settings(), arrays, tables, extra)
        self._store_more(stored)
        return stored

    def _store_more(self, stored: StoredModel) -> None:
        """Add what else a model keeps, such as features."""
        return

    def _restore_more(self, stored: StoredModel) -> None:
        """Take what `_store_more` added out of what was stored; nothing of it may be left."""
        return

    def _restore(self, stored: StoredModel, contexts: Vocabulary, items: Vocabulary) -> None:
        """Take learnt state from storage, checking that it fits together."""
        arrays = stored.arrays
        required = {"seen.indptr", "seen.indices", *self._arrays}
        if missing := sorted(required - arrays.keys()):
            raise StorageError(f"the model lacks the arrays {', '.join(missing)}")
        if surplus := sorted(arrays.keys() - required - {"seen.values"}):
            raise StorageError(f"the model has arrays that no {type(self).__name__} has: {', '.join(surplus):.200}")
        if not len(contexts) or not len(items):
            raise StorageError(
                f"it has {len(contexts)} contexts and {len(items)} items; a fitted model has some of both"
            )
        self.contexts_, self.items_ = contexts, items
        values = _own(arrays["seen.values"]) if "seen.values" in arrays else None
        self.seen_ = SparseRows(_own(arrays["seen.indptr"]), _own(arrays["seen.indices"]), values, len(items))
        _check_rows(self.seen_, len(contexts))
        for name in self._arrays:
            setattr(self, name, _own(arrays[name]))
        self._check_arrays()
        largest = self._bound()
        if not largest <= FLOAT32_MAX:
            raise StorageError(f"its numbers are too large: scores could reach {largest:.2g}, float32 ends at 3.4e+38")
        self._set_popularity()
        self._fitted = True

    def _require_shape(self, name: str, shape: tuple[int, ...]) -> None:
        found = getattr(self, name)
        if found.shape != shape or found.dtype != np.float32:
            raise StorageError(f"array {name} is {found.dtype} {found.shape}; expected float32 {shape}")

    def _strongest(self, weighting: Weighting) -> float:
        """What the strengths of a history can sum to."""
        return float(strengths(self.seen_.values, weighting).max(initial=1)) * float(self.seen_.lengths.max())

    def _bound(self) -> float:
        """`_largest`, without NumPy's warnings of numbers that overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._largest()

    def __repr__(self) -> str:
        state = ""
        if self._fitted:
            state = f" fitted on {count(len(self.contexts_), 'context')} × {count(len(self.items_), 'item')}"
            if self.derived_:
                state += f", {joined(self.derived_)} from the data"
        return f"{type(self).__name__}({listed(self.settings())}){state}"


def _merged(
    first: tuple[npt.NDArray[np.int64], Codes] | None, second: tuple[npt.NDArray[np.int64], Codes]
) -> tuple[npt.NDArray[np.int64], Codes]:
    """Row by row, the entries of both."""
    if first is None:
        return second
    rows = [
        np.concatenate([first[1][a:b], second[1][c:d]])
        for (a, b), (c, d) in zip(pairwise(first[0]), pairwise(second[0]))
    ]
    return first[0] + second[0], np.concatenate([np.empty(0, np.int32), *rows])


def _own(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array itself where it can be written to, else a copy.

    Loaded arrays are read-only views of one buffer. It would stay in memory, and kernels would be compiled again for
    read-only arrays.
    """
    return array if array.flags.writeable else array.copy()


def largest_of(*numbers: float) -> float:
    """The largest number, NaN where one of them is NaN, which `max` would pass over.

    >>> largest_of(1.0, float("nan"))
    nan
    """
    return float(np.max(numbers))


def _check_rows(rows: SparseRows, n_rows: int) -> None:
    wrong = csr_error(rows, n_rows)
    if wrong is None and rows.values is not None and len(rows) and rows.values.min() < 0:
        wrong = f"a weight is {rows.values.min()}; expected none below 0"
    if wrong is not None:
        raise StorageError(f"the model's histories do not fit its contexts and items: {wrong}")
