"""SGD kernels for dot-product models: steps on one observed pair and its negatives (Algorithms 1 and 2 of the article).

A chunk of pairs is processed in small blocks. First the negatives of a block are drawn and weighted and their rows
prefetched; then the steps are taken. So drawing, weighting and stepping are independent, and rows are in the cache when
they are needed. Samplers that depend on the model see it as it was at the start of the block.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import Static, fast_lean_kernel
from shortlist._prefetch import prefetch
from shortlist._random import GOLDEN, initial_states, mixed
from shortlist.objectives.lambdarank import metric_change
from shortlist.objectives.losses import loss_slope, loss_value
from shortlist.sampling.draw_kernels import (
    accept_or_redraw,
    accept_or_redraw_adaptive,
    draw_one,
    draw_rejection,
    excluded,
    prefetch_row,
    prepare_context,
    propose,
    propose_places,
    random_except,
    seed_streams,
)
from shortlist.sampling.history_filter import prefetch_bit
from shortlist.sampling.sampler_tables import ADAPTIVE, HISTORY, REJECTION, UNIFORM, SamplerTables
from shortlist.scoring.pair_score import pair_score
from shortlist.solvers.optimizers import ADAM, SGD, OptimizerState
from shortlist.solvers.sgd_order import shuffle
from shortlist.solvers.sgd_steps import REPORTED, move_three, step
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
    """Take a step for each of the pairs start … stop, in this order; add to `sums`, see `step`.

    The plain pairwise step reads and writes three rows of d floats and reads a few more numbers: 24d bytes. Rows are in
    random places of memory. Prefetching them a block ahead hides most of the latency; the rest is bound by the
    bandwidth of the caches.
    """
    work.state[:] = initial_states(int(seed))
    needed = KernelArguments.of(tables, weigher, rules, model, work)
    _run(needed.kinds.sampler, needed.kinds.optimizer, None, *needed, pairs, start, stop, sums)


class FoldInRows(NamedTuple):
    """Histories of contexts that are folded in one after the other, see `fold_rows`."""

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
    """Take steps for the pairs start … stop; with `fold`, take several passes over the pairs of contexts start … stop.

    Both cases are one function to save compile time: a kernel that is called by another kernel is compiled twice.
    """
    m = rules.n_negatives
    state, negatives, weights = work.state, work.negatives, work.weights
    first, last = start, stop
    n_contexts, passes = 1, 1
    if fold is not None:
        n_contexts, passes = stop - start, fold.passes
    for pass_number in range(n_contexts * passes):
        if fold is not None:
            context = start + pass_number // passes
            first, last = 0, _next_pass(kinds, fold, context, pass_number % passes, rules, model, work)
        begin = first
        while begin < last:
            end = min(begin + len(negatives), last)
            for s in range(begin, end):
                c, i = pairs.contexts[s], pairs.items[s]
                prefetch_row(model.contexts, c)
                prefetch_row(model.items, i)
                if len(optimizer) != SGD:
                    _prefetch_state(optimizer, model.context_state, c)
                    _prefetch_state(optimizer, model.item_state, i)
                if len(sampler) == UNIFORM:
                    for k in range(m):
                        negatives[s - begin, k] = propose(state, tables, c)
            if len(sampler) == REJECTION:
                _reject(kinds.cosine, state, pairs, begin, end, tables, rules, model, work)
            elif len(sampler) == ADAPTIVE:
                _propose_adaptive(state, pairs, begin, end, tables, model, work)
            for s in range(begin, end):
                c, i = pairs.contexts[s], pairs.items[s]
                at = s - begin
                for k in range(m):
                    j = negatives[at, k]
                    if len(sampler) == UNIFORM:
                        j = accept_or_redraw(state, tables, c, i, j)
                    elif len(sampler) == ADAPTIVE:
                        j = accept_or_redraw_adaptive(state, tables, c, i, j, model.contexts, work.parts)
                    elif len(sampler) != REJECTION:
                        j = draw_one(sampler, state, tables, c, i, model.contexts, work.parts, pairs.items, first, last)
                    if j >= 0:
                        prefetch_row(model.items, j)
                        if len(optimizer) != SGD and fold is None:
                            _prefetch_state(optimizer, model.item_state, j)
                    negatives[at, k] = j
                weigh(kinds.weighing, kinds.cosine, state, weigher, tables, model, c, i, at, work)
            for s in range(begin, end):
                at = s - begin
                step(kinds.path, kinds, pairs, s, negatives[at], weights[at], rules, model, work, sums)
            begin = end


@fast_lean_kernel
def _next_pass(
    kinds: KernelKinds,
    fold: FoldInRows,
    c: int,
    pass_number: int,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
) -> int:
    """Put the pairs of context c into `work.history`, in the order of this pass; set its rates; return their number."""
    state, history = work.state, work.history
    begin = fold.indptr[c]
    n = fold.indptr[c + 1] - begin
    if n == 0:
        return 0
    if pass_number == 0:
        seed_streams(state, fold.seed)
        for k in range(n):
            history.contexts[k] = c
            history.items[k] = fold.indices[begin + k]
            history.strengths[k] = fold.strengths[begin + k if len(fold.strengths) > 1 else 0]
            history.shares[k] = fold.shares[begin + k if len(fold.shares) > 1 else 0]
            state[0] = mixed(state[0] + (np.uint64(history.items[k]) + np.uint64(1)) * GOLDEN)
        _set_start(kinds.cosine, model, c, history, n, fold.dim)
    factor = np.float32(1.0 - pass_number / fold.passes)
    for f in range(model.contexts.shape[1]):
        rules.context_rates[f] = factor * fold.rates[f]
    shuffle(state[0], history, 0, n)
    state[0] = mixed(state[0] + GOLDEN)
    return int(n)


@fast_lean_kernel
def _prefetch_state(optimizer: Static, state: OptimizerState, r: int) -> None:
    """Prefetch the optimizer's state of a row, if there is any."""
    if len(state.first) > 1:
        prefetch_row(state.first, r)
        if len(optimizer) == ADAM:
            prefetch_row(state.second, r)


@fast_lean_kernel
def _propose_adaptive(
    state: Array, pairs: TrainingPairs, begin: int, end: int, tables: SamplerTables, model: ModelTables, work: Workspace
) -> None:
    """Propose negatives of AdaptiveRank for the pairs of a block: first the positions in its lists, then the items."""
    negatives, coordinates = work.negatives, work.rounds
    for s in range(begin, end):
        at = s - begin
        propose_places(state, tables, pairs.contexts[s], model.contexts, work.parts, coordinates[at], negatives[at])
    for s in range(begin, end):
        for k in range(negatives.shape[1]):
            j = tables.lists[coordinates[s - begin, k], negatives[s - begin, k]]
            if tables.exclude == HISTORY:
                prefetch_bit(tables.bits, tables.offset, pairs.contexts[s], j)
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
    """Compute `draw_rejection` for the pairs of a block, round by round: prefetch a row for every pair, then score all.

    So no pair waits for its row, and no row is prefetched in vain.
    """
    W, H = model.contexts, model.items
    negatives, rounds, least, waiting = work.negatives, work.rounds, work.least, work.waiting
    for k in range(rules.n_negatives):
        n_waiting = end - begin if tables.n_items > 1 else 0  # with one item there is nothing to propose
        for at in range(end - begin):
            negatives[at, k] = -1
        for at in range(n_waiting):
            c, i = pairs.contexts[begin + at], pairs.items[begin + at]
            least[at] = pair_score(W, c, H, i, cosine) - np.float32(tables.margin)
            waiting[at] = at
        for n in range(1, tables.rounds + 1):
            for x in range(n_waiting):
                at = waiting[x]
                j = random_except(state, tables.n_items, pairs.items[begin + at])
                negatives[at, k] = j
                prefetch_row(H, j)
            n_rejected = 0
            for x in range(n_waiting):
                at = waiting[x]
                c, i, j = pairs.contexts[begin + at], pairs.items[begin + at], negatives[at, k]
                rounds[at, k] = n
                if pair_score(W, c, H, j, cosine) <= least[at] or excluded(tables, c, i, j):
                    waiting[n_rejected] = at
                    n_rejected += 1
            n_waiting = n_rejected
            if n_rejected == 0:
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
    """Learn the contexts start … stop from their histories with frozen items (`rules.frozen`).

    A context starts at the mean of its items, weighted by strength (`_set_start`). It takes some passes over its pairs,
    with learning rates that fall from `rates` to 0. `rules.context_rates` is overwritten with the current rates, so the
    caller must pass a copy. The whole step of a pair, including negatives and regularizer, is multiplied by the pair's
    share. The draws depend on the seed and the items of the history, not on the position of the context. Contexts with
    an empty history do not change.
    """
    needed = KernelArguments.of(tables, weigher, rules, model, work)
    fold = FoldInRows(seed, passes, dim, rates, indptr, indices, strengths, shares)
    _run(needed.kinds.sampler, needed.kinds.optimizer, fold, *needed, work.history, start, stop, sums)


@fast_lean_kernel
def _set_start(cosine: int | None, model: ModelTables, c: int, history: TrainingPairs, n: int, dim: int) -> None:
    """Set a zero context to the mean of its items in the first `dim` coordinates, and to 1 in the one after them.

    With a cosine, it is the mean of the items' directions, because their lengths do not matter and the slope is 0 at a
    zero context. If the shares of the history sum to less than 1, the mean is multiplied by their sum, so a history
    that fades out starts at zero like an empty one. The 1 is for item biases, if there are any.
    """
    W, H, items = model.contexts, model.items, history.items
    total, mass = np.float32(0), np.float32(0)
    for k in range(n):
        total += history.strengths[k] * history.shares[k]
        mass += history.shares[k]
    for k in range(n):
        square = np.float32(1)
        if cosine is not None:
            square = np.float32(0)
            for f in range(dim):
                square += H[items[k], f] * H[items[k], f]
        if square > 0 and total > 0:
            weight = min(mass, np.float32(1)) * history.strengths[k] * history.shares[k] / (total * np.sqrt(square))
            for f in range(dim):
                W[c, f] += weight * H[items[k], f]
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
    """Run `run_chunk` for the most common case (`is_plain`), BPR: one uniform negative, no weights, plain SGD steps.

    A function for one case needs fewer registers and branches. Rows are prefetched `AHEAD` pairs ahead. Like
    `run_chunk`, it is bound by the cache lines of three rows that are read and written.
    """
    W, H = model.contexts, model.items
    contexts, items = pairs.contexts, pairs.items
    drawn, state = work.drawn, work.state
    width = W.shape[1]
    eta_c, eta_i = rules.context_rates[0], rules.item_rates[0]
    shrink_c, shrink_i = eta_c * rules.context_ridges[0], eta_i * rules.item_ridges[0]
    loss, label = rules.loss, np.float32(1)
    total, count = 0.0, 0
    seed_streams(state, seed)
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
        j = accept_or_redraw(state, tables, c, i, drawn[s & (2 * AHEAD - 1)])
        if j < 0:
            continue
        difference = np.float32(0)
        for f in range(width):
            difference += W[c, f] * (H[i, f] - H[j, f])
        g = loss_slope(loss, difference, label)
        if (s & REPORTED) == 0:
            total += loss_value(loss, difference, label)
            count += 1
        for f in range(width):
            move_three(W, H, c, i, j, f, eta_c * g, eta_i * g, shrink_c, shrink_i, shrink_i)
    sums[0] += total
    sums[2] += count


def is_plain(tables: SamplerTables, weigher: WeightTables, rules: StepTables) -> bool:
    """Return whether `run_plain` can run these settings."""
    single = (rules.context_weights, rules.item_weights, rules.context_scales, rules.item_scales)
    return (
        (rules.objective, rules.optimizer, rules.n_negatives, rules.cosine, rules.frozen) == (PAIRWISE, SGD, 1, 0, 0)
        and (tables.code, weigher.code, rules.sharpness) == (UNIFORM, PLAIN, 1.0)
        and rules.alike == len(rules.context_rates)
        and all(len(array) == 1 and array[0] == 1 for array in single)
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
    """Run `run_chunk` with given negatives (pairs × m) and their weights."""
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
    """Run `run_chunk` with exact ranks for |ΔM|; `scores[rows[s]]` has the scores of all items for pair s.

    A rank is a count over a row of scores. Bound by reading the row 1 + m times a pair, and for AP once more for each
    positive of the context.
    """
    work.state[:] = initial_states(int(seed))
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
        prepare_context(sampler, tables, model.contexts, c, work.parts)
        for k in range(m):
            j = 0
            if len(sampler) == REJECTION:
                j, _ = draw_rejection(state, tables, c, i, model.contexts, model.items, kinds.cosine)
            else:
                j = draw_one(sampler, state, tables, c, i, model.contexts, work.parts, pairs.items, start, stop)
            negatives[k] = j
            weights[k] = metric_change(weigher.lambdas, a, exact_rank(row, j), ranks, end - begin) if j >= 0 else 0
        step(kinds.path, kinds, pairs, s, negatives, weights, rules, model, work, sums)
