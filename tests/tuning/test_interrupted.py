"""A study that is killed or interrupted goes on: nothing is lost, nothing is done twice."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time

import pytest

import shortlist as sl
from interrupts import Interrupts
from recommenders.factorizations import events
from shortlist.tuning.journal import Journal
from shortlist.tuning.problem import Problem
from shortlist.tuning.search import Search
from storage.samples import child_environment
from tuning.killer import study

pytestmark = pytest.mark.usefixtures("default_threads")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study without a break, and how often it writes to its journal."""
    path = tmp_path_factory.mktemp("whole") / "study"
    return study(path), len(path.read_bytes().splitlines())


def check_kill(folder, write, how, whole, monkeypatch):
    path = folder / "study"
    done = subprocess.run(
        [sys.executable, "-m", "tuning.killer", str(path), str(write), how], env=child_environment(), check=False
    )
    assert done.returncode == -signal.SIGKILL
    over = ended(path)
    again = []
    attempt = Problem.attempt

    def watched(self, settings, start, *rest):
        again.append((dict(settings), start is not None))
        return attempt(self, settings, start, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Problem, "attempt", watched)
        assert study(path) == whole
    assert not [one for one in over if one in again]
    assert len(over) + len(again) == len(whole)
    assert [one.name for one in folder.iterdir()] == ["study"]


def ended(path):
    """The settings of the trials that a journal says are over, and whether they began from another model."""
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    proposed = [line for line in lines if "distributions" in line]
    over = [line["trial_id"] for line in lines if line["op_code"] == 6 and line["state"] in (1, 2, 3)]
    plain = []
    for one in (proposed[trial] for trial in over):
        kinds = {name: json.loads(kind) for name, kind in one["distributions"].items()}
        settings = {
            name: kinds[name]["attributes"]["choices"][value] if "choices" in kinds[name]["attributes"] else value
            for name, value in one["params"].items()
        }
        plain.append((settings, "start" in one["user_attrs"]))
    return plain


@pytest.mark.parametrize(
    ("part", "how"),
    [
        (0.02, "whole"),
        pytest.param(0.3, "half", marks=pytest.mark.slow),
        pytest.param(0.6, "whole", marks=pytest.mark.slow),
        (0.97, "half"),
    ],
)
def test_killed_at_a_write_to_its_journal(tmp_path, part, how, whole, monkeypatch):
    trials, writes = whole
    assert writes > 60
    check_kill(tmp_path, int(part * writes), how, trials, monkeypatch)


@pytest.mark.slow
def test_killed_at_every_few_writes(tmp_path, whole, monkeypatch):
    trials, writes = whole
    for write in range(0, writes, 4):
        folder = tmp_path / str(write)
        folder.mkdir()
        check_kill(folder, write, "half" if write % 8 else "whole", trials, monkeypatch)


SCRIPT = """
import sys
import shortlist as sl
from recommenders.factorizations import events
split = sl.splits.by_time(events(400, 60), test=0.2)
print("ready", flush=True)
sl.tune(sl.IALS(dim=64, epochs=40), split, trials=3, patience=40, space={"dim": None}, study=sys.argv[1], refit=False)
"""


def test_killed_within_a_fit_it_goes_on_from_the_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "study"
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path)], stdout=subprocess.PIPE, env=child_environment(), text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    checkpoint = tmp_path / "study.trial-0" / "manifest.json"
    while not checkpoint.exists() and child.poll() is None:
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert checkpoint.exists()
    split = sl.splits.by_time(events(400, 60), test=0.2)
    told = []
    attempt = Problem.attempt

    def watched(self, settings, start, checkpoint, report, step):
        epochs = []
        told.append(epochs)

        def told_twice(epoch, value):
            epochs.append(epoch)
            report(epoch, value)

        return attempt(self, settings, start, checkpoint, told_twice, step)

    monkeypatch.setattr(Problem, "attempt", watched)
    arguments = {"trials": 3, "patience": 40, "space": {"dim": None}, "refit": False}
    tuned = sl.tune(sl.IALS(dim=64, epochs=40), split, study=path, **arguments)
    plain = sl.tune(sl.IALS(dim=64, epochs=40), split, **arguments)
    assert [one.curve for one in tuned.trials] == [one.curve for one in plain.trials]
    assert [one.value for one in tuned.trials] == [one.value for one in plain.trials]
    assert told[0] == list(range(told[0][0], 41))
    assert len(told) == 6
    assert not list(tmp_path.glob("study.trial-*"))


def test_what_always_kills_the_process_is_given_up(tmp_path):
    """A trial that was cut off three times is taken for a failure, and the others are done."""
    path = tmp_path / "study"
    split = sl.splits.by_time(events(80, 24), test=0.2)
    for attempt in range(3):
        crash(split, path, attempt)
    tuned = sl.tune("itemknn", split, trials=3, study=path, refit=False)
    assert [one.state for one in tuned.trials] == ["failed", "complete", "complete"]
    assert "interrupted 3 times" in tuned.trials[0].reason


def crash(split, path, attempt):
    """As a kill leaves it: begun and not ended."""

    class DeadError(BaseException):
        pass

    def dying(self, number):
        assert begin(self, number) == attempt
        raise DeadError

    begin = Journal.begin
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "begin", dying)
        with pytest.raises(DeadError):
            sl.tune("itemknn", split, trials=3, study=path, refit=False)


def test_a_trial_that_comes_further_each_time_is_never_given_up(tmp_path, monkeypatch):
    split = sl.splits.by_time(events(80, 24), test=0.2)
    arguments = {"trials": 2, "space": {"dim": None}, "study": tmp_path / "study", "refit": False, "patience": 12}
    report = Journal.report

    class DeadError(BaseException):
        pass

    for kill in range(1, 6):

        def dying(self, number, epoch, value, last=2 * kill):
            report(self, number, epoch, value)
            if number == 0 and epoch == last:
                raise DeadError

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "report", dying)
            patch.setattr(Search, "_suspend", lambda *_: None)
            with pytest.raises(DeadError):
                sl.tune(sl.IALS(epochs=12), split, **arguments)
    tuned = sl.tune(sl.IALS(epochs=12), split, **arguments)
    assert [one.state for one in tuned.trials] == ["complete"] * 2
    assert len(tuned.trials[0].curve) == 12


def test_an_interrupt_is_no_failed_attempt(tmp_path, monkeypatch):
    path = tmp_path / "study"
    split = sl.splits.by_time(events(80, 24), test=0.2)

    def interrupted(*_):
        raise KeyboardInterrupt

    for _ in range(4):
        with monkeypatch.context() as patch:
            patch.setattr(Problem, "attempt", interrupted)
            with pytest.raises(KeyboardInterrupt):
                sl.tune("itemknn", split, trials=3, study=path, refit=False)
    tuned = sl.tune("itemknn", split, trials=3, study=path, refit=False)
    assert [one.state for one in tuned.trials] == ["complete"] * 3


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals for one thread")
def test_interrupts_wait_for_trials_in_threads(tmp_path, monkeypatch):
    path = tmp_path / "study"
    split = sl.splits.by_time(events(80, 24), test=0.2)
    attempt, numbers, interrupts = Problem.attempt, itertools.count(), Interrupts()

    def interrupted(self, *args):
        if next(numbers) == 0:
            interrupts.send()
        interrupts.sent.wait(30)
        return attempt(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Problem, "attempt", interrupted)
        with interrupts, pytest.raises(KeyboardInterrupt):
            sl.tune("itemknn", split, trials=3, study=path, refit=False, workers=2)
    assert not interrupts.left_early
    tuned = sl.tune("itemknn", split, trials=3, study=path, refit=False)
    assert [one.state for one in tuned.trials] == ["complete"] * 3


def test_time_that_is_over_leaves_trials_to_be_gone_on_with(tmp_path, monkeypatch):
    path = tmp_path / "study"
    split = sl.splits.by_time(events(200, 60), test=0.2)
    arguments = {"space": {"dim": None}, "trials": 6, "study": path, "refit": False, "patience": 9}
    looks = iter([False] * 13)
    with monkeypatch.context() as patch:
        patch.setattr(Search, "_should_stop", lambda self: next(looks, True))
        first = sl.tune(sl.IALS(epochs=9), split, **arguments)
    assert [one.state for one in first.trials] == ["complete", "unfinished", "not started", "not started"]
    assert len(first.trials[1].curve) == 3
    more = sl.tune(sl.IALS(epochs=9), split, **arguments)
    assert more.states().get("unfinished", 0) == more.states().get("not started", 0) == 0
    assert len(more.trials) == 6
    for before, after in zip(first.trials, more.trials):
        assert before.settings == after.settings
        assert after.curve[: len(before.curve)] == before.curve
    assert more.seconds > first.seconds


def test_no_time_at_all(tmp_path):
    split = sl.splits.by_time(events(80, 24), test=0.2)
    with pytest.raises(sl.DataError, match="no trial was completed; allow more time"):
        sl.tune("ials", split, seconds=1e-9)


def test_a_finished_study_is_only_told_again(tmp_path, monkeypatch):
    path = tmp_path / "study"
    split = sl.splits.by_time(events(80, 24), test=0.2)
    first = sl.tune("ease", split, trials=5, study=path, refit=False)
    monkeypatch.setattr(Problem, "attempt", lambda *_: pytest.fail("it was all done"))
    again = sl.tune("ease", split, trials=5, study=path, refit=False)
    assert again.trials == first.trials
    assert again.settings == first.settings


def test_a_larger_budget_goes_on(tmp_path):
    path = tmp_path / "study"
    split = sl.splits.by_time(events(80, 24), test=0.2)
    few = sl.tune("ease", split, trials=6, study=path, refit=False)
    many = sl.tune("ease", split, trials=11, study=path, refit=False)
    whole = sl.tune("ease", split, trials=11, refit=False)
    assert many.trials[:6] == few.trials
    assert [one.settings for one in many.trials] == [one.settings for one in whole.trials]


def test_an_epoch_that_was_saved_but_not_reported_is_reported_first(tmp_path, monkeypatch):
    """A kill between the two leaves a checkpoint that is one epoch ahead of the journal."""
    monkeypatch.setattr("shortlist.tuning.problem._CHECKPOINT_SHARE", None)
    data = events(60, 30)
    problem = Problem.of(sl.IALS(dim=4), data, metric="recall@5", sample=None, patience=9, seed=0, threads=1)
    settings = {"dim": 4, "epochs": 4}
    reported, whole = {}, {}
    problem.attempt(settings, None, None, whole.__setitem__, lambda *_: None)

    def killed(number, value):
        if number == 2:
            raise KeyboardInterrupt
        reported[number] = value

    with pytest.raises(KeyboardInterrupt):
        problem.attempt(settings, None, tmp_path / "c", killed, lambda *_: None)
    assert list(reported) == [1]
    reported.clear()
    problem.attempt(settings, None, tmp_path / "c", reported.__setitem__, lambda *_: None)
    assert list(reported) == [1, 2, 3, 4]
    assert reported == whole
