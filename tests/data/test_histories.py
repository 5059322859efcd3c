"""Histories: order, repeats, times and weights survive what is done to them."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortlist as sl
from shortlist.data.histories import Histories
from shortlist.data.sparse_rows import COUNT, LATEST, SUM, SparseRows

N_ITEMS = 6
event = st.tuples(st.integers(0, N_ITEMS - 1), st.integers(0, 9), st.integers(1, 4))
rows = st.lists(st.lists(event, max_size=6), max_size=5)


def histories(lists: list, merge: int = SUM) -> Histories:
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in lists])]).astype(np.int64)
    items, times, weights = (np.array([e[k] for row in lists for e in row]) for k in range(3))
    return Histories(indptr, items.astype(np.int32), times.astype(float), weights.astype(np.float32), N_ITEMS, merge)


def listed(made: Histories) -> list:
    assert made.times is not None
    assert made.weights is not None
    events = list(zip(made.items.tolist(), made.times.tolist(), made.weights.tolist()))
    return [events[a:b] for a, b in zip(made.indptr[:-1], made.indptr[1:])]


@given(rows, st.integers(1, 7))
def test_take_last_and_recode(lists, n):
    made = histories(lists)
    assert listed(made) == lists
    assert (made.n_rows, len(made), made.lengths.tolist()) == (len(lists), sum(map(len, lists)), [*map(len, lists)])
    which = np.arange(len(lists))[::-1]
    assert listed(made.take(which)) == lists[::-1]
    assert listed(made.last(n)) == [row[-n:] for row in lists]
    assert listed(made.with_empty_row()) == [*lists, []]
    codes = np.array([3, -1, 0, 4, -1, 1], np.int32)
    recoded = made.recode(codes, 5)
    assert listed(recoded) == [[(codes[i], t, w) for i, t, w in row if codes[i] >= 0] for row in lists]
    assert recoded.n_items == 5


@given(rows, st.sampled_from([SUM, COUNT, LATEST]))
def test_sets_merge_repeats(lists, merge):
    sets = histories(lists, merge).sets()
    combine = {SUM: sum, COUNT: len, LATEST: lambda weights: weights[-1]}[merge]
    for r, row in enumerate(lists):
        weights: dict[int, list] = {}
        for item, _, weight in row:
            weights.setdefault(item, []).append(weight)
        assert sets.row(r).tolist() == sorted(weights)
        values = np.ones(len(sets)) if sets.values is None else sets.values
        got = values[sets.indptr[r] : sets.indptr[r + 1]].tolist()
        assert got == [combine(weights[item]) for item in sorted(weights)]


@given(rows)
def test_sets_are_kept_as_they_are(lists):
    sets = SparseRows.from_lists([np.array([e[0] for e in row], np.int32) for row in lists], N_ITEMS)
    made = Histories.of_sets(sets)
    assert made.sets() is sets
    assert made.items is sets.indices
    which = np.arange(len(lists))[::-1]
    taken, longer = made.take(which), made.with_empty_row()
    assert [taken.sets().row(r).tolist() for r in range(len(lists))] == [sets.row(r).tolist() for r in which]
    assert longer.sets().lengths.tolist() == [*sets.lengths, 0]


def test_the_sets_of_events_are_those_of_by_context():
    rng = np.random.default_rng(0)
    frame = {"u": rng.integers(0, 9, 200), "i": rng.integers(0, 7, 200), "w": rng.integers(1, 5, 200) * 1.0}
    frame["t"] = rng.integers(0, 50, 200)
    for aggregate in ("sum", "count", "latest"):
        events = sl.Interactions.from_frame(
            pl.DataFrame(frame), context="u", item="i", weight="w", time="t", aggregate=aggregate
        )
        sets, expected = events.histories.sets(), events.by_context
        np.testing.assert_array_equal(sets.indptr, expected.indptr)
        np.testing.assert_array_equal(sets.indices, expected.indices)
        np.testing.assert_array_equal(sets.values, expected.values)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_dates_become_seconds(unit):
    start = dt.datetime(2024, 5, 1)
    when = pl.Series([start + dt.timedelta(minutes=m) for m in (2, 0, 1)]).cast(pl.Datetime(unit))
    events = sl.Interactions.from_frame(
        pl.DataFrame({"u": 1, "i": [5, 6, 7], "t": when}), context="u", item="i", time="t"
    )
    times = events.histories.times
    assert (times - times[0]).tolist() == [0, 60, 120]
    assert times[0] == start.replace(tzinfo=dt.UTC).timestamp()
    days = sl.Interactions.from_frame(
        pl.DataFrame({"u": 1, "i": [5, 6], "t": [dt.date(1970, 1, 3), dt.date(1970, 1, 2)]}),
        context="u",
        item="i",
        time="t",
    )
    assert days.histories.times.tolist() == [86_400, 2 * 86_400]


def test_a_negative_number_of_events():
    with pytest.raises(sl.SettingError, match="n is -1"):
        Histories.empty(2, 3).last(-1)
