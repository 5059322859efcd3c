"""Protocols: the whole catalogue ranked, always; and, under its own name, published candidate lists."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from shortlist._checks import memory_bytes, whole
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
from shortlist.recommenders.split_queries import asked_of, warn_if_it_knows
from shortlist.reranking.two_stage import TwoStage
from shortlist.retrieval.slates.base import Slate, check_slate

CLICKED = 0.1  # share of what a split asks for that people may well have clicked before
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
    """Rank the whole catalogue for every context of the split's truth and measure where the truth lands.

    Metrics beyond accuracy describe the lists by what `split.train` holds, so that they can be compared between models.
    A model whose lists are filled with items that nobody had in training is warned of.

    Args:
        model: fitted on `split.train`. Of a `TwoStage` that is stage one, and the further models; stage two must have
            learnt from something older than what the split asks for. The metrics are then of both together; beside
            them, after `first:`, stand stage one's recall among the candidates and its own metrics of accuracy.
        split: says whom to ask for, what is known of them, and whether seen items are left out of the ranking (they are
            where repeats do not count).
        metrics: such as "recall@20", "ndcg@100", "auc" for accuracy, "coverage@20", "popularity@20" for what the lists
            are like; `shortlist.metrics` has them all. By default some of both.
        slate: measure the lists of `recommend(slate=)`, such as `shortlist.slates.MMR(0.3)`, in place of the best
            items. Metrics that look at the whole ranking, or at more places than the slate's pool has, are refused.
        seed: equal scores are ordered at random under this seed, so that a model that cannot tell items apart gets the
            figures of chance.
        memory: what blocks of scores may take, bytes or text such as "256MB".
        threads: how many to use; the result does not depend on it.
    """
    if isinstance(model, TwoStage):
        if slate is not None:
            raise SettingError(
                "a slate of two stages is not evaluated; evaluate one of the stage that finds candidates"
            )
        return _staged(model, split, metrics, seed=seed, memory=memory, threads=threads)
    return _evaluated(model, split, metrics, slate=slate, seed=seed, memory=memory, threads=threads)


def validation_score(model: Recommender, split: Split, metric: str, threads: int | None = None) -> float:
    """The mean of one metric on a validation split, of a model in the making: there is no warning of anything."""
    value = _evaluated(model, split, [metric], threads=threads, warn=False)[metric]
    if not math.isfinite(value):
        raise DataError(f"{metric} is not defined for any context of the validation; take another metric")
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
    seed = whole("seed", seed, least=0)
    _require_model(model)
    asked = asked_of(model, split, warn=warn, stacklevel=3)
    with blas_threads(threads):
        scorer = model._scorer(asked.queries, threads)
        search = CatalogueSearch(scorer, asked.truth, asked.excluded, seed, memory_bytes(memory), threads)
        if slate is not None:
            search = SlateSearch.of(search, slate, model, asked.queries)
        values = _measure(search, wanted, model, split.train, asked.queries.histories, warn)
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
    seed = whole("seed", seed, least=0)
    two._require_fit()
    _warn_of_answers(two, split)
    asked = asked_of(two.first, split, stacklevel=3)
    for name, model in two.candidate_features.models.items():
        warn_if_it_knows(model, split, f"the further model {name!r}", stacklevel=3)
    of_first = list(
        dict.fromkeys([Metric("recall", two.candidates), *(one for one in wanted if not one.beyond_accuracy)])
    )
    with blas_threads(threads):
        scorer = two.first._scorer(asked.queries, threads)
        how = (scorer, asked.truth, asked.excluded, seed, memory_bytes(memory), threads)
        first = _measure(CatalogueSearch(*how), of_first, two.first, split.train, asked.queries.histories, warn=False)
        both = TwoStageSearch(
            *how,
            two.candidates,
            lambda items, scores: two._reranked(asked.queries, items, scores, memory_bytes(memory), threads),
        )
        values = _measure(both, wanted, two.first, split.train, asked.queries.histories, warn=True)
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


def _warn_of_answers(two: TwoStage, split: Split) -> None:
    share = two.knows_answers(split)
    clicks = two._reranker_state.clicks
    if share <= (CLICKED if clicks else 0.0):
        return
    n = len(split.truth.by_context)
    pairs = f"{round(share * n):,} of {n:,} pairs that this split asks for"
    warnings.warn(
        f"the second stage learnt from clicks on {pairs}, so its figures may be too good: what was shown must be older "
        "than what the split asks for"
        if clicks
        else f"the second stage learnt from {pairs}, so its figures are too good: fit it on a split of split.train, as "
        "the guide shows",
        ShortlistWarning,
        stacklevel=4,
    )


def _require_split(split: Split) -> None:
    if not isinstance(split, Split):
        raise SettingError(f"evaluate takes a Split, got {type(split).__name__}; make one with shortlist.splits")


def _protocol(split: Split) -> str:
    seen = "seen items left out" if split.exclude_seen else "seen items ranked too"
    return f"{split.protocol}, the whole catalogue ranked, {seen}"


def evaluate_candidates(
    model: Recommender,
    truth: Interactions | Split,
    candidates: Interactions,
    metrics: str | Sequence[str | Metric] = ("hit@10", "ndcg@10"),
    *,
    seed: int = 0,
) -> Evaluation:
    """Rank each true item among a given list of candidates only: for reproducing published tables, and only for that.

    Figures on sampled candidates are inconsistent: they need not even order two models as the whole catalogue would
    (Krichene & Rendle 2020). Use `evaluate` for everything else.

    Args:
        model: fitted.
        truth: one pair a context, the item to find; or the split that has it.
        candidates: the items it has to stand against, as (context, item) events. An item equal to the true one counts
            as a tie with it; leave such events out where a published evaluation takes the two for one.
        metrics: as in `evaluate`, without those beyond accuracy.
        seed: of the random order of ties.
    """
    wanted = parse_metrics(metrics)
    if beyond := [str(metric) for metric in wanted if metric.beyond_accuracy]:
        raise SettingError(
            f"{', '.join(beyond)} cannot be had here: metrics beyond accuracy describe lists from the whole catalogue, "
            "and only given candidates are ranked; use evaluate"
        )
    _require_model(model)
    truth = truth.truth if isinstance(truth, Split) else truth
    for name, given in (("truth", truth), ("candidates", candidates)):
        if not isinstance(given, Interactions):
            raise SettingError(f"{name} is {type(given).__name__}; expected Interactions, as datasets.read gives them")
    contexts = truth.contexts.ids()
    if (np.bincount(truth.context_codes, minlength=len(contexts)) != 1).any():
        raise DataError(
            f"{len(truth):,} true pairs for {len(contexts):,} contexts; this protocol has one true item each"
        )
    order = np.argsort(truth.context_codes, kind="stable")
    positives = model.items_.encode(truth.items.ids(truth.item_codes[order]), what="item")
    others = model.items_.encode(candidates.items.ids(), what="item")
    context_of = truth.contexts.encode(candidates.contexts.ids(), what="context")[candidates.context_codes]
    by_context = np.argsort(context_of, kind="stable")
    counts = np.bincount(context_of, minlength=len(contexts))
    if (counts == 0).any():
        raise DataError(f"{int((counts == 0).sum()):,} of {len(contexts):,} contexts have no candidates")
    lists = np.split(others[candidates.item_codes[by_context]], np.cumsum(counts)[:-1])
    queries = model._queries(contexts, None, "raise")
    scores = model._scores(queries, [np.concatenate([[one], rest]) for one, rest in zip(positives, lists)])
    rng = np.random.default_rng([whole("seed", seed, least=0), 4])
    place = np.array(
        [
            1 + (row[1:] > row[0]).sum() + rng.integers(0, (row[1:] == row[0]).sum() + 1)
            for row in scores
        ]
    )  # fmt: skip
    ones = np.ones(len(place), np.int64)
    ranks = Ranks(indptr=np.arange(len(place) + 1), ranks=place, n_relevant=ones, n_ranked=counts + 1, cutoff=None)
    protocol = f"ranked among {counts.min():,} to {counts.max():,} given candidates: not comparable with full ranking"
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
    """The values of all metrics, from one search, unless some need every rank and others need lists.

    Ranks have equal scores in random order, so that nobody gains by giving them; lists have them in the order of
    `recommend`, since they are to say what people are shown.
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
            shown = shown if beyond else search.shown(top, model._priority)  # chance is no reason to warn
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
