"""Base class of recommenders whose embeddings are built from several blocks of parameters."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import integer, one_of
from shortlist._kernel_views import for_kernels
from shortlist._phrases import n_of
from shortlist._wording import Message
from shortlist.data.id_lists import as_list
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Codes, Id, Unknown, Vocabulary, distinct, rows_at
from shortlist.errors import SettingError, UnknownIdError
from shortlist.objectives.pairwise_square import PairwiseSquare
from shortlist.objectives.pointwise_square import PointwiseSquare
from shortlist.ranking.inputs import ANY, Advice, History, as_rows, check_unknown
from shortlist.ranking.queries import Queries, QueryLabels
from shortlist.recommenders.base import FLOAT32_MAX, largest_of
from shortlist.recommenders.dot_product import DotProduct, longest
from shortlist.recommenders.factorization import Factorization
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.fit_progress import Monitor
from shortlist.recommenders.warm_start import checked_start, require_known_items
from shortlist.scoring.sides import Side, packed_size, ridge_of, unpacked
from shortlist.solvers import multilinear_als as solver
from shortlist.solvers.multilinear_als import Method
from shortlist.solvers.multilinear_fold_in import MultilinearFoldIn
from shortlist.solvers.quadratic import IndependentRows
from shortlist.solvers.square_losses import Sizes, SquareLoss, square_loss
from shortlist.solvers.train import Embeddings, EmbeddingTrainer

Shapes: TypeAlias = list[tuple[int, int]]
_STEEPEST = 1e30  # largest allowed curvature of a row's system in folding in
Both: TypeAlias = tuple[list[Embeddings], list[Embeddings]]  # parameters of contexts and of items


class ModelLayout(ABC):
    """The parameters of a model for given ids, and how embeddings are computed from them.

    Attributes:
        contexts: the shapes of the contexts' parameters, in the order in which they are packed.
        items: the shapes of the items' parameters.
        context_rows: codes of the contexts that are trained; None: all.
        item_rows: codes of the items that are trained; None: all.
    """

    contexts: Shapes
    items: Shapes
    context_rows: npt.NDArray[np.int64] | None = None
    item_rows: npt.NDArray[np.int64] | None = None
    composes: ClassVar[bool] = False  # whether embeddings of contexts are composed of those of their parts

    @abstractmethod
    def initial(self, scale: float, seed: int) -> Both:
        """Return start values of the parameters of both sides."""

    @abstractmethod
    def adopt(self, other: ModelLayout, source: Both, target: Both) -> None:
        """Copy the parameters of equal ids from another model of this type, with at most as many dimensions."""

    @abstractmethod
    def context_side(self, parameters: list[Embeddings]) -> Side:
        """Return the side of the trained contexts."""

    @abstractmethod
    def item_side(self, parameters: list[Embeddings]) -> Side:
        """Return the side of the trained items."""

    def context_embeddings(self, parameters: list[Embeddings]) -> Embeddings:
        """Return the embeddings of all contexts."""
        return self.context_side(parameters).embeddings()

    def item_embeddings(self, parameters: list[Embeddings]) -> Embeddings:
        """Return the embeddings of all items."""
        return self.item_side(parameters).embeddings()

    @abstractmethod
    def average(self, parameters: list[Embeddings]) -> list[Embeddings]:
        """Return the average parameters that a new context has in addition to those solved from its history."""

    @abstractmethod
    def new_contexts(self, average: list[Embeddings], n: int) -> Side:
        """Return a side of n new contexts with these average parameters; folding in solves for its last block."""

    @abstractmethod
    def new_items(self, parameters: list[Embeddings], n: int) -> Side:
        """Return a side of n new items; folding in solves for its last block."""

    def codes_of_parts(self, columns: Sequence[Any]) -> npt.NDArray[np.int32]:
        """Return the codes of the parts of contexts, contexts × parts, from one column per part; −1 for unknown."""
        raise NotImplementedError

    def compose(self, parameters: list[Embeddings], frame: pl.DataFrame) -> Embeddings:
        """Return embeddings of contexts that are not in the training data, from their parts."""
        raise NotImplementedError


@dataclass(kw_only=True, repr=False, eq=False)
class MultilinearModel(Factorization):
    """ŷ(i|c) = ⟨φ(c), ψ(i)⟩ with φ and ψ linear in each of several blocks of parameters, under a square loss.

    `context_parameters_` and `item_parameters_` are the learned parameters, each packed into one column; the embeddings
    are computed from them.
    """

    _arrays: ClassVar[tuple[str, ...]] = ("context_parameters_", "item_parameters_")
    _on_first_use: ClassVar[dict[str, str]] = DotProduct._on_first_use | dict.fromkeys(
        (
            *("_layout", "_loss", "_item_order", "_folding_contexts", "_folding_items"),
            *("context_embeddings_", "_trained_contexts", "item_embeddings_", "_folded_items", "_trained_items"),
        ),
        "_compute_embeddings",
    )

    solver: str = "als"
    steps: int = 3

    _solvers: ClassVar[tuple[str, ...]] = ("als", "cd")

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        super().check_settings()
        one_of("solver", self.solver, self._solvers)
        integer("steps", self.steps)
        self.objective()

    def unused_settings(self) -> dict[str, str]:
        """Return the settings that have no effect given the other settings, as {name: reason}."""
        unused = super().unused_settings()
        if self.solver == "cd":
            unused["steps"] = "with solver='cd', only with conjugate gradients"
        return unused

    # --- what a recommender defines ----------------------------------------------------------------------------------

    @abstractmethod
    def objective(self) -> PointwiseSquare | PairwiseSquare:
        """Return the loss that `fit` minimises."""

    @abstractmethod
    def _layout_for(self, contexts: Vocabulary, items: Vocabulary, by_context: SparseRows) -> ModelLayout:
        """Return the layout for these ids."""

    # --- learning ----------------------------------------------------------------------------------------------------

    def learn(self, interactions: Interactions, options: FitOptions, monitor: Monitor) -> None:
        """Learn from interactions."""
        fresh = copy.copy(self)  # a fit that fails must leave the model unchanged
        fresh._prepare(interactions, options)
        super(MultilinearModel, fresh).learn(interactions, options, monitor)
        self.__dict__.update(fresh.__dict__)

    def _prepare(self, interactions: Interactions, options: FitOptions) -> None:
        self._layout = self._layout_for(interactions.contexts, interactions.items, interactions.by_context)

    def _precompute(self, by_context: SparseRows) -> SquareLoss:
        return square_loss(self.objective(), _trained(by_context, self._layout))

    def _shapes(self, interactions: Interactions) -> tuple[tuple[int, int], tuple[int, int]]:
        return (packed_size(self._layout.contexts), 1), (packed_size(self._layout.items), 1)

    def _start(
        self, interactions: Interactions, prepared: SquareLoss, start: DotProduct | None, threads: int | None
    ) -> tuple[Embeddings, Embeddings]:
        parameters = self._layout.initial(self.init_scale, self.seed)
        if start is not None:
            assert isinstance(start, MultilinearModel)
            require_known_items(start, interactions)
            self._layout.adopt(start._layout, (start._of_contexts(), start._of_items()), parameters)
        contexts, items = (np.concatenate([block.reshape(-1, 1) for block in side]) for side in parameters)
        return contexts, items

    def _checked_start(self, start: object) -> DotProduct:
        if not isinstance(start, type(self)):
            raise SettingError(
                f"start is {start!r:.80}; expected a fitted recommender of the same type, {type(self).__name__}",
                field="start",
            )
        return checked_start(start, self.dim)

    def _trainer(
        self,
        interactions: Interactions,
        prepared: SquareLoss,
        contexts: Embeddings | None,
        items: Embeddings,
        threads: int | None,
        epochs: int,
    ) -> EmbeddingTrainer:
        assert contexts is not None
        layout = self._layout
        all_trained = prepared.by_context is interactions.by_context
        loss = prepared.for_training(interactions.by_item if all_trained else None, threads)
        sides = (
            layout.context_side(unpacked(contexts, layout.contexts)),
            layout.item_side(unpacked(items, layout.items)),
        )
        for side, sizes in zip(sides, loss.sizes):
            side.threads = threads
            side.regularize(sizes, self.regularization, self.regularization_exponent)  # type: ignore[attr-defined]
            self._scale_ridges(side)
        return self._trainer_over(loss, *sides)

    def _trainer_over(self, loss: SquareLoss, contexts: Side, items: Side) -> EmbeddingTrainer:
        method: Method = "cd" if self.solver == "cd" else "als"
        return solver.MultilinearAlternation(loss, contexts, items, method, int(self.steps))

    def _scale_ridges(self, side: Side) -> None:
        """Scale the λ of some parameters, if a setting of a subclass requires it."""

    def _set_contexts(self, contexts: Embeddings) -> None:
        self.context_parameters_ = contexts
        self.context_embeddings_ = self._layout.context_embeddings(self._of_contexts())  # type: ignore[misc]
        rows = self._layout.context_rows
        self._trained_contexts = self.context_embeddings_ if rows is None else self.context_embeddings_[rows]
        self._folding_contexts: MultilinearFoldIn | None = None
        self._folding_items: MultilinearFoldIn | None = None

    def _set_items(self, items: Embeddings, prepared: SquareLoss) -> None:
        self.item_parameters_ = items
        self.item_embeddings_ = self._layout.item_embeddings(self._of_items())  # type: ignore[misc]
        # Histories may contain cold items, which are known by their features only; they come after the trained items.
        trained = self._layout.item_rows
        self._item_order, self._folded_items = trained, self.item_embeddings_
        if trained is not None:
            cold = np.setdiff1d(np.flatnonzero(self.item_embeddings_.any(axis=1)), trained)
            self._item_order = np.concatenate([trained, cold])
            self._folded_items = self.item_embeddings_[self._item_order]
        self._trained_items = self._folded_items if trained is None else self._folded_items[: len(trained)]
        self._loss = prepared
        self._folding_contexts = self._folding_items = None

    def _of_contexts(self) -> list[Embeddings]:
        return unpacked(for_kernels(self.context_parameters_), self._layout.contexts)

    def _of_items(self) -> list[Embeddings]:
        return unpacked(for_kernels(self.item_parameters_), self._layout.items)

    # --- new contexts and items ---------------------------------------------------------------------------------------

    def _fold_in(self, histories: SparseRows, threads: int | None = None) -> Embeddings:
        """Solve for the last block of the contexts for these rows.

        Rows without any item that has an embedding are 0, which means the popular items.
        """
        loss, sizes = self._fold_in_loss(histories, threads)
        folding = self._folding_contexts
        if folding is None:
            layout = self._layout
            side = layout.new_contexts(layout.average(self._of_contexts()), layout.contexts[0][1])
            folding = self._folding_contexts = MultilinearFoldIn(side, loss.other, loss.G)
        return self._solve(folding, loss, sizes, threads)

    def _fold_in_loss(self, histories: SparseRows, threads: int | None = None) -> tuple[IndependentRows, Sizes]:
        return self._loss.of_new_contexts(_columns(histories, self._item_order), self._folded_items, threads)

    def _fold_in_items(self, rows: SparseRows, threads: int | None = None) -> Embeddings:
        """Solve for the last block of the items for these rows."""
        layout = self._layout
        Phi, rows = self._trained_contexts, _columns(rows, layout.context_rows)
        loss, sizes = self._loss.of_new_items(rows, Phi, self._trained_items, threads)
        folding = self._folding_items
        if folding is None:
            side = layout.new_items(self._of_items(), layout.items[0][1])
            folding = self._folding_items = MultilinearFoldIn(side, Phi, loss.G)
        return self._solve(folding, loss, sizes, threads)

    def _solve(
        self, folding: MultilinearFoldIn, loss: IndependentRows, sizes: Sizes, threads: int | None
    ) -> Embeddings:
        ridge = ridge_of(sizes, self.regularization, self.regularization_exponent)  # type: ignore[attr-defined]
        embeddings = folding(loss, ridge[:, 0], threads)
        embeddings[loss.rows.lengths == 0] = 0
        curvature = loss.rows.sums(loss.quad) * folding.largest
        embeddings[curvature > _STEEPEST] = np.nan  # conjugate gradients may have overflowed float32 on the way
        return embeddings

    # --- contexts of several parts -----------------------------------------------------------------------------------

    def queries(
        self,
        contexts: Iterable[Id] | None = None,
        history: History | None = None,
        *,
        unknown: Unknown = "raise",
        advice: Advice = ANY,
    ) -> Queries:
        """Return queries in codes; contexts may be unseen combinations of known parts."""
        self.require_fit()
        if not self.composes_contexts:
            check_unknown(unknown)
        one_of("unknown", unknown, ("raise", "skip", "average"))
        if unknown == "average" and history is not None:
            raise SettingError(
                "unknown is 'average', which is for parts of contexts, not for a history; expected 'raise' or 'skip'",
                field="unknown",
            )
        single = isinstance(contexts, str | bytes | int | np.integer | tuple)  # a mistake, reported by super()
        if contexts is None or history is not None or single or not self.composes_contexts:
            unknown = "raise" if unknown == "average" else unknown
            return super().queries(contexts, history, unknown=unknown, advice=advice)
        ids = as_list(as_rows(contexts, self.contexts_, "contexts"), "a list of contexts", "contexts")
        codes = self.contexts_.encode(ids, unknown="mark")
        parts = self._layout.codes_of_parts(_columns_of(ids, len(self.contexts_.names)))
        known = np.asarray((parts >= 0).any(axis=1) if unknown == "average" else (parts >= 0).all(axis=1))
        known |= codes >= 0
        if unknown != "skip" and not known.all():
            raise self._unknown_parts(ids, parts, known, unknown, advice)
        answered = [id_ for id_, kept in zip(ids, known) if kept]
        skipped = [id_ for id_, kept in zip(ids, known) if not kept]
        codes = codes[known]
        labels = ContextLabels(self.contexts_, np.arange(len(answered), dtype=np.int32), answered)
        return Queries(labels, codes, self.histories_of(codes), known, skipped)

    @property
    def composes_contexts(self) -> bool:
        """Whether the model answers unseen combinations of known parts of contexts."""
        return self._layout.composes and self.contexts_.is_tuple

    def _unknown_parts(
        self, ids: list[Id], parts: npt.NDArray[Any], known: npt.NDArray[np.bool_], unknown: Unknown, advice: Advice
    ) -> UnknownIdError:
        k = int(np.argmin(known))
        names, example = self.contexts_.names, self.contexts_.id_of(0)
        first, n_unknown = ids[k], int((~known).sum())
        of_all = f"{n_unknown:,} of {len(known):,} contexts"
        if not isinstance(first, tuple) or len(first) != len(names):
            return UnknownIdError(
                f"unknown context {first!r} ({n_of(n_unknown, len(known), 'context')} not known); expected tuples like "
                f"{example!r}",
                code="unknown-context",
            )
        wrong = [f"{name} {value!r}" for name, value, code in zip(names, first, parts[k]) if code < 0]
        way_out = advice.contexts
        if unknown == "raise":
            way_out = Message("{}, or {unknown} to use the average for unknown parts", way_out, unknown="average")
        has = "has" if n_unknown == 1 else "have"
        which = "no known part" if unknown == "average" else "an unknown part"
        return UnknownIdError(
            f"unknown context {first!r} ({of_all} {has} {which}, here {' and '.join(wrong)}; contexts look like "
            f"{example!r})",
            code="unknown-context",
            hint=way_out,
        )

    def context_codes(self, contexts: pl.DataFrame) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """Return the codes of contexts, −1 for new ones; those with a known part can be answered."""
        codes, known = super().context_codes(contexts)
        new = np.flatnonzero(~known)
        if len(new) and self.composes_contexts:
            known[new] = (self._layout.codes_of_parts(rows_at(contexts, new).get_columns()) >= 0).any(axis=1)
        return codes, known

    def encode(self, queries: Queries, threads: int | None = None) -> Embeddings:
        """Return the embeddings of queries; those of unseen combinations are composed of their parts."""
        codes = queries.codes
        if codes is None or not (codes < 0).any():
            return super().encode(queries, threads)
        embeddings = self.context_embeddings_[codes]
        new = np.flatnonzero(codes < 0)
        embeddings[new] = self._layout.compose(self._of_contexts(), rows_at(queries.labels.frame(), new))
        return embeddings

    # --- storage -----------------------------------------------------------------------------------------------------

    def _check_arrays(self) -> None:
        for name in self._arrays:
            self._require_shape(name, (len(getattr(self, name)), 1))

    def _compute_embeddings(self) -> None:
        """Compute the embeddings of a loaded model from its parameters."""
        self._layout = self._layout_for(self.contexts_, self.items_, self.seen_)
        self._require_shape("context_parameters_", (packed_size(self._layout.contexts), 1))
        self._require_shape("item_parameters_", (packed_size(self._layout.items), 1))
        with np.errstate(over="ignore", invalid="ignore"):
            self._set_contexts(self.context_parameters_)
            self._set_items(self.item_parameters_, self._precompute(self.seen_))

    def _largest(self) -> float:
        strongest = self._strongest(self._loss.objective.weighting)
        largest = largest_of(super()._largest(), strongest * longest(self.item_embeddings_) ** 2)
        if not largest <= FLOAT32_MAX:
            return largest  # the systems below would overflow
        # A context that had every item has the largest numbers that can occur in an answer.
        n = len(self.items_)
        everything = SparseRows(np.array([0, n], np.int64), np.arange(n, dtype=np.int32), None, n)
        quadratic, sizes = self._fold_in_loss(everything)
        ridge = ridge_of(sizes, self.regularization, self.regularization_exponent)  # type: ignore[attr-defined]
        steepest = min(float(np.abs(quadratic.slope(self._trained_items[:1])).max()), 1e100)
        summed = self._trained_items.shape[1] * steepest**2  # conjugate gradients sum the squares of a gradient
        return largest_of(largest, summed, float(ridge.max()))


def _trained(by_context: SparseRows, layout: ModelLayout) -> SparseRows:
    """Return the observed pairs of the trained contexts and items."""
    rows = by_context if layout.context_rows is None else by_context.take(layout.context_rows)
    return _columns(rows, layout.item_rows)


def _columns(rows: SparseRows, chosen: npt.NDArray[np.int64] | None) -> SparseRows:
    """Return the rows with only these columns, in this order."""
    if chosen is None:
        return rows
    place = np.full(rows.n_columns, -1, np.int32)
    place[chosen] = np.arange(len(chosen))
    moved = replace(rows, indices=place[rows.indices], n_columns=len(chosen))
    keep = moved.indices >= 0
    return moved if keep.all() else moved.keep(keep)


def copy_by_id(ids: Vocabulary, source_ids: Vocabulary, source: Embeddings, target: Embeddings) -> None:
    """Copy the rows of ids that both sides have, in the columns that both have."""
    codes = source_ids.encode(ids.frame, unknown="mark")
    width = min(source.shape[1], target.shape[1])
    target[codes >= 0, :width] = source[codes[codes >= 0], :width]


def means(table: npt.NDArray[np.float32], codes: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return the table with one more row: the mean of its rows at these codes."""
    counts = np.bincount(codes, minlength=len(table)).astype(np.float64)
    mean = counts @ table / max(1.0, counts.sum())
    return np.concatenate([table, mean[None].astype(np.float32)])


def parts_of(frame: pl.DataFrame) -> tuple[list[Vocabulary], npt.NDArray[np.int32]]:
    """Return the ids of each part of contexts, in order of first occurrence, and the codes of all contexts."""
    vocabularies = [Vocabulary(distinct(column.to_frame())) for column in frame.get_columns()]
    codes = [vocab.encode(column) for vocab, column in zip(vocabularies, frame.get_columns())]
    return vocabularies, np.stack(codes, axis=1)


def part_codes(vocabularies: Sequence[Vocabulary], columns: Sequence[Any]) -> npt.NDArray[np.int32]:
    """Return the codes of the parts of contexts, contexts × parts, from one column per part; −1 for unknown parts."""
    return np.stack([vocab.encode(column, unknown="mark") for vocab, column in zip(vocabularies, columns)], axis=1)


def _columns_of(ids: list[Id], width: int) -> list[list[Any]]:
    """Return one column per part of the contexts; an id that does not have `width` parts is None in all of them."""
    rows = [id_ if isinstance(id_, tuple) and len(id_) == width else (None,) * width for id_ in ids]
    return [[row[k] for row in rows] for k in range(width)]


@dataclass(frozen=True, eq=False)
class ContextLabels(QueryLabels):
    """Labels of contexts as the user passed them; their parts may have other types than the known ids."""

    given: list[Id]

    def ids(self) -> list[Id]:
        """Return the ids as they were passed."""
        return [self.given[code] for code in self.codes.tolist()]

    def frame(self) -> pl.DataFrame:
        """Return a frame with the types of the known contexts; parts of other types are null."""
        assert self.vocabulary is not None
        schema = self.vocabulary.frame.schema
        columns = _columns_of(self.ids(), len(schema))
        return pl.DataFrame([_series(name, values, dtype) for values, (name, dtype) in zip(columns, schema.items())])


def _series(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    kind = str if dtype == pl.String else int | np.integer
    valid = [value if isinstance(value, kind) and not isinstance(value, bool) else None for value in values]
    return pl.Series(name, valid, pl.String if dtype == pl.String else pl.Int128).cast(dtype, strict=False)
