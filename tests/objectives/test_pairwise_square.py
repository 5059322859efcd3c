"""What the closed form of the pairwise square loss sums, against the double sum."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives import PairwiseSquare, PointwiseSquare

RNG = np.random.default_rng(4)
HISTORIES = SparseRows.from_lists([np.array([0, 1, 4]), np.array([2]), np.array([1, 3])], n_columns=6)
CONTEXTS, ITEMS = (RNG.standard_normal((n, 3)).astype(np.float32) for n in (3, 6))
SCORES = CONTEXTS.astype(np.float64) @ ITEMS.T.astype(np.float64)


def double_sum(exclude_positives: bool) -> float:
    """Σ_{(c,i)∈S} Σ_j (ŷ(i|c) − ŷ(j|c) − 1)² / |I|, over all items j or without those of the context."""
    total = 0.0
    for c in range(HISTORIES.n_rows):
        positives = HISTORIES.row(c).tolist()
        for i in positives:
            for j in range(6):
                if not (exclude_positives and j in positives):
                    total += (SCORES[c, i] - SCORES[c, j] - 1) ** 2 / 6
    return total


def test_positives_are_among_the_items_j():
    """The article's formula (j ∈ I), not its text (j ∉ I_c): they are two losses."""
    loss = PairwiseSquare().loss(HISTORIES, CONTEXTS, ITEMS)
    assert loss == pytest.approx(double_sum(exclude_positives=False), rel=1e-5)
    assert loss != pytest.approx(double_sum(exclude_positives=True), rel=1e-2)


def test_contexts_weigh_by_their_pairs_unlike_in_the_pointwise_loss():
    """Its first two terms are not those of the pointwise loss: Σ_j (ŷ_j)² counts |I_c| times for context c."""
    observed = [SCORES[c, HISTORIES.row(c)] for c in range(3)]
    everything = (SCORES**2).mean(axis=1)
    mixed = [2 * (scores - 1).sum() * SCORES[c].mean() for c, scores in enumerate(observed)]
    first_two = [((scores - 1) ** 2).sum() for scores in observed]
    by_pairs = sum(first_two) - sum(mixed) + (HISTORIES.lengths * everything).sum()
    alike = sum(first_two) - sum(mixed) + everything.sum()
    loss = PairwiseSquare().loss(HISTORIES, CONTEXTS, ITEMS)
    assert loss == pytest.approx(by_pairs, rel=1e-5)
    assert loss != pytest.approx(alike, rel=1e-2)
    pointwise = PointwiseSquare(unobserved_weight=1 / 6, regularization=0.0)
    parts = pointwise.loss(HISTORIES, HISTORIES.transpose(), CONTEXTS, ITEMS)
    assert parts.observed + parts.unobserved == pytest.approx(sum(first_two) + everything.sum(), rel=1e-5)
