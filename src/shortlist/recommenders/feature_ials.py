"""iALS whose factors are drawn towards what features say."""

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
from shortlist.recommenders.multilinear_model import Both, ModelLayout, by_ids
from shortlist.recommenders.pointwise_factorization import PointwiseFactorization
from shortlist.recommenders.search_space import Real, Space
from shortlist.scoring.sides import EmbeddingTable, FeaturePrior, Side
from shortlist.solvers.als import initial_embeddings
from shortlist.solvers.epochs import Embeddings


class _Rows:
    """One side: ids with features, of which those with events are learnt from, or ids alone."""

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
        found = FeaturePrior(everyone, self.X, parameters[1]).told()
        found[self.trained] = parameters[0]
        return found

    def unknown(self, parameters: list[Embeddings]) -> Embeddings:
        """What is expected of someone of whom no feature is known."""
        if self.features is None:
            return np.zeros((1, self.dim), np.float32)
        missing = 1 + np.array([field.missing for field in self.features.fields])
        return np.asarray(parameters[1][0] + parameters[1][missing].sum(axis=0))[None]

    def adopt(self, other: _Rows, theirs: list[Embeddings], own: list[Embeddings]) -> None:
        ours, known = (
            one.vocabulary if one.trained is None else Vocabulary(one.vocabulary.take(one.trained))
            for one in (self, other)
        )
        by_ids(ours, known, theirs[0], own[0])
        names = [None if one.features is None else one.features.feature_names for one in (self, other)]
        if names[0] is not None and names[0] == names[1]:
            own[1][:, : theirs[1].shape[1]] = theirs[1]


class _TwoSides(ModelLayout):
    def __init__(self, contexts: _Rows, items: _Rows) -> None:
        self.of_contexts, self.of_items = contexts, items
        self.contexts, self.items = contexts.shapes, items.shapes
        self.context_rows, self.item_rows = contexts.trained, items.trained

    def initial(self, scale: float, seed: int) -> Both:
        contexts, items = ([np.zeros(one, np.float32) for one in shapes] for shapes in (self.contexts, self.items))
        items[0] = initial_embeddings(*self.items[0], scale, seed)
        return contexts, items

    def adopt(self, other: ModelLayout, theirs: Both, own: Both) -> None:
        assert isinstance(other, _TwoSides)
        self.of_contexts.adopt(other.of_contexts, theirs[0], own[0])
        self.of_items.adopt(other.of_items, theirs[1], own[1])

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
    """`IALS` whose embeddings are drawn towards a linear map of the features, instead of 0, so that new items have one.

    It minimises the loss of `IALS` with

        Σ_c λ_c‖w_c − A x_c‖² + Σ_i λ_i‖h_i − B z_i‖² + μ_C‖A‖² + μ_I‖B‖²

    for a side that has features (x, z, to which a constant is added), and with λ‖·‖² as before for one that has none.
    By turns: w by conjugate gradients; A and B by ridge regression of what w and h have become on the features. μ is
    `feature_strength` times the mean λ of a row: so many rows weigh as much as the wish that A be 0. The constant is
    free.

    An item with many events is what they make of it, one with few is near to what its features say, and one with none
    is exactly that: B z. Such items are in the catalogue if they have features; they are not learnt from. Likewise for
    contexts. `add_items` and `add_contexts` take more of them later.

    Args:
        dim: d, the length of the embeddings.
        feature_strength: see above; 0 is plain regression.
        regularization: λ in λ_c = λ·(|I_c| + α₀|I|)^ν: how firmly features hold; try 0.001 to 0.1.
        unobserved_weight: α₀, the weight of every pair beside what observed pairs have; try 0.01 to 1.
        epochs: passes over both sides, at most: `fit` may stop earlier where it has a validation split.
        solver: `"als"`: rows by conjugate gradients. `"cd"`: coordinate descent, number by number.
        steps: of conjugate gradients, for each side in an epoch.
        regularization_exponent: ν; 0 is the same λ for every row.
        unobserved_item_exponent: see `IALS`, as for the next five.
        unobserved_context_exponent: see `IALS`.
        weighting: the strength of a pair with weight w: `"binary"` 1, `"log"` log₂(1 + w), `"raw"` w.
        strength_as: whether the strength is the pair's `"weight"` α or its `"label"` y.
        observed_weight: α of a pair of strength 1.
        convention: `"added"` or `"total"`.
        init_scale: start values of items are N(0, (init_scale/√d)²).
        seed: of the start values; the same seed gives the same model at any number of threads.

    >>> import shortlist as sl
    >>> shop = sl.datasets.load("online-retail")
    >>> titles = sl.Features.from_frame(
    ...     shop.items, id="product", multi_valued={"title": " "}, ignore="price", min_count=5)
    >>> model = FeatureIALS(dim=8, epochs=2).fit(shop.interactions, item_features=titles)
    >>> len(model.recommend([12347], n=5).ids[0])
    5
    """

    feature_strength: float = 1.0

    def _check(self) -> None:
        super()._check()
        number("feature_strength", self.feature_strength)

    def _unused_on(self, interactions: Interactions, options: FitOptions) -> list[str]:
        unused = super()._unused_on(interactions, options)
        if options.context_features is None and options.item_features is None and self.feature_strength != 1:
            unused.append(
                f"feature_strength is {self.feature_strength!r}, which changes nothing: there are no features; pass "
                "item_features= or context_features= to fit"
            )
        return unused

    @classmethod
    def space(cls) -> Space:
        """That of `IALS`, and how firmly the maps are held at 0."""
        return {**super().space(), "feature_strength": Real(0.01, 100.0, log=True)}

    def _layout_for(self, contexts: Vocabulary, items: Vocabulary, by_context: SparseRows) -> ModelLayout:
        strength = float(self.feature_strength)
        counts = by_context.column_counts()
        return _TwoSides(
            _Rows(contexts, by_context.lengths, self.context_features_, int(self.dim), strength),
            _Rows(items, counts, self.item_features_, int(self.dim), strength),
        )
