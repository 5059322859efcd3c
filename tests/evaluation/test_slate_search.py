"""Slates through `recommend` and `evaluate`: what they measure, and what they do to real lists."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist as sl
from shortlist.metrics import Lists, parse_metrics
from shortlist.ranking.engine import slate_of
from shortlist.ranking.protocols import TopItems
from shortlist.ranking.request import Request

METRICS = ["recall@5", "ndcg@8", "mrr@8", "coverage@8", "popularity@8", "distance@5", "miscalibration@8"]
SLATES = [sl.slates.MMR(0.4, pool=15), sl.slates.DPP(0.4, pool=15), sl.slates.Calibrated(0.4, pool=15)]


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(0)
    n = 900
    frame = {"u": rng.integers(0, 40, n), "i": rng.zipf(1.4, n) % 40, "t": rng.permutation(n)}
    return sl.splits.by_time(sl.Interactions.from_frame(frame, context="u", item="i", time="t"), 0.3)


@pytest.fixture(scope="module", params=["IALS", "EASE", "Popularity"])
def model(request, split):
    made = {"IALS": sl.IALS(dim=5, epochs=3), "EASE": sl.EASE(regularization=5.0), "Popularity": sl.Popularity()}
    return made[request.param].fit(split.train)


@pytest.mark.parametrize("slate", SLATES, ids=repr)
def test_what_is_measured_is_what_is_recommended(split, model, slate):
    result = sl.evaluate(model, split, METRICS, slate=slate)
    contexts = split.truth.contexts.ids()
    lists = model.recommend(contexts, n=8, slate=slate).ids
    wanted = [set(split.truth.history(one)) for one in contexts]
    if not isinstance(model, sl.Popularity):  # which has ties, in random order for ranks
        hits = [len(want & set(row[:5])) / len(want) for want, row in zip(wanted, lists)]
        np.testing.assert_allclose(result.of("recall@5"), hits)
    items = np.array([np.pad(model.items_.encode(row), (0, 8 - len(row)), constant_values=-1) for row in lists])
    described = Lists(items, model.seen_, model.seen_.take(model.contexts_.encode(contexts)))
    for metric in parse_metrics(METRICS[3:]):
        np.testing.assert_allclose(result.values_by_metric[str(metric)], metric.compute(described), err_msg=str(metric))
    assert result.model == f"{type(model).__name__} with {slate!r}"
    plain = sl.evaluate(model, split, METRICS)
    assert "ndcg@8 (" in repr(sl.compare(plain, result))  # the same contexts under the same protocol


def test_nothing_wanted_nothing_changed(split, model):
    plain = sl.evaluate(model, split, METRICS, seed=3)
    for kind in sl.slates.SLATES.values():
        result = sl.evaluate(model, split, METRICS, slate=kind(0.0, pool=15), seed=3)
        for metric in METRICS:
            np.testing.assert_array_equal(result.values_by_metric[metric], plain.values_by_metric[metric])
    changed = sl.evaluate(model, split, METRICS, slate=sl.slates.MMR(0.9, pool=15))
    assert changed["distance@5"] > plain["distance@5"]


def test_ties_are_at_random_for_ranks_and_by_popularity_for_lists(split):
    """Scores that are all equal: accuracy is that of chance under the seed, lists are those that people are shown."""
    model = sl.ItemKNN(neighbours=1).fit(split.train)
    slate = sl.slates.MMR(0.3, pool=15)
    accuracy = {sl.evaluate(model, split, ["recall@5"], slate=slate, seed=seed)["recall@5"] for seed in range(4)}
    described = {
        sl.evaluate(model, split, ["popularity@5"], slate=slate, seed=seed)["popularity@5"] for seed in range(4)
    }
    assert len(accuracy) > 1
    assert len(described) == 1


def test_metrics_that_a_slate_has_no_places_for(split, model):
    slate = sl.slates.MMR(0.3, pool=15)
    with pytest.raises(sl.SettingError, match=r"auc, mrr cannot be computed for a slate.*such as 'ndcg@10'"):
        sl.evaluate(model, split, ["recall@5", "auc", "mrr"], slate=slate)
    with pytest.raises(sl.SettingError, match=r"recall@16 needs more items than the pool of MMR.* has"):
        sl.evaluate(model, split, ["recall@5", "recall@16"], slate=slate)
    for call in (sl.evaluate, lambda model, split, metrics, slate: model.recommend([1], slate=slate)):
        with pytest.raises(sl.SettingError, match=r"slate is 0.3; expected one of shortlist.slates"):
            call(model, split, ["recall@5"], slate=0.3)


def test_lists_longer_than_any_pool():
    everything = {"u": [0] * 10_001, "i": range(10_001)}
    model = sl.Popularity().fit(sl.Interactions.from_frame(everything, context="u", item="i"))
    assert len(model.recommend([0], n=10**6, exclude_seen=False).ids[0]) == 10_001
    with pytest.raises(sl.SettingError, match=r"n is 10,001 of 10,001 items, with a slate; expected at most 10,000"):
        model.recommend([0], n=10**6, exclude_seen=False, slate=sl.slates.DPP(0.5))


def test_from_codes_and_scores_alone(split, model):
    """What an index finds, of which some queries have fewer."""
    contexts = split.truth.contexts.ids()[:6]
    queries = model.queries(contexts)
    rng = np.random.default_rng(1)
    codes = np.array([rng.permutation(40)[:12] for _ in contexts], np.int32)
    scores = -np.sort(-rng.normal(size=codes.shape), axis=1).astype(np.float32)
    codes[2, 3:], scores[2, 3:] = -1, -np.inf
    for slate in SLATES:
        picked, their = slate_of(model.catalogue, TopItems(codes, scores), queries.histories, Request(n=5, slate=slate))
        assert ((picked >= 0).sum(axis=1) == [5, 5, 3, 5, 5, 5]).all()
        for q in range(6):
            listed = picked[q][picked[q] >= 0]
            places = [codes[q].tolist().index(one) for one in listed]
            np.testing.assert_array_equal(their[q, : len(listed)], scores[q, places])


@pytest.fixture(scope="module")
def retail():
    return sl.splits.by_time(sl.datasets.load("online-retail").interactions, test=0.2)


@pytest.mark.parametrize("name", ["IALS", "ItemKNN"])
def test_on_online_retail(retail, name):
    """More diversity, lists less alike, and it costs accuracy; more strength, lists nearer to the histories."""
    made = {"IALS": sl.IALS(dim=32, regularization=0.01, epochs=6), "ItemKNN": sl.ItemKNN()}
    model = made[name].fit(retail.train)
    numbers = (0.0, 0.15, 0.3, 0.6, 1.0)
    for kind in (sl.slates.MMR, sl.slates.DPP):
        found = [sl.evaluate(model, retail, ["ndcg@10", "distance@10"], slate=kind(one)) for one in numbers]
        distances = [one["distance@10"] for one in found]
        assert (np.diff(distances) > 0).all()
        assert distances[-1] > distances[0] + 0.08
        assert found[-1]["ndcg@10"] < 0.8 * found[0]["ndcg@10"]
        assert found[2]["ndcg@10"] > 0.75 * found[0]["ndcg@10"]
    found = [sl.evaluate(model, retail, ["miscalibration@10"], slate=sl.slates.Calibrated(one)) for one in numbers]
    apart = [one["miscalibration@10"] for one in found]
    assert (np.diff(apart) < 0).all()
    assert apart[-1] < apart[0] / 4
