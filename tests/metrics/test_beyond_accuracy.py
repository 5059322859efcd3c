"""The metrics beyond accuracy against loops that follow their definitions, and cases that are known by hand."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist import metrics
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.metrics import Lists, parse_metric
from shortlist.metrics.popularity_groups import popularity_groups

PER_CONTEXT = ("popularity", "novelty", "distance", "cold_share", "miscalibration")
OVERALL = ("coverage", "gini")


def slow_coverage(tops, trained, n_items):
    return len({item for top in tops for item in top}) / n_items


def slow_gini(tops, trained, n_items):
    """Half the mean absolute difference of all ordered pairs of items, by the mean; corrected so that 1 is reached."""
    times = [sum(item in top for top in tops) for item in range(n_items)]
    if not sum(times):
        return math.nan
    if n_items == 1:
        return 0.0
    differences = sum(abs(a - b) for a in times for b in times)
    return differences / (2 * n_items**2 * (sum(times) / n_items)) * n_items / (n_items - 1)


def share(item, trained):
    contexts = [row for row in trained if row]
    return sum(item in row for row in contexts) / len(contexts) if contexts else 0.0


def slow_popularity(top, trained):
    return sum(share(item, trained) for item in top) / len(top) if top else math.nan


def slow_novelty(top, trained):
    contexts = sum(bool(row) for row in trained)
    bits = [-math.log2(share(item, trained) or 1 / (contexts + 1)) for item in top]
    return sum(bits) / len(top) if top else math.nan


def slow_distance(top, trained):
    def cosine(a, b):
        had_a, had_b = ({c for c, row in enumerate(trained) if one in row} for one in (a, b))
        return len(had_a & had_b) / math.sqrt(len(had_a) * len(had_b)) if had_a and had_b else 0.0

    pairs = list(combinations(top, 2))
    return sum(1 - cosine(a, b) for a, b in pairs) / len(pairs) if pairs else math.nan


def slow_cold_share(top, trained):
    return sum(not any(item in row for row in trained) for item in top) / len(top) if top else math.nan


def slow_groups(trained, n_items):
    """0, 1 or 2 of every item: whether fewer than a fifth of the pairs are of more popular ones, or of less popular."""
    had = [sum(item in row for row in trained) for item in range(n_items)]
    edge = sum(had) / 5
    groups = []
    for mine in had:
        head = sum(other for other in had if other > mine) < edge
        tail = sum(other for other in had if other < mine) < edge or mine == 0
        groups.append(1 if head == tail else 0 if head else 2)
    return groups


def slow_miscalibration(top, history, groups):
    """By entropies: that of the mixture without the mean of the two."""
    if not top or not history:
        return math.nan

    def entropy(shares):
        return -sum(one * math.log2(one) for one in shares if one)

    p, q = ([sum(groups[item] == g for item in one) / len(one) for g in range(3)] for one in (history, top))
    return entropy([(a + b) / 2 for a, b in zip(p, q)]) - (entropy(p) + entropy(q)) / 2


SLOW = {
    "coverage": slow_coverage,
    "gini": slow_gini,
    "popularity": slow_popularity,
    "novelty": slow_novelty,
    "distance": slow_distance,
    "cold_share": slow_cold_share,
}


@st.composite
def cases(draw):
    """Lists of any length (none and one included), trained rows (empty ones too), items that nobody had."""
    n_items = draw(st.integers(1, 12))
    item = st.integers(0, n_items - 1)
    trained = draw(st.lists(st.lists(item, unique=True, max_size=n_items), max_size=8))
    tops = draw(st.lists(st.lists(item, unique=True, max_size=n_items), min_size=1, max_size=10))
    width = draw(st.integers(max(1, *map(len, tops)), n_items))
    items = np.full((len(tops), width), -1, np.int32)
    for q, top in enumerate(tops):
        items[q, : len(top)] = top
    rows = SparseRows.from_lists([np.array(row, np.int32) for row in trained], n_items)
    histories = draw(st.lists(st.lists(item, unique=True), min_size=len(tops), max_size=len(tops)))
    had = SparseRows.from_lists([np.array(row, np.int32) for row in histories], n_items)
    return Lists(items, rows, had), tops, trained


@settings(max_examples=400, deadline=None)
@given(cases(), st.integers(1, 14))
def test_every_metric_equals_its_definition(case, n):
    lists, tops, trained = case
    if n > lists.items.shape[1]:
        n = 2**31 - 1 if lists.items.shape[1] == lists.n_items else lists.items.shape[1]
    cut = [top[:n] for top in tops]
    for name in PER_CONTEXT:
        if name == "miscalibration":
            groups = slow_groups(trained, lists.n_items)
            histories = [lists.histories.row(q).tolist() for q in range(len(cut))]
            expected = [slow_miscalibration(top, had, groups) for top, had in zip(cut, histories)]
        else:
            expected = [SLOW[name](top, trained) for top in cut]
        values = parse_metric(f"{name}@{n}").compute(lists)
        assert values.dtype == np.float64
        np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12, err_msg=name)
        assert name == "novelty" or not np.any((values < 0) | (values > 1)), name
    for name in OVERALL:
        value = parse_metric(f"{name}@{n}").compute(lists)
        assert value.shape == ()
        np.testing.assert_allclose(value, SLOW[name](cut, trained, lists.n_items), rtol=1e-12, atol=1e-12, err_msg=name)


@settings(max_examples=100, deadline=None)
@given(cases(), st.randoms())
def test_names_of_items_and_order_of_contexts_do_not_matter(case, rng):
    lists, tops, trained = case
    n, n_items = lists.items.shape[1], lists.n_items
    new = rng.sample(range(n_items), n_items)
    order = rng.sample(range(len(tops)), len(tops))
    renamed = np.append(new, -1)[lists.items[order]]
    rows = [[new[item] for item in row] for row in rng.sample(trained, len(trained))]
    had = [np.array(new)[lists.histories.row(q)] for q in order]
    other = Lists(
        renamed,
        SparseRows.from_lists([np.array(row, np.int32) for row in rows], n_items),
        SparseRows.from_lists(had, n_items),
    )
    for name in OVERALL:
        metric = parse_metric(f"{name}@{n}")
        np.testing.assert_array_equal(metric.compute(other), metric.compute(lists), err_msg=name)
    for name in PER_CONTEXT:
        metric = parse_metric(f"{name}@{n}")
        np.testing.assert_allclose(metric.compute(other), metric.compute(lists)[order], rtol=1e-12, atol=1e-15)


def test_coverage_and_gini_by_hand():
    def lists(*tops):
        return Lists.from_lists(tops, trained=[[0]], n_items=4)

    everyone_else = lists([0, 1], [2, 3], [1, 2], [3, 0])
    assert metrics.coverage(everyone_else, 2) == 1
    assert metrics.gini(everyone_else, 2) == 0
    one_for_all = lists([2], [2], [2])
    assert metrics.coverage(one_for_all, 1) == 0.25
    assert metrics.gini(one_for_all, 1) == 1
    # 0, 0, 1, 3 places: (−3·0 − 1·0 + 1·1 + 3·3) / (3 · 4)
    assert metrics.gini(lists([0], [0], [0], [1]), 1) == pytest.approx(10 / 12)
    assert metrics.coverage(everyone_else, 1) == 1  # the first places are 0, 2, 1, 3


def test_nothing_recommended():
    nothing = Lists(
        np.full((2, 3), -1), SparseRows.from_lists([np.array([0])], 5), SparseRows.from_lists([np.array([0])] * 2, 5)
    )
    assert metrics.coverage(nothing, 3) == 0
    assert math.isnan(metrics.gini(nothing, 3))
    for name in PER_CONTEXT:
        assert np.isnan(parse_metric(f"{name}@3").compute(nothing)).all()
    nobody = Lists(np.empty((0, 3), np.int32), SparseRows.from_lists([np.array([0])], 5), SparseRows.from_lists([], 5))
    for name in PER_CONTEXT:
        assert parse_metric(f"{name}@3").compute(nobody).shape == (0,)


def test_popularity_and_novelty_by_hand():
    trained = [[0, 1], [0, 1], [0, 2], [0]]
    lists = Lists.from_lists([[0, 1], [2, 3], [3]], trained=trained, n_items=5)
    np.testing.assert_allclose(metrics.popularity(lists, 2), [0.75, 0.125, 0.0])
    np.testing.assert_allclose(metrics.novelty(lists, 2), [0.5, (2 + math.log2(5)) / 2, math.log2(5)])
    np.testing.assert_allclose(metrics.novelty(lists, 1), [0.0, 2.0, math.log2(5)])
    np.testing.assert_allclose(metrics.cold_share(lists, 2), [0.0, 0.5, 1.0])


def test_what_nobody_had_is_the_most_novel():
    trained = [[k for k in range(6) if k <= c] for c in range(6)]  # item k had by 6 − k contexts
    lists = Lists.from_lists([[k] for k in range(7)], trained=trained, n_items=7)
    assert np.all(np.diff(metrics.novelty(lists, 1)) > 0)
    assert metrics.novelty(lists, 1)[0] == 0


def test_distance_by_hand():
    # Items 0 and 1 had by the same two contexts, 2 by others, 3 shares one of its four contexts with 0, 4 by nobody.
    trained = [[0, 1, 3], [0, 1], [2, 3], [3], [3], [2]]
    lists = Lists.from_lists([[0, 1], [0, 2], [0, 3], [0, 4], [0, 1, 2]], trained=trained, n_items=5)
    values = metrics.distance(lists, 3)
    np.testing.assert_allclose(values, [0, 1, 1 - 1 / math.sqrt(8), 1, 2 / 3], atol=1e-15)
    assert (values >= 0).all()


def test_lists_that_were_cut_too_early_are_refused():
    lists = Lists.from_lists([[0, 1], [2]], trained=[[0]], n_items=4, histories=[[0], [0]])
    for name in (*PER_CONTEXT, *OVERALL):
        with pytest.raises(SettingError, match=r"n is 3, but the lists have 2 positions \(of 4 items\)"):
            parse_metric(f"{name}@3").compute(lists)
        with pytest.raises(SettingError, match="integer from 1"):
            getattr(metrics, name)(lists, 0)
    whole = Lists.from_lists([[0, 1], [1]], trained=[[0]], n_items=2)
    assert metrics.coverage(whole, 100) == 1


def test_groups_by_hand():
    had = np.array([0, 1, 1, 2, 2, 2, 4, 8, 20])  # 40 pairs, a fifth are 8
    assert popularity_groups(had).tolist() == [2, 2, 2, 2, 2, 2, 1, 1, 0]
    assert popularity_groups(np.array([3, 3, 3])).tolist() == [1, 1, 1]  # none is more popular
    assert popularity_groups(np.array([3, 0, 3])).tolist() == [1, 2, 1]
    assert popularity_groups(np.array([], np.int64)).tolist() == []


def test_miscalibration_needs_histories():
    trained = [[0, 1], [0, 2], [0, 3], [0]]
    lists = Lists.from_lists([[0, 1], [0, 1]], trained=trained, n_items=4, histories=[[0, 3], []])
    assert metrics.miscalibration(lists, 2)[0] == 0
    assert np.isnan(metrics.miscalibration(lists, 2)[1])
    with pytest.raises(SettingError, match="needs histories, but the lists have none"):
        metrics.miscalibration(Lists.from_lists([[0]], trained=trained, n_items=4), 1)
    with pytest.raises(SettingError, match="1 rows over 4 items for 2 lists"):
        Lists.from_lists([[0], [1]], trained=trained, n_items=4, histories=[[0]])
    with pytest.raises(SettingError, match="histories has codes from 0 to 4"):
        Lists.from_lists([[0]], trained=trained, n_items=4, histories=[[0, 4]])
