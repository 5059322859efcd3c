from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.retrieval.order import (
    BY_CODE,
    BY_HASH,
    FILTERED,
    MINUS_INFINITY_KEY,
    NAN_KEY,
    key_of,
    keys_numpy,
    make_order,
    rank_key,
    raw_key_of,
    row_seed,
    ties_numpy,
)
from shortlist.retrieval.rank_kernels import rank_numpy, tied_before
from shortlist.retrieval.select import (
    GROUP,
    clear,
    floor_of,
    group_maxima,
    lowest_bit,
    mark_reached,
    sort_best_first,
    threshold,
)

NONE = np.empty(0, np.int32)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(width=32), min_size=1))
def test_keys_order_as_scores_do(values):
    scores = np.array(values, np.float32)
    scores[scores.view(np.int32) == -1] = np.nan  # the one pattern of bits that marks a filtered item
    keys = np.array([key_of(x) for x in scores.view(np.int32)])
    np.testing.assert_array_equal(keys, keys_numpy(scores))
    known = ~np.isnan(scores)
    np.testing.assert_array_equal(keys[known, None] < keys[known], scores[known, None] < scores[known])
    back = np.array([raw_key_of(np.int32(s)) for s in keys], np.int32).view(np.float32)
    np.testing.assert_array_equal(back, scores)
    assert np.all(keys[~known] == NAN_KEY)
    assert FILTERED < NAN_KEY < MINUS_INFINITY_KEY <= keys[known].min(initial=0)


def test_ties_are_the_twins():
    items = np.arange(100, dtype=np.int32)
    for how in ((None, None, None), (items[::-1] * 3, None, None), (None, 7, [5, -6, 2**60])):
        order = make_order(3, 100, *how, NONE)
        for q in range(3):
            seed = np.uint64(row_seed(order, q))
            found = [rank_key(np.int32(-4), i, order.mode, order.priority, seed) for i in items]
            np.testing.assert_array_equal(found, (-4 << 32) + 0xFFFFFFFF - ties_numpy(order, q, items))


def test_equal_ties_go_by_code():
    order = make_order(1, 6, np.zeros(6, int), None, None, NONE)
    keys = np.array([3, 5, 3, 5, 3, 3], np.int32)
    for j in range(6):
        expected = rank_numpy(keys.astype(np.float32), np.zeros(6, np.int64), j) - 1 - np.count_nonzero(keys > keys[j])
        assert tied_before(keys, np.int64(j), order, np.uint64(0)) == expected


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1000), width=st.integers(1, 400), n=st.integers(1, 50))
def test_groups_and_floors(seed, width, n):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(width) * 10.0 ** rng.integers(-3, 4)).astype(np.float32)
    keys = keys_numpy(x)
    M = np.empty(-(-width // GROUP), np.int32)
    assert group_maxima(x.view(np.int32), M) == keys.max()
    np.testing.assert_array_equal(M, [keys[g : g + GROUP].max() for g in range(0, width, GROUP)])
    t = floor_of(keys, n, keys.max())
    if n <= width:
        assert n <= np.count_nonzero(keys >= t) <= n + n // 4
    else:
        assert t == FILTERED + 1
    reached = np.zeros(GROUP, np.uint8)
    start = width // GROUP * GROUP if width % GROUP else 0
    word = int(mark_reached(x.view(np.int32), start, np.int32(keys[-1]), reached, reached.view(np.uint64)))
    assert [b for b in range(64) if word >> b & 1] == list(np.flatnonzero(keys[start : start + GROUP] >= keys[-1]))


def test_threshold_is_the_lowest_raw_key_that_can_displace():
    for s in (-5, 0, 1, 77, int(NAN_KEY), int(MINUS_INFINITY_KEY)):
        z = np.int64((s << 32) + 123)
        assert threshold(z, BY_CODE) == s + 1
        assert threshold(z, BY_HASH) == (s or -1)


def test_lowest_bit():
    for b in range(64):
        assert lowest_bit(np.uint64(1 << b)) == b
        assert lowest_bit(np.uint64((0xFFFFFFFFFFFFFFFF << b) & 0xFFFFFFFFFFFFFFFF)) == b


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), min_size=2, max_size=60), data=st.data())
def test_clearing_keeps_the_best(values, data):
    n = data.draw(st.integers(1, len(values) - 1))
    Z = np.array(values, np.int64)
    items = np.random.default_rng(0).permutation(len(Z)).astype(np.int32)
    expected = sorted(zip(Z.tolist(), items.tolist()), key=lambda pair: (-pair[0], pair[1]))[:n]
    assert clear(Z, items, len(Z), n) == expected[-1][0]
    sort_best_first(Z, items, n)
    assert list(zip(Z[:n].tolist(), items[:n].tolist())) == expected
