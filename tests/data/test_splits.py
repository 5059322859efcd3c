"""The laws of splits, by brute force over the events as a user has them."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from shortlist.data import splits
from shortlist.data.interactions import Interactions
from shortlist.errors import DataError, SettingError, ShortlistWarning

ROWS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(0, 7), st.integers(1, 9), st.integers(0, 12)),
    min_size=2,
    max_size=70,
)
SCHEMA = {"u": pl.String, "i": pl.Int64, "w": pl.Float32, "t": pl.Int64}
REPEATS = st.sampled_from(["drop", "keep"])
DENSE = st.lists(  # many pairs of every context
    st.tuples(st.sampled_from("abcd"), st.integers(0, 5), st.just(1), st.integers(0, 12)), min_size=40, max_size=70
)
MANY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


def take(rows, *, context="u", weight="w", time="t"):
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row").with_columns(day=pl.col("i") % 2)
    return Interactions.from_frame(frame, context=context, item="i", weight=weight, time=time)


def rows_of(events):
    return [tuple(row) for row in events.to_polars().rows()]


def pairs_of(events):
    return {row[:2] for row in rows_of(events)}


def split_or_not(make):
    """A split that leaves nothing says so; that is no example of the laws."""
    try:
        return make()
    except DataError as error:
        if not any(word in str(error) for word in ("set is empty", "too few", "no context", "no held-out")):
            raise
        return assume(False)


def n_dropped_events(split):
    return sum(
        count
        for what, count in split.dropped.items()
        if what.startswith(("events", "held-out events", "test events", "history events", "test pairs"))
    )


def check(events, split):
    """What holds for every split."""
    everything = Counter(rows_of(events))
    train, history, truth = (Counter(rows_of(part)) for part in (split.train, split.history, split.truth))
    assert not train - everything
    assert not truth - everything
    assert not (train + truth) - everything
    assert len(events) == len(split.train) + len(split.truth) + n_dropped_events(split) + (
        len(split.history) if split.fold_in else 0
    )
    assert all(count >= 0 for count in split.dropped.values())
    # one question per pair, of contexts with a history, about items that were learnt
    assert len(pairs_of(split.truth)) == len(split.truth)
    assert {u for u, _ in pairs_of(split.truth)} == set(split.truth.contexts.ids())
    assert {u for u, _ in pairs_of(split.history)} == set(split.truth.contexts.ids())
    assert split.truth.contexts == split.history.contexts
    assert split.truth.items is split.train.items
    assert split.history.items is split.train.items
    assert {i for _, i in pairs_of(split.train)} == set(split.train.items.ids())
    assert {u for u, _ in pairs_of(split.train)} == set(split.train.contexts.ids())
    if split.repeats == "drop":
        assert split.exclude_seen
        assert not pairs_of(split.truth) & pairs_of(split.history)
    else:
        assert not split.exclude_seen
    asked = set(split.truth.contexts.ids())
    if split.fold_in:
        assert not asked & set(split.train.contexts.ids())
        assert not history - everything
        assert not (train + truth + history) - everything
    else:
        assert history == Counter({row: n for row, n in train.items() if row[0] in asked})
    assert repr(split).startswith("Split by ")


def check_weak(split, before, after, repeats):
    """Train, truth and counts from the two halves."""
    assert Counter(rows_of(split.train)) == Counter(before)
    seen, contexts, items = {r[:2] for r in before}, {r[0] for r in before}, {r[1] for r in before}
    known = [row for row in after if row[0] in contexts]
    warm = [row for row in known if row[1] in items]
    newest = {}
    for row in sorted(warm, key=lambda row: row[3]):
        newest[row[:2]] = row
    truth = {pair: row for pair, row in newest.items() if repeats == "keep" or pair not in seen}
    assert {row[:2]: row for row in rows_of(split.truth)} == truth
    dropped = split.dropped
    assert dropped["test events of unknown contexts"] == len(after) - len(known)
    assert dropped["unknown test contexts"] == len({row[0] for row in after} - contexts)
    assert dropped["test events of unknown items"] == len(known) - len(warm)
    assert dropped["unknown test items"] == len({row[1] for row in after} - items)
    assert dropped["test events of repeated pairs"] == len(warm) - len(newest)
    assert dropped.get("test pairs already in training", 0) == len(newest) - len(truth)


# --- by time ----------------------------------------------------------------------------------------------------------


@MANY
@given(ROWS, st.floats(0.05, 0.95) | st.integers(1, 12), REPEATS)
def test_by_time(rows, test, repeats):
    events = take(rows)
    split = split_or_not(lambda: splits.by_time(events, test, repeats=repeats))
    check(events, split)
    if isinstance(test, float):
        times = sorted(row[3] for row in rows)
        cut = times[min(len(rows) - 1, int(np.ceil(len(rows) * (1 - test) - 1e-9)))]
        if cut == times[0] < times[-1]:  # something must be left to train on
            cut = min(t for t in times if t > cut)
        else:
            assert sum(t >= cut for t in times) > test * len(rows) - 1
            assert sum(t > cut for t in times) <= test * len(rows) + 1e-6
    else:
        cut = test
    assert f"test from {cut}" in split.protocol
    check_weak(split, [r for r in rows if r[3] < cut], [r for r in rows if r[3] >= cut], repeats)


@MANY
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.just(1)), min_size=4, max_size=40),
    st.randoms(),
    REPEATS,
)
def test_the_order_of_rows_does_not_change_a_time_split(rows, random, repeats):
    rows = [(*row, t) for t, row in enumerate(rows)]
    a, b = (take(r) for r in (rows, random.sample(rows, len(rows))))
    one = split_or_not(lambda: splits.by_time(a, 0.3, repeats=repeats))
    other = splits.by_time(b, 0.3, repeats=repeats)
    for part in ("train", "history", "truth"):
        assert sorted(rows_of(getattr(one, part))) == sorted(rows_of(getattr(other, part)))
        assert getattr(one, part).contexts == getattr(other, part).contexts
        assert getattr(one, part).items == getattr(other, part).items
    assert one.dropped == other.dropped


DAYS = [dt.datetime(2020, 1, day, 12) for day in range(1, 11)]
ISO = "2020-01-08T12:00:00"


@pytest.mark.parametrize(
    ("column", "tests"),
    [
        (
            pl.Series([d.date() for d in DAYS]),
            ["2020-01-08", dt.date(2020, 1, 8), dt.datetime(2020, 1, 8), "2020-01-07 00:00:01", "3d", "71h"],
        ),
        *(
            (
                pl.Series(DAYS, dtype=pl.Datetime(unit)),
                [
                    *(ISO, ISO.replace("T", " "), dt.datetime(2020, 1, 8, 12), "2020-01-08", dt.date(2020, 1, 8)),
                    *(dt.timedelta(days=3), "3d", " 72 h", "0.3w", np.timedelta64(3, "D"), np.timedelta64(50, "h")),
                    *(np.datetime64("2020-01-08"), np.datetime64("2020-01-08T12", "ns")),
                ],
            )
            for unit in ("ms", "us", "ns")
        ),
        (pl.Series(DAYS, dtype=pl.Datetime("ms")), ["2020-01-07 12:00:00.0001", "4320min", "4320m"]),
        (
            pl.Series(DAYS).dt.replace_time_zone("UTC"),
            [ISO, ISO + "Z", "2020-01-08T14:00+02:00", dt.datetime(2020, 1, 8, 12, tzinfo=dt.UTC), dt.date(2020, 1, 8)],
        ),
        (
            pl.Series(DAYS).dt.replace_time_zone("Asia/Tokyo"),
            [ISO, "2020-01-08T03:00Z", dt.datetime(2020, 1, 8, 3, tzinfo=dt.UTC)],
        ),
        (pl.Series(range(10)), [7, 7.0, 6.5, np.int64(7), np.float64(7), np.int8(7)]),
        (pl.Series(range(10), dtype=pl.UInt8), [7, 6.5]),
        (pl.Series(range(10), dtype=pl.Float32), [7, 6.5, 7.0]),
        (pl.Series(range(-7, 3)), [0, -0.5]),
        (pl.Series([str(d) for d in DAYS]), [ISO]),
        (pl.Series([str(d.date()) for d in DAYS]), ["2020-01-08"]),
        (pl.Series([d.isoformat() + "Z" for d in DAYS]), [ISO, ISO + "+00:00"]),
        (pl.Series(range(10)), [0.3, 0.39, np.float64(0.3)]),
    ],
    ids=range(15),
)
def test_any_time_and_any_moment(column, tests):
    frame = pl.DataFrame({"u": [1] * 10, "i": [0, 1, 2, 3, 4, 5, 6, 0, 1, 2], "t": column})
    events = Interactions.from_frame(frame, context="u", item="i", time="t")
    for test in tests:
        split = splits.by_time(events, test, repeats="keep")
        assert len(split.train) == 7, test
        assert len(split.truth) == 3, test


@pytest.mark.parametrize("test", [0, 0.0, -1, -0.5, True, False])
def test_neither_a_share_nor_a_moment(test):
    with pytest.raises(SettingError, match="expected a fraction between 0 and 1, or the time"):
        splits.by_time(take([("a", 1, 1, 1), ("a", 2, 1, 2)]), test)


@pytest.mark.parametrize("test", [7, 7.0, np.int64(7), 0, -1, 2**70, float("nan"), float("inf"), 1578484800000])
@pytest.mark.parametrize("column", [DAYS, [day.date() for day in DAYS]], ids=["datetimes", "dates"])
def test_a_plain_number_is_no_moment_among_dates(column, test):
    events = Interactions.from_frame({"u": range(10), "i": range(10), "t": column}, context="u", item="i", time="t")
    with pytest.raises(SettingError, match=r"expected a duration such as '7d', .* a plain number is not possible"):
        splits.by_time(events, test)


@pytest.mark.parametrize(
    "test",
    [
        *(None, "soon", "7 months", "3M", b"7d", [1], {}, np.array([1, 2]), dt.time(3), np.datetime64("NaT"), pd.NaT),
        *(np.timedelta64("NaT"), np.timedelta64(1, "M"), "2018-11-04T00:00:00+99:00", "9" * 5000 + "d"),
    ],
    ids=lambda test: f"{test!r:.20}",
)
def test_neither_a_moment_nor_a_length(test):
    events = Interactions.from_frame({"u": range(10), "i": range(10), "t": DAYS}, context="u", item="i", time="t")
    with pytest.raises(SettingError, match="is not a valid time; expected a date"):
        splits.by_time(events, test)


def test_lengths_that_do_not_fit():
    events = Interactions.from_frame(
        {"u": [1] * 10, "i": range(10), "t": [day.date() for day in DAYS]}, context="u", item="i", time="t"
    ).extend(items=[10])
    with pytest.raises(DataError, match="the training set is empty: the cut is at 2020-01-01, "):
        splits.by_time(events, "52w")
    for length in ("0d", dt.timedelta(0), dt.timedelta(days=-7)):
        with pytest.raises(SettingError, match="expected a length of time > 0, such as '7d'"):
            splits.by_time(events, length)
    numbers = take([("a", 1, 1, 1), ("a", 2, 1, 2)])
    with pytest.raises(SettingError, match="test='7d'; expected a number"):
        splits.by_time(numbers, "7d")


@pytest.mark.parametrize("who", ["by_time", "leave_last_out", "at_random", "held_out_contexts", "k_fold_contexts"])
@pytest.mark.parametrize(
    "events", [None, "events.csv", pd.DataFrame({"u": [1]}), 7], ids=["none", "text", "frame", "number"]
)
def test_events_are_interactions(who, events):
    with pytest.raises(DataError, match=f"{who} expects Interactions, got {type(events).__name__}; create"):
        getattr(splits, who)(events)
    with pytest.raises(DataError, match="given expects Interactions as truth, got"):
        splits.given(take([("a", 1, 1, 1)]), events)


def test_moments_that_do_not_fit():
    numbers = take([("a", 1, 1, 1), ("a", 2, 1, 2)])
    with pytest.raises(SettingError, match=r"test='2020-01-01'; expected a number .* holds plain numbers"):
        splits.by_time(numbers, "2020-01-01")
    with pytest.raises(DataError, match="the test set is empty: the cut is at 5, the events are from 1 to 2"):
        splits.by_time(numbers, 5)
    with pytest.raises(DataError, match="the training set is empty: the cut is at 1, the events are from 1 to 2"):
        splits.by_time(numbers, 1)
    days = Interactions.from_frame({"u": [1, 1], "i": [1, 2], "t": DAYS[:2]}, context="u", item="i", time="t")
    with pytest.raises(SettingError, match="test='soon' is not a valid time; expected a date such as"):
        splits.by_time(days, "soon")
    with pytest.raises(SettingError, match="has a time zone, but the time column has none"):
        splits.by_time(days, "2020-01-02T00:00:00Z")
    with pytest.raises(DataError, match="the cut is at 2021-01-01 00:00:00, the events are from 2020-01-01 12:00:00"):
        splits.by_time(days, "2021-01-01")
    with pytest.raises(DataError, match="by_time needs times; pass time="):
        splits.by_time(take([("a", 1, 1, 1)], time=None))
    with pytest.raises(SettingError, match="repeats='maybe'; expected 'drop' or 'keep'"):
        splits.by_time(numbers, 2, repeats="maybe")


def test_nothing_to_ask_for_is_an_error_with_its_reasons():
    events = take([("a", 1, 1, 1), ("b", 2, 1, 2), ("a", 1, 1, 5), ("c", 1, 1, 6), ("a", 9, 1, 7)])
    with pytest.raises(
        DataError,
        match=r"is empty: .* dropped \(split by time, .*: 1 test events? of unknown contexts?, .*\); hold out more, or",
    ):
        splits.by_time(events, 5)


def test_contexts_of_several_columns():
    rows = [("a", i, 1, t) for t, i in enumerate([0, 1, 2, 3, 0, 2, 1, 4])]
    events = take(rows, context=["u", "day"])
    split = splits.by_time(events, 6, repeats="keep")
    assert split.truth.contexts.ids() == [("a", 1)]
    assert split.truth.history(("a", 1)) == [1]
    assert split.history.history(("a", 1)) == [1, 3]
    assert split.dropped["unknown test items"] == 1


# --- leave last out, at random ----------------------------------------------------------------------------------------


@MANY
@given(ROWS, st.integers(1, 3), REPEATS)
def test_leave_last_out(rows, n, repeats):
    events = take(rows)
    with pytest.warns(ShortlistWarning, match="newer than test events; use splits.by_time"):
        split = split_or_not(lambda: splits.leave_last_out(events, n, repeats=repeats))
    check(events, split)
    by_context = defaultdict(list)
    for row in sorted(rows, key=lambda row: row[3]):
        by_context[row[0]].append(row)
    before, after = [], []
    for own in by_context.values():
        late = n if len(own) > n else 0
        before += own[: len(own) - late]
        after += own[len(own) - late :]
    check_weak(split, before, after, repeats)
    assert split.dropped["contexts with too few events"] == sum(len(own) <= n for own in by_context.values())


def test_leave_last_out_needs_events():
    with (
        pytest.warns(ShortlistWarning),
        pytest.raises(DataError, match="no context has more than 1,180,591,620,717,411,303,424 events"),
    ):
        splits.leave_last_out(take([("a", 1, 1, 1), ("a", 2, 1, 2)]), n=2**70)
    with pytest.warns(ShortlistWarning), pytest.raises(DataError, match="no context has more than 1 event,"):
        splits.leave_last_out(take([("a", 1, 1, 1), ("b", 2, 1, 2)]))
    with pytest.raises(SettingError, match="n=0; expected an integer ≥ 1"):
        splits.leave_last_out(take([("a", 1, 1, 1)]), 0)
    with pytest.raises(DataError, match="leave_last_out needs times"):
        splits.leave_last_out(take([("a", 1, 1, 1)], time=None))


@MANY
@given(ROWS, st.floats(0.05, 0.95), st.integers(0, 5), REPEATS, st.booleans())
def test_at_random(rows, share, seed, repeats, timed):
    events = take(rows, time="t" if timed else None)
    split = split_or_not(lambda: splits.at_random(events, share, seed=seed, repeats=repeats))
    check(events, split)
    again = splits.at_random(events, share, seed=seed, repeats=repeats)
    assert rows_of(split.train) == rows_of(again.train)
    assert rows_of(split.truth) == rows_of(again.truth)
    assert split.dropped == again.dropped


# --- held-out contexts ------------------------------------------------------------------------------------------------


@MANY
@given(
    ROWS | DENSE,
    st.integers(1, 3) | st.floats(0.1, 0.9),
    st.floats(0.01, 0.99),
    st.sampled_from(["random", "time"]),
    st.integers(0, 5),
    st.randoms(),
)
def test_held_out_contexts(rows, test, fold_in, by, seed, random):
    events = take(rows)
    assume(events.n_contexts > 1)
    try:
        split = split_or_not(lambda: splits.held_out_contexts(events, test, fold_in=fold_in, by=by, seed=seed))
    except SettingError as error:
        if "hold out at least 1 and not all" not in str(error):
            raise
        return
    check(events, split)
    assert split.fold_in
    n_held = test if isinstance(test, int) else round(test * events.n_contexts)
    assert split.train.n_contexts == events.n_contexts - n_held
    held = set(events.contexts.ids()) - set(split.train.contexts.ids())
    known = {(r[0], r[1]) for r in rows if r[0] in held and r[1] in set(split.train.items.ids())}
    few = 0
    for u in held:
        size = sum(pair[0] == u for pair in known)
        asked = sum(pair[0] == u for pair in pairs_of(split.truth))
        expected = min(int(np.floor((1 - fold_in) * size + 1e-9)), max(size - 1, 0))
        assert asked == expected
        few += expected == 0
        if by == "time" and asked:
            newest = {p: max(r[3] for r in rows if r[:2] == p) for p in known if p[0] == u}
            shown = [newest[p] for p in pairs_of(split.history) if p[0] == u]
            assert max(shown) <= min(newest[p] for p in pairs_of(split.truth) if p[0] == u)
    assert split.dropped["held-out contexts with too few pairs"] == few
    # nothing depends on the order of rows
    other = splits.held_out_contexts(take(random.sample(rows, len(rows))), test, fold_in=fold_in, by=by, seed=seed)
    assert pairs_of(other.truth) == pairs_of(split.truth)
    assert sorted(rows_of(other.history)) == sorted(rows_of(split.history))
    assert other.dropped == split.dropped


def test_the_published_protocol():
    """Mult-VAE: int(0.2 · n) of a held-out user's items are asked for."""
    rng = np.random.default_rng(0)
    rows = [(f"{u}", int(i), 1, 0) for u in range(300) for i in rng.permutation(60)[: rng.integers(1, 40)]]
    events = take(rows, time=None)
    split = splits.held_out_contexts(events, 50, fold_in=0.8, seed=7)
    check(events, split)
    sizes = Counter(u for u, *_ in rows)
    asked = Counter(u for u, _ in pairs_of(split.truth))
    assert len(asked) + split.dropped["held-out contexts with too few pairs"] == 50
    assert all(asked[u] == int(0.2 * sizes[u]) for u in asked)
    other = splits.held_out_contexts(events, 50, fold_in=0.8, seed=8)
    assert pairs_of(other.truth) != pairs_of(split.truth)


@MANY
@given(DENSE, st.integers(2, 4), st.integers(0, 3))
def test_k_folds_hold_each_context_out_once(rows, k, seed):
    events = take(rows)
    assume(events.n_contexts >= k)
    folds = split_or_not(lambda: list(splits.k_fold_contexts(events, k, fold_in=0.5, seed=seed)))
    assert len(folds) == k
    held = [set(events.contexts.ids()) - set(split.train.contexts.ids()) for split in folds]
    assert sorted(u for fold in held for u in fold) == events.contexts.ids()
    assert max(map(len, held)) - min(map(len, held)) <= 1
    for split in folds:
        check(events, split)
    again = list(splits.k_fold_contexts(events, k, fold_in=0.5, seed=seed))
    assert [rows_of(a.truth) for a in folds] == [rows_of(b.truth) for b in again]


def test_seeds_differ():
    rng = np.random.default_rng(0)
    rows = [(f"{u}", int(i), 1, int(rng.integers(99))) for u in range(40) for i in rng.permutation(30)[:12]]
    events = take(rows)
    for make in (
        lambda seed: splits.at_random(events, 0.2, seed=seed),
        lambda seed: splits.held_out_contexts(events, 0.2, seed=seed),
        lambda seed: next(splits.k_fold_contexts(events, 4, seed=seed)),
    ):
        truths = [frozenset(pairs_of(make(seed).truth)) for seed in range(5)]
        assert len(set(truths)) == 5
        assert f"seed {3}" in make(3).protocol


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"test": 0}, "test=0; expected an integer ≥ 1"),
        ({"test": 1.0}, "test=1.0; expected a fraction between 0 and 1"),
        ({"test": True}, "test=True; expected a fraction"),
        ({"test": 3}, "test=3 holds out 3 of 3 contexts; hold out at least 1 and not all"),
        ({"test": 0.01}, "holds out 0 of 3 contexts"),
        ({"test": 1, "fold_in": 1}, "fold_in=1; expected a fraction between 0 and 1"),
        ({"test": 1, "by": "luck"}, "by='luck'; expected 'random' or 'time'"),
        ({"test": 1, "seed": -1}, "seed=-1; expected an integer ≥ 0"),
        ({"test": 1, "seed": "x"}, "seed='x'; expected an integer"),
    ],
)
def test_bad_settings(arguments, message):
    events = take([(u, i, 1, i) for u in "abc" for i in range(6)])
    with pytest.raises(SettingError, match=message):
        splits.held_out_contexts(events, **arguments)


def test_bad_settings_of_folds_are_found_at_the_call():
    events = take([(u, i, 1, i) for u in "abc" for i in range(6)])
    for arguments, message in (
        ({"k": 1}, "k=1; expected an integer ≥ 2"),
        ({"k": 4}, "k=4: there are only 3 contexts"),
        ({"k": 2, "fold_in": 0.0}, "fold_in=0.0; expected a fraction"),
        ({"k": 2, "by": "luck"}, "by='luck'"),
    ):
        with pytest.raises(SettingError, match=message):
            splits.k_fold_contexts(events, **arguments)
    with pytest.raises(DataError, match="by='time' needs times"):
        splits.held_out_contexts(take([("a", 1, 1, 1), ("b", 1, 1, 1)], time=None), 1, by="time")
    with pytest.raises(DataError, match="no held-out context has enough pairs to test on 10% of them; lower fold_in"):
        splits.held_out_contexts(events, 1, fold_in=0.9)
    for share in (0.0, 1.0, 2):
        with pytest.raises(SettingError, match="expected a fraction"):
            splits.at_random(events, share)


# --- given ------------------------------------------------------------------------------------------------------------


@MANY
@given(ROWS, ROWS, REPEATS)
def test_given(before, after, repeats):
    train, truth = take(before), take(after)
    split = split_or_not(lambda: splits.given(train, truth, repeats=repeats))
    check_weak(split, before, after, repeats)
    assert len(truth) == len(split.truth) + n_dropped_events(split)


@MANY
@given(ROWS, ROWS, ROWS, REPEATS)
def test_given_with_histories(before, shown, after, repeats):
    train, history, truth = take(before), take(shown), take(after)
    split = split_or_not(lambda: splits.given(train, truth, history=history, repeats=repeats))
    assert split.fold_in
    items = set(train.items.ids())
    warm = [row for row in shown if row[1] in items]
    asked = set(split.truth.contexts.ids())
    assert asked <= {row[0] for row in warm}
    assert sorted(rows_of(split.history)) == sorted(row for row in warm if row[0] in asked)
    assert split.dropped["history events of unknown items"] == len(shown) - len(warm)
    assert len(history) + len(truth) == len(split.history) + len(split.truth) + n_dropped_events(split)
    if repeats == "drop":
        assert not pairs_of(split.truth) & pairs_of(split.history)


def test_given_of_unlike_ids():
    train = Interactions.from_frame({"u": [1, 2], "i": ["a", "b"]}, context="u", item="i")
    truth = Interactions.from_frame({"u": ["1", "2"], "i": ["b", "a"]}, context="u", item="i")
    with pytest.raises(DataError, match="the ids of u in truth have type String, those of u have type Int64; cast one"):
        splits.given(train, truth)
    pairs = Interactions.from_frame({"u": [1], "v": [1], "i": ["a"]}, context=["u", "v"], item="i")
    with pytest.raises(DataError, match="the ids of u, v in truth have type Int64, Int64"):
        splits.given(train, pairs)
    narrow = Interactions.from_frame(
        pl.DataFrame({"who": pl.Series([1, 2], dtype=pl.Int16), "what": ["b", "a"]}), context="who", item="what"
    )
    split = splits.given(train, narrow)
    assert rows_of(split.truth) == [(1, "b"), (2, "a")]


def test_a_context_known_by_name_only_has_no_history():
    train = take([("a", 1, 1, 1), ("a", 2, 1, 1)]).extend(contexts=["b"], items=[3])
    split = splits.given(train, take([("a", 3, 1, 5), ("b", 1, 1, 5)]))
    assert split.truth.contexts.ids() == ["a"]
    assert split.dropped["test events of unknown contexts"] == 1


# --- size -------------------------------------------------------------------------------------------------------------


def test_codes_near_the_end_of_int32_do_not_overflow():
    """Pairs of many contexts and many items are told apart without multiplying codes."""
    n = 70_000
    frame = pl.DataFrame(
        {"u": np.repeat(np.arange(n), 2), "i": np.tile([0, 1], n) + np.repeat(np.arange(n), 2), "t": np.tile([0, 1], n)}
    )
    events = Interactions.from_frame(frame, context="u", item="i", time="t")
    split = splits.by_time(events, 1)
    assert len(split.truth) == n - 1
    assert split.dropped["test events of unknown items"] == 1
