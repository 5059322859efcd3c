"""Algorithm 4 against brute force: every model × {ALS, CD} × {pointwise, pairwise}, on random tiny problems."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pairwise_square import PairwiseSquare
from shortlist.objectives.pointwise_square import PointwiseSquare
from shortlist.scoring.sides import (
    EmbeddingTable,
    FeaturePrior,
    FeatureSum,
    ParafacSide,
    PartBlock,
    Side,
    TableBlock,
    TuckerSide,
    neutral_core,
)
from shortlist.solvers.multilinear_als import (
    MANY,
    MultilinearAlternation,
    coordinate_step,
    generic_step,
    least_squares_step,
)
from shortlist.solvers.pairwise_rows import PairwiseAlternation
from shortlist.solvers.single_rows import solve_rows
from shortlist.solvers.square_losses import SquareLoss, square_loss

MODELS = ["mf", "parafac", "tucker", "fm", "fm-apart", "described"]
LOSSES = ["pointwise", "total", "pairwise"]


def random_rows(rng: np.random.Generator, n: int, m: int, share: float, weighted: bool = False) -> SparseRows:
    dense = rng.random((n, m)) < share
    dense[rng.integers(n), rng.integers(m)] = True
    indptr = np.concatenate([[0], dense.sum(axis=1).cumsum()]).astype(np.int64)
    indices = np.nonzero(dense)[1].astype(np.int32)
    values = rng.integers(1, 4, len(indices)).astype(np.float32) if weighted else None
    return SparseRows(indptr, indices, values, m)


def normal(rng: np.random.Generator, *shape: int) -> Any:
    return (0.6 * rng.standard_normal(shape)).astype(np.float32)


def features(rng: np.random.Generator, n: int) -> tuple[SparseRows, list[slice]]:
    """An id-like field, one of several values, and a numeric one that some rows lack."""
    dense = np.zeros((n, 10), np.float32)
    dense[np.arange(n), rng.integers(0, 4, n)] = 1
    dense[:, 4:9] = np.where(rng.random((n, 5)) < 0.4, rng.random((n, 5)), 0)
    dense[:, 9] = np.where(rng.random(n) < 0.7, rng.standard_normal(n), 0)
    filled = dense != 0
    indptr = np.concatenate([[0], filled.sum(axis=1).cumsum()]).astype(np.int64)
    rows = SparseRows(indptr, np.nonzero(filled)[1].astype(np.int32), dense[filled], 10)
    return rows, [slice(0, 4), slice(4, 9), slice(9, 10)]


def sides(rng: np.random.Generator, model: str, n: int, m: int, d: int = 3) -> tuple[Side, Side]:
    if model == "mf":
        return EmbeddingTable(normal(rng, n, d)), EmbeddingTable(normal(rng, m, d))
    if model in ("parafac", "tucker"):
        sizes = (4, 3, 2)
        codes = np.stack([rng.integers(0, k, n) for k in sizes], axis=1)
        if model == "parafac":
            return ParafacSide(codes, [normal(rng, k, d) for k in sizes]), EmbeddingTable(normal(rng, m, d))
        ranks = (3, 2, 2)
        tables = [normal(rng, k, r) for k, r in zip(sizes, ranks)]
        core = neutral_core(ranks, d) + normal(rng, 12, d)
        return TuckerSide(codes, tables, core), EmbeddingTable(normal(rng, m, d))
    (X, spans), (Y, others) = features(rng, n), features(rng, m)
    if model == "described":
        return FeaturePrior(normal(rng, n, d), X, normal(rng, 11, d)), FeaturePrior(
            normal(rng, m, d), Y, normal(rng, 11, d)
        )
    within = model == "fm"
    return (
        FeatureSum(X, spans, normal(rng, 10, d + 1), normal(rng, 1, 1), within),
        FeatureSum(Y, others, normal(rng, 10, d + 1), None, within),
    )


def problem(
    seed: int, model: str, loss: str, *, dim: int = 3, regularization: float = 0.05
) -> tuple[SquareLoss, Side, Side, Any]:
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(3, 9)), int(rng.integers(3, 8))
    by_context = random_rows(rng, n, m, 0.35, weighted=bool(seed % 2))
    common = {"regularization": regularization, "regularization_exponent": 0.5, "weighting": "log"}
    objective: Any
    if loss == "pairwise":
        objective = PairwiseSquare(item_exponent=0.4, **common)
    else:
        convention: Any = "total" if loss == "total" else "added"
        rhos = {"unobserved_item_exponent": 0.5, "unobserved_context_exponent": -0.3}
        objective = PointwiseSquare(unobserved_weight=0.3, convention=convention, **rhos, **common)
    contexts, items = sides(rng, model, n, m, dim)
    made = square_loss(objective, by_context, by_context.transpose(), 1)
    for side, sizes in zip((contexts, items), made.sizes):
        side.regularize(sizes, regularization, 0.5)
    return made, contexts, items, (objective, by_context)


def brute(contexts: Side, items: Side, task: Any) -> float:
    """The loss by the double sum over C × I, or the triple one over S × I, in float64."""
    objective, rows = task
    scores = contexts.embeddings().astype(np.float64) @ items.embeddings().astype(np.float64).T
    counts = np.maximum(1, rows.column_counts())
    values = np.ones(len(rows)) if rows.values is None else rows.values
    observed = {
        (c, int(i)): np.log2(1 + values[e])
        for c in range(rows.n_rows)
        for e, i in zip(range(rows.indptr[c], rows.indptr[c + 1]), rows.row(c))
    }
    total = contexts.penalty() + items.penalty()
    if isinstance(objective, PairwiseSquare):
        share = counts**0.4 / (counts**0.4).sum()
        for (c, i), a in observed.items():
            for j in range(rows.n_columns):
                total += a * share[j] * (scores[c, i] - scores[c, j] - 1) ** 2
        return float(total)
    own = np.maximum(1, rows.lengths) ** -0.3
    omega = np.outer(own / own.mean(), counts**0.5 / (counts**0.5).mean())
    for c in range(rows.n_rows):
        for i in range(rows.n_columns):
            a = observed.get((c, i))
            if a is not None:
                total += a * (scores[c, i] - 1) ** 2
            if a is None or objective.convention == "added":
                total += 0.3 * omega[c, i] * scores[c, i] ** 2
    return float(total)


def both(made: SquareLoss, contexts: Side, items: Side) -> Any:
    Phi, Psi = contexts.embeddings(), items.embeddings()
    yield contexts, Phi, made.of_contexts(Psi)
    yield items, Psi, made.of_items(Phi, Psi)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", MODELS)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=12, deadline=None)
def test_gradients_hessians_and_losses_are_those_of_the_double_sum(model, loss, seed):
    made, contexts, items, task = problem(seed, model, loss)
    expected = brute(contexts, items, task)
    value = sum(made.value(contexts.embeddings(), items.embeddings())) + contexts.penalty() + items.penalty()
    assert value == pytest.approx(expected, rel=1e-4, abs=1e-4)
    rng = np.random.default_rng(seed)
    for grouped in (False, True):
        for side, Phi, quadratic in both(made, contexts, items):
            for block in side.blocks(Phi, grouped=grouped):
                here = quadratic if block.rows is None else quadratic.part(block.rows)
                now = Phi if block.rows is None else Phi[block.rows]
                slope = block.back(here.slope(now)) + block.ridge * (block.values - block.prior)
                towards = normal(rng, *block.values.shape)
                turn = block.back(here.apply(block.forward(towards))) + block.ridge * towards
                # A quadratic along any line: three values of it give its derivatives without error.
                start, losses = block.values.copy(), []
                for step in (-1, 0, 1):
                    block.values[:] = start + step * towards
                    losses.append(brute_in(side, block, contexts, items, task))
                block.values[:] = start
                scale = max(1.0, *map(abs, losses))
                first, second = (losses[2] - losses[0]) / 4, (losses[2] + losses[0] - 2 * losses[1]) / 4
                assert float((slope * towards).sum()) == pytest.approx(first, abs=2e-4 * scale)
                assert float((towards * turn).sum()) / 2 == pytest.approx(second, abs=2e-4 * scale)
                of_rows = here.diagonal()
                diagonal = block.squared_transpose(of_rows)
                for _ in range(3):
                    g, k = rng.integers(block.values.shape[0]), rng.integers(block.values.shape[1])
                    one = np.zeros_like(block.values)
                    one[g, k] = 1
                    entry = (np.square(block.forward(one)) * of_rows).sum()
                    if not isinstance(block, PartBlock):  # which approximates it where there are more than two parts
                        assert diagonal[g, k] == pytest.approx(entry, rel=1e-3, abs=1e-3)
                r, f = rng.integers(now.shape[0]), rng.integers(now.shape[1])
                unit = np.zeros_like(now)
                unit[r, f] = 1
                assert of_rows[r, f] == pytest.approx(here.apply(unit)[r, f], rel=1e-3, abs=1e-4)


def brute_in(side: Side, block: Any, contexts: Side, items: Side, task: Any) -> float:
    """The double sum while a block, which may be a copy of a part of its side's values, has moved."""
    if isinstance(side, FeatureSum) and block.values.shape[1] > 1:
        place = place_of(side, block)
        before = side.values.copy()
        side.values[place.columns] = block.values
        found = brute(contexts, items, task)
        side.values[:] = before
        return found
    return brute(contexts, items, task)


def place_of(side: FeatureSum, block: Any) -> Any:
    every = [*side._feature_groups(True), *side._feature_groups(False)]
    alike = (one for one in every if one.groups is block.groups and len(one.columns) == len(block.values))
    return next(one for one in alike if one.rows is block.rows)


@pytest.mark.parametrize("method", ["als", "cd"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", MODELS)
@given(seed=st.integers(0, 10_000), steps=st.integers(1, 4))
@settings(max_examples=12, deadline=None)
def test_no_half_step_of_any_block_raises_the_loss(model, loss, method, seed, steps):
    made, contexts, items, task = problem(seed, model, loss)
    before = brute(contexts, items, task)
    for _ in range(2):
        for side, Phi, quadratic in both(made, contexts, items):
            for block in side.blocks(Phi, grouped=method == "cd"):
                if method == "cd":
                    coordinate_step(block, quadratic, Phi)
                else:
                    least_squares_step(block, quadratic, Phi, steps)
                if isinstance(side, FeatureSum) and block.values.shape[1] > 1:
                    side.values[place_of(side, block).columns] = block.values
                np.testing.assert_allclose(Phi, side.embeddings(), rtol=1e-3, atol=1e-4)
                after = brute(contexts, items, task)
                assert after <= before + 1e-4 * max(1.0, before)
                before = after
            side.settle()
            after = brute(contexts, items, task)
            assert after <= before + 1e-4 * max(1.0, before)
            before = after


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", MODELS)
def test_enough_steps_end_where_the_gradient_is_nothing(model, loss):
    made, contexts, items, _ = problem(7, model, loss)
    for side, Phi, quadratic in both(made, contexts, items):
        for block in side.blocks(Phi, grouped=False):
            least_squares_step(block, quadratic, Phi, MANY)
            here = quadratic if block.rows is None else quadratic.part(block.rows)
            slope = here.slope(Phi if block.rows is None else Phi[block.rows])
            rest = block.back(slope) + block.ridge * (block.values - block.prior)
            np.testing.assert_allclose(rest, 0, atol=3e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", MODELS)
def test_a_sweep_of_coordinates_is_gauss_seidel(model, loss):
    """One coordinate after the other, each by the derivatives of the double sum: the same numbers."""
    made, contexts, items, task = problem(12, model, loss)
    for side, Phi, quadratic in both(made, contexts, items):
        for block in side.blocks(Phi, grouped=True):
            start = block.values.copy()
            coordinate_step(block, quadratic, Phi)
            got = block.values.copy()
            block.values[:] = start
            for j in range(start.shape[1]):
                for g in range(len(start)):
                    losses = []
                    for step in (-1, 0, 1):
                        block.values[g, j] = start[g, j] + step
                        losses.append(brute_in(side, block, contexts, items, task))
                    curve = losses[2] + losses[0] - 2 * losses[1]
                    if curve > 1e-6:
                        start[g, j] -= (losses[2] - losses[0]) / 2 / curve
                    block.values[g, j] = start[g, j]
            np.testing.assert_allclose(got, start, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("method", ["als", "cd"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", MODELS)
def test_epochs_bring_the_loss_down(model, loss, method):
    made, contexts, items, task = problem(3, model, loss)
    loop = MultilinearAlternation(made, contexts, items, method, 3)
    losses = [loop.loss().total]
    for _ in range(15):
        loop.epoch()
        losses.append(loop.loss().total)
    assert losses[-1] == pytest.approx(brute(contexts, items, task), rel=1e-4)
    assert (np.diff(losses) <= 1e-5 * losses[0]).all()
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize(
    ("model", "loss", "method"), [*product(MODELS, LOSSES, ["als", "cd"]), ("mf", "pairwise", "rows")]
)
def test_more_dimensions_than_the_rank_and_hardly_any_lambda(model, loss, method):
    """No epoch raises the loss, and neither does the end: nothing is known along directions without curvature."""
    for regularization in (0.0, 1e-10, 1e-7):
        made, contexts, items, task = problem(0, model, loss, dim=17, regularization=regularization)
        kind = PairwiseAlternation if method == "rows" else MultilinearAlternation
        loop = kind(made, contexts, items, "cd" if method == "cd" else "als", 3)
        losses = [brute(contexts, items, task)]
        for step in [loop.epoch] * 6 + [loop.finish]:
            step()
            losses.append(brute(contexts, items, task))
        assert (np.diff(losses) <= 1e-4 * np.abs(losses[:-1]) + 1e-4).all(), (regularization, losses)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("model", MODELS)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=12, deadline=None)
def test_fast_paths_end_where_the_generic_step_does(model, loss, seed):
    """Steps may differ, since rows take them in the eigenbasis of the Gramian; ends, and the descent, do not."""
    made, contexts, items, task = problem(seed, model, loss)
    for side, Phi, quadratic in both(made, contexts, items):
        for block in side.blocks(Phi, grouped=True):
            if quadratic.coupled:
                continue
            start, rows = block.values.copy(), Phi.copy()
            before = brute(contexts, items, task)
            generic_step(block, quadratic, Phi, MANY)
            expected = block.values.copy()
            for steps in (1, 2, MANY):
                block.values[:], Phi[:] = start, rows
                if isinstance(block, TableBlock):  # of which few are left to the generic step
                    solve_rows(quadratic, block.values, block.ridge, block.prior, steps, 1e-12)
                    Phi[:] = block.values
                else:
                    least_squares_step(block, quadratic, Phi, steps)
                assert brute_in(side, block, contexts, items, task) <= before + 1e-4 * max(1.0, before)
            np.testing.assert_allclose(block.values, expected, rtol=5e-3, atol=5e-3)
            if isinstance(side, FeatureSum) and block.values.shape[1] > 1:
                side.values[place_of(side, block).columns] = block.values
            np.testing.assert_allclose(Phi, side.embeddings(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("strength", [0.0, 0.01, 1.0])
def test_maps_of_features_are_the_ridge_regression(strength):
    """Features on different scales, two of them nearly the same."""
    rng = np.random.default_rng(3)
    X = (rng.random((300, 40)) < 0.08).astype(np.float32)
    X[:, 0] = 3 * rng.standard_normal(300)
    X[:, 1] = X[:, 0] + 0.1 * rng.standard_normal(300)
    indptr = np.concatenate([[0], (X != 0).sum(axis=1).cumsum()]).astype(np.int64)
    rows = SparseRows(indptr, np.nonzero(X)[1].astype(np.int32), X[X != 0], 40)
    side = FeaturePrior(normal(rng, 300, 8), rows, np.zeros((41, 8), np.float32), strength)
    side.regularize(50.0 + rng.integers(1, 500, 300), 0.003, 1.0)
    side.settle()
    own, of_maps = (one.astype(np.float64) for one in side.ridges)
    wide = np.hstack([np.ones((300, 1)), X])
    A = wide.T @ (own * wide) + np.diag(of_maps[:, 0])
    expected = wide @ np.linalg.lstsq(A, wide.T @ (own * side.parameters[0]), rcond=1e-13)[0]
    np.testing.assert_allclose(side.feature_means(), expected, atol=2e-5 * np.abs(expected).max())
