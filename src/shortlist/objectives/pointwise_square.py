"""The pointwise square loss over all of C × I, in the form the Gramian solvers need (sections 3.1 and 5.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import number, one_of
from shortlist._numba import fast_kernel
from shortlist._threads import balanced_chunks, run_chunks, single_threaded_blas, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.objectives.frequency_weights import FrequencyWeights
from shortlist.objectives.weighting import WEIGHTINGS, Weighting, strengths

Array: TypeAlias = npt.NDArray[Any]
Convention: TypeAlias = Literal["added", "total"]
StrengthAs: TypeAlias = Literal["weight", "label"]
_BLOCK = 4096  # rows of a product that goes into a Gramian
_PARTS = 2**26  # bytes of the parts that a Gramian is summed from


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

    A row w of one side, given the other side's embeddings ψ, minimises the loss where

        (dense·G + Σ excess·ψψᵀ + ridge·I) w = Σ target·ψ,   G = Σ omega·ψψᵀ over all of the other side.

    An array of one element stands for all.
    """

    excess: npt.NDArray[np.float32]  # by pair: α − α₀ω_cω_i in the total convention, α in the added one
    target: npt.NDArray[np.float32]  # by pair: α·y
    ridge: npt.NDArray[np.float32]  # by row: λ_row
    dense: npt.NDArray[np.float32]  # by row: α₀ω_row
    omega: npt.NDArray[np.float32]  # by column: ω_column


@dataclass(frozen=True, kw_only=True)
class PointwiseSquare:
    """Square loss on every pair of C × I; the objective of iALS.

    With `convention="added"` (the article's L̃, and what published iALS settings mean), an observed pair's weight α is
    added to α₀ω_cω_i, which every pair has:

        L = Σ_{(c,i)∈S} α(c,i)·(ŷ(i|c) − y(c,i))² + α₀·Σ_{c∈C} Σ_{i∈I} ω_cω_i·ŷ(i|c)² + Σ_c λ_c‖w_c‖² + Σ_i λ_i‖h_i‖²

    With `convention="total"` (Hu et al. 2008, the article's L), α is an observed pair's whole weight and α₀ω_cω_i is
    that of the unobserved pairs only: the second sum runs over (C × I) ∖ S.

        ω_i = n_i^ρ / mean(n^ρ)      with n_i = max(1, |C_i|), and likewise ω_c with |I_c| and a ρ of its own
        λ_c = λ·(|I_c| + α₀|I|)^ν,   λ_i = λ·(|C_i| + α₀|C|)^ν      (Rendle et al. 2021; ν = 0 is the constant λ)

    ρ = 0 is ω = 1. An item with ρ > 0 that is popular and was not taken counts as the more surely unwanted (eALS, He et
    al. 2016); ρ < 0 takes weight from popular items, or from contexts with long histories. The mean of ω is 1, so the
    Σ_i ω_i that would stand for |I| in λ_c is |I|: the exponents leave λ_c and λ_i as they are.

    There is no ½ anywhere: λ belongs to this loss as printed.

    Args:
        unobserved_weight: α₀.
        unobserved_item_exponent: ρ of the items.
        unobserved_context_exponent: ρ of the contexts.
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
    unobserved_item_exponent: float = 0.0
    unobserved_context_exponent: float = 0.0

    def __post_init__(self) -> None:
        number("unobserved_weight", self.unobserved_weight)
        number("regularization", self.regularization)
        number("regularization_exponent", self.regularization_exponent)
        number("observed_weight", self.observed_weight, above=True)
        number("unobserved_item_exponent", self.unobserved_item_exponent, -math.inf)
        number("unobserved_context_exponent", self.unobserved_context_exponent, -math.inf)
        one_of("weighting", self.weighting, WEIGHTINGS)
        one_of("strength_as", self.strength_as, ("weight", "label"))
        one_of("convention", self.convention, ("added", "total"))

    def omegas(self, by_context: SparseRows) -> tuple[FrequencyWeights, FrequencyWeights]:
        """ω of the contexts and of the items."""
        items = by_context.column_counts() if self.unobserved_item_exponent else np.ones(1)
        return (
            FrequencyWeights.of(by_context.lengths, self.unobserved_context_exponent),
            FrequencyWeights.of(items, self.unobserved_item_exponent),
        )

    def terms(
        self,
        rows: SparseRows,
        own: npt.NDArray[np.float32] | None = None,
        other: npt.NDArray[np.float32] | None = None,
    ) -> Terms:
        """The terms of the side whose rows these are, with ω of its rows (`own`) and of its columns (`other`).

        Without them, rows are those of all contexts. A pair of confidence g is g parts observed and 1 − g parts
        unobserved: excess and target are g times what they would be, and in |I_c| it counts g.
        """
        if own is None or other is None:
            own, other = (omega.values for omega in self.omegas(rows))
        weight, label = self._weight_and_label(rows)
        with np.errstate(over="ignore"):
            alpha0 = np.float32(self.unobserved_weight)
            excess = weight if self.convention == "added" else weight - alpha0 * _by_pair(rows, own, other)
            target = weight if len(label) == 1 and label[0] == 1 else weight * label
            dense = alpha0 * own
            if rows.confidence is not None:
                excess, target = excess * rows.confidence, target * rows.confidence
        ridge = self._ridge(rows)
        for array, names in (
            (target, "observed_weight or the weights"),
            (ridge, "regularization or its exponent"),
            (dense, "unobserved_weight or its exponent"),
            (excess, "unobserved_weight or its exponents"),
        ):
            if not np.isfinite(array).all():
                raise SettingError(f"{names} are too large: float32 ends at {np.finfo(np.float32).max:.3g}")
        return Terms(excess, target, ridge, dense, other)

    def _ridge(self, rows: SparseRows) -> npt.NDArray[np.float32]:
        size = rows.effective_counts + self.unobserved_weight * rows.n_columns
        with np.errstate(over="ignore"):
            ridge: npt.NDArray[np.float32] = (self.regularization * size**self.regularization_exponent).astype(
                np.float32
            )
        return ridge

    def _weight_and_label(self, rows: SparseRows) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        strength = strengths(rows.values, self.weighting)
        with np.errstate(over="ignore"):
            scale = np.full(1, self.observed_weight).astype(np.float32)
            if self.strength_as == "label":
                return scale, strength
            # Not multiplied by 1: weights as they are need no copy.
            return strength if scale[0] == 1 else scale * strength, np.ones(1, np.float32)

    def loss(
        self,
        by_context: SparseRows,
        by_item: SparseRows,
        context_embeddings: npt.NDArray[np.float32],
        item_embeddings: npt.NDArray[np.float32],
        threads: int | None = None,
        omegas: tuple[FrequencyWeights, FrequencyWeights] | None = None,
    ) -> LossParts:
        """The loss in its parts.

        The sum over C × I by the Gramians of both sides, ΣΣωωŷ² = ⟨Σω_cφφᵀ, Σω_iψψᵀ⟩: O(|S|d + (|C|+|I|)d²). `omegas`
        may be given where they are known already.
        """
        weight, label = self._weight_and_label(by_context)
        of_contexts, of_items = (omega.values for omega in omegas or self.omegas(by_context))
        sums = np.zeros((by_context.n_rows, 2))

        def add(start: int, stop: int) -> None:
            _observed_sums(
                by_context.indptr,
                by_context.indices,
                weight,
                label,
                context_embeddings,
                item_embeddings,
                of_items,
                sums,
                start,
                stop,
            )

        run_chunks(add, balanced_chunks(by_context.lengths + 1, 8 * thread_count(threads)), threads)
        sides = ((context_embeddings, of_contexts), (item_embeddings, of_items))
        of_c, of_i = (gramian(*side, threads) for side in sides)
        everywhere = float((of_c * of_i).sum())  # not by BLAS, whose sums depend on its threads
        if self.convention == "total":
            everywhere -= float((of_contexts * sums[:, 1]).sum())
        regularizer = sum(
            float((self._ridge(rows) * np.einsum("rd,rd->r", x, x, dtype=np.float64)).sum())
            for rows, x in ((by_context, context_embeddings), (by_item, item_embeddings))
        )
        return LossParts(float(sums[:, 0].sum()), self.unobserved_weight * everywhere, regularizer)


def _by_pair(rows: SparseRows, own: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The product of a row's and a column's number, for each pair."""
    of_columns = other[rows.indices] if len(other) > 1 else other
    return np.asarray(np.repeat(own, rows.lengths) * of_columns if len(own) > 1 else own * of_columns)


def gramian(
    embeddings: npt.NDArray[np.float32],
    omega: npt.NDArray[np.float32] | None = None,
    threads: int | None = None,
    dtype: npt.DTypeLike = np.float32,
) -> npt.NDArray[np.float64]:
    """Σωψψᵀ over all rows; ω = 1 unless given. Blocks are multiplied in `dtype` and added in float64.

    Parts are summed by themselves and then together; how many there are does not depend on the threads.
    """
    n, d = embeddings.shape
    n_blocks = -(-n // _BLOCK)
    n_parts = max(1, min(n_blocks, _PARTS // (8 * d * d)))
    totals = np.zeros((n_parts, d, d))

    def add(start: int, stop: int) -> None:
        for part in range(start, stop):
            for k in range(part * n_blocks // n_parts, (part + 1) * n_blocks // n_parts):
                block = embeddings[k * _BLOCK : (k + 1) * _BLOCK].astype(dtype, copy=False)
                if omega is not None and len(omega) > 1:
                    block = block * np.sqrt(omega[k * _BLOCK : (k + 1) * _BLOCK, None])
                totals[part] += block.T @ block

    with single_threaded_blas():  # also where there is one part
        run_chunks(add, [(part, part + 1) for part in range(n_parts)], threads)
    total: npt.NDArray[np.float64] = totals.sum(axis=0)
    return total if omega is None or len(omega) > 1 else total * float(omega[0])


@fast_kernel
def _observed_sums(
    indptr: Array,
    indices: Array,
    weight: Array,
    label: Array,
    W: Array,
    H: Array,
    omega: Array,
    sums: Array,
    start: int,
    stop: int,
) -> None:
    """For each row Σα(ŷ−y)² and Σωŷ² over its observed pairs. Bound by the bytes of the gathered rows of H."""
    for c in range(start, stop):
        for e in range(indptr[c], indptr[c + 1]):
            i = indices[e]
            score = np.float32(0.0)
            for f in range(W.shape[1]):
                score += W[c, f] * H[i, f]
            a = weight[e] if len(weight) > 1 else weight[0]
            y = label[e] if len(label) > 1 else label[0]
            sums[c, 0] += a * (score - y) ** 2
            sums[c, 1] += (omega[i] if len(omega) > 1 else omega[0]) * score * score
