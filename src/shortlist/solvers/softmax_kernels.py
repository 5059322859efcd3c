"""Kernels of the softmax solver for the passes over rows between its matrix products."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel, kernel
from shortlist.solvers.optimizers import ADAGRAD, OptimizerState, adagrad_number, alike, apply_row

Array: TypeAlias = npt.NDArray[Any]
_LANES = 16
_LEAST = np.float32(-60.0)  # below it, e^x is 0: negligible beside the largest term, 1, and no subnormal products
_LOG2_E = np.float32(1.44269504088896341)
_NONE = 1e-300  # replaces a sum of 0, if scores are so far apart
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)


@kernel
def exp_below(x: np.float32) -> np.float32:
    """Return e^x for x ≤ 0 in float32, to 2 units in the last place; 0 below −60.

    x = k·ln 2 + r with |r| ≤ ½ ln 2. e^r comes from a polynomial (Cephes' expf), 2^k from the bits of a float. Without
    branches and calls, loops over it are vectorised. It is not a fast kernel, because r must be computed as
    x − k·high − k·low in this order.
    """
    y = x if x > _LEAST else _LEAST
    k = np.int32(y * _LOG2_E - np.float32(0.5))  # truncation towards zero rounds negative numbers
    t = np.float32(k)
    r = (y - t * _LN2_HIGH) - t * _LN2_LOW
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * (r * r) + r + np.float32(1)
    power = np.int32((k + np.int32(127)) << np.int32(23)).view(np.float32)
    return p * power if x >= _LEAST else np.float32(0)


@fast_kernel
def exponentiate(
    Z: Array, width: int, bias: Array, begins: Array, ends: Array, columns: Array, first: int, tops: Array, sums: Array
) -> None:
    """Replace z by e^{z + bias − top} in the first `width` columns of each row.

    `tops` is set to the largest z + bias of each row, `sums` to the sums of the result.

    Columns are numbered from `first`. The excluded columns of a row, `columns[begins[r]:ends[r]]` in ascending order,
    become 0. If all columns of a row are excluded, its top is −∞ and its sum 0. Bound by the polynomial: blocks are
    small enough to stay in the cache after the matrix product.
    """
    lanes = np.empty(_LANES, np.float32)
    for r in range(Z.shape[0]):
        row = Z[r]
        low, high = begins[r], ends[r]
        while low < high:
            middle = (low + high) // 2
            if columns[middle] < first:
                low = middle + 1
            else:
                high = middle
        while low < ends[r] and columns[low] < first + width:
            row[columns[low] - first] = -np.inf
            low += 1
        for lane in range(_LANES):
            lanes[lane] = -np.inf
        whole = width - width % _LANES
        if len(bias) > 0:
            for j in range(width):
                row[j] += bias[j]
        for j in range(0, whole, _LANES):
            for lane in range(_LANES):
                lanes[lane] = row[j + lane] if row[j + lane] > lanes[lane] else lanes[lane]
        top = np.float32(-np.inf)
        for lane in range(_LANES):
            top = lanes[lane] if lanes[lane] > top else top
        for j in range(whole, width):
            top = row[j] if row[j] > top else top
        total = np.float32(0)
        if top == -np.inf:
            for j in range(width):
                row[j] = 0
        else:
            for j in range(width):
                value = exp_below(row[j] - top)
                row[j] = value
                total += value
        tops[r], sums[r] = top, total


@fast_kernel
def merge(tops: Array, sums: Array, U: Array, new_tops: Array, new_sums: Array, new_U: Array) -> None:
    """Add new sums to old ones; the true values are e^{new_top} times the new and e^{top} times the old numbers."""
    for r in range(len(tops)):
        if new_tops[r] == -np.inf:
            continue
        top = tops[r] if tops[r] > new_tops[r] else new_tops[r]
        old, new = exp_below(tops[r] - top), exp_below(new_tops[r] - top)
        tops[r] = top
        sums[r] = old * sums[r] + new * new_sums[r]
        for f in range(U.shape[1]):
            U[r, f] = old * U[r, f] + new * new_U[r, f]


@fast_kernel
def row_losses(
    F: Array,
    H: Array,
    tops: Array,
    sums: Array,
    U: Array,
    shift: Array,
    begins: Array,
    ends: Array,
    at: Array,
    weights: Array,
    spare: Array,
    together: bool,
    factor: float,
    logs: Array,
    pull: Array,
    push: Array,
    G: Array,
    losses: Array,
    start: int,
    stop: int,
) -> None:
    """Compute the losses of the rows and the gradients with respect to F from the rows' sums over negatives.

    ln N = ln Σ_j e^{z_j} + shift over the negatives of a row comes from the groups' tops and sums. A positive e has
    score z_e and weight α_e. The positives have separate partition functions, or share one (`together`):

        separate    l_e = ln(e^{z_e} + N) − z_e          the negatives' gradient is Σ_e α_e·(1 − p_e)
        together    l_e = ln(Σ_e e^{z_e} + N) − z_e      the negatives' gradient is Σα · N / (Σ_e e^{z_e} + N)

    With `spare`, a positive k also is a negative of the other positives with weight spare_k: it adds spare_k·e^{z_k} to
    the N of every other e.

    `pull` is set to ∂L/∂z of each positive and `push` to Σ ∂L/∂z over the negatives of each row, both times `factor`;
    `logs` is set to the log of the sum without the shift. Bound by the bytes of the positives' rows of H.
    """
    width = F.shape[1]
    n_groups = tops.shape[0]
    for r in range(start, stop):
        top = np.float32(-np.inf)
        for g in range(n_groups):
            top = tops[g, r] if tops[g, r] > top else top
        total = np.float32(0)
        for f in range(width):
            G[r, f] = 0
        for g in range(n_groups):
            if tops[g, r] > -np.inf:
                scale = exp_below(tops[g, r] - top)
                total += scale * sums[g, r]
                for f in range(width):
                    G[r, f] += scale * U[g, r, f]
        logs[r] = top + math.log(total) if total > 0 else -np.inf
        log_n = logs[r] + (shift[r] if len(shift) > 0 else np.float32(0))
        begin, end = begins[r], ends[r]
        loss, pushed = 0.0, 0.0
        largest = log_n
        for e in range(begin, end):
            score = np.float32(0)
            for f in range(width):
                score += F[r, f] * H[at[e], f]
            pull[e] = score
            largest = score if score > largest else largest
        if together and end > begin:
            whole, weight = 0.0, 0.0
            for e in range(begin, end):
                whole += math.exp(pull[e] - largest)
                weight += weights[e]
            negative = math.exp(log_n - largest)
            whole += negative
            for e in range(begin, end):
                p_e = math.exp(pull[e] - largest) / whole
                loss += weights[e] * (largest + math.log(whole) - pull[e])
                pull[e] = factor * (weight * p_e - weights[e])
            pushed = weight * negative / whole
        elif len(spare) > 0:
            negative = math.exp(log_n - largest)
            whole = negative
            for e in range(begin, end):
                whole += spare[e] * math.exp(pull[e] - largest)
            taken = 0.0  # Σα/(e^{z_e} + N_e): the gradient of a negative, divided by its exponential
            for e in range(begin, end):
                power = math.exp(pull[e] - largest)
                taken += weights[e] / max(whole + (1.0 - spare[e]) * power, _NONE)
            for e in range(begin, end):
                power = math.exp(pull[e] - largest)
                total_e = max(whole + (1.0 - spare[e]) * power, _NONE)
                loss += weights[e] * (largest + math.log(total_e) - pull[e])
                away = max(whole - spare[e] * power, 0.0) / total_e
                pull[e] = factor * (spare[e] * power * (taken - weights[e] / total_e) - weights[e] * away)
            pushed = negative * taken
        else:
            for e in range(begin, end):
                x = log_n - pull[e]
                away = 1.0 / (1.0 + math.exp(-x))
                loss += weights[e] * ((x if x > 0 else 0.0) + math.log1p(math.exp(-abs(x))))
                pull[e] = -factor * weights[e] * away
                pushed += weights[e] * away
        push[r] = factor * pushed
        losses[r] = loss
        by = np.float32(push[r] / total) if total > 0 else np.float32(0)
        for f in range(width):
            G[r, f] *= by
        for e in range(begin, end):
            for f in range(width):
                G[r, f] += pull[e] * H[at[e], f]


@fast_kernel
def add_positives(
    D: Array, indptr: Array, entries: Array, row_of: Array, pull: Array, F: Array, start: int, stop: int
) -> None:
    """Add the positives' part to the gradients of the items, in the order of the batch."""
    for i in range(start, stop):
        for k in range(indptr[i], indptr[i + 1]):
            e = entries[k]
            r = row_of[e]
            for f in range(F.shape[1]):
                D[i, f] += pull[e] * F[r, f]


@fast_kernel
def pack(
    theta: Array, codes: Array, dim: int, normalize: bool, scale: float, out: Array, norms: Array, start: int, stop: int
) -> None:
    """Copy the rows of these codes to `out`, multiplied by `scale`.

    With `normalize`, their first `dim` coordinates are scaled to length 1 first; a row of zeros stays zero. `norms` is
    set to the previous lengths, or to 1 without `normalize`.
    """
    for k in range(start, stop):
        row = theta[codes[k]]
        by = np.float32(scale)
        norm = np.float32(1)
        if normalize:
            square = np.float32(0)
            for f in range(dim):
                square += row[f] * row[f]
            norm = np.sqrt(square)
            by = np.float32(scale) / norm if norm > 0 else np.float32(0)
        for f in range(dim):
            out[k, f] = by * row[f]
        for f in range(dim, theta.shape[1]):
            out[k, f] = np.float32(scale) * row[f]
        norms[k] = norm


@fast_kernel
def step_adagrad(
    theta: Array,
    codes: Array,
    at: Array,
    gradients: Array,
    scale: float,
    units: Array,
    length: float,
    norms: Array,
    dim: int,
    normalize: bool,
    state: OptimizerState,
    rate: Array,
    ridge: Array,
    touches: Array,
    start: int,
    stop: int,
) -> None:
    """Take one step of Adagrad on the rows `codes[start:stop]`.

    The rows `at` of `gradients` are gradients with respect to the packed rows (see `pack`). They are multiplied by
    `scale`. With `normalize` they become (g − ⟨g, u⟩u) / ‖v‖ in the first `dim` coordinates, where the packed row is
    `length` times u. If the row is zero, the gradient is 0, because the cosine is 0 in every direction.

    The code is one function, because Numba compiles it in half the time.
    """
    gradient = np.empty(theta.shape[1], np.float32)
    end = alike(rate, ridge)
    for k in range(start, stop):
        a, by, toward = at[k], np.float32(scale), np.float32(0)
        if normalize:
            by = np.float32(scale) / norms[a] if norms[a] > 0 else np.float32(0)
            for f in range(dim):
                toward += gradients[a, f] * units[a, f]
            toward /= np.float32(length * length)
        for f in range(dim):
            gradient[f] = by * (gradients[a, f] - toward * units[a, f])
        for f in range(dim, theta.shape[1]):
            gradient[f] = np.float32(scale) * gradients[a, f]
        c, s = codes[k], touches[k]
        for f in range(end):
            adagrad_number(theta, c, f, gradient, state, rate[0], s * ridge[0])
        for f in range(end, theta.shape[1]):
            adagrad_number(theta, c, f, gradient, state, rate[f], s * ridge[f])


@fast_kernel
def step(
    kind: int,
    theta: Array,
    codes: Array,
    at: Array,
    gradients: Array,
    scale: float,
    units: Array,
    length: float,
    norms: Array,
    dim: int,
    normalize: bool,
    state: OptimizerState,
    rate: Array,
    ridge: Array,
    touches: Array,
    start: int,
    stop: int,
) -> None:
    """Take one step like `step_adagrad` with another optimizer."""
    gradient = np.empty(theta.shape[1], np.float32)
    for k in range(start, stop):
        a, by, toward = at[k], np.float32(scale), np.float32(0)
        if normalize:
            by = np.float32(scale) / norms[a] if norms[a] > 0 else np.float32(0)
            for f in range(dim):
                toward += gradients[a, f] * units[a, f]
            toward /= np.float32(length * length)
        for f in range(dim):
            gradient[f] = by * (gradients[a, f] - toward * units[a, f])
        for f in range(dim, theta.shape[1]):
            gradient[f] = np.float32(scale) * gradients[a, f]
        apply_row(kind, theta, codes[k], gradient, state, rate, ridge, touches[k])


def take_steps(kind: int, *arguments: Any) -> None:
    """Call `step_adagrad` for Adagrad, otherwise `step`."""
    if kind == ADAGRAD:
        step_adagrad(*arguments)
    else:
        step(kind, *arguments)


@kernel
def add_repeats(G: Array, indptr: Array, rows: Array, firsts: Array) -> None:
    """Add the rows of each group in G to the first row of the group."""
    for k in range(len(indptr) - 1):
        for p in range(indptr[k] + 1, indptr[k + 1]):
            for f in range(G.shape[1]):
                G[firsts[k], f] += G[rows[p], f]


@kernel
def mark_drawn(
    where: Array,
    n_drawn: int,
    n_draws: int,
    counts: Array,
    q: Array,
    q_of_context: Array,
    indptr: Array,
    indices: Array,
    contexts: Array,
    positives: Array,
    begins: Array,
    ends: Array,
    columns: Array,
    shift: Array,
    start: int,
    stop: int,
) -> None:
    """List the excluded columns of each row, and compute the shift that corrects for them.

    Excluded are a row's positive or, without positives, its whole history. `where` has the column of each item, −1 if
    it was not drawn. With m draws that are not excluded and the probability Q of an excluded draw,
    shift = ln(1 − Q) − ln m.
    """
    for r in range(start, stop):
        c = contexts[r]
        n_allowed, at = n_draws, begins[r]
        if len(positives) > 0:
            i = positives[r]
            excluded_q = q[i]
            if 0 <= where[i] < n_drawn:
                columns[at] = where[i]
                n_allowed -= counts[where[i]]
                at += 1
        else:
            excluded_q = q_of_context[c]
            for e in range(indptr[c], indptr[c + 1]):
                j = indices[e]
                if 0 <= where[j] < n_drawn:
                    columns[at] = where[j]
                    n_allowed -= counts[where[j]]
                    at += 1
        ends[r] = at
        shift[r] = math.log(max(1.0 - excluded_q, 1e-30)) - math.log(n_allowed) if n_allowed > 0 else 0.0


@kernel
def sum_by_row(indptr: Array, indices: Array, values: Array) -> Array:
    """Return the sum of the columns' values for each row."""
    sums = np.zeros(len(indptr) - 1)
    for r in range(len(sums)):
        for e in range(indptr[r], indptr[r + 1]):
            sums[r] += values[indices[e]]
    return sums
