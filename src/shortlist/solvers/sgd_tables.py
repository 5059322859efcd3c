"""What the kernels of sampled steps are given: pairs, rules, embeddings, and room to work in."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import Static, static
from shortlist.objectives.lambdarank import MetricTables
from shortlist.objectives.losses import SQUARE
from shortlist.sampling.draw_kernels import n_parts
from shortlist.sampling.sampler_tables import ADAPTIVE, POPULARITY, SamplerTables
from shortlist.solvers.optimizers import ADAGRAD, SGD, OptimizerState

Floats: TypeAlias = npt.NDArray[np.float32]
POINTWISE, PAIRWISE = 0, 1
PLAIN, PENALTY, LAMBDA = 0, 1, 2  # how negatives are weighed
BY_POSITIVES = 3  # LAMBDA, for kernels: where the ranks of the other positives matter
ANY, SGD_PAIR, ADAGRAD_PAIR, STEADY = 0, 1, 2, 3  # how a step is computed
BLOCK = 32  # pairs, at most
AHEAD = 8  # pairs, a power of two
_ROOM = 1 << 15  # bytes of their rows: the innermost cache
WHOLE = np.ones(1, np.float32)


class TrainingPairs(NamedTuple):
    """Observed pairs in the order in which they are taken."""

    contexts: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    strengths: Floats  # one, or one a pair
    shares: Floats = WHOLE  # one, or one a pair: how much of a step is taken; for folding in


class StepTables(NamedTuple):
    """What a step is; arrays by coordinate, by context or by item have one element where that stands for all."""

    objective: int  # POINTWISE or PAIRWISE
    loss: int
    optimizer: int
    n_negatives: int
    cosine: int  # 0, or of how many coordinates the score is the cosine
    sharpness: float  # 1/τ
    strength_is_label: int
    negative_label: float
    negative_weight: float
    context_weights: Floats  # by context
    item_weights: Floats  # by item, of positives
    context_rates: Floats  # by coordinate
    item_rates: Floats
    context_ridges: Floats  # by coordinate
    item_ridges: Floats
    alike: int  # how many coordinates have the first one's rates and ridges; `optimizers.alike`
    context_scales: Floats  # by context, of the ridges
    item_scales: Floats
    frozen: int  # whether items stay as they are


class ModelTables(NamedTuple):
    """Both sides' embeddings and what the optimizer remembers of them."""

    contexts: Floats
    items: Floats
    context_state: OptimizerState
    item_state: OptimizerState


class WeightTables(NamedTuple):
    """How much a sampled pair counts."""

    code: int
    penalties: Floats  # PENALTY: by the number of items above
    lambdas: MetricTables  # LAMBDA


class KernelKinds(NamedTuple):
    """What kernels know of tables, weigher and rules when they are compiled, so that they have no code for the rest."""

    sampler: Static  # the code of the tables
    weighing: Static  # that of the weigher, or BY_POSITIVES
    path: Static
    objective: Static
    optimizer: Static
    frozen: Static
    cosine: int | None  # None: the score is a dot product

    @classmethod
    def of(cls, tables: SamplerTables, weigher: WeightTables, rules: StepTables) -> KernelKinds:
        """Choose what these ask for."""
        by_positives = weigher.code == LAMBDA and weigher.lambdas.by_positives
        path = ANY
        dots = rules.cosine == 0
        if (rules.objective, rules.n_negatives, rules.frozen) == (PAIRWISE, 1, 0) and dots:
            if rules.optimizer == SGD:
                path = SGD_PAIR
            elif rules.optimizer == ADAGRAD and rules.alike == len(rules.item_rates):
                path = ADAGRAD_PAIR
        elif (rules.loss, rules.optimizer, rules.frozen) == (SQUARE, SGD, 1) and dots:
            path = STEADY
        return cls(
            sampler=static(tables.code),
            weighing=static(BY_POSITIVES if by_positives else weigher.code),
            path=static(path),
            objective=static(rules.objective),
            optimizer=static(rules.optimizer),
            frozen=static(rules.frozen),
            cosine=None if dots else rules.cosine,
        )


class Workspace(NamedTuple):
    """Room for what a block of steps needs on the way."""

    negatives: npt.NDArray[np.int32]
    weights: Floats
    rounds: npt.NDArray[np.int32]  # that a negative took
    least: Floats  # what a negative has to score above
    waiting: npt.NDArray[np.int32]  # pairs that have none yet
    context_gradient: Floats
    item_gradient: Floats
    slopes: Floats
    candidates: npt.NDArray[np.int32]  # that ranks are estimated by
    scores: Floats  # of these
    ranks: npt.NDArray[np.int64]  # of the positives of a context
    parts: Floats  # of a context's coordinates, for AdaptiveRank
    own: TrainingPairs  # of a context
    state: npt.NDArray[np.uint64]  # of the random numbers: of proposals, and of what takes the place of excluded ones
    drawn: npt.NDArray[np.int32]  # negatives of the pairs whose rows were sent for


def work_space(width: int, m: int, weigher: WeightTables, longest: int = 0) -> Workspace:
    """Room for the steps of a block, and for histories of so many pairs; a thread needs its own."""
    block = max(2, min(BLOCK, _ROOM // (4 * width * (m + 2))))
    candidates = weigher.lambdas.candidates if weigher.code == LAMBDA else 1
    return Workspace(
        np.empty((block, m), np.int32),
        np.empty((block, m), np.float32),
        np.ones((block, m), np.int32),
        np.empty(block, np.float32),
        np.empty(block, np.int32),
        np.empty(width, np.float32),
        np.empty(width, np.float32),
        np.empty(m + 1, np.float32),
        np.empty(candidates, np.int32),
        np.empty(candidates, np.float32),
        np.empty(len(weigher.lambdas.norms), np.int64),
        np.empty(n_parts(width), np.float32),
        TrainingPairs(
            np.empty(longest, np.int32),
            np.empty(longest, np.int32),
            np.empty(longest, np.float32),
            np.empty(longest, np.float32),
        ),
        np.zeros(2, np.uint64),
        np.zeros(2 * AHEAD, np.int32),
    )


class KernelArguments(NamedTuple):
    """What steps need of tables, weigher, model and room; None stands for what these kinds of steps do not read.

    A kernel takes tuples apart and puts them together at each call in it, and so does whoever calls it from Python: an
    array less in them is less to compile.
    """

    kinds: KernelKinds
    tables: Any
    weigher: Any
    rules: StepTables
    model: Any
    work: Any

    @classmethod
    def of(
        cls, tables: SamplerTables, weigher: WeightTables, rules: StepTables, model: ModelTables, work: Workspace
    ) -> KernelArguments:
        """Leave out what is not needed."""
        kinds = KernelKinds.of(tables, weigher, rules)
        none: Any = None
        if tables.code != ADAPTIVE:
            tables = tables._replace(lists=none, sigma=none)
            work = work._replace(parts=none)
        if tables.code != POPULARITY:
            tables = tables._replace(share=none, alias=none)
        if weigher.code != LAMBDA:
            work = work._replace(candidates=none, scores=none, ranks=none)
        if rules.frozen == 0:
            work = work._replace(own=none)
        if weigher.code != PENALTY:
            weigher = weigher._replace(penalties=none)
        if weigher.code != LAMBDA:
            weigher = weigher._replace(lambdas=none)
        model = ModelTables(model.contexts, model.items, *(_read(rules.optimizer, state) for state in model[2:]))
        return cls(kinds, tables, weigher, rules, model, work)


def _read(optimizer: int, state: OptimizerState) -> Any:
    """What the optimizer reads of its state."""
    none: Any = None
    if optimizer == SGD:
        return None
    return OptimizerState(state.first, none, none) if optimizer == ADAGRAD else state
