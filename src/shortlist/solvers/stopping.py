"""Early stopping: when to end, and which epoch was the best."""

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
    """Ends a fit when a figure, the higher the better, has not risen above its best for `patience` epochs.

    Of the best epoch, the first of them where several are alike, it keeps the items, and the contexts where they do not
    follow from these.

    >>> figures = iter([0.1, 0.3, 0.2, 0.3])
    >>> stopping = Stopping(lambda items, contexts: next(figures), patience=2)
    >>> for epoch in range(1, 5):
    ...     _ = stopping.update(epoch, np.full((1, 1), epoch, np.float32))
    >>> stopping.should_stop(4), stopping.best_epoch, stopping.items.item()
    (True, 2, 2.0)
    """

    measure: Callable[[Embeddings, Embeddings | None], float]  # of a model with these items, and contexts if given
    patience: int
    best: float = -math.inf
    best_epoch: int = 0
    items: Embeddings | None = None
    contexts: Embeddings | None = None

    def update(self, number: int, items: Embeddings, contexts: Embeddings | None = None) -> float:
        """The figure of this epoch; its embeddings are kept if it is the best so far."""
        value = float(self.measure(items, contexts))
        if value > self.best:
            self.best, self.best_epoch, self.items = value, number, items.copy()
            self.contexts = None if contexts is None else contexts.copy()
        return value

    def should_stop(self, number: int) -> bool:
        """Whether to end after this epoch."""
        return number - self.best_epoch >= self.patience
