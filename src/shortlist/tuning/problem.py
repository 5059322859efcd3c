"""One recommender on one validation split, and how a trial fits and evaluates it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist._phrases import suggest
from shortlist._threads import Step
from shortlist.data.features.table import Features
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split
from shortlist.errors import DataError, SettingError
from shortlist.evaluation.evaluate import validation_score
from shortlist.metrics import parse_metric
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.registry import recommender_class
from shortlist.recommenders.search_space import Choice, Dimension, Space
from shortlist.recommenders.unused_settings import defaults
from shortlist.solvers.train import Epoch
from shortlist.storage.digest import digest
from shortlist.tuning.validation import sample_contexts, validation_split

FINAL_FACTOR = 10  # a finished trial is evaluated on at most this many times the contexts of the sample
_CHECKPOINT_SHARE = 0.05  # of the time


@dataclass(frozen=True, eq=False)
class Problem:
    """The recommender to tune, its data and its metric."""

    template: Recommender  # the settings of all trials, except those that are searched
    data: Interactions | Split  # all events, for the final fit with the best settings
    split: Split
    sample: Split  # the part of `split` for the evaluation after each epoch
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
        """Return the problem for the arguments of `tune`, after checking them."""
        features = {"context_features": context_features, "item_features": item_features}
        # The options check the arguments.
        options = FitOptions(metric=metric, patience=patience, **features)  # type: ignore[arg-type]
        if not template.uses_features:
            options.refuse_features(type(template).__name__)
        if not isinstance(data, Interactions | Split):
            raise DataError(
                f"tune takes Interactions, or a Split whose truth is the validation; got {type(data).__name__}",
                field="data",
            )
        split = data if isinstance(data, Split) else validation_split(data, seed)
        if not split.truth.n_contexts:
            raise DataError("the validation part has no contexts", code="empty-data", hint="make it larger")
        if sample is not None:
            split = sample_contexts(split, FINAL_FACTOR * sample, seed)
        part = split if sample is None else sample_contexts(split, sample, seed)
        return cls(template, data, split, part, str(parse_metric(metric)), patience, threads, **features)

    def identity(self) -> dict[str, Any]:
        """Return what identifies this problem: model, metric and digests of the data."""
        split = self.split
        events = (split.train, split.history, split.truth)
        vocabularies = [vocabulary for part in events for vocabulary in (part.contexts, part.items)]
        rows = [part.by_context for part in events]
        return {
            "model": type(self.template).__name__,
            "metric": self.metric,
            "patience": self.patience,
            "sample": self.sample.truth.n_contexts,
            "repeats": split.repeats,
            "the data": digest(*vocabularies, *rows),
            **{
                name: digest(features.vocabulary, features.rows)
                for name, features in (
                    ("the features of contexts", self.context_features),
                    ("the features of items", self.item_features),
                )
                if features is not None
            },
        }

    def recommender(self, settings: Mapping[str, Any]) -> Recommender:
        """Return an unfitted recommender with these settings."""
        return type(self.template)(**self.all_settings(settings))

    def all_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return these settings with the template's other ones; settings without an effect get their defaults."""
        model = copy(self.template)
        vars(model).update(settings)
        default = defaults(model)
        return {**model.given_settings(), **{name: default[name] for name in model.unused_settings()}}

    def resolved_settings(self) -> dict[str, Any]:
        """Return the template's settings, including those that are derived from the data."""
        model = copy(self.template)
        model.settle(self.split.train, FitOptions())
        return model.settings()

    def start(self, settings: Mapping[str, Any]) -> Recommender:
        """Fit a model that other trials start from, and return it at its best epoch."""
        model = self.recommender(settings)
        return model.fit_with(self.split.train, self._fit_options(None, None), "tune", (), False, self.threads)

    def attempt(
        self,
        settings: Mapping[str, Any],
        start: Recommender | None,
        checkpoint: Path | None,
        report: Callable[[int, float], object],
        step: Step,
    ) -> tuple[float, int | None]:
        """Fit and evaluate; return the score on the validation split, and the best epoch if the fit has epochs.

        `report` is called after each epoch with the score on the sample. `step` is called from time to time in a fit
        without epochs, with the progress. Both may raise an exception to end the trial. Epochs of an earlier attempt
        are reported again first, because its checkpoint may have one that it was killed before it could report.
        """
        model = self.recommender(settings)
        if not model.learns_in_epochs:
            model.fit_with(self.split.train, FitOptions(), "tune", (), False, self.threads, step)
            return validation_score(model, self.split, self.metric, self.threads), None

        def report_epoch(epoch: Epoch) -> None:
            if epoch.validation is not None:
                report(epoch.number, epoch.validation)

        model.fit_with(
            self.split.train, self._fit_options(start, checkpoint), "tune", report_epoch, False, self.threads
        )
        best = model.best_epoch_
        assert best is not None
        if self.sample is self.split:
            score = model.training_[best - 1].validation
            assert score is not None
            return score, best
        return validation_score(model, self.split, self.metric, self.threads), best

    def _fit_options(self, start: Recommender | None, checkpoint: Path | None) -> FitOptions:
        share = None if checkpoint is None else _CHECKPOINT_SHARE
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
            replay=True,
        )

    def fit_final(
        self,
        settings: Mapping[str, Any],
        start: Mapping[str, Any] | None,
        progress: bool | None,
        threads: int | None,
    ) -> Recommender:
        """Fit to all events, including the validation part; start from a model with the settings `start`, if any."""
        return self.recommender(settings).fit(
            self.data.events() if isinstance(self.data, Split) else self.data,
            start=None if start is None else self.fit_final(start, None, progress, threads),
            context_features=self.context_features,
            item_features=self.item_features,
            progress=progress,
            threads=threads,
        )


def as_recommender(model: str | type[Recommender] | Recommender) -> Recommender:
    """Return an unfitted recommender, given its name, its class or an instance with settings."""
    if isinstance(model, str):
        model = recommender_class(model)
    if isinstance(model, type) and issubclass(model, Recommender):
        return model()
    if isinstance(model, Recommender):
        model.validate_settings()
        return type(model)(**model.given_settings())  # a copy: the caller may change theirs
    raise SettingError(
        f"model is {model!r:.80}; expected a recommender, its class or its name, such as 'ials'", field="model"
    )


def effective_space(template: Recommender, given: Mapping[str, Dimension | None] | None, weighted: bool) -> Space:
    """Return the space to search: the recommender's own space, changed by `given`.

    Settings of the template that differ from their defaults are not searched unless they are in `given`. If the events
    have weights, `weighting` is searched too.
    """
    space: dict[str, Dimension | None] = dict(type(template).space())
    if weighted:
        space["weighting"] = Choice("binary", "log")
    settings = template.settings()
    default, unused = defaults(template), template.unused_settings()
    space = {
        name: dimension
        for name, dimension in space.items()
        if name in settings and settings[name] == default.get(name)
        if name not in unused or getattr(dimension, "when", None)
    }
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise SettingError(
            f"space is {given!r:.80}; expected a mapping from settings to Real, Integer, Choice or Increasing",
            field="space",
        )
    for name, dimension in given.items():
        if name not in settings:
            raise SettingError(
                f"{type(template).__name__} has no setting {name!r}; {suggest(str(name), map(str, settings))}",
                code="unknown-setting",
                field="space",
            )
        if dimension is not None and not isinstance(dimension, Dimension):
            raise SettingError(
                f"space: {name} is {dimension!r:.80}; expected Real, Integer, Choice or Increasing, or None",
                field="space",
            )
    return {name: dimension for name, dimension in {**space, **given}.items() if dimension is not None}
