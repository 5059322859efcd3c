"""Product quantization: four bits for every two coordinates of a vector (Jégou, Douze & Schmid 2011).

A vector is cut into pieces of two coordinates. Each piece is replaced by the nearest of 16 points, which are learned
for it. The inner product of a query with the quantized vector is a sum of table entries, with one table per piece.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_bare_kernel
from shortlist._threads import run_chunks
from shortlist.retrieval.indexes.block_sums import BLOCK

PIECE = 2  # coordinates
POINTS = 16
SAMPLE = 1 << 16
ROUNDS = 12

Vectors = npt.NDArray[np.float32]


def padded_width(dim: int) -> int:
    """Return the number of coordinates after padding with zeros to whole bytes of codes."""
    return -(-dim // (2 * PIECE)) * 2 * PIECE


def learn_points(sample: Vectors, seed: int = 0, threads: int | None = None) -> Vectors:
    """Return 16 points for each piece (pieces × 16 × 2), by k-means on a sample of vectors of padded width."""
    rng = np.random.default_rng([seed, 16])
    pieces = sample.shape[1] // PIECE
    cut = np.ascontiguousarray(sample.reshape(len(sample), pieces, PIECE).transpose(1, 0, 2))
    points = np.ascontiguousarray(cut[:, rng.integers(0, len(sample), POINTS)])

    def learn(start: int, stop: int) -> None:
        totals, counts = np.empty((POINTS, PIECE), np.float64), np.empty(POINTS, np.int64)
        for m in range(start, stop):
            lloyd(cut[m], points[m], ROUNDS, totals, counts)

    run_chunks(learn, [(m, m + 1) for m in range(pieces)], threads)
    return points


@fast_bare_kernel
def lloyd(
    sample: Vectors, points: Vectors, rounds: int, totals: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]
) -> None:
    """Run Lloyd's algorithm: move each point to the mean of the vectors nearest to it.

    A point without vectors moves to a random vector. `totals` and `counts` are temporary space.
    """
    k, d = points.shape
    for r in range(rounds):
        for b in range(k):
            counts[b] = 0
            for c in range(d):
                totals[b, c] = 0
        for i in range(len(sample)):
            b = nearest_point(sample[i], points)
            counts[b] += 1
            for c in range(d):
                totals[b, c] += sample[i, c]
        for b in range(k):
            if counts[b] > 0:
                for c in range(d):
                    points[b, c] = totals[b, c] / counts[b]
            else:
                i = (b * 7919 + r * 104729) % len(sample)
                for c in range(d):
                    points[b, c] = sample[i, c]


@fast_bare_kernel
def nearest_point(x: Vectors, points: Vectors) -> int:
    """Return the index of the point (k × 2) nearest to x."""
    best, least = 0, np.float32(np.inf)
    for b in range(len(points)):
        u, v = x[0] - points[b, 0], x[1] - points[b, 1]
        distance = u * u + v * v
        if distance < least:
            best, least = b, distance
    return best


@fast_bare_kernel
def encode(
    vectors: Vectors,
    directions: Vectors,
    lists: npt.NDArray[np.int32],
    lengths: Vectors,
    items: npt.NDArray[np.int32],
    points: Vectors,
    codes: npt.NDArray[np.uint8],
    residual: Vectors,
    first: int,
    last: int,
) -> None:
    """Write the codes of the residuals x − length · direction for the items of blocks first…last (−1: empty slot).

    `codes` is blocks × pairs × BLOCK; for the order of bytes see `block_sums_numpy`. `residual` is temporary space for
    one vector of padded width; its padding must be 0.
    """
    d = vectors.shape[1]
    pieces = len(points)
    for block in range(first, last):
        direction, length = directions[lists[block]], lengths[block]
        for slot in range(BLOCK):
            i = items[block * BLOCK + slot]
            if i < 0:
                continue
            for k in range(d):
                residual[k] = vectors[i, k] - length * direction[k]
            byte = 2 * slot if slot < BLOCK // 2 else 2 * (slot - BLOCK // 2) + 1
            for m in range(0, pieces, 2):
                low = nearest_point(residual[PIECE * m : PIECE * m + PIECE], points[m])
                high = nearest_point(residual[PIECE * m + PIECE : PIECE * m + 2 * PIECE], points[m + 1])
                codes[block, m // 2, byte] = low | (high << 4)
