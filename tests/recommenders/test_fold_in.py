"""Folding in under square losses: the minimum of the loss as it is printed, for contexts and for items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shortlist as sl
from shortlist.data.rows import Rows
from shortlist.recommenders.multilinear import Multilinear
from shortlist.solvers.multilinear import finish

SQUARE = {"dim": 3, "epochs": 3, "regularization": 0.05, "regularization_exponent": 0.5, "weighting": "log"}
RHOS = {"unobserved_item_exponent": 0.5, "unobserved_context_exponent": -0.3}
MODELS: dict[str, Callable[[], Any]] = {
    "RankALS": lambda: sl.RankALS(**SQUARE, item_exponent=0.4),
    "PARAFAC": lambda: sl.PARAFAC(**SQUARE, **RHOS),
    "PARAFAC, total": lambda: sl.PARAFAC(**SQUARE, **RHOS, convention="total"),
    "PARAFAC, pairwise": lambda: sl.PARAFAC(**SQUARE, **RHOS, loss="pairwise"),
    "Tucker": lambda: sl.Tucker(**SQUARE, **RHOS),
    "Tucker, pairwise": lambda: sl.Tucker(**SQUARE, **RHOS, loss="pairwise"),
    "FM": lambda: sl.FactorizationMachine(**SQUARE, **RHOS),
    "FM, pairwise": lambda: sl.FactorizationMachine(**SQUARE, **RHOS, loss="pairwise"),
    "FeatureIALS": lambda: sl.FeatureIALS(**SQUARE, **RHOS),
}


def events() -> sl.Interactions:
    rng = np.random.default_rng(5)
    frame = {
        "user": rng.integers(0, 14, 160),
        "day": rng.integers(0, 3, 160),
        "item": rng.integers(0, 11, 160),
        "w": rng.integers(1, 6, 160),
    }
    return sl.Interactions.from_frame(frame, context=["user", "day"], item="item", weight="w")


@pytest.fixture(scope="module", params=sorted(MODELS))
def model(request: pytest.FixtureRequest) -> Multilinear:
    made, data, more = MODELS[request.param](), events(), {}
    if "F" in request.param and "PARAFAC" not in request.param:  # who knows features
        for name, vocabulary in (("context", data.contexts), ("item", data.items)):
            frame = vocabulary.frame.with_columns(kind=np.arange(len(vocabulary)) % 3)
            more[f"{name}_features"] = sl.Features.from_frame(frame, id=list(vocabulary.names), categorical=["kind"])
    found = made.fit(data, **more)
    assert isinstance(found, Multilinear)
    return found


def histories(n_columns: int, confidence: bool) -> Rows:
    rng = np.random.default_rng(1)
    rows = Rows.from_lists([rng.choice(n_columns, n, replace=False) for n in (1, 4, 7, 2)], n_columns)
    values = rng.integers(1, 5, len(rows)).astype(np.float32)
    left = rng.uniform(0.1, 1, len(rows)).astype(np.float32)
    return Rows(rows.indptr, rows.indices, values, n_columns, left if confidence else None)


@pytest.mark.parametrize("confidence", [False, True])
def test_contexts_are_where_the_generic_solver_ends(model, confidence):
    rows = histories(len(model.items_), confidence)
    structure = model._structure
    side = structure.strangers(structure.average(model._of_contexts()), rows.n_rows)
    quadratic, sizes = model._loss.of_strangers(rows, model._trained_items)
    side.regularize(sizes, model.regularization, model.regularization_exponent)
    finish(quadratic, side)
    np.testing.assert_allclose(model._fold_in(rows), side.embeddings(), rtol=2e-3, atol=2e-4)


def strength(rows: Rows, r: int) -> Any:
    part = slice(rows.indptr[r], rows.indptr[r + 1])
    left = 1.0 if rows.confidence is None else rows.confidence[part].astype(float)
    return np.log2(1 + rows.values[part].astype(float)), left


def of_context(model: Any, rows: Rows, r: int, phi: Any) -> float:
    """The context's part of the loss, without its regularizer, by the double sum."""
    scores = model.item_embeddings_.astype(float) @ phi
    objective, own = model.objective(), rows.row(r)
    a, left = strength(rows, r)
    if hasattr(objective, "shares"):
        shares = objective.shares(model.seen_).astype(float)
        return float(sum(w * (shares * (scores[i] - scores - 1) ** 2).sum() for w, i in zip(a * left, own)))
    contexts, items = objective.omegas(model.seen_)
    unobserved = objective.unobserved_weight * float(contexts.new(np.array([len(own)]))[0]) * items.values.astype(float)
    everywhere = np.broadcast_to(unobserved, len(scores)) * scores**2
    if objective.convention == "total":  # `left` parts observed, the rest not
        everywhere[own] *= 1 - left
    return float((a * left * (scores[own] - 1) ** 2).sum() + everywhere.sum())


def of_item(model: Any, rows: Rows, r: int, psi: Any) -> float:
    """A new item's part of the loss, without its regularizer, by the double sum."""
    Phi, Psi = model.context_embeddings_.astype(float), model.item_embeddings_.astype(float)
    scores, own, seen, objective = Phi @ psi, rows.row(r), model.seen_, model.objective()
    a, _ = strength(rows, r)
    if hasattr(objective, "shares"):
        shares, everyone = objective.shares(seen).astype(float), Phi @ Psi.T
        share = float(np.broadcast_to(objective.omega(seen).new(rows.lengths), rows.n_rows)[r]) / len(Psi)
        had = sum(w * (shares * (scores[c] - everyone[c] - 1) ** 2).sum() for w, c in zip(a, own))
        weights = objective.strengths(seen).astype(float)
        pairs = zip(np.repeat(np.arange(seen.n_rows), seen.lengths), seen.indices, weights)
        return float(had + share * sum(w * (everyone[c, i] - scores[c] - 1) ** 2 for c, i, w in pairs))
    contexts, items = objective.omegas(seen)
    unobserved = objective.unobserved_weight * float(items.new(np.array([len(own)]))[0]) * contexts.values.astype(float)
    everywhere = np.broadcast_to(unobserved, len(scores)) * scores**2
    if objective.convention == "total":
        everywhere = np.delete(everywhere, own)
    return float((a * (scores[own] - 1) ** 2).sum() + everywhere.sum())


def slopes(loss: Callable[[Any], float], at: Any, J: Any, step: float = 1e-2) -> Any:
    """The derivatives by θ, in which the loss is a square: differences have no error."""
    return np.array([(loss(at + step * one) - loss(at - step * one)) / (2 * step) for one in J])


def check(model: Any, found: Any, side: Any, loss: Callable[[int, Any], float], sizes: Any) -> None:
    """Found embeddings φ = θJ + rest are where the loss with λ·size^ν·‖θ − prior‖² is flat."""
    side.regularize(np.ones(len(side.embeddings())), 1.0, 1.0)
    block = next(iter(side.blocks(side.embeddings(), apart=True, last=True)))
    J = block.forward(np.eye(block.values.shape[1], dtype=np.float32)).astype(float)
    rest = (side.embeddings() - block.forward(block.values))[0].astype(float)
    prior = np.broadcast_to(block.prior, block.values.shape)[0]
    for r, phi in enumerate(found.astype(float)):
        theta, *_ = np.linalg.lstsq(J.T, phi - rest, rcond=None)
        np.testing.assert_allclose(theta @ J + rest, phi, atol=1e-4)
        ridge = model.regularization * sizes[r] ** model.regularization_exponent
        slope = slopes(lambda at, r=r: loss(r, at), phi, J) + 2 * ridge * (theta - prior)
        first = slopes(lambda at, r=r: loss(r, at), rest + prior @ J, J)
        assert np.abs(slope).max() < 2e-3 * max(1.0, np.abs(first).max())


@pytest.mark.parametrize("confidence", [False, True])
def test_contexts_are_at_the_minimum_of_the_printed_loss(model, confidence):
    rows = histories(len(model.items_), confidence)
    structure = model._structure
    side = structure.strangers(structure.average(model._of_contexts()), structure.contexts[0][1])
    if hasattr(model.objective(), "shares"):
        sizes = [float((a * left).sum()) for a, left in (strength(rows, r) for r in range(rows.n_rows))]
    else:
        sizes = rows.lengths + model.unobserved_weight * rows.n_columns
    check(model, model._fold_in(rows), side, lambda r, phi: of_context(model, rows, r, phi), sizes)


def test_items_are_at_the_minimum_of_the_printed_loss(model):
    rows = histories(len(model.contexts_), False)
    structure = model._structure
    side = structure.new_items(model._of_items(), structure.items[0][1])
    if hasattr(model.objective(), "shares"):
        everyone = float(model.objective().weights(model.seen_).sum())
        share = model.objective().omega(model.seen_).new(rows.lengths) / len(model.items_)
        sizes = [strength(rows, r)[0].sum() + float(share[r]) * everyone for r in range(rows.n_rows)]
    else:
        sizes = rows.lengths + model.unobserved_weight * rows.n_columns
    check(model, model._fold_in_items(rows), side, lambda r, psi: of_item(model, rows, r, psi), sizes)
