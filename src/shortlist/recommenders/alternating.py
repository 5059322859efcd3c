"""Matrix factorization by alternating least squares: what its recommenders share, whatever solves a half-step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shortlist._checks import whole
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Id
from shortlist.errors import NotFittedError, SettingError
from shortlist.objectives.frequency_weights import FrequencyWeights
from shortlist.objectives.pointwise_square import PointwiseSquare
from shortlist.recommenders.base import largest_of
from shortlist.recommenders.derived import effective_rank, square_loss_settings
from shortlist.recommenders.dot_product import DotProduct, longest
from shortlist.recommenders.explanation import Explanation
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.given import rows_of_lists
from shortlist.recommenders.pointwise_factorization import PointwiseFactorization
from shortlist.recommenders.warm_start import warm_embeddings
from shortlist.solvers import exact
from shortlist.solvers.als import Alternation, HalfStep, initial_embeddings
from shortlist.solvers.eigenbasis import FoldInBasis
from shortlist.solvers.epochs import Embeddings, Loop
from shortlist.solvers.normal_equations import at, row_system

_MANY = 16  # items and dimensions from which on a few directions are too few
_FEW = 2.5
_ENOUGH = 10_000  # items that are looked at for that


@dataclass(kw_only=True, repr=False, eq=False)
class Alternating(PointwiseFactorization):
    """Matrix factorization ŷ(i|c) = ⟨w_c, h_i⟩ under `PointwiseSquare`; a recommender adds how a side is improved."""

    _derivable: ClassVar[dict[str, Any]] = {"dim": 256, "regularization": 0.01, "unobserved_weight": 0.1}

    dim: int | None = None  # type: ignore[assignment]
    regularization: float | None = None  # type: ignore[assignment]
    unobserved_weight: float | None = None  # type: ignore[assignment]

    def _derive(self, interactions: Interactions, options: FitOptions) -> dict[str, Any]:
        settings = square_loss_settings(self, interactions)
        if isinstance(options.start, DotProduct) and options.start._fitted:
            settings["dim"] = max(settings["dim"], options.start._latent)
        return settings

    def objective(self) -> PointwiseSquare:
        """Return the loss that is minimised, as an object."""
        if left_out := [name for name in self._derivable if name != "dim" and getattr(self, name) is None]:
            raise NotFittedError(f"{left_out[0]} follows from the data; fit the {type(self).__name__} first, or set it")
        return super().objective()

    def _doubts(self) -> list[str]:
        if len(self.item_embeddings_) < _MANY or self._width < _MANY or len(self.derived_) == len(self._derivable):
            return []
        items = self.item_embeddings_
        directions = effective_rank(items[:: -(-len(items) // _ENOUGH)])
        if directions > _FEW:
            return []
        return [
            f"the {self._width} dimensions of the items' embeddings have shrunk to about {directions:.1f}, so that all "
            f"contexts get the popular items: regularization={self.regularization:g} is too much beside "
            f"unobserved_weight={self.unobserved_weight:g}; make either smaller, or leave both out, and they follow "
            "from the data"
        ]

    @abstractmethod
    def _half_steps(self) -> tuple[HalfStep, HalfStep]:
        """How a side is improved, the other being as it is; and how the contexts are solved for at the end."""

    # --- learning ----------------------------------------------------------------------------------------------------

    def _precompute(self, by_context: SparseRows) -> tuple[FrequencyWeights, FrequencyWeights]:
        return self.objective().omegas(by_context)

    def _start(
        self, interactions: Interactions, start: DotProduct | None, threads: int | None
    ) -> tuple[Embeddings | None, Embeddings]:
        items = initial_embeddings(interactions.n_items, self._width, self.init_scale, self.seed)
        if start is None:
            return None, items
        return warm_embeddings(start, interactions, items, self.objective(), threads)

    def _loop(
        self,
        interactions: Interactions,
        prepared: tuple[FrequencyWeights, FrequencyWeights],
        contexts: Embeddings | None,
        items: Embeddings,
        threads: int | None,
        epochs: int,
    ) -> Loop:
        half_step, last = self._half_steps()
        return Alternation(
            self.objective(),
            interactions.by_context,
            interactions.by_item,
            items,
            contexts=contexts,
            half_step=half_step,
            last=last,
            threads=threads,
        )

    def _set_items(self, items: Embeddings, prepared: tuple[FrequencyWeights, FrequencyWeights]) -> None:
        self.item_embeddings_ = items  # type: ignore[misc]
        self._omegas = prepared
        self._fixed_items = FoldInBasis(items, prepared[1].values)
        self._fixed_contexts: FoldInBasis | None = None

    # --- strangers ---------------------------------------------------------------------------------------------------

    def _fold_in(self, histories: SparseRows, threads: int | None = None) -> Embeddings:
        """The context half-step for these rows: what `fit` gives a training context with the same history."""
        contexts, items = self._omegas
        return self._solve(
            histories, self._fixed_items, contexts.new(histories.effective_counts), items.values, threads
        )

    def _fold_in_items(self, rows: SparseRows, threads: int | None = None) -> Embeddings:
        """The item half-step for these rows."""
        of_contexts, of_items = self._omegas
        fixed = self._fixed_contexts
        if fixed is None:
            fixed = self._fixed_contexts = FoldInBasis(self.context_embeddings_, of_contexts.values)
        return self._solve(rows, fixed, of_items.new(rows.effective_counts), of_contexts.values, threads)

    def _solve(
        self,
        rows: SparseRows,
        fixed: FoldInBasis,
        own: npt.NDArray[np.float32],
        other: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> Embeddings:
        out = np.zeros((rows.n_rows, fixed.embeddings.shape[1]), np.float32)
        terms = self.objective().terms(rows, own, other)
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
        """What each item of a context's history adds to the score of an item.

        A context's embedding solves A_c w_c = Σ_k α_k y_k h_k over its items k, so that its scores are sums over them:

            ŷ(i|c) = Σ_k α_k y_k · h_iᵀ A_c⁻¹ h_k

        Args:
            context: the id of a context of the training data, or None where there is a history.
            item: the item to explain.
            n: how many items of the history to list.
            history: instead of a context: the items someone has had, as ids or as {id: weight}.

        >>> from shortlist import IALS, datasets
        >>> model = IALS(dim=16, epochs=2).fit(datasets.load("online-retail").interactions)
        >>> why = model.explain(12347, model.recommend([12347]).ids[0][0], n=3)
        >>> len(why), bool(abs(why.contributions.sum() + why.rest - why.score) < 1e-6)
        (3, True)
        """
        whole("n", n)
        self._require_fit()
        if (context is None) == (history is None):
            raise SettingError("pass either context (an id from the training data) or history=, one of the two")
        if history is not None:
            rows = rows_of_lists([history], self.items_, "raise", "history", "item", "leave them out of the history")
        else:
            way_out = "explain a context of the training data, or pass context=None and history="
            rows = self.seen_.take(self.contexts_.encode([context], what="context", way_out=way_out))
        (code,) = self.items_.encode([item], what="item", way_out="explain an item of the catalogue")
        contexts, items = self._omegas
        terms = self.objective().terms(rows, contexts.new(rows.effective_counts), items.values)
        H = self._fixed_items.embeddings
        A, _ = row_system(rows, terms, H, np.diag(self._fixed_items.spectrum), 0)
        z = _solution(A, H[code].astype(np.float64))
        each = at(terms.target, slice(None)) * (H[rows.indices].astype(np.float64) @ z)
        ranked = np.argsort(-each, kind="stable")
        order, rest = ranked[:n], float(each[ranked[n:]].sum())
        return Explanation(item, float(each.sum()), each[order], rest, self.items_, rows.indices[order])

    # --- storage -----------------------------------------------------------------------------------------------------

    def _check_arrays(self) -> None:
        super()._check_arrays()
        self.training_, self.best_epoch_ = [], None
        self._set_items(self.item_embeddings_, self.objective().omegas(self.seen_))

    def _largest(self) -> float:
        contexts, items = self._omegas
        # The normal equations of someone who had every item, and weighs as much as any context that is known, hold the
        # largest numbers that answers can meet; who weighs more is refused when folded in.
        n = len(self.items_)
        everything = SparseRows(np.array([0, n], np.int64), np.arange(n, dtype=np.int32), None, n)
        terms = self.objective().terms(everything, contexts.values.max(keepdims=True), items.values)
        weight = float(np.abs(terms.excess).max()) + float(terms.dense.max()) * float(items.values.max())
        return largest_of(super()._largest(), weight * n * longest(self.item_embeddings_) ** 2)


def _solution(A: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A⁻¹b, or the smallest of many solutions where A is nearly singular, as a row's own solution is then."""
    with suppress(np.linalg.LinAlgError):
        pivots = np.linalg.cholesky(A).diagonal()
        if pivots.min() > 1e-3 * pivots.max():
            return np.asarray(np.linalg.solve(A, b))
    return np.asarray(np.linalg.lstsq(A, b, rcond=1e-7)[0])
