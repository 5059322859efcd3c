"""The training loop of alternating least squares in PyTorch, on GPU or CPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pointwise_square import LossParts, PointwiseSquare
from shortlist.solvers.epochs import WholeRows
from shortlist.solvers.torch_half_step import DeviceSolver


class DeviceAlternation(WholeRows):
    """The loop of `Alternation` with a `DeviceSolver`, which keeps all arrays on its device.

    Args:
        objective: the loss.
        by_context: the observed pairs, with a row for each context.
        by_item: the same pairs, with a row for each item.
        items: start values.
        contexts: start values; zeros by default.
        device: the device, see `DeviceSolver`.
    """

    def __init__(
        self,
        objective: PointwiseSquare,
        by_context: SparseRows,
        by_item: SparseRows,
        items: npt.NDArray[np.float32],
        *,
        contexts: npt.NDArray[np.float32] | None = None,
        device: str,
    ) -> None:
        of_contexts, of_items = (omega.values for omega in objective.omegas(by_context))
        self._total = objective.convention == "total"
        self._solver = DeviceSolver(
            by_context,
            by_item,
            objective.terms(by_context, of_contexts, of_items),
            objective.terms(by_item, of_items, of_contexts),
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

    def restore(self, items: npt.NDArray[np.float32], contexts: npt.NDArray[np.float32] | None = None) -> None:
        """Set the items to these embeddings and the contexts to zero."""
        self._solver.restore(items)

    def loss(self) -> LossParts:
        """Return the parts of the loss."""
        return LossParts(*self._solver.loss(total=self._total))

    def embeddings(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return copies of the embeddings of contexts and of items."""
        return self._solver.embeddings()
