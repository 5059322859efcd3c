"""What a search has found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import polars as pl

from shortlist.recommenders.base import Recommender

State: TypeAlias = Literal["complete", "pruned", "failed", "unfinished", "not started"]


@dataclass(frozen=True)
class Trial:
    """Some settings, and how good they were.

    Args:
        number: from 0, in the order in which they were proposed.
        settings: of those settings that are searched.
        state: `"complete"`; `"pruned"`: given up since others were better by then; `"failed"`: `reason` tells why;
            `"unfinished"`: interrupted; `"not started"`: proposed only. A later call with the same study does the
            last two.
        value: the metric on the validation split, of a complete trial.
        epoch: the best one, where it learns in epochs.
        curve: the metric after each evaluation, on a sample of the validation's contexts where there are many.
        epochs: after which epochs these were.
        seconds: how long it took.
        reason: why it failed.
        start: the number of the trial from whose embeddings it began, None where it began from nothing.
        start_epoch: the best epoch of a fit with the settings of that trial from nothing, which it began from.
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
        """Whether nothing of it is left to do."""
        return self.state in ("complete", "pruned", "failed")

    @property
    def counts(self) -> bool:
        """Whether it can be the best: it is complete, and what is known of it is enough to repeat it."""
        return self.state == "complete" and (self.start is None or self.start_epoch is not None)

    @property
    def place(self) -> tuple[float, bool, int]:
        """What trials that count are ordered by. Of equal ones the best began from nothing, then came first."""
        return self.value or 0.0, self.start is None, -self.number

    @property
    def merit(self) -> float:
        """What can be compared with trials that were given up: the best of the curve where there is one."""
        return max(self.curve) if self.curve else self.value or 0.0


@dataclass(frozen=True, eq=False)
class Tuned:
    """The best settings, every trial, and the model that was fitted with the best to all events.

    `settings` are the constructor's; `epochs` among them is the best epoch. Where the best trial began from the
    embeddings of a smaller model, `start` are the settings of that one: `Model(**settings).fit(events,
    start=Model(**start).fit(events))` repeats it. `importance` says for each setting how much of what tells the best
    tenth of the trials from the others is due to it; it is empty where there are few. `interrupted` says that Ctrl-C
    ended the search, so that there is no `model`.
    """

    recommender: str
    metric: str
    settings: dict[str, Any]
    best: Trial
    trials: list[Trial]
    importance: dict[str, float]
    seconds: float  # of the whole search
    model: Recommender | None = None
    refit_seconds: float | None = None
    searched: tuple[str, ...] = field(default=())
    start: dict[str, Any] | None = None
    interrupted: bool = False

    @property
    def value(self) -> float:
        """The metric on the validation split, of the best settings."""
        assert self.best.value is not None
        return self.best.value

    def states(self) -> dict[State, int]:
        """How many trials ended how."""
        return dict(Counter(trial.state for trial in self.trials))

    def to_polars(self) -> pl.DataFrame:
        """A row for each trial: number, start, settings, state, epoch, the metric, seconds, reason."""
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
        found = {name: self.settings[name] for name in self.searched if name in self.best.settings}
        if self.best.epoch is not None:
            found["epochs"] = self.best.epoch
        if self.settings.get("schedule_epochs"):
            found["schedule_epochs"] = self.settings["schedule_epochs"]
        shown = ", ".join(f"{name}={value!r}" for name, value in found.items())
        states = ", ".join(f"{count} {state}" for state, count in self.states().items())
        which = f"trial {self.best.number} of {len(self.trials)} ({states})"
        rule = "; only complete trials can be the best" if len(self.states()) > 1 else ""
        lines = [f"{self.recommender}({shown})", f"  {self.metric} {self.value:.4f} on validation, {which}{rule}"]
        if self.start is not None:
            smaller = ", ".join(f"{name}={self.start[name]!r}" for name in [*self.searched, "epochs"])
            lines.append(f"  it began from {self.recommender}({smaller}), as `start` says")
        if self.interrupted:
            lines.append("  the search was interrupted; nothing was fitted to all the events")
        if self.importance:
            parts = ", ".join(f"{name} {share:.0%}" for name, share in self.importance.items())
            lines.append(f"  what mattered: {parts}")
        return "\n".join(lines)
