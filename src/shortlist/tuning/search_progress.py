"""How far a search is, and what is the best so far."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from shortlist._compile_notes import silent
from shortlist._phrases import count
from shortlist.recommenders.fit_progress import is_shown
from shortlist.tuning.tuning_result import Trial


class SearchProgress:
    """Tells of trials as they go; from any thread."""

    def __init__(self, metric: str, trials: int | None, seconds: float | None) -> None:
        self._metric, self._trials, self._seconds = metric, trials, seconds
        self._best: Trial | None = None
        self._lock = threading.Lock()

    def _show(self, progress: float, line: str) -> None:
        """Show how far it is, from 0 to 1, and what is going on."""

    def _tell(self, line: str) -> None:
        """Tell of a trial that has ended."""

    def before(self, trials: Sequence[Trial], spent: float) -> None:
        """These trials ended in earlier calls."""
        with self._lock:
            for trial in trials:
                self._compare(trial)
            if trials:
                self._show(self._share(len(trials), spent), f"{count(len(trials), 'trial')} before")

    def epoch(self, number: int, epoch: int, epochs: int, value: float) -> None:
        """A trial has come so far."""
        with self._lock:
            self._show(-1.0, f"trial {number}: {epoch}/{epochs} {value:.4f}")

    def ended(self, trial: Trial, done: int, spent: float) -> None:
        """A trial has ended; `done` trials in `spent` seconds so far."""
        with self._lock:
            self._compare(trial)
            of = "" if self._trials is None else f"/{self._trials}"
            figure = trial.reason if trial.value is None else f"{self._metric} {trial.value:.4f}"
            at = "" if trial.epoch is None else f" at epoch {trial.epoch}"
            found = f": {figure}{at}" if figure else ""
            settings = ", ".join(f"{name}={value}" for name, value in trial.settings.items())
            if trial.start is not None:
                settings += f", from trial {trial.start}"
            self._show(self._share(done, spent), f"{done}{of} trials")
            self._tell(f"trial {trial.number} {trial.state}{found}  ({settings}; {trial.seconds:.1f} s)")

    def _compare(self, trial: Trial) -> None:
        if trial.counts and (self._best is None or trial.place > self._best.place):
            self._best = trial

    def _share(self, done: int, spent: float) -> float:
        """How much of the budget is spent."""
        shares = [] if self._trials is None else [done / self._trials]
        shares += [] if self._seconds is None else [spent / self._seconds]
        return min(1.0, max(shares))

    def _best_line(self) -> str:
        if self._best is None:
            return ""
        return f"best {self._metric} {self._best.value:.4f} (trial {self._best.number})"


class _Lines(SearchProgress):
    """A line a trial, where there is no terminal."""

    title = ""

    def _tell(self, line: str) -> None:
        best = self._best_line()
        sys.stderr.write(f"{self.title}: {line}{'; ' if best else ''}{best}\n")


class _Bar(SearchProgress):
    """A bar on a terminal."""

    bar: Any = None
    task: Any = None

    def _show(self, progress: float, line: str) -> None:
        done = {} if progress < 0 else {"completed": progress}
        best = self._best_line()
        self.bar.update(self.task, status=f"{best}{'  ' if best else ''}{line}", **done)


@contextmanager
def watched(
    title: str, metric: str, trials: int | None, seconds: float | None, progress: bool | None
) -> Iterator[SearchProgress]:
    """Shows a bar on a terminal; elsewhere, and only where `progress` is True, a line a trial."""
    shown = is_shown(progress)
    plain = nullcontext(SearchProgress(metric, trials, seconds))
    shower = _watched(title, metric, trials, seconds) if shown else plain
    with silent(progress is not None and not shown), shower as watch:
        yield watch


@contextmanager
def _watched(title: str, metric: str, trials: int | None, seconds: float | None) -> Iterator[SearchProgress]:
    if not sys.stderr.isatty():
        lines = _Lines(metric, trials, seconds)
        lines.title = title
        yield lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[status]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        watch = _Bar(metric, trials, seconds)
        watch.bar, watch.task = bar, bar.add_task(f"tuning {title}", total=1.0, status="")
        yield watch
