"""Folding in under square losses: the minimum of the loss as it is printed, for contexts and for items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.data.sparse_rows import SparseRows
from shortlist.recommenders.multilinear_model import MultilinearModel
from shortlist.solvers.multilinear_als import finish

SQUARE = {"dim": 3, "epochs": 3, "regularization": 0.05, "regularization_exponent": 0.5, "weighting": "log"}
RHOS = {"unobserved_item_exponent": 0.5, "unobserved_context_exponent": -0.3}
PAIRWISE = {"unobserved_item_exponent": 0.5, "loss": "pairwise"}
MODELS: dict[str, Callable[[], Any]] = {
    "RankALS": lambda: sl.RankALS(**SQUARE, item_exponent=0.4),
    "PARAFAC": lambda: sl.PARAFAC(**SQUARE, **RHOS),
    "PARAFAC, total": lambda: sl.PARAFAC(**SQUARE, **RHOS, convention="total"),
    "PARAFAC, pairwise": lambda: sl.PARAFAC(**SQUARE, **PAIRWISE),
    "Tucker": lambda: sl.Tucker(**SQUARE, **RHOS),
    "Tucker, pairwise": lambda: sl.Tucker(**SQUARE, **PAIRWISE),
    "FM": lambda: sl.FactorizationMachine(**SQUARE, **RHOS),
    "FM, pairwise": lambda: sl.FactorizationMachine(**SQUARE, **PAIRWISE),
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
def model(request: pytest.FixtureRequest) -> MultilinearModel:
    made, data, more = MODELS[request.param](), events(), {}
    if "F" in request.param and "PARAFAC" not in request.param:  # who knows features
        for name, vocabulary in (("context", data.contexts), ("item", data.items)):
            frame = vocabulary.frame.with_columns(kind=np.arange(len(vocabulary)) % 3)
            more[f"{name}_features"] = sl.Features.from_frame(frame, id=list(vocabulary.names), categorical=["kind"])
    found = made.fit(data, **more)
    assert isinstance(found, MultilinearModel)
    return found


def histories(n_columns: int, confidence: bool) -> SparseRows:
    rng = np.random.default_rng(1)
    rows = SparseRows.from_lists([rng.choice(n_columns, n, replace=False) for n in (1, 4, 7, 2)], n_columns)
    values = rng.integers(1, 5, len(rows)).astype(np.float32)
    left = rng.uniform(0.1, 1, len(rows)).astype(np.float32)
    return SparseRows(rows.indptr, rows.indices, values, n_columns, left if confidence else None)


@pytest.mark.parametrize("confidence", [False, True])
def test_contexts_are_where_the_generic_solver_ends(model, confidence):
    rows = histories(len(model.items_), confidence)
    layout = model._layout
    side = layout.new_contexts(layout.average(model._of_contexts()), rows.n_rows)
    quadratic, sizes = model._loss.of_new_contexts(rows, model._trained_items)
    side.regularize(sizes, model.regularization, model.regularization_exponent)
    finish(quadratic, side)
    np.testing.assert_allclose(model._fold_in(rows), side.embeddings(), rtol=2e-3, atol=2e-4)


def strength(rows: SparseRows, r: int) -> Any:
    part = slice(rows.indptr[r], rows.indptr[r + 1])
    left = 1.0 if rows.confidence is None else rows.confidence[part].astype(float)
    return np.log2(1 + rows.values[part].astype(float)), left


def of_context(model: Any, rows: SparseRows, r: int, phi: Any) -> float:
    """The context's part of the loss, without its regularizer, by the double sum."""
    scores = model.item_embeddings_.astype(float) @ phi
    objective, own = model.objective(), rows.row(r)
    a, left = strength(rows, r)
    if hasattr(objective, "shares"):
        shares = objective.shares(model.seen_).astype(float)
        return float(sum(w * (shares * (scores[i] - scores - 1) ** 2).sum() for w, i in zip(a * left, own)))
    contexts, items = objective.omegas(model.seen_)
    mass = rows.effective_counts[r : r + 1]
    unobserved = objective.unobserved_weight * float(contexts.new(mass)[0]) * items.values.astype(float)
    everywhere = np.broadcast_to(unobserved, len(scores)) * scores**2
    if objective.convention == "total":  # `left` parts observed, the rest not
        everywhere[own] *= 1 - left
    return float((a * left * (scores[own] - 1) ** 2).sum() + everywhere.sum())


def of_item(model: Any, rows: SparseRows, r: int, psi: Any) -> float:
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
    block = next(iter(side.blocks(side.embeddings(), grouped=True, last=True)))
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
    layout = model._layout
    side = layout.new_contexts(layout.average(model._of_contexts()), layout.contexts[0][1])
    if hasattr(model.objective(), "shares"):
        sizes = [float((a * left).sum()) for a, left in (strength(rows, r) for r in range(rows.n_rows))]
    else:
        sizes = rows.effective_counts + model.unobserved_weight * rows.n_columns
    check(model, model._fold_in(rows), side, lambda r, phi: of_context(model, rows, r, phi), sizes)


def test_items_are_at_the_minimum_of_the_printed_loss(model):
    rows = histories(len(model.contexts_), False)
    layout = model._layout
    side = layout.new_items(model._of_items(), layout.items[0][1])
    if hasattr(model.objective(), "shares"):
        everyone = float(model.objective().weights(model.seen_).sum())
        share = model.objective().omega(model.seen_).new(rows.lengths) / len(model.items_)
        sizes = [strength(rows, r)[0].sum() + float(share[r]) * everyone for r in range(rows.n_rows)]
    else:
        sizes = rows.lengths + model.unobserved_weight * rows.n_columns
    check(model, model._fold_in_items(rows), side, lambda r, psi: of_item(model, rows, r, psi), sizes)


COLD: dict[str, Callable[[], Any]] = {
    "FeatureIALS": lambda: sl.FeatureIALS(**SQUARE, **RHOS),
    "FeatureIALS, total": lambda: sl.FeatureIALS(**SQUARE, convention="total"),
    "FeatureIALS, plain total": lambda: sl.FeatureIALS(**SQUARE, **RHOS, convention="total"),
    "FM": lambda: sl.FactorizationMachine(**SQUARE, **RHOS),
    "FM, pairwise": lambda: sl.FactorizationMachine(**SQUARE, **PAIRWISE),
}


def with_cold_items(made: Any) -> Any:
    """Fitted with two items that nobody had, and with two that came later."""
    table = pl.DataFrame({"item": list(range(13)), "kind": [k % 3 for k in range(13)]})
    known = sl.Features.from_frame(table, id="item", categorical=["kind"])
    made.fit(events(), item_features=known)
    return made.add_items(made.item_features_.encode(pl.DataFrame({"item": [90, 91], "kind": [1, 2]})))


@pytest.mark.parametrize("name", sorted(COLD))
@pytest.mark.parametrize("confidence", [False, True])
def test_items_without_events_count_by_their_features(name, confidence):
    """The pairs of the loss as it was, and those of such items; these are nobody's unobserved ones."""
    model = with_cold_items(COLD[name]())
    layout, n = model._layout, len(model.items_)
    trained = np.zeros(n, np.bool_)
    trained[layout.item_rows] = True
    assert (~trained).sum() == 4
    lists = [[11, 12], [0, 3, 11, 13], [14], [1, 2]]
    rows = SparseRows.from_lists([np.array(one) for one in lists], n)
    rng = np.random.default_rng(1)
    values, left = rng.integers(1, 5, len(rows)), rng.uniform(0.1, 1, len(rows))
    rows = replace(rows, values=values.astype(np.float32), confidence=left.astype(np.float32) if confidence else None)
    Psi, objective = model.item_embeddings_.astype(float), model.objective()

    def loss(r: int, phi: Any) -> float:
        scores, own = Psi @ phi, rows.row(r)
        a, left = strength(rows, r)
        if hasattr(objective, "shares"):
            shares = np.zeros(n)
            shares[trained] = objective.shares(model._loss.by_context)
            return float(sum(w * (shares * (scores[i] - scores - 1) ** 2).sum() for w, i in zip(a * left, own)))
        contexts, items = model._loss._omegas
        unobserved = np.zeros(n)
        unobserved[trained] = objective.unobserved_weight * items.values
        everywhere = contexts.new(rows.effective_counts)[r if contexts.exponent else 0] * unobserved * scores**2
        if objective.convention == "total":
            everywhere[own] *= 1 - left
        return float((a * left * (scores[own] - 1) ** 2).sum() + everywhere.sum())

    if hasattr(objective, "shares"):
        sizes = [float((a * left).sum()) for a, left in (strength(rows, r) for r in range(rows.n_rows))]
    else:
        sizes = rows.effective_counts + model.unobserved_weight * trained.sum()
    found = model._fold_in(rows)
    side = layout.new_contexts(layout.average(model._of_contexts()), layout.contexts[0][1])
    check(model, found, side, loss, sizes)


@pytest.mark.parametrize("name", sorted(COLD))
def test_a_history_of_new_items_is_answered_from_their_features(name):
    model = with_cold_items(COLD[name]())
    popular = model.recommend(history=[[]], n=5, exclude_seen=False).ids
    state = sl.UserState(model)
    state.add(90)
    assert state.embedding.any()
    first, second = model.recommend(history=[[90], [91]], n=5, exclude_seen=False).ids
    assert first != popular[0]
    assert first != second
    assert state.recommend(n=5, exclude_seen=False).ids[0] == first
    assert model.fold_in([[90]])[0] @ model.item_embeddings_[13] > model.fold_in([[91]])[0] @ model.item_embeddings_[13]
