"""Draws of single negatives for the SGD kernels; samplers are distinguished by integer codes.

Random numbers come from SplitMix64: `state[0]` moves by a constant and is mixed. Every draw has a NumPy twin in
`BoundSampler.draw`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import Static, fast_lean_kernel, kernel, lean_kernel
from shortlist._prefetch import prefetch
from shortlist._random import GOLDEN, mixed
from shortlist.sampling.history_filter import in_history, prefetch_bit
from shortlist.sampling.sampler_tables import ADAPTIVE, HISTORY, IN_BATCH, POPULARITY, REJECTION, UNIFORM, SamplerTables
from shortlist.scoring.pair_score import pair_score

Array: TypeAlias = npt.NDArray[Any]
_TRIES = 1000  # draws before giving up on finding an item that is not excluded
_SIDE = 16  # coordinates in a block


@lean_kernel
def random_unit(state: Array) -> float:
    """Return a number in [0, 1) with 53 random bits."""
    state[0] += GOLDEN
    return np.int64(mixed(state[0]) >> np.uint64(11)) * 2.0**-53


@kernel
def random_units(seed: np.uint64, numbers: Array) -> Array:
    """Return a number in [0, 1) for each integer; it depends on the integer, not on its position."""
    uniform = np.empty(len(numbers))
    for k in range(len(numbers)):
        uniform[k] = np.int64(mixed(seed + np.uint64(numbers[k] + 1) * GOLDEN) >> np.uint64(11)) * 2.0**-53
    return uniform


@lean_kernel
def random_below(state: Array, n: int) -> int:
    """Return one of 0 … n − 1 uniformly."""
    return int(random_unit(state) * n)


@lean_kernel
def random_except(state: Array, n: int, i: int) -> int:
    """Return one of 0 … n − 1 except i uniformly."""
    j = random_below(state, n - 1)
    return j + (j >= i)


@lean_kernel
def excluded(tables: SamplerTables, c: int, i: int, j: int) -> bool:
    """Return whether j is excluded as a negative of (c, i)."""
    if j == i:
        return True
    if tables.exclude != HISTORY:
        return False
    return in_history(tables.indptr, tables.indices, tables.bits, tables.offset, c, j)


@lean_kernel
def draw_uniform(state: Array, tables: SamplerTables, c: int, i: int) -> int:
    """Return a uniform item that is not excluded; −1 if all are."""
    for _ in range(_TRIES):
        j = random_below(state, tables.n_items)
        if not excluded(tables, c, i, j):
            return j
    return _draw_by_counting(state, tables, c, i)


@lean_kernel
def propose(state: Array, tables: SamplerTables, c: int) -> int:
    """Propose a uniform item and prefetch its bit of the history filter for `accept_or_redraw`."""
    j = random_below(state, tables.n_items)
    if tables.exclude == HISTORY:
        prefetch_bit(tables.bits, tables.offset, c, j)
    return j


@lean_kernel
def accept_or_redraw(state: Array, tables: SamplerTables, c: int, i: int, j: int) -> int:
    """Return the proposed item j, or another draw if j is excluded; with `propose`, the same as `draw_uniform`.

    Redraws use the random numbers of `state[1]`, so proposals do not depend on when this is called.
    """
    k: Any = np.int64(j)  # the type of drawn items, so that `excluded` is compiled once
    return draw_uniform(state[1:], tables, c, i) if excluded(tables, c, i, k) else k


@lean_kernel
def seed_streams(state: Array, seed: np.uint64) -> None:
    """Seed both streams of random numbers."""
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
    """Draw the negative of the pair (c, i) with any sampler except Rejection; −1 if 1,000 draws were all excluded.

    Bound by one random number, one bit of the history filter and, if the bit is set, a search in the history.

    Args:
        sampler: the code of the tables as a compile-time constant.
        state: the random state.
        tables: the sampler's tables.
        c: the context.
        i: the positive.
        W: the context embeddings.
        parts: the sums that `prepare_context` made for this context.
        batch_items: `batch_items[begin:stop]` are the positives of the batch.
        begin: see `batch_items`.
        stop: see `batch_items`.
    """
    if len(sampler) == UNIFORM:
        return draw_uniform(state, tables, c, i)
    if len(sampler) == ADAPTIVE:
        return _draw_adaptive(state, tables, c, i, W, parts)
    if len(sampler) == IN_BATCH and begin == stop:
        return -1
    for _ in range(_TRIES):
        if len(sampler) == POPULARITY:
            u = random_unit(state) * tables.n_items
            j = int(u)
            if u - j >= tables.share[j]:
                j = int(tables.alias[j])
        else:
            j = int(batch_items[begin + random_below(state, stop - begin)])
        if not excluded(tables, c, i, j):
            return j
    return -1


@lean_kernel
def draw_rejection(
    state: Array, tables: SamplerTables, c: int, i: int, W: Array, H: Array, cosine: int | None
) -> tuple[int, int]:
    """Return the first uniform proposal with ŷ(j|c) + margin > ŷ(i|c), or −1, and the number of proposals.

    Scores come from `pair_score`. Bound by the gathered row of H for each proposal. The history is only searched for
    proposals that score high enough.
    """
    if tables.n_items < 2:
        return -1, 0
    least = pair_score(W, c, H, i, cosine) - np.float32(tables.margin)
    for n in range(1, tables.rounds + 1):
        j = random_except(state, tables.n_items, i)
        if pair_score(W, c, H, j, cosine) > least and not excluded(tables, c, i, j):
            return j, n
    return -1, tables.rounds


@lean_kernel
def prefetch_row(rows: Array, r: int) -> None:
    """Prefetch a row that will be read soon."""
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
    """Fill `out` (pairs × n) with n negatives for each pair of a batch; for Rejection also `rounds` (same shape)."""
    for k in range(len(contexts)):
        prepare_context(sampler, tables, W, contexts[k], parts)
        for m in range(n):
            if len(sampler) == REJECTION:
                out[k, m], rounds[k, m] = draw_rejection(state, tables, contexts[k], positives[k], W, H, None)
            else:
                c, i = contexts[k], positives[k]
                out[k, m] = draw_one(sampler, state, tables, c, i, W, parts, positives, 0, len(positives))


@kernel
def _draw_by_counting(state: Array, tables: SamplerTables, c: int, i: int) -> int:
    """Draw like `draw_uniform` by counting the remaining items, for contexts with nearly all items."""
    n_remaining = 0
    for j in range(tables.n_items):
        n_remaining += not excluded(tables, c, i, j)
    if n_remaining == 0:
        return -1
    skip = random_below(state, n_remaining)
    for j in range(tables.n_items):
        if not excluded(tables, c, i, j):
            if skip == 0:
                return j
            skip -= 1
    return -1


@fast_lean_kernel
def prepare_context(sampler: Static, tables: SamplerTables, W: Array, c: int, parts: Array) -> None:
    """Prepare draws for a context. For AdaptiveRank, sum |φ_f|σ_f over blocks of coordinates; see `n_parts`."""
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
    """Return the number of sums that `prepare_context` makes for `width` coordinates."""
    return -(-width // _SIDE)


@lean_kernel
def propose_places(
    state: Array, tables: SamplerTables, c: int, W: Array, parts: Array, coordinates: Array, places: Array
) -> None:
    """For AdaptiveRank, draw and prefetch positions in its lists; `accept_or_redraw_adaptive` takes their items."""
    _sum_parts(tables, W, c, parts)
    total, span = _total(parts, W.shape[1]), _span(tables)
    for k in range(len(places)):
        coordinates[k], places[k] = _place(state, tables, c, W, parts, total, span)
        prefetch(tables.lists, coordinates[k], places[k])


@lean_kernel
def accept_or_redraw_adaptive(
    state: Array, tables: SamplerTables, c: int, i: int, j: int, W: Array, parts: Array
) -> int:
    """Return the proposed item j, or another draw if j is excluded; see `accept_or_redraw`."""
    if not excluded(tables, c, i, j):
        return j
    _sum_parts(tables, W, c, parts)
    return _draw_adaptive(state[1:], tables, c, i, W, parts)


@lean_kernel
def _draw_adaptive(state: Array, tables: SamplerTables, c: int, i: int, W: Array, parts: Array) -> int:
    """Draw f ∝ |φ_f|σ_f and r ∝ exp(−r/γ), r < |I|; return item r of list f, counted from the end if φ_f < 0."""
    total, span = _total(parts, W.shape[1]), _span(tables)
    for _ in range(_TRIES):
        f, place = _place(state, tables, c, W, parts, total, span)
        j = int(tables.lists[f, place])
        if not excluded(tables, c, i, j):
            return j
    return -1


@lean_kernel
def _total(parts: Array, width: int) -> float:
    """Return the sum of |φ_f|σ_f."""
    total = 0.0
    for b in range(-(-width // _SIDE)):
        total += parts[b]
    return total


@lean_kernel
def _span(tables: SamplerTables) -> float:
    """Return −(1 − exp(−|I|/γ)): minus the probability of ranks below |I|."""
    return float(np.expm1(-tables.n_items / tables.gamma))


@lean_kernel
def _place(
    state: Array, tables: SamplerTables, c: int, W: Array, parts: Array, total: float, span: float
) -> tuple[int, int]:
    """Draw a list and a position in it."""
    u = random_unit(state)
    f = _coordinate(W, c, tables.sigma, parts, u * total) if total > 0 else int(u * W.shape[1])
    r = min(int(-tables.gamma * np.log1p(random_unit(state) * span)), tables.n_items - 1)
    return f, (r if W[c, f] >= 0 else tables.n_items - 1 - r)


@lean_kernel
def _coordinate(W: Array, c: int, sigma: Array, parts: Array, target: float) -> int:
    """Return the first coordinate where the running sum of |φ_f|σ_f exceeds the target; find its block first."""
    width = W.shape[1]
    last = 0
    for b in range(-(-width // _SIDE)):
        if parts[b] > 0:
            last = b
            if target < parts[b]:
                break
            target -= parts[b]
    coordinate = last * _SIDE
    for f in range(last * _SIDE, min(width, (last + 1) * _SIDE)):
        part = abs(W[c, f]) * sigma[f]
        if part > 0:
            coordinate = f
            if target < part:
                break
            target -= part
    return coordinate
