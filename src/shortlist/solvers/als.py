"""Alternating least squares for matrix factorization (Algorithm 4's loop with rows as blocks)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pointwise_square import LossParts, PointwiseSquare, Terms
from shortlist.solvers import exact
from shortlist.solvers.epochs import WholeRows

# Called with one side's rows and terms, the other side's embeddings, its own, and the threads; sets its own, given the
# other's. May rotate both in place by one orthogonal matrix: scores stay as they are.
HalfStep: TypeAlias = Callable[
    [SparseRows, Terms, npt.NDArray[np.float32], npt.NDArray[np.float32], int | None],
    None,
]


def initial_embeddings(n_rows: int, dim: int, scale: float, seed: int, stream: int = 0) -> npt.NDArray[np.float32]:
    """Start values N(0, (scale/√d)²), others for every stream of a seed."""
    rng = np.random.Generator(np.random.Philox(key=int(seed) + (stream << 64)))
    values = rng.standard_normal((n_rows, dim), dtype=np.float32)
    values *= np.float32(scale / np.sqrt(dim))
    return values


class Alternation(WholeRows):
    """Minimises the objective by turns: contexts given items, items given contexts.

    The first half-step solves for the contexts, so only the items need start values. `finish` solves for the contexts
    to the end: every context's embedding is then what `fold_in` makes of its history.

    Args:
        objective: the loss.
        by_context: the observed pairs, a row a context.
        by_item: the same, a row an item.
        items: start values; they are changed in place.
        contexts: likewise, where there are any.
        half_step: how a side is improved.
        last: how the contexts are solved for at the end.
        threads: how many to use.
    """

    def __init__(
        self,
        objective: PointwiseSquare,
        by_context: SparseRows,
        by_item: SparseRows,
        items: npt.NDArray[np.float32],
        *,
        contexts: npt.NDArray[np.float32] | None = None,
        half_step: HalfStep = exact.half_step,
        last: HalfStep = exact.half_step,
        threads: int | None = None,
    ) -> None:
        self._objective, self._by_context, self._by_item = objective, by_context, by_item
        self._omegas = objective.omegas(by_context)
        of_contexts, of_items = (omega.values for omega in self._omegas)
        self._context_terms = objective.terms(by_context, of_contexts, of_items)
        self._item_terms = objective.terms(by_item, of_items, of_contexts)
        self._items = items
        self._contexts = np.zeros((by_context.n_rows, items.shape[1]), np.float32) if contexts is None else contexts
        self._half_step, self._last, self._threads = half_step, last, threads

    def epoch(self) -> None:
        """A half-step for the contexts, then one for the items."""
        self._half_step(self._by_context, self._context_terms, self._items, self._contexts, self._threads)
        self._half_step(self._by_item, self._item_terms, self._contexts, self._items, self._threads)

    def finish(self) -> None:
        """The last half-step for the contexts."""
        self._last(self._by_context, self._context_terms, self._items, self._contexts, self._threads)

    def restore(self, items: npt.NDArray[np.float32], contexts: npt.NDArray[np.float32] | None = None) -> None:
        """Take these items and forget the contexts."""
        self._items[:] = items
        self._contexts[:] = 0

    def loss(self) -> LossParts:
        """The loss in its parts."""
        sides = self._by_context, self._by_item, self._contexts, self._items
        return self._objective.loss(*sides, self._threads, self._omegas)

    def embeddings(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Of contexts and of items: the arrays themselves."""
        return self._contexts, self._items
