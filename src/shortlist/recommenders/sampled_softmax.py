"""Matrix factorization under the softmax loss: its epochs and its folding in, from a recommender's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shortlist.data.rows import Rows
from shortlist.errors import SettingError
from shortlist.objectives import Softmax
from shortlist.objectives.weighting import strengths
from shortlist.sampling import Everything, InBatch, Popularity, Uniform
from shortlist.solvers.optimizers import CODES, State
from shortlist.solvers.sgd import learning_rate
from shortlist.solvers.softmax import BatchNegatives, CatalogueNegatives, SharedNegatives, SoftmaxSteps
from shortlist.solvers.softmax_fold_in import FoldIn

if TYPE_CHECKING:
    from shortlist.recommenders.sampled import Basis, Sampled
    from shortlist.solvers.epochs import Embeddings, Loop


def softmax_loop(
    model: Sampled, basis: Basis, contexts: Embeddings, items: Embeddings, threads: int | None, epochs: int
) -> Loop:
    """What runs the epochs."""
    objective, sampler, _ = model.composition()
    assert isinstance(objective, Softmax)
    kind = CODES[model.optimizer]
    rows = basis.by_context
    weights = pair_weights(model, basis, rows)
    return SoftmaxSteps(
        rows,
        weights,
        contexts,
        items,
        temperature=float(objective.temperature),
        dim=int(model.dim),
        normalize=bool(model.normalize),
        exclude=sampler.exclude,
        negatives=_shared(model, basis),
        batch=int(model.batch),  # type: ignore[attr-defined]
        kind=kind,
        states=(State.of(kind, contexts.shape), State.of(kind, items.shape)),
        rates=model._rates(),
        ridges=model._ridges(),
        schedule=lambda done: learning_rate(model.schedule, done, int(model.horizon or epochs)),
        seed=int(model.seed),
        threads=threads,
    )


def softmax_fold_in(model: Sampled, histories: Rows, threads: int | None) -> npt.NDArray[np.float32]:
    """Contexts with these histories, the items being as they are."""
    if model._folding is None:
        model._folding = _folding(model, model.item_embeddings_, threads)
    found: npt.NDArray[np.float32] = model._folding(
        histories, pair_weights(model, model._own_basis, histories), threads
    )
    return found


def pair_weights(model: Sampled, basis: Basis, rows: Rows) -> npt.NDArray[np.float32]:
    """α of each pair of these rows: its strength, and what its context and its item weigh."""
    weights = strengths(rows.values, model.weighting, rows.confidence)
    of_contexts, of_items = basis.contexts.new(rows.masses), basis.items.values
    if len(of_contexts) > 1:
        weights = weights * np.repeat(of_contexts, rows.lengths)
    return weights * of_items[rows.indices] if len(of_items) > 1 else weights


def check_softmax_sampler(sampler: object) -> None:
    """Refuse samplers without a q that a whole batch can share."""
    if not isinstance(sampler, Everything | Uniform | Popularity | InBatch):
        raise SettingError(
            f"sampler is {sampler}, whose q a batch cannot share; for Softmax take Everything(), Uniform(), "
            "Popularity() or InBatch()"
        )


def _shared(model: Sampled, basis: Basis) -> SharedNegatives | None:
    sampler = model.composition().sampler
    if isinstance(sampler, Everything):
        return None
    if isinstance(sampler, InBatch):
        return BatchNegatives(basis.counts)
    if isinstance(sampler, Popularity):
        return CatalogueNegatives(sampler.over(basis.by_context).popularity, int(model.n_negatives))
    return CatalogueNegatives(np.ones(len(basis.counts)), int(model.n_negatives))


def _folding(model: Sampled, items: Embeddings, threads: int | None) -> FoldIn:
    objective, sampler, _ = model.composition()
    assert isinstance(objective, Softmax)
    return FoldIn(
        items,
        temperature=float(objective.temperature),
        dim=int(model.dim),
        normalize=bool(model.normalize),
        exclude=sampler.exclude,
        ridge=model._ridges()[0],
        passes=int(model.fold_in_epochs),
        threads=threads,
    )
