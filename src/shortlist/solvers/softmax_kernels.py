"""The row passes of the softmax solver, between its matrix products."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel, kernel
from shortlist.solvers.optimizers import ADAGRAD, OptimizerState, _adagrad, alike, apply_row

Array: TypeAlias = npt.NDArray[Any]
_LANES = 16
_LEAST = np.float32(-60.0)  # e^x below is 0: nothing next to the 1 that every row holds, and no subnormal products
_LOG2_E = np.float32(1.44269504088896341)
_NONE = 1e-300  # instead of 0, where a score is that far below another
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)


@kernel
def exp_below(x: np.float32) -> np.float32:
    """e^x for x ≤ 0 in float32, to 2 units in the last place; 0 below −60.

    x = k·ln 2 + r with |r| ≤ ½ ln 2, e^r by a polynomial (Cephes' expf), 2^k by the bits of a float. No branches and no
    calls, so loops over it vectorise. Not a fast kernel: r must be x − k·high − k·low in this order.
    """
    y = x if x > _LEAST else _LEAST
    k = np.int32(y * _LOG2_E - np.float32(0.5))  # towards zero: rounds numbers below zero
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
    """Take z to e^{z + bias − top} in place, in the first `width` columns of each row.

    `tops` become the rows' largest z + bias, `sums` the sums of the result.

    Columns are numbered from `first` on; a row's listed ones, `columns[begins[r]:ends[r]]` in rising order, become 0.
    A row all of whose columns are listed has the top −∞ and the sum 0. Bound by the polynomial, at the sizes it is
    called with: they stay in the cache that the product before it has written to.
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
    """Add sums that are e^{new_top} times what is written to those that are e^{top} times what is written."""
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
def settle(
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
    """From the rows' sums over negatives to their losses and to the gradients by F.

    ln N = ln Σ_j e^{z_j} + shift over a row's negatives, from the groups' tops and sums. With its positives e, of score
    z_e and weight α_e, either each by itself or all together in one partition function:

        l_e = ln(e^{z_e} + N) − z_e            1 − p_e of weight α_e to be taken from the negatives
        l_e = ln(Σ_e e^{z_e} + N) − z_e        N / (Σ_e e^{z_e} + N) of weight Σα

    A positive k of which the part `spare` is a negative of the others adds spare_k·e^{z_k} to the N of every e but its
    own.

    `pull` becomes a positive's ∂L/∂z, `push` a row's Σ ∂L/∂z over the negatives (both times `factor`), `logs` the log
    of the sum without the shift. Bound by the bytes of the positives' rows of H.
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
                share = exp_below(tops[g, r] - top)
                total += share * sums[g, r]
                for f in range(width):
                    G[r, f] += share * U[g, r, f]
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
                share_e = math.exp(pull[e] - largest) / whole
                loss += weights[e] * (largest + math.log(whole) - pull[e])
                pull[e] = factor * (weight * share_e - weights[e])
            pushed = weight * negative / whole
        elif len(spare) > 0:
            negative = math.exp(log_n - largest)
            whole = negative
            for e in range(begin, end):
                whole += spare[e] * math.exp(pull[e] - largest)
            taken = 0.0  # Σα/(e^{z_e} + N_e): what a negative loses, but for its own exponential
            for e in range(begin, end):
                own = math.exp(pull[e] - largest)
                taken += weights[e] / max(whole + (1.0 - spare[e]) * own, _NONE)
            for e in range(begin, end):
                own = math.exp(pull[e] - largest)
                total_e = max(whole + (1.0 - spare[e]) * own, _NONE)
                loss += weights[e] * (largest + math.log(total_e) - pull[e])
                away = max(whole - spare[e] * own, 0.0) / total_e
                pull[e] = factor * (spare[e] * own * (taken - weights[e] / total_e) - weights[e] * away)
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
    """The positives' part of the items' gradients, item by item in the order of the batch."""
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
    """The rows of these codes, times `scale`, with the first `dim` coordinates brought to length 1 if that is asked.

    A row of zeros stays one. `norms` are the lengths they had, 1 where they were left alone.
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
    """One step of Adagrad on the rows `codes[start:stop]`.

    By `scale` times the rows `at` of `gradients`, which are those by the rows' packed form; see `pack`. Through the
    norm they become (g − ⟨g, u⟩u) / ‖v‖ in the first `dim` coordinates, where the packed form is `length` times u.
    Where the vector is zero the cosine is 0 whichever way it turns, and so is this.

    Everything is in one function, which Numba compiles in half the time.
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
            _adagrad(theta, c, f, gradient, state, rate[0], s * ridge[0])
        for f in range(end, theta.shape[1]):
            _adagrad(theta, c, f, gradient, state, rate[f], s * ridge[f])


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
    """`step_adagrad` with another optimizer."""
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
    """`step_adagrad` or `step`."""
    if kind == ADAGRAD:
        step_adagrad(*arguments)
    else:
        step(kind, *arguments)


@kernel
def add_repeats(G: Array, indptr: Array, rows: Array, firsts: Array) -> None:
    """Add rows of G that belong together to the first of them."""
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
    """Which of the drawn columns a row must not see, and the part of its correction that is the same for all others.

    Those are its positive, or its whole history where there are no positives. `where` is an item's column, −1 if it has
    none. With m draws left and Q the chance of a draw that is not, shift = ln(1 − Q) − ln m.
    """
    for r in range(start, stop):
        c = contexts[r]
        left, at = n_draws, begins[r]
        if len(positives) > 0:
            i = positives[r]
            gone = q[i]
            if 0 <= where[i] < n_drawn:
                columns[at] = where[i]
                left -= counts[where[i]]
                at += 1
        else:
            gone = q_of_context[c]
            for e in range(indptr[c], indptr[c + 1]):
                j = indices[e]
                if 0 <= where[j] < n_drawn:
                    columns[at] = where[j]
                    left -= counts[where[j]]
                    at += 1
        ends[r] = at
        shift[r] = math.log(max(1.0 - gone, 1e-30)) - math.log(left) if left > 0 else 0.0


@kernel
def sum_by_row(indptr: Array, indices: Array, values: Array) -> Array:
    """For each row the sum of its columns' values."""
    sums = np.zeros(len(indptr) - 1)
    for r in range(len(sums)):
        for e in range(indptr[r], indptr[r + 1]):
            sums[r] += values[indices[e]]
    return sums
