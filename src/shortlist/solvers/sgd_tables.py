"""The arguments of the SGD kernels: pairs, settings of a step, embeddings and workspace."""

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
PLAIN, PENALTY, LAMBDA = 0, 1, 2  # weights of negatives: 1, WARP's penalty, LambdaRank's |ΔM|
BY_POSITIVES = 3  # LAMBDA with a metric that depends on the ranks of the other positives, for kernels
ANY, SGD_PAIR, ADAGRAD_PAIR, STEADY = 0, 1, 2, 3  # code paths of a step
BLOCK = 32  # maximum number of pairs in a block
AHEAD = 8  # rows are prefetched this many pairs ahead; a power of two
_BLOCK_BYTES = 1 << 15  # maximum bytes of a block's rows: the first-level cache
WHOLE = np.ones(1, np.float32)


class TrainingPairs(NamedTuple):
    """Observed pairs in the order of the steps."""

    contexts: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    strengths: Floats  # by pair, or a single one
    shares: Floats = WHOLE  # by pair, or a single one: the fraction of a step that is taken, for fold-in


class StepTables(NamedTuple):
    """The settings of a step. An array by coordinate, context or item may have a single element that applies to all."""

    objective: int  # POINTWISE or PAIRWISE
    loss: int
    optimizer: int
    n_negatives: int
    cosine: int  # 0, or the number of coordinates whose cosine is the score
    sharpness: float  # 1/τ
    strength_is_label: int
    negative_label: float
    negative_weight: float
    context_weights: Floats  # by context
    item_weights: Floats  # by item, for positives
    context_rates: Floats  # by coordinate
    item_rates: Floats
    context_ridges: Floats  # by coordinate
    item_ridges: Floats
    alike: int  # number of coordinates with the rates and ridges of the first one; see `optimizers.alike`
    context_scales: Floats  # by context: factors of the ridges
    item_scales: Floats
    frozen: int  # 1 if items do not change


class ModelTables(NamedTuple):
    """The embeddings and optimizer states of both sides."""

    contexts: Floats
    items: Floats
    context_state: OptimizerState
    item_state: OptimizerState


class WeightTables(NamedTuple):
    """The weights of sampled pairs."""

    code: int
    penalties: Floats  # PENALTY: by the number of items above
    lambdas: MetricTables  # LAMBDA


class KernelKinds(NamedTuple):
    """Compile-time constants of the kernels, so that they are compiled without unused code."""

    sampler: Static  # the code of the sampler's tables
    weighing: Static  # the code of the weigher, or BY_POSITIVES
    path: Static
    objective: Static
    optimizer: Static
    frozen: Static
    cosine: int | None  # None: the score is a dot product

    @classmethod
    def of(cls, tables: SamplerTables, weigher: WeightTables, rules: StepTables) -> KernelKinds:
        """Return the constants for these tables and settings."""
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
    """Buffers for a block of steps."""

    negatives: npt.NDArray[np.int32]
    weights: Floats
    rounds: npt.NDArray[np.int32]  # number of proposals of each negative
    least: Floats  # the score that a negative must exceed
    waiting: npt.NDArray[np.int32]  # pairs without a negative yet
    context_gradient: Floats
    item_gradient: Floats
    slopes: Floats
    candidates: npt.NDArray[np.int32]  # random items for estimating ranks
    scores: Floats  # of the candidates
    ranks: npt.NDArray[np.int64]  # of a context's positives
    parts: Floats  # sums over a context's coordinates, for AdaptiveRank
    history: TrainingPairs  # the pairs of a context, for fold-in
    state: npt.NDArray[np.uint64]  # random states: of proposals, and of the redraws of excluded proposals
    drawn: npt.NDArray[np.int32]  # negatives of the pairs whose rows are prefetched


def work_space(width: int, m: int, weigher: WeightTables, longest: int = 0) -> Workspace:
    """Allocate the workspace of a thread, for histories of up to `longest` pairs."""
    block = max(2, min(BLOCK, _BLOCK_BYTES // (4 * width * (m + 2))))
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
    """The arguments of a kernel, with None for every array that these steps do not read.

    A kernel unpacks and repacks its tuples at every call in it, and so does a call from Python. Fewer arrays in the
    tuples mean less code to compile.
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
        """Replace what is not needed by None."""
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
            work = work._replace(history=none)
        if weigher.code != PENALTY:
            weigher = weigher._replace(penalties=none)
        if weigher.code != LAMBDA:
            weigher = weigher._replace(lambdas=none)
        model = ModelTables(model.contexts, model.items, *(_read(rules.optimizer, state) for state in model[2:]))
        return cls(kinds, tables, weigher, rules, model, work)


def _read(optimizer: int, state: OptimizerState) -> Any:
    """Return the part of the state that the optimizer reads."""
    none: Any = None
    if optimizer == SGD:
        return None
    return OptimizerState(state.first, none, none) if optimizer == ADAGRAD else state
