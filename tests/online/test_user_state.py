"""Users that move: after any sequence of events the state is what the history is folded in to."""

from __future__ import annotations

import datetime as dt
import functools
import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist as sl
from shortlist.online import Event

ITEMS = [f"i{k}" for k in range(12)]


def data() -> sl.Interactions:
    rng = np.random.default_rng(0)
    pairs = [(u, ITEMS[i]) for u in range(30) for i in rng.permutation(np.arange(u % 2, 12, 2))[: 2 + u % 3]]
    frame = {"user": [one[0] for one in pairs], "item": [one[1] for one in pairs], "w": rng.integers(1, 5, len(pairs))}
    return sl.Interactions.from_frame(frame, context="user", item="item", weight="w")


MODELS: dict[str, Any] = {
    "binary": sl.IALS(dim=4, epochs=3, weighting="binary"),
    "raw": sl.IALS(dim=4, epochs=3, weighting="raw", regularization=0.1),
    "log": sl.IALS(dim=4, epochs=3, weighting="log"),
    "total": sl.IALS(dim=4, epochs=3, weighting="binary", convention="total", unobserved_item_exponent=0.5),
    "label": sl.IALS(dim=4, epochs=3, weighting="log", strength_as="label"),
    "rank": sl.RankALS(dim=4, epochs=3, weighting="binary"),
    "sampled": sl.BPR(dim=4, epochs=3, weighting="binary"),
    "sampled label": sl.SquareMF(dim=4, epochs=3, weighting="log", strength_as="label"),
    "softmax": sl.SoftmaxMF(dim=4, epochs=3, weighting="binary"),
}


@functools.cache
def fitted(name: str) -> Any:
    """Return the fitted model, for tests that do not change it. The first test that asks for it pays for the fit."""
    return MODELS[name].fit(data(), threads=1)


happenings = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"), st.sampled_from(ITEMS), st.floats(0.25, 4), st.one_of(st.integers(0, 20), st.floats(0, 20))
        ),
        st.tuples(st.just("remove"), st.sampled_from(ITEMS), st.just(0.0), st.just(0.0)),
        st.tuples(st.just("ask"), st.just(""), st.just(0.0), st.just(0.0)),
    ),
    max_size=25,
)


def expected(events: list[Event], model: Any, half_life: float | None, decay_by: str) -> tuple[dict, dict]:
    """Written out: weights and what is left of them, item by item."""
    history: dict[str, float] = {}
    faded: dict[str, float] = {}
    latest: dict[str, float] = {}
    for k, (item, weight, time) in enumerate(events):
        age = len(events) - 1 - k if decay_by == "events" else events[-1].time - time
        left = 1.0 if half_life is None else 2 ** (-age / half_life)
        history[item] = history.get(item, 0.0) + weight
        faded[item] = faded.get(item, 0.0) + weight * left
        latest[item] = left  # they are in the order of time
    if model.weighting == "binary" or getattr(model, "strength_as", "weight") == "label":
        return history, latest
    f = {"raw": lambda w: w, "log": lambda w: np.log2(1 + w)}[model.weighting]
    return history, {item: f(faded[item]) / f(history[item]) for item in history}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)),
    happenings,
    st.one_of(st.none(), st.floats(0.5, 30)),
    st.sampled_from(["time", "events"]),
    st.one_of(st.none(), st.integers(1, 6)),
)
def test_any_sequence_of_events(name, told, half_life, decay_by, max_events):
    model = fitted(name)
    decay_by = "time" if half_life is None else decay_by
    state = sl.UserState(model, half_life=half_life, decay_by=decay_by, max_events=max_events)
    kept: list[Event] = []
    for what, item, weight, time in told:
        if what == "add":
            state.add(item, weight, time)
            kept.append(Event(item, weight, time))
            kept.sort(key=lambda one: one.time)  # which keeps the order of equals
            if max_events is not None:
                del kept[:-max_events]
        elif what == "remove":
            if any(one.item == item for one in kept):
                state.remove(item)
                kept = [one for one in kept if one.item != item]
            else:
                with pytest.raises(sl.DataError, match="no event of the item"):
                    state.remove(item)
        else:
            assert state.embedding.ndim == 1  # what is kept must not outlive the next event
    assert state.events == kept
    assert len(state) == len(kept)
    history, left = expected(kept, model, half_life, decay_by)
    assert state.history == pytest.approx(history)
    assert state.confidence() == pytest.approx(left, rel=1e-5)
    found = model.fold_in([history], confidence=[{one: min(1.0, left[one]) for one in left}])[0]
    np.testing.assert_allclose(state.embedding, found, rtol=2e-3, atol=2e-5)
    np.testing.assert_array_equal(state.embedding, model.fold_in([state.history], confidence=[state.confidence()])[0])
    stored = json.loads(json.dumps(state.to_dict()))
    again = sl.UserState.from_dict(model, stored)
    np.testing.assert_array_equal(again.embedding, state.embedding)
    assert again.to_dict() == state.to_dict()


def solved(model: Any, alpha: dict[str, float], left: dict[str, float]) -> Any:
    """Brute force: (α₀G + Σ α·hhᵀ + λ) w = Σ α·h, with λ by what is left of the items."""
    H = model.item_embeddings_.astype(np.float64)
    codes, a = model.items_.encode(list(alpha)), np.array(list(alpha.values()))
    ridge = model.regularization * (sum(left.values()) + model.unobserved_weight * len(H))
    A = model.unobserved_weight * H.T @ H + (H[codes].T * a) @ H[codes] + ridge * np.eye(4)
    return np.linalg.solve(A, H[codes].T @ a)


def test_under_raw_weights_the_decayed_weight_is_the_weight():
    model = fitted("raw")
    state = sl.UserState(model, [("i0", 2.0, 0), ("i1", 3.0, 10), ("i0", 1.0, 20)], half_life=10.0)
    found = solved(model, {"i0": 2 * 0.25 + 1, "i1": 3 * 0.5}, {"i0": 1.5 / 3, "i1": 0.5})
    np.testing.assert_allclose(state.embedding, found, rtol=1e-3, atol=1e-5)


def test_under_binary_weights_decay_reaches_alpha():
    model = fitted("binary")
    state = sl.UserState(model, [("i0", 9.0, 0), ("i1", 1.0, 10), ("i4", 1.0, 30)], half_life=10.0)
    g = {"i0": 1 / 8, "i1": 1 / 4, "i4": 1.0}
    np.testing.assert_allclose(state.embedding, solved(model, g, g), rtol=1e-3, atol=1e-5)


def test_labels_do_not_fade_by_their_size():
    """α does not depend on them: the latest event says what is left, whatever the others weigh."""
    state = sl.UserState(fitted("label"), [("i0", 50.0, 0.0), ("i0", 1.0, 10.0), ("i1", 1.0, 20.0)], half_life=10.0)
    assert state.confidence() == {"i0": 0.5, "i1": 1.0}


def test_what_has_faded_is_an_unobserved_pair():
    for name in ("binary", "total", "rank", "softmax", "label"):
        model = fitted(name)
        old = [("i0", 1.0, 0.0), ("i5", 1.0, 1.0), ("i7", 1.0, 1.0)]
        for half_life in (1.0, 0.8e4):  # nothing at all is left, and 2^-125
            state = sl.UserState(model, [*old, ("i1", 1.0, 1e6)], half_life=half_life)
            np.testing.assert_allclose(state.embedding, model.fold_in([["i1"]])[0], rtol=1e-3, atol=1e-5)
            assert "i0" not in state.recommend(n=12).ids[0]  # it was had all the same


def test_later_it_has_faded_further():
    state = sl.UserState(fitted("binary"), [("i0", 1.0, 0.0), ("i2", 1.0, 5.0)], half_life=5.0)
    assert state.confidence() == {"i0": 0.5, "i2": 1.0}
    assert state.confidence(now=10.0) == {"i0": 0.25, "i2": 0.5}
    now = state.embedding
    later = state.embedding_at(10.0)
    assert np.linalg.norm(later) < np.linalg.norm(now)
    np.testing.assert_array_equal(state.embedding, now)
    answer = state.recommend(n=12, now=10.0, exclude_seen=False)
    best = np.sort(state.model.item_embeddings_ @ later)[::-1]
    np.testing.assert_allclose(answer.scores[0], best, rtol=1e-4, atol=1e-6)
    with pytest.raises(sl.SettingError, match="expected a time ≥ that of the newest event"):
        state.embedding_at(4.0)
    for other in (sl.UserState(state.model, ["i0"]), sl.UserState(state.model, half_life=3, decay_by="events")):
        with pytest.raises(sl.SettingError, match="has no effect; omit now"):
            other.embedding_at(4.0)


def test_times_of_all_kinds():
    day = dt.datetime(2026, 3, 1)
    later = day.replace(tzinfo=dt.timezone(dt.timedelta(hours=1))) + dt.timedelta(days=1, hours=1)
    state = sl.UserState(fitted("binary"), half_life=dt.timedelta(days=1))
    state.add("i0", time=day)
    state.add("i1", time=later)
    assert state.confidence() == {"i0": 0.5, "i1": 1.0}
    state.extend([("i2", 1.0, np.datetime64("2026-03-02T00:00:00"))])
    assert state.confidence() == {"i0": 0.5, "i1": 1.0, "i2": 1.0}
    json.dumps(sl.UserState(fitted("binary"), [("i0", np.float64(2), np.int64(5))]).to_dict())
    for wrong in (
        *("yesterday", float("nan"), True, [3], 10**400, np.array([1, 2]), pd.NaT, np.datetime64("NaT")),
        *(np.datetime64("NaT", "ns"), np.datetime64("20000-01-01"), np.timedelta64(3, "s"), dt.date(2026, 3, 1)),
    ):
        with pytest.raises(sl.DataError, match="expected a finite number or a datetime"):
            state.add("i1", time=wrong)
        with pytest.raises(sl.DataError, match="expected a finite number or a datetime"):
            state.embedding_at(wrong)
    assert len(state) == 3


@pytest.mark.parametrize("unit", ["D", "h", "s", "ms", "us", "ns"])
def test_times_of_numpy_in_any_unit(unit):
    state = sl.UserState(fitted("binary"), half_life=np.timedelta64(30, "D").astype(f"timedelta64[{unit}]"))
    assert state.half_life == 30 * 24 * 3600
    times = np.array(["2026-03-01", "2026-03-31"], f"datetime64[{unit}]")
    state.extend(zip(["i0", "i1"], [1.0, 1.0], times))
    state.add("i2", time=dt.datetime(2026, 3, 31))
    assert state.confidence() == {"i0": 0.5, "i1": 1.0, "i2": 1.0}


def test_rows_of_frames():
    table = {"item": ["i0", "i1"], "w": [1.0, 2.0], "t": [dt.datetime(2026, 3, 1), dt.datetime(2026, 3, 31)]}
    for rows in (pl.DataFrame(table).iter_rows(), pd.DataFrame(table).itertuples(index=False)):
        state = sl.UserState(fitted("binary"), rows, half_life=dt.timedelta(days=30))
        assert state.confidence() == {"i0": 0.5, "i1": 1.0}
        assert state.history == {"i0": 1.0, "i1": 2.0}


def test_all_events_have_times_or_none():
    model = fitted("binary")
    with pytest.raises(sl.DataError, match=r"has no time, but half_life is 3 in time; pass time=, or decay_by"):
        sl.UserState(model, ["i0"], half_life=3.0)
    timed, plain = sl.UserState(model, [("i0", 1.0, 3.0)]), sl.UserState(model, ["i0"])
    for call in (
        lambda: timed.add("i1"),
        lambda: plain.add("i1", time=3.0),
        lambda: timed.extend(["i1", ("i2", 1, 4)]),
    ):
        with pytest.raises(sl.DataError, match="expected all or none"):
            call()
    assert len(timed) == len(plain) == 1


def test_several_events_or_none():
    state = sl.UserState(fitted("binary"), {"i0": 2.0, "i1": 1.0})
    assert state.events == [Event("i0", 2.0), Event("i1", 1.0)]
    before = state.embedding
    for wrong, message in (
        (["i2", "no such"], "unknown item 'no such'.*unknown='skip'"),
        ([("i2", -1.0)], "weight is -1.0"),
        ([("i2", float("inf"))], "weight is inf"),
        ([("i2", 1e300)], r"weight is 1e\+300; expected a number ≤ 3.4e\+38"),
        ([("i2", np.timedelta64(3, "s"))], "weight is"),
        ([("i2", 1.0, 2.0, 3.0)], "an event as"),
        ("i2", "expected a list"),
        (7, "expected a list"),
    ):
        with pytest.raises(sl.ShortlistError, match=message):
            state.extend(wrong)
    assert len(state) == 2
    np.testing.assert_array_equal(state.embedding, before)
    state.extend(pl.Series(["i3"]))
    assert len(state) == 3


def test_unknown_items_are_skipped_and_counted():
    state = sl.UserState(fitted("binary"), ["i0", "no such"], unknown="skip")
    state.add("nor this")
    assert (len(state), state.skipped) == (1, 2)


def test_nobody_has_the_popular_items():
    model = fitted("binary")
    state = model_state = sl.UserState(model, half_life=2.0)
    assert not state.embedding.any()
    assert state.history == state.confidence() == {}
    assert model_state.recommend(n=12).ids == model.recommend(history=[[]], n=12).ids


def test_recommend_takes_the_filters():
    model = fitted("binary")
    state = sl.UserState(model, ["i0", "i3"])
    whole = model.recommend(history=[["i0", "i3"]], n=12)
    assert state.recommend(n=12).ids == whole.ids
    np.testing.assert_allclose(state.recommend(n=12).scores[0], whole.scores[0], rtol=1e-6)
    assert set(state.recommend(n=12, exclude_seen=False).ids[0]) == set(ITEMS)
    assert state.recommend(n=2, deny=whole.ids[0][:1]).ids[0] == whole.ids[0][1:3]
    assert set(state.recommend(n=9, allow=ITEMS[:5]).ids[0]) == {"i1", "i2", "i4"}
    with pytest.raises(sl.SettingError, match="n is 0"):
        state.recommend(n=0)


def test_the_embedding_is_kept_and_cannot_be_written_to():
    state = sl.UserState(fitted("binary"), ["i0"])
    assert state.embedding is state.embedding
    with pytest.raises(ValueError, match="read-only"):
        state.embedding[0] = 3


def test_a_model_that_is_fitted_again():
    model = sl.IALS(dim=4, epochs=2, weighting="binary").fit(data())
    state = sl.UserState(model, ["i0", "i5"])
    assert state.embedding.any()
    more = sl.Interactions.from_frame({"u": [99, 99], "i": ["a new one", "i5"]}, context="u", item="i")
    model.partial_fit(more)
    np.testing.assert_allclose(state.embedding, model.fold_in([["i0", "i5"]])[0], rtol=1e-5)
    state.add("a new one")
    assert state.events[-1].item == "a new one"
    fewer = sl.Interactions.from_frame({"u": [1, 2], "i": ["i9", "i5"]}, context="u", item="i")
    model.fit(fewer)
    advice = r"unknown item 'i0'.*call remove\(item\), or with_model\(model, unknown='skip'\)"
    for call in (lambda: state.embedding, lambda: state.add("i5"), lambda: state.history):
        with pytest.raises(sl.UnknownIdError, match=advice):
            call()
    moved = state.with_model(model, unknown="skip")
    np.testing.assert_allclose(moved.embedding, model.fold_in([["i5"]])[0], rtol=1e-5)
    assert (len(moved), moved.skipped, moved.unknown, state.unknown) == (1, 2, "skip", "raise")
    state.remove("i0")
    state.remove("a new one")
    np.testing.assert_array_equal(state.embedding, moved.embedding)
    with pytest.raises(sl.DataError, match="no event of the item 'i0'"):
        state.remove("i0")


def test_under_another_model():
    state = sl.UserState(fitted("binary"), [("i0", 1.0, 3.0), ("i1", 2.0, 4.0)], half_life=2.0, max_events=7)
    moved = state.with_model(fitted("raw"))
    assert moved.to_dict() == state.to_dict()
    left = {"i0": 2**-0.5, "i1": 1.0}
    found = solved(fitted("raw"), {"i0": 2**-0.5, "i1": 2.0}, left)
    np.testing.assert_allclose(moved.embedding, found, rtol=1e-3, atol=1e-5)


def test_settings_stay_as_they_are():
    """What is kept would not know of a change."""
    state = sl.UserState(fitted("binary"), ["i0"], half_life=3, decay_by="events")
    for name in ("half_life", "decay_by", "max_events", "unknown"):
        with pytest.raises(AttributeError):
            setattr(state, name, None)


def test_weights_that_add_up_to_more_than_fits():
    state = sl.UserState(fitted("binary"), {"i0": 3e38})
    state.add("i0", 3e38)
    assert state.embedding.any()
    np.testing.assert_array_equal(state.embedding, fitted("binary").fold_in([state.history])[0])


def test_memory_is_looked_at_where_there_is_an_index():
    model = fitted("binary")
    state, index = sl.UserState(model, ["i0"]), model.index("exact", n=5)
    assert state.recommend(n=3, index=index, memory="1MB").ids == state.recommend(n=3).ids
    with pytest.raises(sl.SettingError, match="memory is 'junk'"):
        state.recommend(n=3, index=index, memory="junk")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"half_life": 0}, "half_life is 0"),
        ({"half_life": "a day"}, "half_life is 'a day'"),
        ({"half_life": np.timedelta64("NaT")}, "half_life is .*NaT"),
        ({"half_life": np.timedelta64(3, "D"), "decay_by": "events"}, "expected a number of events"),
        ({"max_events": np.timedelta64(3, "D")}, "max_events is"),
        ({"half_life": dt.timedelta(days=1), "decay_by": "events"}, "expected a number of events"),
        ({"decay_by": "moons"}, "decay_by is 'moons'"),
        ({"max_events": 0}, "max_events is 0"),
        ({"unknown": "mark"}, "unknown is 'mark'"),
    ],
)
def test_wrong_settings(given, message):
    with pytest.raises(sl.SettingError, match=message):
        sl.UserState(fitted("binary"), **given)


def test_models_without_embeddings():
    for model in (sl.EASE(weighting="binary").fit(data()), None):
        with pytest.raises(sl.SettingError, match="a fitted recommender with embeddings"):
            sl.UserState(model)


@pytest.mark.parametrize(
    "change", [lambda one: one.pop("events"), lambda one: one.update(x=1), lambda one: one.update(events=[["i0"]])]
)
def test_what_is_stored_is_checked(change):
    stored = sl.UserState(fitted("binary"), ["i0"]).to_dict()
    change(stored)
    with pytest.raises(sl.DataError, match="expected"):
        sl.UserState.from_dict(fitted("binary"), stored)
    with pytest.raises(sl.DataError, match="expected the result of to_dict"):
        sl.UserState.from_dict(fitted("binary"), None)


def test_repr():
    state = sl.UserState(fitted("binary"), ["i0", "i1", "i0"], half_life=30, decay_by="events", max_events=1000)
    assert repr(state) == "UserState(3 events of 2 items, half-life 30 events, at most 1,000) of IALS"


def test_how_events_fade_is_told_in_plain_words():
    model = fitted("binary")
    for how, words in [
        ({"half_life": dt.timedelta(days=30)}, "half-life 30 days"),
        ({"half_life": np.timedelta64(90, "m")}, "half-life 1.5 hours"),
        ({"half_life": 2_592_000}, "half-life 2,592,000 in time"),
        ({"half_life": 1, "decay_by": "events"}, "half-life 1 event"),
    ]:
        state = sl.UserState(model, **how)
        assert repr(state) == f"UserState(0 events of 0 items, {words}) of IALS"
        assert repr(state.with_model(model)) == repr(state)
    with pytest.raises(sl.DataError, match="1 of 1 event has no time, but half_life is 30 days; pass time="):
        sl.UserState(model, ["i0"], half_life=dt.timedelta(days=30))
    assert repr(sl.UserState(model, ["i0"])) == "UserState(1 event of 1 item) of IALS"
    with pytest.raises(sl.SettingError, match="has no effect without half_life"):
        sl.UserState(model, decay_by="events")
    old = {**sl.UserState(model).to_dict(), "decay_by": "events"}  # as it could be stored before
    assert sl.UserState.from_dict(model, old).half_life is None


def test_a_model_without_embeddings_is_named_whole():
    model = sl.ItemKNN(weighting="binary").fit(data())
    with pytest.raises(sl.SettingError) as told:
        sl.UserState(model)
    assert str(told.value) == (
        "model is of type ItemKNN, which has no embeddings; expected a fitted recommender with embeddings, such as "
        "IALS or BPR. For ItemKNN, call recommend(history=[[…]]) instead"
    )
    assert model.recommend(history=[["i0"]], n=1).ids
