"""Tensor factorizations: contexts of several parts, such as (user, weekday)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import number, whole
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Vocabulary
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.multilinear_model import Both, ModelLayout, by_ids, means, part_codes, parts_of
from shortlist.recommenders.search_space import Choice, Real, Space
from shortlist.recommenders.square_factorization import SquareFactorization
from shortlist.recommenders.unused_settings import defaults
from shortlist.scoring.sides import EmbeddingTable, ParafacSide, Side, TuckerSide, neutral_core
from shortlist.solvers.als import initial_embeddings
from shortlist.solvers.epochs import Embeddings


class _Parts(ModelLayout):
    """Contexts of several parts, each with a table; items with one."""

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
        """A first part that nobody has yet, with the average of each other part."""
        codes = np.zeros((n, len(self.vocabularies)), np.int64)
        codes[:, 0] = np.arange(n)
        first = np.zeros((n, self.contexts[0][1]), np.float32)
        return self._side(codes, [first, *average])

    def new_items(self, parameters: list[Embeddings], n: int) -> Side:
        return EmbeddingTable(np.zeros((n, self.items[0][1]), np.float32))

    def asked(self, columns: Sequence[Any]) -> npt.NDArray[np.int32]:
        return part_codes(self.vocabularies, columns)

    def composed(self, parameters: list[Embeddings], frame: pl.DataFrame) -> Embeddings:
        codes = self.asked(frame.get_columns())
        tables, rest = self._tables(parameters)
        longer = [means(table, self.codes[:, k]) for k, table in enumerate(tables)]
        codes = np.where(codes < 0, [len(table) for table in tables], codes)  # who is not known: the mean, behind them
        return self._side(codes, [*longer, *rest]).embeddings()

    def _tables(self, parameters: Sequence[Embeddings]) -> tuple[Sequence[Embeddings], Sequence[Embeddings]]:
        """The tables of the parts, and what else there is."""
        n = len(self.vocabularies)
        return parameters[:n], parameters[n:]

    def adopt(self, other: ModelLayout, theirs: Both, own: Both) -> None:
        assert isinstance(other, _Parts)
        for k, (ours, known) in enumerate(zip(self.vocabularies, other.vocabularies)):
            by_ids(ours, known, theirs[0][k], own[0][k])
        by_ids(self._items, other._items, theirs[1][0], own[1][0])


class _ParafacParts(_Parts):
    def __init__(self, contexts: Vocabulary, items: Vocabulary, dim: int) -> None:
        super().__init__(contexts, items)
        self.contexts = [(len(one), dim) for one in self.vocabularies]
        self.items = [(len(items), dim)]

    def initial(self, scale: float, seed: int) -> Both:
        first, *others = self.contexts
        contexts = [np.zeros(first, np.float32), *(np.ones(shape, np.float32) for shape in others)]
        return contexts, [initial_embeddings(*self.items[0], scale, seed)]

    def _side(self, codes: npt.NDArray[Any], parameters: Sequence[Embeddings]) -> Side:
        return ParafacSide(codes, list(parameters))


class _TuckerParts(_Parts):
    def __init__(self, contexts: Vocabulary, items: Vocabulary, dim: int, ranks: Sequence[int]) -> None:
        super().__init__(contexts, items)
        self.ranks = [ranks[0], *(min(ranks[1], len(one)) for one in self.vocabularies[1:])]
        self.contexts = [(len(one), rank) for one, rank in zip(self.vocabularies, self.ranks)]
        self.contexts.append((int(np.prod(self.ranks)), dim))
        self.items = [(len(items), dim)]

    def initial(self, scale: float, seed: int) -> Both:
        first, *others, core = self.contexts
        contexts = [np.zeros(first, np.float32)]
        for k, (rows, rank) in enumerate(others):
            table = initial_embeddings(rows, rank, float(np.sqrt(rank)), seed, stream=1 + k)  # N(0, 1)
            table[:, 0] = 1
            contexts.append(table)
        contexts.append(neutral_core(self.ranks, core[1]))
        return contexts, [initial_embeddings(*self.items[0], scale, seed)]

    def adopt(self, other: ModelLayout, theirs: Both, own: Both) -> None:
        assert isinstance(other, _TuckerParts)
        super().adopt(other, theirs, own)
        mine, there = own[0][-1].reshape(*self.ranks, -1), theirs[0][-1].reshape(*other.ranks, -1)
        common = tuple(slice(0, min(a, b)) for a, b in zip(mine.shape, there.shape))
        mine[common] = there[common]

    def _side(self, codes: npt.NDArray[Any], parameters: Sequence[Embeddings]) -> Side:
        return TuckerSide(codes, list(parameters[:-1]), parameters[-1])


@dataclass(kw_only=True, repr=False, eq=False)
class TensorFactorization(SquareFactorization):
    """Contexts of several parts; a recommender adds how their embeddings are combined."""

    part_strength: float = 1.0

    def _check(self) -> None:
        super()._check()
        number("part_strength", self.part_strength)

    def _unused_on(self, interactions: Interactions, options: FitOptions) -> list[str]:
        unused = super()._unused_on(interactions, options)
        usual = defaults(self)
        for name in ("part_strength", "part_dim") if len(interactions.contexts.names) == 1 else ():
            if name in usual and getattr(self, name) != usual[name]:
                unused.append(
                    f"{name} is {getattr(self, name)!r}, which changes nothing: it is for the parts of a context after "
                    f"the first, and contexts have the one part {interactions.contexts.names[0]!r}"
                )
        return unused

    @classmethod
    def space(cls) -> Space:
        """That of `IALS`, and how freely the parts after the first move."""
        return {**super().space(), "part_strength": Real(0.01, 100.0, log=True)}

    def _scale_ridges(self, side: Side) -> None:
        if not isinstance(side, EmbeddingTable):
            side.ridges[1:] = [np.float32(self.part_strength) * one for one in side.ridges[1:]]

    @property
    def part_embeddings_(self) -> dict[str, Embeddings]:
        """For each part of a context, by its column's name, the embeddings of its ids, in the order of `parts_`."""
        self._require_fit()
        return dict(zip(self.contexts_.names, self._of_contexts()))

    @property
    def parts_(self) -> dict[str, Vocabulary]:
        """For each part of a context, by its column's name, its ids."""
        self._require_fit()
        assert isinstance(self._layout, _Parts)
        return dict(zip(self.contexts_.names, self._layout.vocabularies))


@dataclass(kw_only=True, repr=False, eq=False)
class PARAFAC(TensorFactorization):
    """ŷ(i|c) = Σ_f u_{a,f}·t_{b,f}·h_{i,f} for contexts c = (a, b): a factor for each part (section 5.1.2).

    A context may have any number of parts: (user, weekday), (user, hour, country), or one, and then this is `IALS`.
    Every part has an embedding, and that of a context is their product, coordinate by coordinate. So a combination that
    was never seen has one too: `recommend` answers it. A part that was never seen counts, with `unknown="average"`, as
    the mean of the known ones over the training contexts. `fold_in` and `recommend(history=…)` solve for a new first
    part beside the average of each other part.

    It minimises the loss of `IALS` (`PointwiseSquare`) over all pairs of a context that occurs and an item, or with
    `loss="pairwise"` that of `RankALS` (`PairwiseSquare`), with

        λ_a·‖u_a‖² + λ_b·‖t_b − 1‖² + λ_i·‖h_i‖²

    where λ of a part is λ·(Σ of |I_c| + α₀|I| over the contexts c that have it)^ν, and likewise for items. Parts after
    the first are drawn towards 1, the value at which they change nothing: without evidence, a weekday does not matter.

    Args:
        dim: d, the length of the embeddings.
        regularization: λ; with ν = 1 try 0.001 to 0.1.
        part_strength: λ of the parts after the first is this many times as large.
        unobserved_weight: α₀, the weight of every pair beside what observed pairs have; try 0.01 to 1.
        epochs: passes over all blocks, at most: `fit` may stop earlier where it has a validation split.
        solver: `"als"`: each part's embeddings by conjugate gradients, all ids of a part at once. `"cd"`: coordinate
            descent, one number of each at a time.
        steps: of conjugate gradients, for each part in an epoch.
        loss: `"pointwise"` or `"pairwise"`, which knows no α₀, no labels and no exponent of contexts.
        regularization_exponent: ν; 0 is the same λ for every id.
        unobserved_item_exponent: see `IALS`; for the pairwise loss, ρ of the items as negatives.
        unobserved_context_exponent: see `IALS`, as for the next four.
        weighting: the strength of a pair with weight w: `"binary"` 1, `"log"` log₂(1 + w), `"raw"` w.
        strength_as: whether the strength is the pair's `"weight"` α or its `"label"` y.
        observed_weight: α of a pair of strength 1.
        convention: `"added"` or `"total"`.
        init_scale: start values of items are N(0, (init_scale/√d)²); the first part starts at 0, the others at 1.
        seed: of the start values; the same seed gives the same model at any number of threads.

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
    """ŷ(i|c) = Σ core_{k,l,f}·u_{a,k}·t_{b,l}·h_{i,f} for contexts c = (a, b) (section 5.1.2 of the article).

    Like `PARAFAC`, with a tensor in the middle, the core, which says how coordinates of the parts go together: the
    parts may have embeddings of different lengths, and a weekday with a few numbers can turn a user's taste as a whole.

    Loss, unknown parts, `fold_in` and arguments are those of `PARAFAC`, with these differences: the core has λ·(Σ of
    |I_c| + α₀|I| over all contexts)^ν times `part_strength`, and is drawn towards the one with which only the first
    part counts, as the other parts are towards (1, 0, …, 0): without evidence this is matrix factorization.

    Args:
        dim: d, the length of the items' embeddings.
        first_dim: the length of those of the first part; 0: d.
        part_dim: the length of those of each other part, at most as many as it has ids.
        init_scale: start values of items are N(0, (init_scale/√d)²); the first part starts at 0, each other part at 1
            in its first coordinate and at N(0, 1) in the others, and the core where it is drawn to.

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

    def _check(self) -> None:
        super()._check()
        whole("first_dim", self.first_dim, least=0)
        whole("part_dim", self.part_dim)

    @classmethod
    def space(cls) -> Space:
        """That of `PARAFAC`, and the length of the other parts."""
        return {**super().space(), "part_dim": Choice(2, 4, 8)}

    @property
    def core_(self) -> npt.NDArray[np.float32]:
        """The core, k₁ × k₂ × … × d."""
        self._require_fit()
        assert isinstance(self._layout, _TuckerParts)
        return self._of_contexts()[-1].reshape(*self._layout.ranks, -1)

    def _layout_for(self, contexts: Vocabulary, items: Vocabulary, by_context: SparseRows) -> ModelLayout:
        ranks = (int(self.first_dim) or int(self.dim), int(self.part_dim))
        return _TuckerParts(contexts, items, int(self.dim), ranks)
