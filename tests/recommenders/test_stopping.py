"""Early stopping on a validation split."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist as sl
from recommenders.factorizations import events, same


@pytest.fixture
def split():
    return sl.splits.by_time(events(120, 36), test=0.2)


@pytest.mark.parametrize("kind", ["time", "contexts"])
def test_each_epoch_is_judged_as_if_it_were_the_last(kind, split):
    if kind == "contexts":
        split = sl.splits.held_out_contexts(events(120, 36), 30, fold_in=0.6)
    model = sl.IALS(dim=6, epochs=5).fit(split.train, validation=split, metric="ndcg@10", patience=5)
    assert [epoch.number for epoch in model.training_] == [1, 2, 3, 4, 5]
    for epoch in model.training_:
        short = sl.IALS(dim=6, epochs=epoch.number).fit(split.train)
        assert epoch.validation == pytest.approx(sl.evaluate(short, split, "ndcg@10")["ndcg@10"], abs=1e-6)


def test_the_best_epoch_is_what_remains(split):
    chosen = {"dim": 12, "regularization": 0.0001, "unobserved_weight": 0.01}
    model = sl.IALS(epochs=12, **chosen).fit(split.train, validation=split, metric="recall@5", patience=12)
    values = [epoch.validation for epoch in model.training_]
    assert model.best_epoch_ == 1 + int(np.argmax(values))
    best = sl.IALS(**chosen, epochs=model.best_epoch_).fit(split.train)
    scores = [one.context_embeddings_ @ one.item_embeddings_.T for one in (model, best)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-3, atol=1e-3)
    assert sl.evaluate(model, split, "recall@5")["recall@5"] == pytest.approx(max(values), abs=1e-9)
    np.testing.assert_allclose(model.fold_in(split.train), model.context_embeddings_, rtol=1e-3, atol=5e-3)


def test_it_stops_when_patience_is_at_an_end(split):
    model = sl.IALS(dim=12, epochs=50, regularization=1e-5, unobserved_weight=1e-3)
    model.fit(split.train, validation=split, metric="recall@3", patience=2)
    assert len(model.training_) == model.best_epoch_ + 2 < 50
    assert all(epoch.epochs == 50 for epoch in model.training_)


def test_without_a_split_nothing_is_judged(split):
    model = sl.IALS(dim=2, epochs=2).fit(split.train)
    assert model.best_epoch_ is None
    assert [epoch.validation for epoch in model.training_] == [None, None]


def test_callbacks_hear_of_it(split, capsys):
    heard = []
    sl.IALS(dim=2, epochs=2).fit(split.train, validation=split, callbacks=heard.append, progress=True)
    assert [epoch.validation is not None for epoch in heard] == [True, True]
    assert f"validation {heard[0].validation:.4f}" in capsys.readouterr().err


def test_what_is_asked_for_must_not_be_learnt(split):
    with pytest.raises(
        sl.DataError, match=r"held-out pairs of the validation split .* fit\(split.train, validation=split"
    ):
        sl.IALS(dim=2).fit(events(120, 36), validation=split)
    kept = sl.splits.by_time(events(120, 36), test=0.2, repeats="keep")
    assert kept.truth.n_pairs > split.truth.n_pairs  # some were had before
    sl.IALS(dim=2, epochs=1).fit(kept.train, validation=kept)
    with pytest.raises(
        sl.DataError, match=rf"{split.truth.n_pairs} of the {len(kept.truth)} held-out pairs of the validation split"
    ):
        sl.IALS(dim=2).fit(events(120, 36), validation=kept)


def test_wrong_arguments(split):
    model = sl.IALS(dim=2)
    with pytest.raises(sl.SettingError, match="validation is of type float; expected a Split"):
        model.fit(split.train, validation=0.1)
    with pytest.raises(sl.SettingError, match="expected an accuracy metric, where higher is better, such as"):
        model.fit(split.train, validation=split, metric="gini@20")
    with pytest.raises(sl.SettingError, match="nonsense"):
        model.fit(split.train, validation=split, metric="nonsense@20")
    for patience in (0, 1.5, True):
        with pytest.raises(sl.SettingError, match="patience is"):
            model.fit(split.train, validation=split, patience=patience)
    with pytest.raises(sl.SettingError, match="checkpoint is 5; expected the path"):
        model.fit(split.train, checkpoint=5)
    for callbacks in (None, [5], 5, "print", [print, "x"]):
        with pytest.raises(
            sl.SettingError, match="expected a function that takes an Epoch, or a list of them, as call"
        ):
            model.fit(split.train, callbacks=callbacks)


def test_who_does_not_learn_in_epochs_says_so(split, tmp_path):
    other = sl.IALS(dim=2, epochs=1).fit(split.train)
    for name, value in (("validation", split), ("checkpoint", tmp_path / "x"), ("start", other)):
        with pytest.raises(sl.SettingError, match=f"EASE does not learn in epochs and does not accept {name}"):
            sl.EASE().fit(split.train, **{name: value})


def test_a_fit_that_fails_leaves_the_model_as_it_was(split):
    model = sl.IALS(dim=3, epochs=2).fit(split.train)
    before = sl.IALS(dim=3, epochs=2).fit(split.train)

    def fail(epoch):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        model.fit(split.train, validation=split, callbacks=fail)
    same(model, before)
    assert model.recommend([0]).ids == before.recommend([0]).ids


def test_a_metric_that_nobody_has():
    data = sl.Interactions.from_frame({"u": [1, 2, 1, 2], "i": ["a", "b", "b", "a"]}, context="u", item="i")
    split = sl.splits.given(data.select(np.array([0, 1])), data.select(np.array([2, 3])))
    with pytest.raises(sl.DataError, match="auc is not defined for any context of the validation"):
        sl.IALS(dim=2, epochs=2).fit(split.train, validation=split, metric="auc")
