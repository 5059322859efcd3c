"""RankALS: matrix factorization by least squares on differences of scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Vocabulary
from shortlist.objectives.pairwise_square import PairwiseSquare
from shortlist.objectives.weighting import BY_DEFAULT, Weighting
from shortlist.recommenders.multilinear_model import Both, ModelLayout, MultilinearModel, copy_by_id
from shortlist.recommenders.search_space import Increasing, Real, Space
from shortlist.scoring.sides import EmbeddingTable, Side
from shortlist.solvers.als import initial_embeddings
from shortlist.solvers.pairwise_rows import PairwiseAlternation
from shortlist.solvers.square_losses import SquareLoss
from shortlist.solvers.train import Embeddings, EmbeddingTrainer


class _Tables(ModelLayout):
    def __init__(self, contexts: Vocabulary, items: Vocabulary, dim: int) -> None:
        self._ids = contexts, items
        self.contexts, self.items = [(len(contexts), dim)], [(len(items), dim)]

    def initial(self, scale: float, seed: int) -> Both:
        return [np.zeros(self.contexts[0], np.float32)], [initial_embeddings(*self.items[0], scale, seed)]

    def adopt(self, other: ModelLayout, source: Both, target: Both) -> None:
        assert isinstance(other, _Tables)
        for ids, other_ids, values, to in zip(self._ids, other._ids, source, target):
            copy_by_id(ids, other_ids, values[0], to[0])

    def context_side(self, parameters: list[Embeddings]) -> Side:
        return EmbeddingTable(parameters[0])

    item_side = context_side

    def average(self, parameters: list[Embeddings]) -> list[Embeddings]:
        return []

    def new_contexts(self, average: list[Embeddings], n: int) -> Side:
        return EmbeddingTable(np.zeros((n, self.contexts[0][1]), np.float32))

    def new_items(self, parameters: list[Embeddings], n: int) -> Side:
        return EmbeddingTable(np.zeros((n, self.items[0][1]), np.float32))


@dataclass(kw_only=True, repr=False, eq=False)
class RankALS(MultilinearModel):
    """Matrix factorization ŷ(i|c) = ⟨w_c, h_i⟩ by least squares on score differences between items (section 5.2).

    It minimises `PairwiseSquare` (Takács and Tikk 2012),

        L = Σ_{(c,i)∈S} a_{c,i} Σ_{j∈I} a_j·(ŷ(i|c) − ŷ(j|c) − 1)² + Σ_c λ_c‖w_c‖² + Σ_i λ_i‖h_i‖²

    over all of S × I, without sampling, at about the cost of `IALS`. `PairwiseSquare` defines the weights.

    Args:
        dim: d, the length of the embeddings.
        regularization: λ; with ν = 1 try 0.001 to 0.1.
        epochs: maximum number of passes over both sides; with a validation split `fit` may stop earlier.
        item_exponent: ρ in a_j ∝ (number of the item's contexts)^ρ. Above 0, popular items count more as negatives; the
            original method uses 0 or 1.
        regularization_exponent: ν; with 0 every row has the same λ.
        weighting: the strength a_{c,i} of a pair with weight w: `"binary"` 1, `"log"` log₂(1 + w), `"raw"` w.
        solver: how each side is solved. `"cg"`: conjugate gradients; for the items, which depend on each other, over
            all items together. `"als"`: Cholesky for every row, for the items one after the other on one thread.
            `"cd"`: coordinate descent.
        steps: conjugate gradient steps for each side in an epoch.
        init_scale: start values of items are N(0, (init_scale/√d)²).
        seed: seed of the start values; the same seed gives the same model with any number of threads.

    >>> from shortlist import datasets
    >>> model = RankALS(dim=8, epochs=2).fit(datasets.load("online-retail").interactions)
    >>> len(model.recommend([12347], n=5).ids[0])
    5
    """

    _solvers: ClassVar[tuple[str, ...]] = ("cg", "als", "cd")

    regularization: float = 0.003
    regularization_exponent: float = 1.0
    item_exponent: float = 0.0
    weighting: Weighting = BY_DEFAULT
    solver: str = "cg"

    def unused_settings(self) -> dict[str, str]:
        """Return the settings that have no effect given the other settings, as {name: reason}."""
        unused = super().unused_settings()
        if self.solver == "als":
            unused["steps"] = "with solver='als', only with conjugate gradients"
        return unused

    @classmethod
    def space(cls) -> Space:
        """Return the search space: regularization and exponents; the dimension grows."""
        return {
            "dim": Increasing(64, 128, 256),
            "regularization": Real(1e-4, 1.0, log=True),
            "item_exponent": Real(-0.5, 1.0),
            "regularization_exponent": Real(0.0, 1.0),
        }

    def objective(self) -> PairwiseSquare:
        """Return the loss that `fit` minimises."""
        return PairwiseSquare(
            regularization=self.regularization,
            regularization_exponent=self.regularization_exponent,
            item_exponent=self.item_exponent,
            weighting=self.weighting,
        )

    def _layout_for(self, contexts: Vocabulary, items: Vocabulary, by_context: SparseRows) -> ModelLayout:
        return _Tables(contexts, items, int(self.dim))

    def _trainer_over(self, loss: SquareLoss, contexts: Side, items: Side) -> EmbeddingTrainer:
        if self.solver == "als":
            return PairwiseAlternation(loss, contexts, items, "als", int(self.steps))
        return super()._trainer_over(loss, contexts, items)
