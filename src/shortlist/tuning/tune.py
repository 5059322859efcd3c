"""The search for good settings."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from shortlist._settings import flag, number, whole
from shortlist._threads import thread_count
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split
from shortlist.errors import DataError, ShortlistError
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.space import Dimension, Grows, Space, Value
from shortlist.tuning.engine import optuna
from shortlist.tuning.journal import ATTEMPTS, Journal, opened
from shortlist.tuning.problem import Problem, made, searched
from shortlist.tuning.progress import Watch, watched
from shortlist.tuning.result import State, Trial, Tuned
from shortlist.tuning.sampling import ROUND, Proposals, Pruning, growing, importance

TRIALS = 40  # where no budget is given
LAST = 0.5  # of the budget, for the largest value of a setting that grows
AGAIN = 0.25  # of the budget, for doing from nothing what began from another model
_HOPELESS = 4  # the first trials; where all of them fail, so will the others


def tune(
    model: str | type[Recommender] | Recommender,
    data: Interactions | Split,
    *,
    metric: str = "ndcg@20",
    trials: int | None = None,
    seconds: float | None = None,
    space: Mapping[str, Dimension | None] | None = None,
    study: str | PathLike[str] | None = None,
    seed: int = 0,
    workers: int = 1,
    threads: int | None = None,
    sample: int | None = 5000,
    patience: int = 3,
    warm_start: bool = True,
    refit: bool = True,
    progress: bool | None = None,
) -> Tuned:
    """Search the settings of a recommender, and fit the best to all the events.

    The first trial has the settings as they are, the next ones are drawn from the recommender's `space()`, at random
    and then where it was good so far (Optuna's TPE, over all settings at once). Where a setting grows, as `dim` does,
    the search begins at its smallest value and takes the best settings on to the next larger one, as long as that is
    better; its trials begin from the embeddings of the best smaller model, which saves half of the epochs, and the best
    of them are done again from nothing at the end.

    Recommenders that learn in epochs are judged after each of them; a trial is given up when its curve is below the
    median of those that came as far, and stops at its best epoch otherwise. A trial that fails, for want of memory or
    because numbers overflow, is written down as such, and the search goes on.

    Args:
        model: a name such as `"ials"`, a class, or a recommender: settings of it that are not the class's defaults
            stay as they are, and so do those that nobody searches.
        data: a split whose truth is the validation; or events, of which the newest tenth (a random one where they have
            no times) is taken for validation.
        metric: of accuracy, the higher the better.
        trials: how many there shall be in the study, over all calls that share its file; 40 where nothing is said.
        seconds: how long the study may be worked on, likewise; what is then running stays unfinished.
        space: instead of the recommender's own, setting by setting; None keeps a setting as it is. Where pairs have
            weights, `weighting` is searched too.
        study: a file that every trial is written to at once, in the format of Optuna's journal. A later call with the
            same arguments goes on where it was: a trial that a kill has cut off is done from its last checkpoint,
            which lies beside the file while the trial runs, and no trial is done twice.
        seed: the same seed, data and number of trials give the same trials, however many workers there are, up to four,
            and whether it was interrupted or not. With `seconds` it depends on the machine how far it gets.
        workers: how many trials run at a time, in threads of this process.
        threads: how many to use, over all workers; all CPUs by default.
        sample: so many contexts of the validation are asked for after each epoch, and ten times as many at the end of
            a trial; None: all of them.
        patience: a trial stops when so many epochs have passed without a better one.
        warm_start: whether trials at larger dimensions begin from the best model of the smaller ones; False: all from
            nothing.
        refit: fit the best settings to training and validation part together at the end; it is `model` of the result.
        progress: show a bar with the best so far; by default where standard error is a terminal. Elsewhere True prints
            a line a trial.

    >>> import shortlist as sl
    >>> events = sl.datasets.load("online-retail").interactions
    >>> tuned = sl.tune("ease", events, trials=3, progress=False)
    >>> tuned.settings["regularization"] == tuned.model.regularization, len(tuned.trials)
    (True, 3)
    """
    optuna()
    budget = _Budget.of(trials, seconds)
    seed, workers = whole("seed", seed, least=0), whole("workers", workers)
    if sample is not None:
        sample = whole("sample", sample)
    flag("refit", refit)
    flag("warm_start", warm_start)
    template = made(model)
    each = max(1, thread_count(threads) // workers) if workers > 1 else threads
    problem = Problem.of(
        template, data, metric=metric, sample=sample, patience=patience, seed=seed, threads=each
    )  # fmt: skip
    chosen = searched(template, space, problem.split.train.by_context.values is not None)
    size = max(ROUND, workers)
    identity = {
        **problem.identity(),
        "seed": seed,
        "rounds": size,
        "warm_start": warm_start,
        "the space": {name: {"kind": type(one).__name__, **asdict(one)} for name, one in chosen.items()},
        "settings": {name: one for name, one in template.settings().items() if name not in chosen},
    }
    with (
        opened(study, chosen, identity) as journal,
        watched(type(template).__name__, metric, budget.trials, budget.seconds, progress) as watch,
    ):
        search = _Search(
            problem, chosen, journal, watch, budget, Proposals(chosen, template.settings(), seed, size), workers
        )
        search.checkpoints = None if study is None else Path(study)
        search.warm = warm_start and template._in_epochs and isinstance(template, DotProduct)
        search.run()
        found, spent = journal.trials(), journal.seconds
    best = _best(found, metric)
    settings = {**template.settings(), **best.settings}
    if best.epoch is not None:
        settings["epochs"] = best.epoch
    began = time.perf_counter()
    fitted = problem.final(settings, progress, threads) if refit else None
    return Tuned(
        recommender=type(template).__name__,
        metric=metric,
        settings=settings,
        best=best,
        trials=found,
        importance=importance(chosen, found),
        seconds=spent,
        model=fitted,
        refit_seconds=time.perf_counter() - began if refit else None,
        searched=tuple(chosen),
    )


@dataclass(frozen=True)
class _Budget:
    """How much a study may take, in all."""

    trials: int | None
    seconds: float | None

    @classmethod
    def of(cls, trials: int | None, seconds: float | None) -> _Budget:
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


class _Search:
    """Round after round of trials."""

    checkpoints: Path | None = None
    warm: bool = False

    def __init__(
        self,
        problem: Problem,
        space: Space,
        journal: Journal,
        watch: Watch,
        budget: _Budget,
        proposals: Proposals,
        workers: int,
    ) -> None:
        self._problem, self._space, self._journal, self._watch = problem, space, journal, watch
        self._budget, self._proposals, self._workers = budget, proposals, workers
        self._before, self._began = journal.seconds, time.perf_counter()
        self._enough = threading.Event()  # someone wants it to end
        self._writing = threading.Lock()
        self._grows = growing(space)
        self._start: tuple[int, Recommender] | None = None  # the model that trials begin from, by its number
        self._starting = threading.Lock()

    @property
    def spent(self) -> float:
        """Seconds, over all calls."""
        return self._before + time.perf_counter() - self._began

    def run(self) -> None:
        """Until the budget is spent, or no new settings are left."""
        size = self._proposals.size
        try:
            for done in _told(self._journal.trials()):
                self._watch.ended(done, done.number + 1, self._before)
            for place in range(0, 2**62, size):
                trials = self._journal.trials()
                if not self._propose(place, trials):
                    return
                wanted = [one for one in self._journal.trials()[place : place + size] if one.state == "unfinished"]
                self._all(wanted, trials[:place])
                self._refuse_hopeless()
                if any(one.state == "unfinished" for one in self._journal.trials()[place : place + size]):
                    return  # out of time
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
        assert isinstance(grows, Grows)
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
        if not self.warm or not isinstance(value, int):
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
            return self._start[1]

    def _all(self, wanted: Sequence[Trial], before: Sequence[Trial]) -> None:
        """Do these trials, some at a time."""
        if self._workers == 1:
            for trial in wanted:
                self._one(trial, before)
            return
        with ThreadPoolExecutor(self._workers, thread_name_prefix="tune") as pool:
            futures = [pool.submit(self._one, trial, before) for trial in wanted]
            try:
                wait(futures)
            except BaseException:  # Ctrl-C arrives here: the trials end with the epoch they are at
                self._enough.set()
                raise
            for future in futures:
                future.result()

    def _one(self, trial: Trial, before: Sequence[Trial]) -> None:
        if self._over():
            return
        began = time.perf_counter()
        alike = [
            one for one in before
            if one.curve and (one.start is None) == (trial.start is None)
            and one.settings.get(self._grows or "") == trial.settings.get(self._grows or "")
        ]  # fmt: skip
        pruning = Pruning(alike)
        checkpoint = None
        if self.checkpoints is not None and self._problem.template._in_epochs:
            checkpoint = self.checkpoints.with_name(f"{self.checkpoints.name}.trial-{trial.number}")
        with self._writing:
            attempts = self._journal.begin(trial.number)
        curve: dict[int, float] = {}
        epochs = self._problem.template.settings().get("epochs", 0)

        def report(epoch: int, value: float) -> None:
            curve[epoch] = value
            with self._writing:
                self._journal.report(trial.number, epoch, value)
            self._watch.epoch(trial.number, epoch, epochs, value)
            if pruning.hopeless(curve):
                raise _GivenUpError
            if self._over() and epoch < epochs:
                raise _OutOfTimeError

        state: State = "complete"
        value: float | None = None
        epoch: int | None = None
        reason: str | None = None
        try:
            if attempts >= ATTEMPTS:
                raise DataError(f"it was cut off {attempts} times, maybe for want of memory")
            value, epoch = self._problem.attempt(trial.settings, self._model(trial), checkpoint, report)
        except _OutOfTimeError:
            self._leave(trial)
            return
        except _GivenUpError:
            state, epoch = "pruned", max(curve, key=lambda one: curve[one])
        except Exception as error:
            state, reason = "failed", _reason(error)
        except BaseException:  # Ctrl-C
            self._leave(trial)
            raise
        seconds = time.perf_counter() - began
        with self._writing:
            self._journal.end(trial.number, state, seconds, value=value, epoch=epoch, reason=reason)
            self._journal.seconds = self.spent
            done = self._journal.trials()
        self._watch.ended(done[trial.number], sum(one.state != "unfinished" for one in done), self.spent)
        if checkpoint is not None:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _leave(self, trial: Trial) -> None:
        with self._writing:
            self._journal.leave(trial.number)

    def _over(self) -> bool:
        return self._enough.is_set() or (self._budget.seconds is not None and self.spent >= self._budget.seconds)

    def _refuse_hopeless(self) -> None:
        ended = [one for one in self._journal.trials() if one.state != "unfinished"]
        if len(ended) >= _HOPELESS and all(one.state == "failed" for one in ended):
            raise DataError(f"all of the first {len(ended)} trials failed, the last one thus: {ended[-1].reason}")


def _told(trials: Sequence[Trial]) -> list[Trial]:
    return [one for one in trials if one.state != "unfinished"]


def _best(trials: Sequence[Trial], metric: str) -> Trial:
    complete = [one for one in trials if one.state == "complete" and one.start is None]
    if complete:
        return max(complete, key=lambda one: one.value or 0.0)
    if failed := [one for one in trials if one.state == "failed"]:
        raise DataError(f"no trial has a {metric}: {len(failed)} failed, the last one thus: {failed[-1].reason}")
    raise DataError("no trial came to its end; give it more time")


def _reason(error: BaseException) -> str:
    """A line that tells what happened."""
    text = " ".join(str(error).split()) or ("not enough memory" if isinstance(error, MemoryError) else "")
    name = "" if isinstance(error, ShortlistError) else type(error).__name__
    return ": ".join(part for part in (name, text) if part)[:300]
