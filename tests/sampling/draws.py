"""Draws by the hundred thousand, from NumPy or from the kernel, and whether they follow a law."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2

from shortlist._numba import static
from shortlist.data.sparse_rows import SparseRows
from shortlist.sampling.draw_kernels import draw_negatives

N = 40_000
ITEMS = 12
WAYS = ("numpy", "kernel")


def histories():
    """Contexts with a few items, none, and all but one; item 11 was never taken by anyone but the last but one."""
    lists = [[0, 3, 5], [1], [], [*range(1, ITEMS)], [0, 1, 2, 3], [*range(ITEMS)]]
    return SparseRows.from_lists([np.array(one, dtype=np.int64) for one in lists], ITEMS)


def embeddings(d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(6, d)).astype(np.float32), rng.normal(size=(ITEMS, d)).astype(np.float32)


def draw(way, negatives, contexts, positives, n, *, W=None, H=None, seed=7):
    """Items and rounds, pairs × n."""
    contexts, positives = np.asarray(contexts, np.int32), np.asarray(positives, np.int32)
    if way == "kernel":
        items, rounds = (np.zeros((len(contexts), n), np.int32) for _ in range(2))
        none = np.zeros((1, 1), np.float32)
        draw_negatives(
            static(negatives.tables.code),
            np.array([seed], np.uint64),
            negatives.tables,
            contexts,
            positives,
            n,
            none if W is None else W,
            none if H is None else H,
            np.zeros(8, np.float32),
            items,
            rounds,
        )
        return items, rounds
    drawn = negatives.draw(
        contexts,
        positives,
        n,
        np.random.default_rng(seed),
        context_embeddings=None if W is None else W[contexts],
        score=None if H is None else lambda c, j: np.einsum("nd,nd->n", W[c], H[j]),
    )
    return drawn.items, drawn.rounds


def follows(counts, probabilities):
    """Whether counts are likely under a law, by Pearson's chi-square; what has probability 0 must not occur at all."""
    counts, probabilities = np.asarray(counts, np.float64), np.asarray(probabilities, np.float64)
    assert counts.shape == probabilities.shape
    assert abs(probabilities.sum() - 1) < 1e-9
    if counts[probabilities == 0].any():
        return False
    expected = probabilities * counts.sum()
    rare = (expected < 5) & (probabilities > 0)
    table = [(counts[k], expected[k]) for k in np.flatnonzero((probabilities > 0) & ~rare)]
    if rare.any():
        table.append((counts[rare].sum(), expected[rare].sum()))
    if len(table) < 2:
        return True
    statistic = sum((seen - due) ** 2 / due for seen, due in table)
    return chi2.sf(statistic, len(table) - 1) > 1e-4
