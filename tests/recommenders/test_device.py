"""Epochs in torch: the same recommender, wherever they run."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import shortlist as sl
from recommenders.factorizations import events, same
from shortlist.solvers import torch_half_step

CHOSEN = {"dim": 6, "epochs": 5, "solver": "eigen", "device": "torch-cpu"}


@pytest.mark.parametrize("wrong", ["gpu", "cuda:", "cuda:x", "CPU", 0, None])
def test_devices_that_there_are_not(wrong):
    with pytest.raises(sl.SettingError, match=r"device is .*; expected 'cpu', 'cuda'"):
        sl.IALS(solver="eigen", device=wrong)


@pytest.mark.parametrize("solver", ["exact", "block", "coordinate"])
def test_devices_are_for_one_solver(solver):
    with pytest.raises(sl.SettingError, match="which needs solver='eigen'"):
        sl.IALS(solver=solver, device="cuda")


@pytest.mark.parametrize("device", ["torch-cpu", "cuda"])
def test_without_torch_it_says_so(device, monkeypatch):
    monkeypatch.setattr(torch_half_step, "torch", None)
    with pytest.raises(
        sl.SettingError, match=f"device is '{device}', but PyTorch is not installed.* or use device=\"cpu\""
    ):
        sl.IALS(**{**CHOSEN, "device": device}).fit(events())


def test_without_a_gpu_it_says_so():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(sl.SettingError, match="sees no GPU"):
        sl.IALS(**{**CHOSEN, "device": "cuda"}).fit(events())


@pytest.mark.parametrize("convention", ["added", "total"])
def test_it_lowers_the_same_loss(convention):
    pytest.importorskip("torch")
    data = events(120, 36)
    more = {"convention": convention, "unobserved_item_exponent": 0.5, "regularization": 0.02}
    model = sl.IALS(**CHOSEN, **more).fit(data)
    losses = [one.loss.total for one in model.training_]
    assert all(b <= a * (1 + 1e-4) for a, b in pairwise(losses))
    objective = model.objective()
    embeddings = (model.context_embeddings_, model.item_embeddings_)
    expected = objective.loss(data.by_context, data.by_item, *embeddings)
    assert losses[-1] == pytest.approx(expected.total, rel=1e-4)
    exact = sl.IALS(dim=6, epochs=5, **more).fit(data)
    assert losses[-1] < exact.training_[-1].loss.total * 1.05
    np.testing.assert_allclose(model.fold_in(data), model.context_embeddings_, rtol=1e-2, atol=1e-3)


def test_a_break_changes_nothing(tmp_path):
    pytest.importorskip("torch")
    data = events()
    sl.IALS(**{**CHOSEN, "epochs": 2}).fit(data, checkpoint=tmp_path / "c")
    same(sl.IALS(**CHOSEN).fit(data, checkpoint=tmp_path / "c"), sl.IALS(**CHOSEN).fit(data))


def test_early_stopping_and_starts_are_the_same_as_elsewhere(tmp_path):
    pytest.importorskip("torch")
    split = sl.splits.by_time(events(120, 36), test=0.2)
    model = sl.IALS(**CHOSEN).fit(split.train, validation=split, patience=1)
    best = sl.IALS(**{**CHOSEN, "epochs": model.best_epoch_}).fit(split.train)
    scores = [one.context_embeddings_ @ one.item_embeddings_.T for one in (model, best)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-2, atol=1e-3)
    model.partial_fit(split.truth, epochs=1)
    model.save(tmp_path / "model")
    assert sl.load(tmp_path / "model").recommend([0]).ids == model.recommend([0]).ids
