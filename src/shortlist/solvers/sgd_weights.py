"""How much a sampled pair of items counts: nothing, penalties of ranks, changes of a metric."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_lean_kernel
from shortlist.objectives.lambdas import Lambdas, metric_change
from shortlist.sampling.kernels import below, send_for
from shortlist.sampling.tables import Tables
from shortlist.scoring.pair import pair_score
from shortlist.solvers.sgd_tables import PENALTY, PLAIN, Model, Rules, Weigher, Work

Array: TypeAlias = npt.NDArray[Any]


@fast_lean_kernel
def weight_of(
    weigher: Weigher,
    tables: Tables,
    rules: Rules,
    model: Model,
    c: int,
    i: int,
    j: int,
    rounds: int,
    work: Work,
) -> Any:
    """α̃ of the pair of i and j for context c."""
    if weigher.code == PLAIN or j < 0:
        return np.float32(1)
    if weigher.code == PENALTY:
        return weigher.penalties[(tables.n_items - 1) // rounds]
    return _sampled_change(weigher.lambdas, tables, rules, model, c, i, j, work)


@fast_lean_kernel
def score_candidates(
    state: Array, lambdas: Lambdas, tables: Tables, rules: Rules, model: Model, c: int, work: Work
) -> None:
    """Scores of some random items, which ranks are estimated by. Bound by their gathered rows."""
    candidates, scores = work.candidates, work.scores
    for k in range(lambdas.candidates):
        candidates[k] = below(state, tables.n_items)
        send_for(model.items, candidates[k])
    for k in range(lambdas.candidates):
        scores[k] = pair_score(model.contexts, c, model.items, candidates[k], rules.cosine)


@fast_lean_kernel
def _sampled_change(
    lambdas: Lambdas, tables: Tables, rules: Rules, model: Model, c: int, i: int, j: int, work: Work
) -> Any:
    """|ΔM| of ranks that are estimated from how many candidates score higher; see `LambdaRank`."""
    W, H, scores, ranks = model.contexts, model.items, work.scores, work.ranks
    n = lambdas.candidates
    a = _above(scores, n, pair_score(W, c, H, i, rules.cosine))
    b = _above(scores, n, pair_score(W, c, H, j, rules.cosine))
    begin, end = tables.indptr[c], tables.indptr[c + 1]
    if lambdas.by_positives == 0:
        return lambdas.changes[a, b] / lambdas.norms[end - begin]
    for e in range(begin, end):
        above = _above(scores, n, pair_score(W, c, H, tables.indices[e], rules.cosine))
        ranks[e - begin] = mean_rank(above, n, tables.n_items)
    return metric_change(lambdas, mean_rank(a, n, tables.n_items), mean_rank(b, n, tables.n_items), ranks, end - begin)


@fast_lean_kernel
def _above(scores: Array, n: int, score: float) -> int:
    """How many of the candidates score higher."""
    above = 0
    for k in range(n):
        above += scores[k] > score
    return above


@fast_lean_kernel
def mean_rank(above: int, n: int, n_items: int) -> int:
    """The rank, from 1, of an item that so many of n random items score higher than; in the mean, and rounded down."""
    return 1 + (above + 1) * (n_items - 1) // (n + 2)


@fast_lean_kernel
def exact_rank(scores: Array, i: int) -> Any:
    """The rank, from 1, of item i; of equal scores the one with the smaller code comes first."""
    own = scores[i]
    rank = np.int32(1)
    for k in range(len(scores)):
        rank += scores[k] > own
    for k in range(i):
        rank += scores[k] == own
    return rank
