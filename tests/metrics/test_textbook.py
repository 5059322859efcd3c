"""The vectorised metrics against loops that follow the article's formulas letter by letter."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.metrics import Ranks, parse_metric


def rank_items(scores, rng):
    """r̂: item -> rank; ties broken at random into a bijection."""
    order = sorted(range(len(scores)), key=lambda item: (-scores[item], rng.random()))
    return {item: position for position, item in enumerate(order, start=1)}


def prec(R, n):
    return len({r for r in R if r <= n}) / n


def slow_recall(R, n):
    return len({r for r in R if r <= n}) / len(R)


def slow_capped_recall(R, n):
    return len({r for r in R if r <= n}) / min(n, len(R))


def slow_ap(R, n):
    return sum(prec(R, i) for i in range(1, n + 1) if i in R) / min(len(R), n)


def slow_ndcg(R, n):
    best = sum(1 / math.log2(i + 1) for i in range(1, min(len(R), n) + 1))
    return sum(1 / math.log2(i + 1) for i in range(1, n + 1) if i in R) / best


def slow_hit(R, n):
    return float(any(i in R for i in range(1, n + 1)))


def slow_mrr(R, n):
    return next((1 / i for i in range(1, n + 1) if i in R), 0.0)


def slow_auc(R, n_ranked):
    others = set(range(1, n_ranked + 1)) - R
    return sum(r < other for r in R for other in others) / (len(R) * len(others))


SLOW = {
    "precision": prec,
    "recall": slow_recall,
    "capped_recall": slow_capped_recall,
    "ap": slow_ap,
    "ndcg": slow_ndcg,
    "hit": slow_hit,
    "mrr": slow_mrr,
}


@st.composite
def rankings(draw):
    """Some contexts, each with its own number of ranked items; scores on a coarse grid, so that ties abound."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    sets, n_ranked = [], []
    for _ in range(draw(st.integers(1, 12))):
        n_items = rng.randint(2, 40)
        ranks = rank_items([rng.randint(0, 5) for _ in range(n_items)], rng)
        n_relevant = rng.choice([1, n_items - 1, rng.randint(1, n_items - 1)])
        sets.append({ranks[item] for item in rng.sample(range(n_items), n_relevant)})
        n_ranked.append(n_items)
    return sets, n_ranked


@settings(max_examples=400, deadline=None)
@given(rankings(), st.integers(1, 50), st.randoms())
def test_every_metric_equals_its_definition(case, n, rng):
    sets, n_ranked = case
    shuffled = [rng.sample(sorted(R), len(R)) for R in sets]
    whole = Ranks.from_lists(shuffled, n_ranked)
    cut_lists = [[r for r in row if r <= n or rng.random() < 0.3] for row in shuffled]
    lengths = [len(row) for row in cut_lists]
    flat = np.array([r for row in cut_lists for r in row], dtype=np.int64)
    cut = Ranks(np.concatenate([[0], np.cumsum(lengths)]), flat, whole.n_relevant, whole.n_ranked, n)
    for name, slow in SLOW.items():
        metric = parse_metric(f"{name}@{n}")
        expected = [slow(R, n) for R in sets]
        for ranks in (whole, cut):
            values = metric.compute(ranks)
            assert values.dtype == np.float64
            np.testing.assert_allclose(values, expected, rtol=1e-12, atol=0, err_msg=name)
            assert np.all((values >= 0) & (values <= 1)), name
    np.testing.assert_allclose(
        parse_metric("auc").compute(whole), [slow_auc(R, m) for R, m in zip(sets, n_ranked)], rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(parse_metric("mrr").compute(whole), [slow_mrr(R, 50) for R in sets], rtol=1e-12)


@settings(max_examples=100, deadline=None)
@given(rankings())
def test_in_n_recall_hit_and_mrr_never_fall_and_recall_ends_at_one(case):
    sets, n_ranked = case
    ranks = Ranks.from_lists([sorted(R) for R in sets], n_ranked)
    for name in ("recall", "hit", "mrr"):
        by_n = np.array([parse_metric(f"{name}@{n}").compute(ranks) for n in range(1, 41)])
        assert np.all(np.diff(by_n, axis=0) >= 0), name
    np.testing.assert_array_equal(parse_metric("recall@40").compute(ranks), 1.0)
    np.testing.assert_array_equal(parse_metric("mrr@40").compute(ranks), parse_metric("mrr").compute(ranks))


@settings(max_examples=100, deadline=None)
@given(rankings(), st.integers(1, 50))
def test_selecting_contexts_selects_their_values(case, n):
    sets, n_ranked = case
    ranks = Ranks.from_lists([sorted(R) for R in sets], n_ranked)
    mask = np.arange(len(ranks)) % 2 == 0
    values = parse_metric(f"ndcg@{n}").compute(ranks)
    np.testing.assert_array_equal(parse_metric(f"ndcg@{n}").compute(ranks.select(mask)), values[mask])
    backwards = np.arange(len(ranks))[::-1]
    np.testing.assert_array_equal(parse_metric(f"ndcg@{n}").compute(ranks.select(backwards)), values[::-1])


@pytest.mark.parametrize("n_relevant", [1, 3, 7, 50, 99])
@pytest.mark.parametrize("n", [1, 3, 10, 100])
def test_perfect_is_exactly_one_and_worst_is_nothing(n_relevant, n):
    perfect = Ranks.from_lists([range(1, n_relevant + 1)], 100)
    for name in ("capped_recall", "ap", "ndcg", "hit", "mrr"):
        assert parse_metric(f"{name}@{n}").compute(perfect)[0] == 1.0, name
    assert parse_metric("auc").compute(perfect)[0] == 1.0
    if n_relevant >= n:
        assert parse_metric(f"precision@{n}").compute(perfect)[0] == 1.0
    else:
        assert parse_metric(f"recall@{n}").compute(perfect)[0] == 1.0
    worst = Ranks.from_lists([range(101 - n_relevant, 101)], 100)
    assert parse_metric("auc").compute(worst)[0] == 0.0
    if n <= 100 - n_relevant:
        for name in SLOW:
            assert parse_metric(f"{name}@{n}").compute(worst)[0] == 0.0, name


def test_ties_broken_at_random_give_chance_level():
    rng = np.random.default_rng(5)
    lists = [(rng.permutation(200)[:5] + 1).tolist() for _ in range(4000)]  # what a constant scorer gets
    ranks = Ranks.from_lists(lists, 200)
    assert parse_metric("auc").compute(ranks).mean() == pytest.approx(0.5, abs=0.01)
    assert parse_metric("recall@20").compute(ranks).mean() == pytest.approx(0.1, abs=0.01)
