"""One recommender on one validation split: what a trial does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist._threads import Step
from shortlist.data.features.table import Features
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split
from shortlist.errors import DataError, SettingError
from shortlist.evaluation.evaluate import validation_score
from shortlist.metrics import parse_metric
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.checkpoint import digest
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.registry import recommender_class
from shortlist.recommenders.search_space import Choice, Dimension, Space
from shortlist.recommenders.unused_settings import defaults
from shortlist.solvers.epochs import Epoch
from shortlist.tuning.validation import sampled, validation_of

WHOLE = 10  # times the sample: so many contexts of the validation are asked for at the end of a trial, at most
_CHECKPOINTS = 0.05  # of the time


@dataclass(frozen=True, eq=False)
class Problem:
    """Whose settings are searched, on what, judged by what."""

    template: Recommender  # its settings are those of every trial, but for what is searched
    data: Interactions | Split  # all that there is, for the best settings to be fitted to at the end
    split: Split
    sample: Split  # what is asked for after each epoch
    metric: str
    patience: int
    threads: int | None
    context_features: Features | None = None
    item_features: Features | None = None

    @classmethod
    def of(
        cls,
        template: Recommender,
        data: Interactions | Split,
        *,
        metric: str,
        sample: int | None,
        patience: int,
        seed: int,
        threads: int | None,
        context_features: Features | None = None,
        item_features: Features | None = None,
    ) -> Problem:
        """From what a user gives."""
        features = {"context_features": context_features, "item_features": item_features}
        options = FitOptions(metric=metric, patience=patience, **features)  # type: ignore[arg-type]  # refuses what makes no sense
        if not template._described:
            options.refuse_features(type(template).__name__)
        if not isinstance(data, Interactions | Split):
            raise DataError(
                f"tune takes Interactions, or a Split whose truth is the validation; got {type(data).__name__}"
            )
        split = data if isinstance(data, Split) else validation_of(data, seed)
        if not split.truth.n_contexts:
            raise DataError("the validation asks for no context; take a larger part of the events for it")
        if sample is not None:
            split = sampled(split, WHOLE * sample, seed)
        few = split if sample is None else sampled(split, sample, seed)
        return cls(template, data, split, few, str(parse_metric(metric)), patience, threads, **features)

    def identity(self) -> dict[str, Any]:
        """What makes it this problem and no other."""
        split = self.split
        parts = [part for one in (split.train, split.history, split.truth) for part in (one.contexts, one.items)]
        rows = [one.by_context for one in (split.train, split.history, split.truth)]
        return {
            "model": type(self.template).__name__,
            "metric": self.metric,
            "patience": self.patience,
            "sample": self.sample.truth.n_contexts,
            "repeats": split.repeats,
            "the data": digest(*parts, *rows),
            **{
                name: digest(one.vocabulary, one.rows)
                for name, one in (
                    ("the features of contexts", self.context_features),
                    ("the features of items", self.item_features),
                )
                if one is not None
            },
        }

    def recommender(self, settings: Mapping[str, Any]) -> Recommender:
        """With these settings, not fitted."""
        return type(self.template)(**self.completed(settings))

    def completed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """These settings and the template's others; the default of those that change nothing beside them."""
        model = copy(self.template)
        vars(model).update(settings)
        usual = defaults(model)
        return {**model._given(), **{name: usual[name] for name in model._unused()}}

    def usual(self) -> dict[str, Any]:
        """The template's settings, with those that follow from the data."""
        model = copy(self.template)
        model._settle(self.split.train, FitOptions())
        return model.settings()

    def start(self, settings: Mapping[str, Any]) -> Recommender:
        """A model with these settings to begin others from, at its best epoch."""
        model = self.recommender(settings)
        return model._learn(self.split.train, self._plan(None, None), "tune", (), False, self.threads)

    def attempt(
        self,
        settings: Mapping[str, Any],
        start: Recommender | None,
        checkpoint: Path | None,
        report: Callable[[int, float], object],
        step: Step,
    ) -> tuple[float, int | None]:
        """Fit and judge: the metric on the validation, and the best epoch where there are epochs.

        `report` is told the metric on the sample after each epoch, `step` now and then how far a fit without epochs
        is; both may raise whatever ends the trial.
        """
        model = self.recommender(settings)
        if not model._in_epochs:
            model._learn(self.split.train, FitOptions(), "tune", (), False, self.threads, step)
            return validation_score(model, self.split, self.metric, self.threads), None

        def tell(epoch: Epoch) -> None:
            if epoch.validation is not None:
                report(epoch.number, epoch.validation)

        model._learn(self.split.train, self._plan(start, checkpoint), "tune", tell, False, self.threads)
        best: int = model.best_epoch_  # type: ignore[attr-defined]
        if self.sample is self.split:
            return float(model.training_[best - 1].validation), best  # type: ignore[attr-defined]
        return validation_score(model, self.split, self.metric, self.threads), best

    def _plan(self, start: Recommender | None, checkpoint: Path | None) -> FitOptions:
        share = None if checkpoint is None else _CHECKPOINTS
        return FitOptions(
            self.sample,
            self.metric,
            self.patience,
            None,
            checkpoint,
            start,
            context_features=self.context_features,
            item_features=self.item_features,
            checkpoint_share=share,
        )

    def final(
        self,
        settings: Mapping[str, Any],
        start: Mapping[str, Any] | None,
        progress: bool | None,
        threads: int | None,
    ) -> Recommender:
        """Fitted to all events, the validation's included; from a model with the settings `start`, if any."""
        return self.recommender(settings).fit(
            self.data.events() if isinstance(self.data, Split) else self.data,
            start=None if start is None else self.final(start, None, progress, threads),
            context_features=self.context_features,
            item_features=self.item_features,
            progress=progress,
            threads=threads,
        )


def made(model: str | type[Recommender] | Recommender) -> Recommender:
    """A recommender, from its name, its class or one that has settings."""
    if isinstance(model, str):
        model = recommender_class(model)
    if isinstance(model, type) and issubclass(model, Recommender):
        return model()
    if isinstance(model, Recommender):
        model._check_settings()
        return type(model)(**model._given())  # theirs to change meanwhile
    raise SettingError(f"model is {model!r:.80}; expected a recommender, its class or its name, such as 'ials'")


def searched(template: Recommender, given: Mapping[str, Dimension | None] | None, weighted: bool) -> Space:
    """The recommender's own space without what its settings say already, and with what is given.

    Where pairs have weights, whether these count is searched too.
    """
    own: dict[str, Dimension | None] = dict(type(template).space())
    if weighted:
        own["weighting"] = Choice("binary", "log")
    settings = template.settings()
    usual, unused = defaults(template), template._unused()
    own = {name: one for name, one in own.items() if name in settings and settings[name] == usual.get(name)}
    own = {name: one for name, one in own.items() if name not in unused or getattr(one, "when", None)}
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise SettingError(f"space is {given!r:.80}; expected a mapping from settings to Real, Whole, Choice or Grows")
    for name, one in given.items():
        if name not in settings:
            raise SettingError(
                f"{type(template).__name__} has no setting {name!r}; there are {', '.join(map(str, settings))}"
            )
        if one is not None and not isinstance(one, Dimension):
            raise SettingError(f"space: {name} is {one!r:.80}; expected Real, Whole, Choice or Grows, or None")
    return {name: one for name, one in {**own, **given}.items() if one is not None}
