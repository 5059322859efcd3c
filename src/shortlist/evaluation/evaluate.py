"""Evaluate recommenders: rank the whole catalogue, or (separately) published candidate lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer, memory_bytes
from shortlist._threads import blas_threads
from shortlist.data.histories import Histories
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split
from shortlist.errors import DataError, SettingError
from shortlist.evaluation.catalogue_search import CatalogueSearch, TwoStageSearch
from shortlist.evaluation.cold_items import SUBSTANTIAL, out_of_place, warn_of_cold_items
from shortlist.evaluation.given_lists import GivenLists, is_lists
from shortlist.evaluation.result import Evaluation, TwoStageEvaluation
from shortlist.evaluation.slate_search import SlateSearch, check_depths
from shortlist.metrics import Lists, Metric, Ranks, parse_metrics
from shortlist.ranking.engine import scores_of_items
from shortlist.ranking.inputs import histories_of
from shortlist.ranking.protocols import Ranker, StagedRanker, TopItems, is_ranker, is_staged
from shortlist.ranking.recommendations import Recommendations
from shortlist.ranking.split_queries import queries_of
from shortlist.retrieval.slates.base import Slate, check_slate

DEFAULT_METRICS = (
    "recall@20",
    "ndcg@20",
    "coverage@20",
    "gini@20",
    "popularity@20",
    "novelty@20",
    "distance@20",
    "cold_share@20",
)


@overload
def evaluate(
    model: StagedRanker,
    split: Split,
    metrics: str | Sequence[str | Metric] = ...,
    *,
    seed: int = ...,
    memory: int | str | None = ...,
    threads: int | None = ...,
) -> TwoStageEvaluation: ...


@overload
def evaluate(
    model: Ranker | Recommendations | Any,
    split: Split,
    metrics: str | Sequence[str | Metric] = ...,
    *,
    slate: Slate | None = ...,
    seed: int = ...,
    memory: int | str | None = ...,
    threads: int | None = ...,
) -> Evaluation: ...


def evaluate(
    model: Any,
    split: Split,
    metrics: str | Sequence[str | Metric] = DEFAULT_METRICS,
    *,
    slate: Slate | None = None,
    seed: int = 0,
    memory: int | str | None = None,
    threads: int | None = None,
) -> Evaluation:
    """Rank the whole catalogue for each held-out context and score the rankings against the held-out items.

    Metrics beyond accuracy take item popularity and other statistics from `split.train`, not from the model, so they
    are comparable between models. `evaluate` warns if items without training events displace other items from more than
    1 % of the list positions.

    Args:
        model: a recommender fitted on `split.train`.

            Or ranked lists of any origin, such as another library: a frame (polars, pandas, Arrow or
            {column: values}) with a row for each listed item: the context and the item, in columns named as in the
            split, and its `rank` (1 is best) or its `score`.

            For a `TwoStage`, fit stage two on a split of `split.train`, then refit stage one, and any recommenders in
            `models`, on the whole of `split.train` (with `TwoStage.with_first`; see the example of `TwoStage`). Its
            metrics are those of both stages together. With the prefix `first:`, the result also has the accuracy
            metrics of stage one alone, and the fraction of held-out items that are among its candidates.
        split: the held-out contexts and items, the history of each context, and whether seen items are excluded from
            the ranking (`repeats="drop"` excludes them).
        metrics: accuracy metrics such as "recall@20", "ndcg@100" or "auc", and metrics of the lists themselves such as
            "coverage@20" or "popularity@20". `shortlist.metrics` lists them all. The default has some of both.
        slate: evaluate the lists of `recommend(slate=)` instead of the n best items, for example with
            `shortlist.slates.MMR(0.3)`. Metrics of the whole ranking are refused, and so are metrics at an n greater
            than the slate's pool.
        seed: orders items with equal scores at random, so that a model with constant scores does no better than chance.
        memory: the limit for blocks of scores: bytes, or text such as "256MB".
        threads: the number of threads. The result does not depend on it.

    Returns:
        An `Evaluation`: the mean and standard error of each metric, and its value for each context.

    >>> import shortlist as sl
    >>> split = sl.splits.at_random(sl.datasets.synthetic(200, 50, 4000, seed=0), test=0.2)
    >>> result = sl.evaluate(sl.EASE().fit(split.train), split, ["ndcg@10", "coverage@10"])
    >>> list(result), 0 < result["ndcg@10"] < 1
    (['ndcg@10', 'coverage@10'], True)
    """
    if is_lists(model):
        if slate is not None:
            raise SettingError("given lists cannot be evaluated with a slate", hint="omit slate=", field="slate")
        return _lists_evaluated(model, split, metrics, threads)
    if is_staged(model):
        if slate is not None:
            raise SettingError(
                f"a {type(model).__name__} cannot be evaluated with a slate",
                hint="omit slate=, or evaluate stage one alone",
                field="slate",
            )
        return _staged(model, split, metrics, seed=seed, memory=memory, threads=threads)
    return _evaluated(model, split, metrics, slate=slate, seed=seed, memory=memory, threads=threads)


def validation_score(model: Ranker, split: Split, metric: str, threads: int | None = None) -> float:
    """Return the mean of one metric on a validation split, for a model that is still training. Never warns."""
    value = _evaluated(model, split, [metric], threads=threads, warn=False)[metric]
    if not math.isfinite(value):
        raise DataError(
            f"{metric} is not defined for any context of the validation split",
            hint="use another metric",
            field="metric",
        )
    return value


def _evaluated(
    model: Ranker,
    split: Split,
    metrics: str | Sequence[str | Metric],
    *,
    slate: Slate | None = None,
    seed: int = 0,
    memory: int | str | None = None,
    threads: int | None = None,
    warn: bool = True,
) -> Evaluation:
    _require_split(split)
    wanted = parse_metrics(metrics)
    if slate is not None:
        check_depths(check_slate(slate), wanted)
    seed = integer("seed", seed, least=0)
    _require_model(model)
    held_out = queries_of(model, split, warn=warn, stacklevel=3)
    with blas_threads(threads):
        scorer = model.scorer(held_out.queries, threads)
        search = CatalogueSearch(scorer, held_out.truth, held_out.excluded, seed, memory_bytes(memory), threads)
        if slate is not None:
            search = SlateSearch.of(search, slate, model.catalogue, held_out.queries.histories)
        values = _measure(search, wanted, model, split.train, held_out.queries.histories, warn)
    name = type(model).__name__ + ("" if slate is None else f" with {slate!r}")
    return Evaluation(name, _protocol(split), split.truth.contexts.frame, values)


def _lists_evaluated(
    given: Any, split: Split, metrics: str | Sequence[str | Metric], threads: int | None
) -> Evaluation:
    _require_split(split)
    wanted = parse_metrics(metrics)
    lists = GivenLists.of(given, split)
    lists.check(wanted, stacklevel=4)
    beyond = any(metric.beyond_accuracy for metric in wanted)
    with blas_threads(threads):
        values = _values(wanted, lists.ranks(), lists.lists() if beyond else None, threads)
    return Evaluation("given lists", lists.protocol, split.truth.contexts.frame, values)


def _staged(
    two: StagedRanker,
    split: Split,
    metrics: str | Sequence[str | Metric],
    *,
    seed: int,
    memory: int | str | None,
    threads: int | None,
) -> TwoStageEvaluation:
    _require_split(split)
    wanted = parse_metrics(metrics)
    seed, budget = integer("seed", seed, least=0), memory_bytes(memory)
    two.require_fit()
    two.check_split(split, stacklevel=4)
    held_out = queries_of(two, split, stacklevel=3)
    queries = held_out.queries
    accuracy = [metric for metric in wanted if not metric.beyond_accuracy]
    of_first = list(dict.fromkeys([Metric("recall", two.candidates), *accuracy]))
    with blas_threads(threads):
        scorer = two.scorer(queries, threads)
        stage_one = CatalogueSearch(scorer, held_out.truth, held_out.excluded, seed, budget, threads)
        deepest = max(metric.n or 0 for metric in (*of_first, *wanted))
        stage_one.top(deepest, one_more=len(accuracy) < len(wanted))  # both stages read their lists from this search
        first = _measure(stage_one, of_first, two, split.train, queries.histories, warn=False)
        both = TwoStageSearch(
            **vars(stage_one),
            candidates=two.candidates,
            rerank=lambda items, scores: two.rerank(queries, TopItems(items, scores), budget, threads),
        )
        values = _measure(both, wanted, two, split.train, queries.histories, warn=True)
    name, second = two.stages
    return TwoStageEvaluation(
        f"{name} + {second}",
        name,
        _protocol(split),
        f"the first {two.candidates:,} of {name} reranked by {second}",
        split.truth.contexts.frame,
        values,
        first,
    )


def _require_split(split: Split) -> None:
    if not isinstance(split, Split):
        raise SettingError(
            f"evaluate takes a Split, got {type(split).__name__}",
            hint="create one with shortlist.splits",
            field="split",
        )


def _protocol(split: Split) -> str:
    seen = "seen items excluded" if split.exclude_seen else "seen items included"
    return f"{split.protocol}, the whole catalogue ranked, {seen}"


def evaluate_candidates(
    model: Ranker,
    truth: Interactions | Split,
    candidates: Interactions,
    metrics: str | Sequence[str | Metric] = ("hit@10", "ndcg@10"),
    *,
    seed: int = 0,
) -> Evaluation:
    """Rank each held-out item among a given list of candidates only. Use this only to reproduce published tables.

    Metrics on sampled candidates are inconsistent: they can order two models differently from metrics on the whole
    catalogue (Krichene & Rendle 2020). Use `evaluate` for everything else.

    Args:
        model: a fitted recommender.
        truth: events with exactly one held-out item for each context, or a split with such a truth.
        candidates: the items that each held-out item competes with, as (context, item) events. A candidate that is the
            held-out item itself counts as a tie with it. Drop such events if the published evaluation did.
        metrics: accuracy metrics, as in `evaluate`.
        seed: orders ties at random.

    Returns:
        An `Evaluation`.
    """
    wanted = parse_metrics(metrics)
    if beyond := [str(metric) for metric in wanted if metric.beyond_accuracy]:
        raise SettingError(
            f"evaluate_candidates has no {', '.join(beyond)}: metrics beyond accuracy need lists from the whole "
            "catalogue, but only the given candidates are ranked",
            hint="use evaluate",
            field="metrics",
        )
    _require_model(model)
    truth = truth.truth if isinstance(truth, Split) else truth
    for name, events in (("truth", truth), ("candidates", candidates)):
        if not isinstance(events, Interactions):
            raise SettingError(
                f"{name} is {type(events).__name__}; expected Interactions, as from datasets.read", field=name
            )
    contexts = truth.contexts.ids()
    if (np.bincount(truth.context_codes, minlength=len(contexts)) != 1).any():
        raise DataError(
            f"the truth has {len(truth):,} pairs for {len(contexts):,} contexts; expected one held-out item each",
            field="truth",
        )
    order = np.argsort(truth.context_codes, kind="stable")
    positives = model.items_.encode(truth.items.ids(truth.item_codes[order]), what="item")
    candidate_codes = model.items_.encode(candidates.items.ids(), what="item")
    context_of = truth.contexts.encode(candidates.contexts.ids(), what="context")[candidates.context_codes]
    by_context = np.argsort(context_of, kind="stable")
    counts = np.bincount(context_of, minlength=len(contexts))
    if (counts == 0).any():
        raise DataError(
            f"{int((counts == 0).sum()):,} of {len(contexts):,} contexts have no candidates", field="candidates"
        )
    lists = np.split(candidate_codes[candidates.item_codes[by_context]], np.cumsum(counts)[:-1])
    queries = model.queries(contexts)
    both = [np.concatenate([[positive], rest]) for positive, rest in zip(positives, lists)]
    scores = scores_of_items(model, queries, both)
    rng = np.random.default_rng([integer("seed", seed, least=0), 4])
    place = np.array(
        [
            1 + (row[1:] > row[0]).sum() + rng.integers(0, (row[1:] == row[0]).sum() + 1)
            for row in scores
        ]
    )  # fmt: skip
    ones = np.ones(len(place), np.int64)
    ranks = Ranks(indptr=np.arange(len(place) + 1), ranks=place, n_relevant=ones, n_ranked=counts + 1, cutoff=None)
    protocol = f"{counts.min():,} to {counts.max():,} given candidates ranked: not comparable with full ranking"
    return Evaluation(type(model).__name__, protocol, truth.contexts.frame, _values(wanted, ranks, None))


def _require_model(model: Ranker) -> None:
    if not is_ranker(model):
        raise SettingError(f"expected a fitted recommender, got {model!r:.80}", field="model")
    model.require_fit()


def _measure(
    search: CatalogueSearch,
    metrics: list[Metric],
    model: Ranker,
    train: Interactions,
    history: Histories,
    warn: bool,
) -> dict[str, npt.NDArray[np.float64]]:
    """Compute all metrics from one search, or from two if some metrics need every rank and others need lists.

    Ranks break ties at random, so that a model gains nothing from equal scores. Lists break ties as `recommend` does,
    because they stand for what users are shown.
    """
    accuracy = [metric for metric in metrics if not metric.beyond_accuracy]
    beyond = [metric for metric in metrics if metric.beyond_accuracy]
    full = any(metric.needs_full_ranks for metric in accuracy)
    ranks = search.full_ranks() if full else None
    lists = None
    if depths := [metric.n for metric in (beyond if full else metrics) if metric.n is not None]:
        top = search.top(max(depths), one_more=bool(beyond))
        if not full and accuracy:
            ranks = search.ranks_within(top.items[:, : top.n], max(depths))
        shown = search.shown(top, model.item_priority_) if beyond else top.items
        least = min(depths)
        if (
            warn
            and not model.uses_features
            and out_of_place(shown[:, :least], model.popularity_, search.excluded) > SUBSTANTIAL
        ):
            shown = shown if beyond else search.shown(top, model.item_priority_)  # do not warn about random ties
            warn_of_cold_items(type(model).__name__, shown[:, :least], model.popularity_, search.excluded)
        if beyond:
            trained = histories_of(train, model.items_, "raise", ordered=False).sets()
            lists = Lists(shown[:, : max(metric.n or 0 for metric in beyond)], trained, history.sets())
    return _values(metrics, ranks, lists, search.threads)


def _values(
    metrics: list[Metric], ranks: Ranks | None, lists: Lists | None, threads: int | None = None
) -> dict[str, npt.NDArray[np.float64]]:
    out = {}
    for metric in metrics:
        if metric.beyond_accuracy:
            assert lists is not None
            out[str(metric)] = metric.compute(lists, threads=threads)
            continue
        assert ranks is not None
        defined = metric.defined(ranks)
        values = np.full(len(ranks), np.nan)
        values[defined] = metric.compute(ranks if defined.all() else ranks.select(defined))
        out[str(metric)] = values
    return out
