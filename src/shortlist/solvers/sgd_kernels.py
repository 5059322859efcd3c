"""Steps on one observed pair and its negatives at a time (Algorithms 1 and 2 of the article), for dot-product models.

A chunk of pairs is worked through in small blocks: negatives of a block are drawn and weighed, their rows sent for, and
then the steps are taken. So drawing, weighing and stepping know nothing of each other, and the rows are in the cache
when they are needed. In a block, samplers that look at the model see it as it was when the block began.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_lean_kernel
from shortlist._prefetch import prefetch
from shortlist._random import GOLDEN, mixed
from shortlist.objectives.lambdas import Lambdas, metric_change
from shortlist.objectives.losses import loss_slope, loss_value
from shortlist.sampling.kernels import below, draw_one, draw_rejection, draw_uniform, send_for
from shortlist.sampling.tables import REJECTION, UNIFORM, Tables
from shortlist.scoring.pair import pair_score
from shortlist.solvers.optimizers import ADAGRAD, EPSILON, SGD, State, apply_row

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
POINTWISE, PAIRWISE = 0, 1
PLAIN, PENALTY, LAMBDA = 0, 1, 2  # how negatives are weighed
BLOCK = 32  # pairs, at most
_ROOM = 1 << 15  # bytes of their rows: the innermost cache
_AHEAD = 8  # pairs, a power of two
_TOLD = 7  # the loss is read off every eighth pair


class Pairs(NamedTuple):
    """Observed pairs in the order in which they are taken."""

    contexts: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    strengths: Floats  # one, or one a pair


class Rules(NamedTuple):
    """What a step is; arrays by coordinate, by context or by item have one element where that stands for all."""

    objective: int  # POINTWISE or PAIRWISE
    loss: int
    optimizer: int
    n_negatives: int
    cosine: int  # 0, or of how many coordinates the score is the cosine
    sharpness: float  # 1/τ
    strength_is_label: int
    negative_label: float
    negative_weight: float
    context_weights: Floats  # by context
    item_weights: Floats  # by item, of positives
    context_rates: Floats  # by coordinate
    item_rates: Floats
    context_ridges: Floats  # by coordinate
    item_ridges: Floats
    alike: int  # how many coordinates have the first one's rates and ridges; `optimizers.alike`
    context_scales: Floats  # by context, of the ridges
    item_scales: Floats
    frozen: int  # whether items stay as they are


class Model(NamedTuple):
    """Both sides' embeddings and what the optimizer remembers of them."""

    contexts: Floats
    items: Floats
    context_state: State
    item_state: State


class Weigher(NamedTuple):
    """How much a sampled pair counts."""

    code: int
    penalties: Floats  # PENALTY: by the number of items above
    lambdas: Lambdas  # LAMBDA


class Work(NamedTuple):
    """Room for what a block of steps needs on the way."""

    negatives: npt.NDArray[np.int32]
    weights: Floats
    rounds: npt.NDArray[np.int32]  # that a negative took
    least: Floats  # what a negative has to score above
    waiting: npt.NDArray[np.int32]  # pairs that have none yet
    context_gradient: Floats
    item_gradient: Floats
    slopes: Floats
    candidates: npt.NDArray[np.int32]  # that ranks are estimated by
    scores: Floats  # of these
    ranks: npt.NDArray[np.int64]  # of the positives of a context
    own: Pairs  # of a context
    state: npt.NDArray[np.uint64]  # of the random numbers
    drawn: npt.NDArray[np.int32]  # negatives of the pairs whose rows were sent for


@fast_lean_kernel
def run_chunk(
    seed: np.uint64,
    pairs: Pairs,
    start: int,
    stop: int,
    tables: Tables,
    weigher: Weigher,
    rules: Rules,
    model: Model,
    work: Work,
    sums: Array,
) -> None:
    """A step for each of the pairs start … stop, in this order; adds to `sums`, see `step`.

    The plain pairwise step reads and writes three rows of d floats and reads a few more numbers: 24d bytes. Rows come
    from wherever they are, in any order; that they are sent for a block ahead hides most of the wait. What remains is
    bound by the caches' bandwidth.
    """
    work.state[0] = seed
    _run(work.state, pairs, start, stop, tables, weigher, rules, model, work, sums)


@fast_lean_kernel
def _run(
    state: Array,
    pairs: Pairs,
    start: int,
    stop: int,
    tables: Tables,
    weigher: Weigher,
    rules: Rules,
    model: Model,
    work: Work,
    sums: Array,
) -> None:
    m = rules.n_negatives
    negatives, weights = work.negatives, work.weights
    begin = start
    while begin < stop:
        end = min(begin + len(negatives), stop)
        for s in range(begin, end):
            c, i = pairs.contexts[s], pairs.items[s]
            send_for(model.contexts, c)
            send_for(model.items, i)
            if rules.optimizer != SGD:
                _send_for_state(model.context_state, c)
                _send_for_state(model.item_state, i)
        if tables.code == REJECTION:
            _reject(state, pairs, begin, end, tables, rules, model, work)
        for s in range(begin, end):
            c, i = pairs.contexts[s], pairs.items[s]
            if weigher.code == LAMBDA:
                _score_candidates(state, weigher.lambdas, tables, rules, model, c, work)
            for k in range(m):
                j = negatives[s - begin, k]
                if tables.code != REJECTION:
                    j = draw_one(state, tables, c, i, model.contexts, model.items, pairs.items, start, stop)
                if j >= 0:
                    send_for(model.items, j)
                    if rules.optimizer != SGD and rules.frozen == 0:
                        _send_for_state(model.item_state, j)
                negatives[s - begin, k] = j
                rounds = work.rounds[s - begin, k]
                weights[s - begin, k] = _weight(weigher, tables, rules, model, c, i, j, rounds, work)
        for s in range(begin, end):
            step(pairs, s, negatives[s - begin], weights[s - begin], rules, model, work, sums)
        begin = end


@fast_lean_kernel
def _send_for_state(state: State, r: int) -> None:
    """Ask for what the optimizer remembers of a row."""
    if len(state.first) > 1:
        send_for(state.first, r)
    if len(state.second) > 1:
        send_for(state.second, r)


@fast_lean_kernel
def _reject(
    state: Array, pairs: Pairs, begin: int, end: int, tables: Tables, rules: Rules, model: Model, work: Work
) -> None:
    """`draw_rejection` for the pairs of a block, round by round: all draw and send for a row, then all score theirs.

    So nobody waits for a row, and none is sent for in vain.
    """
    W, H = model.contexts, model.items
    negatives, rounds, least, waiting = work.negatives, work.rounds, work.least, work.waiting
    for k in range(rules.n_negatives):
        n_waiting = end - begin
        for at in range(n_waiting):
            c, i = pairs.contexts[begin + at], pairs.items[begin + at]
            least[at] = pair_score(W, c, H, i, rules.cosine) - np.float32(tables.margin)
            waiting[at] = at
        for n in range(1, tables.rounds + 1):
            for x in range(n_waiting):
                at = waiting[x]
                j = draw_uniform(state, tables, pairs.contexts[begin + at], pairs.items[begin + at])
                negatives[at, k] = j
                if j >= 0:
                    send_for(H, j)
            left = 0
            for x in range(n_waiting):
                at = waiting[x]
                j = negatives[at, k]
                rounds[at, k] = n
                if j >= 0 and pair_score(W, pairs.contexts[begin + at], H, j, rules.cosine) <= least[at]:
                    waiting[left] = at
                    left += 1
            n_waiting = left
            if left == 0:
                break
        for x in range(n_waiting):
            negatives[waiting[x], k] = -1


@fast_lean_kernel
def fold_rows(
    seed: np.uint64,
    start: int,
    stop: int,
    passes: int,
    dim: int,
    rates: Array,
    strengths: Array,
    tables: Tables,
    weigher: Weigher,
    rules: Rules,
    model: Model,
    work: Work,
    sums: Array,
) -> None:
    """Learn the contexts start … stop from their histories alone, the items being as they are (`rules.frozen`).

    Each begins at the mean of its items in the first `dim` coordinates, with the 1 behind them that goes with biases of
    items, where there are any: `_begin`. It takes some passes over its own pairs with learning rates that fall from
    `rates` to 0; `rules.context_rates`, an array of the caller's own, holds the current ones. What is drawn depends on
    the seed and the items of the history, not on the place of the context. Contexts without a history stay as they are.
    """
    width = model.contexts.shape[1]
    state, own = work.state, work.own
    for c in range(start, stop):
        begin = tables.indptr[c]
        n = tables.indptr[c + 1] - begin
        state[0] = seed
        for k in range(n):
            own.contexts[k] = c
            own.items[k] = tables.indices[begin + k]
            own.strengths[k] = strengths[begin + k if len(strengths) > 1 else 0]
            state[0] = mixed(state[0] + (np.uint64(own.items[k]) + np.uint64(1)) * GOLDEN)
        if n == 0:
            continue
        _begin(model, c, own.items, n, dim, rules.cosine > 0)
        for turn in range(passes):
            share = np.float32(1.0 - turn / passes)
            for f in range(width):
                rules.context_rates[f] = share * rates[f]
            shuffle(state[0], own, 0, n)
            state[0] = mixed(state[0] + GOLDEN)
            _run(state, own, 0, n, tables, weigher, rules, model, work, sums)


@fast_lean_kernel
def _begin(model: Model, c: int, items: Array, n: int, dim: int, cosine: bool) -> None:
    """Let a context that is zero begin at the mean of its items, or for cosines of their directions.

    A cosine has no slope at zero, and does not know how long items are.
    """
    W, H = model.contexts, model.items
    for k in range(n):
        square = np.float32(0 if cosine else 1)
        if cosine:
            for f in range(dim):
                square += H[items[k], f] * H[items[k], f]
        if square > 0:
            for f in range(dim):
                W[c, f] += H[items[k], f] / (np.float32(n) * np.sqrt(square))
    if dim < W.shape[1]:
        W[c, dim] = 1


@fast_lean_kernel
def run_plain(
    seed: np.uint64,
    pairs: Pairs,
    start: int,
    stop: int,
    tables: Tables,
    rules: Rules,
    model: Model,
    work: Work,
    sums: Array,
) -> None:
    """`run_chunk` for what is asked for most (`is_plain`), BPR: one uniform negative, no weights, plain steps.

    A function that can do nothing else takes half of the time of one that can do everything. A pair's rows are sent for
    some pairs ahead.
    """
    W, H = model.contexts, model.items
    contexts, items = pairs.contexts, pairs.items
    drawn, state = work.drawn, work.state
    width = W.shape[1]
    eta_c, eta_i = rules.context_rates[0], rules.item_rates[0]
    shrink_c, shrink_i = eta_c * rules.context_ridges[0], eta_i * rules.item_ridges[0]
    loss, one = rules.loss, np.float32(1)
    total, count = 0.0, 0
    state[0] = seed
    for t in range(start, stop + _AHEAD):
        if t < stop:
            c, i = contexts[t], items[t]
            j = draw_uniform(state, tables, c, i)
            drawn[t & (2 * _AHEAD - 1)] = j
            for f in range(0, width, 16):
                prefetch(W, c, f)
                prefetch(H, i, f)
                prefetch(H, max(j, 0), f)
        s = t - _AHEAD
        if s < start:
            continue
        c, i, j = contexts[s], items[s], drawn[s & (2 * _AHEAD - 1)]
        if j < 0:
            continue
        difference = np.float32(0)
        for f in range(width):
            difference += W[c, f] * (H[i, f] - H[j, f])
        g = loss_slope(loss, difference, one)
        if (s & _TOLD) == 0:
            total += loss_value(loss, difference, one)
            count += 1
        for f in range(width):
            _move_three(W, H, c, i, j, f, eta_c * g, eta_i * g, shrink_c, shrink_i, shrink_i)
    sums[0] += total
    sums[2] += count


def is_plain(tables: Tables, weigher: Weigher, rules: Rules) -> bool:
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
    pairs: Pairs, negatives: Array, weights: Array, rules: Rules, model: Model, work: Work, sums: Array
) -> None:
    """`run_chunk` where the negatives (pairs × m) and their weights are given."""
    for s in range(len(pairs.contexts)):
        step(pairs, s, negatives[s], weights[s], rules, model, work, sums)


def work_space(width: int, m: int, weigher: Weigher, longest: int = 0) -> Work:
    """Room for the steps of a block, and for histories of so many pairs; a thread needs its own."""
    block = max(2, min(BLOCK, _ROOM // (4 * width * (m + 2))))
    candidates = weigher.lambdas.candidates if weigher.code == LAMBDA else 1
    return Work(
        np.empty((block, m), np.int32),
        np.empty((block, m), np.float32),
        np.ones((block, m), np.int32),
        np.empty(block, np.float32),
        np.empty(block, np.int32),
        np.empty(width, np.float32),
        np.empty(width, np.float32),
        np.empty(m + 1, np.float32),
        np.empty(candidates, np.int32),
        np.empty(candidates, np.float32),
        np.empty(len(weigher.lambdas.norms), np.int64),
        Pairs(np.empty(longest, np.int32), np.empty(longest, np.int32), np.empty(longest, np.float32)),
        np.zeros(1, np.uint64),
        np.zeros(2 * _AHEAD, np.int32),
    )


@fast_lean_kernel
def step(
    pairs: Pairs,
    s: int,
    negatives: Array,
    weights: Array,
    rules: Rules,
    model: Model,
    work: Work,
    sums: Array,
) -> None:
    """One step on pair s and its negatives (−1: none), whose weights are given; now and then the loss goes to `sums`.

    `sums` has the loss of positives, or of pairs of items; that of negatives; and the number of pairs whose it is.
    """
    c, i = pairs.contexts[s], pairs.items[s]
    strength = pairs.strengths[s if len(pairs.strengths) > 1 else 0]
    context_weight = rules.context_weights[c if len(rules.context_weights) > 1 else 0]
    weight = context_weight * rules.item_weights[i if len(rules.item_weights) > 1 else 0]
    if rules.strength_is_label == 0:
        weight *= strength
    told = (s & _TOLD) == 0
    if told:
        sums[2] += 1
    one_negative = rules.objective == PAIRWISE and rules.n_negatives == 1 and negatives[0] >= 0
    if one_negative and rules.cosine == 0 and rules.frozen == 0:
        if rules.optimizer == SGD:
            _plain_pair(c, i, negatives[0], weight * weights[0], told, rules, model, sums)
            return
        if rules.optimizer == ADAGRAD and rules.alike == model.items.shape[1]:
            _adagrad_pair(c, i, negatives[0], weight * weights[0], told, rules, model, work, sums)
            return
    _any_step(c, i, strength, weight, context_weight, negatives, weights, told, rules, model, work, sums)


@fast_lean_kernel
def _pair_slope(c: int, i: int, j: int, weight: Any, told: bool, rules: Rules, model: Model, sums: Array) -> Any:
    """The derivative of a pair's loss by the difference of its two scores."""
    W, H = model.contexts, model.items
    difference = np.float32(0)
    for f in range(W.shape[1]):
        difference += W[c, f] * (H[i, f] - H[j, f])
    one, sharpness = np.float32(1), np.float32(rules.sharpness)
    difference *= sharpness
    if told:
        sums[0] += weight * loss_value(rules.loss, difference, one)
    return sharpness * np.float32(weight) * loss_slope(rules.loss, difference, one)


@fast_lean_kernel
def _adagrad_pair(
    c: int, i: int, j: int, weight: Any, told: bool, rules: Rules, model: Model, work: Work, sums: Array
) -> None:
    """`_any_step` for one negative by Adagrad on dot products, without biases: five passes over rows, not eleven.

    Its rows move one by one, since a loop that writes to six rows at once would not be vectorised.
    """
    W, H, before, gradient = model.contexts, model.items, work.item_gradient, work.context_gradient
    g = _pair_slope(c, i, j, weight, told, rules, model, sums)
    if g == 0 and rules.context_ridges[0] == 0 and rules.item_ridges[0] == 0:
        return
    of_c = rules.context_ridges[0] * rules.context_scales[c if len(rules.context_scales) > 1 else 0]
    of_i = rules.item_ridges[0] * rules.item_scales[i if len(rules.item_scales) > 1 else 0]
    of_j = rules.item_ridges[0] * rules.item_scales[j if len(rules.item_scales) > 1 else 0]
    for f in range(W.shape[1]):
        before[f] = g * W[c, f]
        gradient[f] = g * (H[i, f] - H[j, f])
    _adagrad_row(W, c, gradient, model.context_state.first, np.float32(1), rules.context_rates[0], of_c)
    _adagrad_row(H, i, before, model.item_state.first, np.float32(1), rules.item_rates[0], of_i)
    _adagrad_row(H, j, before, model.item_state.first, np.float32(-1), rules.item_rates[0], of_j)


@fast_lean_kernel
def _adagrad_row(theta: Array, r: int, gradient: Array, sums: Array, sign: Any, rate: Any, ridge: Any) -> None:
    """A step of Adagrad on a row that has one η and one λ, by the gradient or its opposite."""
    for f in range(theta.shape[1]):
        g = sign * gradient[f] + ridge * theta[r, f]
        total = sums[r, f] + g * g
        sums[r, f] = total
        theta[r, f] -= rate * g / (math.sqrt(total) + np.float32(EPSILON))


@fast_lean_kernel
def _plain_pair(c: int, i: int, j: int, weight: Any, told: bool, rules: Rules, model: Model, sums: Array) -> None:
    """`_any_step` for one negative, by plain steps on dot products: everything in one pass over the rows."""
    W, H = model.contexts, model.items
    g = _pair_slope(c, i, j, weight, told, rules, model, sums)
    of_c = rules.context_scales[c if len(rules.context_scales) > 1 else 0]
    of_i = rules.item_scales[i if len(rules.item_scales) > 1 else 0]
    of_j = rules.item_scales[j if len(rules.item_scales) > 1 else 0]
    context_rates, item_rates = rules.context_rates, rules.item_rates
    context_ridges, item_ridges = rules.context_ridges, rules.item_ridges
    of_context, of_item = context_rates[0], item_rates[0]
    shrink_c = of_context * of_c * context_ridges[0]
    shrink_i, shrink_j = of_item * of_i * item_ridges[0], of_item * of_j * item_ridges[0]
    for f in range(rules.alike):
        _move_three(W, H, c, i, j, f, of_context * g, of_item * g, shrink_c, shrink_i, shrink_j)
    for f in range(rules.alike, W.shape[1]):
        of_context, of_item = context_rates[f], item_rates[f]
        shrink_c = of_context * of_c * context_ridges[f]
        shrink_i, shrink_j = of_item * of_i * item_ridges[f], of_item * of_j * item_ridges[f]
        _move_three(W, H, c, i, j, f, of_context * g, of_item * g, shrink_c, shrink_i, shrink_j)


@fast_lean_kernel
def _move_three(
    W: Array, H: Array, c: int, i: int, j: int, f: int, context: Any, item: Any, of_c: Any, of_i: Any, of_j: Any
) -> None:
    """One coordinate of a plain pair: η times the slope for the context and for items, and ηλ for each row."""
    w, a, b = W[c, f], H[i, f], H[j, f]
    W[c, f] = w - context * (a - b) - of_c * w
    H[i, f] = a - item * w - of_i * a
    H[j, f] = b + item * w - of_j * b


@fast_lean_kernel
def _any_step(
    c: int,
    i: int,
    strength: Any,
    weight: Any,
    context_weight: Any,
    negatives: Array,
    weights: Array,
    told: bool,
    rules: Rules,
    model: Model,
    work: Work,
    sums: Array,
) -> None:
    """Slopes u of the scores of the positive and the negatives; then φ moves by Σu·ψ, and each ψ by u·φ.

    Every row moves from where it was before. The regularizer counts once for each loss that a row is in.
    """
    W, H = model.contexts, model.items
    context_gradient, item_gradient, slopes = work.context_gradient, work.item_gradient, work.slopes
    m = rules.n_negatives
    own = pair_score(W, c, H, i, rules.cosine)
    one, sharpness = np.float32(1), np.float32(rules.sharpness)
    touched = 0
    if rules.objective == PAIRWISE:
        slopes[m] = 0
        for k in range(m):
            slopes[k] = 0
            if negatives[k] >= 0:
                difference = sharpness * (own - pair_score(W, c, H, negatives[k], rules.cosine))
                g = sharpness * weight * weights[k] * loss_slope(rules.loss, difference, one)
                slopes[k] = -g
                slopes[m] += g
                touched += 1
                if told:
                    sums[0] += weight * weights[k] * loss_value(rules.loss, difference, one)
        if touched == 0:
            return
    else:
        label = strength if rules.strength_is_label else one
        slopes[m] = sharpness * weight * loss_slope(rules.loss, sharpness * own, label)
        touched = 1
        if told:
            sums[0] += weight * loss_value(rules.loss, sharpness * own, label)
        for k in range(m):
            slopes[k] = 0
            if negatives[k] >= 0:
                score = sharpness * pair_score(W, c, H, negatives[k], rules.cosine)
                factor = context_weight * np.float32(rules.negative_weight) * weights[k]
                label = np.float32(rules.negative_label)
                slopes[k] = sharpness * factor * loss_slope(rules.loss, score, label)
                touched += 1
                if told:
                    sums[1] += factor * loss_value(rules.loss, score, label)
    scale = touched * rules.context_scales[c if len(rules.context_scales) > 1 else 0]
    context_gradient[:] = 0
    if rules.optimizer == SGD and rules.cosine == 0:
        for k in range(m + 1):
            j = i if k == m else negatives[k]
            if j >= 0:
                _add_gradient(context_gradient, slopes[k], W, c, H, j, 0)
        for k in range(m + 1):  # by itself: an item may be drawn twice
            j = i if k == m else negatives[k]
            if j >= 0 and rules.frozen == 0:
                of_j = rules.item_scales[j if len(rules.item_scales) > 1 else 0]
                if k == m and rules.objective == PAIRWISE:
                    of_j *= touched
                _plain_item(slopes[k], of_j, c, j, rules, model)
        apply_row(SGD, W, c, context_gradient, model.context_state, rules.context_rates, rules.context_ridges, scale)
        return
    _add_gradient(context_gradient, slopes[m], W, c, H, i, rules.cosine)
    for k in range(m):
        if negatives[k] >= 0:
            _add_gradient(context_gradient, slopes[k], W, c, H, negatives[k], rules.cosine)
    if rules.frozen == 0:
        for k in range(m + 1):
            j = i if k == m else negatives[k]
            if j >= 0:
                item_gradient[:] = 0
                _add_gradient(item_gradient, slopes[k], H, j, W, c, rules.cosine)
                of_j = rules.item_scales[j if len(rules.item_scales) > 1 else 0]
                if k == m and rules.objective == PAIRWISE:
                    of_j *= touched
                apply_row(
                    rules.optimizer, H, j, item_gradient, model.item_state, rules.item_rates, rules.item_ridges, of_j
                )
    apply_row(
        rules.optimizer, W, c, context_gradient, model.context_state, rules.context_rates, rules.context_ridges, scale
    )


@fast_lean_kernel
def _plain_item(slope: Any, scale: Any, c: int, j: int, rules: Rules, model: Model) -> None:
    """Move item j by a plain step, before the context moves."""
    W, H = model.contexts, model.items
    rates, ridges = rules.item_rates, rules.item_ridges
    push, shrink = rates[0] * slope, rates[0] * scale * ridges[0]
    for f in range(rules.alike):
        H[j, f] -= push * W[c, f] + shrink * H[j, f]
    for f in range(rules.alike, W.shape[1]):
        H[j, f] -= rates[f] * (slope * W[c, f] + scale * ridges[f] * H[j, f])


@fast_lean_kernel
def _add_gradient(gradient: Array, slope: float, A: Array, a: int, B: Array, b: int, cosine: int) -> None:
    """Gradient += slope·∂ŷ/∂A_a, for the score of the rows A_a and B_b.

    Of a cosine that is (B_b/|B_b| − ŷ·A_a/|A_a|)/|A_a|, in its coordinates.
    """
    if cosine == 0:
        for f in range(len(gradient)):
            gradient[f] += slope * B[b, f]
        return
    dot, of_a, of_b = np.float32(0), np.float32(0), np.float32(0)
    for f in range(cosine):
        dot += A[a, f] * B[b, f]
        of_a += A[a, f] * A[a, f]
        of_b += B[b, f] * B[b, f]
    if of_a > 0 and of_b > 0:
        both = slope / np.sqrt(of_a * of_b)
        back = both * dot / of_a
        for f in range(cosine):
            gradient[f] += both * B[b, f] - back * A[a, f]
    for f in range(cosine, len(gradient)):
        gradient[f] += slope * B[b, f]


@fast_lean_kernel
def _weight(
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
def _score_candidates(
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
    """|ΔM| with the ranks 1 + (|I|−1)·(the share of the candidates that score higher)."""
    W, H, scores, ranks = model.contexts, model.items, work.scores, work.ranks
    n = lambdas.candidates
    a = _sampled_rank(scores, n, pair_score(W, c, H, i, rules.cosine), tables.n_items)
    b = _sampled_rank(scores, n, pair_score(W, c, H, j, rules.cosine), tables.n_items)
    begin, end = tables.indptr[c], tables.indptr[c + 1]
    if lambdas.by_positives:
        for e in range(begin, end):
            score = pair_score(W, c, H, tables.indices[e], rules.cosine)
            ranks[e - begin] = _sampled_rank(scores, n, score, tables.n_items)
    return metric_change(lambdas, a, b, ranks, end - begin)


@fast_lean_kernel
def _sampled_rank(scores: Array, n: int, score: float, n_items: int) -> int:
    above = 0
    for k in range(n):
        above += scores[k] > score
    return 1 + above * (n_items - 1) // n


@fast_lean_kernel
def run_ranked(
    seed: np.uint64,
    pairs: Pairs,
    rows: Array,
    scores: Array,
    start: int,
    stop: int,
    tables: Tables,
    weigher: Weigher,
    rules: Rules,
    model: Model,
    work: Work,
    sums: Array,
) -> None:
    """`run_chunk` where ranks for |ΔM| are exact: `scores[rows[s]]` has the scores of all items for pair s.

    Each rank is a count over a row of scores: bound by reading it, which happens 1 + m times a pair; for AP also once
    for each positive of the context.
    """
    state = work.state
    state[0] = seed
    m = rules.n_negatives
    negatives, weights, ranks = work.negatives[0], work.weights[0], work.ranks
    for s in range(start, stop):
        c, i = pairs.contexts[s], pairs.items[s]
        row = scores[rows[s]]
        begin, end = tables.indptr[c], tables.indptr[c + 1]
        if weigher.lambdas.by_positives:
            for e in range(begin, end):
                ranks[e - begin] = _exact_rank(row, tables.indices[e])
        a = _exact_rank(row, i)
        for k in range(m):
            j = 0
            if tables.code == REJECTION:
                j, _ = draw_rejection(state, tables, c, i, model.contexts, model.items, rules.cosine)
            else:
                j = draw_one(state, tables, c, i, model.contexts, model.items, pairs.items, start, stop)
            negatives[k] = j
            weights[k] = metric_change(weigher.lambdas, a, _exact_rank(row, j), ranks, end - begin) if j >= 0 else 0
        step(pairs, s, negatives, weights, rules, model, work, sums)


@fast_lean_kernel
def _exact_rank(scores: Array, i: int) -> Any:
    """The rank, from 1, of item i; of equal scores the one with the smaller code comes first."""
    own = scores[i]
    rank = np.int32(1)
    for k in range(len(scores)):
        rank += scores[k] > own
    for k in range(i):
        rank += scores[k] == own
    return rank


@fast_lean_kernel
def count_buckets(seed: np.uint64, start: int, stop: int, counts: Array) -> None:
    """How many of the pairs start … stop fall into each bucket."""
    n = np.uint64(len(counts))
    for e in range(start, stop):
        counts[_bucket(seed, e, n)] += 1


@fast_lean_kernel
def fill_buckets(
    seed: np.uint64,
    start: int,
    stop: int,
    row_of: Array,
    indices: Array,
    strengths: Array,
    cursor: Array,
    contexts: Array,
    items: Array,
    out: Array,
) -> None:
    """Put the pairs start … stop where their buckets have room; `cursor` has the next place of each."""
    n = np.uint64(len(cursor))
    for e in range(start, stop):
        b = _bucket(seed, e, n)
        at = cursor[b]
        cursor[b] = at + 1
        contexts[at] = row_of[e]
        items[at] = indices[e]
        if len(strengths) > 1:
            out[at] = strengths[e]


@fast_lean_kernel
def _bucket(seed: np.uint64, e: int, n: np.uint64) -> int:
    return int(np.int64(((mixed(seed + np.uint64(e) * GOLDEN) >> np.uint64(32)) * n) >> np.uint64(32)))


@fast_lean_kernel
def shuffle(seed: np.uint64, pairs: Pairs, start: int, stop: int) -> None:
    """Put the pairs start … stop into a random order: Fisher and Yates."""
    contexts, items, strengths = pairs.contexts, pairs.items, pairs.strengths
    state = seed
    for s in range(stop - 1, start, -1):
        state += GOLDEN
        t = start + np.int64(((mixed(state) >> np.uint64(32)) * np.uint64(s - start + 1)) >> np.uint64(32))
        contexts[s], contexts[t] = contexts[t], contexts[s]
        items[s], items[t] = items[t], items[s]
        if len(strengths) > 1:
            strengths[s], strengths[t] = strengths[t], strengths[s]
