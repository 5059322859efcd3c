"""Alternating least squares for matrix factorization (Algorithm 4's loop with rows as blocks)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist.data.rows import Rows
from shortlist.objectives.pointwise import LossParts, PointwiseSquare
from shortlist.solvers.rows import solve_rows


@dataclass(frozen=True)
class Epoch:
    """What a solver reports after each pass: to a progress bar, a log, or whoever else listens."""

    number: int  # from 1
    epochs: int  # how many there will be
    loss: LossParts
    seconds: float  # of this pass, without the time to compute the loss


Callback: TypeAlias = Callable[[Epoch], object]


def initial_embeddings(n_rows: int, dim: int, scale: float, seed: int) -> npt.NDArray[np.float32]:
    """Start values N(0, (scale/√d)²)."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    return rng.standard_normal((n_rows, dim), dtype=np.float32) * np.float32(scale / np.sqrt(dim))


def alternate(
    objective: PointwiseSquare,
    by_context: Rows,
    by_item: Rows,
    item_embeddings: npt.NDArray[np.float32],
    *,
    epochs: int,
    callbacks: Sequence[Callback] = (),
    threads: int | None = None,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Minimise the objective by turns: contexts given items, items given contexts.

    The first half-step solves for the contexts, so only the items need start values. A last half-step for the contexts
    ends it: every context's embedding is then what `fold_in` makes of its history.
    """
    dim = item_embeddings.shape[1]
    items = item_embeddings.copy()
    contexts = np.zeros((by_context.n_rows, dim), np.float32)
    context_terms, item_terms = objective.terms(by_context), objective.terms(by_item)
    alpha0 = objective.unobserved_weight
    for epoch in range(1, epochs + 1):
        began = time.perf_counter()
        solve_rows(by_context, context_terms, items, alpha0, contexts, threads)
        solve_rows(by_item, item_terms, contexts, alpha0, items, threads)
        if epoch == epochs:
            solve_rows(by_context, context_terms, items, alpha0, contexts, threads)
        seconds = time.perf_counter() - began
        loss = objective.loss(by_context, by_item, contexts, items, threads)
        for callback in callbacks:
            callback(Epoch(epoch, epochs, loss, seconds))
    return contexts, items
