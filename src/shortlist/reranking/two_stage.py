"""`TwoStage`: candidate generation by a recommender, ranking by a reranker."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import integer, memory_bytes
from shortlist._fork import require_polars_threads
from shortlist._threads import blas_threads
from shortlist.data.features.table import Features
from shortlist.data.histories import Histories
from shortlist.data.sparse_rows import has_pairs
from shortlist.data.splits import Split
from shortlist.data.vocabulary import Codes, Id, Unknown, Vocabulary
from shortlist.errors import SettingError, ShortlistWarning
from shortlist.ranking.engine import labelled, slate_of
from shortlist.ranking.index import Index, index_of
from shortlist.ranking.inputs import ANY, Advice, History, ItemLists
from shortlist.ranking.protocols import TopItems
from shortlist.ranking.queries import Queries
from shortlist.ranking.recommendations import Recommendations
from shortlist.ranking.request import Request
from shortlist.ranking.split_queries import warn_if_leaked
from shortlist.recommenders.base import Recommender
from shortlist.reranking import training
from shortlist.reranking.base import Reranker, check_reranker, scores_of
from shortlist.reranking.candidate_features import (
    CandidateFeatures,
    Extra,
    Models,
    as_features,
    check_extra,
    named_models,
)
from shortlist.reranking.candidates import Candidates
from shortlist.reranking.lambdamart import LambdaMART, mismatch
from shortlist.reranking.reranker_state import RerankerState
from shortlist.reranking.training import TrainingSet, candidates_from_lists
from shortlist.retrieval import Filters
from shortlist.retrieval.slates.base import Catalogue, Slate
from shortlist.scoring import BlockScorer

if TYPE_CHECKING:
    from shortlist.storage import StoredModel

CLICKED = 0.1  # fraction of a split's held-out pairs that users may plausibly have clicked before
_PLACE_BYTES = 48  # per place of a list while it is reranked, without its features
_FEATURE_BYTES = 16  # per feature of a candidate: the table and its copies

Lists = tuple[npt.NDArray[np.int32], npt.NDArray[np.floating[Any]]]


class TwoStage:
    """A two-stage recommender: stage one, any fitted recommender, finds candidates; stage two, a reranker, orders them.

    Stage one should have high recall among its candidates, stage two high NDCG. The remaining items come after the
    candidates, in stage one's order.

    Split the data twice, as in the example, by time if you can: stage two must learn from events that stage one has not
    seen, and be evaluated on events that neither stage has seen.

    Args:
        first: stage one, a fitted recommender.
        reranker: stage two, `LambdaMART()` by default, or any object with the two methods of a `Reranker`.
        candidates: how many of stage one's best items to rerank.
        models: further fitted recommenders, as a list or {name: model}. Their scores become features; NaN for contexts
            and items that a model does not know.
        item_features: features of items: `Features`, or a frame with an id column and feature columns (see
            `Features.from_frame`).
        context_features: features of contexts, in the same form.
        extra: a function of `Candidates` that returns a frame or {name: values}, one row per candidate. Its columns
            become features.

    `shortlist.reranking.candidate_features.CandidateFeatures` lists all features.

    >>> import shortlist as sl
    >>> events = sl.datasets.synthetic(200, 60, 6000, seed=1)
    >>> test = sl.splits.at_random(events, test=0.2)
    >>> held = sl.splits.at_random(test.train, test=0.2)
    >>> two = sl.TwoStage(sl.EASE().fit(held.train), sl.LambdaMART(trees=20), candidates=30)
    >>> two = two.fit(held)
    >>> two = two.with_first(sl.EASE().fit(test.train))  # refit stage one on all training data, keep stage two
    >>> result = sl.evaluate(two, test, ["ndcg@10"])
    >>> list(result)
    ['ndcg@10', 'first:recall@30', 'first:ndcg@10']
    >>> len(two.recommend(history=[test.train.items.ids()[:3]], n=40).ids[0])
    40
    """

    def __init__(
        self,
        first: Recommender,
        reranker: Reranker | None = None,
        *,
        candidates: int = 200,
        models: Models = (),
        item_features: Features | Any = None,
        context_features: Features | Any = None,
        extra: Extra | None = None,
    ) -> None:
        _require_recommender(first)
        check_extra(extra)
        self.first = first
        self.reranker = check_reranker(LambdaMART() if reranker is None else reranker)
        self.candidates = integer("candidates", candidates, most=2**31 - 1)
        self.candidate_features = CandidateFeatures(
            first,
            named_models(models),
            as_features("item_features", item_features, first.items_),
            as_features("context_features", context_features, first.contexts_),
            extra,
        )
        self.reranker_state = RerankerState(self.reranker)

    # --- fitting -----------------------------------------------------------------------------------------------------

    def fit(self, split: Split, *, memory: int | str | None = None, threads: int | None = None) -> Self:
        """Train the reranker on held-out interactions: candidates that are held-out items are relevant, others are not.

        Contexts without a relevant candidate say nothing about order and are dropped; `training_` and `repr` report how
        many. So the higher stage one's recall, the more training data there is.

        Args:
            split: the split on whose `train` stage one was fitted. Do not evaluate the `TwoStage` on the same split.
            memory: the limit for blocks of scores: bytes, or text such as "256MB". The features of all candidates come
                on top, 4 bytes each.
            threads: the number of threads; all CPUs by default.
        """
        with blas_threads(threads):
            models = self.candidate_features.models
            training_set = training.from_split(
                self.first, models, split, self.candidates, memory_bytes(memory), threads
            )
            return self._fit_reranker(training_set)

    def fit_impressions(
        self,
        shown: Any,
        *,
        clicked: str,
        request: str | Sequence[str] | None = None,
        exclude_seen: bool = True,
        memory: int | str | None = None,
        threads: int | None = None,
    ) -> Self:
        """Train the reranker on impressions: the candidates are the items shown, the relevant ones are those clicked.

        Ranks and scores are those of stage one. An item shown several times in a list counts once, with its highest
        grade. Impressions must be newer than the training data of stage one.

        Args:
            shown: a frame with one row per impression. The context and item columns are named as in stage one's data.
            clicked: the column with the clicks: True or False, 0 or 1, or integer grades up to 30.
            request: the column that identifies a list. Without it, everything shown to a context is one list.
            exclude_seen: drop impressions of items in the context's history, as `recommend` does.
            memory: the limit for blocks of scores: bytes, or text such as "256MB".
            threads: the number of threads; all CPUs by default.
        """
        with blas_threads(threads):
            return self._fit_reranker(
                training.from_impressions(
                    self.first,
                    shown,
                    clicked,
                    request,
                    exclude_seen,
                    self.candidates,
                    memory_bytes(memory),
                    threads,
                )
            )

    def _fit_reranker(self, training_set: TrainingSet) -> Self:
        described = self.candidate_features.describe(training_set.candidates)
        self.reranker.fit(described, training_set.relevance)
        self.reranker_state.record_fit(described.feature_names, training_set)
        return self

    def with_first(
        self,
        first: Recommender,
        *,
        models: Models | None = None,
        item_features: Features | Any = None,
        context_features: Features | Any = None,
        extra: Extra | None = None,
    ) -> TwoStage:
        """Return a `TwoStage` with the same fitted reranker on another stage one, such as one fitted on newer events.

        Features that change over time, such as recent sales, can be replaced too; their names must stay the same. The
        reranker is shared, not copied: fitting one `TwoStage` also fits the other.

        Args:
            first: the new stage one, fitted. It should be the same model with the same settings, because stage two has
                learned from its scores.
            models: the new further models; required if there were any.
            item_features: the new features of items; the present ones by default.
            context_features: the new features of contexts; the present ones by default.
            extra: the new function for features; the present one by default.
        """
        features = self.candidate_features
        if models is None and features.models:
            raise SettingError(
                f"stage two also uses scores of {', '.join(features.models)}",
                hint="pass models= fitted on the same events",
                field="models",
            )
        other = TwoStage(
            first,
            self.reranker,
            candidates=self.candidates,
            models=() if models is None else models,
            item_features=features.item_features if item_features is None else item_features,
            context_features=features.context_features if context_features is None else context_features,
            extra=features.extra if extra is None else extra,
        )
        other.adopt_state(self.reranker_state)
        return other

    def adopt_state(self, state: RerankerState) -> None:
        """Take over the state of a fitted reranker. Refuse it if the reranker was fitted on other features."""
        if state.feature_names is not None:
            names, trained = self.candidate_features.names, state.feature_names
            if self.candidate_features.extra is not None:
                trained = trained[: len(names)]  # the names of `extra` columns are not known yet
            if trained != names:
                raise SettingError(mismatch(state.feature_names, names))
        self.reranker_state = state

    # --- recommendations ---------------------------------------------------------------------------------------------

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
        index: Index | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
    ) -> Recommendations:
        """Return the n best items for each context or history. The arguments are those of `Recommender.recommend`.

        Filters apply first: the candidates are stage one's best items after filtering. Pass an index of stage one,
        `first.index(...)`, to find the candidates with it. Scores are stage two's. If n is greater than the number of
        candidates, stage one's next items follow; their scores continue below stage two's lowest score with stage one's
        differences. A slate applies last, to stage two's order. Queries are processed in blocks, within `memory`.
        """
        request = Request(
            n=n, exclude_seen=exclude_seen, allow=allow, deny=deny, slate=slate, memory=memory, threads=threads
        )
        self.require_fit()
        queries = self.queries(contexts, history, unknown=unknown)
        filters = self.filters(queries, request)
        with blas_threads(threads):
            return labelled(self, queries, self._top(queries, filters, request, index))

    def retrieve(
        self,
        contexts: Iterable[Id] | None = None,
        *,
        history: History | None = None,
        exclude_seen: bool = True,
        allow: ItemLists | None = None,
        deny: ItemLists | None = None,
        unknown: Unknown = "raise",
        memory: int | str | None = None,
        threads: int | None = None,
    ) -> Candidates:
        """Return the candidates of stage one with their features, in stage one's order. For arguments see `recommend`.

        The reranker need not be fitted: `retrieve(...).to_polars()` shows the input that it will get.
        """
        request = Request(
            n=self.candidates, exclude_seen=exclude_seen, allow=allow, deny=deny, memory=memory, threads=threads
        )
        queries = self.queries(contexts, history, unknown=unknown)
        filters = self.filters(queries, request)
        with blas_threads(threads):
            lists = self._first_lists(queries, filters, request)
            return self.candidate_features.describe(candidates_from_lists(self.first, queries, *lists, threads))

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
        """Return the n items most similar to each given item, by stage one alone."""
        options = {"allow": allow, "deny": deny, "unknown": unknown, "memory": memory, "threads": threads}
        return self.first.similar_items(items, n, **options)  # type: ignore[arg-type]

    # --- what a ranker answers ---------------------------------------------------------------------------------------

    @property
    def ordered(self) -> bool:
        """Whether the order of a history matters to stage one."""
        return self.first.ordered

    @property
    def contexts_(self) -> Vocabulary:
        """The contexts that stage one knows."""
        return self.first.contexts_

    @property
    def items_(self) -> Vocabulary:
        """The items that stage one knows."""
        return self.first.items_

    @property
    def popularity_(self) -> npt.NDArray[np.int64]:
        """The number of training contexts of each item."""
        return self.first.popularity_

    @property
    def item_priority_(self) -> npt.NDArray[np.int32]:
        """The order of items with equal scores of stage one."""
        return self.first.item_priority_

    @property
    def uses_features(self) -> bool:
        """Whether stage one can score items without events."""
        return self.first.uses_features

    @property
    def composes_contexts(self) -> bool:
        """Whether stage one answers unseen combinations of known parts of contexts."""
        return self.first.composes_contexts

    @property
    def catalogue(self) -> Catalogue:
        """The item data that slates use."""
        return self.first.catalogue

    @property
    def stages(self) -> tuple[str, str]:
        """The names of both stages."""
        return type(self.first).__name__, type(self.reranker).__name__

    def queries(
        self,
        contexts: Iterable[Id] | None = None,
        history: History | None = None,
        *,
        unknown: Unknown = "raise",
        advice: Advice = ANY,
    ) -> Queries:
        """Return queries in the codes of stage one."""
        return self.first.queries(contexts, history, unknown=unknown, advice=advice)

    def context_codes(self, contexts: pl.DataFrame) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """Return the codes of contexts, −1 for new ones, and which of them stage one can answer."""
        return self.first.context_codes(contexts)

    def histories_of(self, codes: Codes) -> Histories:
        """Return the training histories of contexts."""
        return self.first.histories_of(codes)

    def filters(self, queries: Queries, request: Request) -> Filters:
        """Return the filters of a request in codes."""
        return self.first.filters(queries, request)

    def scorer(self, queries: Queries, threads: int | None = None) -> BlockScorer:
        """Return stage one's scorer."""
        return self.first.scorer(queries, threads)

    def top(self, queries: Queries, filters: Filters, request: Request) -> TopItems:
        """Return the n best items of both stages."""
        self.require_fit()
        return self._top(queries, filters, request, None)

    def _top(self, queries: Queries, filters: Filters, request: Request, index: Index | None) -> TopItems:
        n_items = len(self.items_)
        n, depth = request.size(n_items), request.depth(n_items)
        wanted = min(max(depth, self.candidates), n_items)
        of_first = replace(request, n=wanted, slate=None)
        items = np.empty((len(queries), n), np.int32)
        scores = np.empty(items.shape, np.float32)
        for which in _blocks(len(queries), request.memory // (_PLACE_BYTES * wanted)):
            whole = len(which) == len(queries)
            part, part_filters = (queries, filters) if whole else (queries.take(which), filters.of(which))
            lists = self._first_lists(part, part_filters, of_first, index)
            codes, values = self.rerank(part, lists, request.memory, request.threads)
            if request.slate is not None:
                pools = TopItems(np.ascontiguousarray(codes[:, :depth]), np.ascontiguousarray(values[:, :depth]))
                codes, values = slate_of(self.catalogue, pools, part.histories, request)
            items[which], scores[which] = codes[:, :n], values[:, :n]
        return TopItems(items, scores)

    def _first_lists(
        self, queries: Queries, filters: Filters, request: Request, index: Index | None = None
    ) -> TopItems:
        """Return stage one's best items, found by its index if one is given."""
        if index is None:
            return self.first.top(queries, filters, request)
        index = index_of(index, self.first)
        vectors = index.model.encode(queries, request.threads)
        return index.top(vectors, request.size(len(index)), filters, request.threads)

    def rerank(self, queries: Queries, lists: TopItems, memory: int, threads: int | None) -> Lists:
        """Return stage one's lists with the candidates in stage two's order. Ties stay in stage one's order."""
        items, scores = lists
        n = min(self.candidates, items.shape[1])
        out = items.copy(), scores.astype(np.float64)
        for which in _blocks(len(items), memory // (_FEATURE_BYTES * max(1, len(self.feature_names_ or ()) * n))):
            rows = slice(which[0], which[-1] + 1)
            head = items[rows, :n]
            candidates = candidates_from_lists(self.first, queries.take(which), head, scores[rows, :n], threads)
            new = np.full(head.shape, -np.inf)
            new[head >= 0] = self._second_scores(candidates)
            order = np.argsort(-new, axis=1, kind="stable")
            out[0][rows, :n] = np.take_along_axis(head, order, axis=1)
            out[1][rows, :n] = np.take_along_axis(new, order, axis=1)
            if items.shape[1] > n:
                # The rest follows below the lowest new score, with stage one's distances to its last candidate.
                lowest = np.where(head >= 0, new, np.inf).min(axis=1, keepdims=True)
                with np.errstate(invalid="ignore"):  # lists that ended before
                    below = out[1][rows, n:] - scores[rows, n - 1 : n] + lowest
                least = np.finfo(np.float32).min
                out[1][rows, n:] = np.where(items[rows, n:] >= 0, np.maximum(below, least), -np.inf)
        return out

    def _second_scores(self, candidates: Candidates) -> npt.NDArray[np.float64]:
        described = self.candidate_features.describe(candidates)
        if described.feature_names != self.feature_names_:
            raise SettingError(mismatch(self.feature_names_ or (), described.feature_names))
        return scores_of(self.reranker, described)

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def feature_names_(self) -> tuple[str, ...] | None:
        """The features that stage two was trained on; None before a fit."""
        return self.reranker_state.feature_names

    @property
    def training_(self) -> dict[str, int]:
        """The size of stage two's training data: lists, candidates, relevant candidates, and what was dropped."""
        return self.reranker_state.counts

    def knows_answers(self, split: Split) -> float:
        """Return the fraction of the split's held-out pairs that stage two was trained on, from 0 to 1.

        Held-out pairs that are also in the split's history do not count: with `repeats="keep"` pairs may repeat. So the
        result is 0 if stage two was trained on a split of `split.train`.
        """
        truth, history = split.truth.by_context, split.history.by_context
        known = self.reranker_state.pairs.holds(split.truth)
        row_of = np.repeat(np.arange(truth.n_rows), truth.lengths)
        had = split.history.items.encode(split.truth.items.frame, unknown="mark")[truth.indices]
        known &= ~has_pairs(history.indptr, history.indices, row_of, had)
        return float(known.mean()) if len(known) else 0.0

    def check_split(self, split: Split, *, stacklevel: int = 2) -> None:
        """Warn if a stage or a further model has seen held-out pairs of the split."""
        self._warn_of_known_answers(split, stacklevel + 1)
        for name, model in self.candidate_features.models.items():
            warn_if_leaked(model, split, f"the further model {name!r}", stacklevel=stacklevel)

    def _warn_of_known_answers(self, split: Split, stacklevel: int) -> None:
        fraction, clicks = self.knows_answers(split), self.reranker_state.clicks
        if fraction <= (CLICKED if clicks else 0.0):
            return
        n = len(split.truth.by_context)
        pairs = f"{round(fraction * n):,} of {n:,} held-out pairs of this split"
        warnings.warn(
            f"the second stage learned from clicks on {pairs}, so its scores may be too good. Train it on impressions "
            "that are older than the held-out events"
            if clicks
            else f"the second stage learned from {pairs}, so its scores are too good. Fit it on a split of "
            "split.train, as the guide shows",
            ShortlistWarning,
            stacklevel=stacklevel,
        )

    def require_fit(self) -> None:
        """Raise NotFittedError before `fit`."""
        self.reranker_state.require_fit()

    # --- storage -----------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Save both stages, further models and features to a directory, as `Recommender.save` does.

        Load it with `shortlist.load`. Python code is not stored: to load a `TwoStage` with a custom reranker or `extra`
        function, pass them to `TwoStage.load`.
        """
        from shortlist.recommenders.checkpoint import refuse_checkpoint
        from shortlist.recommenders.restoring import require_loadable
        from shortlist.storage import save_model

        require_polars_threads("saving a model")
        stored = self.to_stored()
        self.candidate_features.check()
        reranker = None if type(self.reranker) is LambdaMART else self.reranker
        code = [type(model) for model in (self.first, *self.candidate_features.models.values())]
        restore = partial(self.from_stored, reranker=reranker, extra=self.candidate_features.extra, code=code)
        require_loadable(path, stored, restore)
        refuse_checkpoint(path)
        save_model(path, stored)

    def to_stored(self) -> StoredModel:
        """Return the model as settings, arrays and tables."""
        from shortlist.reranking.two_stage_storage import stored_of

        self.require_fit()
        return stored_of(self)

    def custom_code(self) -> list[str]:
        """Return the names of the user's own classes and functions, which cannot be stored."""
        reranker = None if type(self.reranker) is LambdaMART else type(self.reranker)
        custom = [part for part in (reranker, self.candidate_features.extra) if part is not None]
        return [f"{part.__module__}.{getattr(part, '__qualname__', type(part).__qualname__)}" for part in custom]

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        reranker: Reranker | None = None,
        extra: Extra | None = None,
        verify: bool = False,
        code: Iterable[type] = (),
    ) -> TwoStage:
        """Load a saved `TwoStage`. Pass a custom fitted reranker and the `extra` function, which are not stored.

        `verify` and `code` are as in `shortlist.load`.
        """
        from shortlist.storage import load_model

        stored = load_model(path, verify=verify)
        return cls.from_stored(stored, path, reranker=reranker, extra=extra, verify=verify, code=code)

    @classmethod
    def from_stored(
        cls,
        stored: StoredModel,
        path: str | PathLike[str],
        *,
        reranker: Reranker | None = None,
        extra: Extra | None = None,
        verify: bool = True,
        code: Iterable[type] = (),
    ) -> TwoStage:
        """Build again what `to_stored` returned; `path` is for messages."""
        from shortlist.reranking.two_stage_storage import restored

        return restored(cls, stored, path, reranker=reranker, extra=extra, verify=verify, code=tuple(code))

    def __repr__(self) -> str:
        lines = [f"TwoStage: the first {self.candidates:,} of {self.first!r}", f"  reranked by {self.reranker!r}"]
        if self.training_:
            counts = ", ".join(f"{count:,} {what}" for what, count in self.training_.items() if count)
            lines.append(f"  trained on {counts}")
        return "\n".join(lines)


def _blocks(n: int, size: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the integers from 0 to n − 1 in blocks of `size`, at least one each."""
    for start in range(0, n, max(1, size)):
        yield np.arange(start, min(start + max(1, size), n))


def _require_recommender(first: Recommender) -> None:
    if not isinstance(first, Recommender):
        raise SettingError(f"first is {first!r:.80}; expected a fitted recommender", field="first")
    first.require_fit()
