"""The pointwise square loss over all of C × I, computed with Gramians (sections 3.1 and 5.1 of the article).

`Terms` is the form of the loss that the alternating solvers use.
"""

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
from shortlist.objectives.loss_parts import LossParts
from shortlist.objectives.weighting import WEIGHTINGS, Weighting, strengths

Array: TypeAlias = npt.NDArray[Any]
Convention: TypeAlias = Literal["added", "total"]
StrengthAs: TypeAlias = Literal["weight", "label"]
_BLOCK = 4096  # rows that are multiplied at once for a Gramian
_PARTS = 2**26  # bytes of the partial sums of a Gramian


@dataclass(frozen=True, eq=False)
class Terms:
    """The coefficients of one side's normal equations, in the order of that side's rows.

    Given the other side's embeddings ψ, a row w of this side minimises the loss where

        (dense·G + Σ excess·ψψᵀ + ridge·I) w = Σ target·ψ,   G = Σ omega·ψψᵀ over all of the other side.

    An array of one element applies to all pairs, rows or columns.
    """

    excess: npt.NDArray[np.float32]  # by pair: α − α₀ω_cω_i in the total convention, α in the added convention
    target: npt.NDArray[np.float32]  # by pair: α·y
    ridge: npt.NDArray[np.float32]  # by row: λ_row
    dense: npt.NDArray[np.float32]  # by row: α₀ω_row
    omega: npt.NDArray[np.float32]  # by column: ω_column


@dataclass(frozen=True, kw_only=True)
class PointwiseSquare:
    """Square loss on every pair of C × I; the objective of iALS.

    With `convention="added"` (the article's L̃ and the convention of published iALS settings), every pair has the weight
    α₀ω_cω_i, and an observed pair has α in addition:

        L = Σ_{(c,i)∈S} α(c,i)·(ŷ(i|c) − y(c,i))² + α₀·Σ_{c∈C} Σ_{i∈I} ω_cω_i·ŷ(i|c)² + Σ_c λ_c‖w_c‖² + Σ_i λ_i‖h_i‖²

    With `convention="total"` (Hu et al. 2008, the article's L), α is the whole weight of an observed pair, and only
    unobserved pairs have the weight α₀ω_cω_i: the second sum runs over (C × I) ∖ S.

        ω_i = n_i^ρ / mean(n^ρ)      with n_i = max(1, |C_i|); ω_c is the same with |I_c| and another ρ
        λ_c = λ·(|I_c| + α₀|I|)^ν,   λ_i = λ·(|C_i| + α₀|C|)^ν      (Rendle et al. 2021; ν = 0 is the constant λ)

    With ρ = 0, ω is 1. With ρ > 0, a popular item that a context does not have is a stronger negative (eALS, He et al.
    2016); ρ < 0 lowers the weight of popular items, or of contexts with long histories. The mean of ω is 1, so
    Σ_i ω_i = |I|: the exponents do not change λ_c and λ_i.

    There is no ½ anywhere: λ belongs to this loss as printed.

    Args:
        unobserved_weight: α₀.
        unobserved_item_exponent: ρ for items.
        unobserved_context_exponent: ρ for contexts.
        regularization: λ.
        regularization_exponent: ν.
        weighting: the strength f(w) of a pair with weight w in the data, see `strengths`.
        strength_as: `"weight"`: α = observed_weight·f(w) and y = 1. `"label"`: α = observed_weight and y = f(w).
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

    def with_weights(self, by_context: SparseRows) -> WeightedSquare:
        """Return the loss with the ω of these contexts and items."""
        return WeightedSquare(self, *self.omegas(by_context))

    def omegas(self, by_context: SparseRows) -> tuple[FrequencyWeights, FrequencyWeights]:
        """Return ω of the contexts and ω of the items."""
        items = by_context.column_counts() if self.unobserved_item_exponent else np.ones(1)
        return (
            FrequencyWeights.of(by_context.lengths, self.unobserved_context_exponent),
            FrequencyWeights.of(items, self.unobserved_item_exponent),
        )

    def terms(
        self,
        rows: SparseRows,
        row_omega: npt.NDArray[np.float32] | None = None,
        column_omega: npt.NDArray[np.float32] | None = None,
    ) -> Terms:
        """Return the terms of the side with these rows.

        A pair with confidence g counts as g observed and 1 − g unobserved: its excess and target are multiplied by g,
        and it adds g to |I_c|.

        Args:
            rows: all contexts by item, all items by context, or some rows of either.
            row_omega: ω of the rows. Without it, `rows` must be all contexts.
            column_omega: ω of the columns.
        """
        if row_omega is None or column_omega is None:
            row_omega, column_omega = (omega.values for omega in self.omegas(rows))
        weight, label = self._weight_and_label(rows)
        with np.errstate(over="ignore"):
            alpha0 = np.float32(self.unobserved_weight)
            excess = weight if self.convention == "added" else weight - alpha0 * _by_pair(rows, row_omega, column_omega)
            target = weight if len(label) == 1 and label[0] == 1 else weight * label
            dense = alpha0 * row_omega
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
                raise SettingError(
                    f"{names} are too large: the loss exceeds the maximum of float32, {np.finfo(np.float32).max:.3g}",
                    code="diverged",
                    hint="lower them",
                )
        return Terms(excess, target, ridge, dense, column_omega)

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
            # A weight of 1 needs no product and so no copy.
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
        """Return the parts of the loss.

        The sum over C × I comes from the Gramians of both sides: ΣΣωωŷ² = ⟨Σω_cφφᵀ, Σω_iψψᵀ⟩, O(|S|d + (|C|+|I|)d²).
        Pass `omegas` if they are already computed.
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
        everywhere = float((of_c * of_i).sum())  # not with BLAS, whose sums depend on its number of threads
        if self.convention == "total":
            everywhere -= float((of_contexts * sums[:, 1]).sum())
        regularizer = sum(
            float((self._ridge(rows) * np.einsum("rd,rd->r", x, x, dtype=np.float64)).sum())
            for rows, x in ((by_context, context_embeddings), (by_item, item_embeddings))
        )
        return LossParts(
            observed=float(sums[:, 0].sum()), unobserved=self.unobserved_weight * everywhere, regularizer=regularizer
        )


@dataclass(frozen=True, eq=False)
class WeightedSquare:
    """A `PointwiseSquare` with the ω of given contexts and items."""

    objective: PointwiseSquare
    contexts: FrequencyWeights
    items: FrequencyWeights

    def context_terms(self, by_context: SparseRows) -> Terms:
        """Return the terms of all contexts."""
        return self.objective.terms(by_context, self.contexts.values, self.items.values)

    def item_terms(self, by_item: SparseRows) -> Terms:
        """Return the terms of all items."""
        return self.objective.terms(by_item, self.items.values, self.contexts.values)

    def new_context_terms(self, histories: SparseRows) -> Terms:
        """Return the terms of new contexts with these histories."""
        return self.objective.terms(histories, self.contexts.new(histories.effective_counts), self.items.values)

    def new_item_terms(self, rows: SparseRows) -> Terms:
        """Return the terms of new items with these contexts."""
        return self.objective.terms(rows, self.items.new(rows.effective_counts), self.contexts.values)


def _by_pair(
    rows: SparseRows, row_omega: npt.NDArray[np.float32], column_omega: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return ω_row·ω_column of each pair."""
    of_columns = column_omega[rows.indices] if len(column_omega) > 1 else column_omega
    of_rows = np.repeat(row_omega, rows.lengths) if len(row_omega) > 1 else row_omega
    return np.asarray(of_rows * of_columns)


def gramian(
    embeddings: npt.NDArray[np.float32],
    omega: npt.NDArray[np.float32] | None = None,
    threads: int | None = None,
    dtype: npt.DTypeLike = np.float32,
) -> npt.NDArray[np.float64]:
    """Return Σωψψᵀ over all rows; ω is 1 by default. Blocks are multiplied in `dtype` and added in float64.

    Blocks are added to partial sums in parallel. The number of partial sums does not depend on the number of threads,
    so neither does the result.
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

    with single_threaded_blas():  # also for a single part
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
    """Add Σα(ŷ−y)² and Σωŷ² over the observed pairs of each row. Bound by the bytes of the gathered rows of H."""
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
