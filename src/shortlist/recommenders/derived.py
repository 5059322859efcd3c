"""Settings of the pointwise square loss that follow from the data, for `IALS` and `ICD`.

`benchmarks/defaults.py` is the study behind the constants; docs/benchmarks.md has its table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.data.interactions import Interactions
from shortlist.objectives.weighting import strengths
from shortlist.recommenders.pointwise_factorization import PointwiseFactorization

DIM = 256
RIDGE = 0.01  # λ
UNOBSERVED = 10.0  # what all pairs weigh beside the observed ones, in multiples of these


def square_loss_settings(model: PointwiseFactorization, interactions: Interactions) -> dict[str, Any]:
    """Return d, λ and α₀ for this data; what the model sets is taken as it is.

        α₀ = κ·ᾱ·n̄ / |I|,   λ = λ₀·min(1, κ·ᾱ·n̄ / (α₀|I|))·(n̄ + α₀|I|)^(1−ν)

    with ᾱ the mean weight of an observed pair and n̄ = |S| / |C| the mean number of a context's pairs: all pairs of
    C × I together weigh κ times as much as the observed ones, whatever the catalogue's size and the histories' length.
    λ_c grows with what a context's pairs weigh, so λ is less where the model sets a larger α₀: otherwise the embeddings
    vanish. The last factor gives the mean context the same λ_c at every ν.
    """
    n_items, rows = interactions.n_items, interactions.by_context
    pairs = len(rows) / max(rows.n_rows, 1)
    weight = 1.0
    if model.strength_as == "weight":
        strength = strengths(rows.values, model.weighting)
        weight = float(model.observed_weight) * float(np.mean(strength, dtype=np.float64))
    usual = UNOBSERVED * weight * pairs / max(n_items, 1)
    alpha0 = usual if model.unobserved_weight is None else float(model.unobserved_weight)
    ridge = RIDGE * min(1.0, usual / alpha0 if alpha0 else 1.0)
    ridge *= (pairs + alpha0 * n_items or 1.0) ** (1 - float(model.regularization_exponent))
    return {"dim": DIM, "regularization": _short(ridge), "unobserved_weight": _short(alpha0)}


def effective_rank(embeddings: npt.NDArray[np.float32]) -> float:
    """Return how many directions the embeddings have, each counted by its share of the squares: tr(G)² / ‖G‖².

    >>> effective_rank(np.eye(3, dtype=np.float32)), effective_rank(np.ones((5, 3), np.float32))
    (3.0, 1.0)
    """
    gramian = np.asarray(embeddings.T @ embeddings, np.float64)
    squares = float(np.sum(gramian**2))
    return float(np.trace(gramian) ** 2 / squares) if squares else 0.0


def _short(value: float) -> float:
    """Return a number with three digits: no more of them mean anything."""
    return float(f"{value:.3g}")
