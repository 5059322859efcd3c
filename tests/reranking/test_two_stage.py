"""Both stages together: what is recommended, under which filters, and that the second stage can win."""

from __future__ import annotations

import copy

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from conformance.test_every_recommender import CASES, make
from conformance.test_every_recommender import events as with_taste
from reranking.worlds import ByFeature, Linear, events, planted
from shortlist.retrieval import top_n


@pytest.fixture(scope="module")
def split():
    return sl.splits.by_time(events(), 0.3)


@pytest.fixture(scope="module")
def model(split):
    return sl.IALS(dim=5, epochs=3).fit(split.train)


@pytest.fixture(scope="module")
def two(model, split):
    """The candidates from the least to the most popular."""
    return sl.TwoStage(model, ByFeature("popularity", -1.0), candidates=8).fit(split)


def test_candidates_are_put_into_the_rerankers_order(two, model, split):
    everyone = split.train.contexts.ids()
    popularity = dict(zip(model.items_.ids(), model.popularity_))
    found = two.recommend(everyone, n=30)
    for q, ids in enumerate(model.recommend(everyone, n=30).ids):
        head = sorted(ids[:8], key=lambda one: popularity[one])  # stable: equal ones stay in stage one's order
        assert found.ids[q] == head + ids[8:]
        assert (np.diff(found.scores[q]) <= 0).all()
    np.testing.assert_allclose(found.scores[0][0], -np.log1p(popularity[found.ids[0][0]]), rtol=1e-5)
    assert two.recommend(everyone, n=5).ids == [ids[:5] for ids in found.ids]
    assert isinstance(found, sl.Recommendations)
    one = [two.recommend([user], n=30).ids[0] for user in everyone[:5]]
    assert one == found.ids[:5]


def test_behind_the_candidates_stage_ones_differences_go_on(two, model):
    found, first = two.recommend(["u1"], n=30).scores[0], model.recommend(["u1"], n=30).scores[0]
    np.testing.assert_allclose(np.diff(found[8:]), np.diff(first[8:]), rtol=1e-2, atol=1e-6)
    assert found[8] - found[7] == pytest.approx(first[8] - first[7], abs=1e-5)


@pytest.mark.parametrize("n", [1, 5, 8, 20])
def test_filters_hold(two, split, n):
    people = ["u1", "u2", "u3"]
    seen = [set(split.train.history(user)) for user in people]
    items = set(split.train.items.ids())
    for ids, had in zip(two.recommend(people, n=n).ids, seen):
        assert not set(ids) & had
        assert len(ids) == len(set(ids)) == min(n, len(items - had))
    allowed = [3, 7, 11, 12, 20, 21, 25, "?"][:7]
    for ids, had in zip(two.recommend(people, n=n, allow=allowed).ids, seen):
        assert set(ids) <= set(allowed) - had
        assert len(ids) == min(n, len((set(allowed) & items) - had))
    for ids in two.recommend(people, n=n, deny=[[1, 2, 3]] * 3, exclude_seen=False).ids:
        assert not {1, 2, 3} & set(ids)
        assert len(ids) == min(n, len(items) - 3)
    assert two.recommend(people, n=n, allow=[]).ids == [[], [], []]
    answer = two.recommend(["u1", "nobody"], n=n, unknown="skip")
    assert (answer.skipped, answer.queries) == (["nobody"], ["u1"])
    assert two.recommend([], n=n).ids == []


def test_histories_of_new_contexts(two, model):
    history = [[1, 2, 3], []]
    for ids, first in zip(two.recommend(history=history, n=8).ids, model.recommend(history=history, n=8).ids):
        assert sorted(ids) == sorted(first)
    with pytest.raises(sl.SettingError, match="pass either contexts"):
        two.recommend()
    with pytest.raises(sl.UnknownIdError, match="unknown context 'nobody'"):
        two.recommend(["nobody"])


def test_blocks_and_threads_change_nothing(two, split, monkeypatch):
    everyone = split.train.contexts.ids()
    deny = [[k % 30, (k + 1) % 30] for k in range(len(everyone))]
    histories = [split.train.history(user) for user in everyone]
    questions = (
        {"contexts": everyone, "deny": deny},
        {"contexts": [*everyone[:7], "nobody", *everyone[7:]], "unknown": "skip"},
        {"history": histories, "allow": deny},
        {"contexts": everyone, "slate": sl.slates.MMR(0.3, pool=20)},
    )
    expected = [two.recommend(**question, n=12) for question in questions]
    searched = []

    def spied(scorer, n, **how):
        searched.append(scorer.n_queries)
        return top_n(scorer, n, **how)

    monkeypatch.setattr("shortlist.ranking.engine.top_n", spied)
    for question, whole in zip(questions, expected):
        parts = two.recommend(**question, n=12, threads=2, memory=48 * 20 * 3)
        assert parts.ids == whole.ids
        assert (parts.queries, parts.skipped) == (whole.queries, whole.skipped)
        for one, other in zip(parts.scores, whole.scores):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert max(searched) == 5  # lists of 12, and pools of 20: 3
    assert min(searched[-3:]) <= 3


@pytest.mark.parametrize("name", ["PARAFAC", "Tucker", "FactorizationMachine", "IALS"])
def test_contexts_of_several_parts(name):
    rng = np.random.default_rng(0)
    frame = {"user": rng.integers(0, 15, 900), "day": rng.integers(0, 3, 900), "i": rng.integers(0, 30, 900)}
    data = sl.Interactions.from_frame(frame, context=["user", "day"], item="i")
    split = sl.splits.at_random(data, 0.3)
    ages = pl.DataFrame({"user": np.repeat(range(15), 3), "day": list(range(3)) * 15, "age": np.arange(45.0)})

    class Spy(Linear):
        def score(self, candidates):
            self.asked = candidates
            return super().score(candidates)

    spy, models = Spy(), {"knn": sl.UserKNN().fit(split.train)}
    first = getattr(sl, name)(dim=4, epochs=2).fit(split.train)
    two = sl.TwoStage(first, spy, candidates=9, models=models, context_features=ages).fit(split)
    asked = [(7, 2), (14, 1), (0, 0)]
    two.recommend(asked, n=5)
    assert spy.asked.to_polars().equals(two.retrieve(asked).to_polars())
    people = split.truth.contexts.ids()
    together = two.recommend(people, n=5).ids
    assert together == [two.recommend([one], n=5).ids[0] for one in people]
    with pytest.warns(sl.ShortlistWarning, match="second stage learned"):
        result = sl.evaluate(two, split, ["recall@5"])
    hits = [len(set(ids) & set(split.truth.history(one))) for one, ids in zip(people, together)]
    sizes = [len(set(split.truth.history(one))) for one in people]
    np.testing.assert_allclose(result.of("recall@5"), np.array(hits) / sizes)


@pytest.mark.parametrize("reranker", ["linear", "lambdamart"])
def test_an_item_feature_that_stage_one_lacks_decides(reranker):
    """Three thirds of time: stage one learns from the first, stage two from the second, the third judges."""
    if reranker == "lambdamart":
        pytest.importorskip("lightgbm")
    data, season, next_season = planted()
    test = sl.splits.by_time(data, test=2.0)
    held = sl.splits.by_time(test.train, test=1.0)
    settings = {"dim": 6, "epochs": 6, "unobserved_weight": 0.3}
    second = Linear() if reranker == "linear" else sl.LambdaMART()
    two = sl.TwoStage(sl.IALS(**settings).fit(held.train), second, candidates=60, item_features=season).fit(held)
    two = two.with_first(sl.IALS(**settings).fit(test.train), item_features=next_season)
    result = sl.evaluate(two, test, ["ndcg@10"])
    assert result["ndcg@10"] > 1.4 * result["first:ndcg@10"]
    whole, first = sl.compare(*result.stages()).rows
    assert (whole["model"], first["worse"]) == (f"IALS + {type(second).__name__}", True)
    alone = sl.evaluate(two.first, test, ["ndcg@10", "recall@60"])
    assert alone["ndcg@10"] == pytest.approx(result["first:ndcg@10"])
    assert alone["recall@60"] == pytest.approx(result["first:recall@60"])


def test_other_stages_one(two, split, model):
    grown = sl.IALS(dim=5, epochs=3).fit(split.events())
    other = two.with_first(grown)
    assert other.first is grown
    assert other.training_ == two.training_
    assert other.recommend(["u1"], n=30).ids != two.recommend(["u1"], n=30).ids
    with pytest.raises(sl.SettingError, match="missing: 'mean_similarity', 'max_similarity'"):
        two.with_first(sl.EASE().fit(split.train))
    scored = sl.TwoStage(model, Linear(), models=[sl.EASE().fit(split.train)], candidates=8).fit(split)
    with pytest.raises(sl.SettingError, match="also uses scores of EASE; pass models="):
        scored.with_first(grown)
    assert scored.with_first(grown, models=[sl.EASE().fit(split.events())]).recommend(["u1"]).ids
    described = sl.TwoStage(model, Linear(), item_features=pl.DataFrame({"product": [1, 2], "x": [1.0, 2.0]})).fit(
        split
    )
    later = described.with_first(grown, item_features=pl.DataFrame({"product": [1, 2], "x": [5.0, 9.0]}))
    assert later.recommend(["u1"]).ids
    with pytest.raises(sl.SettingError, match="missing: 'item:x'"):
        described.with_first(grown, item_features=pl.DataFrame({"product": [1, 2], "y": [5.0, 9.0]}))


def test_a_stage_one_that_grows(split):
    first = sl.IALS(dim=5, epochs=3).fit(split.train)
    frame = pl.DataFrame({"product": [1, 2], "x": [1.0, 2.0]})
    two = sl.TwoStage(first, ByFeature("mean_similarity"), candidates=40, item_features=frame).fit(split)
    before = two.recommend(["u1"], n=40)
    new = {"user": ["u1", "u2", "u3"], "product": [500, 500, 501], "when": [10**6] * 3}
    first.partial_fit(sl.Interactions.from_frame(new, context="user", item="product", time="when"))
    after = two.recommend(["u1"], n=40)
    assert set(after.ids[0]) == (set(before.ids[0]) | {501})
    fresh = sl.TwoStage(first, two.reranker, candidates=40, item_features=frame)
    assert after.ids == [
        [one for _, one in sorted(zip(-found.column("mean_similarity"), found.items), key=lambda pair: pair[0])]
        for found in [fresh.retrieve(["u1"])]
    ]


def test_a_stage_one_that_grows_beyond_a_further_model(split, tmp_path):
    first, ease = sl.IALS(dim=5, epochs=3).fit(split.train), sl.EASE().fit(split.train)
    two = sl.TwoStage(first, ByFeature("rank", -1.0), candidates=40, models=[ease]).fit(split)
    new = {"user": ["u1", "new"], "product": [500, 1], "when": [10**6] * 2}
    first.partial_fit(sl.Interactions.from_frame(new, context="user", item="product", time="when"))
    for who in ("u2", "new"):
        assert two.recommend([who], n=40).ids == first.recommend([who], n=40).ids
    two.save(tmp_path / "two")
    again = sl.TwoStage.load(tmp_path / "two", reranker=two.reranker)
    assert again.recommend(["u2", "new"]).ids == two.recommend(["u2", "new"]).ids
    first.fit(sl.Interactions.from_frame({"user": ["u1"], "product": [999]}, context="user", item="product"))
    for call in (lambda: two.recommend(["u1"], exclude_seen=False), lambda: two.save(tmp_path / "other")):
        with pytest.raises(sl.SettingError, match="'EASE' knows none of the 1 items of stage one"):
            call()
    assert not (tmp_path / "other").exists()


def test_one_reranker_learns_once(model, split):
    two = sl.TwoStage(model, Linear(), candidates=8).fit(split)
    other = two.with_first(sl.IALS(dim=5, epochs=3).fit(split.train))
    later = sl.splits.by_time(split.train, 0.3)
    before = two.training_
    other.first.fit(later.train)
    other.fit(later)
    assert two.training_ == other.training_ != before
    assert (two.knows_answers(split), two.knows_answers(later)) == (0.0, 1.0)
    assert two.feature_names_ == other.feature_names_
    unfitted = sl.TwoStage(model, Linear(), candidates=8)
    unfitted.with_first(model).fit(split)
    assert unfitted.recommend(["u1"]).ids == sl.TwoStage(model, Linear(), candidates=8).fit(split).recommend(["u1"]).ids


def test_a_reranker_that_another_has_fitted_since(model, split, tmp_path):
    shared = Linear()
    one = sl.TwoStage(model, shared, candidates=8, extra=lambda c: {"x": c.ranks}).fit(split)
    expected, copied = one.recommend(["u1"]).ids, copy.deepcopy(one)
    another = sl.TwoStage(model, shared, candidates=8, extra=lambda c: {"y": -c.ranks}).fit(split)
    for call in (
        lambda: one.recommend(["u1"]),
        lambda: sl.evaluate(one, split),
        lambda: one.save(tmp_path / "one"),
        lambda: one.with_first(model).recommend(["u1"]),
    ):
        with pytest.raises(sl.SettingError, match="this Linear has been fitted again by another TwoStage"):
            call()
    assert another.recommend(["u1"]).ids
    assert copied.recommend(["u1"]).ids == expected  # which has a reranker of its own
    assert one.fit(split).recommend(["u1"]).ids == expected
    with pytest.raises(sl.SettingError, match="by another TwoStage"):
        another.recommend(["u1"])


def test_a_function_that_gives_other_columns_later(model, split):
    names = ["a"]
    two = sl.TwoStage(model, Linear(), candidates=8, extra=lambda c: {names[0]: c.ranks})
    two.fit(split).recommend(["u1"])
    names[0] = "b"
    with pytest.raises(sl.SettingError, match="missing: 'extra:a'; unexpected: 'extra:b'"):
        two.recommend(["u1"])


class Bad(Linear):
    def __init__(self, answer):
        self.answer = answer

    def score(self, candidates):
        return self.answer(super().score(candidates))


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (lambda s: s[:-1], sl.SettingError, r"Bad.score returned an array of shape \(7,\); expected \(8,\)"),
        (lambda s: s * np.nan, sl.DataError, "8 of 8 scores that are not finite"),
        (lambda s: ["x"] * len(s), sl.SettingError, "did not return numbers"),
        (lambda s: np.linspace(-1e39, 1e38, len(s)), sl.DataError, "too large for float32"),
        (lambda s: int("mine"), ValueError, "invalid literal"),  # as it was raised
        (lambda s: {}["mine"], KeyError, "mine"),
    ],
)
def test_rerankers_that_answer_something_else(model, split, answer, error, told):
    two = sl.TwoStage(model, Bad(answer), candidates=8).fit(split)
    with pytest.raises(error, match=told) as raised:
        two.recommend(["u1"])
    assert raised.type is error


def test_scores_that_are_large_and_close(model, split):
    def scored(answer):
        return sl.TwoStage(model, Bad(answer), candidates=8).fit(split)

    plain, close = scored(lambda s: np.arange(8) / 10), scored(lambda s: 1e8 + np.arange(8) / 10)
    for slate in (None, sl.slates.MMR(0.3), sl.slates.DPP(0.3)):
        assert close.recommend(["u1"], n=6, slate=slate).ids == plain.recommend(["u1"], n=6, slate=slate).ids
    lowest = np.finfo(np.float32).min
    told = scored(lambda s: lowest + np.zeros(8)).recommend(["u1"], n=12).scores[0]
    assert (told == lowest).all()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"first": "ials"}, "expected a fitted recommender"),
        ({"reranker": object()}, "with the methods fit and score"),
        ({"reranker": Linear}, "with the methods fit and score"),
        ({"candidates": 0}, "candidates is 0"),
        ({"models": ["ease"]}, "expected fitted recommenders"),
        ({"models": sl.EASE()}, "expected a list of fitted recommenders as models"),
        ({"extra": 3}, "expected a function"),
    ],
)
def test_mistakes(model, arguments, told):
    with pytest.raises(sl.SettingError, match=told):
        sl.TwoStage(**{"first": model, "reranker": Linear()} | arguments)


def test_unfitted_stages(model):
    with pytest.raises(sl.NotFittedError, match="has not been fitted"):
        sl.TwoStage(sl.EASE())
    with pytest.raises(sl.NotFittedError, match="second stage has not been fitted"):
        sl.TwoStage(model).recommend(["u1"])
    assert "reranked by LambdaMART(trees=" in repr(sl.TwoStage(model))


# BPR stands for them: only their kernels, which take long to compile, differ.
PRESETS = {"AdaptiveBPR", "HingeMF", "LambdaMF", "LogisticMF", "SquareMF", "WARP"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(pytest.param(name, "text", marks=pytest.mark.slow if name in PRESETS else ()) for name in sorted(CASES)),
        *((name, "tuple") for name in ("IALS", "PARAFAC", "ItemKNN")),
    ],
)
def test_on_top_of_every_recommender(name, kind, tmp_path):
    split = sl.splits.at_random(with_taste(kind), 0.3)
    first = make(name).fit(split.train)
    two = sl.TwoStage(first, Linear(), candidates=6).fit(split)
    people, n_items = split.truth.contexts.ids()[:4], split.train.n_items
    for question in ({"contexts": people}, {"history": [split.train.items.ids()[:3], []]}):
        for ids, alone in zip(two.recommend(**question, n=n_items).ids, first.recommend(**question, n=n_items).ids):
            assert sorted(ids[:6]) == sorted(alone[:6])
            assert ids[6:] == alone[6:]
    two.save(tmp_path / "two")
    again = sl.TwoStage.load(tmp_path / "two", reranker=two.reranker)
    assert again.recommend(people, n=9).ids == two.recommend(people, n=9).ids
    with pytest.warns(sl.ShortlistWarning, match="second stage learned"):
        result = sl.evaluate(two, split, ["auc", "ndcg@3"])
    assert 0 <= result["auc"] <= 1
    if CASES[name].similar:
        assert (
            two.similar_items(split.train.items.ids()[:1], n=3).ids
            == first.similar_items(split.train.items.ids()[:1], n=3).ids
        )


def test_an_index_of_stage_one_finds_the_candidates():
    pairs = sl.datasets.synthetic(100, 80, 3000, seed=2)
    split = sl.splits.at_random(pairs, test=0.2)
    first = sl.IALS(dim=8, epochs=2).fit(split.train)
    two = sl.TwoStage(first, Linear(), candidates=20).fit(split)
    index = first.index("quantized", probes=10**6, refine=10**6)
    whom = pairs.contexts.ids()[:10]
    assert two.recommend(whom, n=5, index=index).ids == two.recommend(whom, n=5).ids
    with pytest.raises(sl.SettingError, match="belongs to another model"):
        two.recommend(whom, index=sl.IALS(dim=2, epochs=1).fit(split.train).index("exact"))
