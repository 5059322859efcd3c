"""Tensor factorizations: contexts of several parts, such as (user, weekday)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import integer, number
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Vocabulary
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.multilinear_model import Both, ModelLayout, copy_by_id, means, part_codes, parts_of
from shortlist.recommenders.search_space import Choice, Real, Space
from shortlist.recommenders.square_factorization import SquareFactorization
from shortlist.recommenders.unused_settings import defaults
from shortlist.scoring.sides import EmbeddingTable, ParafacSide, Side, TuckerSide, neutral_core
from shortlist.solvers.als import initial_embeddings
from shortlist.solvers.train import Embeddings


class _Parts(ModelLayout):
    """One embedding table for each part of the contexts, and one for the items."""

    composes = True

    def __init__(self, contexts: Vocabulary, items: Vocabulary) -> None:
        self.vocabularies, self.codes = parts_of(contexts.frame)
        self._items = items

    def item_side(self, parameters: list[Embeddings]) -> Side:
        return EmbeddingTable(parameters[0])

    def context_side(self, parameters: list[Embeddings]) -> Side:
        return self._side(self.codes, parameters)

    @abstractmethod
    def _side(self, codes: npt.NDArray[Any], parameters: Sequence[Embeddings]) -> Side: ...

    def average(self, parameters: list[Embeddings]) -> list[Embeddings]:
        tables, rest = self._tables(parameters)
        averages = [means(table, self.codes[:, 1 + k])[-1:] for k, table in enumerate(tables[1:])]
        return [*averages, *rest]

    def new_contexts(self, average: list[Embeddings], n: int) -> Side:
        """Return contexts with a new first part and the average of each other part."""
        codes = np.zeros((n, len(self.vocabularies)), np.int64)
        codes[:, 0] = np.arange(n)
        first = np.zeros((n, self.contexts[0][1]), np.float32)
        return self._side(codes, [first, *average])

    def new_items(self, parameters: list[Embeddings], n: int) -> Side:
        return EmbeddingTable(np.zeros((n, self.items[0][1]), np.float32))

    def codes_of_parts(self, columns: Sequence[Any]) -> npt.NDArray[np.int32]:
        return part_codes(self.vocabularies, columns)

    def compose(self, parameters: list[Embeddings], frame: pl.DataFrame) -> Embeddings:
        codes = self.codes_of_parts(frame.get_columns())
        tables, rest = self._tables(parameters)
        longer = [means(table, self.codes[:, k]) for k, table in enumerate(tables)]
        codes = np.where(codes < 0, [len(table) for table in tables], codes)  # unknown: the mean, in the last row
        return self._side(codes, [*longer, *rest]).embeddings()

    def _tables(self, parameters: Sequence[Embeddings]) -> tuple[Sequence[Embeddings], Sequence[Embeddings]]:
        """Return the tables of the parts, and the other parameters."""
        n = len(self.vocabularies)
        return parameters[:n], parameters[n:]

    def adopt(self, other: ModelLayout, source: Both, target: Both) -> None:
        assert isinstance(other, _Parts)
        for k, (ids, other_ids) in enumerate(zip(self.vocabularies, other.vocabularies)):
            copy_by_id(ids, other_ids, source[0][k], target[0][k])
        copy_by_id(self._items, other._items, source[1][0], target[1][0])


class _ParafacParts(_Parts):
    def __init__(self, contexts: Vocabulary, items: Vocabulary, dim: int) -> None:
        super().__init__(contexts, items)
        self.contexts = [(len(vocab), dim) for vocab in self.vocabularies]
        self.items = [(len(items), dim)]

    def initial(self, scale: float, seed: int) -> Both:
        first, *rest = self.contexts
        contexts = [np.zeros(first, np.float32), *(np.ones(shape, np.float32) for shape in rest)]
        return contexts, [initial_embeddings(*self.items[0], scale, seed)]

    def _side(self, codes: npt.NDArray[Any], parameters: Sequence[Embeddings]) -> Side:
        return ParafacSide(codes, list(parameters))


class _TuckerParts(_Parts):
    def __init__(self, contexts: Vocabulary, items: Vocabulary, dim: int, ranks: Sequence[int]) -> None:
        super().__init__(contexts, items)
        self.ranks = [ranks[0], *(min(ranks[1], len(vocab)) for vocab in self.vocabularies[1:])]
        self.contexts = [(len(vocab), rank) for vocab, rank in zip(self.vocabularies, self.ranks)]
        self.contexts.append((int(np.prod(self.ranks)), dim))
        self.items = [(len(items), dim)]

    def initial(self, scale: float, seed: int) -> Both:
        first, *rest, core = self.contexts
        contexts = [np.zeros(first, np.float32)]
        for k, (rows, rank) in enumerate(rest):
            table = initial_embeddings(rows, rank, float(np.sqrt(rank)), seed, stream=1 + k)  # N(0, 1)
            table[:, 0] = 1
            contexts.append(table)
        contexts.append(neutral_core(self.ranks, core[1]))
        return contexts, [initial_embeddings(*self.items[0], scale, seed)]

    def adopt(self, other: ModelLayout, source: Both, target: Both) -> None:
        assert isinstance(other, _TuckerParts)
        super().adopt(other, source, target)
        core, other_core = target[0][-1].reshape(*self.ranks, -1), source[0][-1].reshape(*other.ranks, -1)
        common = tuple(slice(0, min(a, b)) for a, b in zip(core.shape, other_core.shape))
        core[common] = other_core[common]

    def _side(self, codes: npt.NDArray[Any], parameters: Sequence[Embeddings]) -> Side:
        return TuckerSide(codes, list(parameters[:-1]), parameters[-1])


@dataclass(kw_only=True, repr=False, eq=False)
class TensorFactorization(SquareFactorization):
    """Base class of models of contexts with several parts; a subclass combines the embeddings of the parts."""

    part_strength: float = 1.0

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        super().check_settings()
        number("part_strength", self.part_strength)

    def _unused_inputs(self, interactions: Interactions, options: FitOptions) -> list[str]:
        unused = super()._unused_inputs(interactions, options)
        default = defaults(self)
        for name in ("part_strength", "part_dim") if len(interactions.contexts.names) == 1 else ():
            if name in default and getattr(self, name) != default[name]:
                unused.append(
                    f"{name}={getattr(self, name)!r} has no effect: contexts have only the part "
                    f"{interactions.contexts.names[0]!r}, and {name} is for further parts; omit {name}"
                )
        return unused

    @classmethod
    def space(cls) -> Space:
        """Return the search space of `IALS`, with `part_strength`."""
        return {**super().space(), "part_strength": Real(0.01, 100.0, log=True)}

    def _scale_ridges(self, side: Side) -> None:
        if not isinstance(side, EmbeddingTable):
            side.ridges[1:] = [np.float32(self.part_strength) * ridge for ridge in side.ridges[1:]]

    @property
    def part_embeddings_(self) -> dict[str, Embeddings]:
        """The embeddings of the ids of each part, by column name; rows are in the order of `parts_`."""
        self.require_fit()
        return dict(zip(self.contexts_.names, self._of_contexts()))

    @property
    def parts_(self) -> dict[str, Vocabulary]:
        """The ids of each part of the contexts, by column name."""
        self.require_fit()
        assert isinstance(self._layout, _Parts)
        return dict(zip(self.contexts_.names, self._layout.vocabularies))


@dataclass(kw_only=True, repr=False, eq=False)
class PARAFAC(TensorFactorization):
    """Tensor factorization with one embedding for each part of a context: ŷ(i|c) = Σ_f u_{a,f}·t_{b,f}·h_{i,f}.

    Section 5.1.2 of the article. Contexts c = (a, b) may have any number of parts: (user, weekday), (user, hour,
    country), or only one, which is the model of `IALS`. Every part has an embedding, and the embedding of a context is
    their elementwise product. Therefore unseen combinations of known parts have embeddings too, and `recommend` answers
    them. With `unknown="average"` an unknown part counts as the mean of the known ones over the training contexts.
    `fold_in` and `recommend(history=…)` solve for a new first part, with the average of each other part.

    The loss is that of `IALS` (`PointwiseSquare`) over all pairs of an observed context and an item, or with
    `loss="pairwise"` that of `RankALS` (`PairwiseSquare`). The regularizer is

        λ_a·‖u_a‖² + λ_b·‖t_b − 1‖² + λ_i·‖h_i‖²

    where λ_a is λ·(Σ of |I_c| + α₀|I| over the contexts c with part a)^ν; λ_b and λ_i are analogous. Parts after the
    first are regularized towards 1, where they have no effect: without evidence, a weekday does not matter.

    Args:
        dim: d, the length of the embeddings.
        regularization: λ; with ν = 1 try 0.001 to 0.1.
        part_strength: factor by which λ is multiplied for the parts after the first.
        unobserved_weight: α₀, the weight of every pair, in addition to the weight of observed pairs; try 0.01 to 1.
        epochs: maximum number of passes over all blocks; with a validation split `fit` may stop earlier.
        solver: `"als"`: conjugate gradients for all ids of a part at once. `"cd"`: coordinate descent.
        steps: conjugate gradient steps for each part in an epoch.
        loss: `"pointwise"` or `"pairwise"`; the pairwise loss has no α₀, no labels and no context exponent.
        regularization_exponent: ν; with 0 every id has the same λ.
        unobserved_item_exponent: see `IALS`; for the pairwise loss, ρ of the items as negatives.
        unobserved_context_exponent: see `IALS`.
        weighting: how a weight w becomes the strength of a pair: 1 for `"binary"`, log₂(1 + w) for `"log"`, w for
            `"raw"`.
        strength_as: whether the strength is the pair's `"weight"` α or its `"label"` y.
        observed_weight: α of a pair of strength 1.
        convention: `"added"` or `"total"`, see `IALS`.
        init_scale: start values of items are N(0, (init_scale/√d)²); the first part starts at 0, the others at 1.
        seed: seed of the start values; the same seed gives the same model with any number of threads.

    >>> from shortlist import Interactions
    >>> events = Interactions.from_frame(
    ...     {"user": ["ann", "ann", "bob", "bob"], "day": ["Sat", "Mon", "Sat", "Mon"],
    ...      "product": ["jam", "tea", "jam", "ink"]},
    ...     context=["user", "day"], item="product")
    >>> model = PARAFAC(dim=4, epochs=5).fit(events)
    >>> model.recommend([("ann", "Mon")], n=1, exclude_seen=False).ids
    [['tea']]
    """

    def _layout_for(self, contexts: Vocabulary, items: Vocabulary, by_context: SparseRows) -> ModelLayout:
        return _ParafacParts(contexts, items, int(self.dim))


@dataclass(kw_only=True, repr=False, eq=False)
class Tucker(TensorFactorization):
    """Tensor factorization with a core: ŷ(i|c) = Σ core_{k,l,f}·u_{a,k}·t_{b,l}·h_{i,f} for contexts c = (a, b).

    Section 5.1.2 of the article. Like `PARAFAC`, but with a core tensor that combines the embeddings of the parts. The
    parts may have embeddings of different lengths: a weekday with a few numbers can change all of a user's embedding.

    Loss, unknown parts, `fold_in` and other settings are those of `PARAFAC`. The core is regularized with λ·(Σ of
    |I_c| + α₀|I| over all contexts)^ν times `part_strength`, towards the core that uses only the first part. The parts
    after the first are regularized towards (1, 0, …, 0). Without evidence the model is matrix factorization.

    Args:
        dim: d, the length of the item embeddings.
        first_dim: the length of the embeddings of the first part; 0: d.
        part_dim: the length of the embeddings of each other part, capped at its number of ids.
        init_scale: start values of items are N(0, (init_scale/√d)²). The first part starts at 0, each other part at 1
            in its first coordinate and N(0, 1) in the others, and the core at the value it is regularized towards.

    >>> from shortlist import Interactions
    >>> events = Interactions.from_frame(
    ...     {"user": ["ann", "ann", "bob", "bob"], "day": ["Sat", "Mon", "Sat", "Mon"],
    ...      "product": ["jam", "tea", "jam", "ink"]},
    ...     context=["user", "day"], item="product")
    >>> model = Tucker(dim=4, part_dim=2, epochs=5).fit(events)
    >>> model.recommend([("bob", "Mon")], n=1, exclude_seen=False).ids
    [['ink']]
    """

    first_dim: int = 0
    part_dim: int = 4

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        super().check_settings()
        integer("first_dim", self.first_dim, least=0)
        integer("part_dim", self.part_dim)

    @classmethod
    def space(cls) -> Space:
        """Return the search space of `PARAFAC`, with `part_dim`."""
        return {**super().space(), "part_dim": Choice(2, 4, 8)}

    @property
    def core_(self) -> npt.NDArray[np.float32]:
        """The core, k₁ × k₂ × … × d."""
        self.require_fit()
        assert isinstance(self._layout, _TuckerParts)
        return self._of_contexts()[-1].reshape(*self._layout.ranks, -1)

    def _layout_for(self, contexts: Vocabulary, items: Vocabulary, by_context: SparseRows) -> ModelLayout:
        ranks = (int(self.first_dim) or int(self.dim), int(self.part_dim))
        return _TuckerParts(contexts, items, int(self.dim), ranks)
