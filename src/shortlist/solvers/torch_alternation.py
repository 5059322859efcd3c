"""The alternating loop on a GPU, or on torch's CPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pointwise_square import LossParts, PointwiseSquare
from shortlist.solvers.epochs import WholeRows
from shortlist.solvers.torch_half_step import DeviceSolver


class DeviceAlternation(WholeRows):
    """`Alternation` with a `DeviceSolver`, which keeps everything on its device: a loop for `run` like any other.

    Args:
        objective: the loss.
        by_context: the observed pairs, a row a context.
        by_item: the same, a row an item.
        items: start values.
        contexts: likewise, where there are any.
        device: as `DeviceSolver` takes it.
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
        """A half-step for the contexts, then one for the items."""
        self._solver.epoch()

    def finish(self) -> None:
        """The contexts, solved for to the end."""
        self._solver.finish()

    def restore(self, items: npt.NDArray[np.float32], contexts: npt.NDArray[np.float32] | None = None) -> None:
        """Take these items and forget the contexts."""
        self._solver.restore(items)

    def loss(self) -> LossParts:
        """The loss in its parts."""
        return LossParts(*self._solver.loss(total=self._total))

    def embeddings(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Of contexts and of items: copies from the device."""
        return self._solver.embeddings()
