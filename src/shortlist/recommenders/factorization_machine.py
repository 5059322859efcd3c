"""Factorization machines: contexts and items represented by their ids and features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import flag
from shortlist.data.features.table import Features
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import SettingError
from shortlist.recommenders.described import DescribedMultilinear, described
from shortlist.recommenders.multilinear_model import Both, ModelLayout, copy_by_id, part_codes, parts_of
from shortlist.recommenders.square_factorization import SquareFactorization
from shortlist.scoring.sides import FeatureSum, Side
from shortlist.solvers.als import initial_embeddings
from shortlist.solvers.train import Embeddings


class _Fields:
    """One side of a factorization machine: one field for each part of the ids, then the fields of the features.

    Args:
        vocabulary: all ids.
        trained: codes of the ids with events; the others have no embedding of their own.
        features: the features of the ids, if any.
        ids: whether ids have embeddings in addition to the features.
    """

    def __init__(
        self, vocabulary: Vocabulary, trained: npt.NDArray[np.int64], features: Features | None, ids: bool
    ) -> None:
        self.features, self.ids, self.trained = features, ids, trained
        self.parts, codes = parts_of(vocabulary.take(trained))
        self.first = codes[:, 0]  # codes of the first part of the trained ids
        self.X = self.matrix(vocabulary.frame)
        used = self.parts if ids else []
        ends = np.cumsum([0, *(len(vocab) for vocab in used)])
        self.n_ids = int(ends[-1])
        self.spans = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        if features is not None:
            self.spans += [
                slice(self.n_ids + field.columns.start, self.n_ids + field.columns.stop) for field in features.fields
            ]

    def matrix(self, frame: pl.DataFrame) -> SparseRows:
        """Return the feature matrix of these ids: their known parts, then their features."""
        import scipy.sparse as sp

        blocks: list[Any] = []
        n = frame.height
        if self.ids:
            codes = part_codes(self.parts, frame.get_columns())
            for part, vocab in enumerate(self.parts):
                known = np.flatnonzero(codes[:, part] >= 0)
                entries = (np.ones(len(known), np.float32), (known, codes[known, part]))
                blocks.append(sp.csr_array(entries, shape=(n, len(vocab))))
        rows = described(self.features, frame)
        if rows is not None:
            blocks.append(sp.csr_array((rows.values, rows.indices, rows.indptr), shape=(n, rows.n_columns)))
        joined = sp.csr_array(sp.hstack(blocks, format="csr"))
        joined.sort_indices()
        values = joined.data.astype(np.float32)
        return SparseRows(joined.indptr.astype(np.int64), joined.indices.astype(np.int32), values, joined.shape[1])

    def adopt(self, other: _Fields, source: Embeddings, target: Embeddings) -> None:
        """Copy the parameters of the same ids and features."""
        # The other embeddings may be shorter; the last column, the weights w, is copied separately.
        for to, values in ((target[:, :-1], source[:, :-1]), (target[:, -1:], source[:, -1:])):
            if self.ids and other.ids:
                for ids, other_ids, span, other_span in zip(self.parts, other.parts, self.spans, other.spans):
                    copy_by_id(ids, other_ids, values[other_span], to[span])
            names, other_names = (
                () if side.features is None else side.features.feature_names for side in (self, other)
            )
            if names and names == other_names:
                to[self.n_ids :, : values.shape[1]] = values[other.n_ids :]


class _Machine(ModelLayout):
    composes: ClassVar[bool] = True

    def __init__(self, contexts: _Fields, items: _Fields, dim: int, same_side_pairs: bool) -> None:
        self.dim, self.same_side_pairs = dim, same_side_pairs
        self.of_contexts, self.of_items = contexts, items
        self.contexts = [(contexts.X.n_columns, dim + 1), (1, 1)]
        self.items = [(items.X.n_columns, dim + 1)]
        self.context_rows, self.item_rows = contexts.trained, items.trained

    def initial(self, scale: float, seed: int) -> Both:
        items = np.zeros(self.items[0], np.float32)
        items[:, : self.dim] = initial_embeddings(len(items), self.dim, scale, seed)
        seen = self.of_items.X.take(self.of_items.trained).column_counts()
        items[seen == 0] = 0  # never trained
        return [np.zeros(shape, np.float32) for shape in self.contexts], [items]

    def adopt(self, other: ModelLayout, source: Both, target: Both) -> None:
        assert isinstance(other, _Machine)
        self.of_contexts.adopt(other.of_contexts, source[0][0], target[0][0])
        target[0][1][:] = source[0][1]
        self.of_items.adopt(other.of_items, source[1][0], target[1][0])

    def context_side(self, parameters: list[Embeddings]) -> FeatureSum:
        return self._side(self.of_contexts, self.of_contexts.X.take(self.of_contexts.trained), parameters)

    def item_side(self, parameters: list[Embeddings]) -> FeatureSum:
        return self._side(self.of_items, self.of_items.X.take(self.of_items.trained), parameters)

    def _side(self, fields: _Fields, X: SparseRows, parameters: Sequence[Embeddings]) -> FeatureSum:
        offset = parameters[1] if fields is self.of_contexts else None
        return FeatureSum(X, fields.spans, parameters[0], offset, self.same_side_pairs)

    def context_embeddings(self, parameters: list[Embeddings]) -> Embeddings:
        return self._of(self.of_contexts, self.of_contexts.X, parameters)

    def item_embeddings(self, parameters: list[Embeddings]) -> Embeddings:
        return self._of(self.of_items, self.of_items.X, parameters)

    def _of(self, fields: _Fields, X: SparseRows, parameters: Sequence[Embeddings]) -> Embeddings:
        """Return the embeddings of rows; 0 for rows without any known id or feature."""
        embeddings = self._side(fields, X, parameters).embeddings()
        embeddings[X.lengths == 0] = 0
        return embeddings

    def average(self, parameters: list[Embeddings]) -> list[Embeddings]:
        """Return the mean embedding and weight of everything but the first part of the ids; and w₀."""
        Phi, d = self.context_side(parameters).embeddings(), self.dim
        first_part = np.zeros((len(Phi), d + 1), np.float32)
        if self.of_contexts.ids:
            first_part = parameters[0][self.of_contexts.first]
        remainder = Phi[:, :d] - first_part[:, :d]
        bias = Phi[:, d] - parameters[1][0, 0] - first_part[:, d]
        if self.same_side_pairs:
            bias = bias - np.einsum("rd,rd->r", first_part[:, :d], remainder)
        rest = np.append(remainder.mean(axis=0), bias.mean()).astype(np.float32)
        return [rest[None], parameters[1]]

    def new_contexts(self, average: list[Embeddings], n: int) -> Side:
        """Return contexts with new ids and the average of everything else."""
        rest, offset = average
        indices = np.stack([np.arange(n), np.full(n, n)], axis=1).astype(np.int32).reshape(-1)
        X = SparseRows(2 * np.arange(n + 1, dtype=np.int64), indices, np.ones(2 * n, np.float32), n + 1)
        values = np.concatenate([np.zeros((n, self.dim + 1), np.float32), rest])
        return FeatureSum(X, [slice(0, n), slice(n, n + 1)], values, offset, self.same_side_pairs)

    def new_items(self, parameters: list[Embeddings], n: int) -> Side:
        """Return items with new ids and without features."""
        X = SparseRows(np.arange(n + 1, dtype=np.int64), np.arange(n, dtype=np.int32), np.ones(n, np.float32), n)
        return FeatureSum(X, [slice(0, n)], np.zeros((n, self.dim + 1), np.float32), None, self.same_side_pairs)

    def codes_of_parts(self, columns: Sequence[Any]) -> npt.NDArray[np.int32]:
        return part_codes(self.of_contexts.parts, columns)

    def compose(self, parameters: list[Embeddings], frame: pl.DataFrame) -> Embeddings:
        return self._of(self.of_contexts, self.of_contexts.matrix(frame), parameters)


@dataclass(kw_only=True, repr=False, eq=False)
class FactorizationMachine(SquareFactorization, DescribedMultilinear):
    """Factorization machine over ids and features: categories, tags, numbers (section 5.1.2 of the article).

    Let x be the features of a context and z those of an item, both with ids. A factorization machine (Rendle 2010)
    scores

        ŷ(i|c) = w₀ + Σ_f x_f w_f + Σ_g z_g w_g + Σ over all pairs of features of their product times ⟨v, v'⟩
               = ⟨Σ_f x_f v_f, Σ_g z_g v_g⟩ + w₀ + b(c) + b(i)
        b(·) = Σ x w + ½(‖Σ x v‖² − Σ ‖x v‖²)

    This is a dot product of d + 2 numbers, [Σ x v, w₀ + b(c), 1] and [Σ z v, 1, b(i)] (Bayer et al. 2017). Therefore it
    can be learned over all pairs of C × I, by ALS or coordinate descent, at the cost of the observed pairs.

    Pass features to `fit` (`context_features=`, `item_features=`). Without features, the model is matrix factorization
    with biases. Each part of a context's id is a field of its own: contexts (user, weekday) need no features for the
    weekday. Features may describe only a part of the id: only the user of contexts (user, weekday).

    Cold items, which have features but no events, are in the catalogue, and so are cold contexts. They are scored by
    their features alone; they are not trained on and have no id embedding. `add_items` and `add_contexts` add more of
    them later. Unseen combinations of known parts are scored too; with `unknown="average"` an unknown part adds
    nothing, which is where the regularizer pulls it. A context or item with no known part and no features has score 0.
    `fold_in` and `recommend(history=…)` solve for the embedding of a new id; all other features of the context count as
    the average context.

    The loss is that of `IALS` (`PointwiseSquare`), or with `loss="pairwise"` that of `RankALS` (`PairwiseSquare`). The
    regularizer of a context feature f is λ_f‖(v_f, w_f)‖² with λ_f = λ·(Σ of x_f²·(|I_c| + α₀|I|) over contexts c)^ν,
    and that of an item feature is analogous; w₀ counts as a feature that all contexts have.

    Args:
        dim: d, the length of the embeddings.
        context_ids: whether context ids have embeddings in addition to the features.
        item_ids: whether item ids have embeddings in addition to the features.
        same_side_pairs: whether b includes the products of two features of the same side, as above. False drops these
            products. An epoch is then faster, because the features of a multi-valued column, such as tags, are then
            solved for together.
        regularization: λ; with ν = 1 try 0.001 to 0.1.
        unobserved_weight: α₀, the weight of every pair, in addition to the weight of observed pairs; try 0.01 to 1.
        epochs: maximum number of passes over all blocks; with a validation split `fit` may stop earlier.
        solver: `"als"`: conjugate gradients for the embeddings of a field. `"cd"`: coordinate descent.
        steps: conjugate gradient steps for each field in an epoch.
        loss: `"pointwise"` or `"pairwise"`; the pairwise loss has no α₀, no labels and no context exponent.
        regularization_exponent: ν; with 0 every feature has the same λ.
        unobserved_item_exponent: see `IALS`; for the pairwise loss, ρ of the items as negatives.
        unobserved_context_exponent: see `IALS`.
        weighting: how a weight w becomes the strength of a pair: 1 for `"binary"`, log₂(1 + w) for `"log"`, w for
            `"raw"`.
        strength_as: whether the strength is the pair's `"weight"` α or its `"label"` y.
        observed_weight: α of a pair of strength 1.
        convention: `"added"` or `"total"`, see `IALS`.
        init_scale: start values of the items' side are N(0, (init_scale/√d)²); contexts and biases start at 0.
        seed: seed of the start values; the same seed gives the same model with any number of threads.

    >>> import shortlist as sl
    >>> shop = sl.datasets.load("online-retail")
    >>> titles = sl.Features.from_frame(
    ...     shop.items, id="product", multi_valued={"title": " "}, ignore="price", min_count=20)
    >>> model = FactorizationMachine(dim=8, epochs=2, same_side_pairs=False)
    >>> _ = model.fit(shop.interactions, item_features=titles)
    >>> len(model.recommend([12347], n=5).ids[0])
    5
    """

    context_ids: bool = True
    item_ids: bool = True
    same_side_pairs: bool = True

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        super().check_settings()
        for name in ("context_ids", "item_ids", "same_side_pairs"):
            flag(name, getattr(self, name))

    @property
    def latent_dim(self) -> int:
        """The number of columns without the biases, which come last."""
        return int(self.dim)

    def _layout_for(self, contexts: Vocabulary, items: Vocabulary, by_context: SparseRows) -> ModelLayout:
        for side, ids in (("context", self.context_ids), ("item", self.item_ids)):
            if not ids and getattr(self, f"{side}_features_") is None:
                raise SettingError(
                    f"{side}_ids is False and there are no {side}_features, so {side}s have no embeddings",
                    field=f"{side}_ids",
                    hint=f"pass {side}_features, or set {side}_ids=True",
                )
        trained = (np.flatnonzero(by_context.lengths), np.flatnonzero(by_context.column_counts()))
        return _Machine(
            _Fields(contexts, trained[0], self.context_features_, bool(self.context_ids)),
            _Fields(items, trained[1], self.item_features_, bool(self.item_ids)),
            int(self.dim),
            bool(self.same_side_pairs),
        )

    def feature_embeddings(self, side: str = "item") -> tuple[Embeddings, Embeddings]:
        """Return the embeddings v and the weights w of the features of a side, `"item"` or `"context"`, by column."""
        self.require_fit()
        assert isinstance(self._layout, _Machine)
        if side not in ("context", "item"):
            raise SettingError(f"side is {side!r:.80}; expected 'item' or 'context'", field="side")
        fields = self._layout.of_items if side == "item" else self._layout.of_contexts
        values = (self._of_items() if side == "item" else self._of_contexts())[0][fields.n_ids :]
        return values[:, :-1], values[:, -1]
