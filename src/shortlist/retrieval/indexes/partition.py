"""Partition a catalogue into lists of items with similar directions, by spherical k-means."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from shortlist._numba import bare_kernel
from shortlist._threads import blas_threads, run_chunks
from shortlist.scoring.blocks import DotProductScorer

PER_LIST = 50  # sample vectors per list: more barely change the directions
ROUNDS = 8
PRODUCTS = 500_000  # inner products at a time, 2 MB: more would leave the cache

Vectors = npt.NDArray[np.float32]
Advance = Callable[[str], object]  # called with the name of each phase before it starts


def partition_items(
    vectors: Vectors,
    n_lists: int,
    *,
    seed: int = 0,
    threads: int | None = None,
    advance: Advance | None = None,
) -> tuple[Vectors, npt.NDArray[np.int32]]:
    """Return the directions (unit vectors) of `n_lists` lists, and the list with the nearest direction for each vector.

    This is Lloyd's k-means on a sample of the vectors, scaled to length 1. Without scaling, lists mix the directions of
    short vectors: at a million items, a search had to visit four times as many lists for the same recall. A direction
    without vectors moves next to the direction with the most.

    Bound by matrix products: 2 · d · lists flops per sample vector and round.
    """
    rng = np.random.default_rng([seed, 8])
    advance = advance or (lambda _: None)
    with blas_threads(threads):
        size = min(len(vectors), n_lists * PER_LIST)
        sample = unit(vectors if size == len(vectors) else vectors[np.sort(rng.choice(len(vectors), size, False))])
        directions = sample[np.sort(rng.choice(size, n_lists, replace=False))].copy()
        for k in range(ROUNDS):
            advance(f"lists, round {k + 1} of {ROUNDS}")
            _move(directions, sample, nearest(sample, directions, threads), rng)
        advance("items into lists")
        return directions, nearest(vectors, directions, threads)


def nearest(vectors: Vectors, directions: Vectors, threads: int | None = None) -> npt.NDArray[np.int32]:
    """Return the direction with the highest inner product with each vector. Ties go to the first direction."""
    scorer = DotProductScorer(vectors, directions)
    lists = np.empty(len(vectors), np.int32)
    rows = max(1, PRODUCTS // len(directions))

    def search(start: int, stop: int) -> None:
        products = np.empty((stop - start, len(directions)), np.float32)
        scorer.score(slice(start, stop), slice(0, len(directions)), products)
        lists[start:stop] = products.argmax(axis=1)

    run_chunks(search, [(start, min(start + rows, len(vectors))) for start in range(0, len(vectors), rows)], threads)
    return lists


def unit(vectors: Vectors) -> Vectors:
    """Scale the vectors to length 1. Zero vectors stay 0."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    return (vectors / np.where(lengths > 0, lengths, 1)[:, None]).astype(np.float32)


def _move(directions: Vectors, sample: Vectors, lists: npt.NDArray[np.int32], rng: np.random.Generator) -> None:
    """Move each direction to that of the sum of its vectors."""
    counts = np.bincount(lists, minlength=len(directions))
    totals = np.zeros(directions.shape, np.float64)
    _sum_by_list(sample, lists, totals)
    for empty in np.flatnonzero(counts == 0):
        fullest = int(np.argmax(counts))
        totals[empty] = totals[fullest] + rng.normal(0, 1e-3 * counts[fullest], directions.shape[1])
        counts[empty] = counts[fullest] // 2
        counts[fullest] -= counts[empty]
    directions[:] = unit(totals.astype(np.float32))


@bare_kernel
def _sum_by_list(vectors: Vectors, lists: npt.NDArray[np.int32], totals: npt.NDArray[np.float64]) -> None:
    for i in range(len(vectors)):
        row = totals[lists[i]]
        for k in range(vectors.shape[1]):
            row[k] += vectors[i, k]
