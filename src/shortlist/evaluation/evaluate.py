"""Evaluate recommenders: rank the whole catalogue, or (separately) published candidate lists."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer, memory_bytes
from shortlist._threads import blas_threads
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.splits import Split
from shortlist.errors import DataError, SettingError, ShortlistWarning
from shortlist.evaluation.catalogue_search import CatalogueSearch, TwoStageSearch
from shortlist.evaluation.cold_items import SUBSTANTIAL, out_of_place, warn_of_cold_items
from shortlist.evaluation.result import Evaluation, TwoStageEvaluation
from shortlist.evaluation.slate_search import SlateSearch, check_depths
from shortlist.metrics import Lists, Metric, Ranks, parse_metrics
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.split_queries import queries_of, warn_if_leaked
from shortlist.reranking.two_stage import TwoStage
from shortlist.retrieval.slates.base import Slate, check_slate

CLICKED = 0.1  # fraction of a split's held-out pairs that users may plausibly have clicked before
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
    model: TwoStage,
    split: Split,
    metrics: str | Sequence[str | Metric] = ...,
    *,
    seed: int = ...,
    memory: int | str | None = ...,
    threads: int | None = ...,
) -> TwoStageEvaluation: ...


@overload
def evaluate(
    model: Recommender,
    split: Split,
    metrics: str | Sequence[str | Metric] = ...,
    *,
    slate: Slate | None = ...,
    seed: int = ...,
    memory: int | str | None = ...,
    threads: int | None = ...,
) -> Evaluation: ...


def evaluate(
    model: Recommender | TwoStage,
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
        model: a recommender fitted on `split.train`. For a `TwoStage`, fit stage two on a split of `split.train`, then
            refit stage one, and any recommenders in `models`, on the whole of `split.train` (with
            `TwoStage.with_first`; see the example of `TwoStage`). Its metrics are those of both stages together. With
            the prefix `first:`, the result also has the accuracy metrics of stage one alone, and the fraction of
            held-out items that are among its candidates.
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
    if isinstance(model, TwoStage):
        if slate is not None:
            raise SettingError("a TwoStage cannot be evaluated with a slate; omit slate=, or evaluate stage one alone")
        return _staged(model, split, metrics, seed=seed, memory=memory, threads=threads)
    return _evaluated(model, split, metrics, slate=slate, seed=seed, memory=memory, threads=threads)


def validation_score(model: Recommender, split: Split, metric: str, threads: int | None = None) -> float:
    """Return the mean of one metric on a validation split, for a model that is still training. Never warns."""
    value = _evaluated(model, split, [metric], threads=threads, warn=False)[metric]
    if not math.isfinite(value):
        raise DataError(f"{metric} is not defined for any context of the validation split; use another metric")
    return value


def _evaluated(
    model: Recommender,
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
        scorer = model._scorer(held_out.queries, threads)
        search = CatalogueSearch(scorer, held_out.truth, held_out.excluded, seed, memory_bytes(memory), threads)
        if slate is not None:
            search = SlateSearch.of(search, slate, model, held_out.queries)
        values = _measure(search, wanted, model, split.train, held_out.queries.histories, warn)
    name = type(model).__name__ + ("" if slate is None else f" with {slate!r}")
    return Evaluation(name, _protocol(split), split.truth.contexts.frame, values)


def _staged(
    two: TwoStage,
    split: Split,
    metrics: str | Sequence[str | Metric],
    *,
    seed: int,
    memory: int | str | None,
    threads: int | None,
) -> TwoStageEvaluation:
    _require_split(split)
    wanted = parse_metrics(metrics)
    seed = integer("seed", seed, least=0)
    two._require_fit()
    _warn_of_leakage(two, split)
    held_out = queries_of(two.first, split, stacklevel=3)
    for name, model in two.candidate_features.models.items():
        warn_if_leaked(model, split, f"the further model {name!r}", stacklevel=3)
    accuracy = [metric for metric in wanted if not metric.beyond_accuracy]
    of_first = list(dict.fromkeys([Metric("recall", two.candidates), *accuracy]))
    with blas_threads(threads):
        scorer = two.first._scorer(held_out.queries, threads)
        shared = (scorer, held_out.truth, held_out.excluded, seed, memory_bytes(memory), threads)
        stage_one = CatalogueSearch(*shared)
        first = _measure(stage_one, of_first, two.first, split.train, held_out.queries.histories, warn=False)
        both = TwoStageSearch(
            *shared,
            two.candidates,
            lambda items, scores: two._rerank(held_out.queries, items, scores, memory_bytes(memory), threads),
        )
        values = _measure(both, wanted, two.first, split.train, held_out.queries.histories, warn=True)
    name, second = type(two.first).__name__, type(two.reranker).__name__
    return TwoStageEvaluation(
        f"{name} + {second}",
        name,
        _protocol(split),
        f"the first {two.candidates:,} of {name} reranked by {second}",
        split.truth.contexts.frame,
        values,
        first,
    )


def _warn_of_leakage(two: TwoStage, split: Split) -> None:
    fraction = two.knows_answers(split)
    clicks = two._reranker_state.clicks
    if fraction <= (CLICKED if clicks else 0.0):
        return
    n = len(split.truth.by_context)
    pairs = f"{round(fraction * n):,} of {n:,} held-out pairs of this split"
    warnings.warn(
        f"the second stage learned from clicks on {pairs}, so its scores may be too good. Train it on impressions that "
        "are older than the held-out events"
        if clicks
        else f"the second stage learned from {pairs}, so its scores are too good. Fit it on a split of split.train, as "
        "the guide shows",
        ShortlistWarning,
        stacklevel=4,
    )


def _require_split(split: Split) -> None:
    if not isinstance(split, Split):
        raise SettingError(f"evaluate takes a Split, got {type(split).__name__}; create one with shortlist.splits")


def _protocol(split: Split) -> str:
    seen = "seen items excluded" if split.exclude_seen else "seen items included"
    return f"{split.protocol}, the whole catalogue ranked, {seen}"


def evaluate_candidates(
    model: Recommender,
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
            "catalogue, but only the given candidates are ranked; use evaluate"
        )
    _require_model(model)
    truth = truth.truth if isinstance(truth, Split) else truth
    for name, events in (("truth", truth), ("candidates", candidates)):
        if not isinstance(events, Interactions):
            raise SettingError(f"{name} is {type(events).__name__}; expected Interactions, as from datasets.read")
    contexts = truth.contexts.ids()
    if (np.bincount(truth.context_codes, minlength=len(contexts)) != 1).any():
        raise DataError(
            f"the truth has {len(truth):,} pairs for {len(contexts):,} contexts; expected one held-out item each"
        )
    order = np.argsort(truth.context_codes, kind="stable")
    positives = model.items_.encode(truth.items.ids(truth.item_codes[order]), what="item")
    candidate_codes = model.items_.encode(candidates.items.ids(), what="item")
    context_of = truth.contexts.encode(candidates.contexts.ids(), what="context")[candidates.context_codes]
    by_context = np.argsort(context_of, kind="stable")
    counts = np.bincount(context_of, minlength=len(contexts))
    if (counts == 0).any():
        raise DataError(f"{int((counts == 0).sum()):,} of {len(contexts):,} contexts have no candidates")
    lists = np.split(candidate_codes[candidates.item_codes[by_context]], np.cumsum(counts)[:-1])
    queries = model._queries(contexts, None, "raise")
    scores = model._scores(queries, [np.concatenate([[positive], rest]) for positive, rest in zip(positives, lists)])
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


def _require_model(model: Recommender) -> None:
    if not isinstance(model, Recommender):
        raise SettingError(f"expected a fitted recommender, got {model!r:.80}")
    model._require_fit()


def _measure(
    search: CatalogueSearch,
    metrics: list[Metric],
    model: Recommender,
    train: Interactions,
    history: SparseRows,
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
        shown = search.shown(top, model._priority) if beyond else top.items
        least = min(depths)
        if (
            warn
            and not model._described
            and out_of_place(shown[:, :least], model.popularity_, search.excluded) > SUBSTANTIAL
        ):
            shown = shown if beyond else search.shown(top, model._priority)  # do not warn about random ties
            warn_of_cold_items(type(model).__name__, shown[:, :least], model.popularity_, search.excluded)
        if beyond:
            trained = model._with_own_items(train.by_context, train.items, "raise")
            lists = Lists(shown[:, : max(metric.n or 0 for metric in beyond)], trained, history)
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
