"""Search in a quantized index: choose the best blocks, sum table entries for their items, rescore the best sums."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist._numba import bare_kernel, fast_bare_kernel
from shortlist._prefetch import prefetch_at
from shortlist.retrieval.indexes.block_sums import BLOCK, LARGEST, block_sums
from shortlist.retrieval.indexes.codes import PIECE, POINTS
from shortlist.retrieval.indexes.item_filter import MARKS, ItemFilter, admitted, mark
from shortlist.retrieval.indexes.rescoring import dot, exact_best
from shortlist.retrieval.order import raw_key_of
from shortlist.retrieval.select import floor_of, lowest_bit

Vectors = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]

HIGHEST_SUM = 60_000  # the largest sum of table entries; sums have 16 bits
BUCKETS = 64
EXCLUDED_PER_BLOCK = 16  # scan one more block for every 16 exclusions: excluded items are near, in several blocks
FARTHEST = -(1 << 30)  # blocks further below the best block than this have no order


class Blocks(NamedTuple):
    """A catalogue in blocks of BLOCK items. All items of a block are of one list and have similar lengths."""

    lists: Codes  # the list of each block
    lengths: Vectors  # the mean of ⟨x, c⟩ over the block's items x, where c is the direction of its list
    items: Codes  # the item in each slot, −1 if empty
    codes: npt.NDArray[np.uint8]  # the codes of the residuals x − length · c; flat
    points: Vectors  # the points that codes stand for: pieces × 16 × 2


class ScanWorkspace(NamedTuple):
    """The temporary arrays of a search; each thread has its own."""

    keys: Codes  # of blocks
    values: Vectors  # the same bytes as `keys`
    starts: npt.NDArray[np.int64]  # of the buckets of blocks
    chosen: Codes
    order: Codes
    raw: Vectors
    tables: npt.NDArray[np.uint8]
    sums: npt.NDArray[np.uint16]
    totals: Codes
    items: Codes
    scores: Vectors
    bits: Codes  # the same bytes as `scores`
    rank_keys: npt.NDArray[np.int64]
    marks: npt.NDArray[np.uint64]  # one bit per remainder of an excluded item's code


def make_workspace(n_blocks: int, pieces: int, candidates: int) -> ScanWorkspace:
    """Allocate the arrays for a search that keeps this number of candidates."""
    size = 2 * candidates + BLOCK
    keys, scores = np.empty(n_blocks, np.int32), np.empty(size, np.float32)
    return ScanWorkspace(
        keys,
        keys.view(np.float32),
        np.empty(BUCKETS + 1, np.int64),
        np.empty(n_blocks, np.int32),
        np.empty(n_blocks, np.int32),
        np.empty(pieces * POINTS, np.float32),
        cache_aligned(pieces * BLOCK),
        cache_aligned(2 * BLOCK).view(np.uint16),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        scores,
        scores.view(np.int32),
        np.empty(size, np.int64),
        np.zeros(MARKS // 64, np.uint64),
    )


def cache_aligned(size: int) -> npt.NDArray[np.uint8]:
    """Allocate `size` bytes that start at a cache line."""
    padded = np.empty(size + 64, np.uint8)
    start = -padded.ctypes.data % 64
    return padded[start : start + size]


@bare_kernel
def search_blocks(
    Q: Vectors,
    near: Vectors,
    first: int,
    blocks: Blocks,
    X: Vectors,
    item_filter: ItemFilter,
    priority: npt.NDArray[np.uint32],
    counts: Codes,
    n: int,
    probes: int,
    candidates: int,
    workspace: ScanWorkspace,
    items: Codes,
    S: Codes,
) -> None:
    """Write the n best admitted items for each query of Q, and the bits of their scores; pad with −1 and −inf.

    `near` is queries × lists: the products of queries and directions. `first` is the position of the first query in
    `item_filter`. `counts` has the number of items in each block that pass `allow` and `deny`; it is empty without such
    filters. A query scans its `probes` best blocks, and more if it has exclusions. It keeps `candidates` items by their
    sums and scores them exactly. If that gives fewer than n items, it repeats with four times as many blocks, up to
    all.

    Bound by reading codes and candidate vectors from memory, at random places. At a million items of 128 dimensions,
    400 probes and 800 candidates these are 0.8 MB and 0.4 MB, read in 0.20 ms by one thread: 6 GB/s of about 17.
    """
    n_blocks = len(blocks.lists)
    for r in range(len(Q)):
        q = Q[r]
        scale, most = make_tables(q, blocks.points, workspace.tables, workspace.raw), probes
        if len(item_filter.starts) > 0:  # excluded items take up places in the best blocks
            most += (item_filter.starts[first + r + 1] - item_filter.starts[first + r]) // EXCLUDED_PER_BLOCK
        mark(item_filter, first + r, workspace.marks, True)
        while True:
            count = best_blocks(near[r], blocks, counts, most, workspace)
            size = scan(q, near[r], blocks, count, scale, item_filter, first + r, candidates, workspace)
            if size >= n or most >= n_blocks:
                break
            most = min(n_blocks, 4 * most)
        mark(item_filter, first + r, workspace.marks, False)
        exact_best(
            q,
            X,
            priority,
            n,
            size,
            workspace.items,
            workspace.scores,
            workspace.bits,
            workspace.rank_keys,
            items[r],
            S[r],
        )


@fast_bare_kernel
def make_tables(q: Vectors, points: Vectors, tables: npt.NDArray[np.uint8], raw: Vectors) -> np.float32:
    """Write the tables ⟨q_m, point⟩ − minimum of each piece m, scaled to bytes and repeated four times.

    Returns the scale.
    """
    d = len(q)
    widest, total = np.float32(0), np.float32(0)
    for m in range(len(points)):
        k = PIECE * m
        u = q[k] if k < d else np.float32(0)
        v = q[k + 1] if k + 1 < d else np.float32(0)
        low, high = np.float32(np.inf), np.float32(-np.inf)
        for b in range(POINTS):
            s = u * points[m, b, 0] + v * points[m, b, 1]
            raw[m * POINTS + b] = s
            low = min(low, s)
            high = max(high, s)
        for b in range(POINTS):
            raw[m * POINTS + b] -= low
        widest = max(widest, high - low)
        total += high - low
    if not widest > 0:
        for k in range(len(tables)):
            tables[k] = 0
        return np.float32(0)
    scale = min(np.float32(LARGEST) / widest, np.float32(HIGHEST_SUM) / total, np.float32(1e30))
    for m in range(len(points)):
        for b in range(POINTS):
            entry = np.uint8(raw[m * POINTS + b] * scale + np.float32(0.5))
            for k in range(BLOCK // POINTS):
                tables[m * BLOCK + k * POINTS + b] = entry
    return scale


@bare_kernel
def count_allowed(items: Codes, bits: npt.NDArray[np.uint64], counts: Codes) -> None:
    """Count the items of each block whose bit is set. Takes about two nanoseconds per item."""
    for b in range(len(counts)):
        left = np.int64(0)
        for p in range(b * BLOCK, (b + 1) * BLOCK):
            i = items[p]
            if i >= 0:
                left += np.int64((bits[i >> 6] >> np.uint64(i & 63)) & np.uint64(1))
        counts[b] = left


@bare_kernel
def best_blocks(near: Vectors, blocks: Blocks, counts: Codes, probes: int, workspace: ScanWorkspace) -> int:
    """Write the best blocks into `workspace.order`, roughly best first. Return their number, slightly above `probes`.

    A block's score is that of an item with the block's direction and length. Blocks with a count of 0 are skipped.
    """
    keys, values, chosen, order = workspace.keys, workspace.values, workspace.chosen, workspace.order
    lists, lengths, starts = blocks.lists, blocks.lengths, workspace.starts
    n_blocks = len(lists)
    for b in range(n_blocks):
        values[b] = lengths[b] * near[lists[b]]
    if len(counts) > 0:
        for b in range(n_blocks):
            values[b] = values[b] if counts[b] > 0 else np.float32(-np.inf)
    top = np.int32(-(2**31))
    for b in range(n_blocks):
        keys[b] = raw_key_of(keys[b])
        top = max(top, keys[b])
    least = floor_of(keys, probes, top) if probes < n_blocks else np.int32(-(2**31))
    count = 0
    if len(counts) > 0:
        for b in range(n_blocks):
            chosen[count] = b
            count += (keys[b] >= least) & (counts[b] > 0)
    else:
        for b in range(n_blocks):
            chosen[count] = b
            count += keys[b] >= least
    # A rough order is enough. Good blocks come first because their candidates raise the threshold for later blocks.
    lowest = keys[chosen[0]]
    for p in range(count):
        lowest = min(lowest, keys[chosen[p]])
    width = (np.int64(top) - np.int64(lowest)) // BUCKETS + 1
    for k in range(BUCKETS + 1):
        starts[k] = 0
    for p in range(count):
        starts[(np.int64(top) - keys[chosen[p]]) // width + 1] += 1
    for k in range(BUCKETS):
        starts[k + 1] += starts[k]
    for p in range(count):
        k = (np.int64(top) - keys[chosen[p]]) // width
        order[starts[k]] = chosen[p]
        starts[k] += 1
    return count


@bare_kernel
def scan(
    q: Vectors,
    near: Vectors,
    blocks: Blocks,
    count: int,
    scale: np.float32,
    item_filter: ItemFilter,
    number: int,
    candidates: int,
    workspace: ScanWorkspace,
) -> int:
    """Write the best admitted items of the chosen blocks, by sums, into `workspace.items`. Return their number."""
    lists, lengths, slots, codes = blocks.lists, blocks.lengths, blocks.items, blocks.codes
    order, tables, sums, Z, I = workspace.order, workspace.tables, workspace.sums, workspace.totals, workspace.items  # noqa: E741
    bits, marks, excluded = item_filter.bits, workspace.marks, item_filter.excluded
    start, stop = np.int64(0), np.int64(0)
    if len(item_filter.starts) > 0:
        start, stop = item_filter.starts[number], item_filter.starts[number + 1]
    pairs = len(blocks.points) // 2
    stride = pairs * BLOCK
    best = np.float32(-np.inf)
    for p in range(count):
        best = max(best, lengths[order[p]] * near[lists[order[p]]])
    if scale == 0:  # no item differs from its block, so the scores of the blocks decide
        scale = np.float32(1 << 20)
    size = 0
    lowest = np.int64(-(2**31))
    for p in range(count):
        block = order[p]
        if p + 1 < count:
            following = np.int64(order[p + 1])
            for k in range(0, stride, BLOCK):
                prefetch_at(codes, following * stride + k)
            for k in range(0, BLOCK, 16):
                prefetch_at(slots, following * BLOCK + k)
        base = np.int64(max((lengths[block] * near[lists[block]] - best) * scale, np.float32(FARTHEST)))
        least = lowest - base
        if least > np.int64(65535):
            continue
        word = block_sums(
            codes, np.int64(block) * stride, tables, np.int64(pairs), np.uint16(max(least, np.int64(0))), sums
        )
        while word != 0:
            slot = lowest_bit(word)
            word &= word - np.uint64(1)
            i = slots[np.int64(block) * BLOCK + slot]
            if i >= 0 and admitted(i, bits, marks, excluded, start, stop):
                Z[size], I[size] = np.int32(base + np.int64(sums[slot])), i
                size += 1
        if size > len(I) - BLOCK:
            lowest = np.int64(keep_best(Z, I, size, candidates)) + np.int64(1)
            size = candidates
    if size > candidates:
        keep_best(Z, I, size, candidates)
        size = candidates
    return size


@bare_kernel
def keep_best(Z: Codes, I: Codes, size: int, n: int) -> np.int32:  # noqa: E741
    """Keep the n of the first `size` > n candidates with the highest totals Z. Return the lowest total kept."""
    low, high = Z[0], Z[0]
    for k in range(1, size):
        low = min(low, Z[k])
        high = max(high, Z[k])
    above = np.int32(0)
    while low < high:  # at least n reach low; fewer than n exceed high
        middle = np.int32(np.int64(low) + (np.int64(high) - np.int64(low) + 1) // 2)
        reach = np.int32(0)
        for k in range(size):
            reach = np.int32(reach + np.int32(Z[k] >= middle))
        if reach >= n:
            low = middle
        else:
            high = np.int32(middle - np.int32(1))
            above = reach
    ties = n - above
    kept = 0
    for k in range(size):
        z, i = Z[k], I[k]
        Z[kept], I[kept] = z, i
        if z > low:
            kept += 1
        elif z == low and ties > 0:
            ties -= 1
            kept += 1
    return np.int32(low)


@fast_bare_kernel
def direction_products(Q: Vectors, directions: Vectors, near: Vectors) -> None:
    """Write ⟨q, direction⟩ for few queries, for which a BLAS call costs more. Bound by reading the directions."""
    for r in range(len(Q)):
        for k in range(len(directions)):
            near[r, k] = dot(Q[r], directions[k])
