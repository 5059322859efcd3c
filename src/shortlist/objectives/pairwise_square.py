"""The pairwise square loss over all of S × I, computed without a sum over pairs (sections 3.2 and 5.2; RankALS)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import number, one_of
from shortlist._numba import fast_kernel
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist._wording import Message
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.objectives.frequency_weights import FrequencyWeights
from shortlist.objectives.pointwise_square import gramian
from shortlist.objectives.weighting import WEIGHTINGS, Weighting, strengths

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class PairwiseSquare:
    """Square loss on the score difference between an observed item and every item; the objective of `RankALS`.

        L = Σ_{(c,i)∈S} a_{c,i} Σ_{j∈I} a_j·(ŷ(i|c) − ŷ(j|c) − 1)² + Σ_c λ_c‖w_c‖² + Σ_i λ_i‖h_i‖²

        a_{c,i} = f(w)        the pair's strength
        a_j = ω_j / |I|       with ω_j = n_j^ρ / mean(n^ρ) and n_j = max(1, |C_j|), so that Σ_j a_j = 1
        λ_c = λ·n_c^ν         with n_c = Σ_i a_{c,i}
        λ_i = λ·(Σ_{c∈C_i} a_{c,i} + a_i·Σ_c n_c)^ν

    The sum over j includes the context's observed items. The article's loss has a_j = 1, so there the same λ is weaker
    by a factor of |I|. There is no ½ anywhere. Adding a constant to all scores of a context does not change the loss.

    The loss is never summed over S × I. With z = Σ_j a_jψ_j and G = Σ_j a_jψ_jψ_jᵀ, context c adds

        Σ_i a_{c,i}·(ŷ_i − 1)² − 2⟨φ_c, z⟩·Σ_i a_{c,i}·(ŷ_i − 1) + n_c·φ_cᵀGφ_c

    which takes O(|S|d + (|C| + |I|)d²) for all contexts.

    Args:
        regularization: λ.
        regularization_exponent: ν; with 0, λ is the same for every row.
        item_exponent: ρ.
        weighting: f, see `strengths`.
    """

    regularization: float = 0.003
    regularization_exponent: float = 1.0
    item_exponent: float = 0.0
    weighting: Weighting = "binary"

    def __post_init__(self) -> None:
        number("regularization", self.regularization)
        number("regularization_exponent", self.regularization_exponent)
        number("item_exponent", self.item_exponent, -math.inf)
        one_of("weighting", self.weighting, WEIGHTINGS)

    def omega(self, by_context: SparseRows) -> FrequencyWeights:
        """Return ω_j of every item."""
        return FrequencyWeights.of(by_context.column_counts(), self.item_exponent)

    def shares(self, by_context: SparseRows) -> npt.NDArray[np.float32]:
        """Return a_j of every item; they sum to 1."""
        omega = self.omega(by_context).values
        shares: npt.NDArray[np.float32] = np.broadcast_to(
            omega / np.float32(by_context.n_columns), by_context.n_columns
        )
        return np.ascontiguousarray(shares)

    def strengths(self, rows: SparseRows) -> npt.NDArray[np.float32]:
        """Return a_{c,i} of each pair; an array of one element applies to all pairs."""
        by_pair = strengths(rows.values, self.weighting, rows.confidence)
        if not np.isfinite(by_pair).all():
            raise SettingError(
                f"the weights are too large for float32, whose maximum is {np.finfo(np.float32).max:.3g}",
                code="diverged",
                field="weighting",
                hint=Message("scale them down, or use {weighting} or 'binary'", weighting="log"),
            )
        return by_pair

    def weights(self, rows: SparseRows) -> npt.NDArray[np.float64]:
        """Return Σ a_{c,i} over the pairs of each row; for rows of contexts, this is n_c."""
        return rows.sums(self.strengths(rows))

    def loss(
        self,
        by_context: SparseRows,
        context_embeddings: npt.NDArray[np.float32],
        item_embeddings: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> float:
        """Return the loss without its regularizer."""
        shares, n = self.shares(by_context), self.weights(by_context)
        exact = context_embeddings.astype(np.float64)
        G = gramian(item_embeddings, shares, threads)
        z = shares.astype(np.float64) @ item_embeddings
        sums = np.zeros((by_context.n_rows, 2))
        a = self.strengths(by_context)

        def add(start: int, stop: int) -> None:
            _sums(by_context.indptr, by_context.indices, a, context_embeddings, item_embeddings, sums, start, stop)

        run_chunks(add, balanced_chunks(by_context.lengths + 1, 8 * thread_count(threads)), threads)
        everywhere = np.einsum("cd,cd->c", exact @ G, exact)
        return float((sums[:, 0] - 2 * (exact @ z) * sums[:, 1] + n * everywhere).sum())


@fast_kernel
def _sums(
    indptr: Array, indices: Array, strength: Array, W: Array, H: Array, sums: Array, start: int, stop: int
) -> None:
    """Add Σa(ŷ−1)² and Σa(ŷ−1) over the observed pairs of each row. Bound by the bytes of the gathered rows of H."""
    for c in range(start, stop):
        for e in range(indptr[c], indptr[c + 1]):
            i, score = indices[e], np.float32(0)
            for f in range(W.shape[1]):
                score += W[c, f] * H[i, f]
            a = strength[e if len(strength) > 1 else 0]
            sums[c, 0] += a * (score - 1) ** 2
            sums[c, 1] += a * (score - 1)
