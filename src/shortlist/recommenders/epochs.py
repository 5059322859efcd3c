"""Learning in epochs, for any model and any trainer: early stopping, checkpoints and reports."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from shortlist._checks import integer
from shortlist._state import State, check_state, load_state
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split, among
from shortlist.errors import DataError, SettingError
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.fit_progress import Monitor
from shortlist.solvers.stopping import EarlyStopping
from shortlist.solvers.train import ResumePoint, Trainer, train

if TYPE_CHECKING:
    from shortlist.recommenders.base import Recommender
    from shortlist.recommenders.checkpoint import Checkpoint

__all__ = ["check_state", "learn_in_epochs", "load_state", "number_of_epochs"]

AnyModel = TypeVar("AnyModel", bound="Recommender")
AnyTrainer = TypeVar("AnyTrainer", bound=Trainer)


def number_of_epochs(model: Recommender, options: FitOptions) -> int:
    """Return the number of epochs of this fit; the model has the setting `epochs`."""
    return integer("epochs", model.settings()["epochs"] if options.epochs is None else options.epochs)


def learn_in_epochs(
    model: AnyModel,
    interactions: Interactions,
    options: FitOptions,
    monitor: Monitor,
    new_trainer: Callable[[bool], AnyTrainer],
    show: Callable[[AnyModel, State], object],
    *,
    every: int = 1,
    by_history: bool = False,
    accepts_start: bool = False,
    identity: Mapping[str, Any] | None = None,
) -> AnyTrainer:
    """Train a model in epochs, with the validation and the checkpoint of `options`; return the finished trainer.

    The `learn` of a recommender calls it, and then takes its state from the trainer. It sets `training_` and
    `best_epoch_`. The class of the model has `learns_in_epochs = True` and the setting `epochs`.

    Args:
        model: the recommender that learns.
        interactions: the observed events.
        options: the options of `fit`.
        monitor: where progress is reported.
        new_trainer: returns the trainer. Its argument says whether a checkpoint's state replaces the start values;
            then they need not be computed.
        show: sets the state of a copy of the model from a snapshot of the trainer, so that the copy can be validated.
            It must replace arrays rather than write to them.
        every: number of epochs between two validations, if `options` has none.
        by_history: validate contexts by their histories, because a snapshot has nothing about single contexts.
        accepts_start: whether `new_trainer` uses `options.start`; if not, a start is refused.
        identity: further facts that a checkpoint must agree with, as {name: fact}; facts are numbers, texts or lists.
            The settings (without `epochs`), ids, events, features, start and validation are always compared.
    """
    epochs = number_of_epochs(model, options)
    if options.start is not None and not accepts_start:
        raise SettingError(f"{type(model).__name__} does not accept start", field="start", hint="omit it")
    every = every if options.every is None else int(options.every)
    stopping = None
    if options.validation is not None:
        stopping = _early_stopping(model, interactions, options, options.validation, show, every, by_history)
    checkpoint = None
    if options.checkpoint is not None:
        checkpoint = _checkpoint(model, interactions, options, epochs, every, identity or {})
    saved = None if checkpoint is None else checkpoint.read(epochs)
    trainer = new_trainer(saved is not None)
    past = None
    if checkpoint is not None and saved is not None:
        checkpoint.resume(saved, trainer, stopping)
        past = saved.past
    del saved  # the trainer has copied the state

    def keep(point: ResumePoint) -> None:
        if checkpoint is not None and checkpoint.due(options.checkpoint_share):
            checkpoint.write(point, trainer, stopping)

    training = train(
        trainer,
        epochs,
        callbacks=monitor.callbacks,
        stopping=stopping,
        every=every,
        past=past,
        keep=keep,
        replay=options.replay,
    )
    model.training_ = training
    model.best_epoch_ = None if stopping is None else stopping.best_epoch
    return trainer


def _early_stopping(
    model: AnyModel,
    interactions: Interactions,
    options: FitOptions,
    split: Split,
    show: Callable[[AnyModel, State], object],
    every: int,
    by_history: bool,
) -> EarlyStopping:
    """Return early stopping by the validation metric."""
    from shortlist.evaluation.evaluate import validation_score

    _refuse_leak(interactions, split)
    shown = copy.copy(model)
    shown.remember(interactions)
    if by_history:
        split = replace(split, fold_in=True)

    def measure(snapshot: State) -> float:
        show(shown, snapshot)
        return validation_score(shown, split, options.metric, options.threads)

    return EarlyStopping(measure, options.patience * every)


def _checkpoint(
    model: Recommender,
    interactions: Interactions,
    options: FitOptions,
    epochs: int,
    every: int,
    identity: Mapping[str, Any],
) -> Checkpoint:
    from shortlist.recommenders.checkpoint import Checkpoint
    from shortlist.storage.digest import digest

    assert options.checkpoint is not None
    facts: dict[str, Any] = {
        "the ids of contexts": digest(interactions.contexts),
        "the ids of items": digest(interactions.items),
        "the pairs or their weights": digest(interactions.by_context),
    }
    if model.ordered:
        facts["the order or the times of the events"] = digest(interactions.histories)
    start, split = options.start, options.validation
    facts["the start"] = None
    if start is not None:
        facts["the start"] = digest(start.contexts_, start.items_, *start.state_dict().values())
    facts["the validation"] = None
    if split is not None:
        both = (split.history, split.truth)
        parts = [part for events in both for part in (events.contexts, events.items, events.by_context)]
        ordered = [split.history.histories] if model.ordered else []
        if epochs % every:  # the last epoch is evaluated although it would not be in a longer fit
            facts["the number of epochs, no multiple of `every`,"] = epochs
        settings = [options.metric, int(options.patience), every, split.repeats]
        facts["the validation"] = [*settings, digest(*parts, *ordered)]
    for side in ("context", "item"):
        features = getattr(options, f"{side}_features")
        rows = None if features is None else digest(features.vocabulary, features.rows)
        facts[f"the features of {side}s"] = rows
    return Checkpoint(options.checkpoint, type(model), model.settings(), {**facts, **identity})


def _refuse_leak(interactions: Interactions, split: Split) -> None:
    """Refuse to learn from held-out pairs of the validation split; pairs that its `train` repeats are no leak."""
    truth = split.truth
    leaked = int((among(truth, interactions) & ~among(truth, split.train)).sum())
    if leaked:
        raise DataError(
            f"{leaked:,} of the {len(truth):,} held-out pairs of the validation split are among the interactions to "
            "learn from",
            code="leaked-data",
            field="validation",
            hint="call fit(split.train, validation=split)",
        )
