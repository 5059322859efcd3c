"""What folding in must do for every recommender with embeddings, whatever its objective (`DotProduct.fold_in`)."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import shortlist as sl
from conformance.test_every_recommender import events, make
from shortlist.objectives import Pointwise
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.registry import REGISTRY, recommender_class
from shortlist.recommenders.sgd_factorization import SGDFactorization

pytestmark = pytest.mark.usefixtures("default_threads")

NAMES = sorted(name for name in REGISTRY if issubclass(recommender_class(name), DotProduct))
DATA = events()
HISTORIES = [DATA.history(one) for one in DATA.contexts.ids()]
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest) -> Any:
    return make(request.param).fit(DATA, threads=1)


def weighted(model: Any) -> Any:
    """The same kind of model, for which weights count."""
    return make(type(model).__name__, weighting="raw").fit(DATA, threads=1)


def test_they_are_all_here():
    assert {"IALS", "RankALS", "PARAFAC", "FactorizationMachine", "BPR", "SoftmaxMF"} <= set(NAMES)


def test_a_row_of_float32_for_each_history(model):
    found = model.fold_in(HISTORIES)
    assert found.shape == (len(HISTORIES), model.item_embeddings_.shape[1])
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert model.fold_in([]).shape == (0, model.item_embeddings_.shape[1])


def test_a_batch_is_one_by_one(model):
    together = model.fold_in([*HISTORIES, [], HISTORIES[0]])
    for k in (0, 7, 39):
        np.testing.assert_allclose(model.fold_in([HISTORIES[k]])[0], together[k], **CLOSE)
    np.testing.assert_array_equal(together[-1], together[0])


def test_neither_threads_nor_the_time_of_asking_matter(model):
    first = model.fold_in(HISTORIES, threads=1)
    for threads in (1, 2, 3, None):
        np.testing.assert_array_equal(model.fold_in(HISTORIES, threads=threads), first)


def test_the_order_of_a_history_does_not_matter(model):
    turned = [list(reversed(one)) for one in HISTORIES]
    np.testing.assert_array_equal(model.fold_in(turned), model.fold_in(HISTORIES))


def test_no_history_is_zero(model):
    found = model.fold_in([[], HISTORIES[0], {}])
    assert not found[[0, 2]].any()
    assert found[1].any()


def test_forms_of_a_history(model):
    expected = model.fold_in(HISTORIES)
    np.testing.assert_allclose(model.fold_in(DATA), expected, **CLOSE)
    np.testing.assert_allclose(model.fold_in([dict.fromkeys(one, 1.0) for one in HISTORIES]), expected, **CLOSE)


def test_weights_count_as_in_training(model):
    few = {one: 1.0 + k for k, one in enumerate(HISTORIES[0])}
    np.testing.assert_allclose(model.fold_in([few]), model.fold_in([HISTORIES[0]]), **CLOSE)  # binary
    raw = weighted(model)
    assert not np.allclose(raw.fold_in([few]), raw.fold_in([HISTORIES[0]]), **CLOSE)
    repeated = [one for one, weight in few.items() for _ in range(int(weight))]
    np.testing.assert_allclose(raw.fold_in([repeated]), raw.fold_in([few]), **CLOSE)


def test_unknown_items_are_refused_or_skipped(model):
    with pytest.raises(sl.UnknownIdError, match="unknown item 'no such'"):
        model.fold_in([[*HISTORIES[0], "no such"]])
    found = model.fold_in([[*HISTORIES[0], "no such"], ["no such"]], unknown="skip")
    np.testing.assert_allclose(found[0], model.fold_in([HISTORIES[0]])[0], **CLOSE)
    assert not found[1].any()


def test_a_context_of_the_training_data_gets_its_own_row(model):
    folded, trained = model.fold_in(DATA), model.context_embeddings_
    if isinstance(model, SGDFactorization):  # learnt beside items that still moved: the two point the same way at best
        cosines = (folded * trained).sum(axis=1) / np.linalg.norm(folded, axis=1) / np.linalg.norm(trained, axis=1)
        assert cosines.min() > 0.8
        assert cosines.mean() > 0.93
        return
    np.testing.assert_allclose(folded, trained, rtol=2e-3, atol=2e-4)


def test_confidence_fades_from_all_to_nothing(model):
    history = HISTORIES[0]
    whole, without = model.fold_in([history, history[1:]])
    full = model.fold_in([history], confidence=[dict.fromkeys(history, 1.0)])
    np.testing.assert_allclose(full[0], whole, **CLOSE)
    np.testing.assert_allclose(model.fold_in([history], confidence=[{history[0]: 0.0}])[0], without, **CLOSE)
    half = model.fold_in([history], confidence=[{history[0]: 0.5}])[0]
    assert not np.allclose(half, whole, **CLOSE)
    assert not model.fold_in([history], confidence=[dict.fromkeys(history, 0.0)]).any()


def mean_over_draws(model: Any, *args: Any, **kwargs: Any) -> Any:
    """What is folded in, over seeds where it depends on one."""
    other = copy.copy(model)
    found = []
    for seed in range(200 if isinstance(model, SGDFactorization) and not isinstance(model, sl.SoftmaxMF) else 1):
        vars(other)["seed"] = seed  # settings of a fitted model cannot be set
        found.append(other.fold_in(*args, **kwargs))
    return np.mean(found, axis=0)[0]


def test_what_has_faded_was_never_had(model):
    """Also where much has: it counts neither in λ nor in ω, and may be a negative."""
    history = HISTORIES[0]
    old = [one for one in DATA.items.ids() if one not in history][:15]
    for faded in (old[:1], old):
        left = dict.fromkeys(faded, 1e-6)
        found = mean_over_draws(model, [history + faded], confidence=[left])
        without = mean_over_draws(model, [history])
        if isinstance(model, SGDFactorization) and not isinstance(model, sl.SoftmaxMF):
            assert np.linalg.norm(found - without) < 0.05 * np.linalg.norm(without)
        else:
            np.testing.assert_allclose(found, without, rtol=1e-3, atol=1e-4)


def without_counts(model: Any) -> Any:
    """The same kind of model with weights, in which neither a ridge nor an optimizer counts pairs beside them."""
    more: dict[str, Any] = {"regularization_exponent": 0.0}
    if isinstance(model, sl.RankALS):
        more = {}
    elif isinstance(model, SGDFactorization):
        more = {"regularization": 0.0}
        if isinstance(model, sl.SoftmaxMF):
            more["exclude"] = "positive"  # else the part that has faded is in the partition function
    raw = make(type(model).__name__, weighting="raw", **more).fit(DATA, threads=1)
    if isinstance(model, SGDFactorization):
        vars(raw)["optimizer"] = "sgd"  # that histories are folded in by; the settings of a fitted model cannot be set
    return raw


# One model of each kind of sampled loss; the others' kernels are compiled by themselves, and so are slow.
OTHERS = {"AdaptiveBPR", "HingeMF", "LambdaMF", "SquareMF", "WARP"}


@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=pytest.mark.slow if name in OTHERS else ()) for name in NAMES], indirect=True
)
def test_confidence_is_weight_where_weights_count(model):
    raw, history = without_counts(model), HISTORIES[1]
    weights = {item: 1.0 + k for k, item in enumerate(history)}
    if not isinstance(model, SGDFactorization) or isinstance(model, sl.SoftmaxMF):
        confidence = {item: 1 / (2 + k) for k, item in enumerate(history)}
        product = {item: weights[item] * confidence[item] for item in weights}
        np.testing.assert_allclose(raw.fold_in([weights], confidence=[confidence]), raw.fold_in([product]), **CLOSE)
        return
    if isinstance(model.recipe().objective, Pointwise):
        # A weight is of the positive alone; confidence is of its negatives too. So they push all scores down by less.
        confidences = [{item: 1 / (2 + k) for k, item in enumerate(one)} for one in HISTORIES]
        lists = [{item: 1.0 + k for k, item in enumerate(one)} for one in HISTORIES]
        products = [{item: (1.0 + k) / (2 + k) for k, item in enumerate(one)} for one in HISTORIES]
        faded, lighter = raw.fold_in(lists, confidence=confidences), raw.fold_in(products)
        assert ((faded - lighter) @ raw.item_embeddings_.T).mean() > 0.004
        return
    # Whether an item has faded so far that it may be drawn, the seed decides: where none has, the rows are the same.
    confidence = {item: 1 - 0.5 / (2 + k) for k, item in enumerate(history)}
    product = {item: weights[item] * confidence[item] for item in weights}
    same = 0
    for seed in range(20):
        vars(raw)["seed"] = seed
        expected = raw.fold_in([product])
        same += np.allclose(raw.fold_in([weights], confidence=[confidence]), expected, **CLOSE)
        assert not np.allclose(raw.fold_in([weights]), expected, **CLOSE)
    assert same >= 2


def test_a_row_is_its_own_under_any_weights(model):
    raw = weighted(model)
    small = {one: 0.1 + k / 7 for k, one in enumerate(HISTORIES[0])}
    large = dict.fromkeys(HISTORIES[1], 1e15)
    np.testing.assert_allclose(raw.fold_in([large, small])[1], raw.fold_in([small])[0], rtol=1e-5, atol=1e-6)


def test_weights_that_are_too_large_are_refused(model):
    raw, item = weighted(model), HISTORIES[0][0]
    for weight in (1e3, 1e4, 1e15):
        found = raw.fold_in([HISTORIES[0], {item: weight, HISTORIES[0][1]: 1.0}])
        assert np.isfinite(found).all()
        assert np.isfinite(raw.recommend(history=[{item: weight}], n=3).scores).all()
    try:
        assert np.isfinite(raw.fold_in([[], {item: 3e38}])).all()
    except sl.ShortlistError as error:
        assert re.search("history 1 .*too large.*use smaller weights|weights are too large", str(error))  # noqa: PT017
    for weight in (1e39, 10**400):
        with pytest.raises(sl.DataError, match="expected weights from 0 to"):
            raw.fold_in([{item: weight}])


def test_confidence_goes_with_its_history(model):
    confidence = [{one[0]: 0.3} for one in HISTORIES]
    together = model.fold_in(HISTORIES, confidence=confidence)
    for k in (3, 20):
        alone = model.fold_in([HISTORIES[k]], confidence=[confidence[k]])
        np.testing.assert_allclose(alone[0], together[k], **CLOSE)
    np.testing.assert_array_equal(model.fold_in(HISTORIES, confidence=confidence, threads=1), together)


def test_wrong_confidence_says_so(model):
    history = [HISTORIES[0]]
    item = HISTORIES[0][0]
    stranger = next(one for one in DATA.items.ids() if one not in HISTORIES[0])
    for wrong, message in (
        ([], "0 entries for 1 history;"),
        ({item: 0.5}, "expected one {item: confidence} per history"),
        ([0.5], "a number from 0 to 1"),
        ([{item: 1.5}], "from 0 to 1"),
        ([{item: None}], "from 0 to 1"),
        ([{item: 10**400}], "from 0 to 1"),
        ([{item: float("nan")}], "from 0 to 1"),
        ([{stranger: 0.5}], "not in the history"),
        ([{"no such": 0.5}], "unknown item"),
    ):
        with pytest.raises(sl.ShortlistError, match=message):
            model.fold_in(history, confidence=wrong)
    model.fold_in(history, confidence=[{"no such": 0.5, item: 1.0}], unknown="skip")


@pytest.mark.parametrize("of", [pl.DataFrame, pd.DataFrame])
def test_frames_are_no_histories(model, of):
    frame = of({"user": ["u1", "u2"], "product": HISTORIES[0][:2]})
    for call in (model.fold_in, lambda given: model.recommend(history=given)):
        with pytest.raises(sl.SettingError, match=r"history is a frame \(DataFrame\).*Interactions.from_frame"):
            call(frame)
        with pytest.raises(sl.SettingError, match="history 0 is a frame"):
            call([frame])
    with pytest.raises(sl.SettingError, match="contexts is a frame"):
        model.fold_in_items(frame)
    with pytest.raises(sl.SettingError, match=r"extend|iter_rows\(\) of polars, or frame.itertuples"):
        sl.UserState(model, frame)


def test_an_average_is_of_parts_not_of_items(model):
    for call in (model.fold_in, lambda *_, **more: model.recommend(history=[HISTORIES[0]], **more)):
        with pytest.raises(sl.SettingError, match=r"unknown is 'average'.*'skip'"):
            call([HISTORIES[0]], unknown="average")


def test_unfitted(model):
    fresh = make(type(model).__name__)
    for call in (lambda: fresh.fold_in([[]]), lambda: fresh.fold_in_items([[]]), lambda: sl.UserState(fresh)):
        with pytest.raises(sl.NotFittedError):
            call()


def test_new_items_by_their_contexts(model):
    people = DATA.contexts.ids()[::2]
    if isinstance(model, SGDFactorization):
        with pytest.raises(sl.SettingError, match=r"learns from sampled negatives.*partial_fit"):
            model.fold_in_items([people])
        return
    found = model.fold_in_items([people, [], people[:3]], threads=1)
    assert found.shape == (3, model.item_embeddings_.shape[1])
    assert found.dtype == np.float32
    assert not found[1].any()
    np.testing.assert_array_equal(model.fold_in_items([people, [], people[:3]], threads=3), found)
    np.testing.assert_allclose(model.fold_in_items([people[:3]])[0], found[2], **CLOSE)
    scores = model.context_embeddings_ @ found[0]  # who had it, and who has the same taste, above the others
    assert scores[::2].mean() > scores[1::2].mean()
    with pytest.raises(sl.UnknownIdError, match="unknown context 'nobody'"):
        model.fold_in_items([["nobody"]])
    assert not model.fold_in_items([["nobody"]], unknown="skip").any()
    with pytest.raises(sl.SettingError, match="a list with the contexts of each item"):
        model.fold_in_items("u3")


def test_a_saved_model_folds_in_the_same(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = sl.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.fold_in(HISTORIES), model.fold_in(HISTORIES), **CLOSE)


def test_a_state_is_what_the_history_is_folded_in_to(model):
    state = sl.UserState(model, half_life=2.0, decay_by="events")
    for item in HISTORIES[2]:
        state.add(item)
        told = model.fold_in([state.history], confidence=[state.confidence()])[0]
        np.testing.assert_array_equal(state.embedding, told)
    unfaded = sl.UserState(model, HISTORIES[2])
    assert not np.allclose(state.embedding, unfaded.embedding, **CLOSE)  # under weighting="binary" too
    np.testing.assert_allclose(unfaded.embedding, model.fold_in([HISTORIES[2]])[0], **CLOSE)
    assert unfaded.recommend(n=5).ids == model.recommend(history=[HISTORIES[2]], n=5).ids
