"""The trainer of alternating least squares for matrix factorization (Algorithm 4 of the article).

Each epoch improves all context embeddings given the items, then all item embeddings given the contexts. A *half-step*
is the part for one side (`solvers.half_step`); `exact`, `eigen`, `block` and `coordinate` implement it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shortlist._state import State, load_state
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.loss_parts import LossParts
from shortlist.objectives.pointwise_square import WeightedSquare
from shortlist.solvers.exact import ExactSolver
from shortlist.solvers.half_step import HalfStep, half_step


def initial_embeddings(n_rows: int, dim: int, scale: float, seed: int, stream: int = 0) -> npt.NDArray[np.float32]:
    """Return start values from N(0, (scale/√d)²); every stream of a seed gives different values."""
    rng = np.random.Generator(np.random.Philox(key=int(seed) + (stream << 64)))
    values = rng.standard_normal((n_rows, dim), dtype=np.float32)
    values *= np.float32(scale / np.sqrt(dim))
    return values


class Alternation:
    """A trainer that minimises the objective for contexts given items, then for items given contexts.

    The first half step solves for the contexts, so only the items need start values. `finish` solves for the contexts
    to convergence, so every context's embedding equals what `fold_in` computes from its history.

    Args:
        loss: the loss, with its weights ω.
        by_context: the observed pairs, with a row for each context.
        by_item: the same pairs, with a row for each item.
        items: start values, changed in place.
        contexts: start values, changed in place; zeros by default.
        solver: improves one side given the other.
        last: solves for the contexts at the end.
        threads: number of threads.
    """

    samples: ClassVar[int] = 0

    def __init__(
        self,
        loss: WeightedSquare,
        by_context: SparseRows,
        by_item: SparseRows,
        items: npt.NDArray[np.float32],
        *,
        contexts: npt.NDArray[np.float32] | None = None,
        solver: HalfStep[Any] | None = None,
        last: HalfStep[Any] | None = None,
        threads: int | None = None,
    ) -> None:
        self._loss, self._by_context, self._by_item = loss, by_context, by_item
        self._context_terms, self._item_terms = loss.context_terms(by_context), loss.item_terms(by_item)
        self._items = items
        self._contexts = np.zeros((by_context.n_rows, items.shape[1]), np.float32) if contexts is None else contexts
        self._solver, self._last, self._threads = solver or ExactSolver(), last or ExactSolver(), threads

    def epoch(self) -> None:
        """Run a half step for the contexts, then a half step for the items."""
        self._improve_contexts(self._solver)
        half_step(self._solver, self._by_item, self._item_terms, self._contexts, self._items, self._threads)

    def finish(self) -> None:
        """Run the last half step for the contexts."""
        self._improve_contexts(self._last)

    def _improve_contexts(self, solver: HalfStep[Any]) -> None:
        half_step(solver, self._by_context, self._context_terms, self._items, self._contexts, self._threads)

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return the embeddings of contexts and items; the arrays are not copied."""
        return {"contexts": self._contexts, "items": self._items}

    def load_state_dict(self, state: State) -> None:
        """Continue from these embeddings."""
        load_state(self.state_dict(), state)

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Return the items, not copied; the contexts follow from them."""
        return {"items": self._items}

    def restore(self, snapshot: State) -> None:
        """Set the items to these embeddings and the contexts to zero."""
        load_state(self.snapshot(), snapshot)
        self._contexts[:] = 0

    def loss(self) -> LossParts:
        """Return the parts of the loss."""
        sides = self._by_context, self._by_item, self._contexts, self._items
        return self._loss.objective.loss(*sides, self._threads, (self._loss.contexts, self._loss.items))

    def embeddings(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return the embeddings of contexts and of items; the arrays are not copied."""
        return self._contexts, self._items
