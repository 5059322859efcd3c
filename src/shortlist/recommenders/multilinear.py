"""Recommenders whose embeddings are made of several blocks of parameters: what they share."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._settings import one_of, whole
from shortlist.data.interactions import Interactions
from shortlist.data.rows import Rows
from shortlist.data.vocabulary import Codes, Id, Unknown, Vocabulary, is_id
from shortlist.errors import SettingError, StorageError
from shortlist.objectives.pairwise_square import PairwiseSquare
from shortlist.objectives.pointwise import PointwiseSquare
from shortlist.recommenders.answers import Labels
from shortlist.recommenders.base import History, Queries, as_list
from shortlist.recommenders.dot_product import DotProduct, longest
from shortlist.recommenders.factorization import Factorization
from shortlist.recommenders.plan import Plan
from shortlist.recommenders.progress import Monitor
from shortlist.recommenders.warm_start import checked_start, refuse_strangers
from shortlist.scoring import DotProductScorer
from shortlist.scoring.multilinear import Side, packed_size, unpacked
from shortlist.solvers import multilinear as solver
from shortlist.solvers.epochs import Embeddings, Loop
from shortlist.solvers.multilinear import Method
from shortlist.solvers.square_losses import SquareLoss, square_loss

Shapes: TypeAlias = list[tuple[int, int]]
Both: TypeAlias = tuple[list[Embeddings], list[Embeddings]]  # parameters of contexts and of items


class Structure(ABC):
    """How a model's embeddings are made, for given ids: which parameters there are, and the sides they make.

    Attributes:
        contexts: the shapes of the contexts' parameters, in the order in which they are packed.
        items: likewise of the items'.
        context_rows: the contexts that are learnt from, None for all; likewise `item_rows`.
        item_rows: see `context_rows`.
    """

    contexts: Shapes
    items: Shapes
    context_rows: npt.NDArray[np.int64] | None = None
    item_rows: npt.NDArray[np.int64] | None = None
    composes: ClassVar[bool] = False  # whether contexts of several parts are made of these

    @abstractmethod
    def initial(self, scale: float, seed: int) -> Both:
        """Start values of the parameters of both sides."""

    @abstractmethod
    def adopt(self, other: Structure, theirs: Both, own: Both) -> None:
        """Put parameters of a like model, of as many dimensions or fewer, into `own` wherever the ids are the same."""

    @abstractmethod
    def context_side(self, parameters: list[Embeddings]) -> Side:
        """The contexts that are learnt from."""

    @abstractmethod
    def item_side(self, parameters: list[Embeddings]) -> Side:
        """The items that are learnt from."""

    def context_embeddings(self, parameters: list[Embeddings]) -> Embeddings:
        """Of all contexts."""
        return self.context_side(parameters).embeddings()

    def item_embeddings(self, parameters: list[Embeddings]) -> Embeddings:
        """Of all items."""
        return self.item_side(parameters).embeddings()

    @abstractmethod
    def strangers(self, parameters: list[Embeddings], n: int) -> Side:
        """So many contexts of which nothing is known but a history: the last block of this side is to be solved for."""

    def asked(self, frame: pl.DataFrame) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """The codes of the parts of contexts; which contexts are known in all parts, and which in any."""
        raise NotImplementedError

    def composed(self, parameters: list[Embeddings], frame: pl.DataFrame) -> Embeddings:
        """Embeddings of contexts that are not in the training data, from their parts."""
        raise NotImplementedError


@dataclass(kw_only=True, repr=False, eq=False)
class Multilinear(Factorization):
    """ŷ(i|c) = ⟨φ(c), ψ(i)⟩ with φ and ψ linear in each of several blocks of parameters, under a square loss.

    `context_parameters_` and `item_parameters_` hold what is learnt, each in one column, and the embeddings follow.
    """

    _arrays: ClassVar[tuple[str, ...]] = ("context_parameters_", "item_parameters_")

    solver: str = "als"
    steps: int = 3

    _solvers: ClassVar[tuple[str, ...]] = ("als", "cd")

    def _check(self) -> None:
        super()._check()
        one_of("solver", self.solver, self._solvers)
        whole("steps", self.steps)
        self.objective()

    # --- what a recommender defines ----------------------------------------------------------------------------------

    @abstractmethod
    def objective(self) -> PointwiseSquare | PairwiseSquare:
        """The loss that is minimised, as an object."""

    @abstractmethod
    def _structured(self, contexts: Vocabulary, items: Vocabulary, by_context: Rows) -> Structure:
        """How embeddings are made for these ids."""

    # --- learning ----------------------------------------------------------------------------------------------------

    def _fit(self, interactions: Interactions, plan: Plan, monitor: Monitor, threads: int | None) -> None:
        fresh = copy.copy(self)  # a fit that fails leaves a fitted model as it was
        fresh._prepare(interactions, plan)
        super(Multilinear, fresh)._fit(interactions, plan, monitor, threads)
        self.__dict__.update(fresh.__dict__)

    def _prepare(self, interactions: Interactions, plan: Plan) -> None:
        self._structure = self._structured(interactions.contexts, interactions.items, interactions.by_context)

    def _basis(self, by_context: Rows) -> SquareLoss:
        return square_loss(self.objective(), _trained(by_context, self._structure))

    def _shapes(self, interactions: Interactions) -> tuple[tuple[int, int], tuple[int, int]]:
        return (packed_size(self._structure.contexts), 1), (packed_size(self._structure.items), 1)

    def _start(
        self, interactions: Interactions, start: DotProduct | None, threads: int | None
    ) -> tuple[Embeddings, Embeddings]:
        own = self._structure.initial(self.init_scale, self.seed)
        if start is not None:
            assert isinstance(start, Multilinear)
            refuse_strangers(start, interactions)
            self._structure.adopt(start._structure, (start._of_contexts(), start._of_items()), own)
        contexts, items = (np.concatenate([one.reshape(-1, 1) for one in side]) for side in own)
        return contexts, items

    def _checked_start(self, start: object) -> DotProduct:
        if not isinstance(start, type(self)):
            raise SettingError(
                f"start is {start!r:.80}; expected a fitted recommender of the same kind, {type(self).__name__}"
            )
        return checked_start(start, self.dim)

    def _loop(
        self,
        interactions: Interactions,
        basis: SquareLoss,
        contexts: Embeddings | None,
        items: Embeddings,
        threads: int | None,
        epochs: int,
    ) -> Loop:
        assert contexts is not None
        structure = self._structure
        by_context = _trained(interactions.by_context, structure)
        every = by_context is interactions.by_context
        loss = square_loss(self.objective(), by_context, interactions.by_item if every else None, threads)
        sides = (
            structure.context_side(unpacked(contexts, structure.contexts)),
            structure.item_side(unpacked(items, structure.items)),
        )
        for side, sizes in zip(sides, loss.sizes):
            side.regularize(sizes, self.regularization, self.regularization_exponent)  # type: ignore[attr-defined]
            self._scale_ridges(side)
        return self._looped(loss, *sides)

    def _looped(self, loss: SquareLoss, contexts: Side, items: Side) -> Loop:
        method: Method = "cd" if self.solver == "cd" else "als"
        return solver.Multilinear(loss, contexts, items, method, int(self.steps))

    def _scale_ridges(self, side: Side) -> None:
        """Change what λ means for some parameters, where a setting says so."""

    def _set_contexts(self, contexts: Embeddings) -> None:
        self.context_parameters_ = contexts
        self.context_embeddings_ = self._structure.context_embeddings(self._of_contexts())  # type: ignore[misc]

    def _set_items(self, items: Embeddings, basis: SquareLoss) -> None:
        self.item_parameters_ = items
        self.item_embeddings_ = self._structure.item_embeddings(self._of_items())  # type: ignore[misc]
        rows = self._structure.item_rows
        self._trained_items = self.item_embeddings_ if rows is None else self.item_embeddings_[rows]
        self._loss = basis

    def _of_contexts(self) -> list[Embeddings]:
        return unpacked(self.context_parameters_, self._structure.contexts)

    def _of_items(self) -> list[Embeddings]:
        return unpacked(self.item_parameters_, self._structure.items)

    # --- strangers ---------------------------------------------------------------------------------------------------

    def _fold_in(self, histories: Rows, threads: int | None = None) -> Embeddings:
        """The last block of the contexts, solved for these rows; who has no history is at 0: the popular items."""
        side = self._structure.strangers(self._of_contexts(), histories.n_rows)
        if histories.n_rows:
            rows = _columns(histories, self._structure.item_rows)
            quadratic, sizes = self._loss.of_strangers(rows, self._trained_items)
            side.regularize(sizes, self.regularization, self.regularization_exponent)  # type: ignore[attr-defined]
            solver.finish(quadratic, side)
        found = side.embeddings()
        found[histories.lengths == 0] = 0
        return found

    # --- contexts of several parts -----------------------------------------------------------------------------------

    def _queries(self, contexts: Iterable[Id] | None, history: History | None, unknown: Unknown) -> Queries:
        self._require_fit()
        if contexts is None or history is not None or not self._composes:
            return super()._queries(contexts, history, unknown)
        one_of("unknown", unknown, ("raise", "skip", "average"))
        if isinstance(contexts, str | bytes | int | np.integer | tuple):
            return super()._queries(contexts, history, "raise")  # which says what is wrong
        listed = as_list(contexts, "a list of contexts")
        codes = self.contexts_.encode(listed, unknown="mark")
        if (codes >= 0).all():
            return super()._queries(listed, history, "raise")
        width = len(self.contexts_.names)
        good = np.array([isinstance(one, tuple) and len(one) == width and is_id(one) for one in listed])
        known = good.copy()
        frame = self._as_frame([one for one, fine in zip(listed, good) if fine])
        if frame is None:  # of other types
            known = codes >= 0
        else:
            _, all_known, any_known = self._structure.asked(frame)
            known[good] = any_known if unknown == "average" else all_known
        if not known.all() and unknown != "skip":
            wrong = [one for one, fine in zip(listed, known) if not fine]
            more = "" if unknown == "average" else ", or unknown='average' where some part of a context is known"
            way_out = f"pass unknown='skip' to leave them out{more}"
            self.contexts_.encode(wrong, what="context", way_out=way_out)
        listed = [one for one, fine in zip(listed, known) if fine]
        codes = codes[known]
        asked = self._as_frame(listed)
        vocabulary = self.contexts_ if asked is None else Vocabulary(asked)
        labels = Labels(vocabulary, np.arange(len(listed), dtype=np.int32))
        skipped = [] if known.all() else [one for one, fine in zip(as_list(contexts, "a list"), known) if not fine]
        return Queries(labels, codes, self._histories(codes), known, skipped)

    @property
    def _composes(self) -> bool:
        return self._structure.composes and self.contexts_.is_tuple

    def _as_frame(self, listed: Sequence[Id]) -> pl.DataFrame | None:
        """Tuples in the columns and types of the contexts; None where they do not fit."""
        schema = self.contexts_.frame.schema
        columns = list(zip(*listed)) or [()] * len(schema)
        try:
            made = [
                pl.Series(name, list(part), dtype, strict=True) for part, (name, dtype) in zip(columns, schema.items())
            ]
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            return None
        return pl.DataFrame(made)

    def _context_codes(self, contexts: pl.DataFrame, way_out: str) -> Codes:
        if not self._composes:
            return super()._context_codes(contexts, way_out)
        codes = self.contexts_.encode(contexts, unknown="mark")
        new = np.flatnonzero(codes < 0)
        if len(new):
            _, _, any_known = self._structure.asked(contexts[new])
            if not any_known.all():
                super()._context_codes(contexts[new[~any_known]], way_out)  # which raises
        return codes

    def _scorer(self, queries: Queries, threads: int | None = None) -> DotProductScorer:
        codes = queries.codes
        if codes is None or not (codes < 0).any():
            return super()._scorer(queries, threads)
        embeddings = self.context_embeddings_[codes]
        new = np.flatnonzero(codes < 0)
        embeddings[new] = self._structure.composed(self._of_contexts(), queries.labels.frame()[new])
        return DotProductScorer(embeddings, self.item_embeddings_)

    def _similarity(self, codes: Codes) -> DotProductScorer:
        """Cosine of the items' embeddings, without biases."""
        latent = self.item_embeddings_[:, : self.dim]
        norms = np.linalg.norm(latent, axis=1, keepdims=True)
        unit = latent / np.where(norms > 0, norms, 1)
        return DotProductScorer(unit[codes], unit)

    # --- storage -----------------------------------------------------------------------------------------------------

    def _check_arrays(self) -> None:
        self.training_, self.best_epoch_ = [], None
        self._structure = self._structured(self.contexts_, self.items_, self.seen_)
        self._require_shape("context_parameters_", (packed_size(self._structure.contexts), 1))
        self._require_shape("item_parameters_", (packed_size(self._structure.items), 1))
        with np.errstate(over="ignore", invalid="ignore"):
            self._set_contexts(self.context_parameters_)
            self._set_items(self.item_parameters_, self._basis(self.seen_))
            largest = longest(self.context_embeddings_) * longest(self.item_embeddings_)
            strongest = self._strongest(self.objective().weighting)
            self._require_finite(max(largest, strongest * longest(self.item_embeddings_) ** 2))
        for one in (self.context_embeddings_, self.item_embeddings_):
            if not np.isfinite(one).all():
                raise StorageError("its numbers are too large: embeddings made of them do not fit float32")


def _trained(by_context: Rows, structure: Structure) -> Rows:
    """The observed pairs of those that are learnt from."""
    rows = by_context if structure.context_rows is None else by_context.take(structure.context_rows)
    return _columns(rows, structure.item_rows)


def _columns(rows: Rows, chosen: npt.NDArray[np.int64] | None) -> Rows:
    """The rows with these columns only; the others have no entries, unless someone names a new item in a history."""
    if chosen is None:
        return rows
    place = np.full(rows.n_columns, -1, np.int32)
    place[chosen] = np.arange(len(chosen))
    moved = place[rows.indices]
    keep = moved >= 0
    counts = np.concatenate([[0], np.cumsum(keep)])[rows.indptr]
    values = None if rows.values is None else rows.values[keep]
    return Rows(counts.astype(np.int64), moved[keep], values, len(chosen))


def by_ids(ours: Vocabulary, theirs: Vocabulary, source: Embeddings, target: Embeddings) -> None:
    """Copy the rows of ids that both have, into as many columns as the source has and the target has room for."""
    codes = theirs.encode(ours.frame, unknown="mark")
    width = min(source.shape[1], target.shape[1])
    target[codes >= 0, :width] = source[codes[codes >= 0], :width]


def means(table: npt.NDArray[np.float32], codes: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The table with one more row: the mean over these codes."""
    counts = np.bincount(codes, minlength=len(table)).astype(np.float64)
    mean = counts @ table / max(1.0, counts.sum())
    return np.concatenate([table, mean[None].astype(np.float32)])


def parts_of(frame: pl.DataFrame) -> tuple[list[Vocabulary], npt.NDArray[np.int32]]:
    """The ids of each part of contexts in the order of their first mention, and the codes of all."""
    vocabularies = [Vocabulary(frame.select(name).unique(maintain_order=True)) for name in frame.columns]
    codes = [one.encode(frame.select(one.names)) for one in vocabularies]
    return vocabularies, np.stack(codes, axis=1)


def part_codes(
    vocabularies: Sequence[Vocabulary], frame: pl.DataFrame
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """The codes of the parts of these contexts, −1 where unknown; who is known in all parts, and who in any."""
    codes = np.stack(
        [one.encode(column.to_frame(), unknown="mark") for one, column in zip(vocabularies, frame.get_columns())],
        axis=1,
    )
    known = codes >= 0
    return codes, np.asarray(known.all(axis=1)), np.asarray(known.any(axis=1))
