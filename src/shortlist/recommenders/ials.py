"""iALS: matrix factorization from implicit feedback by alternating least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from shortlist._settings import number, one_of, whole
from shortlist.data.interactions import Interactions
from shortlist.data.rows import Rows
from shortlist.objectives.pointwise import Convention, PointwiseSquare, StrengthAs, gramian
from shortlist.objectives.weighting import Weighting
from shortlist.recommenders.dot_product import DotProduct, longest
from shortlist.recommenders.progress import Monitor
from shortlist.solvers.als import Epoch, alternate, initial_embeddings
from shortlist.solvers.rows import solve_rows


@dataclass(kw_only=True, repr=False, eq=False)
class IALS(DotProduct):
    """Matrix factorization ŷ(i|c) = ⟨w_c, h_i⟩ on every pair of C × I, observed or not (section 5.1 of the article).

    It minimises

        L = Σ_{(c,i)∈S} α(c,i)·(ŷ(i|c) − y(c,i))² + α₀·Σ_{c∈C} Σ_{i∈I} ŷ(i|c)² + Σ_c λ_c‖w_c‖² + Σ_i λ_i‖h_i‖²
        λ_c = λ·(|I_c| + α₀|I|)^ν,   λ_i = λ·(|C_i| + α₀|C|)^ν

    by turns for the contexts and for the items, each row exactly (Hu et al. 2008; λ's scaling and the meaning of the
    weights as in Rendle et al. 2021). `PointwiseSquare` says what `convention`, `weighting` and `strength_as` change.

    Args:
        dim: d, the length of the embeddings. More is better, up to the hundreds, if λ is tuned with it.
        regularization: λ; with ν = 1 try 0.001 to 0.1.
        unobserved_weight: α₀, the weight of every pair beside what observed pairs have; try 0.01 to 1.
        epochs: passes over both sides.
        regularization_exponent: ν; 0 is the same λ for every row, then on a scale of 1 to 100.
        weighting: the strength of a pair with weight w: `"binary"` 1, `"log"` log₂(1 + w), `"raw"` w.
        strength_as: whether the strength is the pair's `"weight"` α or its `"label"` y.
        observed_weight: α of a pair of strength 1.
        convention: `"added"`: α comes on top of α₀ (published settings mean this); `"total"`: α instead of α₀.
        init_scale: start values are N(0, (init_scale/√d)²).
        solver: `"exact"`: Cholesky for every row.
        seed: of the start values; the same seed gives the same model at any number of threads.

    After `fit`, `training_` lists the epochs with the loss in its parts; a loaded model has none.

    >>> from shortlist import datasets
    >>> events = datasets.load("online-retail").interactions
    >>> model = IALS(dim=16, epochs=2).fit(events)
    >>> len(model.recommend([12347], n=5).ids[0])
    5
    """

    dim: int = 64
    regularization: float = 0.003
    unobserved_weight: float = 0.1
    epochs: int = 16
    regularization_exponent: float = 1.0
    weighting: Weighting = "binary"
    strength_as: StrengthAs = "weight"
    observed_weight: float = 1.0
    convention: Convention = "added"
    init_scale: float = 0.1
    solver: Literal["exact"] = "exact"
    seed: int = 0

    def _check(self) -> None:
        whole("dim", self.dim)
        whole("epochs", self.epochs)
        whole("seed", self.seed, least=0)
        number("init_scale", self.init_scale, above=True)
        one_of("solver", self.solver, ("exact",))
        self.objective()

    def objective(self) -> PointwiseSquare:
        """The loss that is minimised, as an object."""
        return PointwiseSquare(
            unobserved_weight=self.unobserved_weight,
            regularization=self.regularization,
            regularization_exponent=self.regularization_exponent,
            weighting=self.weighting,
            strength_as=self.strength_as,
            observed_weight=self.observed_weight,
            convention=self.convention,
        )

    def _fit(self, interactions: Interactions, monitor: Monitor, threads: int | None) -> None:
        training: list[Epoch] = []
        contexts, items = alternate(
            self.objective(),
            interactions.by_context,
            interactions.by_item,
            initial_embeddings(interactions.n_items, self.dim, self.init_scale, self.seed),
            epochs=self.epochs,
            callbacks=[training.append, *monitor.callbacks],
            threads=threads,
        )
        self.context_embeddings_, self.item_embeddings_ = contexts, items  # type: ignore[misc]
        self.training_ = training
        self._item_gramian = gramian(items)

    def _fold_in(self, histories: Rows, threads: int | None = None) -> npt.NDArray[np.float32]:
        """The context half-step for these rows: what `fit` gives a training context with the same history."""
        objective = self.objective()
        out = np.zeros((histories.n_rows, self.item_embeddings_.shape[1]), np.float32)
        terms, alpha0 = objective.terms(histories), objective.unobserved_weight
        solve_rows(histories, terms, self.item_embeddings_, alpha0, out, threads, G=self._item_gramian)
        return out

    def _check_arrays(self) -> None:
        super()._check_arrays()
        self.training_ = []
        # The normal equations of someone who had every item hold the largest numbers that folding in can meet.
        n, objective = len(self.items_), self.objective()
        everything = Rows(np.array([0, n], np.int64), np.arange(n, dtype=np.int32), None, n)
        excess = float(np.abs(objective.terms(everything).excess).max())
        self._require_finite((excess + objective.unobserved_weight) * n * longest(self.item_embeddings_) ** 2)
        self._item_gramian = gramian(self.item_embeddings_)
