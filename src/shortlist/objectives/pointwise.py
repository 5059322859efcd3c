"""The pointwise square loss over all of C × I, in the form the Gramian solvers need (sections 3.1 and 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel
from shortlist._settings import number, one_of
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.rows import Rows
from shortlist.errors import SettingError
from shortlist.objectives.weighting import WEIGHTINGS, Weighting, strengths

Array: TypeAlias = npt.NDArray[Any]
Convention: TypeAlias = Literal["added", "total"]
StrengthAs: TypeAlias = Literal["weight", "label"]


@dataclass(frozen=True)
class LossParts:
    """The loss, and what it is the sum of."""

    observed: float
    unobserved: float
    regularizer: float

    @property
    def total(self) -> float:
        """The whole loss."""
        return self.observed + self.unobserved + self.regularizer


@dataclass(frozen=True, eq=False)
class Terms:
    """What one side's normal equations need of the observed pairs, in the order of that side's rows.

    A row w of one side, given the other side's embeddings ψ with Gramian G = Σψψᵀ, minimises the loss where
    (α₀G + Σ excess·ψψᵀ + λ_row·I) w = Σ target·ψ. Arrays of one element stand for all pairs.
    """

    excess: npt.NDArray[np.float32]  # α − α₀ in the total convention, α in the added one
    target: npt.NDArray[np.float32]  # α·y
    ridge: npt.NDArray[np.float32]  # λ_row


@dataclass(frozen=True, kw_only=True)
class PointwiseSquare:
    """Square loss on every pair of C × I; the objective of iALS.

    With `convention="added"` (the article's L̃, and what published iALS settings mean), an observed pair's weight α is
    added to α₀, which every pair has:

        L = Σ_{(c,i)∈S} α(c,i)·(ŷ(i|c) − y(c,i))² + α₀·Σ_{c∈C} Σ_{i∈I} ŷ(i|c)² + Σ_c λ_c‖w_c‖² + Σ_i λ_i‖h_i‖²

    With `convention="total"` (Hu et al. 2008, the article's L), α is an observed pair's whole weight and α₀ is that of
    the unobserved pairs only: the second sum runs over (C × I) ∖ S.

        λ_c = λ·(|I_c| + α₀|I|)^ν,   λ_i = λ·(|C_i| + α₀|C|)^ν      (Rendle et al. 2021; ν = 0 is the constant λ)

    There is no ½ anywhere: λ belongs to this loss as printed.

    Args:
        unobserved_weight: α₀.
        regularization: λ.
        regularization_exponent: ν.
        weighting: the strength f(w) of a pair with weight w in the data, see `strengths`.
        strength_as: whether the strength is the pair's `"weight"`, α = observed_weight·f(w) and y = 1, or its
            `"label"`, α = observed_weight and y = f(w).
        observed_weight: see `strength_as`.
        convention: `"added"` or `"total"`.
    """

    unobserved_weight: float = 0.1
    regularization: float = 0.003
    regularization_exponent: float = 1.0
    weighting: Weighting = "binary"
    strength_as: StrengthAs = "weight"
    observed_weight: float = 1.0
    convention: Convention = "added"

    def __post_init__(self) -> None:
        number("unobserved_weight", self.unobserved_weight)
        number("regularization", self.regularization)
        number("regularization_exponent", self.regularization_exponent)
        number("observed_weight", self.observed_weight, above=True)
        one_of("weighting", self.weighting, WEIGHTINGS)
        one_of("strength_as", self.strength_as, ("weight", "label"))
        one_of("convention", self.convention, ("added", "total"))

    def terms(self, rows: Rows) -> Terms:
        """The terms of the side whose rows these are."""
        weight, label = self._weight_and_label(rows)
        excess = weight if self.convention == "added" else weight - np.float32(self.unobserved_weight)
        size = rows.lengths + self.unobserved_weight * rows.n_columns
        with np.errstate(over="ignore"):
            ridge = (self.regularization * size**self.regularization_exponent).astype(np.float32)
            target = weight * label
        for array, names in ((target, "observed_weight or the weights"), (ridge, "regularization or its exponent")):
            if not np.isfinite(array).all():
                raise SettingError(f"{names} are too large: float32 ends at {np.finfo(np.float32).max:.3g}")
        return Terms(excess, target, ridge)

    def _weight_and_label(self, rows: Rows) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        strength = strengths(rows.values, self.weighting)
        with np.errstate(over="ignore"):
            scale = np.full(1, self.observed_weight).astype(np.float32)
        return (scale * strength, np.ones(1, np.float32)) if self.strength_as == "weight" else (scale, strength)

    def loss(
        self,
        by_context: Rows,
        by_item: Rows,
        context_embeddings: npt.NDArray[np.float32],
        item_embeddings: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> LossParts:
        """The loss in its parts; the sum over C × I by the Gramians, ΣΣŷ² = ⟨G^C, G^I⟩: O(|S|d + (|C|+|I|)d²)."""
        weight, label = self._weight_and_label(by_context)
        sums = np.zeros((by_context.n_rows, 2))

        def add(start: int, stop: int) -> None:
            _observed_sums(
                by_context.indptr,
                by_context.indices,
                weight,
                label,
                context_embeddings,
                item_embeddings,
                sums,
                start,
                stop,
            )

        run_chunks(add, balanced_chunks(by_context.lengths + 1, 8 * thread_count(threads)), threads)
        observed, squares = sums.sum(axis=0)
        everywhere = float(np.vdot(gramian(context_embeddings), gramian(item_embeddings)))
        if self.convention == "total":
            everywhere -= float(squares)
        regularizer = sum(
            float(self.terms(rows).ridge.astype(np.float64) @ np.einsum("rd,rd->r", x, x, dtype=np.float64))
            for rows, x in ((by_context, context_embeddings), (by_item, item_embeddings))
        )
        return LossParts(float(observed), self.unobserved_weight * everywhere, regularizer)


def gramian(embeddings: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Σψψᵀ over all rows, summed in float64 over blocks that are multiplied in float32."""
    total = np.zeros((embeddings.shape[1],) * 2)
    for start in range(0, len(embeddings), 8192):
        block = embeddings[start : start + 8192]
        total += block.T @ block
    return total


@fast_kernel
def _observed_sums(
    indptr: Array,
    indices: Array,
    weight: Array,
    label: Array,
    W: Array,
    H: Array,
    sums: Array,
    start: int,
    stop: int,
) -> None:
    """For each row Σα(ŷ−y)² and Σŷ² over its observed pairs. Bound by the bytes of the gathered rows of H."""
    for c in range(start, stop):
        for e in range(indptr[c], indptr[c + 1]):
            i = indices[e]
            score = np.float32(0.0)
            for f in range(W.shape[1]):
                score += W[c, f] * H[i, f]
            a = weight[e] if len(weight) > 1 else weight[0]
            y = label[e] if len(label) > 1 else label[0]
            sums[c, 0] += a * (score - y) ** 2
            sums[c, 1] += score * score
