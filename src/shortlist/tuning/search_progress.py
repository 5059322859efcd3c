"""Progress of a search, with the best trial so far."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from shortlist._compile_notes import silent
from shortlist._phrases import count
from shortlist._progress import is_shown
from shortlist.tuning.tuning_result import Trial


class SearchProgress:
    """Display of the progress of trials; can be called from any thread. This base class shows nothing."""

    def __init__(self, metric: str, trials: int | None, seconds: float | None) -> None:
        self._metric, self._trials, self._seconds = metric, trials, seconds
        self._best: Trial | None = None
        self._lock = threading.Lock()

    def _show(self, progress: float, line: str) -> None:
        """Show the progress, from 0 to 1, and a status line; a negative progress means unchanged."""

    def _log(self, line: str) -> None:
        """Write a line about a finished trial."""

    def before(self, trials: Sequence[Trial], spent: float) -> None:
        """Take note of the finished trials of earlier calls."""
        with self._lock:
            for trial in trials:
                self._compare(trial)
            if trials:
                self._show(self._fraction(len(trials), spent), f"{count(len(trials), 'trial')} from earlier calls")

    def epoch(self, number: int, epoch: int, epochs: int, value: float) -> None:
        """Show the score of a trial after an epoch."""
        with self._lock:
            self._show(-1.0, f"trial {number}: {epoch}/{epochs} {value:.4f}")

    def ended(self, trial: Trial, done: int, spent: float) -> None:
        """Show a finished trial; `done` trials are finished after `spent` seconds."""
        with self._lock:
            self._compare(trial)
            of = "" if self._trials is None else f"/{self._trials}"
            result = trial.reason if trial.value is None else f"{self._metric} {trial.value:.4f}"
            at = "" if trial.epoch is None else f" at epoch {trial.epoch}"
            result = f": {result}{at}" if result else ""
            settings = ", ".join(f"{name}={value}" for name, value in trial.settings.items())
            if trial.start is not None:
                settings += f", from trial {trial.start}"
            self._show(self._fraction(done, spent), f"{done}{of} trials")
            self._log(f"trial {trial.number} {trial.state}{result}  ({settings}; {trial.seconds:.1f} s)")

    def _compare(self, trial: Trial) -> None:
        if trial.counts and (self._best is None or trial.place > self._best.place):
            self._best = trial

    def _fraction(self, done: int, spent: float) -> float:
        """Return the fraction of the budget that is spent."""
        fractions = [] if self._trials is None else [done / self._trials]
        fractions += [] if self._seconds is None else [spent / self._seconds]
        return min(1.0, max(fractions))

    def _best_line(self) -> str:
        if self._best is None:
            return ""
        return f"best {self._metric} {self._best.value:.4f} (trial {self._best.number})"


class _Lines(SearchProgress):
    """One line per trial, for output that is not a terminal."""

    title = ""

    def _log(self, line: str) -> None:
        best = self._best_line()
        sys.stderr.write(f"{self.title}: {line}{'; ' if best else ''}{best}\n")


class _Bar(SearchProgress):
    """A progress bar on a terminal."""

    bar: Any = None
    task: Any = None

    def _show(self, progress: float, line: str) -> None:
        done = {} if progress < 0 else {"completed": progress}
        best = self._best_line()
        self.bar.update(self.task, status=f"{best}{'  ' if best else ''}{line}", **done)


@contextmanager
def search_progress(
    title: str, metric: str, trials: int | None, seconds: float | None, progress: bool | None
) -> Iterator[SearchProgress]:
    """Show a bar on a terminal. Elsewhere, print one line per trial if `progress` is True, else nothing."""
    shown = is_shown(progress)
    silent_progress = nullcontext(SearchProgress(metric, trials, seconds))
    display = _display(title, metric, trials, seconds) if shown else silent_progress
    with silent(progress is not None and not shown), display as watch:
        yield watch


@contextmanager
def _display(title: str, metric: str, trials: int | None, seconds: float | None) -> Iterator[SearchProgress]:
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
