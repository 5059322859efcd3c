"""Tiny problems for steps on sampled negatives: what a step is expected to do, by going through all draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from shortlist import MatrixFactorization
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives import Pointwise, loss_values
from shortlist.sampling import BoundSampler
from shortlist.solvers.optimizers import OptimizerState
from shortlist.solvers.sgd_kernels import run_given
from shortlist.solvers.sgd_tables import KernelKinds, ModelTables, StepTables, TrainingPairs, WeightTables, work_space

LISTS = [[0, 2], [1, 3, 4], [5], [0, 3]]
ITEMS, DIM = 6, 3
STRENGTHS = np.array([1.0, 2.5, 0.5, 1.5, 3.0, 0.75, 2.0, 1.25], np.float32)
Draws = list[tuple[int, float, float]]  # an item (−1: none), its weight, and the probability of both


@dataclass
class Task:
    """A composition over the tiny data, its rules with steps of length 1, and parameters to begin from."""

    settings: dict[str, Any]
    strengths: np.ndarray = field(default_factory=lambda: np.ones(1, np.float32))
    lists: list[list[int]] = field(default_factory=lambda: LISTS)
    seed: int = 0

    @cached_property
    def rows(self) -> SparseRows:
        return SparseRows.from_lists([np.array(one, np.int32) for one in self.lists], n_columns=ITEMS)

    @cached_property
    def recommender(self) -> MatrixFactorization:
        return MatrixFactorization(
            **{"dim": DIM, "learning_rate": 1.0, "regularization": 0.0, "optimizer": "sgd", **self.settings}
        )

    @cached_property
    def rules(self) -> StepTables:
        return self.recommender._step_tables(self.recommender._precompute(self.rows), self.rows.effective_counts)

    @cached_property
    def weigher(self) -> WeightTables:
        return self.recommender._weigher(self.recommender._precompute(self.rows), int(self.rows.lengths.max()))

    @cached_property
    def start(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        W = rng.normal(size=(len(self.lists), DIM))
        H = rng.normal(size=(ITEMS, DIM))
        if self.recommender.biases:
            W = np.hstack([W, np.ones((len(W), 1)), rng.normal(size=(len(W), 1))])
            H = np.hstack([H, rng.normal(size=(len(H), 1)), np.ones((len(H), 1))])
        return W.astype(np.float32), H.astype(np.float32)

    @cached_property
    def negatives(self) -> BoundSampler:
        found = self.recommender.recipe().sampler.bind(self.rows)  # type: ignore[union-attr]
        found.refresh(units(self.start[1], self.rules.cosine))
        return found

    @property
    def m(self) -> int:
        return self.rules.n_negatives

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(c, i) for c, items in enumerate(self.lists) for i in items]

    def scores(self, W: np.ndarray | None = None, H: np.ndarray | None = None) -> np.ndarray:
        W, H = (a if b is None else b for a, b in zip(self.start, (W, H)))
        return scores(W, H, self.rules.cosine)

    def about(self, c: int) -> dict[str, np.ndarray]:
        """What samplers may ask for."""
        return {"context_embedding": self.start[0][c], "scores": self.scores()[c]}

    def plain(self, c: int, i: int) -> Draws:
        """Draws that weigh 1, by the sampler's probabilities."""
        q = self.negatives.probabilities(c, i, **self.about(c))
        rest = [(-1, 1.0, 1 - q.sum())] if q.sum() < 1 - 1e-9 else []
        return [(int(j), 1.0, float(q[j])) for j in np.flatnonzero(q)] + rest

    # --- what the steps do -------------------------------------------------------------------------------------------

    def step(self, e: int, negatives: list[int], weights: list[float], rules: StepTables | None = None) -> Step:
        """How parameters move in one step on pair e."""
        rules = rules or self.rules
        W, H = (one.copy() for one in self.start)
        model = ModelTables(W, H, *(OptimizerState.of(rules.optimizer, one.shape) for one in (W, H)))
        kinds = KernelKinds.of(self.negatives.tables, self.weigher, rules)._replace(sampler=(), weighing=())
        run_given(
            kinds, self.given([e]), np.array([negatives], np.int32), np.array([weights], np.float32), rules, model,
            work_space(W.shape[1], rules.n_negatives, self.weigher), np.zeros(3),
        )  # fmt: skip
        return W.astype(float) - self.start[0], H.astype(float) - self.start[1]

    def given(self, which: list[int]) -> TrainingPairs:
        c, i = np.array(self.pairs, np.int32)[which].T
        strengths = self.strengths[which] if len(self.strengths) > 1 else self.strengths
        return TrainingPairs(np.ascontiguousarray(c), np.ascontiguousarray(i), strengths)

    def expected(self, draws: Callable[[int, int], Draws], which: list[int] | None = None) -> Step:
        """The mean of a step for each of the pairs, over every combination of draws, all from the same parameters."""
        total = [np.zeros(one.shape) for one in self.start]
        for e in range(len(self.pairs)) if which is None else which:
            for some in product(draws(*self.pairs[e]), repeat=self.m):
                items, weights, probabilities = zip(*some)
                for out, one in zip(total, self.step(e, list(items), list(weights))):
                    np.add(out, np.prod(probabilities) * one, out=out)
        return total[0], total[1]

    # --- what they should do -----------------------------------------------------------------------------------------

    def parts(self) -> Iterator[tuple[int, int, float, float]]:
        """Each pair, the weight of its losses, and its label."""
        n_c = self.rows.lengths
        n_i = np.maximum(1, self.rows.column_counts())
        rho_c, rho_i = self.recommender.positive_context_exponent, self.recommender.positive_item_exponent
        omega_c, omega_i = n_c**rho_c / np.mean(n_c**rho_c), n_i**rho_i / np.mean(n_i**rho_i)
        for e, (c, i) in enumerate(self.pairs):
            strength = float(self.strengths[e if len(self.strengths) > 1 else 0])
            label = self.recommender.strength_as == "label"
            yield c, i, omega_c[c] * omega_i[i] * (1 if label else strength), strength if label else 1.0

    def loss(self, W: np.ndarray, H: np.ndarray, alpha: Callable[..., np.ndarray]) -> float:
        """The declared loss, with `alpha(c)` of negatives for pointwise losses and `alpha(c, i)` for pairwise ones."""
        objective = self.recommender.recipe().objective
        y = self.scores(W, H) / objective.temperature
        total, mean = 0.0, np.mean(self.rows.lengths**self.recommender.positive_context_exponent)
        for c, i, weight, label in self.parts():
            if isinstance(objective, Pointwise):
                total += weight * float(loss_values(objective.loss, y[c, i], label))
            else:
                total += weight * float(alpha(c, i) @ loss_values(objective.loss, y[c, i] - y[c], 1.0))
        if isinstance(objective, Pointwise):
            for c in range(len(self.lists)):
                omega = self.rows.lengths[c] ** self.recommender.positive_context_exponent / mean
                total += omega * float(alpha(c) @ loss_values(objective.loss, y[c], objective.negative_label))
        return total

    def gradient(self, alpha: Callable[..., np.ndarray]) -> Step:
        """Of the loss, by central differences; 0 for coordinates that are fixed. α stays what it is here."""
        table = {key: alpha(*key) for key in [(c,) for c in range(len(self.lists))] + self.pairs}
        found = [np.zeros(one.shape) for one in self.start]
        rates = (self.rules.context_rates, self.rules.item_rates)
        start = [one.astype(float) for one in self.start]
        for side, out, rate in zip(range(2), found, rates):
            for at in np.ndindex(out.shape):
                values = []
                for sign in (1, -1):
                    moved = [one.copy() for one in start]
                    moved[side][at] += sign * 1e-6
                    values.append(self.loss(*moved, lambda *key: table[key]))
                out[at] = (values[0] - values[1]) / 2e-6 if rate[at[1]] else 0
        return found[0], found[1]


Step = tuple[np.ndarray, np.ndarray]


def units(X: np.ndarray, cosine: int) -> np.ndarray:
    X = X.copy()
    if cosine:
        X[:, :cosine] /= np.linalg.norm(X[:, :cosine], axis=1, keepdims=True)
    return X


def scores(W: np.ndarray, H: np.ndarray, cosine: int) -> np.ndarray:
    return units(W.astype(float), cosine) @ units(H.astype(float), cosine).T


def same_step(found: Step, expected: Step, tolerance: float = 2e-5) -> None:
    """Steps go down: found = −expected."""
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, -other, atol=tolerance, rtol=1e-4)
    assert max(np.abs(one).max() for one in expected) > 0.05, "the case says nothing"
