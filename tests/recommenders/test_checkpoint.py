"""Going on from a checkpoint: the very model that would have come without a break."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

import shortlist as sl
from recommenders.factorizations import events, same, settings_of_ials
from shortlist.recommenders.checkpoint import Checkpoint
from shortlist.solvers.stopping import EarlyStopping
from shortlist.solvers.train import train
from shortlist.storage import load_model, read_manifest, save_model
from solvers.test_train import Counter


class Stopped(BaseException):
    pass


def broken_after(number):
    def callback(epoch):
        if epoch.number == number:
            raise Stopped

    return callback


def fit_with_a_break(model, data, folder, after, **kw):
    with pytest.raises(Stopped):
        model.fit(data, checkpoint=folder, callbacks=broken_after(after), **kw)
    return type(model)(**model.settings()).fit(data, checkpoint=folder, **kw)


@pytest.mark.parametrize("after", [1, 3, 4])
@pytest.mark.parametrize("solver", ["eigen", "exact", "block", "coordinate"])
def test_a_break_changes_nothing(solver, after, tmp_path):
    data = events()
    settings = {"dim": 5, "epochs": 4, "solver": solver} | ({"block": 2} if solver == "block" else {})
    whole = sl.IALS(**settings).fit(data)
    resumed = fit_with_a_break(sl.IALS(**settings), data, tmp_path / "c", after)
    same(resumed, whole)
    assert [one.loss for one in resumed.training_] == [one.loss for one in whole.training_]
    assert [one.number for one in resumed.training_] == [1, 2, 3, 4]


@settings(max_examples=15)
@given(chosen=settings_of_ials())
def test_under_any_settings(chosen, tmp_path_factory):
    data, chosen = events(30, 18, weighted=True), {**chosen, "epochs": 3}
    folder = tmp_path_factory.mktemp("checkpoint") / "c"
    same(fit_with_a_break(sl.IALS(**chosen), data, folder, 2), sl.IALS(**chosen).fit(data))


@pytest.mark.parametrize("after", [1, 3, 5])
def test_a_break_changes_nothing_of_early_stopping(after, tmp_path):
    split = sl.splits.by_time(events(120, 36), test=0.2)
    chosen = {"dim": 12, "epochs": 9, "regularization": 1e-5, "unobserved_weight": 0.001}
    how = {"validation": split, "metric": "recall@3", "patience": 4}
    whole = sl.IALS(**chosen).fit(split.train, **how)
    resumed = fit_with_a_break(sl.IALS(**chosen), split.train, tmp_path / "c", after, **how)
    same(resumed, whole)
    assert resumed.best_epoch_ == whole.best_epoch_
    assert [one.validation for one in resumed.training_] == [one.validation for one in whole.training_]
    same(sl.IALS(**chosen).fit(split.train, checkpoint=tmp_path / "c", **how), whole)  # it is at its end already


def test_more_epochs_go_on(tmp_path):
    data = events()
    short = sl.IALS(dim=4, epochs=2).fit(data, checkpoint=tmp_path / "c")
    same(short, sl.IALS(dim=4, epochs=2).fit(data))
    heard = []
    longer = sl.IALS(dim=4, epochs=5).fit(data, checkpoint=tmp_path / "c", callbacks=heard.append)
    same(longer, sl.IALS(dim=4, epochs=5).fit(data))
    assert [one.number for one in heard] == [3, 4, 5]
    assert [one.loss for one in longer.training_] == [one.loss for one in sl.IALS(dim=4, epochs=5).fit(data).training_]
    assert all(one.epochs == 5 for one in longer.training_)
    same(sl.IALS(dim=4, epochs=5).fit(data, checkpoint=tmp_path / "c"), longer)
    with pytest.raises(sl.StorageError, match="is already at epoch 5, but epochs is 3"):
        sl.IALS(dim=4, epochs=3).fit(data, checkpoint=tmp_path / "c")


def test_one_of_another_fit_is_refused(tmp_path):
    folder, data = tmp_path / "c", events()
    sl.IALS(dim=4, epochs=2).fit(data, checkpoint=folder)
    with pytest.raises(sl.StorageError, match=r"of another fit: dim was 4 and is 5, seed was 0 and is 1; pass another"):
        sl.IALS(dim=5, seed=1, epochs=2).fit(data, checkpoint=folder)
    with pytest.raises(sl.StorageError, match="contains a checkpoint of IALS, not of ICD"):
        sl.ICD(dim=4, epochs=2).fit(data, checkpoint=folder)
    fewer = data.select(np.arange(len(data) - 1))
    with pytest.raises(sl.StorageError, match=r"of another fit: .*the pairs or their weights changed"):
        sl.IALS(dim=4, epochs=2).fit(fewer, checkpoint=folder)
    with pytest.raises(sl.StorageError, match="the ids of contexts changed, the pairs"):
        sl.IALS(dim=4, epochs=2).fit(data.extend(contexts=[12345]), checkpoint=folder)
    with pytest.raises(sl.StorageError, match="the start changed"):
        sl.IALS(dim=4, epochs=2).fit(data, checkpoint=folder, start=sl.IALS(dim=4, epochs=1).fit(data))
    split = sl.splits.by_time(data, test=0.2)
    sl.IALS(dim=4, epochs=2).fit(split.train, checkpoint=tmp_path / "d", validation=split)
    with pytest.raises(sl.StorageError, match="the validation changed"):
        sl.IALS(dim=4, epochs=2).fit(split.train, checkpoint=tmp_path / "d", validation=split, metric="recall@5")


def test_weights_are_part_of_the_data(tmp_path):
    sl.IALS(dim=2, epochs=1).fit(events(), checkpoint=tmp_path / "c")
    with pytest.raises(sl.StorageError, match="the pairs or their weights changed"):
        sl.IALS(dim=2, epochs=1, weighting="binary").fit(events(weighted=True), checkpoint=tmp_path / "c")


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    data = events()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(sl.StorageError, match="is not a checkpoint; pass another folder"):
        sl.IALS(dim=2, epochs=1).fit(data, checkpoint=tmp_path / "full")
    with pytest.raises(sl.StorageError, match="is not a checkpoint"):
        sl.IALS(dim=2, epochs=1).fit(data, checkpoint=tmp_path / "full" / "letter.txt")
    sl.IALS(dim=2, epochs=1).fit(data).save(tmp_path / "model")
    with pytest.raises(sl.StorageError, match=r"contains a saved IALS model, not a checkpoint; pass another folder"):
        sl.IALS(dim=2, epochs=1).fit(data, checkpoint=tmp_path / "model")
    (tmp_path / "empty").mkdir()
    sl.IALS(dim=2, epochs=1).fit(data, checkpoint=tmp_path / "empty")


def test_a_checkpoint_is_no_model(tmp_path):
    data, folder = events(), tmp_path / "c"
    model = sl.IALS(dim=2, epochs=1).fit(data, checkpoint=folder)
    with pytest.raises(
        sl.StorageError, match=r"a checkpoint of a fit of IALS, not a model; resume it with IALS\(…\).fit"
    ):
        sl.load(folder)
    with pytest.raises(sl.StorageError, match=r"contains a checkpoint of a fit; pass another directory, or delete it"):
        model.save(folder)
    sl.IALS(dim=2, epochs=2).fit(data, checkpoint=folder)  # it is there still


@pytest.mark.parametrize("place", ["file/c", "file/deep/c", "x" * 300, "y/" + "x" * 300])
def test_a_place_that_cannot_be_written_to_is_refused_before_the_first_epoch(place, tmp_path):
    (tmp_path / "file").write_text("dear")
    with pytest.raises(sl.StorageError, match=r"pass another folder|choose another directory") as told:
        sl.IALS(dim=2, epochs=1).fit(events(), checkpoint=tmp_path / place, callbacks=lambda _: pytest.fail("an epoch"))
    assert "model" not in str(told.value)
    assert ".tmp" not in str(told.value)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to this user")
def test_a_folder_of_somebody_else_is_refused_before_the_first_epoch(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    (tmp_path / "hidden").mkdir(mode=0o000)
    for place in ("locked/c", "hidden/c"):
        with pytest.raises(sl.StorageError, match="Permission denied"):
            sl.IALS(dim=2).fit(events(), checkpoint=tmp_path / place, callbacks=lambda _: pytest.fail("an epoch"))


def test_numbers_of_numpy_are_numbers(tmp_path):
    split = sl.splits.by_time(events(), test=0.2)
    how = {"validation": split, "checkpoint": tmp_path / "c"}
    sl.IALS(dim=2, epochs=1).fit(split.train, patience=np.int64(2), **how)
    sl.IALS(dim=2, epochs=2).fit(split.train, patience=2, **how)


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({"epoch": None}, "its epoch is None; expected an integer ≥ 1"),
        ({"epoch": "2"}, "its epoch is '2'"),
        ({"epoch": 0}, "its epoch is 0"),
        ({"epoch": 1}, r"the array losses is float64 \(1, 3\); expected float64 \(0, 3\)"),
        ({"losses": "observed"}, "the names of its losses are 'observed'; expected a list of names"),
        ({"losses": ["a"]}, r"the array losses is float64 \(1, 3\); expected float64 \(1, 1\)"),
        ({"best_epoch": 3}, "its best epoch is 3, beyond its last, 2"),
        ({"best_epoch": -1}, "its best epoch is -1; expected"),
        ({"best": "x"}, "its best score is 'x'; expected a finite number"),
    ],
)
def test_one_that_says_nonsense_of_itself(extra, told, tmp_path):
    split = sl.splits.by_time(events(), test=0.2)
    how = {"validation": split, "checkpoint": tmp_path / "c"}
    sl.IALS(dim=2, epochs=2).fit(split.train, **how)
    stored = load_model(tmp_path / "c")
    save_model(tmp_path / "c", replace(stored, extra={**stored.extra, **extra}))
    with pytest.raises(sl.StorageError, match=f"is not usable: {told}.*; pass another folder"):
        sl.IALS(dim=2, epochs=3).fit(split.train, **how)


NAMES = ["state.contexts", "state.items", "seconds", "losses", "validation", "best.items"]


@pytest.mark.parametrize("name", NAMES)
def test_one_whose_arrays_do_not_fit(name, tmp_path):
    split = sl.splits.by_time(events(), test=0.2)
    how = {"validation": split, "checkpoint": tmp_path / "c"}
    sl.IALS(dim=2, epochs=2).fit(split.train, **how)
    stored = load_model(tmp_path / "c")
    assert sorted(stored.arrays) == sorted(NAMES)
    bare = name.partition(".")[2] or name
    others = {key: array for key, array in stored.arrays.items() if key != name}
    array = stored.arrays[name]
    prefix = name.removesuffix(bare)
    for arrays, told in (
        (others, f"there is no array {bare}; expected float"),
        ({**others, name: array.astype(np.int32)}, rf"the array {bare} is int32 .*; expected float"),
        ({**others, name: np.stack([array, array])}, rf"the array {bare} is {array.dtype} \(2, "),
        ({**stored.arrays, f"{prefix}more": array}, rf"the array more, {array.dtype} .*, is not expected"),
    ):
        save_model(tmp_path / "c", replace(stored, arrays=arrays))
        with pytest.raises(sl.StorageError, match=rf"is not usable: {told}.*; pass another folder"):
            sl.IALS(dim=2, epochs=3).fit(split.train, **how)


def test_a_snapshot_without_a_best_epoch_is_refused(tmp_path):
    split = sl.splits.by_time(events(), test=0.2)
    how = {"validation": split, "checkpoint": tmp_path / "c"}
    sl.IALS(dim=2, epochs=2).fit(split.train, **how)
    stored = load_model(tmp_path / "c")
    save_model(tmp_path / "c", replace(stored, extra={**stored.extra, "best_epoch": 0}))
    with pytest.raises(sl.StorageError, match=r"the array best.items, float32 .*, is not expected; expected none"):
        sl.IALS(dim=2, epochs=3).fit(split.train, **how)


@pytest.mark.parametrize("at", [2, 3])
@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("kind", [sl.IALS, sl.BPR])
def test_a_stopped_fit_is_that_of_fewer_epochs_and_can_be_resumed(kind, validated, at, tmp_path):
    data, chosen, how = events(), {"dim": 4}, {"threads": 1, "checkpoint": tmp_path / "c"}
    if kind is sl.BPR:
        chosen |= {"schedule": "constant"}
    if validated:
        split = sl.splits.by_time(data, test=0.2)
        data, how = split.train, {**how, "validation": split, "metric": "recall@3", "every": 2}
    stopped = kind(**chosen, epochs=6).fit(data, callbacks=lambda epoch: sl.STOP if epoch.number == at else None, **how)
    shorter = kind(**chosen, epochs=at).fit(data, **{**how, "checkpoint": None})
    same(stopped, shorter)
    assert stopped.best_epoch_ == shorter.best_epoch_
    assert [one.loss for one in stopped.training_] == [one.loss for one in shorter.training_]
    assert [one.validation for one in stopped.training_] == [one.validation for one in shorter.training_]
    assert stopped.settings()["epochs"] == 6
    resumed = kind(**chosen, epochs=6).fit(data, **how)
    whole = kind(**chosen, epochs=6).fit(data, **{**how, "checkpoint": None})
    same(resumed, whole)
    assert [one.validation for one in resumed.training_] == [one.validation for one in whole.training_]


def test_a_trainer_without_state_is_refused(tmp_path, monkeypatch):
    """A fit that resumed from it would begin again without a word."""
    monkeypatch.setattr("shortlist.solvers.als.Alternation.state_dict", lambda self: {})
    with pytest.raises(sl.StorageError, match="Alternation has no state to save, so a fit could not resume from it"):
        sl.IALS(dim=2, epochs=2).fit(events(), checkpoint=tmp_path / "c")


@pytest.mark.parametrize("validated", [False, True])
def test_any_trainer_can_be_saved(validated, tmp_path):
    """Its state and its snapshot are arrays of any shape and type, and its loss has parts of any name."""

    def checkpoint():
        return Checkpoint(tmp_path / "c", Counter, {"epochs": 5}, {"the data": "some"})

    def stopping():
        scores = [0.1, 0.3, 0.2, 0.2, 0.1]
        return EarlyStopping(lambda snapshot: scores[int(snapshot["weights"].max()) - 1], 9) if validated else None

    whole, best = Counter(), stopping()
    expected = train(whole, 5, stopping=best)
    first, saved_best = Counter(), stopping()
    train(first, 3, stopping=saved_best, keep=lambda point: checkpoint().write(point, first, saved_best))
    again, resumed_best = Counter(), stopping()
    saved = checkpoint().read(5)
    assert saved.past.number == 3
    checkpoint().resume(saved, again, resumed_best)
    resumed = train(again, 5, stopping=resumed_best, past=saved.past)
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array, strict=True)
    assert [epoch.loss for epoch in resumed] == [epoch.loss for epoch in expected]
    assert list(resumed[0].loss) == ["errors", "finished"]
    assert [epoch.validation for epoch in resumed] == [epoch.validation for epoch in expected]
    assert not validated or resumed_best.best_epoch == best.best_epoch == 2


def test_a_failure_while_writing_leaves_the_older_one(tmp_path, monkeypatch):
    data, folder = events(), tmp_path / "c"
    replace, calls = os.replace, []

    def fail_the_second_time(*paths):
        calls.append(paths)
        if len(calls) == 2:
            raise OSError("no space left")
        return replace(*paths)

    monkeypatch.setattr(os, "replace", fail_the_second_time)
    with pytest.raises(sl.StorageError, match="nothing was changed"):
        sl.IALS(dim=4, epochs=5).fit(data, checkpoint=folder)
    monkeypatch.undo()
    assert read_manifest(folder).extra["epoch"] == 2
    same(sl.IALS(dim=4, epochs=5).fit(data, checkpoint=folder), sl.IALS(dim=4, epochs=5).fit(data))


def test_a_damaged_one_is_refused(tmp_path):
    data, folder = events(), tmp_path / "c"
    sl.IALS(dim=4, epochs=2).fit(data, checkpoint=folder)
    (arrays,) = folder.glob("arrays-*")
    arrays.write_bytes(arrays.read_bytes()[:-8])
    with pytest.raises(sl.StorageError):
        sl.IALS(dim=4, epochs=3).fit(data, checkpoint=folder)


KILLED = """
import os, sys
import shortlist as sl
from recommenders.factorizations import events

def kill(epoch):
    if epoch.number == 3:
        os.kill(os.getpid(), 9)

sl.IALS(dim=5, epochs=6).fit(events(), checkpoint=sys.argv[1], callbacks=kill)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
def test_another_process_goes_on_after_a_kill(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "c")], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert read_manifest(tmp_path / "c").extra["epoch"] == 3
    heard = []
    resumed = sl.IALS(dim=5, epochs=6).fit(events(), checkpoint=tmp_path / "c", callbacks=heard.append)
    assert [epoch.number for epoch in heard] == [4, 5, 6]
    assert [epoch.number for epoch in resumed.training_] == [1, 2, 3, 4, 5, 6]
    same(resumed, sl.IALS(dim=5, epochs=6).fit(events()))
