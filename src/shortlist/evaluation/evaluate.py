"""Protocols: the whole catalogue ranked, always; and, under its own name, published candidate lists."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist._settings import memory_bytes, whole
from shortlist._threads import blas_threads
from shortlist.data.interactions import Interactions
from shortlist.data.rows import Rows, holds
from shortlist.data.splits import Split
from shortlist.errors import DataError, SettingError, ShortlistWarning
from shortlist.evaluation.result import Evaluation
from shortlist.metrics import Metric, Ranks, parse_metrics
from shortlist.recommenders.answers import Labels
from shortlist.recommenders.base import Queries, Recommender
from shortlist.retrieval import Filters, item_ranks, top_n
from shortlist.scoring import BlockScorer

Array: TypeAlias = npt.NDArray[Any]
DEFAULT_METRICS = ("recall@20", "ndcg@20")


def evaluate(
    model: Recommender,
    split: Split,
    metrics: str | Sequence[str | Metric] = DEFAULT_METRICS,
    *,
    seed: int = 0,
    memory: int | str | None = None,
    threads: int | None = None,
) -> Evaluation:
    """Rank the whole catalogue for every context of the split's truth and measure where the truth lands.

    Args:
        model: fitted on `split.train`.
        split: says whom to ask for, what is known of them, and whether seen items are left out of the ranking (they are
            where repeats do not count).
        metrics: such as "recall@20", "ndcg@100", "auc"; `shortlist.metrics` has them all.
        seed: equal scores are ordered at random under this seed, so that a model that cannot tell items apart gets the
            figures of chance.
        memory: what blocks of scores may take, bytes or text such as "256MB".
        threads: how many to use; the result does not depend on it.
    """
    if not isinstance(split, Split):
        raise SettingError(f"evaluate takes a Split, got {type(split).__name__}; make one with shortlist.splits")
    wanted = parse_metrics(metrics)
    seed = whole("seed", seed, least=0)
    _require_model(model)
    history = model._with_own_items(split.history.by_context, split.history.items, "skip")
    codes = None
    if not split.fold_in:
        way_out = "fit the model on split.train"
        codes = model.contexts_.encode(split.truth.contexts.frame, what="context", way_out=way_out)
        _warn_if_fitted_on_other_data(model, codes, history)
    labels = Labels(split.truth.contexts, np.arange(split.truth.n_contexts, dtype=np.int32))
    queries = Queries(labels, codes, history, np.ones(len(labels), np.bool_))
    truth = _own_truth(model, split)
    filters = Filters(exclude=(history.indptr, history.indices)) if split.exclude_seen else None
    with blas_threads(threads):
        scorer = model._scorer(queries, threads)
        budget = memory_bytes(memory)
        ranks = _ranks(scorer, truth, filters, history, wanted, seed=seed, memory=budget, threads=threads)
    seen = "seen items left out" if split.exclude_seen else "seen items ranked too"
    protocol = f"{split.protocol}, the whole catalogue ranked, {seen}"
    return Evaluation(type(model).__name__, protocol, split.truth.contexts.frame, _values(ranks, wanted))


def evaluate_candidates(
    model: Recommender,
    truth: Interactions,
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
        truth: one pair a context: the item to find.
        candidates: the items it has to stand against, as (context, item) events. An item equal to the true one counts
            as a tie with it; leave such events out where a published evaluation takes the two for one.
        metrics: as in `evaluate`.
        seed: of the random order of ties.
    """
    wanted = parse_metrics(metrics)
    _require_model(model)
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
    return Evaluation(type(model).__name__, protocol, truth.contexts.frame, _values(ranks, wanted))


def _require_model(model: Recommender) -> None:
    if not isinstance(model, Recommender):
        raise SettingError(f"expected a fitted recommender, got {model!r:.80}")
    model._require_fit()


def _warn_if_fitted_on_other_data(model: Recommender, codes: Array, history: Rows) -> None:
    own = model.seen_.take(codes)
    if not (np.array_equal(own.indptr, history.indptr) and np.array_equal(own.indices, history.indices)):
        warnings.warn(
            "the model was not fitted on split.train: what it has seen of these contexts is not the split's history, "
            "so it may know the answers",
            ShortlistWarning,
            stacklevel=3,
        )


def _own_truth(model: Recommender, split: Split) -> Rows:
    """The relevant items in the model's codes; what the model does not know cannot be dropped unsaid."""
    truth = split.truth.by_context
    if model.items_ is split.truth.items or model.items_ == split.truth.items:
        return truth
    missing = [one for one in split.train.items.ids() if one not in model.items_]
    if missing:
        raise DataError(
            f"the model does not know {len(missing):,} of the {split.train.n_items:,} items of split.train, such as "
            f"{missing[0]!r}; fit it on split.train"
        )
    return model._with_own_items(truth, split.truth.items, "raise")


def _ranks(
    scorer: BlockScorer,
    truth: Rows,
    filters: Filters | None,
    history: Rows,
    metrics: list[Metric],
    *,
    seed: int,
    memory: int,
    threads: int | None,
) -> Ranks:
    """The ranks of the relevant items: as deep as the metrics look, which is cheaper than all of them."""
    n_ranked = np.full(truth.n_rows, truth.n_columns, np.int64) - (history.lengths if filters is not None else 0)
    if any(metric.needs_full_ranks for metric in metrics):
        ranks, n_ranked = item_ranks(
            scorer, (truth.indptr, truth.indices), filters=filters, tie_seed=seed, memory=memory, threads=threads
        )
        return Ranks(truth.indptr, ranks, truth.lengths, n_ranked, None)
    n = max(metric.n or 0 for metric in metrics)
    top, _ = top_n(scorer, min(n, scorer.n_items), filters=filters, tie_seed=seed, memory=memory, threads=threads)
    indptr, ranks = hit_ranks(top, truth.indptr, truth.indices)
    return Ranks(indptr, ranks, truth.lengths, n_ranked, n)


def _values(ranks: Ranks, metrics: list[Metric]) -> dict[str, npt.NDArray[np.float64]]:
    out = {}
    for metric in metrics:
        defined = metric.defined(ranks)
        values = np.full(len(ranks), np.nan)
        values[defined] = metric.compute(ranks if defined.all() else ranks.select(defined))
        out[str(metric)] = values
    return out


@kernel
def hit_ranks(top: Array, indptr: Array, indices: Array) -> tuple[Array, Array]:
    """For each row of `top`, the places (from 1) at which items of the row's sorted `indices` stand."""
    n_rows, n = top.shape
    out_indptr = np.zeros(n_rows + 1, np.int64)
    out = np.empty(min(n_rows * n, len(indices)), np.int64)
    at = 0
    for q in range(n_rows):
        begin, end = indptr[q], indptr[q + 1]
        for k in range(n):
            if holds(indices, begin, end, top[q, k]):
                out[at] = k + 1
                at += 1
        out_indptr[q + 1] = at
    return out_indptr, out[:at]
