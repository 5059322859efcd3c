"""A recommender of any kind learns in epochs: here two towers in NumPy, with state of many shapes and types."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import shortlist as sl
from recommenders.factorizations import events
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.epochs import learn_in_epochs, load_state
from shortlist.scoring import DotProductScorer
from shortlist.storage import load_model, save_model

WEIGHTS = ("mix_", "bias_", "items_in_")


def hidden(rows, weights):
    """Return the context vectors: the mean of the items of a history, times a mixing matrix of each head, summed."""
    mean = np.zeros((rows.n_rows, weights["items_in_"].shape[1]))
    row_of = np.repeat(np.arange(rows.n_rows), rows.lengths)
    np.add.at(mean, row_of, weights["items_in_"][rows.indices])
    return np.einsum("bd,hde->be", mean / np.maximum(rows.lengths, 1)[:, None], weights["mix_"]) + weights["bias_"]


class TowerTrainer:
    """Samples pairs and negatives with a generator of its own, and learns with momentum. It has no base class."""

    samples = 64

    def __init__(self, rows, dim, seed):
        rng = np.random.default_rng(seed)
        self.rows, self.row_of = rows, np.repeat(np.arange(rows.n_rows), rows.lengths)
        self.weights = {
            "mix_": rng.normal(0, 0.3, (2, dim, dim)),
            "bias_": np.zeros(dim, np.float32),
            "items_in_": rng.normal(0, 0.3, (rows.n_columns, dim)).astype(np.float32),
        }
        self.memory = {f"momentum.{name}": np.zeros(array.shape) for name, array in self.weights.items()}
        self.counts = {"steps": np.zeros((), np.int64), "random": np.array([seed + 1, 0], np.uint64)}
        self.last = np.zeros(2, np.float16)  # the parts of the loss of the latest epoch

    def draw(self, n):
        """Return n numbers that depend on the state of the generator alone, and advance it."""
        key, done = self.counts["random"]
        self.counts["random"][1] += np.uint64(1)
        return np.random.default_rng([int(key), int(done)]).integers(0, 2**32, n, dtype=np.uint64)

    def epoch(self):
        places = self.draw(self.samples) % np.uint64(len(self.rows.indices))
        contexts, items = self.row_of[places], self.rows.indices[places]
        negatives = (self.draw(self.samples) % np.uint64(self.rows.n_columns)).astype(np.int64)
        out, vectors = self.weights["items_in_"].astype(float), hidden(self.rows, self.weights)[contexts]
        margin = ((out[items] - out[negatives]) * vectors).sum(axis=1)
        slope = -1 / (1 + np.exp(margin))[:, None]
        slopes = {"mix_": 0.01 * self.weights["mix_"], "bias_": (slope * (out[items] - out[negatives])).mean(axis=0)}
        slopes["items_in_"] = np.zeros(out.shape)
        np.add.at(slopes["items_in_"], items, slope * vectors)
        np.add.at(slopes["items_in_"], negatives, -slope * vectors)
        for name, array in self.weights.items():
            momentum = self.memory[f"momentum.{name}"]
            momentum *= 0.5
            momentum += slopes[name]
            np.subtract(array, (0.1 * momentum).astype(array.dtype), out=array)
        self.counts["steps"] += 1
        self.last[:] = np.log1p(np.exp(-margin)).mean(), 0.005 * (self.weights["mix_"] ** 2).sum()

    def finish(self):
        pass

    def loss(self):
        return {"surprise": float(self.last[0]), "size of the mixing matrices": float(self.last[1])}

    def state_dict(self):
        return {**self.weights, **self.memory, **self.counts, "last": self.last}

    def load_state_dict(self, state):
        load_state(self.state_dict(), state)

    def snapshot(self):
        return self.weights

    def restore(self, snapshot):
        load_state(self.weights, snapshot)


@dataclass(kw_only=True, repr=False, eq=False)
class TwoTower(Recommender):
    """The tower of contexts reads the history; the tower of items is a table."""

    learns_in_epochs: ClassVar[bool] = True
    _arrays: ClassVar[tuple[str, ...]] = WEIGHTS

    dim: int = 4
    epochs: int = 6
    seed: int = 0

    def check_settings(self):
        pass

    def learn(self, interactions, options, monitor):
        trainer = learn_in_epochs(
            self, interactions, options, monitor, lambda resumes: self.trainer(interactions), TwoTower.show
        )
        self.show(trainer.snapshot())

    def trainer(self, interactions):
        return TowerTrainer(interactions.by_context, self.dim, self.seed)

    def show(self, snapshot):
        for name in WEIGHTS:
            setattr(self, name, snapshot[name])

    def scorer(self, queries, threads=None):
        weights = {name: getattr(self, name) for name in WEIGHTS}
        return DotProductScorer(hidden(queries.histories.sets(), weights), self.items_in_)


class Ordered(TwoTower):
    ordered: ClassVar[bool] = True


class Interrupted(BaseException):
    pass


def interrupt(epoch: sl.Epoch) -> None:
    if epoch.number == 3:
        raise Interrupted


@pytest.fixture(scope="module")
def split() -> sl.Split:
    return sl.splits.by_time(events(), test=0.2)


@pytest.fixture(scope="module")
def how(split: sl.Split) -> dict[str, Any]:
    return {"validation": split, "metric": "recall@5", "patience": 4}


@pytest.fixture(scope="module")
def broken(split, how, tmp_path_factory):
    """Return a checkpoint in the middle of a validated fit."""
    folder = tmp_path_factory.mktemp("broken") / "c"
    with pytest.raises(Interrupted):
        TwoTower().fit(split.train, checkpoint=folder, callbacks=interrupt, **how)
    return folder


def test_it_stops_early_at_the_best_epoch(split, how):
    reported: list[sl.Epoch] = []
    model = TwoTower(epochs=60).fit(split.train, callbacks=reported.append, **{**how, "patience": 2})
    scores = [epoch.validation for epoch in model.training_]
    best = scores.index(max(scores)) + 1
    assert model.best_epoch_ == best
    assert len(scores) == best + 2 < 60
    assert reported == model.training_
    assert list(model.training_[0].loss) == ["surprise", "size of the mixing matrices"]
    shorter = TwoTower(epochs=best).fit(split.train)
    assert shorter.best_epoch_ is None
    for name in WEIGHTS:
        np.testing.assert_array_equal(getattr(model, name), getattr(shorter, name), strict=True)
    assert sl.evaluate(model, split, ["recall@5"])["recall@5"] == max(scores)


@pytest.mark.parametrize("validated", [False, True])
def test_an_interrupted_fit_resumes_with_the_same_bits(validated, split, how, tmp_path):
    how = how if validated else {}
    whole = TwoTower().fit(split.train, **how)
    with pytest.raises(Interrupted):
        TwoTower().fit(split.train, checkpoint=tmp_path / "c", callbacks=interrupt, **how)
    resumed = TwoTower().fit(split.train, checkpoint=tmp_path / "c", **how)
    for name in WEIGHTS:
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name), strict=True)
    assert [epoch.loss for epoch in resumed.training_] == [epoch.loss for epoch in whole.training_]
    assert [epoch.validation for epoch in resumed.training_] == [epoch.validation for epoch in whole.training_]
    assert resumed.best_epoch_ == whole.best_epoch_


def test_each_array_of_a_checkpoint_is_checked(broken, split, how, tmp_path):
    stored = load_model(broken)
    names = [name for name in stored.arrays if name.startswith(("state.", "best."))]
    assert {"state.random", "state.last", "state.momentum.mix_", "best.mix_"} <= set(names)

    def refused(arrays: dict[str, Any], message: str) -> None:
        shutil.rmtree(tmp_path / "c", ignore_errors=True)
        save_model(tmp_path / "c", replace(stored, arrays=arrays))
        with pytest.raises(sl.StorageError, match=rf"is not usable: {message}"):
            TwoTower().fit(split.train, checkpoint=tmp_path / "c", **how)

    for name in names:
        bare, array = name.partition(".")[2], stored.arrays[name]
        refused({other: value for other, value in stored.arrays.items() if other != name}, f"there is no array {bare};")
        refused({**stored.arrays, name: np.stack([array, array])}, rf"the array {bare} is {array.dtype} \(2,")
    refused({**stored.arrays, "state.more": np.zeros(1)}, "the array more, .* is not expected")
    refused({**stored.arrays, "best.more": np.zeros(1)}, "the array more, .* is not expected")
    random = stored.arrays["state.random"].astype(np.int64)
    refused({**stored.arrays, "state.random": random}, r"the array random is int64 \(2,\); expected uint64 \(2,\)")


def test_a_trainer_without_state_is_refused(split, tmp_path, monkeypatch):
    monkeypatch.setattr(TowerTrainer, "state_dict", lambda self: {})
    with pytest.raises(sl.StorageError, match="TowerTrainer has no state to save"):
        TwoTower().fit(split.train, checkpoint=tmp_path / "c")


def test_a_loaded_model_has_the_same_scores(split, how, tmp_path):
    model = TwoTower().fit(split.train, **how)
    model.save(tmp_path / "m")
    loaded = sl.load(tmp_path / "m", code=[TwoTower])
    ids, items = split.train.contexts.ids()[:5], model.items_.ids()
    np.testing.assert_array_equal(loaded.score(ids, [items] * 5), model.score(ids, [items] * 5))
    assert (loaded.training_, loaded.best_epoch_) == ([], None)
    for name in WEIGHTS:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name), strict=True)


def test_held_out_pairs_and_start_values_are_refused(split, how):
    with pytest.raises(sl.DataError, match="held-out pairs of the validation split are among the interactions"):
        TwoTower().fit(events(), **how)
    with pytest.raises(sl.SettingError, match="TwoTower does not accept start; omit it"):
        TwoTower().fit(split.train, start=TwoTower().fit(split.train))


def test_every_and_further_facts_of_a_checkpoint(split, tmp_path):
    class WithFact(TwoTower):
        fact = 1

        def learn(self, interactions, options, monitor):
            trainer = learn_in_epochs(
                self,
                interactions,
                options,
                monitor,
                lambda resumes: resumed.append(resumes) or self.trainer(interactions),
                TwoTower.show,
                every=2,
                identity={"the fact": self.fact},
            )
            self.show(trainer.snapshot())

    resumed: list[bool] = []
    model = WithFact(epochs=3).fit(split.train, validation=split, checkpoint=tmp_path / "c")
    assert [epoch.validation is None for epoch in model.training_] == [True, False, False]
    WithFact(epochs=3).fit(split.train, validation=split, checkpoint=tmp_path / "c")
    assert resumed == [False, True]
    WithFact.fact = 2
    with pytest.raises(sl.StorageError, match="is of another fit: the fact changed"):
        WithFact(epochs=3).fit(split.train, validation=split, checkpoint=tmp_path / "c")


def test_the_order_and_the_times_of_events_count_for_ordered_models_alone(tmp_path):
    def data(times: list[int]) -> sl.Interactions:
        frame = {"user": [0, 0, 1, 1], "item": [0, 1, 1, 2], "t": times}
        return sl.Interactions.from_frame(frame, context="user", item="item", time="t")

    first, later, reversed_ = data([1, 2, 3, 4]), data([1, 2, 3, 5]), data([2, 1, 3, 4])
    assert first.histories.items.tolist() == later.histories.items.tolist() != reversed_.histories.items.tolist()
    for kind in (TwoTower, Ordered):
        kind().fit(first, checkpoint=tmp_path / kind.__name__)
        kind().fit(first, checkpoint=tmp_path / kind.__name__)
    for other in (later, reversed_):
        TwoTower().fit(other, checkpoint=tmp_path / "TwoTower")
        with pytest.raises(sl.StorageError, match="of another fit: the order or the times of the events changed"):
            Ordered().fit(other, checkpoint=tmp_path / "Ordered")


def test_the_order_of_the_validation_history_counts_for_ordered_models_alone(tmp_path):
    def fit(kind: Any, history: list[int]) -> None:
        def made(frame: dict[str, list[int]]) -> sl.Interactions:
            return sl.Interactions.from_frame(
                {**frame, "t": list(range(len(frame["user"])))}, context="user", item="item", time="t"
            )

        everything = {"user": [0, 1, 0, 1], "item": [0, 1, 2, 2]}
        split = sl.splits.given(
            made(everything), made({"user": [2], "item": [2]}), history=made({"user": [2, 2], "item": history})
        )
        kind().fit(split.train, validation=split, checkpoint=tmp_path / kind.__name__)

    for kind in (TwoTower, Ordered):
        fit(kind, [0, 1])
    fit(TwoTower, [1, 0])
    with pytest.raises(sl.StorageError, match="the validation changed"):
        fit(Ordered, [1, 0])
