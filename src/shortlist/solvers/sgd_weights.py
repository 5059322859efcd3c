"""Step weights α̃ of sampled pairs: 1, WARP's penalties of ranks, or LambdaRank's change of a metric (section 4.2)."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import Static, fast_lean_kernel
from shortlist.objectives.lambdarank import MetricTables, metric_change
from shortlist.sampling.draw_kernels import prefetch_row, random_below
from shortlist.sampling.sampler_tables import SamplerTables
from shortlist.scoring.pair_score import pair_score
from shortlist.solvers.sgd_tables import BY_POSITIVES, LAMBDA, PENALTY, ModelTables, WeightTables, Workspace

Array: TypeAlias = npt.NDArray[Any]


@fast_lean_kernel
def weigh(
    weighing: Static,
    cosine: int | None,
    state: Array,
    weigher: WeightTables,
    tables: SamplerTables,
    model: ModelTables,
    c: int,
    i: int,
    at: int,
    work: Workspace,
) -> None:
    """Set `work.weights[at]` to α̃ of (c, i, j) for each j in `work.negatives[at]`; 1 if there is no negative."""
    negatives, weights = work.negatives[at], work.weights[at]
    if len(weighing) >= LAMBDA:
        score_candidates(cosine, state, weigher.lambdas, tables, model, c, work)
        _sampled_changes(weighing, cosine, weigher.lambdas, tables, model, c, i, negatives, work, weights)
        return
    for k in range(len(negatives)):
        weights[k] = 1
        if len(weighing) == PENALTY and negatives[k] >= 0:
            weights[k] = weigher.penalties[(tables.n_items - 1) // work.rounds[at, k]]


@fast_lean_kernel
def score_candidates(
    cosine: int | None,
    state: Array,
    lambdas: MetricTables,
    tables: SamplerTables,
    model: ModelTables,
    c: int,
    work: Workspace,
) -> None:
    """Score some random items, from which ranks are estimated. Bound by their gathered rows."""
    candidates, scores = work.candidates, work.scores
    for k in range(lambdas.candidates):
        candidates[k] = random_below(state, tables.n_items)
        prefetch_row(model.items, candidates[k])
    for k in range(lambdas.candidates):
        scores[k] = pair_score(model.contexts, c, model.items, candidates[k], cosine)


@fast_lean_kernel
def _sampled_changes(
    weighing: Static,
    cosine: int | None,
    lambdas: MetricTables,
    tables: SamplerTables,
    model: ModelTables,
    c: int,
    i: int,
    negatives: Array,
    work: Workspace,
    weights: Array,
) -> None:
    """Set the weights to |ΔM|, with ranks estimated from how many candidates score higher; see `LambdaRank`."""
    W, H, scores, ranks, n = model.contexts, model.items, work.scores, work.ranks, lambdas.candidates
    above_positive = _above(scores, n, pair_score(W, c, H, i, cosine))
    begin, end = tables.indptr[c], tables.indptr[c + 1]
    if len(weighing) == BY_POSITIVES:
        for e in range(begin, end):
            above = _above(scores, n, pair_score(W, c, H, tables.indices[e], cosine))
            ranks[e - begin] = mean_rank(above, n, tables.n_items)
    for k in range(len(negatives)):
        weights[k] = 1
        if negatives[k] < 0:
            continue
        above = _above(scores, n, pair_score(W, c, H, negatives[k], cosine))
        if len(weighing) == BY_POSITIVES:
            a, b = mean_rank(above_positive, n, tables.n_items), mean_rank(above, n, tables.n_items)
            weights[k] = metric_change(lambdas, a, b, ranks, end - begin)
        else:
            weights[k] = lambdas.changes[above_positive, above] / lambdas.norms[end - begin]


@fast_lean_kernel
def _above(scores: Array, n: int, score: float) -> int:
    """Return how many of the n candidates score higher."""
    above = 0
    for k in range(n):
        above += scores[k] > score
    return above


@fast_lean_kernel
def mean_rank(above: int, n: int, n_items: int) -> int:
    """Return the mean rank, from 1 and rounded down, of an item that `above` of n random items score higher than."""
    return 1 + (above + 1) * (n_items - 1) // (n + 2)


@fast_lean_kernel
def exact_rank(scores: Array, i: int) -> Any:
    """Return the rank, from 1, of item i; ties are broken by the smaller code."""
    score = scores[i]
    rank = np.int32(1)
    for k in range(len(scores)):
        rank += scores[k] > score
    for k in range(i):
        rank += scores[k] == score
    return rank
