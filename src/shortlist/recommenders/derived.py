"""Settings of the pointwise square loss that `IALS` and `ICD` derive from the data.

The constants come from the study in `benchmarks/studies/defaults`; docs/benchmarks.md has its table.
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
UNOBSERVED = 10.0  # total weight of all pairs of C × I, as a multiple of the total weight of the observed pairs
RIDGE = 0.007  # λ if every item has exactly USUAL_PAIRS pairs
USUAL_PAIRS = 30.0
BY_PAIRS = -0.2  # less regularization the more pairs items have
BY_EVENNESS = -0.3  # less regularization the more evenly pairs are spread over the items
STUDIED = 0.004, 0.016  # the range of λ in the study


def square_loss_settings(model: PointwiseFactorization, interactions: Interactions) -> dict[str, Any]:
    """Return d, λ and α₀ for this data, given the settings that the model does set.

        α₀ = 10·ᾱ·|S| / (|C||I|),   λ = 0.007·(n̄ / 30)^−0.2·e^−0.3, between 0.004 and 0.016

    Here ᾱ is the mean weight of an observed pair, n̄ = |S| / |I| the mean number of pairs per item, and
    e = n̄² / mean(n²) the evenness of the items: 1 if all items have equally many pairs, 1/|I| if one item has them all.
    All pairs of C × I together weigh ten times as much as the observed pairs, whatever the size of the catalogue and
    the length of the histories.

    If the model sets a larger α₀, λ is divided by the same factor: the system of a context has λ·(|I_c| + α₀|I|) on its
    diagonal, and the embeddings would vanish otherwise. If ν is not 1, λ is multiplied by (|S| / |C| + α₀|I|)^(1−ν), so
    that the regularization of the mean context is the same for every ν.
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
    """Return λ for ν = 1, from the number of pairs of each item."""
    mean, square = float(np.mean(counts)), float(np.mean(np.square(counts, dtype=np.float64)))
    if not mean:
        return RIDGE
    ridge = RIDGE * (mean / USUAL_PAIRS) ** BY_PAIRS * (mean**2 / square) ** BY_EVENNESS
    return float(np.clip(ridge, *STUDIED))


def effective_rank(embeddings: npt.NDArray[np.float32]) -> float:
    """Return the effective number of dimensions that the embeddings use: tr(G)² / ‖G‖² for the Gramian G.

    G is computed on one thread, because other BLAS threads would keep spinning for a tenth of a second afterwards.

    >>> effective_rank(np.eye(3, dtype=np.float32)), effective_rank(np.ones((5, 3), np.float32))
    (3.0, 1.0)
    """
    with single_threaded_blas():
        gramian = np.asarray(embeddings.T @ embeddings, np.float64)
    squares = float(np.sum(gramian**2))
    return float(np.trace(gramian) ** 2 / squares) if squares else 0.0


def _short(value: float) -> float:
    """Round to three significant digits; more would suggest a precision that the rule does not have."""
    return float(f"{value:.3g}")
