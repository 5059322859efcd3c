"""One negative at a time, for the kernels that take steps: the samplers' draws by integer code.

Random numbers are SplitMix64's: `state[0]` moves by a constant and is mixed. Each draw has a twin in NumPy,
`Negatives.draw`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import Static, fast_lean_kernel, kernel, lean_kernel
from shortlist._prefetch import prefetch
from shortlist._random import GOLDEN, mixed
from shortlist.sampling.history_filter import in_history, send_for_bit
from shortlist.sampling.sampler_tables import ADAPTIVE, HISTORY, IN_BATCH, POPULARITY, REJECTION, UNIFORM, SamplerTables
from shortlist.scoring.pair_score import pair_score

Array: TypeAlias = npt.NDArray[Any]
_TRIES = 1000  # draws, until one is not excluded
_SIDE = 16  # coordinates of a block


@lean_kernel
def unit(state: Array) -> float:
    """A number in [0, 1), of 53 random bits."""
    state[0] += GOLDEN
    return np.int64(mixed(state[0]) >> np.uint64(11)) * 2.0**-53


@kernel
def units(seed: np.uint64, numbers: Array) -> Array:
    """For each of these whole numbers one in [0, 1), the same wherever it stands."""
    found = np.empty(len(numbers))
    for k in range(len(numbers)):
        found[k] = np.int64(mixed(seed + np.uint64(numbers[k] + 1) * GOLDEN) >> np.uint64(11)) * 2.0**-53
    return found


@lean_kernel
def below(state: Array, n: int) -> int:
    """One of 0 … n − 1, each as likely."""
    return int(unit(state) * n)


@lean_kernel
def another(state: Array, n: int, i: int) -> int:
    """One of 0 … n − 1 but i, each as likely."""
    j = below(state, n - 1)
    return j + (j >= i)


@lean_kernel
def excluded(tables: SamplerTables, c: int, i: int, j: int) -> bool:
    """Whether j may not be the negative of (c, i)."""
    if j == i:
        return True
    if tables.exclude != HISTORY:
        return False
    return in_history(tables.indptr, tables.indices, tables.bits, tables.offset, c, j)


@lean_kernel
def draw_uniform(state: Array, tables: SamplerTables, c: int, i: int) -> int:
    """Any item that is not excluded, each as likely; −1 where there is none."""
    for _ in range(_TRIES):
        j = below(state, tables.n_items)
        if not excluded(tables, c, i, j):
            return j
    return _nth_left(state, tables, c, i)


@lean_kernel
def propose(state: Array, tables: SamplerTables, c: int) -> int:
    """Any item, for `settled` to look at when what that needs to know has been sent for."""
    j = below(state, tables.n_items)
    if tables.exclude == HISTORY:
        send_for_bit(tables.bits, tables.offset, c, j)
    return j


@lean_kernel
def settled(state: Array, tables: SamplerTables, c: int, i: int, j: int) -> int:
    """What was proposed or, where that is excluded, another item: together as `draw_uniform`.

    Random numbers are those of `state[1]`, so that proposals do not depend on when this happens.
    """
    k: Any = np.int64(j)  # as those are that are drawn: so `excluded` is compiled once
    return draw_uniform(state[1:], tables, c, i) if excluded(tables, c, i, k) else k


@lean_kernel
def sow(state: Array, seed: np.uint64) -> None:
    """Begin both series of random numbers."""
    state[0] = seed
    state[1] = mixed(seed + GOLDEN)


@lean_kernel
def draw_one(
    sampler: Static,
    state: Array,
    tables: SamplerTables,
    c: int,
    i: int,
    W: Array,
    parts: Array,
    batch_items: Array,
    begin: int,
    stop: int,
) -> int:
    """The negative of the pair (c, i) by every sampler but Rejection; −1 where 1,000 draws were all excluded.

    `sampler` is the code of the tables, as kernels know it beforehand. `parts` is as `get_ready` left it for this
    context. `batch_items[begin:stop]` are the positives of the batch. Bound by one random number, the bit of the
    history filter and, where that is set, a search in the history.
    """
    if len(sampler) == UNIFORM:
        return draw_uniform(state, tables, c, i)
    if len(sampler) == ADAPTIVE:
        return _draw_adaptive(state, tables, c, i, W, parts)
    if len(sampler) == IN_BATCH and begin == stop:
        return -1
    for _ in range(_TRIES):
        if len(sampler) == POPULARITY:
            u = unit(state) * tables.n_items
            j = int(u)
            if u - j >= tables.share[j]:
                j = int(tables.alias[j])
        else:
            j = int(batch_items[begin + below(state, stop - begin)])
        if not excluded(tables, c, i, j):
            return j
    return -1


@lean_kernel
def draw_rejection(
    state: Array, tables: SamplerTables, c: int, i: int, W: Array, H: Array, cosine: int | None
) -> tuple[int, int]:
    """The first of uniform proposals with ŷ(j|c) + margin > ŷ(i|c), and how many it took; −1 where none did.

    Scores are as `pair_score` has them. Bound by the gathered row of H that each proposal is scored with; the history
    is looked at for those that score high enough only.
    """
    if tables.n_items < 2:
        return -1, 0
    least = pair_score(W, c, H, i, cosine) - np.float32(tables.margin)
    for n in range(1, tables.rounds + 1):
        j = another(state, tables.n_items, i)
        if pair_score(W, c, H, j, cosine) > least and not excluded(tables, c, i, j):
            return j, n
    return -1, tables.rounds


@lean_kernel
def send_for(rows: Array, r: int) -> None:
    """Ask for a row that will be read soon."""
    for f in range(0, rows.shape[1], 16):
        prefetch(rows, r, f)


@lean_kernel
def draw_negatives(
    sampler: Static,
    state: Array,
    tables: SamplerTables,
    contexts: Array,
    positives: Array,
    n: int,
    W: Array,
    H: Array,
    parts: Array,
    out: Array,
    rounds: Array,
) -> None:
    """Fill `out` (pairs × n) with n negatives for each pair of a batch, and for Rejection `rounds`, of that shape."""
    for k in range(len(contexts)):
        get_ready(sampler, tables, W, contexts[k], parts)
        for m in range(n):
            if len(sampler) == REJECTION:
                out[k, m], rounds[k, m] = draw_rejection(state, tables, contexts[k], positives[k], W, H, None)
            else:
                c, i = contexts[k], positives[k]
                out[k, m] = draw_one(sampler, state, tables, c, i, W, parts, positives, 0, len(positives))


@kernel
def _nth_left(state: Array, tables: SamplerTables, c: int, i: int) -> int:
    """As `draw_uniform`, by counting what is left: for contexts who have nearly everything."""
    left = 0
    for j in range(tables.n_items):
        left += not excluded(tables, c, i, j)
    if left == 0:
        return -1
    skip = below(state, left)
    for j in range(tables.n_items):
        if not excluded(tables, c, i, j):
            if skip == 0:
                return j
            skip -= 1
    return -1


@fast_lean_kernel
def get_ready(sampler: Static, tables: SamplerTables, W: Array, c: int, parts: Array) -> None:
    """Before draws for a context: for AdaptiveRank, |φ_f|σ_f summed over blocks of coordinates; see `n_parts`."""
    if len(sampler) == ADAPTIVE:
        _sum_parts(tables, W, c, parts)


@fast_lean_kernel
def _sum_parts(tables: SamplerTables, W: Array, c: int, parts: Array) -> None:
    width, sigma = W.shape[1], tables.sigma
    for b in range(width // _SIDE):
        total = np.float32(0)
        for f in range(_SIDE):
            total += abs(W[c, b * _SIDE + f]) * sigma[b * _SIDE + f]
        parts[b] = total
    if width % _SIDE:
        total = np.float32(0)
        for f in range(width - width % _SIDE, width):
            total += abs(W[c, f]) * sigma[f]
        parts[width // _SIDE] = total


def n_parts(width: int) -> int:
    """How many sums `get_ready` leaves of so many coordinates."""
    return -(-width // _SIDE)


@lean_kernel
def propose_places(
    state: Array, tables: SamplerTables, c: int, W: Array, parts: Array, coordinates: Array, places: Array
) -> None:
    """For AdaptiveRank, places in its lists, which are sent for; their items are for `settled_adaptive` to look at."""
    _sum_parts(tables, W, c, parts)
    total, span = _total(parts, W.shape[1]), _span(tables)
    for k in range(len(places)):
        coordinates[k], places[k] = _place(state, tables, c, W, parts, total, span)
        prefetch(tables.lists, coordinates[k], places[k])


@lean_kernel
def settled_adaptive(state: Array, tables: SamplerTables, c: int, i: int, j: int, W: Array, parts: Array) -> int:
    """What was proposed or, where that is excluded, another item; see `settled`."""
    if not excluded(tables, c, i, j):
        return j
    _sum_parts(tables, W, c, parts)
    return _draw_adaptive(state[1:], tables, c, i, W, parts)


@lean_kernel
def _draw_adaptive(state: Array, tables: SamplerTables, c: int, i: int, W: Array, parts: Array) -> int:
    """Draw f ∝ |φ_f|σ_f, then r ∝ exp(−r/γ) below |I|, then take the r-th item of list f from the end φ_f points to."""
    total, span = _total(parts, W.shape[1]), _span(tables)
    for _ in range(_TRIES):
        f, place = _place(state, tables, c, W, parts, total, span)
        j = int(tables.lists[f, place])
        if not excluded(tables, c, i, j):
            return j
    return -1


@lean_kernel
def _total(parts: Array, width: int) -> float:
    """The sum of |φ_f|σ_f."""
    total = 0.0
    for b in range(-(-width // _SIDE)):
        total += parts[b]
    return total


@lean_kernel
def _span(tables: SamplerTables) -> float:
    """−(1 − exp(−|I|/γ)): what the law of ranks has below |I|."""
    return float(np.expm1(-tables.n_items / tables.gamma))


@lean_kernel
def _place(
    state: Array, tables: SamplerTables, c: int, W: Array, parts: Array, total: float, span: float
) -> tuple[int, int]:
    """A list, and a place in it."""
    u = unit(state)
    f = _coordinate(W, c, tables.sigma, parts, u * total) if total > 0 else int(u * W.shape[1])
    r = min(int(-tables.gamma * np.log1p(unit(state) * span)), tables.n_items - 1)
    return f, (r if W[c, f] >= 0 else tables.n_items - 1 - r)


@lean_kernel
def _coordinate(W: Array, c: int, sigma: Array, parts: Array, target: float) -> int:
    """The first coordinate at which the running sum of |φ_f|σ_f passes the target: first its block, then itself."""
    width = W.shape[1]
    last = 0
    for b in range(-(-width // _SIDE)):
        if parts[b] > 0:
            last = b
            if target < parts[b]:
                break
            target -= parts[b]
    found = last * _SIDE
    for f in range(last * _SIDE, min(width, (last + 1) * _SIDE)):
        part = abs(W[c, f]) * sigma[f]
        if part > 0:
            found = f
            if target < part:
                break
            target -= part
    return found
