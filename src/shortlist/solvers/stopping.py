"""Early stopping by a validation score."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from shortlist._state import State


@dataclass
class EarlyStopping:
    """Stops a fit when its validation score (higher is better) has not improved for `patience` epochs.

    It keeps the snapshot of the best epoch, the first one in case of ties.

    >>> import numpy as np
    >>> scores = iter([0.1, 0.3, 0.2, 0.3])
    >>> stopping = EarlyStopping(lambda snapshot: next(scores), patience=2)
    >>> for epoch in range(1, 5):
    ...     _ = stopping.update(epoch, {"items": np.full((1, 1), epoch)})
    >>> stopping.should_stop(4), stopping.best_epoch, stopping.snapshot["items"].item()
    (True, 2, 2)
    """

    measure: Callable[[State], float]  # returns the score of a snapshot
    patience: int
    best: float = -math.inf
    best_epoch: int = 0
    snapshot: State | None = None  # of the best epoch

    def update(self, number: int, snapshot: State) -> float:
        """Return the score of this epoch; keep a copy of its snapshot if it is the best so far."""
        value = float(self.measure(snapshot))
        if value > self.best:
            self.best, self.best_epoch = value, number
            self.snapshot = {name: array.copy() for name, array in snapshot.items()}
        return value

    def should_stop(self, number: int) -> bool:
        """Return whether to stop after this epoch."""
        return number - self.best_epoch >= self.patience
