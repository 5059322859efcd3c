"""iALS with embeddings that are regularized towards a linear map of the features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shortlist._checks import number
from shortlist.data.features.table import Features
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Vocabulary
from shortlist.recommenders.described import DescribedMultilinear, described
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.multilinear_model import Both, ModelLayout, copy_by_id
from shortlist.recommenders.pointwise_factorization import PointwiseFactorization
from shortlist.recommenders.search_space import Real, Space
from shortlist.scoring.sides import EmbeddingTable, FeaturePrior, Side
from shortlist.solvers.als import initial_embeddings
from shortlist.solvers.train import Embeddings


class _Rows:
    """One side: ids alone, or ids with features; with features, only ids with events are trained."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        lengths: npt.NDArray[np.int64],
        features: Features | None,
        dim: int,
        strength: float,
    ) -> None:
        self.vocabulary, self.features, self.strength, self.dim = vocabulary, features, strength, dim
        self.X = described(features, vocabulary.frame)
        self.trained = None if self.X is None else np.flatnonzero(lengths)
        n = len(vocabulary) if self.trained is None else len(self.trained)
        self.shapes = [(n, dim)]
        if self.X is not None:
            self.shapes.append((1 + self.X.n_columns, dim))

    def side(self, parameters: list[Embeddings]) -> Side:
        if self.X is None or self.trained is None:
            return EmbeddingTable(parameters[0])
        return FeaturePrior(parameters[0], self.X.take(self.trained), parameters[1], self.strength)

    def embeddings(self, parameters: list[Embeddings]) -> Embeddings:
        if self.X is None or self.trained is None:
            return parameters[0].copy()
        everyone = np.zeros((len(self.vocabulary), self.dim), np.float32)
        embeddings = FeaturePrior(everyone, self.X, parameters[1]).feature_means()
        embeddings[self.trained] = parameters[0]
        return embeddings

    def unknown(self, parameters: list[Embeddings]) -> Embeddings:
        """Return the prior mean of an id whose features are all missing."""
        if self.features is None:
            return np.zeros((1, self.dim), np.float32)
        missing = 1 + np.array([field.missing for field in self.features.fields])
        return np.asarray(parameters[1][0] + parameters[1][missing].sum(axis=0))[None]

    def adopt(self, other: _Rows, source: list[Embeddings], target: list[Embeddings]) -> None:
        ids, other_ids = (
            side.vocabulary if side.trained is None else Vocabulary(side.vocabulary.take(side.trained))
            for side in (self, other)
        )
        copy_by_id(ids, other_ids, source[0], target[0])
        names = [None if side.features is None else side.features.feature_names for side in (self, other)]
        if names[0] is not None and names[0] == names[1]:
            target[1][:, : source[1].shape[1]] = source[1]


class _TwoSides(ModelLayout):
    def __init__(self, contexts: _Rows, items: _Rows) -> None:
        self.of_contexts, self.of_items = contexts, items
        self.contexts, self.items = contexts.shapes, items.shapes
        self.context_rows, self.item_rows = contexts.trained, items.trained

    def initial(self, scale: float, seed: int) -> Both:
        contexts, items = ([np.zeros(shape, np.float32) for shape in shapes] for shapes in (self.contexts, self.items))
        items[0] = initial_embeddings(*self.items[0], scale, seed)
        return contexts, items

    def adopt(self, other: ModelLayout, source: Both, target: Both) -> None:
        assert isinstance(other, _TwoSides)
        self.of_contexts.adopt(other.of_contexts, source[0], target[0])
        self.of_items.adopt(other.of_items, source[1], target[1])

    def context_side(self, parameters: list[Embeddings]) -> Side:
        return self.of_contexts.side(parameters)

    def item_side(self, parameters: list[Embeddings]) -> Side:
        return self.of_items.side(parameters)

    def context_embeddings(self, parameters: list[Embeddings]) -> Embeddings:
        return self.of_contexts.embeddings(parameters)

    def item_embeddings(self, parameters: list[Embeddings]) -> Embeddings:
        return self.of_items.embeddings(parameters)

    def average(self, parameters: list[Embeddings]) -> list[Embeddings]:
        return [self.of_contexts.unknown(parameters)]

    def new_contexts(self, average: list[Embeddings], n: int) -> Side:
        prior = np.repeat(average[0], n, axis=0)
        return EmbeddingTable(prior.copy(), prior)

    def new_items(self, parameters: list[Embeddings], n: int) -> Side:
        return self.new_contexts([self.of_items.unknown(parameters)], n)


@dataclass(kw_only=True, repr=False, eq=False)
class FeatureIALS(PointwiseFactorization, DescribedMultilinear):
    """`IALS` with features: embeddings are regularized towards a linear map of the features instead of 0.

    It minimises the loss of `IALS` with the regularizer

        Σ_c λ_c‖w_c − A x_c‖² + Σ_i λ_i‖h_i − B z_i‖² + μ_C‖A‖² + μ_I‖B‖²

    where x and z are the features with a constant appended. A side without features has the regularizer of `IALS`. An
    epoch alternates between w and h, by conjugate gradients, and A and B, by ridge regression of w and h on the
    features. μ is `feature_strength` times the mean λ of a row, so `feature_strength` is the number of rows that weigh
    as much as the penalty on A. The constant is not penalised.

    The embedding of an item with many events follows its events. With few events it is near its prediction from the
    features, and with none it is exactly that, B z. Such cold items are in the catalogue if they have features, but are
    not trained on; the same is true for contexts. `add_items` and `add_contexts` add more of them later.

    Args:
        dim: d, the length of the embeddings.
        feature_strength: the penalty on A and B, as above; 0 is regression without a penalty.
        regularization: λ in λ_c = λ·(|I_c| + α₀|I|)^ν: how strongly embeddings are pulled towards the features; try
            0.001 to 0.1.
        unobserved_weight: α₀, the weight of every pair, in addition to the weight of observed pairs; try 0.01 to 1.
        epochs: maximum number of passes over both sides; with a validation split `fit` may stop earlier.
        solver: `"als"`: conjugate gradients. `"cd"`: coordinate descent.
        steps: conjugate gradient steps for each side in an epoch.
        regularization_exponent: ν; with 0 every row has the same λ.
        unobserved_item_exponent: see `IALS`.
        unobserved_context_exponent: see `IALS`.
        weighting: how a weight w becomes the strength of a pair: 1 for `"binary"`, log₂(1 + w) for `"log"`, w for
            `"raw"`.
        strength_as: whether the strength is the pair's `"weight"` α or its `"label"` y.
        observed_weight: α of a pair of strength 1.
        convention: `"added"` or `"total"`, see `IALS`.
        init_scale: start values of items are N(0, (init_scale/√d)²).
        seed: seed of the start values; the same seed gives the same model with any number of threads.

    >>> import shortlist as sl
    >>> shop = sl.datasets.load("online-retail")
    >>> titles = sl.Features.from_frame(
    ...     shop.items, id="product", multi_valued={"title": " "}, ignore="price", min_count=5)
    >>> model = FeatureIALS(dim=8, epochs=2).fit(shop.interactions, item_features=titles)
    >>> len(model.recommend([12347], n=5).ids[0])
    5
    """

    feature_strength: float = 1.0

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        super().check_settings()
        number("feature_strength", self.feature_strength)

    def _unused_inputs(self, interactions: Interactions, options: FitOptions) -> list[str]:
        unused = super()._unused_inputs(interactions, options)
        if options.context_features is None and options.item_features is None and self.feature_strength != 1:
            unused.append(
                f"feature_strength={self.feature_strength!r} has no effect without features; pass "
                "item_features= or context_features= to fit"
            )
        return unused

    @classmethod
    def space(cls) -> Space:
        """Return the search space of `IALS`, with `feature_strength`."""
        return {**super().space(), "feature_strength": Real(0.01, 100.0, log=True)}

    def _layout_for(self, contexts: Vocabulary, items: Vocabulary, by_context: SparseRows) -> ModelLayout:
        strength = float(self.feature_strength)
        counts = by_context.column_counts()
        return _TwoSides(
            _Rows(contexts, by_context.lengths, self.context_features_, int(self.dim), strength),
            _Rows(items, counts, self.item_features_, int(self.dim), strength),
        )
