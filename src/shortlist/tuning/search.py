"""Round after round of trials, until the budget is spent."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist._checks import number, whole
from shortlist._clock import working_seconds
from shortlist._signals import HeldSignals
from shortlist.errors import DataError, ShortlistError, StorageError
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.search_space import Increasing, Space, Value
from shortlist.tuning.journal import ATTEMPTS, Journal
from shortlist.tuning.problem import Problem
from shortlist.tuning.proposals import MedianPruning, Proposals, growing
from shortlist.tuning.search_progress import SearchProgress
from shortlist.tuning.tuning_result import State, Trial

TRIALS = 40  # where no budget is given
LAST = 0.5  # of the budget, for the largest value of a setting that grows
AGAIN = 0.25  # of the budget, for doing from nothing what began from another model
MOST = 0.25  # of the time, for one trial without epochs: such a fit leaves nothing to go on from
_HOPELESS = 4  # the first trials; where all of them fail, so will the others


@dataclass(frozen=True)
class Budget:
    """How much a study may take, in all."""

    trials: int | None
    seconds: float | None

    @classmethod
    def of(cls, trials: int | None, seconds: float | None) -> Budget:
        """From what a user gives."""
        if trials is None and seconds is None:
            trials = TRIALS
        return cls(
            None if trials is None else whole("trials", trials),
            None if seconds is None else number("seconds", seconds, above=True),
        )

    def share(self, trials: int, seconds: float) -> float:
        """How much of it is spent."""
        return max(
            0.0 if self.trials is None else trials / self.trials,
            0.0 if self.seconds is None else seconds / self.seconds,
        )


class _OutOfTimeError(Exception):
    """The study's time is over, or someone wants it to end."""


class _GivenUpError(Exception):
    """The trial is not worth going on with."""


class Search:
    """Proposes trials and does them.

    Args:
        problem: what a trial does.
        space: what is searched.
        journal: where it is written down; what it has of earlier calls is gone on with.
        watch: whom to tell.
        budget: how much it may take.
        proposals: draws the settings.
        workers: how many trials run at a time.
        warm: whether trials at larger dimensions begin from the best model of the smaller ones.
        checkpoints: beside which file trials keep their state; None: nowhere.
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
        self._before, self._began = journal.seconds, working_seconds()
        self._enough = threading.Event()  # someone wants it to end
        self._writing = threading.Lock()
        self._grows = growing(space)
        self._start: tuple[int, Recommender] | None = None  # the model that trials begin from, by its number
        self._starting = threading.Lock()

    @property
    def spent(self) -> float:
        """Seconds, over all calls. That kernels are compiled on a fresh machine is no part of the budget."""
        return self._before + working_seconds() - self._began

    def run(self) -> None:
        """Until the budget is spent, or no new settings are left."""
        size = self._proposals.size
        try:
            done = [one for one in self._journal.trials() if one.ended]
            self._watch.before(done, self._before)
            for one in done:  # a kill may have come just before it was removed
                self._remove(self._checkpoint(one))
            for place in range(0, 2**62, size):
                trials = self._journal.trials()
                if not self._propose(place, trials):
                    return
                end = place + size if self._budget.trials is None else min(place + size, self._budget.trials)
                wanted = [one for one in self._journal.trials()[place:end] if not one.ended]
                self._all(wanted, trials[:place])
                self._refuse_hopeless()
                if not all(one.ended for one in self._journal.trials()[place : place + size]):
                    return  # out of time, or out of trials
        finally:
            self._journal.seconds = self.spent

    def _propose(self, place: int, trials: Sequence[Trial]) -> bool:
        """Fill the round that begins at this place; whether there is anything in it."""
        size, budget = self._proposals.size, self._budget
        most = size if budget.trials is None else max(0, min(size, budget.trials - place))
        there = len(trials) - place
        if there < 0:
            return False  # the round before this one was not full: no new settings are left
        if there < most and budget.share(0, self.spent) < 1:
            before = trials[:place]
            value = trials[place].settings.get(self._grows or "") if there else self._stage(place, before)
            if self._last(place):
                start, found = None, self._again(before)
                if len(found) < size:
                    found += self._proposals.round(place // size, before, value, found)
            else:
                start, found = self._begins(before, value), self._proposals.round(place // size, before, value)
            here = [one.settings for one in trials[place:]]
            self._journal.propose([one for one in found if one not in here][: most - there], start)
        return place < len(self._journal.trials())

    def _stage(self, place: int, before: Sequence[Trial]) -> Value | None:
        """The value of the setting that grows: larger as the budget is spent, as long as larger is better."""
        if self._grows is None:
            return None
        grows = self._space[self._grows]
        assert isinstance(grows, Increasing)
        steps = len(grows.values) - 1
        share = self._budget.share(place, self.spent)
        k = steps if not steps or share >= 1 - LAST else min(steps - 1, int(share / (1 - LAST) * steps))
        best: dict[Value, float] = {}
        for value in grows.values[: k + 1]:
            merits = [one.merit for one in before if one.settings[self._grows] == value]
            tried = len(merits) >= 2 * self._proposals.size
            if tried and best and max(merits) <= max(best.values()):
                return max(best, key=lambda one: best[one])
            if merits:
                best[value] = max(merits)
        return grows.values[k]

    def _begins(self, before: Sequence[Trial], value: Value | None) -> int | None:
        """The best trial at a smaller value, for those at this one to begin from."""
        if not self._warm or not isinstance(value, int):
            return None
        smaller = [one for one in before if one.state == "complete" and one.settings[self._grows or ""] < value]
        return max(smaller, key=lambda one: one.merit).number if smaller else None

    def _last(self, place: int) -> bool:
        """Whether the budget comes to its end: what counts then begins from nothing."""
        trials, seconds = self._budget.trials, self._budget.seconds
        few = trials is not None and trials - place <= max(self._proposals.size, AGAIN * trials)
        return few or (seconds is not None and self.spent >= (1 - AGAIN) * seconds)

    def _again(self, before: Sequence[Trial]) -> list[dict[str, Any]]:
        """Of the best trials that began from another model and beat it, settings not done from nothing yet."""
        cold = [one.settings for one in before if one.start is None]
        ended = [one for one in before if one.state == "complete"]
        warm = [one for one in ended if one.start is not None and one.merit > before[one.start].merit]
        best = sorted(warm, key=lambda one: -one.merit)[: self._proposals.size]
        return [dict(one.settings) for one in best if one.settings not in cold]

    def _model(self, trial: Trial) -> Recommender | None:
        """The model that a trial begins from."""
        if trial.start is None:
            return None
        with self._starting:
            if self._start is None or self._start[0] != trial.start:
                settings = self._journal.trials()[trial.start].settings
                self._start = (trial.start, self._problem.start(settings))
            model = self._start[1]
        with self._writing:
            self._journal.begin_from(trial.number, model.best_epoch_)  # type: ignore[attr-defined]
        return model

    def _all(self, wanted: Sequence[Trial], before: Sequence[Trial]) -> None:
        """Do these trials, some at a time."""
        if self._workers == 1:
            for trial in wanted:
                self._one(trial, before)
            return
        with HeldSignals() as held, ThreadPoolExecutor(self._workers, "tune", initializer=held.join) as pool:
            futures = [pool.submit(self._one, trial, before) for trial in wanted]
            while wait(futures, timeout=0.1).not_done:
                if held.error is not None:  # Ctrl-C: the trials end with the epoch they are at
                    self._enough.set()
            for future in futures:
                future.result()

    def _one(self, trial: Trial, before: Sequence[Trial]) -> None:
        if self._over():
            return
        began = working_seconds()
        alike = [
            one for one in before
            if one.curve and (one.start is None) == (trial.start is None)
            and one.settings.get(self._grows or "") == trial.settings.get(self._grows or "")
        ]  # fmt: skip
        pruning = MedianPruning(alike)
        checkpoint = self._checkpoint(trial)
        with self._writing:
            attempts = self._journal.begin(trial.number)
        if not trial.curve:
            self._remove(checkpoint)  # of another study, or of a first epoch that nobody was told of
        curve = dict(zip(trial.epochs, trial.curve))  # of a trial that was cut off, as far as it came
        epochs = {**self._problem.template.settings(), **trial.settings}.get("epochs", 0)

        def report(epoch: int, value: float) -> None:
            curve[epoch] = value
            with self._writing:
                self._journal.report(trial.number, epoch, value)
            self._watch.epoch(trial.number, epoch, epochs, value)
            if pruning.hopeless({one: figure for one, figure in curve.items() if one <= epoch}):
                raise _GivenUpError
            if self._over() and epoch < epochs:
                raise _OutOfTimeError

        def step(done: int, total: int) -> None:
            if self._over() and done < total:
                raise _OutOfTimeError
            if self._budget.seconds is not None and working_seconds() - began > MOST * self._budget.seconds:
                raise DataError(f"it took longer than {MOST * self._budget.seconds:.0f} s, a quarter of all the time")

        state: State = "complete"
        value: float | None = None
        epoch: int | None = None
        reason: str | None = None
        try:
            if attempts >= ATTEMPTS:
                raise DataError(f"it was cut off {attempts} times, maybe for want of memory")
            value, epoch = self._problem.attempt(trial.settings, self._model(trial), checkpoint, report, step)
        except _OutOfTimeError:
            self._leave(trial, began)
            return
        except _GivenUpError:
            state, epoch = "pruned", max(curve, key=lambda one: curve[one])
        except (StorageError, OSError):  # a full disk, for one, is not the settings' fault
            self._leave(trial, began)
            raise
        except Exception as error:
            state, reason = "failed", _reason(error)
        except BaseException:  # Ctrl-C
            self._leave(trial, began)
            raise
        seconds = trial.seconds + working_seconds() - began
        with self._writing:
            self._journal.end(trial.number, state, seconds, value=value, epoch=epoch, reason=reason)
            self._journal.seconds = self.spent
            done = self._journal.trials()
        self._watch.ended(done[trial.number], sum(one.ended for one in done), self.spent)
        self._remove(checkpoint)

    def _checkpoint(self, trial: Trial) -> Path | None:
        if self._checkpoints is None or not self._problem.template._in_epochs:
            return None
        return self._checkpoints.with_name(f"{self._checkpoints.name}.trial-{trial.number}")

    @staticmethod
    def _remove(checkpoint: Path | None) -> None:
        if checkpoint is not None:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _leave(self, trial: Trial, began: float) -> None:
        with self._writing:
            self._journal.leave(trial.number, trial.seconds + working_seconds() - began)

    def _over(self) -> bool:
        return self._enough.is_set() or (self._budget.seconds is not None and self.spent >= self._budget.seconds)

    def _refuse_hopeless(self) -> None:
        ended = [one for one in self._journal.trials() if one.ended]
        if len(ended) >= _HOPELESS and all(one.state == "failed" for one in ended):
            raise DataError(f"all of the first {len(ended)} trials failed, the last one thus: {ended[-1].reason}")


def _reason(error: BaseException) -> str:
    """A line that tells what happened."""
    text = " ".join(str(error).split()) or ("not enough memory" if isinstance(error, MemoryError) else "")
    name = "" if isinstance(error, ShortlistError) else type(error).__name__
    return ": ".join(part for part in (name, text) if part)[:300]
