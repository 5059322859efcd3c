"""The loop around every solver that learns in epochs: reports, early stopping, going on from where it was."""

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
    """What a solver reports after each pass: to a progress bar, a log, or whoever else listens."""

    number: int  # from 1
    epochs: int  # how many there will be at most
    loss: LossParts
    seconds: float  # of this pass, without the time to compute the loss or the validation, or to compile kernels
    validation: float | None = None  # the metric on the validation split, where there is one
    samples: int = 0  # steps, where it is learnt by sampling


Callback: TypeAlias = Callable[[Epoch], object]


class Loop(Protocol):
    """Both sides' embeddings, and what improves them: on the CPU or elsewhere."""

    def epoch(self) -> object:
        """One pass over both sides."""

    def finish(self) -> None:
        """Solve for the contexts to the end, given the items; nothing where steps on pairs learn both."""

    def outcome(self) -> tuple[Embeddings, Embeddings | None]:
        """What the fit would end with, were this its last epoch: items, and contexts where they are `joint`."""

    def restore(self, items: Embeddings, contexts: Embeddings | None) -> None:
        """Take these embeddings; contexts that are not given are nothing until they are solved for."""

    def loss(self) -> LossParts:
        """The loss of the embeddings as they are."""

    def embeddings(self) -> tuple[Embeddings, Embeddings]:
        """Of contexts and of items, as they are; not copies where that can be helped."""

    def memory(self) -> dict[str, npt.NDArray[Any]]:
        """What going on another day needs beside the embeddings."""

    def recall(self, number: int, memory: dict[str, npt.NDArray[Any]]) -> None:
        """Go on after so many epochs with that; ValueError where it does not fit."""

    @property
    def joint(self) -> bool:
        """Whether contexts are learnt beside the items, and do not follow from them."""

    @property
    def samples(self) -> int:
        """Steps of an epoch, 0 where it has none."""


class WholeRows:
    """What a loop adds whose steps are for whole rows, and whose embeddings are all that it knows."""

    joint = False
    samples = 0

    def embeddings(self) -> tuple[Embeddings, Embeddings]:
        """Of contexts and of items."""
        raise NotImplementedError

    def outcome(self) -> tuple[Embeddings, Embeddings | None]:
        """The items, and the contexts where they do not follow from these."""
        contexts, items = self.embeddings()
        return items, contexts if self.joint else None

    def memory(self) -> dict[str, npt.NDArray[Any]]:
        """Nothing."""
        return {}

    def recall(self, number: int, memory: dict[str, npt.NDArray[Any]]) -> None:
        """Nothing to do."""


@dataclass(frozen=True)
class ResumePoint:
    """How far a fit has come; with the embeddings, and the best items where it may stop early, enough to go on."""

    number: int = 0  # of the last epoch
    training: tuple[Epoch, ...] = ()  # the epochs before it
    seconds: float = 0.0  # its own
    validation: float | None = None  # its own


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
    """Run epochs until there were enough, and end with the contexts solved for; returns what is told of each.

    The last epoch's loss is that of the result, unless the best epoch's items come back at the end (`stopping`).

    Args:
        loop: whose epochs they are.
        epochs: how many at most.
        callbacks: called after each epoch.
        stopping: ends it early, and decides which epoch's items are kept.
        every: so many epochs are from one judgement of it to the next; the last epoch is always judged.
        past: epochs that were done before; the loop has their embeddings. The last of them is reported once more.
        keep: called after each epoch with what has happened so far, for going on from there another day.
    """
    past = past or ResumePoint()
    training = [replace(one, samples=loop.samples) for one in past.training]
    seconds, validation = past.seconds, past.validation
    for number in range(max(1, past.number), epochs + 1):
        if number > past.number:
            began = working_seconds()
            loop.epoch()
            seconds = working_seconds() - began
            validation = None
            if stopping is not None and (number % every == 0 or number == epochs):
                validation = stopping.update(number, *loop.outcome())
            if keep is not None:
                keep(ResumePoint(number, tuple(training), seconds, validation))
        over = number == epochs or (stopping is not None and stopping.should_stop(number))
        if over and stopping is None:
            loop.finish()
        training.append(Epoch(number, epochs, loop.loss(), seconds, validation, loop.samples))
        for callback in callbacks:
            callback(training[-1])
        if over:
            break
    if stopping is not None:
        assert stopping.items is not None
        loop.restore(stopping.items, stopping.contexts)
        loop.finish()
    return training
