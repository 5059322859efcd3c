"""Many live users: the results are those of one `UserState` per user."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist as sl
from online.test_user_state import ITEMS, MODELS, fitted

CLOSE = {"rtol": 1e-5, "atol": 1e-6}  # a product of matrices may round in another way than that of a row
users = st.sampled_from(["ann", "bob", "cy", "dee"])
happenings = st.lists(
    st.tuples(users, st.sampled_from(ITEMS), st.floats(0.25, 4), st.integers(0, 20)), min_size=1, max_size=30
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)),
    st.lists(happenings, min_size=1, max_size=3),
    st.one_of(st.none(), st.floats(0.5, 30)),
    st.one_of(st.none(), st.integers(1, 6)),
)
def test_as_one_by_one(name, batches, half_life, max_events):
    model = fitted(name)
    states = sl.UserStates(model, half_life=half_life, max_events=max_events)
    alone: dict[str, sl.UserState] = {}
    for batch in batches:
        by_user: dict[str, list] = {}
        for user, item, weight, time in batch:
            by_user.setdefault(user, []).append((item, weight, time))
        states.extend(by_user)
        for user, events in by_user.items():
            alone.setdefault(user, sl.UserState(model, half_life=half_life, max_events=max_events)).extend(events)
        together = states.embeddings()
        assert states.users == list(alone)
        for row, (user, state) in zip(together, alone.items()):
            np.testing.assert_allclose(row, state.embedding, **CLOSE)
            assert states[user].events == state.events
    asked = [*alone, next(iter(alone))]
    lists = states.recommend(asked, n=4)
    assert lists.queries == asked
    for user, ids, scores in zip(asked, lists.ids, lists.scores):
        single = alone[user].recommend(n=4)
        assert ids == single.ids[0]
        np.testing.assert_allclose(scores, single.scores[0], rtol=1e-4, atol=1e-6)
    now = 25
    if half_life is not None:
        for row, state in zip(states.embeddings(now=now), alone.values()):
            np.testing.assert_allclose(row, state.embedding_at(now), **CLOSE)


def test_from_interactions():
    model = fitted("log")
    noon = dt.datetime(2024, 5, 1, 12)
    frame = pl.DataFrame(
        {
            "who": [7, 3, 7, 7],
            "item": ["i1", "i2", "i3", "i1"],
            "w": [1.0, 2.0, 3.0, 4.0],
            "when": [noon + dt.timedelta(hours=h) for h in (2, 0, 1, 3)],
        }
    )
    events = sl.Interactions.from_frame(frame, context="who", item="item", weight="w", time="when")
    states = sl.UserStates(model, events, half_life=dt.timedelta(hours=2))
    alone = sl.UserState(model, half_life=dt.timedelta(hours=2))
    for row in frame.filter(pl.col("who") == 7).select("item", "w", "when").sort("when").iter_rows():
        alone.add(*row)
    assert states[7].events == alone.events
    np.testing.assert_array_equal(states.embeddings([7])[0], alone.embedding)
    lists = states.recommend(n=2).to_polars()
    assert lists.columns == ["who", "item", "rank", "score"]
    assert lists["who"].to_list() == [3, 3, 7, 7]


def test_only_those_that_changed_are_folded_in_again(monkeypatch):
    model = fitted("binary")
    states = sl.UserStates(model, {user: ITEMS[user : user + 3] for user in range(5)})
    before, asked, encode = states.embeddings(), [], type(model).encode

    def spied(self, queries, threads=None):
        asked.append(len(queries))
        return encode(self, queries, threads)

    monkeypatch.setattr(type(model), "encode", spied)
    states.extend({3: ["i0"]})
    after = states.embeddings()
    assert asked == [1]
    assert [np.array_equal(a, b) for a, b in zip(before, after)] == [True, True, True, False, True]


def test_nothing_is_added_if_one_event_is_wrong():
    states = sl.UserStates(fitted("binary"), {"ann": ["i1"]})
    for events, error, message in (
        ({"ann": ["i2"], "bob": ["i3", "nothing"]}, sl.UnknownIdError, "unknown item 'nothing'"),
        ({"ann": ["i2"], "bob": [("i3", -1)]}, sl.SettingError, "weight is -1"),
        ({"ann": ["i2"], "bob": [("i3", 1, 5), "i1"]}, sl.DataError, "1 of 2 events have no time"),
        ({"bob": ["i2"], "ann": [("i3", 1, 5)]}, sl.DataError, "earlier events have none"),
        ({"ann": ["i2"], 1.5: ["i3"]}, sl.DataError, "user 1.5 is not an id"),
    ):
        with pytest.raises(error, match=message):
            states.extend(events)
    assert states.users == ["ann"]
    assert [event.item for event in states["ann"].events] == ["i1"]


def test_filters_an_index_and_a_slate():
    model = fitted("binary")
    states = sl.UserStates(model, {"ann": ["i0", "i2"], "bob": ["i1", "i3"]})
    index = model.index("exact")
    assert states.recommend(n=3, index=index).ids == states.recommend(n=3).ids
    allowed = states.recommend(n=9, allow=[["i4", "i5"], ["i6"]], exclude_seen=False).ids
    assert [sorted(ids) for ids in allowed] == [["i4", "i5"], ["i6"]]
    assert "i4" not in states.recommend(n=9, deny=["i4"]).to_polars()["item"]
    assert len(states.recommend(n=3, slate=sl.slates.MMR(0.5)).ids[1]) == 3


def test_a_collection_of_users():
    states = sl.UserStates(fitted("binary"), {"ann": ["i0"], "bob": ["i1", "i3"]})
    assert ("ann" in states, "x" in states, [] in states, list(states), len(states)) == (
        True, False, False, ["ann", "bob"], 2,
    )  # fmt: skip
    assert repr(states) == "UserStates(2 users, 3 events) of IALS"
    states.drop("ann")
    assert states.users == ["bob"]
    with pytest.raises(sl.UnknownIdError, match="unknown user 'ann'; 1 user known"):
        states.drop("ann")
    other = states.with_model(fitted("log"))
    assert other["bob"].events == states["bob"].events
    assert other.model is fitted("log")
    empty = sl.UserStates(fitted("binary"))
    assert empty.embeddings().shape == (0, 4)


def test_tuples_are_users_too():
    states = sl.UserStates(fitted("binary"), {("ann", 1): ["i0"], ("bob", 2): ["i1", "i3"]})
    assert states.recommend(n=1).to_polars().columns == ["user_1", "user_2", "item", "rank", "score"]


def test_wrong_arguments():
    states = sl.UserStates(fitted("binary"), {"ann": ["i0"]})
    with pytest.raises(sl.SettingError, match="expected a list of users, got the single value 'ann'"):
        states.embeddings("ann")
    with pytest.raises(sl.SettingError, match=r"expected Interactions, or \{user: events\}"):
        states.extend(["i0"])
    with pytest.raises(sl.SettingError, match="expected a list of items"):
        states.extend({"ann": "i0"})
    with pytest.raises(sl.SettingError, match="n is 0"):
        states.recommend(n=0)
    with pytest.raises(sl.SettingError, match="which has no embeddings"):
        sl.UserStates(sl.Popularity())
    with pytest.raises(sl.SettingError, match="half_life is -1"):
        sl.UserStates(fitted("binary"), half_life=-1)


def test_a_user_whose_events_were_all_skipped_stays_the_same():
    states = sl.UserStates(fitted("binary"), {"ann": ["nothing"]}, unknown="skip")
    state = states["ann"]
    assert (len(state), state.skipped) == (0, 1)
    states.extend({"ann": ["nothing", "i1"]})
    assert states["ann"] is state
    assert (len(state), state.skipped) == (1, 2)


def test_nobody():
    states = sl.UserStates(fitted("binary"))
    for lists in (states.recommend(), states.recommend([]), sl.UserStates(fitted("binary"), {"ann": []}).recommend([])):
        assert (len(lists), lists.to_polars().height) == (0, 0)


def test_users_have_one_type():
    states = sl.UserStates(fitted("binary"), {"ann": ["i1"]})
    for user in (7, ("ann", 1)):
        with pytest.raises(sl.DataError, match="is of another type than user 'ann'; expected ids of one type"):
            states.extend({"bob": ["i2"], user: ["i1"]})
    assert states.users == ["ann"]


def test_unknown_items_of_interactions():
    events = sl.Interactions.from_frame({"u": ["a", "a", "b"], "i": ["i1", "new", "i2"]}, context="u", item="i")
    with pytest.raises(sl.UnknownIdError, match=r"unknown item 'new' .*create the states with unknown='skip'"):
        sl.UserStates(fitted("binary"), events)
    states = sl.UserStates(fitted("binary"), events, unknown="skip")
    assert [[event.item for event in states[user].events] for user in "ab"] == [["i1"], ["i2"]]
    assert states["a"].skipped == 1
