"""The pointwise and pairwise square losses as quadratics of each side, and the sizes that scale their regularizers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pairwise_square import PairwiseSquare
from shortlist.objectives.pointwise_square import PointwiseSquare, Terms, gramian
from shortlist.solvers.eigenbasis import refuse_large
from shortlist.solvers.quadratic import CoupledItems, IndependentRows, Quadratic

Floats: TypeAlias = npt.NDArray[np.float32]
Sizes: TypeAlias = npt.NDArray[np.float64]
_PAIRS = 1 << 16  # pairs that are scored at once
_ROUNDING = 4 * float(np.finfo(np.float32).eps)


class SquareLoss(Protocol):
    """A square loss on given pairs; Φ and Ψ are the embeddings of contexts and items."""

    @property
    def objective(self) -> PointwiseSquare | PairwiseSquare:
        """The objective."""

    @property
    def by_context(self) -> SparseRows:
        """The pairs, with a row for each context."""

    def for_training(self, by_item: SparseRows | None, threads: int | None) -> SquareLoss:
        """Return the same loss with caches of its own; without `by_item`, the transpose is computed when needed."""

    @property
    def sizes(self) -> tuple[Sizes, Sizes]:
        """The total weight of the losses of each context and of each item: λ_c = λ·size^ν."""

    def of_contexts(self, Psi: Floats) -> Quadratic:
        """Return the loss as a function of Φ."""

    def of_items(self, Phi: Floats, Psi: Floats) -> Quadratic:
        """Return the loss as a function of Ψ, starting at the given Ψ."""

    def of_new_contexts(
        self, histories: SparseRows, Psi: Floats, threads: int | None = None
    ) -> tuple[IndependentRows, Sizes]:
        """Return the loss as a function of the embeddings of new contexts with these histories, and their sizes.

        Rows of Psi after those of the loss's items belong to new items: they count if they are in a history, but never
        as unobserved items.
        """

    def of_new_items(
        self, rows: SparseRows, Phi: Floats, Psi: Floats, threads: int | None = None
    ) -> tuple[IndependentRows, Sizes]:
        """Return the loss as a function of the embeddings of new items, given their contexts, and their sizes."""

    def value(self, Phi: Floats, Psi: Floats) -> tuple[float, float]:
        """Return the loss without its regularizer: the part of the observed pairs, and the part of all pairs."""


def square_loss(
    objective: PointwiseSquare | PairwiseSquare,
    by_context: SparseRows,
    by_item: SparseRows | None = None,
    threads: int | None = None,
) -> SquareLoss:
    """Return the loss of an objective on these pairs. Without `by_item`, the transpose is computed when needed."""
    if isinstance(objective, PairwiseSquare):
        return PairwiseQuadratic(objective, by_context, by_item, threads)
    return PointwiseQuadratic(objective, by_context, by_item, threads)


class _OnPairs:
    def for_training(self, by_item: SparseRows | None, threads: int | None) -> Self:
        """See `SquareLoss`."""
        loss = copy.copy(self)
        for name in ("_by_item", "_terms"):
            vars(loss).pop(name, None)
        loss._given, loss._threads, loss._computed = by_item, threads, {}
        return loss

    def __init__(self, by_context: SparseRows, by_item: SparseRows | None, threads: int | None) -> None:
        self.by_context, self._given, self._threads = by_context, by_item, threads
        self._computed: dict[str, tuple[Floats, Any]] = {}

    def _cached(self, name: str, side: Floats, compute: Callable[[], Any]) -> Any:
        """Return what `compute` makes of a side; compute it again only for a different array."""
        cached = self._computed.get(name)
        if cached is None or cached[0] is not side:
            cached = self._computed[name] = side, compute()
        return cached[1]

    @cached_property
    def _by_item(self) -> SparseRows:
        return self.by_context.transpose() if self._given is None else self._given


class PointwiseQuadratic(_OnPairs):
    """`PointwiseSquare` as a quadratic; the matrix of a row is dense·G + Σ excess·ψψᵀ."""

    def __init__(
        self, objective: PointwiseSquare, by_context: SparseRows, by_item: SparseRows | None, threads: int | None
    ) -> None:
        super().__init__(by_context, by_item, threads)
        self.objective = objective
        self._omegas = objective.omegas(by_context)

    @cached_property
    def _terms(self) -> tuple[Terms, Terms]:
        of_contexts, of_items = (omega.values for omega in self._omegas)
        contexts = self.objective.terms(self.by_context, of_contexts, of_items)
        return contexts, self.objective.terms(self._by_item, of_items, of_contexts)

    @property
    def sizes(self) -> tuple[Sizes, Sizes]:
        """The sizes |I_c| + α₀|I| and |C_i| + α₀|C|."""
        return self._size(self.by_context), self._size(self._by_item)

    def _size(self, rows: SparseRows, n_columns: int | None = None) -> Sizes:
        n = rows.n_columns if n_columns is None else n_columns
        return np.asarray(rows.effective_counts + self.objective.unobserved_weight * n, np.float64)

    def of_contexts(self, Psi: Floats) -> IndependentRows:
        """See `SquareLoss`."""
        return self._quadratic(self.by_context, self._terms[0], Psi)

    def of_items(self, Phi: Floats, Psi: Floats) -> IndependentRows:
        """See `SquareLoss`."""
        return self._quadratic(self._by_item, self._terms[1], Phi)

    def of_new_contexts(
        self, histories: SparseRows, Psi: Floats, threads: int | None = None
    ) -> tuple[IndependentRows, Sizes]:
        """See `SquareLoss`."""
        (of_contexts, of_items), n = self._omegas, self.by_context.n_columns
        omega = of_items.values
        if len(Psi) > n:
            known, none = np.broadcast_to(omega, n), np.zeros(len(Psi) - n, np.float32)
            omega = self._cached("omega", Psi, lambda: np.concatenate([known, none]))
        terms = self.objective.terms(histories, of_contexts.new(histories.effective_counts), omega)
        G = self._cached("contexts", Psi, lambda: _finite(gramian(Psi[:n], of_items.values, threads)))
        return self._quadratic(histories, terms, Psi, G, threads), self._size(histories, n)

    def of_new_items(
        self, rows: SparseRows, Phi: Floats, Psi: Floats, threads: int | None = None
    ) -> tuple[IndependentRows, Sizes]:
        """See `SquareLoss`."""
        of_contexts, of_items = self._omegas
        terms = self.objective.terms(rows, of_items.new(rows.effective_counts), of_contexts.values)
        G = self._cached("items", Phi, lambda: _finite(gramian(Phi, terms.omega, threads)))
        return self._quadratic(rows, terms, Phi, G, threads), self._size(rows)

    def _quadratic(
        self, rows: SparseRows, terms: Terms, other: Floats, G: Floats | None = None, threads: int | None = None
    ) -> IndependentRows:
        if G is None:
            G, threads = _finite(gramian(other, terms.omega, self._threads)), self._threads
        weights: dict[str, Any] = {"quad": terms.excess, "lin": terms.target, "dense": terms.dense}
        return IndependentRows(rows, other, G, **weights, threads=threads)

    def value(self, Phi: Floats, Psi: Floats) -> tuple[float, float]:
        """See `SquareLoss`."""
        parts = self.objective.loss(self.by_context, self._by_item, Phi, Psi, self._threads, self._omegas)
        return parts.observed, parts.unobserved


class PairwiseQuadratic(_OnPairs):
    """`PairwiseSquare` as a quadratic; contexts are independent, items are coupled by z and v."""

    def __init__(
        self, objective: PairwiseSquare, by_context: SparseRows, by_item: SparseRows | None, threads: int | None
    ) -> None:
        super().__init__(by_context, by_item, threads)
        self.objective = objective
        self._omega = objective.omega(by_context)
        self._shares = objective.shares(by_context)
        self._n = objective.weights(by_context)

    @property
    def sizes(self) -> tuple[Sizes, Sizes]:
        """The sizes n_c and Σ_c a_{c,i} + a_i·Σ_c n_c."""
        return self._n, self.objective.weights(self._by_item) + self._shares * self._n.sum()

    def of_contexts(self, Psi: Floats) -> IndependentRows:
        """See `SquareLoss`."""
        return self._quadratic(self.by_context, *self._centred(Psi, self._threads), self._threads)

    def of_new_contexts(
        self, histories: SparseRows, Psi: Floats, threads: int | None = None
    ) -> tuple[IndependentRows, Sizes]:
        """See `SquareLoss`."""
        centred, G = self._cached("contexts", Psi, lambda: self._centred(Psi, threads))
        return self._quadratic(histories, centred, G, threads), self.objective.weights(histories)

    def _centred(self, Psi: Floats, threads: int | None) -> tuple[Floats, Floats]:
        """Return the items minus their mean z = Σ_j a_jψ_j, and their Gramian Σ_j a_j(ψ_j − z)(ψ_j − z)ᵀ.

        The loss depends only on score differences, so subtracting the mean does not change it. It removes the term
        n·z zᵀ − s zᵀ − z sᵀ from a row's system, which would be only rounding error.
        """
        n = len(self._shares)
        shares = self._shares.astype(np.float64)
        z = shares @ Psi[:n] / shares.sum()
        centred: Floats = (Psi - z).astype(np.float32)
        centred[np.abs(centred) <= _ROUNDING * np.abs(z)] = 0
        return centred, _finite(gramian(centred[:n], self._shares, threads))

    def _quadratic(self, rows: SparseRows, centred: Floats, G: Floats, threads: int | None) -> IndependentRows:
        a, n = self.objective.strengths(rows), self.objective.weights(rows).astype(np.float32)
        return IndependentRows(rows, centred, G, quad=a, lin=a, dense=n, threads=threads)

    def of_new_items(
        self, rows: SparseRows, Phi: Floats, Psi: Floats, threads: int | None = None
    ) -> tuple[IndependentRows, Sizes]:
        """See `SquareLoss`.

        Let a_k be the weight that item k would have had with its number of contexts, and z = Σ_j a_jψ_j. Item k adds

            Σ_{c∈C_k} a_ck·(⟨φ_c, ψ⟩ − ⟨φ_c, z⟩ − 1)² + a_k·Σ_{(c,i)∈S} a_ci·(ŷ(i|c) − ⟨φ_c, ψ⟩ − 1)²

        to the loss: the first sum as an observed item, the second as the item that observed items are compared with.
        """
        share = (self._omega.new(rows.effective_counts) / np.float32(self.by_context.n_columns)).astype(np.float32)
        share = np.broadcast_to(share, rows.n_rows)
        G, above, back = self._cached("items", Phi, lambda: self._item_statistics(Phi, Psi))
        a = self.objective.strengths(rows)
        loss = IndependentRows(
            rows, Phi, G, quad=a, lin=a * above[rows.indices], dense=share, shift=back, threads=threads
        )
        return loss, self.objective.weights(rows) + share * self._n.sum()

    def _item_statistics(self, Phi: Floats, Psi: Floats) -> tuple[Floats, Floats, Floats]:
        """Return G = Σ n_cφ_cφ_cᵀ, 1 + ⟨φ_c, z⟩ of each context, and −Σ_c φ_c·Σ_i a_ci·(ŷ(i|c) − 1)."""
        n, rows = self._n.astype(np.float32), self.by_context
        of_context = np.repeat(np.arange(rows.n_rows), rows.lengths)
        a = np.broadcast_to(self.objective.strengths(rows), len(rows))
        excess = np.zeros(rows.n_rows)
        for start in range(0, len(rows), _PAIRS):
            chunk = slice(start, start + _PAIRS)
            scores = np.einsum("pd,pd->p", Phi[of_context[chunk]], Psi[rows.indices[chunk]])
            excess += np.bincount(of_context[chunk], a[chunk] * (scores - 1), rows.n_rows)
        back: Floats = (-excess @ Phi).astype(np.float32)
        return _finite(gramian(Phi, n, self._threads)), 1 + Phi @ (self._shares @ Psi), back

    def of_items(self, Phi: Floats, Psi: Floats) -> CoupledItems:
        """See `SquareLoss`."""
        n = self._n.astype(np.float32)
        quadratic = CoupledItems(
            self._by_item,
            Phi,
            _finite(gramian(Phi, n, self._threads)),
            n @ Phi,
            strength=self.objective.strengths(self._by_item),
            share=self._shares,
            z=np.zeros(Phi.shape[1], np.float32),
            v=np.zeros(Phi.shape[1], np.float32),
            threads=self._threads,
        )
        quadratic.moved(Psi)
        return quadratic

    def value(self, Phi: Floats, Psi: Floats) -> tuple[float, float]:
        """See `SquareLoss`; there is no separate part for unobserved pairs."""
        return self.objective.loss(self.by_context, Phi, Psi, self._threads), 0.0


def _finite(G: npt.NDArray[np.float64]) -> Floats:
    refuse_large(G)
    return G.astype(np.float32)
