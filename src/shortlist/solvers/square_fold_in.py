"""Exact fold-in for the pointwise square loss with sampled negatives: the minimum of the expected loss."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._threads import single_threaded_blas
from shortlist.data.sparse_rows import SparseRows
from shortlist.sampling.base import BoundSampler
from shortlist.solvers.eigenbasis import eigenbasis
from shortlist.solvers.multilinear_als import ENOUGH, MANY
from shortlist.solvers.row_products import product
from shortlist.solvers.sgd_tables import StepTables
from shortlist.solvers.single_rows import improve

Floats: TypeAlias = npt.NDArray[np.float32]
_LEAST = 1e-6  # λ of a coordinate is at least this fraction of the largest, so that every coordinate has a scale


class SquareFoldIn:
    """Embeddings of contexts from their histories, with negatives from a fixed distribution q over all items.

    The steps of an epoch on a context's pairs minimise, on average,

        Σ_i g_i·[ α_i(ŷ_i/τ − y_i)² + m·ω_c·α̃·E_j (ŷ_j/τ − y⁻)² ] + ½·(1 + m)·(Σ_i g_i)·‖θ‖²_λ

    with the confidence g of a pair and j drawn from q over the items that are not excluded. For fixed items this is
    quadratic in θ, the coordinates of the context and its bias. The terms that depend only on the items are computed
    once, in the eigenbasis of Σ_j q_jψ_jψ_jᵀ. A row then takes steps of conjugate gradients until they converge.

    If the confidences of a history sum to less than 1, the minimum is multiplied by their sum: a history that fades out
    ends at zero, like an empty history.

    Args:
        items: (items × width) embeddings; with biases, [b, 1] follows the `dim` coordinates.
        dim: number of coordinates.
        negatives: the sampler; apart from exclusions, its q must not depend on the context.
        rules: the settings of a step; values by context are taken from the rules of a call.
    """

    def __init__(self, items: Floats, dim: int, negatives: BoundSampler, rules: StepTables) -> None:
        self._width, self._dim, self._exclude = items.shape[1], dim, negatives.exclude
        q = negatives.base_probabilities()
        self._q = q
        self._free = np.array([*range(dim), *([dim + 1] if self._width > dim else [])])
        self._biases = items[:, dim].astype(np.float64) if self._width > dim else np.zeros(len(items))
        ridges = rules.context_ridges[self._free].astype(np.float64)
        self._ridge = float(ridges.max())
        scale = np.sqrt(self._ridge / np.maximum(ridges, _LEAST * self._ridge)) if self._ridge else np.ones(len(ridges))
        Psi = items[:, self._free] * scale
        with single_threaded_blas():
            spectrum, Q = eigenbasis((Psi.T * q) @ Psi)
            self._psi: Floats = np.ascontiguousarray(Psi @ Q, np.float32)
            # The slope at θ = 0 when every item is a negative.
            self._pull = (q * (rules.negative_label / rules.sharpness - self._biases)) @ Psi @ Q
        self._spectrum, self._back = spectrum.astype(np.float32), (scale[:, None] * Q).T.astype(np.float32)

    def __call__(
        self, histories: SparseRows, strengths: Floats, rules: StepTables, threads: int | None = None
    ) -> Floats:
        """Return the embeddings of these histories; `strengths` has a value for each pair, or one for all."""
        n, i, square = histories.n_rows, histories.indices, float(rules.sharpness) ** 2
        row_of = np.repeat(np.arange(n), histories.lengths)
        g = np.ones(len(i)) if histories.confidence is None else histories.confidence.astype(np.float64)
        strength = np.broadcast_to(strengths, len(i)).astype(np.float64)
        of_context = np.broadcast_to(rules.context_weights, n).astype(np.float64)
        a = g * square * of_context[row_of] * np.broadcast_to(rules.item_weights, histories.n_columns)[i]
        label: Any = strength if rules.strength_is_label else 1.0
        if not rules.strength_is_label:
            a = a * strength
        q, mass = self._q[i], np.bincount(row_of, g, n)
        drawn = g * square * rules.n_negatives * float(rules.negative_weight) * of_context[row_of]  # of each pair
        allowed = 1 - (np.bincount(row_of, g * q, n)[row_of] if self._exclude == "history" else q)
        drawable = allowed > 1e-9
        drawn = np.where(drawable, drawn, 0) / np.where(drawable, allowed, 1)
        dense = np.bincount(row_of, drawn, n)
        not_drawn = g * q * dense[row_of] if self._exclude == "history" else q * drawn
        touched = 1 + rules.n_negatives * np.bincount(row_of, g * drawable, n) / np.maximum(mass, 1e-30)
        offset, tau = self._biases[i], 1 / float(rules.sharpness)
        lin = a * (tau * label - offset) - not_drawn * (tau * rules.negative_label - offset)
        ridge = 0.5 * mass * touched * np.broadcast_to(rules.context_scales, n) * self._ridge
        weights = _single(a - not_drawn), _single(lin), _single(dense), self._spectrum
        more, theta = _single(dense[:, None] * self._pull), np.zeros((n, len(self._free)), np.float32)
        improve(histories, *weights, self._psi, _single(ridge), more, theta, MANY, ENOUGH, threads)
        theta *= np.minimum(mass, 1)[:, None].astype(np.float32)
        out = np.zeros((n, self._width), np.float32)
        out[:, self._free] = product(theta, self._back)
        if self._width > self._dim:
            out[:, self._dim] = 1
        out[histories.lengths == 0] = 0
        return out


def _single(array: npt.NDArray[Any]) -> Floats:
    return array.astype(np.float32)
