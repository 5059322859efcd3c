"""The result of a search: its trials and the best settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import polars as pl

from shortlist._phrases import format_settings
from shortlist.recommenders.base import Recommender

State: TypeAlias = Literal["complete", "pruned", "failed", "unfinished", "not started"]


@dataclass(frozen=True)
class Trial:
    """One combination of settings, and its score.

    Args:
        number: the number of the trial, from 0, in the order in which trials are proposed.
        settings: the values of the searched settings.
        state: `"complete"`; `"pruned"`: stopped early because others were better at the same epoch; `"failed"`: see
            `reason`; `"unfinished"`: interrupted; `"not started"`: only proposed. A later call with the same study
            runs unfinished and not started trials.
        value: the metric on the validation split, for complete trials.
        epoch: the best epoch, if the recommender learns in epochs.
        curve: the metric after each evaluation, on a sample of the validation contexts if there are many.
        epochs: the epochs of the values in `curve`.
        seconds: the time that the trial took.
        reason: the error message of a failed trial.
        start: the number of the trial with the settings of the smaller model that this trial starts from; None for a
            random start.
        start_epoch: the best epoch of that smaller model.
    """

    number: int
    settings: Mapping[str, Any]
    state: State
    value: float | None = None
    epoch: int | None = None
    curve: tuple[float, ...] = ()
    epochs: tuple[int, ...] = ()
    seconds: float = 0.0
    reason: str | None = None
    start: int | None = None
    start_epoch: int | None = None

    @property
    def ended(self) -> bool:
        """Whether the trial is over: complete, pruned or failed."""
        return self.state in ("complete", "pruned", "failed")

    @property
    def counts(self) -> bool:
        """Whether the trial can be the best: it is complete and can be repeated."""
        return self.state == "complete" and (self.start is None or self.start_epoch is not None)

    @property
    def place(self) -> tuple[float, bool, int]:
        """The sort key of trials that count: by score, then trials with a random start first, then by number."""
        return self.value or 0.0, self.start is None, -self.number

    @property
    def merit(self) -> float:
        """The score that can be compared with pruned trials: the best value of the curve, if there is one."""
        return max(self.curve) if self.curve else self.value or 0.0


@dataclass(frozen=True, eq=False)
class Tuned:
    """The result of `tune`: the best settings, all trials, and a model fitted with the best settings.

    Attributes:
        recommender: the class name of the recommender.
        metric: the metric that was maximised.
        settings: the best settings, for the constructor. `epochs` is the best epoch.
        best: the best trial.
        trials: all trials, ordered by number.
        importance: for each setting, how much it matters for reaching the best tenth of the trials; empty if there are
            fewer than ten trials.
        seconds: the time of the search, over all calls with the same study.
        model: the model fitted to all events with the best settings; None with `refit=False` or if interrupted.
        refit_seconds: the time of that fit.
        searched: the names of the searched settings.
        start: the settings of the smaller model that the best trial starts from; None for a random start. Repeat the
            fit with `Model(**settings).fit(events, start=Model(**start).fit(events))`.
        interrupted: whether Ctrl-C ended the search.
    """

    recommender: str
    metric: str
    settings: dict[str, Any]
    best: Trial
    trials: list[Trial]
    importance: dict[str, float]
    seconds: float
    model: Recommender | None = None
    refit_seconds: float | None = None
    searched: tuple[str, ...] = field(default=())
    start: dict[str, Any] | None = None
    interrupted: bool = False

    @property
    def value(self) -> float:
        """The metric of the best settings on the validation split."""
        assert self.best.value is not None
        return self.best.value

    def states(self) -> dict[State, int]:
        """Return the number of trials in each state."""
        return dict(Counter(trial.state for trial in self.trials))

    def to_polars(self) -> pl.DataFrame:
        """Return one row per trial: number, start, settings, state, epoch, metric, seconds, reason."""
        rows = [
            {"trial": trial.number, "start": trial.start}
            | {name: trial.settings.get(name) for name in self.searched}
            | {
                "state": trial.state,
                "epoch": trial.epoch,
                self.metric: trial.value,
                "seconds": trial.seconds,
                "reason": trial.reason,
            }
            for trial in self.trials
        ]
        types = {
            "start": pl.Int64,
            "epoch": pl.Int64,
            self.metric: pl.Float64,
            "seconds": pl.Float64,
            "reason": pl.String,
        }
        return pl.DataFrame(rows, schema_overrides=types, infer_schema_length=None)

    def __repr__(self) -> str:
        settings = {name: self.settings[name] for name in self.searched if name in self.best.settings}
        if self.best.epoch is not None:
            settings["epochs"] = self.best.epoch
        if self.settings.get("schedule_epochs"):
            settings["schedule_epochs"] = self.settings["schedule_epochs"]
        states = ", ".join(f"{count} {state}" for state, count in self.states().items())
        which = f"trial {self.best.number} of {len(self.trials)} ({states})"
        rule = "; only complete trials can be the best" if len(self.states()) > 1 else ""
        lines = [
            f"{self.recommender}({format_settings(settings)})",
            f"  {self.metric} {self.value:.4f} on validation, {which}{rule}",
        ]
        if self.start is not None:
            smaller = format_settings({name: self.start[name] for name in [*self.searched, "epochs"]})
            lines.append(f"  started from {self.recommender}({smaller}), see `start`")
        if self.interrupted:
            lines.append("  the search was interrupted; no model was fitted to all events")
        if self.importance:
            parts = ", ".join(f"{name} {share:.0%}" for name, share in self.importance.items())
            lines.append(f"  importance: {parts}")
        return "\n".join(lines)
