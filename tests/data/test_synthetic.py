from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import synthetic
from shortlist.data.synthetic import synthetic_codes
from shortlist.errors import SettingError


def check(contexts, items, n_contexts, n_items, n_interactions):
    assert contexts.dtype == items.dtype == np.int32
    assert len(contexts) == len(items) == n_interactions
    assert np.all(np.diff(contexts) >= 0)
    assert contexts.min() >= 0
    assert contexts.max() < n_contexts
    assert items.min() >= 0
    assert items.max() < n_items
    assert len(np.unique(contexts.astype(np.int64) * n_items + items)) == n_interactions
    if n_interactions >= n_contexts:
        assert len(np.unique(contexts)) == n_contexts


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_size_gives_exactly_that_many_distinct_pairs(data):
    n_contexts, n_items = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 150))
    max_share = data.draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    most = max(1, int(max_share * n_items))
    n_interactions = data.draw(st.integers(1, n_contexts * most))
    contexts, items = synthetic_codes(
        n_contexts,
        n_items,
        n_interactions,
        data.draw(st.integers(0, 2**64 - 1)),
        zipf=data.draw(st.sampled_from([0.0, 0.9, 1.0, 3.0])),
        top_share=data.draw(st.sampled_from([0.0, 0.25, 1.0])),
        spread=data.draw(st.sampled_from([0.0, 1.0, 5.0])),
        topics=data.draw(st.none() | st.integers(1, n_items)),
        taste=data.draw(st.sampled_from([0.0, 0.9, 1.0])),
        max_share=max_share,
    )
    check(contexts, items, n_contexts, n_items, n_interactions)
    assert np.bincount(contexts).max() <= most


@pytest.mark.parametrize("zipf", [0.0, 0.9, 3.0])
def test_a_context_can_want_everything(zipf):
    contexts, items = synthetic_codes(7, 1000, 7000, zipf=zipf, taste=1.0, max_share=1.0)
    check(contexts, items, 7, 1000, 7000)
    assert not np.array_equal(items[:1000], items[1000:2000])


def test_seeds_reproduce_and_differ_and_threads_do_not_matter():
    size = (4000, 3000, 500_000)  # enough for several chunks
    contexts, items = synthetic_codes(*size, seed=3, threads=1)
    check(contexts, items, *size)
    for threads in (2, 3):
        again = synthetic_codes(*size, seed=3, threads=threads)
        np.testing.assert_array_equal(contexts, again[0])
        np.testing.assert_array_equal(items, again[1])
    other = synthetic_codes(*size, seed=4)
    assert not np.array_equal(contexts, other[0])
    assert np.mean(items == other[1]) < 0.05


@pytest.mark.parametrize("zipf", [0.6, 0.9, 1.1])
def test_popularity_follows_zipf_on_the_head(zipf):
    _, items = synthetic_codes(50_000, 4000, 150_000, seed=1, zipf=zipf, top_share=1.0)
    counts = np.sort(np.bincount(items, minlength=4000))[::-1]
    ranks = np.arange(5, 101)
    slope = np.polyfit(np.log(ranks), np.log(counts[ranks - 1]), 1)[0]
    assert slope == pytest.approx(-zipf, abs=0.1)


def test_single_draws_follow_the_law_exactly():
    _, items = synthetic_codes(400_000, 300, 400_000, spread=0, top_share=1.0)
    counts = np.sort(np.bincount(items, minlength=300))[::-1]
    expected = np.arange(1, 301) ** -0.9
    expected *= 400_000 / expected.sum()
    # One draw per context: multinomial, so within a few standard deviations wherever sorting cannot matter.
    assert np.all(np.abs(counts - expected)[:20] < 4.5 * np.sqrt(expected[:20]))
    np.testing.assert_allclose(counts[20:].sum(), expected[20:].sum(), rtol=0.01)


@pytest.mark.parametrize(("n_items", "n_topics", "taste"), [(500, 20, 0.9), (500, 20, 0.0), (40, 40, 1.0), (7, 1, 0.5)])
def test_common_part_and_topics_add_up_to_popularity(n_items, n_topics, taste):
    p = np.arange(1, n_items + 1) ** -1.0
    p /= p.sum()
    demand = synthetic._split_demand(np.random.default_rng(0), p, n_topics, taste)
    parts = np.concatenate([[demand.common], (1 - demand.common) * np.diff(demand.topic_ends, prepend=0)])
    total = np.zeros(n_items)
    for t, part in enumerate(parts):
        table = slice(demand.bounds[t], demand.bounds[t + 1])
        keep = demand.threshold[table] / 2**32
        np.add.at(total, demand.item[table], part * keep / len(keep))
        np.add.at(total, demand.other[table], part * (1 - keep) / len(keep))
    np.testing.assert_allclose(total, p, rtol=0, atol=1e-7)


def test_the_most_popular_item_stays_in_its_share():
    shares = [
        np.bincount(synthetic_codes(5000, 2000, 150_000, top_share=top_share)[1]).max() / 5000
        for top_share in (0.1, 0.25, 0.5)
    ]
    assert 0.05 < shares[0] < 0.12
    assert 0.15 < shares[1] < 0.28
    assert 0.3 < shares[2] < 0.55


def test_activity_is_log_normal_within_its_bounds():
    contexts, _ = synthetic_codes(20_000, 5000, 800_000, seed=2, spread=0.8)
    counts = np.bincount(contexts, minlength=20_000)
    assert counts.min() >= 1
    assert np.median(counts) < 0.8 * counts.mean()
    assert np.log(counts).std() == pytest.approx(0.8, abs=0.05)
    assert abs(np.mean((np.log(counts) - np.log(counts).mean()) ** 3)) < 0.1  # symmetric in the logarithm
    capped = np.bincount(synthetic_codes(2000, 100, 40_000, spread=2.0, max_share=0.3)[0])
    assert capped.max() == 30
    even = np.bincount(synthetic_codes(3000, 100, 10_000, spread=0)[0])
    assert set(even.tolist()) == {3, 4}


def test_order_within_a_context_says_nothing():
    _, items = synthetic_codes(20_000, 1000, 400_000, spread=0, seed=5)
    popularity = np.bincount(items)
    by_place = popularity[items.reshape(20_000, 20)].mean(axis=0)
    assert by_place.std() / by_place.mean() < 0.02
    assert abs(np.corrcoef(np.arange(1000), np.bincount(items, minlength=1000))[0, 1]) < 0.15  # nor do the codes


def recall_of_popularity_and_svd(taste):
    n_contexts, n_items = 6000, 2000
    contexts, items = synthetic_codes(n_contexts, n_items, 200_000, taste=taste)
    held_out = np.random.default_rng(0).random(len(items)) < 0.1
    train, test = (
        scipy.sparse.csr_matrix((np.ones(part.sum()), (contexts[part], items[part])), shape=(n_contexts, n_items))
        for part in (~held_out, held_out)
    )
    rows = np.flatnonzero(np.diff(test.indptr))[:2000]
    u, s, vt = scipy.sparse.linalg.svds(train, k=64, v0=np.ones(n_items))
    truth = test[rows].toarray()

    def recall_at_20(scores):
        scores[train[rows].nonzero()] = -np.inf
        top = np.argpartition(-scores, 20, axis=1)[:, :20]
        return np.mean(np.take_along_axis(truth, top, axis=1).sum(axis=1) / truth.sum(axis=1))

    popularity = np.tile(train.sum(axis=0).A1, (len(rows), 1))
    return recall_at_20(popularity), recall_at_20((u[rows] * s) @ vt)


def test_a_factor_model_beats_popularity_by_far():
    popularity, svd = recall_of_popularity_and_svd(taste=0.9)
    assert svd > 2.5 * popularity  # about 0.40 against 0.11


def test_without_taste_there_is_nothing_to_learn_but_popularity():
    popularity, svd = recall_of_popularity_and_svd(taste=0.0)
    assert popularity > svd


def test_fewer_interactions_than_contexts():
    contexts, items = synthetic_codes(1000, 50, 300)
    check(contexts, items, 1000, 50, 300)
    assert len(np.unique(contexts)) <= 300


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"n_interactions": 501},
            r"n_interactions is 501.*10 contexts with at most 50 of 100.*at most 500.*max_share",
        ),
        ({"n_interactions": 0}, "n_interactions is 0; expected an integer from 1"),
        ({"n_interactions": 10.0}, r"n_interactions is 10\.0"),
        ({"n_contexts": 0}, "n_contexts is 0"),
        ({"n_contexts": 2**31}, "n_contexts is 2147483648; expected an integer from 1 to 2147483647"),
        ({"n_contexts": True}, "n_contexts is True"),
        ({"n_items": -3}, "n_items is -3"),
        ({"n_items": 2**31}, "n_items is 2147483648"),
        ({"n_items": "9"}, "n_items is '9'"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is"),
        ({"seed": None}, "seed is None"),
        ({"zipf": -0.1}, r"zipf is -0\.1; expected a number from 0 to 3"),
        ({"zipf": float("nan")}, "zipf is nan"),
        ({"spread": 6}, "spread is 6; expected a number from 0 to 5"),
        ({"taste": 1.1}, r"taste is 1\.1"),
        ({"taste": "0.5"}, r"taste is '0\.5'"),
        ({"top_share": 2}, "top_share is 2"),
        ({"max_share": 1.5}, r"max_share is 1\.5"),
        ({"topics": 101}, "topics is 101; expected an integer from 1 to 100"),
        ({"topics": 0}, "topics is 0"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_wrong_arguments(change, message):
    with pytest.raises(SettingError, match=message):
        synthetic_codes(**({"n_contexts": 10, "n_items": 100, "n_interactions": 200} | change))


def test_numpy_integers_are_fine():
    assert len(synthetic_codes(np.int32(10), np.int64(100), np.int32(200), np.uint64(1))[0]) == 200
