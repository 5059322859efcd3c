"""The epoch loop around every iterative solver: progress reports, early stopping and resuming."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._clock import working_seconds
from shortlist.objectives.pointwise_square import LossParts
from shortlist.solvers.stopping import EarlyStopping

Embeddings: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Epoch:
    """The report of one epoch, for callbacks such as a progress bar or a log."""

    number: int  # from 1
    epochs: int  # maximum number of epochs
    loss: LossParts
    seconds: float  # time of this epoch, without computing the loss, validating and compiling kernels
    validation: float | None = None  # the metric on the validation split, if there is one
    samples: int = 0  # number of steps, for sampled training


Callback: TypeAlias = Callable[[Epoch], object]


class Loop(Protocol):
    """The embeddings of both sides and a solver that improves them, on CPU or GPU."""

    def epoch(self) -> object:
        """Run one pass over both sides."""

    def finish(self) -> None:
        """Solve for the contexts to convergence, given the items; does nothing if steps on pairs learn both sides."""

    def outcome(self) -> tuple[Embeddings, Embeddings | None]:
        """Return the result of the fit if this were the last epoch: items, and contexts if they are `joint`."""

    def restore(self, items: Embeddings, contexts: Embeddings | None) -> None:
        """Set the embeddings; without `contexts`, the contexts are undefined until they are solved for."""

    def loss(self) -> LossParts:
        """Return the loss of the current embeddings."""

    def embeddings(self) -> tuple[Embeddings, Embeddings]:
        """Return the current embeddings of contexts and of items, not copied if possible."""

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state that a resumed fit needs besides the embeddings."""

    def load_state_dict(self, number: int, state: dict[str, npt.NDArray[Any]]) -> None:
        """Resume after `number` epochs with this state; raise ValueError if it does not fit."""

    @property
    def joint(self) -> bool:
        """Whether contexts are learned along with items, instead of being solved for given the items."""

    @property
    def samples(self) -> int:
        """Number of steps of an epoch, 0 if it is not sampled."""


class WholeRows:
    """Base class of loops whose only state is the embeddings and whose steps solve whole rows."""

    joint = False
    samples = 0

    def embeddings(self) -> tuple[Embeddings, Embeddings]:
        """Return the embeddings of contexts and of items."""
        raise NotImplementedError

    def outcome(self) -> tuple[Embeddings, Embeddings | None]:
        """Return the items, and the contexts if they are `joint`."""
        contexts, items = self.embeddings()
        return items, contexts if self.joint else None

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return no state."""
        return {}

    def load_state_dict(self, number: int, state: dict[str, npt.NDArray[Any]]) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class ResumePoint:
    """How far a fit got. It can be resumed with this, its embeddings and, with early stopping, its best items."""

    number: int = 0  # of the last epoch
    training: tuple[Epoch, ...] = ()  # the epochs before the last one
    seconds: float = 0.0  # of the last epoch
    validation: float | None = None  # of the last epoch


def run(
    loop: Loop,
    epochs: int,
    *,
    callbacks: Sequence[Callback] = (),
    stopping: EarlyStopping | None = None,
    every: int = 1,
    past: ResumePoint | None = None,
    keep: Callable[[ResumePoint], object] | None = None,
) -> list[Epoch]:
    """Run epochs, then solve for the contexts; return the report of each epoch.

    The last epoch's loss is the loss of the result, unless `stopping` restores the items of an earlier epoch.

    Args:
        loop: the solver.
        epochs: maximum number of epochs.
        callbacks: called after each epoch.
        stopping: stops early, and decides which epoch's items are the result.
        every: number of epochs between two validations; the last epoch is always validated.
        past: the epochs before a resume; the loop must have their embeddings. The last of them is reported again.
        keep: called after each epoch with the point from which the fit can be resumed.
    """
    past = past or ResumePoint()
    training = [replace(epoch, samples=loop.samples) for epoch in past.training]
    seconds, validation = past.seconds, past.validation
    for number in range(max(1, past.number), epochs + 1):
        if number > past.number:
            start = working_seconds()
            loop.epoch()
            seconds = working_seconds() - start
            validation = None
            if stopping is not None and (number % every == 0 or number == epochs):
                validation = stopping.update(number, *loop.outcome())
            if keep is not None:
                keep(ResumePoint(number, tuple(training), seconds, validation))
        finished = number == epochs or (stopping is not None and stopping.should_stop(number))
        if finished and stopping is None:
            loop.finish()
        training.append(Epoch(number, epochs, loop.loss(), seconds, validation, loop.samples))
        for callback in callbacks:
            callback(training[-1])
        if finished:
            break
    if stopping is not None:
        assert stopping.items is not None
        loop.restore(stopping.items, stopping.contexts)
        loop.finish()
    return training
