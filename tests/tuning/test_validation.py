"""What settings are judged by."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist as sl
from recommenders.factorizations import events
from shortlist.tuning.validation import sample_contexts, validation_split

SPLITS = {
    "time": sl.splits.by_time(events(60, 24), test=0.2),
    "kept": sl.splits.by_time(events(60, 24), test=0.2, repeats="keep"),
    "contexts": sl.splits.held_out_contexts(events(60, 24), 20, fold_in=0.6),
}


@settings(max_examples=30, deadline=None)
@given(kind=st.sampled_from(list(SPLITS)), n=st.integers(1, 100), seed=st.integers(0, 5))
def test_a_sample_asks_the_same_of_fewer(kind, n, seed):
    split = SPLITS[kind]
    part = sample_contexts(split, n, seed)
    assert part.truth.n_contexts == part.history.n_contexts == min(n, split.truth.n_contexts)
    assert part.train is split.train
    assert (part.repeats, part.fold_in) == (split.repeats, split.fold_in)
    for context in part.truth.contexts.ids():
        assert part.truth.history(context) == split.truth.history(context)
        assert part.history.history(context) == split.history.history(context)
    assert (part is split) == (n >= split.truth.n_contexts)


@pytest.mark.parametrize("kind", SPLITS)
def test_figures_of_a_sample_are_those_of_its_contexts(kind):
    split = SPLITS[kind]
    model = sl.EASE().fit(split.train)
    part = sample_contexts(split, 9, 3)
    every, few = (sl.evaluate(model, one, "ndcg@5") for one in (split, part))
    place = split.truth.contexts.encode(part.truth.contexts.ids())
    np.testing.assert_array_equal(few.of("ndcg@5"), every.of("ndcg@5")[place])


def test_a_sample_is_drawn_by_its_seed():
    split = SPLITS["time"]
    drawn = [sample_contexts(split, 10, seed).truth.contexts.ids() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("kind", SPLITS)
def test_all_events_of_a_split(kind):
    source = events(60, 24)
    split = SPLITS[kind]
    again = split.events()
    pairs = {tuple(row) for row in source.to_polars().select(pl.nth(0), pl.nth(1)).iter_rows()}
    found = {tuple(row) for row in again.to_polars().select(pl.nth(0), pl.nth(1)).iter_rows()}
    assert found <= pairs
    lost = {name: count for name, count in split.dropped.items() if count}
    if not lost:
        assert found == pairs
    parts = [split.train, split.truth, *([split.history] if split.fold_in else [])]
    assert len(again) == sum(map(len, parts))
    assert again.columns == split.train.columns
    assert again.times is not None
    assert again.times.dtype == split.train.times.dtype
    sl.EASE().fit(again)


def test_all_events_of_a_split_with_weights():
    frame = {"u": [1, 1, 2, 2, 2], "i": ["a", "b", "a", "b", "a"], "w": [2.0, 3.0, 4.0, 5.0, 6.0]}
    train = sl.Interactions.from_frame(frame, context="u", item="i", weight="w")
    truth = sl.Interactions.from_frame({"u": [2], "i": ["b"]}, context="u", item="i")
    again = sl.splits.given(train, truth, repeats="keep").events()
    assert again.by_context.values.tolist() == [2.0, 3.0, 10.0, 6.0]


def test_events_are_split_by_time_where_they_have_times():
    timed = events(60, 24)
    assert validation_split(timed, 0).protocol.startswith("time")
    plain = sl.Interactions.from_frame(
        timed.to_polars().select(pl.nth(0), pl.nth(1)), context=timed.columns.context, item=timed.columns.item
    )
    assert validation_split(plain, 0).protocol.startswith("chance")
