"""The loop over epochs: reports, early stopping, resuming, and callbacks that stop it."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist import STOP
from shortlist._state import load_state
from shortlist.errors import StorageError
from shortlist.solvers.stopping import EarlyStopping
from shortlist.solvers.train import Epoch, train


class Counter:
    """A trainer with three arrays of its own kinds, which count its epochs. It has no base class."""

    samples = 7

    def __init__(self):
        self.arrays = {
            "weights": np.zeros((1, 2, 3), np.float32),
            "step": np.zeros(1, np.int64),
            "mask": np.zeros(4, np.bool_),
        }
        self.finished = 0

    @property
    def done(self):
        return int(self.arrays["step"][0])

    def epoch(self):
        self.arrays["weights"] += 1
        self.arrays["step"] += 1

    def finish(self):
        self.finished += 1

    def loss(self):
        return {"errors": 10.0 - self.done, "finished": float(self.finished)}

    def state_dict(self):
        return self.arrays

    def load_state_dict(self, state):
        load_state(self.arrays, state)

    def snapshot(self):
        return {"weights": self.arrays["weights"]}

    def restore(self, snapshot):
        load_state(self.snapshot(), snapshot)


def stopping_at(scores, patience):
    return EarlyStopping(lambda snapshot: scores[int(snapshot["weights"].max()) - 1], patience)


def test_the_last_epoch_reports_the_result():
    trainer = Counter()
    training = train(trainer, 3)
    assert [(epoch.loss.errors, epoch.loss.finished) for epoch in training] == [(9, 0), (8, 0), (7, 1)]
    assert [epoch.loss.total for epoch in training] == [9, 8, 8]
    assert all(epoch.samples == 7 for epoch in training)


@pytest.mark.parametrize("patience", [1, 2, 9])
def test_the_best_snapshot_is_restored_and_finished_once(patience):
    scores = [0.2, 0.5, 0.5, 0.4, 0.6, 0.1]
    trainer, stopping = Counter(), stopping_at(scores, patience)
    training = train(trainer, 6, stopping=stopping)
    assert [epoch.validation for epoch in training] == scores[: len(training)]
    assert stopping.best_epoch == {1: 2, 2: 2, 9: 5}[patience]
    assert len(training) == {1: 3, 2: 4, 9: 6}[patience]
    assert (trainer.arrays["weights"] == stopping.best_epoch).all()
    assert trainer.finished == 1


def saved_points(epochs, **kw):
    """Return (point, copy of the state) after each epoch."""
    trainer, points = Counter(), []
    copies = lambda: {name: array.copy() for name, array in trainer.state_dict().items()}  # noqa: E731
    train(trainer, epochs, keep=lambda point: points.append((point, copies())), **kw)
    return points


def test_a_resumed_fit_reports_only_its_own_epochs():
    whole = train(Counter(), 4)
    for past, state in saved_points(4):
        trainer, reported = Counter(), []
        trainer.load_state_dict(state)
        again = train(trainer, 4, past=past, callbacks=[reported.append])
        assert [epoch.loss for epoch in again] == [epoch.loss for epoch in whole]
        assert [epoch.number for epoch in again] == [1, 2, 3, 4]
        assert [epoch.number for epoch in reported] == list(range(past.number + 1, 5))
        assert trainer.done == 4
        assert trainer.finished == 1


def test_a_replay_reports_the_epochs_before_the_resume_first():
    whole = train(Counter(), 4)
    for past, state in saved_points(4):
        trainer, reported = Counter(), []
        trainer.load_state_dict(state)
        answers = [lambda epoch: reported.append(epoch) or (STOP if epoch.number < past.number else None)]  # noqa: B023
        again = train(trainer, 4, past=past, callbacks=answers, replay=True)
        assert [epoch.number for epoch in reported] == [1, 2, 3, 4]
        assert [epoch.loss for epoch in reported] == [epoch.loss for epoch in whole] == [epoch.loss for epoch in again]


def test_more_epochs_after_the_last_are_those_of_a_longer_fit():
    past, state = saved_points(2)[-1]
    trainer, reported = Counter(), []
    trainer.load_state_dict(state)
    longer = train(trainer, 4, past=past, callbacks=[reported.append])
    assert [epoch.loss for epoch in longer] == [epoch.loss for epoch in train(Counter(), 4)]
    assert [epoch.number for epoch in reported] == [3, 4]


@pytest.mark.parametrize("at", [1, 3])
def test_a_resume_at_the_last_epoch_validates_it(at):
    """The earlier fit was longer and validated every other epoch; at epoch 1 there is no score at all."""
    scores = [0.2, 0.1, 0.3, 0.4]
    whole, expected = Counter(), stopping_at(scores, 9)
    training = train(whole, at, every=2, stopping=expected)
    again, stopping = Counter(), stopping_at(scores, 9)
    past, state = saved_points(4, every=2, stopping=stopping_at(scores, 9))[at - 1]
    assert past.validation is None
    again.load_state_dict(state)
    if at > 2:
        stopping.best, stopping.best_epoch, stopping.snapshot = 0.1, 2, {"weights": np.full((1, 2, 3), 2, np.float32)}
    resumed = train(again, at, every=2, stopping=stopping, past=past)
    assert [epoch.validation for epoch in resumed] == [epoch.validation for epoch in training]
    assert stopping.best_epoch == expected.best_epoch == at
    assert (again.arrays["weights"] == at).all()


def test_a_point_is_kept_before_the_callbacks():
    order = []
    train(
        Counter(),
        2,
        keep=lambda point: order.append(("kept", point.number)),
        callbacks=[lambda epoch: order.append(epoch.number)],
    )
    assert order == [("kept", 1), 1, ("kept", 2), 2]


@pytest.mark.parametrize("answer", [STOP, "stop"])
@pytest.mark.parametrize("at", [1, 3, 4])
def test_a_callback_stops_the_fit(answer, at):
    reported, trainer = [], Counter()
    training = train(trainer, 4, callbacks=[lambda epoch: answer if epoch.number == at else None, reported.append])
    shorter = Counter()
    expected = train(shorter, at)
    assert [epoch.loss for epoch in training] == [epoch.loss for epoch in expected]
    assert [epoch.number for epoch in reported] == list(range(1, at + 1))  # later callbacks see the epoch too
    assert (trainer.done, trainer.finished) == (shorter.done, shorter.finished) == (at, 1)


@pytest.mark.parametrize("ignored", [None, True, False, 0, "Stop", "", np.array(["stop", "stop"]), StopIteration])
def test_other_answers_are_ignored(ignored):
    assert len(train(Counter(), 3, callbacks=[lambda epoch: ignored])) == 3


@pytest.mark.parametrize(("at", "best"), [(1, 1), (2, 2), (3, 2), (4, 4), (5, 4)])
def test_a_stopped_fit_with_validation_is_the_best_so_far(at, best):
    """Epochs are validated in twos; the last epoch before a stop is validated as well."""
    scores = [0.1, 0.5, 0.4, 0.6, 0.2, 0.9]
    trainer, stopping = Counter(), stopping_at(scores, 9)
    training = train(
        trainer, 6, every=2, stopping=stopping, callbacks=[lambda epoch: STOP if epoch.number == at else 0]
    )
    shorter = stopping_at(scores, 9)
    expected = train(Counter(), at, every=2, stopping=shorter)
    assert [epoch.validation for epoch in training] == [epoch.validation for epoch in expected]
    assert stopping.best_epoch == shorter.best_epoch == best
    assert (trainer.arrays["weights"] == best).all()


def test_the_parts_of_the_loss_keep_their_names():
    class Fickle(Counter):
        def loss(self):
            return {"a": 1.0} if self.done == 1 else {"b": 1.0}

    with pytest.raises(ValueError, match="the loss has the parts b after epoch 2; it had a"):
        train(Fickle(), 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("step"), r"there is no array step; expected int64 \(1,\)"),
        (lambda state: state.update(more=np.zeros(3)), r"the array more, float64 \(3,\), is not expected; expected"),
        (lambda state: state.update(mask=np.zeros(5, bool)), r"the array mask is bool \(5,\); expected bool \(4,\)"),
        (lambda state: state.update(mask=np.zeros(4)), r"the array mask is float64 \(4,\); expected bool \(4,\)"),
        (lambda state: state.update(mask=[False] * 4), r"the array mask is list; expected bool \(4,\)"),
        (lambda state: state.clear(), "there is no array weights"),
    ],
)  # fmt: skip
def test_a_state_that_does_not_match_is_refused_and_changes_nothing(change, message):
    trainer = Counter()
    trainer.epoch()
    state = {name: array.copy() for name, array in trainer.state_dict().items()}
    trainer.epoch()
    change(state)
    with pytest.raises(StorageError, match=message):
        trainer.load_state_dict(state)
    assert trainer.done == 2
    assert (trainer.arrays["weights"] == 2).all()


def test_an_epoch_is_a_value():
    (epoch,) = train(Counter(), 1)
    assert epoch == Epoch(1, 1, epoch.loss, epoch.seconds, None, 7)
    assert hash(epoch) == hash(Epoch(1, 1, epoch.loss, epoch.seconds, None, 7))
