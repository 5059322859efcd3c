"""Tiny random factorization problems for oracles to be exact on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives import PointwiseSquare, Terms
from shortlist.solvers.als import Alternation
from shortlist.solvers.half_step import HalfStep
from shortlist.solvers.train import Callback, train


@dataclass
class Problem:
    objective: PointwiseSquare
    by_context: SparseRows
    W: np.ndarray
    H: np.ndarray

    @property
    def by_item(self) -> SparseRows:
        return self.by_context.transpose()

    @property
    def context_terms(self) -> Terms:
        return self.objective.terms(self.by_context)

    @property
    def item_terms(self) -> Terms:
        contexts, items = self.objective.omegas(self.by_context)
        return self.objective.terms(self.by_item, items.values, contexts.values)

    @property
    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Which pairs are observed, and their weights in the data."""
        mask = np.zeros((self.by_context.n_rows, self.by_context.n_columns), bool)
        weight = np.zeros(mask.shape)
        row = np.repeat(np.arange(mask.shape[0]), self.by_context.lengths)
        mask[row, self.by_context.indices] = True
        values = self.by_context.values
        weight[row, self.by_context.indices] = 1 if values is None else values
        return mask, weight


def make(
    n_contexts: int = 12,
    n_items: int = 9,
    dim: int = 4,
    density: float = 0.3,
    seed: int = 0,
    weighted: bool = True,
    **kw: Any,
) -> Problem:
    rng = np.random.default_rng(seed)
    mask = rng.random((n_contexts, n_items)) < density
    indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)
    indices = np.nonzero(mask)[1].astype(np.int32)
    values = rng.integers(1, 6, len(indices)).astype(np.float32) if weighted else None
    return Problem(
        PointwiseSquare(**kw),
        SparseRows(indptr, indices, values, n_items),
        rng.standard_normal((n_contexts, dim)).astype(np.float32),
        rng.standard_normal((n_items, dim)).astype(np.float32),
    )


@st.composite
def problems(draw: Any) -> Problem:
    return make(
        n_contexts=draw(st.integers(1, 12)),
        n_items=draw(st.integers(1, 10)),
        dim=draw(st.integers(1, 7)),
        density=draw(st.sampled_from([0.0, 0.2, 0.6, 1.0])),
        seed=draw(st.integers(0, 10**6)),
        weighted=draw(st.booleans()),
        unobserved_weight=draw(st.sampled_from([0.0, 0.05, 0.5, 1.0])),
        regularization=draw(st.sampled_from([0.01, 0.1, 2.0])),
        regularization_exponent=draw(st.sampled_from([0.0, 0.5, 1.0])),
        weighting=draw(st.sampled_from(["binary", "log", "raw"])),
        strength_as=draw(st.sampled_from(["weight", "label"])),
        observed_weight=draw(st.sampled_from([0.3, 1.0, 4.0])),
        convention=draw(st.sampled_from(["added", "total"])),
        unobserved_item_exponent=draw(st.sampled_from([0.0, 0.5, -1.0])),
        unobserved_context_exponent=draw(st.sampled_from([0.0, 0.0, -0.5, 1.0])),
    )


def dense_loss(
    problem: Problem, W: np.ndarray | None = None, H: np.ndarray | None = None
) -> tuple[float, float, float]:
    """The loss as the docstring of `PointwiseSquare` prints it, pair by pair."""
    o = problem.objective
    W = (problem.W if W is None else W).astype(np.float64)
    H = (problem.H if H is None else H).astype(np.float64)
    mask, w = problem.dense
    strength = {"binary": np.ones_like(w), "log": np.log2(1 + w), "raw": w}[o.weighting]
    n_c, n_i = np.maximum(1, mask.sum(axis=1)), np.maximum(1, mask.sum(axis=0))
    omega_c = n_c**o.unobserved_context_exponent / np.mean(n_c**o.unobserved_context_exponent)
    omega_i = n_i**o.unobserved_item_exponent / np.mean(n_i**o.unobserved_item_exponent)
    observed = unobserved = 0.0
    for c in range(len(W)):
        for i in range(len(H)):
            score = float(W[c] @ H[i])
            if mask[c, i]:
                alpha = o.observed_weight * (strength[c, i] if o.strength_as == "weight" else 1)
                label = strength[c, i] if o.strength_as == "label" else 1
                observed += alpha * (score - label) ** 2
            if o.convention == "added" or not mask[c, i]:
                unobserved += o.unobserved_weight * omega_c[c] * omega_i[i] * score**2
    regularizer = 0.0
    for X, sizes, others in ((W, mask.sum(axis=1), omega_i.sum()), (H, mask.sum(axis=0), omega_c.sum())):
        for x, size in zip(X, sizes):
            regularizer += (
                o.regularization * (size + o.unobserved_weight * others) ** o.regularization_exponent * (x @ x)
            )
    return observed, unobserved, regularizer


def alternate(
    objective: PointwiseSquare,
    by_context: SparseRows,
    by_item: SparseRows,
    item_embeddings: np.ndarray,
    *,
    epochs: int,
    solver: HalfStep[Any] | None = None,
    last: HalfStep[Any] | None = None,
    callbacks: Sequence[Callback] = (),
    threads: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """`Alternation` from start to end: the embeddings of contexts and of items; what is handed in stays as it is."""
    trainer = Alternation(
        objective.with_weights(by_context),
        by_context,
        by_item,
        item_embeddings.copy(),
        solver=solver,
        last=last,
        threads=threads,
    )
    train(trainer, epochs, callbacks=callbacks)
    return trainer.embeddings()
