"""Search in a quantized index: the best blocks for a query, sums of codes over them, exact scores of the best sums."""

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

HIGHEST_SUM = 60_000  # of the entries of all tables: sums are 16 bits long
BUCKETS = 64
SPREAD = 16  # items that a query has had, for each block more that it looks at: they are near, but not all in one
FARTHEST = -(1 << 30)  # what is further below the best block than that has no order


class Blocks(NamedTuple):
    """A catalogue in blocks of BLOCK items. All items of a block are of one list, and of about one length."""

    lists: Codes  # the list of each block
    lengths: Vectors  # the mean of ⟨x, c⟩ over its items x, c being the direction of its list
    items: Codes  # the item in each slot, −1 for none
    codes: npt.NDArray[np.uint8]  # of what is left of x without its part along c; flat
    points: Vectors  # what codes stand for: pieces × 16 × 2


class ScanWorkspace(NamedTuple):
    """What a search writes to on its way; one for each thread."""

    keys: Codes  # of blocks
    values: Vectors  # the same bytes
    starts: npt.NDArray[np.int64]  # of the buckets of blocks
    near: Codes
    order: Codes
    raw: Vectors
    tables: npt.NDArray[np.uint8]
    sums: npt.NDArray[np.uint16]
    totals: Codes
    items: Codes
    scores: Vectors
    bits: Codes  # the same bytes
    standings: npt.NDArray[np.int64]
    marks: npt.NDArray[np.uint64]  # a bit for each remainder of an excluded item's code


def make_room(n_blocks: int, pieces: int, candidates: int) -> ScanWorkspace:
    """Room for a search that keeps so many candidates."""
    room = 2 * candidates + BLOCK
    keys, scores = np.empty(n_blocks, np.int32), np.empty(room, np.float32)
    return ScanWorkspace(
        keys,
        keys.view(np.float32),
        np.empty(BUCKETS + 1, np.int64),
        np.empty(n_blocks, np.int32),
        np.empty(n_blocks, np.int32),
        np.empty(pieces * POINTS, np.float32),
        from_line(pieces * BLOCK),
        from_line(2 * BLOCK).view(np.uint16),
        np.empty(room, np.int32),
        np.empty(room, np.int32),
        scores,
        scores.view(np.int32),
        np.empty(room, np.int64),
        np.zeros(MARKS // 64, np.uint64),
    )


def from_line(size: int) -> npt.NDArray[np.uint8]:
    """So many bytes, beginning where a cache line does."""
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size]


@bare_kernel
def search_blocks(
    Q: Vectors,
    near: Vectors,
    first: int,
    blocks: Blocks,
    X: Vectors,
    admission: ItemFilter,
    priority: npt.NDArray[np.uint32],
    counts: Codes,
    n: int,
    probes: int,
    candidates: int,
    room: ScanWorkspace,
    items: Codes,
    S: Codes,
) -> None:
    """The best n admitted items for each query of Q, and the bits of their scores; −1 and −inf where there are fewer.

    `near` is queries × lists, the products of queries and directions; `first` is the number of the first query among
    those that `admission` knows; `counts` are the items that filters for all leave of each block, empty where there are
    none. A query looks at its `probes` best blocks, and at more for what it excludes, keeps `candidates` items by their
    sums, and scores them exactly. Where fewer than n items are found that way, it looks at four times as many blocks,
    and so on to all of them.

    Bound by reading the codes of the blocks from memory and the candidates' vectors, in random places. At a million
    items of 128 dimensions, 400 probes and 800 candidates that is 0.8 MB and 0.4 MB, read in 0.20 ms by one thread:
    6 GB/s of about 17.
    """
    n_blocks = len(blocks.lists)
    for r in range(len(Q)):
        q = Q[r]
        scale, most = make_tables(q, blocks.points, room.tables, room.raw), probes
        if len(admission.starts) > 0:  # what has been had takes the place of others that are near
            most += (admission.starts[first + r + 1] - admission.starts[first + r]) // SPREAD
        mark(admission, first + r, room.marks, True)
        while True:
            count = best_blocks(near[r], blocks, counts, most, room)
            size = scan(q, near[r], blocks, count, scale, admission, first + r, candidates, room)
            if size >= n or most >= n_blocks:
                break
            most = min(n_blocks, 4 * most)
        mark(admission, first + r, room.marks, False)
        exact_best(q, X, priority, n, size, room.items, room.scores, room.bits, room.standings, items[r], S[r])


@fast_bare_kernel
def make_tables(q: Vectors, points: Vectors, tables: npt.NDArray[np.uint8], raw: Vectors) -> np.float32:
    """Write ⟨q_m, point⟩ of each piece m, from its least up and scaled to bytes, four times over; return the scale."""
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
def count_left(items: Codes, bits: npt.NDArray[np.uint64], counts: Codes) -> None:
    """How many items of each block have their bit set. Bound by some two nanoseconds an item."""
    for b in range(len(counts)):
        left = np.int64(0)
        for p in range(b * BLOCK, (b + 1) * BLOCK):
            i = items[p]
            if i >= 0:
                left += np.int64((bits[i >> 6] >> np.uint64(i & 63)) & np.uint64(1))
        counts[b] = left


@bare_kernel
def best_blocks(near: Vectors, blocks: Blocks, counts: Codes, probes: int, room: ScanWorkspace) -> int:
    """Write the best blocks into `room.order`, roughly best first, and return how many: a few more than `probes`.

    A block's score is that of an item that lies on its direction and has its length. Blocks of which `counts` says that
    nothing is left are no choice.
    """
    keys, values, chosen, order = room.keys, room.values, room.near, room.order
    lists, lengths, starts = blocks.lists, blocks.lengths, room.starts
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
    # The order counts little: candidates of the first blocks keep those of the others out.
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
    admission: ItemFilter,
    number: int,
    candidates: int,
    room: ScanWorkspace,
) -> int:
    """Put the best admitted items of the chosen blocks, by their sums, into `room.items`; return how many."""
    lists, lengths, slots, codes = blocks.lists, blocks.lengths, blocks.items, blocks.codes
    order, tables, sums, Z, I = room.order, room.tables, room.sums, room.totals, room.items  # noqa: E741
    bits, marks, excluded = admission.bits, room.marks, admission.excluded
    start, stop = np.int64(0), np.int64(0)
    if len(admission.starts) > 0:
        start, stop = admission.starts[number], admission.starts[number + 1]
    pairs = len(blocks.points) // 2
    stride = pairs * BLOCK
    best = np.float32(-np.inf)
    for p in range(count):
        best = max(best, lengths[order[p]] * near[lists[order[p]]])
    if scale == 0:  # no item differs from its block: the blocks' own scores decide
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
        found = block_sums(
            codes, np.int64(block) * stride, tables, np.int64(pairs), np.uint16(max(least, np.int64(0))), sums
        )
        while found != 0:
            slot = lowest_bit(found)
            found &= found - np.uint64(1)
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
    """Keep n of the first `size` > n candidates, those with the highest totals Z; return the lowest kept."""
    low, high = Z[0], Z[0]
    for k in range(1, size):
        low = min(low, Z[k])
        high = max(high, Z[k])
    above = np.int32(0)
    while low < high:  # at least n reach low; `above` < n exceed high
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
def products(Q: Vectors, directions: Vectors, near: Vectors) -> None:
    """⟨q, direction⟩ for few queries, for which a call of BLAS and its threads cost more. Bound by reading them."""
    for r in range(len(Q)):
        for k in range(len(directions)):
            near[r, k] = dot(Q[r], directions[k])
