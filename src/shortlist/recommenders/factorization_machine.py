"""Factorization machines: contexts and items by what is known of them."""

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
from shortlist.recommenders.multilinear_model import Both, ModelLayout, by_ids, part_codes, parts_of
from shortlist.recommenders.square_factorization import SquareFactorization
from shortlist.scoring.sides import FeatureSum, Side
from shortlist.solvers.als import initial_embeddings
from shortlist.solvers.epochs import Embeddings


class _Fields:
    """One side of a factorization machine: a field for each part of an id, then those of its features.

    Args:
        vocabulary: all ids.
        trained: the codes of those that are learnt from; others have no embedding of their own.
        features: what is known of them.
        ids: whether ids have embeddings beside features.
    """

    def __init__(
        self, vocabulary: Vocabulary, trained: npt.NDArray[np.int64], features: Features | None, ids: bool
    ) -> None:
        self.features, self.ids, self.trained = features, ids, trained
        self.parts, codes = parts_of(vocabulary.take(trained))
        self.first = codes[:, 0]  # of those that are learnt from, the first part of their ids
        self.X = self.matrix(vocabulary.frame)
        used = self.parts if ids else []
        ends = np.cumsum([0, *(len(one) for one in used)])
        self.n_ids = int(ends[-1])
        self.spans = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        if features is not None:
            self.spans += [
                slice(self.n_ids + one.columns.start, self.n_ids + one.columns.stop) for one in features.fields
            ]

    def matrix(self, frame: pl.DataFrame) -> SparseRows:
        """The entries of these ids: of every part that is known, and of the features."""
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

    def adopt(self, other: _Fields, theirs: Embeddings, own: Embeddings) -> None:
        """Take what belongs to the same ids and features."""
        # Embeddings may be shorter there; weights, the last column, belong to each other.
        for mine, there in ((own[:, :-1], theirs[:, :-1]), (own[:, -1:], theirs[:, -1:])):
            if self.ids and other.ids:
                for ours, known, span, place in zip(self.parts, other.parts, self.spans, other.spans):
                    by_ids(ours, known, there[place], mine[span])
            names, known_names = (() if one.features is None else one.features.feature_names for one in (self, other))
            if names and names == known_names:
                mine[self.n_ids :, : there.shape[1]] = there[other.n_ids :]


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
        items[seen == 0] = 0  # nothing will ever be learnt of these
        return [np.zeros(shape, np.float32) for shape in self.contexts], [items]

    def adopt(self, other: ModelLayout, theirs: Both, own: Both) -> None:
        assert isinstance(other, _Machine)
        self.of_contexts.adopt(other.of_contexts, theirs[0][0], own[0][0])
        own[0][1][:] = theirs[0][1]
        self.of_items.adopt(other.of_items, theirs[1][0], own[1][0])

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
        """Embeddings of rows; 0 for those of whom nothing is known."""
        found = self._side(fields, X, parameters).embeddings()
        found[X.lengths == 0] = 0
        return found

    def average(self, parameters: list[Embeddings]) -> list[Embeddings]:
        """Everything but the first part of ids, in the mean: an embedding and a weight; and w₀."""
        Phi, d = self.context_side(parameters).embeddings(), self.dim
        own = np.zeros((len(Phi), d + 1), np.float32)
        if self.of_contexts.ids:
            own = parameters[0][self.of_contexts.first]
        others = Phi[:, :d] - own[:, :d]
        bias = Phi[:, d] - parameters[1][0, 0] - own[:, d]
        if self.same_side_pairs:
            bias = bias - np.einsum("rd,rd->r", own[:, :d], others)
        rest = np.append(others.mean(axis=0), bias.mean()).astype(np.float32)
        return [rest[None], parameters[1]]

    def new_contexts(self, average: list[Embeddings], n: int) -> Side:
        """An id that nobody has yet, with the average of everything else that is known of contexts."""
        rest, offset = average
        indices = np.stack([np.arange(n), np.full(n, n)], axis=1).astype(np.int32).reshape(-1)
        X = SparseRows(2 * np.arange(n + 1, dtype=np.int64), indices, np.ones(2 * n, np.float32), n + 1)
        values = np.concatenate([np.zeros((n, self.dim + 1), np.float32), rest])
        return FeatureSum(X, [slice(0, n), slice(n, n + 1)], values, offset, self.same_side_pairs)

    def new_items(self, parameters: list[Embeddings], n: int) -> Side:
        """Ids that are new; their features, of which nothing is known, count for nothing."""
        X = SparseRows(np.arange(n + 1, dtype=np.int64), np.arange(n, dtype=np.int32), np.ones(n, np.float32), n)
        return FeatureSum(X, [slice(0, n)], np.zeros((n, self.dim + 1), np.float32), None, self.same_side_pairs)

    def asked(self, columns: Sequence[Any]) -> npt.NDArray[np.int32]:
        return part_codes(self.of_contexts.parts, columns)

    def composed(self, parameters: list[Embeddings], frame: pl.DataFrame) -> Embeddings:
        return self._of(self.of_contexts, self.of_contexts.matrix(frame), parameters)


@dataclass(kw_only=True, repr=False, eq=False)
class FactorizationMachine(SquareFactorization, DescribedMultilinear):
    """Contexts and items by all that is known of them: ids, categories, tags, numbers (section 5.1.2 of the article).

    With features x of a context and z of an item, ids among them, a factorization machine (Rendle 2010) scores

        ŷ(i|c) = w₀ + Σ_f x_f w_f + Σ_g z_g w_g + Σ over all pairs of features of their product times ⟨v, v'⟩
               = ⟨Σ_f x_f v_f, Σ_g z_g v_g⟩ + w₀ + b(c) + b(i)
        b(·) = Σ x w + ½(‖Σ x v‖² − Σ ‖x v‖²)

    which is a dot product of d + 2 numbers: [Σ x v, w₀ + b(c), 1] and [Σ z v, 1, b(i)] (Bayer et al. 2017). It is
    learnt over all pairs of C × I by implicit ALS or coordinate descent, at the cost of the observed pairs.

    Features are passed to `fit` (`context_features=`, `item_features=`); without them it is matrix factorization with
    biases. A part of a context's id is a field of its own: contexts (user, weekday) need no features for the weekday.
    Features may also be those of a part only: by user, where contexts are (user, weekday).

    *Items that nobody has had* are in the catalogue if they have features, and so are contexts without events. They are
    not learnt from (nobody has refused them), have no embedding of their own, and are scored by their features.
    `add_items` and `add_contexts` take more of them later. An unseen combination of known parts is scored too; with
    `unknown="average"` a part that is not known adds nothing, which is where the regularizer draws it. Of whom or what
    nothing at all is known has score 0. `fold_in` and `recommend(history=…)` solve for an id's embedding, beside the
    average of what else contexts have.

    The loss is that of `IALS` (`PointwiseSquare`), or with `loss="pairwise"` that of `RankALS` (`PairwiseSquare`), with
    λ_f‖(v_f, w_f)‖², λ_f = λ·(Σ of x_f²·(|I_c| + α₀|I|) over contexts c)^ν, and likewise for items; w₀ counts as a
    feature that all contexts have.

    Args:
        dim: d, the length of the embeddings.
        context_ids: whether ids of contexts have embeddings beside the features; likewise the next.
        item_ids: see `context_ids`.
        same_side_pairs: whether two features of the same side meet in b, as above. False drops these products: then
            features of which a row may have several, such as tags, are solved for together, and an epoch takes less
            time.
        regularization: λ; with ν = 1 try 0.001 to 0.1.
        unobserved_weight: α₀, the weight of every pair beside what observed pairs have; try 0.01 to 1.
        epochs: passes over all blocks, at most: `fit` may stop earlier where it has a validation split.
        solver: `"als"`: a field's embeddings by conjugate gradients. `"cd"`: coordinate descent, number by number.
        steps: of conjugate gradients, for each field in an epoch.
        loss: `"pointwise"` or `"pairwise"`, which knows no α₀, no labels and no exponent of contexts.
        regularization_exponent: ν; 0 is the same λ for every feature.
        unobserved_item_exponent: see `IALS`; for the pairwise loss, ρ of the items as negatives.
        unobserved_context_exponent: see `IALS`, as for the next four.
        weighting: the strength of a pair with weight w: `"binary"` 1, `"log"` log₂(1 + w), `"raw"` w.
        strength_as: whether the strength is the pair's `"weight"` α or its `"label"` y.
        observed_weight: α of a pair of strength 1.
        convention: `"added"` or `"total"`.
        init_scale: start values of the items' side are N(0, (init_scale/√d)²); contexts and biases start at 0.
        seed: of the start values; the same seed gives the same model at any number of threads.

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

    def _check(self) -> None:
        super()._check()
        for name in ("context_ids", "item_ids", "same_side_pairs"):
            flag(name, getattr(self, name))

    @property
    def _latent(self) -> int:
        return int(self.dim)

    def _layout_for(self, contexts: Vocabulary, items: Vocabulary, by_context: SparseRows) -> ModelLayout:
        for side, ids in (("context", self.context_ids), ("item", self.item_ids)):
            if not ids and getattr(self, f"{side}_features_") is None:
                raise SettingError(
                    f"{side}_ids is False and there are no {side}_features, so nothing is known of {side}s; pass some"
                )
        trained = (np.flatnonzero(by_context.lengths), np.flatnonzero(by_context.column_counts()))
        return _Machine(
            _Fields(contexts, trained[0], self.context_features_, bool(self.context_ids)),
            _Fields(items, trained[1], self.item_features_, bool(self.item_ids)),
            int(self.dim),
            bool(self.same_side_pairs),
        )

    def feature_embeddings(self, side: str = "item") -> tuple[Embeddings, Embeddings]:
        """The embeddings v and the weights w of the features of a side, `"item"` or `"context"`, by column."""
        self._require_fit()
        assert isinstance(self._layout, _Machine)
        if side not in ("context", "item"):
            raise SettingError(f"side is {side!r:.80}; expected 'item' or 'context'")
        fields = self._layout.of_items if side == "item" else self._layout.of_contexts
        values = (self._of_items() if side == "item" else self._of_contexts())[0][fields.n_ids :]
        return values[:, :-1], values[:, -1]
