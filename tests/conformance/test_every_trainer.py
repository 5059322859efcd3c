"""What every recommender that learns in epochs must do: resume from a checkpoint as if nothing had happened."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shortlist as sl
from conformance.test_every_recommender import CASES
from recommenders.factorizations import events
from shortlist.recommenders.registry import REGISTRY, recommender_class
from shortlist.storage import load_model, save_model

EPOCHS, BREAK = 4, 2
IN_EPOCHS = sorted(name for name in REGISTRY if recommender_class(name).learns_in_epochs)
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in IN_EPOCHS},
    "IALS on a device": ("IALS", {"device": "torch-cpu"}),
    **{f"IALS, {solver}": ("IALS", {"solver": solver}) for solver in ("exact", "block", "coordinate")},
    "RankALS, als": ("RankALS", {"solver": "als"}),
    "FactorizationMachine, cd": ("FactorizationMachine", {"solver": "cd"}),
    "FactorizationMachine with features": ("FactorizationMachine", {}),
    "FeatureIALS with features": ("FeatureIALS", {}),
    "BPR, adam, biases": ("BPR", {"optimizer": "adam", "biases": True}),
    "SoftmaxMF, sampled": ("SoftmaxMF", {"n_negatives": 8, "batch": 16}),
    "SoftmaxMF, sgd": ("SoftmaxMF", {"optimizer": "sgd"}),
    "LambdaMF, exact ranks": (
        "MatrixFactorization",
        {"objective": "Pairwise('logistic')", "sampler": "Uniform()", "weight": "LambdaRank(ranks='exact')"},
    ),
}


def make(case: str) -> Any:
    name, more = SETTINGS[case]
    return recommender_class(name)(**{**CASES[name].settings, **more, "dim": 4, "epochs": EPOCHS})


@cache
def split() -> Any:
    return sl.splits.by_time(events(), test=0.2, repeats="keep")


@cache
def item_features() -> sl.Features:
    items = sorted(events().items.ids())
    frame = {"product": items, "colour": ["red" if int(item[1:]) % 3 else "blue" for item in items]}
    return sl.Features.from_frame(frame, id="product")


def options(case: str, validated: bool) -> dict[str, Any]:
    chosen: dict[str, Any] = {"threads": 1, "progress": False}
    if validated:
        chosen |= {"validation": split(), "metric": "recall@5", "every": 1, "patience": 9}
    if "with features" in case:
        chosen["item_features"] = item_features()
    return chosen


class Interrupted(BaseException):
    pass


def interrupt(epoch: sl.Epoch) -> None:
    if epoch.number == BREAK:
        raise Interrupted


# They take seconds to compile; `make test-all` runs them.
SLOW = ("BPR, adam, biases", "SoftmaxMF, sgd", "LambdaMF, exact ranks")


@pytest.fixture(
    scope="module", params=[pytest.param(case, marks=pytest.mark.slow if case in SLOW else ()) for case in SETTINGS]
)
def case(request: pytest.FixtureRequest) -> str:
    if "device" in request.param:
        pytest.importorskip("torch")
    return str(request.param)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "validated"])
def broken(
    case: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], Any]:
    """Return a checkpoint in the middle of a fit, the options of the fit, and the model of an uninterrupted fit."""
    folder, chosen = tmp_path_factory.mktemp("broken") / "checkpoint", options(case, request.param)
    with pytest.raises(Interrupted):
        make(case).fit(split().train, checkpoint=folder, callbacks=interrupt, **chosen)
    return folder, chosen, make(case).fit(split().train, **chosen)


def arrays_of(model: Any) -> dict[str, np.ndarray]:
    return {name: getattr(model, name) for name in ("context_embeddings_", "item_embeddings_", *model._arrays)}


def test_every_recommender_in_epochs_is_here():
    assert {"IALS", "RankALS", "Tucker", "FactorizationMachine", "BPR", "WARP", "SoftmaxMF"} <= set(IN_EPOCHS)


def test_an_interrupted_fit_resumes_with_the_same_bits(case, broken, tmp_path):
    folder, chosen, whole = broken
    shutil.copytree(folder, tmp_path / "c")
    reported: list[int] = []
    resumed = make(case).fit(
        split().train, checkpoint=tmp_path / "c", callbacks=lambda epoch: reported.append(epoch.number), **chosen
    )
    for name, array in arrays_of(whole).items():
        np.testing.assert_array_equal(getattr(resumed, name), array, strict=True)
    assert [epoch.loss for epoch in resumed.training_] == [epoch.loss for epoch in whole.training_]
    assert [epoch.validation for epoch in resumed.training_] == [epoch.validation for epoch in whole.training_]
    assert resumed.best_epoch_ == whole.best_epoch_
    assert reported == list(range(BREAK + 1, EPOCHS + 1))


def test_a_checkpoint_whose_arrays_do_not_match_is_refused(case, broken, tmp_path):
    folder, chosen, _ = broken
    if "validation" not in chosen:
        return
    stored = load_model(folder)

    def refused(arrays: dict[str, np.ndarray], message: str) -> None:
        shutil.rmtree(tmp_path / "c", ignore_errors=True)
        save_model(tmp_path / "c", replace(stored, arrays=arrays))
        with pytest.raises(sl.StorageError, match=rf"is not usable: {message}.*; pass another folder"):
            make(case).fit(split().train, checkpoint=tmp_path / "c", **chosen)

    first, *_, last = [name for name in stored.arrays if name.startswith("state.")]
    for name in (first, last):
        array, bare = stored.arrays[name], name.removeprefix("state.")
        rest = {other: value for other, value in stored.arrays.items() if other != name}
        refused(rest, f"there is no array {bare}; expected {array.dtype}")
        refused(rest | {name: np.stack([array, array])}, rf"the array {bare} is {array.dtype} \(2, ")
    refused(stored.arrays | {"state.more": np.zeros(2)}, r"the array more, float64 \(2,\), is not expected")
