"""The loop over the epochs of every fit: reports, early stopping, resuming, and callbacks that stop it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._clock import working_seconds
from shortlist._state import State
from shortlist.objectives.loss_parts import LossParts
from shortlist.solvers.stopping import EarlyStopping

Embeddings: TypeAlias = npt.NDArray[np.float32]
STOP: Final[Literal["stop"]] = "stop"  # a callback returns it to end the fit after the current epoch


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


class Trainer(Protocol):
    """A model in training, on CPU or GPU: all that `train` asks of it. It knows nothing of validation or checkpoints.

    State and snapshot are arrays by name, of any number, shape and type. Both may be the trainer's own arrays: whoever
    keeps them copies them.
    """

    @property
    def samples(self) -> int:
        """Number of steps of an epoch, 0 if it is not sampled."""

    def epoch(self) -> object:
        """Run one epoch."""

    def finish(self) -> None:
        """Complete the result after the last epoch, such as by solving for the contexts given the items."""

    def loss(self) -> Mapping[str, float]:
        """Return the loss in named parts, the same names after every epoch."""

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that resuming needs: with it, a new trainer continues bit for bit like this one."""

    def load_state_dict(self, state: State) -> None:
        """Continue from this state; change nothing and raise StorageError unless it has exactly the right arrays."""

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Return the least that `restore` and `finish` need to make the result as if this were the last epoch."""

    def restore(self, snapshot: State) -> None:
        """Return to a snapshot; change nothing and raise StorageError unless it has exactly the right arrays."""


class EmbeddingTrainer(Trainer, Protocol):
    """A trainer whose result is embeddings, or parameters of embeddings, of contexts and items."""

    def embeddings(self) -> tuple[Embeddings, Embeddings]:
        """Return the current embeddings of contexts and of items, not copied if possible."""


@dataclass(frozen=True)
class ResumePoint:
    """How far a fit got. It can be resumed with this, the trainer's state and, with early stopping, its best epoch."""

    number: int = 0  # of the last epoch
    training: tuple[Epoch, ...] = ()  # the epochs before the last one
    seconds: float = 0.0  # of the last epoch
    validation: float | None = None  # of the last epoch


def train(
    trainer: Trainer,
    epochs: int,
    *,
    callbacks: Sequence[Callback] = (),
    stopping: EarlyStopping | None = None,
    every: int = 1,
    past: ResumePoint | None = None,
    keep: Callable[[ResumePoint], object] | None = None,
    replay: bool = False,
) -> list[Epoch]:
    """Run epochs, then finish the result; return the reports of all epochs, including those before a resume.

    The last epoch's loss is the loss of the result, unless `stopping` restores an earlier epoch.

    Args:
        trainer: the model in training.
        epochs: maximum number of epochs.
        callbacks: called after each epoch that this call runs. If one returns `STOP`, the result is that of a fit that
            ends with this epoch.
        stopping: stops early, and decides which epoch is the result.
        every: number of epochs between two validations; the last epoch is always validated.
        past: the epochs before a resume; the trainer must have the state after them. Callbacks do not see them again.
        keep: called after each epoch, and before its callbacks, with the point from which the fit can be resumed.
        replay: call the callbacks with the epochs of `past` too, before the first new epoch; what they return then has
            no effect.
    """
    past = past or ResumePoint()
    training = [replace(epoch, samples=trainer.samples) for epoch in past.training]

    def is_last(number: int) -> bool:
        return number >= epochs or (stopping is not None and stopping.should_stop(number))

    def report(number: int, seconds: float, validation: float | None, last: bool) -> None:
        if last and stopping is None:
            trainer.finish()
        loss = LossParts(trainer.loss())
        if training and loss.keys() != training[0].loss.keys():
            before, now = (", ".join(names) for names in (training[0].loss, loss))
            raise ValueError(f"the loss has the parts {now} after epoch {number}; it had {before}")
        training.append(Epoch(number, epochs, loss, seconds, validation, trainer.samples))

    number, last, validation = past.number, False, past.validation
    if number:
        if stopping is not None and validation is None and number >= epochs:  # it was not the last of the earlier fit
            validation = stopping.update(number, trainer.snapshot())
        last = is_last(number)
        report(number, past.seconds, validation, last)
    if replay:
        for epoch in training:
            for callback in callbacks:
                callback(epoch)
    while not last:
        number += 1
        start = working_seconds()
        trainer.epoch()
        seconds = working_seconds() - start
        validation = None
        if stopping is not None and (number % every == 0 or number == epochs):
            validation = stopping.update(number, trainer.snapshot())
        if keep is not None:
            keep(ResumePoint(number, tuple(training), seconds, validation))
        last = is_last(number)
        report(number, seconds, validation, last)
        answers = [callback(training[-1]) for callback in callbacks]
        if not last and any(isinstance(answer, str) and answer == STOP for answer in answers):
            last = True
            if stopping is not None and validation is None:
                validation = stopping.update(number, trainer.snapshot())
            training.pop()
            report(number, seconds, validation, last)
    if stopping is not None:
        assert stopping.snapshot is not None
        trainer.restore(stopping.snapshot)
        trainer.finish()
    return training
