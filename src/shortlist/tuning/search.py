"""The search loop: rounds of trials until the budget is spent."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist._checks import integer, number
from shortlist._clock import working_seconds
from shortlist._signals import HeldSignals
from shortlist.errors import DataError, ShortlistError, StorageError
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.search_space import Increasing, Space, Value
from shortlist.tuning.journal import ATTEMPTS, Journal
from shortlist.tuning.problem import Problem
from shortlist.tuning.proposals import MedianPruning, Proposals, increasing_setting
from shortlist.tuning.search_progress import SearchProgress
from shortlist.tuning.tuning_result import State, Trial

TRIALS = 40  # the budget if none is given
LARGEST_SHARE = 0.5  # of the budget, for the largest value of the increasing setting
COLD_SHARE = 0.25  # of the budget, for repeating warm-started settings from a random start
TRIAL_SHARE = 0.25  # of the time, the limit for one trial without epochs: such a fit cannot be resumed
_MAX_FAILURES = 4  # if this many first trials all fail, the search stops with an error


@dataclass(frozen=True)
class Budget:
    """The limits of a study: number of trials and time, over all calls."""

    trials: int | None
    seconds: float | None

    @classmethod
    def of(cls, trials: int | None, seconds: float | None) -> Budget:
        """Return the budget for the arguments of `tune`, after checking them."""
        if trials is None and seconds is None:
            trials = TRIALS
        return cls(
            None if trials is None else integer("trials", trials),
            None if seconds is None else number("seconds", seconds, above=True),
        )

    def spent_fraction(self, trials: int, seconds: float) -> float:
        """Return the fraction of the budget that is spent."""
        return max(
            0.0 if self.trials is None else trials / self.trials,
            0.0 if self.seconds is None else seconds / self.seconds,
        )


class _OutOfTimeError(Exception):
    """The time of the study is up, or the search was interrupted."""


class _PrunedError(Exception):
    """The trial is pruned."""


class Search:
    """A search: it proposes trials and runs them.

    Args:
        problem: fits and evaluates the settings of a trial.
        space: the space to search.
        journal: the record of all trials; the search resumes from it.
        watch: the progress display.
        budget: the limits of the study.
        proposals: the generator of settings.
        workers: the number of trials that run at a time.
        warm: whether trials at larger dimensions start from the best smaller model.
        checkpoints: the path of the study; checkpoints of trials are stored next to it. None: no checkpoints.
    """

    def __init__(
        self,
        problem: Problem,
        space: Space,
        journal: Journal,
        watch: SearchProgress,
        budget: Budget,
        proposals: Proposals,
        *,
        workers: int,
        warm: bool,
        checkpoints: Path | None,
    ) -> None:
        self._problem, self._space, self._journal, self._watch = problem, space, journal, watch
        self._budget, self._proposals, self._workers = budget, proposals, workers
        self._warm, self._checkpoints = warm, checkpoints
        self._before, self._start_time = journal.seconds, working_seconds()
        self._stop = threading.Event()  # set when the search is interrupted
        self._journal_lock = threading.Lock()
        self._increasing = increasing_setting(space)
        self._start: tuple[int, Recommender] | None = None  # the model that trials start from, and its trial number
        self._start_lock = threading.Lock()

    @property
    def spent(self) -> float:
        """The time of the study in seconds, over all calls, without compilation of kernels."""
        return self._before + working_seconds() - self._start_time

    def run(self) -> None:
        """Run trials until the budget is spent or no new settings are left."""
        size = self._proposals.size
        try:
            done = [trial for trial in self._journal.trials() if trial.ended]
            self._watch.before(done, self._before)
            for trial in done:  # a kill may have left its checkpoint
                self._remove(self._checkpoint(trial))
            for first in range(0, 2**62, size):  # the number of the round's first trial
                trials = self._journal.trials()
                if not self._propose(first, trials):
                    return
                end = first + size if self._budget.trials is None else min(first + size, self._budget.trials)
                pending = [trial for trial in self._journal.trials()[first:end] if not trial.ended]
                self._run_trials(pending, trials[:first])
                self._check_failures()
                if not all(trial.ended for trial in self._journal.trials()[first : first + size]):
                    return  # out of time, or out of trials
        finally:
            self._journal.seconds = self.spent

    def _propose(self, first: int, trials: Sequence[Trial]) -> bool:
        """Fill the round whose first trial has the number `first`; return whether it has any trials."""
        size, budget = self._proposals.size, self._budget
        limit = size if budget.trials is None else max(0, min(size, budget.trials - first))
        n_existing = len(trials) - first
        if n_existing < 0:
            return False  # the previous round was not full: no new settings are left
        if n_existing < limit and budget.spent_fraction(0, self.spent) < 1:
            before = trials[:first]
            value = trials[first].settings.get(self._increasing or "") if n_existing else self._stage(first, before)
            if self._is_final_phase(first):
                start, proposals = None, self._cold_repeats(before)
                if len(proposals) < size:
                    proposals += self._proposals.round(first // size, before, value, proposals)
            else:
                start = self._start_trial(before, value)
                proposals = self._proposals.round(first // size, before, value)
            existing = [trial.settings for trial in trials[first:]]
            new = [settings for settings in proposals if settings not in existing]
            self._journal.propose(new[: limit - n_existing], start)
        return first < len(self._journal.trials())

    def _stage(self, first: int, before: Sequence[Trial]) -> Value | None:
        """Return the value of the increasing setting: larger as more budget is spent, if larger is better."""
        if self._increasing is None:
            return None
        dimension = self._space[self._increasing]
        assert isinstance(dimension, Increasing)
        steps = len(dimension.values) - 1
        spent = self._budget.spent_fraction(first, self.spent)
        growth = 1 - LARGEST_SHARE
        k = steps if not steps or spent >= growth else min(steps - 1, int(spent / growth * steps))
        best: dict[Value, float] = {}
        for value in dimension.values[: k + 1]:
            merits = [trial.merit for trial in before if trial.settings[self._increasing] == value]
            tried = len(merits) >= 2 * self._proposals.size
            if tried and best and max(merits) <= max(best.values()):
                return max(best, key=lambda smaller: best[smaller])
            if merits:
                best[value] = max(merits)
        return dimension.values[k]

    def _start_trial(self, before: Sequence[Trial], value: Value | None) -> int | None:
        """Return the number of the best trial at a smaller value, for trials at this value to start from."""
        if not self._warm or not isinstance(value, int):
            return None
        smaller = [
            trial for trial in before if trial.state == "complete" and trial.settings[self._increasing or ""] < value
        ]
        return max(smaller, key=lambda trial: trial.merit).number if smaller else None

    def _is_final_phase(self, first: int) -> bool:
        """Return whether the last part of the budget is reached, in which all trials have a random start."""
        trials, seconds = self._budget.trials, self._budget.seconds
        few_left = trials is not None and trials - first <= max(self._proposals.size, COLD_SHARE * trials)
        return few_left or (seconds is not None and self.spent >= (1 - COLD_SHARE) * seconds)

    def _cold_repeats(self, before: Sequence[Trial]) -> list[dict[str, Any]]:
        """Return the best settings that have improved on their start model and were never tried from a random start."""
        cold = [trial.settings for trial in before if trial.start is None]
        improved = [
            trial
            for trial in before
            if trial.state == "complete" and trial.start is not None and trial.merit > before[trial.start].merit
        ]
        best = sorted(improved, key=lambda trial: -trial.merit)[: self._proposals.size]
        return [dict(trial.settings) for trial in best if trial.settings not in cold]

    def _start_model(self, trial: Trial) -> Recommender | None:
        """Return the model that a trial starts from, or None."""
        if trial.start is None:
            return None
        with self._start_lock:
            if self._start is None or self._start[0] != trial.start:
                settings = self._journal.trials()[trial.start].settings
                self._start = (trial.start, self._problem.start(settings))
            model = self._start[1]
        assert model.best_epoch_ is not None
        with self._journal_lock:
            self._journal.begin_from(trial.number, model.best_epoch_)
        return model

    def _run_trials(self, pending: Sequence[Trial], before: Sequence[Trial]) -> None:
        """Run these trials with all workers."""
        if self._workers == 1:
            for trial in pending:
                self._run_trial(trial, before)
            return
        with HeldSignals() as held, ThreadPoolExecutor(self._workers, "tune", initializer=held.join) as pool:
            futures = [pool.submit(self._run_trial, trial, before) for trial in pending]
            while wait(futures, timeout=0.1).not_done:
                if held.error is not None:  # Ctrl-C: the trials end after the current epoch
                    self._stop.set()
            for future in futures:
                future.result()

    def _run_trial(self, trial: Trial, before: Sequence[Trial]) -> None:
        if self._should_stop():
            return
        start_time = working_seconds()
        comparable = [
            other for other in before
            if other.curve and (other.start is None) == (trial.start is None)
            and other.settings.get(self._increasing or "") == trial.settings.get(self._increasing or "")
        ]  # fmt: skip
        pruning = MedianPruning(comparable)
        checkpoint = self._checkpoint(trial)
        with self._journal_lock:
            attempts = self._journal.begin(trial.number)
        if not trial.curve:
            self._remove(checkpoint)  # of another study, or of a first epoch that was not reported
        curve = dict(zip(trial.epochs, trial.curve))  # the part that an interrupted trial has already
        epochs = {**self._problem.template.settings(), **trial.settings}.get("epochs", 0)

        def report(epoch: int, value: float) -> None:
            if epoch not in trial.epochs:  # else an earlier attempt reported it, and may have been killed right then
                curve[epoch] = value
                with self._journal_lock:
                    self._journal.report(trial.number, epoch, value)
                self._watch.epoch(trial.number, epoch, epochs, value)
            if pruning.should_prune({number: score for number, score in curve.items() if number <= epoch}):
                raise _PrunedError
            if self._should_stop() and epoch < epochs:
                raise _OutOfTimeError

        def step(done: int, total: int) -> None:
            if self._should_stop() and done < total:
                raise _OutOfTimeError
            if self._budget.seconds is None:
                return
            limit = TRIAL_SHARE * self._budget.seconds
            if working_seconds() - start_time > limit:
                raise DataError(f"it took longer than {limit:.0f} s, a quarter of the time budget")

        state: State = "complete"
        value: float | None = None
        epoch: int | None = None
        reason: str | None = None
        try:
            if attempts >= ATTEMPTS:
                raise DataError(f"it was interrupted {attempts} times, possibly because it ran out of memory")
            start = self._start_model(trial)
            value, epoch = self._problem.attempt(trial.settings, start, checkpoint, report, step)
        except _OutOfTimeError:
            self._suspend(trial, start_time)
            return
        except _PrunedError:
            state, epoch = "pruned", max(curve, key=lambda number: curve[number])
        except (StorageError, OSError):  # for example a full disk: not caused by the settings
            self._suspend(trial, start_time)
            raise
        except Exception as error:
            state, reason = "failed", _describe(error)
        except BaseException:  # Ctrl-C
            self._suspend(trial, start_time)
            raise
        seconds = trial.seconds + working_seconds() - start_time
        with self._journal_lock:
            self._journal.finish(trial.number, state, seconds, value=value, epoch=epoch, reason=reason)
            self._journal.seconds = self.spent
            done = self._journal.trials()
        self._watch.ended(done[trial.number], sum(other.ended for other in done), self.spent)
        self._remove(checkpoint)

    def _checkpoint(self, trial: Trial) -> Path | None:
        if self._checkpoints is None or not self._problem.template.learns_in_epochs:
            return None
        return self._checkpoints.with_name(f"{self._checkpoints.name}.trial-{trial.number}")

    @staticmethod
    def _remove(checkpoint: Path | None) -> None:
        if checkpoint is not None:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _suspend(self, trial: Trial, start_time: float) -> None:
        with self._journal_lock:
            self._journal.suspend(trial.number, trial.seconds + working_seconds() - start_time)

    def _should_stop(self) -> bool:
        return self._stop.is_set() or (self._budget.seconds is not None and self.spent >= self._budget.seconds)

    def _check_failures(self) -> None:
        ended = [trial for trial in self._journal.trials() if trial.ended]
        if len(ended) >= _MAX_FAILURES and all(trial.state == "failed" for trial in ended):
            raise DataError(f"all of the first {len(ended)} trials failed; the last error: {ended[-1].reason}")


def _describe(error: BaseException) -> str:
    """Return the error as one line of text."""
    text = " ".join(str(error).split()) or ("not enough memory" if isinstance(error, MemoryError) else "")
    name = "" if isinstance(error, ShortlistError) else type(error).__name__
    return ": ".join(part for part in (name, text) if part)[:300]
