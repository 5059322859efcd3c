"""Candidate generation and ranking: a recommender finds, a reranker orders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from shortlist._checks import memory_bytes, whole
from shortlist._fork import require_polars_threads
from shortlist._threads import blas_threads
from shortlist.data.features.table import Features
from shortlist.data.sparse_rows import has_pairs
from shortlist.data.splits import Split
from shortlist.data.vocabulary import Id, Unknown
from shortlist.errors import SettingError
from shortlist.recommenders.base import History, ItemLists, Queries, Recommender
from shortlist.recommenders.composed import Composed
from shortlist.recommenders.index import Index, index_of
from shortlist.recommenders.recommendations import Recommendations
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
from shortlist.reranking.training import TrainingSet, found_by
from shortlist.retrieval import Filters, top_n
from shortlist.retrieval.slates.base import Slate, check_slate

if TYPE_CHECKING:
    from shortlist.storage import StoredModel

_PLACE = 48  # bytes that a place of a list takes while it is reranked, its features apart
_FEATURE = 16  # bytes that a feature of a candidate takes: the table, and what is made of it

Lists = tuple[npt.NDArray[np.int32], npt.NDArray[np.floating[Any]]]


class TwoStage(Composed):
    """The best candidates of a fitted recommender, put into order by a reranker.

    The article's two stages: stage one is to have what is relevant among its candidates (recall), stage two orders them
    (NDCG). What stage one ranks behind its candidates keeps its order behind them.

    Args:
        first: stage one, fitted.
        reranker: stage two: `LambdaMART()` by default, or anything with the two methods of a `Reranker`.
        candidates: how many items of stage one are reranked.
        models: further fitted recommenders whose scores are features: a list, or {name: model}. Contexts and items
            that one of them does not know have NaN for its score.
        item_features: what is known of items: `Features`, or a frame with the column of the item's id, such as
            `Features.from_frame` takes.
        context_features: likewise of contexts.
        extra: a function that gets `Candidates` and gives a frame (or {name: values}) with a row for each of them.

    Every feature is listed in `shortlist.reranking.candidate_features.CandidateFeatures`.
    Stage two must learn from what stage one has
    not seen, and be judged by what neither has: train, held out for the reranker, test, one after the other in time.

    >>> import shortlist as sl
    >>> events = sl.datasets.synthetic(200, 60, 6000, seed=1)
    >>> test = sl.splits.at_random(events, test=0.2)
    >>> held = sl.splits.at_random(test.train, test=0.2)
    >>> two = sl.TwoStage(sl.EASE().fit(held.train), sl.LambdaMART(trees=20), candidates=30)
    >>> two = two.fit(held).with_first(sl.EASE().fit(test.train))
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
        self.candidates = whole("candidates", candidates, most=2**31 - 1)
        self.candidate_features = CandidateFeatures(
            first,
            named_models(models),
            as_features("item_features", item_features, first.items_),
            as_features("context_features", context_features, first.contexts_),
            extra,
        )
        self._reranker_state = RerankerState(self.reranker)

    # --- fitting -----------------------------------------------------------------------------------------------------

    def fit(self, split: Split, *, memory: int | str | None = None, threads: int | None = None) -> Self:
        """Train the reranker on held-out interactions: candidates that are in the truth are relevant, others not.

        Contexts none of whose candidates is relevant say nothing about order and are left out; `training_` and `repr`
        tell how many. So stage one's recall is what decides how much can be learnt.

        Args:
            split: stage one was fitted on its `train`. It must not be the split that the whole is evaluated on.
            memory: what blocks of scores may take, bytes or text such as "256MB". The features of all candidates are
                held at once, 4 bytes each.
            threads: how many to use; all CPUs by default.
        """
        with blas_threads(threads):
            models = self.candidate_features.models
            training_set = training.from_split(
                self.first, models, split, self.candidates, memory_bytes(memory), threads
            )
            return self._learn(training_set)

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
        """Train the reranker on impressions: items that were shown are candidates, those that were clicked relevant.

        What nobody was shown is neither. An item that was shown several times in a list counts once, with the greatest
        of its grades. Impressions must be newer than what stage one was fitted on. Ranks and scores are those that
        stage one would have given them.

        Args:
            shown: a frame, a row an impression, with the columns of context and item named as in stage one's data.
            clicked: the column that says whether it was clicked: True and False, 0 and 1, or grades up to 30.
            request: the column that tells one list from another; without it all that a context was shown is one list.
            exclude_seen: leave out impressions of items that the context's history has, as `recommend` does.
            memory: what blocks of scores may take.
            threads: how many to use; all CPUs by default.
        """
        with blas_threads(threads):
            return self._learn(
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

    def _learn(self, training_set: TrainingSet) -> Self:
        described = self.candidate_features.describe(training_set.candidates)
        self.reranker.fit(described, training_set.relevance)
        self._reranker_state.learnt(described.feature_names, training_set)
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
        """The same second stage on top of another stage one, such as the same recommender fitted on newer events.

        What else is given takes the place of what there was; features that hold at a moment only, such as recent sales,
        are given anew with the stage one of a later moment. It must be the same features by name. The reranker is
        shared, not copied: fitting either fits both, and both know what it learnt from.

        Args:
            first: fitted. It should be of the same kind and settings: stage two takes its scores as it learnt them.
            models: the further models; where there were any, they must be given.
            item_features: as they are by default; so are the others.
            context_features: likewise.
            extra: likewise.
        """
        own = self.candidate_features
        if models is None and own.models:
            raise SettingError(
                f"stage two takes scores of {', '.join(own.models)} too; pass models= fitted on the same events"
            )
        other = TwoStage(
            first,
            self.reranker,
            candidates=self.candidates,
            models=() if models is None else models,
            item_features=own.item_features if item_features is None else item_features,
            context_features=own.context_features if context_features is None else context_features,
            extra=own.extra if extra is None else extra,
        )
        other._take(self._reranker_state)
        return other

    def _take(self, taught: RerankerState) -> None:
        """What was learnt elsewhere, if it was learnt from the features that there are here."""
        if taught.feature_names is not None:
            own = self.candidate_features.names
            known = (
                taught.feature_names[: len(own)] if self.candidate_features.extra is not None else taught.feature_names
            )
            if known != own:
                raise SettingError(mismatch(taught.feature_names, own))
        self._reranker_state = taught

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
        index: Index | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
    ) -> Recommendations:
        """The n best items for each context, or for each history: the arguments are those of `Recommender.recommend`.

        Filters come first: the candidates are the best of stage one among what they leave. Scores are stage two's. A
        slate comes last, and picks from stage two's order. An index of stage one, `first.index(...)`, finds the
        candidates, where one is given. Where n is more than there are candidates, stage one's order goes on behind
        them, with its own differences of scores below the lowest of stage two. Both stages go through the queries in
        blocks, within `memory`.
        """
        n = whole("n", n)
        if slate is not None:
            check_slate(slate)
        self._require_fit()
        queries, filters = self._asked(contexts, history, exclude_seen, allow, deny, unknown)
        with blas_threads(threads):
            return self._answer(queries, filters, n, slate, memory, threads, index)

    def _answer(
        self,
        queries: Queries,
        filters: Filters,
        n: int,
        slate: Slate | None,
        memory: int | str | None,
        threads: int | None,
        index: Index | None = None,
    ) -> Recommendations:
        n = min(n, len(self.items_))
        most = n if slate is None else slate.depth(n, len(self.items_))
        wanted, budget = min(max(most, self.candidates), len(self.items_)), memory_bytes(memory)
        items = np.empty((len(queries), n), np.int32)
        scores = np.empty(items.shape, np.float32)
        for which in _blocks(len(queries), budget // (_PLACE * wanted)):
            everyone = len(which) == len(queries)
            part, left = (queries, filters) if everyone else (queries.take(which), filters.of(which))
            codes, own = self._found(part, left, wanted, budget, threads, index)
            codes, own = self._reranked(part, codes, own, budget, threads)
            if slate is not None:
                pool = np.ascontiguousarray(codes[:, :most]), np.ascontiguousarray(own[:, :most])
                codes, own = self.first._slate(slate, *pool, part, n, memory, threads)
            items[which], scores[which] = codes[:, :n], own[:, :n]
        return Recommendations(queries.labels, self.items_, items, scores, skipped=queries.skipped)

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
        """The candidates of stage one with their features, in stage one's order; the arguments are as in `recommend`.

        It needs no fit: `retrieve(...).to_polars()` shows what the reranker will be given.
        """
        queries, filters = self._asked(contexts, history, exclude_seen, allow, deny, unknown)
        with blas_threads(threads):
            items, scores = self._found(queries, filters, self.candidates, memory_bytes(memory), threads)
            return self.candidate_features.describe(found_by(self.first, queries, items, scores, threads))

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
        """The n items nearest to each given item by stage one; stage two has no part in it."""
        how = {"allow": allow, "deny": deny, "unknown": unknown, "memory": memory, "threads": threads}
        return self.first.similar_items(items, n, **how)  # type: ignore[arg-type]

    def _asked(
        self,
        contexts: Iterable[Id] | None,
        history: History | None,
        exclude_seen: bool,
        allow: ItemLists | None,
        deny: ItemLists | None,
        unknown: Unknown,
    ) -> tuple[Queries, Filters]:
        queries = self.first._queries(contexts, history, unknown)
        return queries, self.first._filters(queries, exclude_seen, allow, deny)

    def _found(
        self,
        queries: Queries,
        filters: Filters,
        n: int,
        memory: int,
        threads: int | None,
        index: Index | None = None,
    ) -> Lists:
        """Stage one's best n, as its index finds them, if any."""
        scorer = self.first._scorer(queries, threads)
        if index is not None:
            return index_of(index, self.first)._found(scorer.contexts, min(n, len(index)), filters, threads)  # type: ignore[attr-defined]
        return top_n(
            scorer,
            min(n, len(self.items_)),
            filters=filters,
            priority=self.first._priority,
            memory=memory,
            threads=threads,
        )

    def _reranked(
        self,
        queries: Queries,
        items: npt.NDArray[np.int32],
        scores: npt.NDArray[np.float32],
        memory: int,
        threads: int | None,
    ) -> Lists:
        """Lists of stage one with their first candidates in stage two's order; equal scores stay in stage one's."""
        n = min(self.candidates, items.shape[1])
        out = items.copy(), scores.astype(np.float64)
        for which in _blocks(len(items), memory // (_FEATURE * max(1, len(self.feature_names_ or ()) * n))):
            rows = slice(which[0], which[-1] + 1)
            head = items[rows, :n]
            found = found_by(self.first, queries.take(which), head, scores[rows, :n], threads)
            new = np.full(head.shape, -np.inf)
            new[head >= 0] = self._second_scores(found)
            order = np.argsort(-new, axis=1, kind="stable")
            out[0][rows, :n] = np.take_along_axis(head, order, axis=1)
            out[1][rows, :n] = np.take_along_axis(new, order, axis=1)
            if items.shape[1] > n:
                # Behind them, as far below the lowest of them as stage one has it below the last.
                lowest = np.where(head >= 0, new, np.inf).min(axis=1, keepdims=True)
                with np.errstate(invalid="ignore"):  # where a list has ended before
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
        """The features that stage two learnt from; None before it has."""
        return self._reranker_state.feature_names

    @property
    def training_(self) -> dict[str, int]:
        """What stage two learnt from, counted."""
        return self._reranker_state.counts

    def knows_answers(self, split: Split) -> float:
        """The share of the pairs that this split asks for from which stage two learnt, from 0 to 1.

        Pairs that the split's own history has do not count: with `repeats="keep"` these may come again honestly. So of
        a second stage that learnt from a split of `split.train` it is 0.
        """
        truth, history = split.truth.by_context, split.history.by_context
        known = np.isin(training.digests(*training.pairs_of(split.truth)), self._reranker_state.pairs)
        row_of = np.repeat(np.arange(truth.n_rows), truth.lengths)
        had = split.history.items.encode(split.truth.items.frame, unknown="mark")[truth.indices]
        known &= ~has_pairs(history.indptr, history.indices, row_of, had)
        return float(known.mean()) if len(known) else 0.0

    def _require_fit(self) -> None:
        self._reranker_state.require_fit()

    # --- storage -----------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write both stages, further models and features to a directory, as `Recommender.save` does.

        `shortlist.load` reads it back. Code is not stored: a reranker of your own, or `extra`, must be passed again, to
        `TwoStage.load`.
        """
        from shortlist.recommenders.checkpoint import refuse_checkpoint
        from shortlist.recommenders.registry import require_loadable, require_registered
        from shortlist.reranking.two_stage_storage import restored
        from shortlist.storage import save_model

        require_polars_threads("saving a model")
        stored = self._stored()
        self.candidate_features.check()
        require_registered(self.first, *self.candidate_features.models.values())
        reranker = None if type(self.reranker) is LambdaMART else self.reranker
        restore = partial(restored, reranker=reranker, extra=self.candidate_features.extra)
        require_loadable(path, stored, restore)
        refuse_checkpoint(path)
        save_model(path, stored)

    def _stored(self) -> StoredModel:
        from shortlist.reranking.two_stage_storage import stored_of

        self._require_fit()
        return stored_of(self)

    def _code(self) -> list[str]:
        reranker = None if type(self.reranker) is LambdaMART else type(self.reranker)
        own = [one for one in (reranker, self.candidate_features.extra) if one is not None]
        return [f"{one.__module__}.{getattr(one, '__qualname__', type(one).__qualname__)}" for one in own]

    @classmethod
    def load(
        cls, path: str | PathLike[str], *, reranker: Reranker | None = None, extra: Extra | None = None
    ) -> TwoStage:
        """Read what `save` wrote, with the code that it could not write: a fitted reranker of your own, and `extra`."""
        from shortlist.reranking.two_stage_storage import restored
        from shortlist.storage import load_model

        return restored(load_model(path), path, reranker=reranker, extra=extra)

    def __repr__(self) -> str:
        lines = [f"TwoStage: the first {self.candidates:,} of {self.first!r}", f"  reranked by {self.reranker!r}"]
        if self.training_:
            told = ", ".join(f"{count:,} {what}" for what, count in self.training_.items() if count)
            lines.append(f"  learnt from {told}")
        return "\n".join(lines)


def _blocks(n: int, size: int) -> Iterator[npt.NDArray[np.int64]]:
    """The numbers below n in blocks of so many, one at least."""
    for start in range(0, n, max(1, size)):
        yield np.arange(start, min(start + max(1, size), n))


def _require_recommender(first: Recommender) -> None:
    if not isinstance(first, Recommender):
        raise SettingError(f"first is {first!r:.80}; expected a fitted recommender")
    first._require_fit()
