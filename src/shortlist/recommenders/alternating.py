"""Base class of matrix factorizations by alternating least squares, independent of the solver of a half-step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer
from shortlist._kernel_views import for_kernels
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Id
from shortlist.errors import NotFittedError, SettingError
from shortlist.objectives.pointwise_square import PointwiseSquare, Terms, WeightedSquare
from shortlist.ranking.inputs import histories_of_lists
from shortlist.recommenders.base import largest_of
from shortlist.recommenders.derived import effective_rank, square_loss_settings
from shortlist.recommenders.dot_product import DotProduct, longest
from shortlist.recommenders.explanation import Explanation
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.pointwise_factorization import PointwiseFactorization
from shortlist.recommenders.warm_start import warm_embeddings
from shortlist.solvers import exact
from shortlist.solvers.als import Alternation, initial_embeddings
from shortlist.solvers.eigenbasis import FoldInBasis
from shortlist.solvers.half_step import HalfStep
from shortlist.solvers.normal_equations import at, row_system
from shortlist.solvers.train import Embeddings, EmbeddingTrainer

_COLLAPSED_RANK = 2.5  # `fit` warns if the effective rank of the item embeddings is at most this
_MIN_SIZE = 16  # items and dimensions below which it does not check that
_RANK_SAMPLE = 10_000  # items from which it computes the rank


@dataclass(kw_only=True, repr=False, eq=False)
class Alternating(PointwiseFactorization):
    """Matrix factorization ŷ(i|c) = ⟨w_c, h_i⟩ under `PointwiseSquare`; a subclass adds the half-steps."""

    derivable: ClassVar[dict[str, Any]] = {"dim": 256, "regularization": 0.01, "unobserved_weight": 0.1}
    _on_first_use: ClassVar[dict[str, str]] = DotProduct._on_first_use | dict.fromkeys(
        ("_loss", "_fixed_items", "_fixed_contexts"), "_prepare_fold_in"
    )
    _snapshot_has_contexts: ClassVar[bool] = False

    dim: int | None = None  # type: ignore[assignment]
    regularization: float | None = None  # type: ignore[assignment]
    unobserved_weight: float | None = None  # type: ignore[assignment]

    def _derive(self, interactions: Interactions, options: FitOptions) -> dict[str, Any]:
        settings = square_loss_settings(self, interactions)
        if isinstance(options.start, DotProduct) and options.start.is_fitted:
            settings["dim"] = max(settings["dim"], options.start.latent_dim)
        return settings

    def objective(self) -> PointwiseSquare:
        """Return the loss that `fit` minimises."""
        if unset := [name for name in self.derivable if name != "dim" and getattr(self, name) is None]:
            raise NotFittedError(
                f"{unset[0]} is derived from the data", hint=f"fit the {type(self).__name__} first, or set {unset[0]}"
            )
        return super().objective()

    def _fit_warnings(self) -> list[str]:
        if (
            len(self.item_embeddings_) < _MIN_SIZE
            or self._width < _MIN_SIZE
            or len(self.derived_) == len(self.derivable)
        ):
            return []
        items = self.item_embeddings_
        rank = effective_rank(items[:: -(-len(items) // _RANK_SAMPLE)])
        if rank > _COLLAPSED_RANK:
            return []
        return [
            f"the item embeddings have collapsed from {self._width} dimensions to about {rank:.1f}, so every context "
            f"gets the popular items: regularization={self.regularization:g} is too large for "
            f"unobserved_weight={self.unobserved_weight:g}; lower either, or omit both to derive them from the data"
        ]

    @abstractmethod
    def _half_steps(self) -> tuple[HalfStep[Any], HalfStep[Any]]:
        """Return the solver of the half-steps of an epoch, and that of the final one for the contexts."""

    # --- learning ----------------------------------------------------------------------------------------------------

    def _precompute(self, by_context: SparseRows) -> WeightedSquare:
        return self.objective().with_weights(by_context)

    def _start(
        self, interactions: Interactions, prepared: WeightedSquare, start: DotProduct | None, threads: int | None
    ) -> tuple[Embeddings | None, Embeddings]:
        items = initial_embeddings(interactions.n_items, self._width, self.init_scale, self.seed)
        if start is None:
            return None, items
        return warm_embeddings(start, interactions, items, prepared, threads)

    def _trainer(
        self,
        interactions: Interactions,
        prepared: WeightedSquare,
        contexts: Embeddings | None,
        items: Embeddings,
        threads: int | None,
        epochs: int,
    ) -> EmbeddingTrainer:
        solver, last = self._half_steps()
        return Alternation(
            prepared,
            interactions.by_context,
            interactions.by_item,
            items,
            contexts=contexts,
            solver=solver,
            last=last,
            threads=threads,
        )

    def _set_items(self, items: Embeddings, prepared: WeightedSquare) -> None:
        self.item_embeddings_ = items  # type: ignore[misc]
        self._loss = prepared
        self._fixed_items = FoldInBasis(items, prepared.items.values)
        self._fixed_contexts: FoldInBasis | None = None

    # --- new contexts and items ---------------------------------------------------------------------------------------

    def _fold_in(self, histories: SparseRows, threads: int | None = None) -> Embeddings:
        """Solve the context half-step for these rows; a training context gets the embedding that `fit` gave it."""
        return self._solve(histories, self._fixed_items, self._loss.new_context_terms(histories), threads)

    def _fold_in_items(self, rows: SparseRows, threads: int | None = None) -> Embeddings:
        """Solve the item half-step for these rows."""
        fixed = self._fixed_contexts
        if fixed is None:
            fixed = self._fixed_contexts = FoldInBasis(
                for_kernels(self.context_embeddings_), self._loss.contexts.values
            )
        return self._solve(rows, fixed, self._loss.new_item_terms(rows), threads)

    @staticmethod
    def _solve(rows: SparseRows, fixed: FoldInBasis, terms: Terms, threads: int | None) -> Embeddings:
        out = np.zeros((rows.n_rows, fixed.embeddings.shape[1]), np.float32)
        exact.solve_exact(rows, terms, fixed.embeddings, fixed.spectrum, out, threads)
        return fixed.back(out)

    def explain(
        self,
        context: Id | None,
        item: Id,
        n: int = 10,
        *,
        history: Iterable[Id] | Mapping[Id, float] | None = None,
    ) -> Explanation:
        """Explain a score: return what each item of a context's history contributes to the score of an item.

        A context's embedding solves A_c w_c = Σ_k α_k y_k h_k over the items k of its history, so a score is a sum with
        one term for each of these items:

            ŷ(i|c) = Σ_k α_k y_k · h_iᵀ A_c⁻¹ h_k

        Args:
            context: the id of a training context, or None if `history` is given.
            item: the item whose score to explain.
            n: number of history items to list, those with the largest contributions first.
            history: used instead of `context`: the items of a user, as a list of ids or {id: weight}.

        >>> from shortlist import IALS, datasets
        >>> model = IALS(dim=16, epochs=2).fit(datasets.load("online-retail").interactions)
        >>> why = model.explain(12347, model.recommend([12347]).ids[0][0], n=3)
        >>> len(why), bool(abs(why.contributions.sum() + why.rest - why.score) < 1e-6)
        (3, True)
        """
        integer("n", n)
        self.require_fit()
        if (context is None) == (history is None):
            raise SettingError(
                "pass either context (an id from the training data) or history=, exactly one of the two",
                field="context",
            )
        if history is not None:
            way_out = "drop them from the history"
            rows = histories_of_lists([history], self.items_, "raise", "history", "item", way_out).sets()
        else:
            way_out = "explain a context of the training data, or pass context=None and history="
            rows = self.seen_.take(self.contexts_.encode([context], what="context", way_out=way_out))
        (code,) = self.items_.encode([item], what="item", way_out="only items of the catalogue can be explained")
        terms = self._loss.new_context_terms(rows)
        H = self._fixed_items.embeddings
        A, _ = row_system(rows, terms, H, np.diag(self._fixed_items.spectrum), 0)
        z = _solution(A, H[code].astype(np.float64))
        contributions = at(terms.target, slice(None)) * (H[rows.indices].astype(np.float64) @ z)
        ranked = np.argsort(-contributions, kind="stable")
        order, rest = ranked[:n], float(contributions[ranked[n:]].sum())
        return Explanation(
            item, float(contributions.sum()), contributions[order], rest, self.items_, rows.indices[order]
        )

    # --- storage -----------------------------------------------------------------------------------------------------

    def _prepare_fold_in(self) -> None:
        """Set what folding in to a loaded model needs."""
        self._loss = self._precompute(self.seen_)
        self._fixed_items = FoldInBasis(for_kernels(self.item_embeddings_), self._loss.items.values)
        self._fixed_contexts = None

    def _largest(self) -> float:
        contexts, items = self._loss.contexts, self._loss.items
        # The largest numbers in any answer are in the normal equations of a context that had every item and has the
        # largest known weight. Folding in refuses contexts with larger weights.
        n = len(self.items_)
        everything = SparseRows(np.array([0, n], np.int64), np.arange(n, dtype=np.int32), None, n)
        terms = self._loss.objective.terms(everything, contexts.values.max(keepdims=True), items.values)
        weight = float(np.abs(terms.excess).max()) + float(terms.dense.max()) * float(items.values.max())
        return largest_of(super()._largest(), weight * n * longest(self.item_embeddings_) ** 2)


def _solution(A: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return A⁻¹b, or the solution of least norm if A is nearly singular; the row's embedding is that one then, too."""
    with suppress(np.linalg.LinAlgError):
        pivots = np.linalg.cholesky(A).diagonal()
        if pivots.min() > 1e-3 * pivots.max():
            return np.asarray(np.linalg.solve(A, b))
    return np.asarray(np.linalg.lstsq(A, b, rcond=1e-7)[0])
