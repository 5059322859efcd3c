"""Early stopping by a validation score."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Embeddings: TypeAlias = npt.NDArray[np.float32]


@dataclass
class EarlyStopping:
    """Stops a fit when its validation score (higher is better) has not improved for `patience` epochs.

    It keeps the items of the best epoch, the first one in case of ties, and the contexts if they are passed.

    >>> scores = iter([0.1, 0.3, 0.2, 0.3])
    >>> stopping = EarlyStopping(lambda items, contexts: next(scores), patience=2)
    >>> for epoch in range(1, 5):
    ...     _ = stopping.update(epoch, np.full((1, 1), epoch, np.float32))
    >>> stopping.should_stop(4), stopping.best_epoch, stopping.items.item()
    (True, 2, 2.0)
    """

    measure: Callable[[Embeddings, Embeddings | None], float]  # returns the score of items and, if given, contexts
    patience: int
    best: float = -math.inf
    best_epoch: int = 0
    items: Embeddings | None = None
    contexts: Embeddings | None = None

    def update(self, number: int, items: Embeddings, contexts: Embeddings | None = None) -> float:
        """Return the score of this epoch; keep its embeddings if it is the best so far."""
        value = float(self.measure(items, contexts))
        if value > self.best:
            self.best, self.best_epoch, self.items = value, number, items.copy()
            self.contexts = None if contexts is None else contexts.copy()
        return value

    def should_stop(self, number: int) -> bool:
        """Return whether to stop after this epoch."""
        return number - self.best_epoch >= self.patience
