"""Training and folding in with the softmax loss, from a recommender's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._kernel_views import for_kernels
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.objectives import Softmax
from shortlist.objectives.weighting import strengths
from shortlist.sampling import AllItems, InBatch, Popularity, Uniform
from shortlist.solvers.optimizers import CODES, OptimizerState
from shortlist.solvers.sgd import learning_rate
from shortlist.solvers.softmax import BatchNegatives, CatalogueNegatives, SharedNegatives, SoftmaxSteps
from shortlist.solvers.softmax_fold_in import SoftmaxFoldIn

if TYPE_CHECKING:
    from shortlist.recommenders.sgd_factorization import PairStats, SGDFactorization
    from shortlist.solvers.train import Embeddings, EmbeddingTrainer

BothSides: TypeAlias = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]  # of contexts and of items


def softmax_trainer(
    model: SGDFactorization,
    prepared: PairStats,
    contexts: Embeddings,
    items: Embeddings,
    *,
    rates: BothSides,
    ridges: BothSides,
    threads: int | None,
    epochs: int,
) -> EmbeddingTrainer:
    """Return the trainer that runs the epochs, with η and λ by column for both sides."""
    objective, sampler, _ = prepared.recipe
    assert isinstance(objective, Softmax)
    kind = CODES[model.optimizer]
    rows = prepared.by_context
    weights = pair_weights(model, prepared, rows)
    return SoftmaxSteps(
        rows,
        weights,
        contexts,
        items,
        temperature=float(objective.temperature),
        dim=int(model.dim),
        normalize=bool(model.normalize),
        exclude=sampler.exclude,
        negatives=_shared(prepared, int(model.n_negatives)),
        batch=int(model.batch),  # type: ignore[attr-defined]
        kind=kind,
        states=(OptimizerState.of(kind, contexts.shape), OptimizerState.of(kind, items.shape)),
        rates=rates,
        ridges=ridges,
        schedule=lambda done: learning_rate(model.schedule, done, int(model.schedule_epochs or epochs)),
        seed=int(model.seed),
        threads=threads,
    )


def pair_weights(model: SGDFactorization, prepared: PairStats, rows: SparseRows) -> npt.NDArray[np.float32]:
    """Return α of each pair of these rows: its strength times the weights of its context and its item."""
    weights = strengths(rows.values, model.weighting, rows.confidence)
    of_contexts, of_items = prepared.contexts.new(rows.effective_counts), prepared.items.values
    if len(of_contexts) > 1:
        weights = weights * np.repeat(of_contexts, rows.lengths)
    return weights * of_items[rows.indices] if len(of_items) > 1 else weights


def check_softmax_sampler(sampler: object) -> None:
    """Refuse samplers whose q depends on the pair, because a batch shares its negatives."""
    if not isinstance(sampler, AllItems | Uniform | Popularity | InBatch):
        raise SettingError(
            f"sampler is {sampler}, whose q a batch cannot share",
            field="sampler",
            hint="for Softmax use AllItems(), Uniform(), Popularity() or InBatch()",
        )


def _shared(prepared: PairStats, n_negatives: int) -> SharedNegatives | None:
    sampler = prepared.recipe.sampler
    if isinstance(sampler, AllItems):
        return None
    if isinstance(sampler, InBatch):
        return BatchNegatives(prepared.counts)
    if isinstance(sampler, Popularity):
        return CatalogueNegatives(sampler.bind(prepared.by_context).popularity, n_negatives)
    return CatalogueNegatives(np.ones(len(prepared.counts)), n_negatives)


def softmax_fold_in(
    model: SGDFactorization, prepared: PairStats, ridge: npt.NDArray[np.float32], threads: int | None
) -> SoftmaxFoldIn:
    """Return the solver for embeddings of new contexts, with the items fixed and λ by column."""
    objective, sampler, _ = prepared.recipe
    assert isinstance(objective, Softmax)
    return SoftmaxFoldIn(
        for_kernels(model.item_embeddings_),
        temperature=float(objective.temperature),
        dim=int(model.dim),
        normalize=bool(model.normalize),
        exclude=sampler.exclude,
        ridge=ridge,
        passes=int(model.fold_in_epochs),
        threads=threads,
    )
