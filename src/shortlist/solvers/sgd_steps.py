"""SGD kernels for one step on an observed pair and its negatives, for every loss and optimizer (section 4)."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import Static, fast_lean_kernel
from shortlist.objectives.losses import loss_slope, loss_value
from shortlist.scoring.pair_score import pair_score
from shortlist.solvers.optimizers import EPSILON, SGD, apply_known, apply_part
from shortlist.solvers.sgd_tables import (
    ADAGRAD_PAIR,
    PAIRWISE,
    SGD_PAIR,
    STEADY,
    KernelKinds,
    ModelTables,
    StepTables,
    TrainingPairs,
    Workspace,
)

Array: TypeAlias = npt.NDArray[Any]
REPORTED = 7  # the loss is computed for pairs s with (s & 7) == 0: every eighth pair


@fast_lean_kernel
def step(
    path: Static,
    kinds: KernelKinds,
    pairs: TrainingPairs,
    s: int,
    negatives: Array,
    weights: Array,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
    sums: Array,
) -> None:
    """Take a step on pair s and its negatives (−1: none) with given weights; add the loss of some pairs to `sums`.

    `path` is `kinds.path`, as a separate argument (see `static`). `sums` has three elements: the loss of positives or
    of pairs of items, the loss of negatives, and the number of pairs that these losses were computed for.
    """
    c, i = pairs.contexts[s], pairs.items[s]
    strength = pairs.strengths[s if len(pairs.strengths) > 1 else 0]
    context_weight = rules.context_weights[c if len(rules.context_weights) > 1 else 0]
    weight = context_weight * rules.item_weights[i if len(rules.item_weights) > 1 else 0]
    if rules.strength_is_label == 0:
        weight *= strength
    reported = (s & REPORTED) == 0
    if reported:
        sums[2] += 1
    if len(path) == SGD_PAIR:
        if negatives[0] >= 0:
            _plain_pair(c, i, negatives[0], weight * weights[0], reported, rules, model, sums)
    elif len(path) == ADAGRAD_PAIR:
        if negatives[0] >= 0:
            _adagrad_pair(c, i, negatives[0], weight * weights[0], reported, rules, model, work, sums)
    else:
        share = pairs.shares[s if len(pairs.shares) > 1 else 0]
        if len(path) == STEADY and (weight > 1 or context_weight > 1):
            share = _steady(c, i, share, weight, context_weight, negatives, weights, rules, model)
        _any_step(
            kinds.objective,
            kinds.optimizer,
            kinds.frozen,
            kinds.cosine,
            c,
            i,
            strength,
            weight,
            context_weight,
            share,
            negatives,
            weights,
            reported,
            rules,
            model,
            work,
            sums,
        )


@fast_lean_kernel
def _steady(
    c: int,
    i: int,
    share: Any,
    weight: Any,
    context_weight: Any,
    negatives: Array,
    weights: Array,
    rules: StepTables,
    model: ModelTables,
) -> Any:
    """Return the share of a context's plain step under the square loss, reduced so that it does not overshoot.

    The slope of the square loss grows with the score, so steps that overshoot would grow without bound. The slopes of
    the other losses are bounded.
    """
    H, rates = model.items, rules.context_rates
    curvature = np.float32(0)
    for k in range(rules.n_negatives + 1):
        last = k == rules.n_negatives
        j = i if last else negatives[k]
        if j < 0 or (last and rules.objective == PAIRWISE):
            continue
        square = np.float32(0)
        for f in range(H.shape[1]):
            along = H[i, f] - H[j, f] if rules.objective == PAIRWISE else H[j, f]
            square += rates[f] * along * along
        loss_weight = weight
        if not last:
            negative_weight = context_weight * np.float32(rules.negative_weight)
            loss_weight = weights[k] * (weight if rules.objective == PAIRWISE else negative_weight)
        curvature += loss_weight * square
    curvature *= share * np.float32(2 * rules.sharpness * rules.sharpness)
    return share / curvature if curvature > 1 else share


@fast_lean_kernel
def _pair_slope(
    c: int, i: int, j: int, weight: Any, reported: bool, rules: StepTables, model: ModelTables, sums: Array
) -> Any:
    """Return the derivative of a pair's loss with respect to the difference of its two scores."""
    W, H = model.contexts, model.items
    difference = np.float32(0)
    for f in range(W.shape[1]):
        difference += W[c, f] * (H[i, f] - H[j, f])
    label, sharpness = np.float32(1), np.float32(rules.sharpness)
    difference *= sharpness
    if reported:
        sums[0] += weight * loss_value(rules.loss, difference, label)
    return sharpness * np.float32(weight) * loss_slope(rules.loss, difference, label)


@fast_lean_kernel
def _adagrad_pair(
    c: int,
    i: int,
    j: int,
    weight: Any,
    reported: bool,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
    sums: Array,
) -> None:
    """Take the step of `_any_step` for one negative with Adagrad on dot products without biases.

    It makes 5 passes over rows instead of 11. Rows move one by one, because a loop that writes to six rows at once
    would not be vectorised.
    """
    W, H, before, gradient = model.contexts, model.items, work.item_gradient, work.context_gradient
    g = _pair_slope(c, i, j, weight, reported, rules, model, sums)
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
    """Take a step of Adagrad on a row with one η and one λ, along the gradient times `sign`."""
    for f in range(theta.shape[1]):
        g = sign * gradient[f] + ridge * theta[r, f]
        total = sums[r, f] + g * g
        sums[r, f] = total
        theta[r, f] -= rate * g / (math.sqrt(total) + np.float32(EPSILON))


@fast_lean_kernel
def _plain_pair(
    c: int, i: int, j: int, weight: Any, reported: bool, rules: StepTables, model: ModelTables, sums: Array
) -> None:
    """Take the step of `_any_step` for one negative with plain SGD on dot products, in one pass over the rows."""
    W, H = model.contexts, model.items
    g = _pair_slope(c, i, j, weight, reported, rules, model, sums)
    of_c = rules.context_scales[c if len(rules.context_scales) > 1 else 0]
    of_i = rules.item_scales[i if len(rules.item_scales) > 1 else 0]
    of_j = rules.item_scales[j if len(rules.item_scales) > 1 else 0]
    context_rates, item_rates = rules.context_rates, rules.item_rates
    context_ridges, item_ridges = rules.context_ridges, rules.item_ridges
    of_context, of_item = context_rates[0], item_rates[0]
    shrink_c = of_context * of_c * context_ridges[0]
    shrink_i, shrink_j = of_item * of_i * item_ridges[0], of_item * of_j * item_ridges[0]
    for f in range(rules.alike):
        move_three(W, H, c, i, j, f, of_context * g, of_item * g, shrink_c, shrink_i, shrink_j)
    for f in range(rules.alike, W.shape[1]):
        of_context, of_item = context_rates[f], item_rates[f]
        shrink_c = of_context * of_c * context_ridges[f]
        shrink_i, shrink_j = of_item * of_i * item_ridges[f], of_item * of_j * item_ridges[f]
        move_three(W, H, c, i, j, f, of_context * g, of_item * g, shrink_c, shrink_i, shrink_j)


@fast_lean_kernel
def move_three(
    W: Array, H: Array, c: int, i: int, j: int, f: int, context: Any, item: Any, of_c: Any, of_i: Any, of_j: Any
) -> None:
    """Move one coordinate of a plain pair; takes η times the slope for context and items, and ηλ of each row."""
    w, a, b = W[c, f], H[i, f], H[j, f]
    W[c, f] = w - context * (a - b) - of_c * w
    H[i, f] = a - item * w - of_i * a
    H[j, f] = b + item * w - of_j * b


@fast_lean_kernel
def _any_step(
    objective: Static,
    optimizer: Static,
    frozen: Static,
    cosine: int | None,
    c: int,
    i: int,
    strength: Any,
    weight: Any,
    context_weight: Any,
    share: Any,
    negatives: Array,
    weights: Array,
    reported: bool,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
    sums: Array,
) -> None:
    """Compute the slopes u of the scores of the positive and the negatives; move φ along Σu·ψ and each ψ along u·φ.

    All gradients use the rows before the step. The regularizer counts once for each loss term that a row is in. The
    context takes a fraction `share` of the step. If `share` is below 1, items are frozen and the loss is not computed.
    """
    W, H = model.contexts, model.items
    context_gradient, item_gradient, slopes = work.context_gradient, work.item_gradient, work.slopes
    m = rules.n_negatives
    positive_score = pair_score(W, c, H, i, cosine)
    unit, sharpness = np.float32(1), np.float32(rules.sharpness)
    touched = 0
    if len(objective) == PAIRWISE:
        slopes[m] = 0
        for k in range(m):
            slopes[k] = 0
            if negatives[k] >= 0:
                difference = sharpness * (positive_score - pair_score(W, c, H, negatives[k], cosine))
                g = sharpness * weight * weights[k] * loss_slope(rules.loss, difference, unit)
                slopes[k] = -g
                slopes[m] += g
                touched += 1
                if len(frozen) == 0 and reported:
                    sums[0] += weight * weights[k] * loss_value(rules.loss, difference, unit)
        if touched == 0:
            return
    else:
        label = strength if rules.strength_is_label else unit
        slopes[m] = sharpness * weight * loss_slope(rules.loss, sharpness * positive_score, label)
        touched = 1
        if len(frozen) == 0 and reported:
            sums[0] += weight * loss_value(rules.loss, sharpness * positive_score, label)
        for k in range(m):
            slopes[k] = 0
            if negatives[k] >= 0:
                score = sharpness * pair_score(W, c, H, negatives[k], cosine)
                factor = context_weight * np.float32(rules.negative_weight) * weights[k]
                label = np.float32(rules.negative_label)
                slopes[k] = sharpness * factor * loss_slope(rules.loss, score, label)
                touched += 1
                if len(frozen) == 0 and reported:
                    sums[1] += factor * loss_value(rules.loss, score, label)
    scale = touched * rules.context_scales[c if len(rules.context_scales) > 1 else 0]
    context_gradient[:] = 0
    for k in range(m + 1):
        j = i if k == m else negatives[k]
        if j >= 0:
            _add_gradient(cosine, context_gradient, slopes[k], W, c, H, j)
    if len(frozen) == 0:
        for k in range(m + 1):  # a separate loop, because an item may be drawn twice
            j = i if k == m else negatives[k]
            if j >= 0:
                of_j = rules.item_scales[j if len(rules.item_scales) > 1 else 0]
                if len(objective) == PAIRWISE and k == m:
                    of_j *= touched
                _move_item(optimizer, cosine, slopes[k], of_j, c, j, rules, model, item_gradient)
    _move_context(optimizer, frozen, c, scale, share, rules, model, work)


@fast_lean_kernel
def _move_context(
    optimizer: Static,
    frozen: Static,
    c: int,
    scale: Any,
    share: Any,
    rules: StepTables,
    model: ModelTables,
    work: Workspace,
) -> None:
    """Move the context by its gradient, or by a fraction of the step."""
    W, gradient, state, rates, ridges = (
        model.contexts,
        work.context_gradient,
        model.context_state,
        rules.context_rates,
        rules.context_ridges,
    )
    if len(frozen) == 1 and (len(optimizer) == SGD or share != 1):
        apply_part(optimizer, W, c, gradient, state, rates, ridges, scale, share)
        return
    apply_known(optimizer, W, c, gradient, state, rates, ridges, scale, rules.alike)


@fast_lean_kernel
def _move_item(
    optimizer: Static,
    cosine: int | None,
    slope: Any,
    scale: Any,
    c: int,
    j: int,
    rules: StepTables,
    model: ModelTables,
    gradient: Array,
) -> None:
    """Move item j by the slope of its score, before the context moves."""
    W, H, rates, ridges = model.contexts, model.items, rules.item_rates, rules.item_ridges
    if len(optimizer) == SGD and cosine is None:
        _plain_item(slope, scale, c, j, rules, model)
        return
    gradient[:] = 0
    _add_gradient(cosine, gradient, slope, H, j, W, c)
    apply_known(optimizer, H, j, gradient, model.item_state, rates, ridges, scale, rules.alike)


@fast_lean_kernel
def _plain_item(slope: Any, scale: Any, c: int, j: int, rules: StepTables, model: ModelTables) -> None:
    """Move item j by a plain step, before the context moves."""
    W, H = model.contexts, model.items
    rates, ridges = rules.item_rates, rules.item_ridges
    push, shrink = rates[0] * slope, rates[0] * scale * ridges[0]
    for f in range(rules.alike):
        H[j, f] -= push * W[c, f] + shrink * H[j, f]
    for f in range(rules.alike, W.shape[1]):
        H[j, f] -= rates[f] * (slope * W[c, f] + scale * ridges[f] * H[j, f])


@fast_lean_kernel
def _add_gradient(cosine: int | None, gradient: Array, slope: float, A: Array, a: int, B: Array, b: int) -> None:
    """Add slope·∂ŷ/∂A_a to the gradient, for the score ŷ of the rows A_a and B_b.

    For a cosine, ∂ŷ/∂A_a is (B_b/|B_b| − ŷ·A_a/|A_a|)/|A_a| in the first `cosine` coordinates.
    """
    if cosine is None:
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
