"""The trainer of alternating least squares in PyTorch, on GPU or CPU."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shortlist._state import State, check_state
from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.loss_parts import LossParts
from shortlist.objectives.pointwise_square import WeightedSquare
from shortlist.solvers.torch_half_step import DeviceSolver


class DeviceAlternation:
    """The trainer of `Alternation` with a `DeviceSolver`, which keeps all arrays on its device.

    Args:
        loss: the loss, with its weights ω.
        by_context: the observed pairs, with a row for each context.
        by_item: the same pairs, with a row for each item.
        items: start values.
        contexts: start values; zeros by default.
        device: the device, see `DeviceSolver`.
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
        device: str,
    ) -> None:
        shapes = {"contexts": (by_context.n_rows, items.shape[1]), "items": items.shape}
        self._expected = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
        self._total = loss.objective.convention == "total"
        self._solver = DeviceSolver(
            by_context,
            by_item,
            loss.context_terms(by_context),
            loss.item_terms(by_item),
            items,
            contexts=contexts,
            device=device,
        )

    def epoch(self) -> None:
        """Run a half step for the contexts, then a half step for the items."""
        self._solver.epoch()

    def finish(self) -> None:
        """Solve for the contexts to convergence."""
        self._solver.finish()

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return copies of the embeddings of contexts and of items."""
        contexts, items = self._solver.embeddings()
        return {"contexts": contexts, "items": items}

    def load_state_dict(self, state: State) -> None:
        """Continue from these embeddings."""
        check_state(state, self._expected)
        self._solver.restore(state["items"], state["contexts"])

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Return a copy of the items; the contexts follow from them."""
        return {"items": self._solver.items()}

    def restore(self, snapshot: State) -> None:
        """Set the items to these embeddings and the contexts to zero."""
        check_state(snapshot, {"items": self._expected["items"]})
        self._solver.restore(snapshot["items"])

    def loss(self) -> LossParts:
        """Return the parts of the loss."""
        observed, unobserved, regularizer = self._solver.loss(total=self._total)
        return LossParts(observed=observed, unobserved=unobserved, regularizer=regularizer)

    def embeddings(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return copies of the embeddings of contexts and of items."""
        return self._solver.embeddings()
