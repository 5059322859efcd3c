"""Settings of the pointwise square loss that follow from the data, for `IALS` and `ICD`.

`benchmarks/studies/defaults` is the study behind the constants; docs/benchmarks.md has its table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._threads import single_threaded_blas
from shortlist.data.interactions import Interactions
from shortlist.objectives.weighting import strengths
from shortlist.recommenders.pointwise_factorization import PointwiseFactorization

DIM = 256
UNOBSERVED = 10.0  # what all pairs weigh beside the observed ones, in multiples of these
RIDGE = 0.007  # λ where an item has as many pairs as the next line says, and all items have equally many
USUAL_PAIRS = 30.0
BY_PAIRS = -0.2  # the more pairs an item has, the less regularization it needs
BY_EVENNESS = -0.3  # and the more evenly pairs are spread over the items
STUDIED = 0.004, 0.016  # the study has no other λ


def square_loss_settings(model: PointwiseFactorization, interactions: Interactions) -> dict[str, Any]:
    """Return d, λ and α₀ for this data; what the model sets is taken as it is.

        α₀ = 10·ᾱ·|S| / (|C||I|),   λ = 0.007·(n̄ / 30)^−0.2·e^−0.3, between 0.004 and 0.016

    with ᾱ the mean weight of an observed pair, n̄ = |S| / |I| the mean number of an item's pairs, and e = n̄² / mean(n²)
    how evenly they are spread over the items: 1 where all have equally many, 1/|I| where one has them all. All pairs of
    C × I together weigh ten times as much as the observed ones, whatever the size of the catalogue and the length of
    the histories.

    Where the model sets a larger α₀ than that, λ is less by as much: otherwise the embeddings vanish, as the system of
    a context has λ·(|I_c| + α₀|I|) on its diagonal. At ν other than 1, λ is multiplied by (|S| / |C| + α₀|I|)^(1−ν), so
    that the mean context has the same at every ν.
    """
    rows = interactions.by_context
    n_contexts, n_items = max(rows.n_rows, 1), max(interactions.n_items, 1)
    weight = 1.0
    if model.strength_as == "weight":
        strength = strengths(rows.values, model.weighting)
        weight = float(model.observed_weight) * float(np.mean(strength, dtype=np.float64))
    of_context = len(rows) / n_contexts
    usual = UNOBSERVED * weight * of_context / n_items
    alpha0 = usual if model.unobserved_weight is None else float(model.unobserved_weight)
    ridge = _usual_ridge(np.bincount(rows.indices, minlength=n_items))
    ridge *= min(1.0, usual / alpha0 if alpha0 else 1.0)
    ridge *= (of_context + alpha0 * n_items or 1.0) ** (1 - float(model.regularization_exponent))
    return {"dim": DIM, "regularization": _short(ridge), "unobserved_weight": _short(alpha0)}


def _usual_ridge(counts: npt.NDArray[np.int64]) -> float:
    """Return λ at ν = 1 for items that have so many pairs."""
    mean, square = float(np.mean(counts)), float(np.mean(np.square(counts, dtype=np.float64)))
    if not mean:
        return RIDGE
    ridge = RIDGE * (mean / USUAL_PAIRS) ** BY_PAIRS * (mean**2 / square) ** BY_EVENNESS
    return float(np.clip(ridge, *STUDIED))


def effective_rank(embeddings: npt.NDArray[np.float32]) -> float:
    """Return how many directions the embeddings have, each counted by its share of the squares: tr(G)² / ‖G‖².

    G is computed on one thread: other threads of BLAS would go on spinning for a tenth of a second.

    >>> effective_rank(np.eye(3, dtype=np.float32)), effective_rank(np.ones((5, 3), np.float32))
    (3.0, 1.0)
    """
    with single_threaded_blas():
        gramian = np.asarray(embeddings.T @ embeddings, np.float64)
    squares = float(np.sum(gramian**2))
    return float(np.trace(gramian) ** 2 / squares) if squares else 0.0


def _short(value: float) -> float:
    """Return a number with three digits: no more of them mean anything."""
    return float(f"{value:.3g}")
