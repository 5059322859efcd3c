"""Steps on one observed pair and its negatives at a time (Algorithms 1 and 2 of the article), for dot-product models.

A chunk of pairs is worked through in small blocks: negatives of a block are drawn and weighed, their rows sent for, and
then the steps are taken. So drawing, weighing and stepping know nothing of each other, and the rows are in the cache
when they are needed. In a block, samplers that look at the model see it as it was when the block began.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import Static, fast_lean_kernel
from shortlist._prefetch import prefetch
from shortlist._random import GOLDEN, mixed, sown
from shortlist.objectives.lambdarank import metric_change
from shortlist.objectives.losses import loss_slope, loss_value
from shortlist.sampling.draw_kernels import (
    another,
    draw_one,
    draw_rejection,
    excluded,
    get_ready,
    propose,
    propose_places,
    send_for,
    settled,
    settled_adaptive,
    sow,
)
from shortlist.sampling.history_filter import send_for_bit
from shortlist.sampling.sampler_tables import ADAPTIVE, HISTORY, REJECTION, UNIFORM, SamplerTables
from shortlist.scoring.pair_score import pair_score
from shortlist.solvers.optimizers import ADAM, SGD, OptimizerState
from shortlist.solvers.sgd_order import shuffle
from shortlist.solvers.sgd_steps import TOLD, move_three, step
from shortlist.solvers.sgd_tables import (
    AHEAD,
    PAIRWISE,
    PLAIN,
    KernelArguments,
    KernelKinds,
    ModelTables,
    StepTables,
    TrainingPairs,
    WeightTables,
    Workspace,
)
from shortlist.solvers.sgd_weights import exact_rank, weigh

Array: TypeAlias = npt.NDArray[Any]


def run_chunk(
    seed: np.uint64,
    pairs: TrainingPairs,
    start: int,
    stop: int,
    tables: SamplerTables,
    weigher: WeightTables,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
    sums: Array,
) -> None:
    """A step for each of the pairs start … stop, in this order; adds to `sums`, see `step`.

    The plain pairwise step reads and writes three rows of d floats and reads a few more numbers: 24d bytes. Rows come
    from wherever they are, in any order; that they are sent for a block ahead hides most of the wait. What remains is
    bound by the caches' bandwidth.
    """
    work.state[:] = sown(int(seed))
    needed = KernelArguments.of(tables, weigher, rules, model, work)
    _run(needed.kinds.sampler, needed.kinds.optimizer, None, *needed, pairs, start, stop, sums)


class FoldInRows(NamedTuple):
    """Histories whose contexts are learnt one after the other, see `fold_rows`."""

    seed: np.uint64
    passes: int
    dim: int
    rates: Array
    indptr: Array
    indices: Array
    strengths: Array
    shares: Array


@fast_lean_kernel
def _run(
    sampler: Static,
    optimizer: Static,
    fold: FoldInRows | None,
    kinds: KernelKinds,
    tables: SamplerTables,
    weigher: WeightTables,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
    pairs: TrainingPairs,
    start: int,
    stop: int,
    sums: Array,
) -> None:
    """Steps for the pairs start … stop; or, for contexts start … stop of `fold`, for their pairs in several passes.

    Both are this one function, so that each compiles the blocks once: a kernel in a kernel is compiled twice.
    """
    m = rules.n_negatives
    state, negatives, weights = work.state, work.negatives, work.weights
    first, last = start, stop
    n_contexts, passes = 1, 1
    if fold is not None:
        n_contexts, passes = stop - start, fold.passes
    for turn in range(n_contexts * passes):
        if fold is not None:
            first, last = 0, _next_pass(kinds, fold, start + turn // passes, turn % passes, rules, model, work)
        begin = first
        while begin < last:
            end = min(begin + len(negatives), last)
            for s in range(begin, end):
                c, i = pairs.contexts[s], pairs.items[s]
                send_for(model.contexts, c)
                send_for(model.items, i)
                if len(optimizer) != SGD:
                    _send_for_state(optimizer, model.context_state, c)
                    _send_for_state(optimizer, model.item_state, i)
                if len(sampler) == UNIFORM:
                    for k in range(m):
                        negatives[s - begin, k] = propose(state, tables, c)
            if len(sampler) == REJECTION:
                _reject(kinds.cosine, state, pairs, begin, end, tables, rules, model, work)
            elif len(sampler) == ADAPTIVE:
                _look_up(state, pairs, begin, end, tables, model, work)
            for s in range(begin, end):
                c, i = pairs.contexts[s], pairs.items[s]
                at = s - begin
                for k in range(m):
                    j = negatives[at, k]
                    if len(sampler) == UNIFORM:
                        j = settled(state, tables, c, i, j)
                    elif len(sampler) == ADAPTIVE:
                        j = settled_adaptive(state, tables, c, i, j, model.contexts, work.parts)
                    elif len(sampler) != REJECTION:
                        j = draw_one(sampler, state, tables, c, i, model.contexts, work.parts, pairs.items, first, last)
                    if j >= 0:
                        send_for(model.items, j)
                        if len(optimizer) != SGD and fold is None:
                            _send_for_state(optimizer, model.item_state, j)
                    negatives[at, k] = j
                weigh(kinds.weighing, kinds.cosine, state, weigher, tables, model, c, i, at, work)
            for s in range(begin, end):
                at = s - begin
                step(kinds.path, kinds, pairs, s, negatives[at], weights[at], rules, model, work, sums)
            begin = end


@fast_lean_kernel
def _next_pass(
    kinds: KernelKinds, fold: FoldInRows, c: int, turn: int, rules: StepTables, model: ModelTables, work: Workspace
) -> int:
    """Put the pairs of context c into `work.own`, in the order of this pass, and set its rates; return how many."""
    state, own = work.state, work.own
    begin = fold.indptr[c]
    n = fold.indptr[c + 1] - begin
    if n == 0:
        return 0
    if turn == 0:
        sow(state, fold.seed)
        for k in range(n):
            own.contexts[k] = c
            own.items[k] = fold.indices[begin + k]
            own.strengths[k] = fold.strengths[begin + k if len(fold.strengths) > 1 else 0]
            own.shares[k] = fold.shares[begin + k if len(fold.shares) > 1 else 0]
            state[0] = mixed(state[0] + (np.uint64(own.items[k]) + np.uint64(1)) * GOLDEN)
        _begin(kinds.cosine, model, c, own, n, fold.dim)
    share = np.float32(1.0 - turn / fold.passes)
    for f in range(model.contexts.shape[1]):
        rules.context_rates[f] = share * fold.rates[f]
    shuffle(state[0], own, 0, n)
    state[0] = mixed(state[0] + GOLDEN)
    return int(n)


@fast_lean_kernel
def _send_for_state(optimizer: Static, state: OptimizerState, r: int) -> None:
    """Ask for what the optimizer remembers of a row, where it does."""
    if len(state.first) > 1:
        send_for(state.first, r)
        if len(optimizer) == ADAM:
            send_for(state.second, r)


@fast_lean_kernel
def _look_up(
    state: Array, pairs: TrainingPairs, begin: int, end: int, tables: SamplerTables, model: ModelTables, work: Workspace
) -> None:
    """Proposals of AdaptiveRank for the pairs of a block: first places in its lists, then what stands there."""
    negatives, coordinates = work.negatives, work.rounds
    for s in range(begin, end):
        at = s - begin
        propose_places(state, tables, pairs.contexts[s], model.contexts, work.parts, coordinates[at], negatives[at])
    for s in range(begin, end):
        for k in range(negatives.shape[1]):
            j = tables.lists[coordinates[s - begin, k], negatives[s - begin, k]]
            if tables.exclude == HISTORY:
                send_for_bit(tables.bits, tables.offset, pairs.contexts[s], j)
            negatives[s - begin, k] = j


@fast_lean_kernel
def _reject(
    cosine: int | None,
    state: Array,
    pairs: TrainingPairs,
    begin: int,
    end: int,
    tables: SamplerTables,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
) -> None:
    """`draw_rejection` for the pairs of a block, round by round: all draw and send for a row, then all score theirs.

    So nobody waits for a row, and none is sent for in vain.
    """
    W, H = model.contexts, model.items
    negatives, rounds, least, waiting = work.negatives, work.rounds, work.least, work.waiting
    for k in range(rules.n_negatives):
        n_waiting = end - begin if tables.n_items > 1 else 0  # else there is nothing to propose
        for at in range(end - begin):
            negatives[at, k] = -1
        for at in range(n_waiting):
            c, i = pairs.contexts[begin + at], pairs.items[begin + at]
            least[at] = pair_score(W, c, H, i, cosine) - np.float32(tables.margin)
            waiting[at] = at
        for n in range(1, tables.rounds + 1):
            for x in range(n_waiting):
                at = waiting[x]
                j = another(state, tables.n_items, pairs.items[begin + at])
                negatives[at, k] = j
                send_for(H, j)
            left = 0
            for x in range(n_waiting):
                at = waiting[x]
                c, i, j = pairs.contexts[begin + at], pairs.items[begin + at], negatives[at, k]
                rounds[at, k] = n
                if pair_score(W, c, H, j, cosine) <= least[at] or excluded(tables, c, i, j):
                    waiting[left] = at
                    left += 1
            n_waiting = left
            if left == 0:
                break
        for x in range(n_waiting):
            negatives[waiting[x], k] = -1


def fold_rows(
    seed: np.uint64,
    start: int,
    stop: int,
    passes: int,
    dim: int,
    rates: Array,
    indptr: Array,
    indices: Array,
    strengths: Array,
    shares: Array,
    tables: SamplerTables,
    weigher: WeightTables,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
    sums: Array,
) -> None:
    """Learn the contexts start … stop from their histories alone, the items being as they are (`rules.frozen`).

    Each begins at the mean of its items, by their strengths, in the first `dim` coordinates, with the 1 behind them
    that goes with biases of items, where there are any: `_begin`. It takes some passes over its own pairs with learning
    rates that fall from `rates` to 0; `rules.context_rates`, an array of the caller's own, holds the current ones. Of
    the step of a pair, its negatives' part and the regularizer's included, its share is taken. What is drawn depends on
    the seed and the items of the history, not on the place of the context. Contexts without a history stay as they are.
    """
    needed = KernelArguments.of(tables, weigher, rules, model, work)
    fold = FoldInRows(seed, passes, dim, rates, indptr, indices, strengths, shares)
    _run(needed.kinds.sampler, needed.kinds.optimizer, fold, *needed, work.own, start, stop, sums)


@fast_lean_kernel
def _begin(cosine: int | None, model: ModelTables, c: int, own: TrainingPairs, n: int, dim: int) -> None:
    """Let a context that is zero begin at the mean of its items, or for cosines of their directions.

    A cosine has no slope at zero, and does not know how long items are. Where less is left than of one item, it begins
    so much nearer to zero, where nobody's history begins.
    """
    W, H, items = model.contexts, model.items, own.items
    total, mass = np.float32(0), np.float32(0)
    for k in range(n):
        total += own.strengths[k] * own.shares[k]
        mass += own.shares[k]
    for k in range(n):
        square = np.float32(1)
        if cosine is not None:
            square = np.float32(0)
            for f in range(dim):
                square += H[items[k], f] * H[items[k], f]
        if square > 0 and total > 0:
            share = min(mass, np.float32(1)) * own.strengths[k] * own.shares[k] / (total * np.sqrt(square))
            for f in range(dim):
                W[c, f] += share * H[items[k], f]
    if dim < W.shape[1]:
        W[c, dim] = 1


@fast_lean_kernel
def run_plain(
    seed: np.uint64,
    pairs: TrainingPairs,
    start: int,
    stop: int,
    tables: SamplerTables,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
    sums: Array,
) -> None:
    """`run_chunk` for what is asked for most (`is_plain`), BPR: one uniform negative, no weights, plain steps.

    A function that can do nothing else needs fewer registers and branches than one that can do everything. A pair's
    rows are sent for some pairs ahead. Bound, as `run_chunk`, by the lines of three rows that are read and written.
    """
    W, H = model.contexts, model.items
    contexts, items = pairs.contexts, pairs.items
    drawn, state = work.drawn, work.state
    width = W.shape[1]
    eta_c, eta_i = rules.context_rates[0], rules.item_rates[0]
    shrink_c, shrink_i = eta_c * rules.context_ridges[0], eta_i * rules.item_ridges[0]
    loss, one = rules.loss, np.float32(1)
    total, count = 0.0, 0
    sow(state, seed)
    for t in range(start, stop + AHEAD):
        if t < stop:
            c, i = contexts[t], items[t]
            j = propose(state, tables, c)
            drawn[t & (2 * AHEAD - 1)] = j
            for f in range(0, width, 16):
                prefetch(W, c, f)
                prefetch(H, i, f)
                prefetch(H, j, f)
        s = t - AHEAD
        if s < start:
            continue
        c, i = contexts[s], items[s]
        j = settled(state, tables, c, i, drawn[s & (2 * AHEAD - 1)])
        if j < 0:
            continue
        difference = np.float32(0)
        for f in range(width):
            difference += W[c, f] * (H[i, f] - H[j, f])
        g = loss_slope(loss, difference, one)
        if (s & TOLD) == 0:
            total += loss_value(loss, difference, one)
            count += 1
        for f in range(width):
            move_three(W, H, c, i, j, f, eta_c * g, eta_i * g, shrink_c, shrink_i, shrink_i)
    sums[0] += total
    sums[2] += count


def is_plain(tables: SamplerTables, weigher: WeightTables, rules: StepTables) -> bool:
    """Whether `run_plain` does what is asked for."""
    single = (rules.context_weights, rules.item_weights, rules.context_scales, rules.item_scales)
    return (
        (rules.objective, rules.optimizer, rules.n_negatives, rules.cosine, rules.frozen) == (PAIRWISE, SGD, 1, 0, 0)
        and (tables.code, weigher.code, rules.sharpness) == (UNIFORM, PLAIN, 1.0)
        and rules.alike == len(rules.context_rates)
        and all(len(one) == 1 and one[0] == 1 for one in single)
    )


@fast_lean_kernel
def run_given(
    kinds: KernelKinds,
    pairs: TrainingPairs,
    negatives: Array,
    weights: Array,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
    sums: Array,
) -> None:
    """`run_chunk` where the negatives (pairs × m) and their weights are given."""
    for s in range(len(pairs.contexts)):
        step(kinds.path, kinds, pairs, s, negatives[s], weights[s], rules, model, work, sums)


def run_ranked(
    seed: np.uint64,
    pairs: TrainingPairs,
    rows: Array,
    scores: Array,
    start: int,
    stop: int,
    tables: SamplerTables,
    weigher: WeightTables,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
    sums: Array,
) -> None:
    """`run_chunk` where ranks for |ΔM| are exact: `scores[rows[s]]` has the scores of all items for pair s.

    Each rank is a count over a row of scores: bound by reading it, which happens 1 + m times a pair; for AP also once
    for each positive of the context.
    """
    work.state[:] = sown(int(seed))
    needed = KernelArguments.of(tables, weigher, rules, model, work)
    _run_ranked(needed.kinds.sampler, *needed, pairs, rows, scores, start, stop, sums)


@fast_lean_kernel
def _run_ranked(
    sampler: Static,
    kinds: KernelKinds,
    tables: SamplerTables,
    weigher: WeightTables,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
    pairs: TrainingPairs,
    rows: Array,
    scores: Array,
    start: int,
    stop: int,
    sums: Array,
) -> None:
    state = work.state
    m = rules.n_negatives
    negatives, weights, ranks = work.negatives[0], work.weights[0], work.ranks
    for s in range(start, stop):
        c, i = pairs.contexts[s], pairs.items[s]
        row = scores[rows[s]]
        begin, end = tables.indptr[c], tables.indptr[c + 1]
        if weigher.lambdas.by_positives:
            for e in range(begin, end):
                ranks[e - begin] = exact_rank(row, tables.indices[e])
        a = exact_rank(row, i)
        get_ready(sampler, tables, model.contexts, c, work.parts)
        for k in range(m):
            j = 0
            if len(sampler) == REJECTION:
                j, _ = draw_rejection(state, tables, c, i, model.contexts, model.items, kinds.cosine)
            else:
                j = draw_one(sampler, state, tables, c, i, model.contexts, work.parts, pairs.items, start, stop)
            negatives[k] = j
            weights[k] = metric_change(weigher.lambdas, a, exact_rank(row, j), ranks, end - begin) if j >= 0 else 0
        step(kinds.path, kinds, pairs, s, negatives, weights, rules, model, work, sums)
