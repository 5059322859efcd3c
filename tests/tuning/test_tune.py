"""The search as a whole."""

from __future__ import annotations

import builtins
import json
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from numba.core.event import Listener, register, unregister

import shortlist as sl
from recommenders.factorizations import events, same
from shortlist.tuning import Choice, Increasing, Integer, Real
from shortlist.tuning.problem import Problem

FAST = {"trials": 6, "progress": False}


@pytest.fixture(scope="module")
def split():
    return sl.splits.by_time(events(120, 36), test=0.2)


def table(tuned):
    return [(dict(one.settings), one.state, one.value, one.curve, one.epoch, one.start) for one in tuned.trials]


@pytest.mark.parametrize("model", ["popularity", "itemknn", "userknn", "slim", "ease", "ials", "icd"])
def test_every_recommender_can_be_tuned(model, split):
    tuned = sl.tune(model, split, **FAST)
    assert len(tuned.trials) == (2 if model == "popularity" else 6)
    assert tuned.value == max(one.value for one in tuned.trials if one.value is not None)
    assert tuned.start is None
    again = type(tuned.model)(**tuned.settings).fit(split.train)
    assert sl.evaluate(again, split, "ndcg@20")["ndcg@20"] == pytest.approx(tuned.value, abs=1e-6)
    assert tuned.model.settings() == tuned.settings
    # the first trial has the settings as they are, or as near as can be
    default, first = type(tuned.model)().fit(split.train).settings(), tuned.trials[0].settings
    assert {name for name in first if first[name] != default[name]} <= {"dim", "shrinkage"}


def test_the_best_is_fitted_to_everything(split):
    tuned = sl.tune("ease", split, **FAST)
    assert len(tuned.model.seen_) == split.events().n_pairs
    from_events = sl.tune("ease", events(120, 36), **FAST)
    assert len(from_events.model.seen_) == events(120, 36).n_pairs
    assert from_events.refit_seconds > 0
    without = sl.tune("ease", split, refit=False, **FAST)
    assert without.model is None
    assert without.refit_seconds is None
    assert without.settings == tuned.settings


def test_the_same_seed_gives_the_same_trials_whatever_the_workers(split):
    arguments = {"trials": 14, "space": {"dim": Increasing(2, 4)}, "metric": "recall@5", "refit": False}
    found = [
        sl.tune(sl.IALS(epochs=5), split, workers=workers, threads=threads, **arguments)
        for workers, threads in ((1, 1), (1, 2), (2, 2), (9, 4))
    ]
    assert all(table(one) == table(found[0]) for one in found)
    other = sl.tune(sl.IALS(epochs=5), split, seed=1, **arguments)
    assert table(other) != table(found[0])


def test_workers_run_at_a_time(split, monkeypatch):
    together = threading.Barrier(3, timeout=60)
    attempt = Problem.attempt

    def meeting(self, *arguments):
        if together.n_waiting + 1 <= 3 and not together.broken:
            together.wait()
        return attempt(self, *arguments)

    monkeypatch.setattr(Problem, "attempt", meeting)
    assert len(sl.tune("ease", split, trials=3, workers=3, threads=3, refit=False).trials) == 3


def test_larger_dimensions_begin_from_smaller_ones(split):
    arguments = {"trials": 16, "space": {"dim": Increasing(2, 4, 8)}, "refit": False, "metric": "recall@10"}
    tuned = sl.tune(sl.IALS(epochs=4), split, **arguments)
    dims = [one.settings["dim"] for one in tuned.trials]
    assert dims[:4] == [2] * 4
    assert 4 in dims
    for trial in tuned.trials:
        if trial.start is not None:
            assert tuned.trials[trial.start].settings["dim"] < trial.settings["dim"]
    assert any(one.start is not None for one in tuned.trials)
    assert all(one.start is None for one in tuned.trials[:4] + tuned.trials[-4:])
    # what began from another model and was best is done again from nothing
    warm = sorted((one for one in tuned.trials if one.start is not None and one.value), key=lambda one: -one.merit)
    assert dict(warm[0].settings) in [dict(one.settings) for one in tuned.trials if one.start is None]
    cold = sl.tune(sl.IALS(epochs=4), split, warm_start=False, **arguments)
    assert all(one.start is None for one in cold.trials)


def test_a_warm_trial_is_a_fit_from_the_smaller_model(split):
    arguments = {"trials": 16, "space": {"dim": Increasing(2, 4)}, "refit": False, "metric": "recall@10", "patience": 9}
    tuned = sl.tune(sl.IALS(epochs=3), split, **arguments)
    trial = next(one for one in tuned.trials if one.start is not None and one.state == "complete")
    options = {"validation": split, "metric": "recall@10", "patience": 9}
    small = sl.IALS(**{"epochs": 3, **tuned.trials[trial.start].settings}).fit(split.train, **options)
    large = sl.IALS(**{"epochs": 3, **trial.settings}).fit(split.train, start=small, **options)
    assert tuple(one.validation for one in large.training_) == trial.curve


def test_where_larger_is_worse_it_goes_back(monkeypatch, split):
    def rigged(self, settings, start, checkpoint, report, step):
        value = 1.0 / settings["dim"] + settings["regularization"] / 1000
        report(1, value)
        return value, 1

    monkeypatch.setattr(Problem, "attempt", rigged)
    monkeypatch.setattr(Problem, "start", lambda self, settings: SimpleNamespace(best_epoch_=1))
    tuned = sl.tune("ials", split, trials=80, space={"dim": Increasing(2, 4, 8)}, refit=False)
    dims = [one.settings["dim"] for one in tuned.trials]
    assert dims.count(4) == 8
    assert 8 not in dims
    assert dims[-1] == 2


def test_pruned_trials_stop_early(split):
    space = {"dim": None, "regularization": Real(1e-5, 1e4, log=True)}
    tuned = sl.tune(sl.IALS(dim=16, epochs=8), split, trials=24, space=space, patience=8, refit=False)
    pruned = [one for one in tuned.trials if one.state == "pruned"]
    assert pruned
    for one in pruned:
        assert one.value is None
        assert len(one.curve) < 8
        assert one.number >= 4


def test_a_failing_trial_is_recorded_and_the_search_goes_on(split, monkeypatch):
    attempt = Problem.attempt

    def flaky(self, settings, *rest):
        if settings["regularization"] > 300:
            raise MemoryError
        if settings["regularization"] < 10:
            raise FloatingPointError("overflow")
        return attempt(self, settings, *rest)

    monkeypatch.setattr(Problem, "attempt", flaky)
    tuned = sl.tune("ease", split, trials=20, refit=False)
    reasons = {one.reason for one in tuned.trials if one.state == "failed"}
    assert reasons == {"MemoryError: not enough memory", "FloatingPointError: overflow"}
    assert tuned.best.state == "complete"
    assert len(tuned.trials) == 20
    frame = tuned.to_polars()
    assert frame.filter(frame["state"] == "failed")["reason"].null_count() == 0


@pytest.mark.filterwarnings("ignore:overflow")
def test_numbers_that_overflow_are_a_failure(split):
    space = {"dim": None, "init_scale": Choice(0.1, 1e30)}
    tuned = sl.tune(sl.IALS(epochs=2), split, trials=8, space=space, refit=False)
    assert {one.settings["init_scale"] for one in tuned.trials} == {0.1, 1e30}
    for one in tuned.trials:
        assert (one.state == "failed") == (one.settings["init_scale"] == 1e30)
        assert one.state != "failed" or "the embeddings are too large" in one.reason


def test_a_fit_without_epochs_that_takes_too_long_is_cut_off(split, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("shortlist.tuning.search.working_seconds", lambda: clock[0])
    attempt = Problem.attempt

    def slow(self, settings, start, checkpoint, report, step):
        clock[0] += 30.0 if settings["l1"] < 1 else 1.0
        return attempt(self, settings, start, checkpoint, report, step)

    monkeypatch.setattr(Problem, "attempt", slow)
    tuned = sl.tune("slim", split, seconds=100.0, refit=False)
    failed = [one for one in tuned.trials if one.state == "failed"]
    assert failed
    assert all(one.settings["l1"] < 1 for one in failed)
    assert failed[0].reason == "it took longer than 25 s, a quarter of the time budget"
    assert tuned.best.settings["l1"] >= 1


def test_where_all_fail_it_says_so(split, monkeypatch):
    def broken(self, *_):
        raise sl.DataError("no such luck")

    monkeypatch.setattr(Problem, "attempt", broken)
    with pytest.raises(sl.DataError, match="all of the first 4 trials failed; the last error: no such luck"):
        sl.tune("ease", split, trials=40)
    with pytest.raises(sl.DataError, match="no trial has a ndcg@20: 2 failed; the last error: no such luck"):
        sl.tune("ease", split, trials=2)


def test_the_journal_is_one_of_optuna(split, tmp_path):
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    path = tmp_path / "new" / "folder" / "study"
    tuned = sl.tune("ease", split, study=path, refit=False, **FAST)
    study = optuna.load_study(study_name="shortlist", storage=JournalStorage(JournalFileBackend(str(path))))
    assert study.best_value == tuned.value
    assert study.best_params["regularization"] == tuned.settings["regularization"]
    assert [one.params for one in study.trials] == [dict(one.settings) for one in tuned.trials]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"metric": "recall@5"}, "metric was 'ndcg@20' and is 'recall@5'"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"model": "itemknn"}, "model was 'EASE' and is 'ItemKNN'"),
        ({"space": {"regularization": Real(1, 2)}}, "the space regularization was .*'high': 10000.0"),
        ({"model": sl.EASE(weighting="raw")}, "settings weighting was None and is 'raw'"),
        ({"data": sl.splits.by_time(events(120, 36, seed=1), test=0.2)}, "the data was '[0-9a-f]+' and is"),
    ],
)
def test_a_study_of_something_else_is_refused(split, tmp_path, change, told):
    path = tmp_path / "study"
    arguments = {"model": "ease", "data": split, "study": path, "refit": False, **FAST}
    sl.tune(**arguments)
    before = path.read_bytes()
    with pytest.raises(sl.SettingError, match=f"cannot use the study .*study of another search: .*{told}"):
        sl.tune(**{**arguments, **change})
    assert path.read_bytes() == before


def test_files_that_are_no_studies_are_refused(split, tmp_path):
    for name, content in (
        ("text", "hello\nworld\n"),
        ("json", '{"a": 1}\n'),
        ("list", "[1]\n"),
        ("binary", "\0\n\0\n"),
        ("open", '{"a": 1}'),
        ("table", "a,b\n1,2\n3,4"),
    ):
        path = tmp_path / name
        path.write_text(content)
        with pytest.raises(sl.StorageError, match=r"cannot use the study .*: it is not a journal of Optuna; choose"):
            sl.tune("ease", split, study=path, **FAST)
        assert path.read_text() == content
    for place in (tmp_path, "/dev/null"):
        with pytest.raises(sl.StorageError, match="it is not a file"):
            sl.tune("ease", split, study=place, **FAST)
    with pytest.raises(sl.SettingError, match="study is 7; expected the path of a file"):
        sl.tune("ease", split, study=7, **FAST)


def test_a_study_of_someone_else_is_refused(split, tmp_path):
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    path = tmp_path / "study"
    optuna.create_study(study_name="mine", storage=JournalStorage(JournalFileBackend(str(path))))
    with pytest.raises(sl.StorageError, match="has a study 'mine' that is not from Shortlist"):
        sl.tune("ease", split, study=path, **FAST)


def test_two_processes_do_not_share_a_study(split, tmp_path, monkeypatch):
    pytest.importorskip("fcntl")
    path = tmp_path / "study"
    attempt = Problem.attempt

    def meanwhile(self, *arguments):
        monkeypatch.setattr(Problem, "attempt", attempt)
        with pytest.raises(sl.StorageError, match="is in use by another process"):
            sl.tune("ease", split, study=path, **FAST)
        return attempt(self, *arguments)

    monkeypatch.setattr(Problem, "attempt", meanwhile)
    assert len(sl.tune("ease", split, study=path, refit=False, **FAST).trials) == 6


def test_a_half_written_line_is_cut_off(split, tmp_path):
    path = tmp_path / "study"
    first = sl.tune("ease", split, study=path, refit=False, **FAST)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code": 8, "trial')
    assert sl.tune("ease", split, study=path, refit=False, **FAST).trials == first.trials
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_the_sample(split):
    tuned = sl.tune(sl.IALS(epochs=3), split, sample=10, refit=False, **FAST)
    best = tuned.best
    model = sl.IALS(**tuned.settings).fit(split.train)
    assert sl.evaluate(model, split, "ndcg@20")["ndcg@20"] == pytest.approx(best.value, abs=1e-6)
    assert max(best.curve) != best.value
    everything = sl.tune(sl.IALS(epochs=3), split, sample=None, refit=False, **FAST)
    assert max(everything.best.curve) == everything.best.value


def test_weights_are_searched_where_there_are_some():
    weighted = events(120, 36, weighted=True)
    assert "weighting" in sl.tune("ease", weighted, refit=False, **FAST).trials[0].settings
    assert "weighting" not in sl.tune(sl.EASE(weighting="raw"), weighted, refit=False, **FAST).trials[0].settings


def test_what_is_told(split, capsys):
    tuned = sl.tune("ease", split, trials=12, progress=True)
    told = capsys.readouterr().err
    assert told.count("EASE: trial ") == 12
    assert f"best ndcg@20 {tuned.value:.4f} (trial {tuned.best.number})" in told
    assert repr(tuned).splitlines()[0].startswith(f"EASE(regularization={tuned.settings['regularization']!r}")
    assert f"ndcg@20 {tuned.value:.4f} on validation, trial {tuned.best.number} of 12 (12 complete)" in repr(tuned)
    frame = tuned.to_polars()
    assert frame.columns == [
        "trial",
        "start",
        "regularization",
        "weighting",
        "state",
        "epoch",
        "ndcg@20",
        "seconds",
        "reason",
    ]
    assert frame.height == 12
    sl.tune("ease", split, progress=False, **{"trials": 2})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"trials": 0}, sl.SettingError, "trials is 0; expected an integer ≥ 1"),
        ({"seconds": 0}, sl.SettingError, "seconds is 0; expected a number > 0"),
        ({"workers": 0}, sl.SettingError, "workers is 0"),
        ({"seed": -1}, sl.SettingError, "seed is -1"),
        ({"sample": 0}, sl.SettingError, "sample is 0"),
        ({"model": "ials", "patience": 0}, sl.SettingError, "patience is 0"),
        ({"refit": "no"}, sl.SettingError, "refit is 'no'; expected True or False"),
        ({"warm_start": 1}, sl.SettingError, "warm_start is 1; expected True or False"),
        ({"metric": "coverage@20"}, sl.SettingError, "expected an accuracy metric"),
        ({"metric": "ndgc"}, sl.SettingError, "ndgc"),
        (
            {"data": "events.csv"},
            sl.DataError,
            "tune takes Interactions, or a Split whose truth",
        ),
        ({"space": [("regularization", 1)]}, sl.SettingError, "space is .*; expected a mapping from settings to Real"),
        ({"model": "easy"}, sl.SettingError, "unknown recommender 'easy'"),
    ],
)
def test_mistakes(split, change, error, told):
    with pytest.raises(error, match=told):
        sl.tune(**{"model": "ease", "data": split, **FAST, **change})


def test_without_optuna_it_says_how_to_get_it(split, monkeypatch):
    importing = builtins.__import__

    def without(name, *arguments, **others):
        if name.partition(".")[0] == "optuna":
            raise ImportError(name)
        return importing(name, *arguments, **others)

    monkeypatch.setattr("shortlist.tuning.optuna_adapter.import_module", without)
    with pytest.raises(sl.SettingError, match=r'not installed: pip install "shortlist\[tune\]"'):
        sl.tune("ease", split)


def test_nothing_of_the_validation_is_lost_in_the_last_fit(split):
    tuned = sl.tune("ease", split, sample=2, **FAST)  # judged by 20 contexts
    assert len(tuned.model.seen_) == split.events().n_pairs


def test_the_first_trial_lies_in_the_space(split):
    space = {"neighbours": Choice(5, 7), "similarity": None, "asymmetry": Real(0.1, 0.2), "shrinkage": Integer(3, 9)}
    tuned = sl.tune("itemknn", split, space=space, refit=False, **FAST)
    first = tuned.trials[0].settings
    assert {name: first[name] for name in space if name in first} == {
        "neighbours": 5, "asymmetry": 0.2, "shrinkage": 3
    }  # fmt: skip


def test_checkpoints_of_another_study_are_of_no_use(split, tmp_path):
    arguments = {"trials": 4, "space": {"dim": None}, "refit": False}
    folder = tmp_path / "study.trial-0"
    sl.IALS(epochs=3, dim=2).fit(split.train, checkpoint=folder)
    tuned = sl.tune(sl.IALS(epochs=3), split, study=tmp_path / "study", **arguments)
    assert table(tuned) == table(sl.tune(sl.IALS(epochs=3), split, **arguments))
    assert not folder.exists()


def test_a_full_disk_is_not_the_fault_of_the_settings(split, tmp_path, monkeypatch):
    attempt, path = Problem.attempt, tmp_path / "study"

    def full(self, *_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Problem, "attempt", full)
        with pytest.raises(sl.StorageError, match="No space left on device"):
            sl.tune("ease", split, study=path, refit=False, **FAST)
    assert Problem.attempt is attempt
    assert sl.tune("ease", split, study=path, refit=False, **FAST).states() == {"complete": 6}


def test_a_smaller_budget_does_not_do_more(split, tmp_path, monkeypatch):
    path = tmp_path / "study"
    with monkeypatch.context() as patch:
        patch.setattr(Problem, "attempt", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sl.tune("ease", split, study=path, refit=False, **FAST)
    tuned = sl.tune("ease", split, study=path, trials=1, refit=False)
    assert [one.state for one in tuned.trials] == ["complete", *["not started"] * 3]


def test_a_metric_by_another_of_its_names(split, tmp_path):
    path = tmp_path / "study"
    tuned = sl.tune("ease", split, metric="map@10", study=path, refit=False, **FAST)
    assert tuned.metric == "ap@10"
    again = sl.tune("ease", split, metric="AP@10", study=path, refit=False, **FAST)
    assert again.trials == tuned.trials


def test_numbers_of_numpy(split, tmp_path):
    space = {"neighbours": Integer(np.int64(2), np.int64(9)), "asymmetry": Real(np.float32(0.25), np.float32(0.5))}
    tuned = sl.tune("itemknn", split, space=space, study=tmp_path / "study", refit=False, **FAST)
    assert all(2 <= one.settings["neighbours"] <= 9 for one in tuned.trials)


def test_a_checkpoint_does_not_change_the_result(split, tmp_path):
    arguments = {"trials": 8, "space": {"dim": Increasing(2, 4)}, "refit": False}
    kept = sl.tune(sl.IALS(epochs=4), split, study=tmp_path / "study", **arguments)
    assert table(kept) == table(sl.tune(sl.IALS(epochs=4), split, **arguments))
    assert [one.name for one in tmp_path.iterdir()] == ["study"]


def test_the_model_is_the_one_that_a_fit_gives(split):
    tuned = sl.tune(sl.IALS(epochs=3), split, space={"dim": Increasing(2, 4)}, trials=10, warm_start=False)
    same(tuned.model, sl.IALS(**tuned.settings).fit(split.events()))


def rigged(values):
    """What an attempt gives: the value of its place, in the order of the attempts."""
    left = iter(values)

    def attempt(self, settings, start, checkpoint, report, step):
        value = next(left)
        report(1, value)
        return value, 1

    return attempt


@pytest.mark.parametrize(("model", "more"), [(sl.IALS, {}), (sl.BPR, {"schedule": "linear"})])
def test_the_best_may_have_begun_from_another_model(split, monkeypatch, model, more):
    """The time ends before it is done again from nothing: it is the best all the same, with its start."""
    clock = [0.0]
    monkeypatch.setattr("shortlist.tuning.search.working_seconds", lambda: clock[0])
    attempt = Problem.attempt

    def timed(self, settings, start, *rest):
        clock[0] += 10.0
        value, epoch = attempt(self, settings, start, *rest)
        return (value, epoch) if start is None else (value + 10, epoch)

    monkeypatch.setattr(Problem, "attempt", timed)
    space = (
        {"dim": Increasing(2, 4), **dict.fromkeys(("init", "init_scale"))}
        if model is sl.BPR
        else {"dim": Increasing(2, 4)}
    )
    template = model(epochs=6, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned = sl.tune(template, split, space=space, seconds=70.0, metric="recall@10", threads=1)
    assert tuned.best.start is not None
    assert tuned.value == max(one.value for one in tuned.trials if one.value is not None)
    assert tuned.states()["not started"] >= 1
    smaller = model(**tuned.start)
    assert smaller.dim == 2
    assert "started from" in repr(tuned)
    assert "not started); only complete trials can be the best" in repr(tuned)
    again = model(**tuned.settings).fit(split.train, start=smaller.fit(split.train, threads=1), threads=1)
    assert sl.evaluate(again, split, "recall@10")["recall@10"] + 10 == pytest.approx(tuned.value, abs=1e-6)
    whole = model(**tuned.start).fit(split.events(), threads=1)
    same(tuned.model, model(**tuned.settings).fit(split.events(), start=whole, threads=1))


@pytest.mark.parametrize(("last", "best"), [([0.1, 0.3, 0.5, 0.2], 14), ([0.1, 0.3, 0.4, 0.2], 9)])
def test_what_is_said_to_be_the_best_is_the_result(split, monkeypatch, capsys, last, best):
    """Of trials that are as good, the first that began from nothing."""
    monkeypatch.setattr(Problem, "attempt", rigged([*[0.1, 0.3, 0.2, 0.1] * 2, 0.4, 0.5, 0.5, 0.1, *last]))
    monkeypatch.setattr(Problem, "start", lambda self, settings: SimpleNamespace(best_epoch_=1))
    space = {"dim": Increasing(2, 4)}
    tuned = sl.tune("ials", split, trials=16, space=space, refit=False, progress=True, threads=1)
    told = capsys.readouterr().err.splitlines()
    assert tuned.trials[9].start == 1
    assert "from trial 1;" in told[9]
    assert told[9].endswith("best ndcg@20 0.5000 (trial 9)")
    assert told[-1].endswith(f"best ndcg@20 {tuned.value:.4f} (trial {best})")
    assert tuned.best.number == best
    assert (tuned.start is None) == (tuned.best.start is None) == (best == 14)


def test_an_interrupt_without_a_study_ends_with_the_best_so_far(split, monkeypatch):
    attempt, tried = Problem.attempt, []

    def interrupted(self, *arguments):
        tried.append(arguments)
        if len(tried) == 4:
            raise KeyboardInterrupt
        return attempt(self, *arguments)

    monkeypatch.setattr(Problem, "attempt", interrupted)
    with pytest.warns(sl.ShortlistWarning, match="the search was interrupted: .* best of 3 finished trials"):
        tuned = sl.tune("ease", split, **FAST)
    assert tuned.interrupted
    assert tuned.model is None
    assert tuned.states() == {"complete": 3, "unfinished": 1}
    assert tuned.value == max(one.value for one in tuned.trials if one.value is not None)
    assert "interrupted" in repr(tuned)
    tried[:] = [None] * 3
    with pytest.raises(KeyboardInterrupt):  # nothing has ended
        sl.tune("ease", split, **FAST)


def test_compilation_is_charged_to_no_trial(split, monkeypatch):
    """A kernel that takes longer to compile than there is time."""
    now = [0.0]
    monkeypatch.setattr("shortlist._clock.time.perf_counter", lambda: now[0])
    attempt = Problem.attempt

    class Slow(Listener):
        def on_start(self, event):
            now[0] += 1000

        def on_end(self, event):
            pass

    def compiling(self, *arguments):
        import numba

        now[0] += 1
        numba.njit(lambda x: x + 1)(1)
        return attempt(self, *arguments)

    monkeypatch.setattr(Problem, "attempt", compiling)
    slow = Slow()
    register("numba:compile", slow)
    try:
        tuned = sl.tune("ease", split, seconds=5.5, refit=False)
    finally:
        unregister("numba:compile", slow)
    assert tuned.states()["complete"] == 6
    assert [one.seconds for one in tuned.trials if one.ended] == pytest.approx([1.0] * 6)
    assert tuned.seconds == pytest.approx(6.0)


def test_features_go_with_every_trial(tmp_path):
    data = sl.datasets.load("online-retail")
    titles = sl.Features.from_frame(data.items, id="product", multi_valued={"title": " "}, min_count=50)
    settings = sl.FeatureIALS(dim=4, epochs=2)
    found = sl.tune(settings, data.interactions, trials=2, item_features=titles, study=tmp_path / "s", progress=False)
    assert found.model.item_features_.n_features == titles.n_features
    with pytest.raises(sl.ShortlistError, match="the features of items"):
        sl.tune(settings, data.interactions, trials=2, study=tmp_path / "s", progress=False)
    with pytest.raises(sl.SettingError, match="IALS learns from ids only"):
        sl.tune("ials", data.interactions, trials=1, item_features=titles)
