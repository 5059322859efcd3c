"""Features of candidates, each written out by hand."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from reranking.worlds import ByFeature, events

PAIR = ("score", "relative_score", "rank", "popularity", "history_length", "seen")
COSINES = ("mean_similarity", "max_similarity")


@pytest.fixture(scope="module")
def data():
    return events()


@pytest.fixture(scope="module")
def model(data):
    return sl.IALS(dim=5, epochs=3).fit(data)


def two(first, **more):
    return sl.TwoStage(first, ByFeature("rank"), **{"candidates": 8} | more)


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("by", ["contexts", "history"])
def test_features_of_the_pair(data, model, exclude_seen, by):
    everyone = data.contexts.ids()[:6]
    histories = [list(dict.fromkeys(data.history(user))) for user in everyone]
    question = {"contexts": everyone} if by == "contexts" else {"history": [*histories, []]}
    found = two(model).retrieve(**question, exclude_seen=exclude_seen)
    assert found.feature_names == PAIR + COSINES
    frame = found.to_polars()
    had = {item: len({user for user in data.contexts if item in data.history(user)}) for item in data.items}
    unit = model.item_embeddings_ / np.linalg.norm(model.item_embeddings_, axis=1, keepdims=True)
    place = {item: code for code, item in enumerate(data.items.ids())}
    answer = model.recommend(**question, n=8, exclude_seen=exclude_seen)
    for q, (ids, scores) in enumerate(zip(answer.ids, answer.scores)):
        rows = frame.filter(found.query_of == q)
        history = histories[q] if q < len(histories) else []
        assert rows["product"].to_list() == ids
        counts = dict(zip(model.items_.ids(), [0] * len(model.items_)))
        counts |= {item: data.history(everyone[q]).count(item) for item in history} if by == "contexts" else {}
        for k, (item, row) in enumerate(zip(ids, rows.iter_rows(named=True))):
            others = [float(unit[place[item]] @ unit[place[one]]) for one in history if one != item]
            weight = counts[item] if by == "contexts" else float(item in history)
            expected = {
                "score": scores[k],
                "relative_score": (scores[k] - scores.mean()) / (scores.std() or 1),
                "rank": k + 1,
                "popularity": math.log1p(had[item]),
                "history_length": math.log1p(len(history)),
                "seen": weight,
                "mean_similarity": np.mean(others) if others else 0,
                "max_similarity": max(others) if others else 0,
            }
            for name, value in expected.items():
                assert row[name] == pytest.approx(value, rel=2e-4, abs=2e-5), (name, item)
            assert (item in history) <= (not exclude_seen)


def test_models_without_embeddings_have_no_cosines(data):
    assert two(sl.EASE().fit(data)).retrieve(["u1"]).feature_names == PAIR


def test_scores_of_further_models(data, model):
    other = data.select(np.random.default_rng(0).permutation(len(data)))  # the same in another order
    ease, popular = sl.EASE().fit(other), sl.Popularity().fit(other)
    found = two(model, models=[ease, popular, sl.EASE(regularization=3.0).fit(other)]).retrieve(["u3", "u1"])
    assert found.feature_names[len(PAIR + COSINES) :] == ("model:EASE 1", "model:Popularity", "model:EASE 2")
    lists = [np.array(found.items)[found.query_of == q].tolist() for q in (0, 1)]
    expected = np.concatenate(ease.score(["u3", "u1"], lists))
    np.testing.assert_allclose(found.column("model:EASE 1"), expected, rtol=1e-5)
    named = two(model, models={"linear": ease}).retrieve(history=[[1, 2]])
    np.testing.assert_allclose(
        named.column("model:linear"), ease.score(None, [named.items], history=[[1, 2]])[0], rtol=1e-5
    )


def test_a_model_that_knows_only_some(data, model):
    part = (data.item_codes < 20) & (data.context_codes != data.contexts.encode(["u3"])[0])
    less = sl.EASE().fit(data.select(part, compact=True))
    people = ["u1", "u3", "u2"]
    found = two(model, models=[less], candidates=30).retrieve(people, exclude_seen=False)
    told, items = found.column("model:EASE"), found.items
    for row, (item, q) in enumerate(zip(items, found.query_of)):
        if people[q] == "u3" or item not in less.items_:
            assert np.isnan(told[row])
        else:
            assert told[row] == pytest.approx(less.score([people[q]], [[item]])[0][0], rel=1e-5, abs=1e-6)
    assert np.isnan(told).sum() == 30 + 2 * (30 - len(less.items_))
    new_contexts = two(model, models=[less], candidates=30).retrieve(history=[data.history("u3")], exclude_seen=False)
    assert np.isfinite(new_contexts.column("model:EASE")).sum() == len(less.items_)
    assert np.isnan(two(model, models=[less]).retrieve(["u3"]).column("model:EASE")).all()


def test_a_model_of_nothing_that_stage_one_knows_is_refused(data, model):
    frame = data.to_polars()
    other = sl.Interactions.from_frame(frame.with_columns(pl.col("product") + 100), context="user", item="product")
    with pytest.raises(
        sl.SettingError, match=r"'EASE' knows none of the 30 items.*as product 0, the model .* as product 100"
    ):
        two(model, models=[sl.EASE().fit(other)])
    other = sl.Interactions.from_frame(frame.with_columns(pl.col("user") + "x"), context="user", item="product")
    stranger = two(model, models=[sl.EASE().fit(other)])
    assert np.isfinite(stranger.retrieve(history=[[1, 2]]).column("model:EASE")).all()
    with pytest.raises(sl.SettingError, match="knows none of the 40 contexts"):
        stranger.retrieve(["u1"])
    pairs = sl.Interactions.from_frame(frame, context=["user", "when"], item="product")
    for kind in (sl.EASE(), sl.PARAFAC(dim=2, epochs=1)):
        with pytest.raises(sl.SettingError, match=r"ids such as user 'u0', the model has ids such as user, when \("):
            two(model, models=[kind.fit(pairs)]).retrieve(["u1"])


@pytest.mark.parametrize("name", ["PARAFAC", "Tucker", "FactorizationMachine"])
def test_combinations_that_only_some_models_can_answer(name):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {"user": rng.integers(0, 9, 400), "day": rng.integers(0, 4, 400), "i": rng.integers(0, 20, 400)}
    )
    frame = frame.filter((pl.col("user") != 1) | (pl.col("day") != 3))
    data = sl.Interactions.from_frame(frame, context=["user", "day"], item="i")
    models = {"ease": sl.EASE().fit(data), "composed": sl.PARAFAC(dim=3, epochs=2).fit(data)}
    first = getattr(sl, name)(dim=3, epochs=2).fit(data)
    asked = [(1, 3), (2, 1), (1, 77)]
    found = two(first, models=models).retrieve(asked, unknown="average")
    assert np.isnan(found.column("model:ease")).tolist() == [True] * 8 + [False] * 8 + [True] * 8
    lists = np.split(np.array(found.items), found.indptr[1:-1])
    scores = models["composed"].score(asked, [one.tolist() for one in lists], unknown="average")
    np.testing.assert_allclose(found.column("model:composed"), np.concatenate(scores), rtol=1e-4, atol=1e-6)


def test_items_that_only_stage_one_knows(data):
    frame = pl.DataFrame({"product": range(40), "kind": ["abc"[k % 3] for k in range(40)]})
    features = sl.Features.from_frame(frame, id="product")
    first = sl.FeatureIALS(dim=3, epochs=2).fit(data, item_features=features)
    found = two(first, models=[sl.EASE().fit(data)], candidates=40).retrieve(["u1"])
    new = np.array(found.items) >= 30
    assert new.sum() == 10
    np.testing.assert_array_equal(np.isnan(found.column("model:EASE")), new)


def test_features_of_items_and_contexts(data, model):
    items = pl.DataFrame({"product": [3, 1, 2], "colour": ["red", "blue", "red"], "price": [1.0, 3.0, None]})
    people = sl.Features.from_frame({"user": ["u1", "u9"], "age": [30.0, 50.0]}, id="user", numeric={"age": "raw"})
    found = two(model, item_features=items, context_features=people, candidates=30).retrieve(
        ["u1", "u2"], exclude_seen=False
    )
    features = sl.Features.from_frame(items, id=["product"])
    names = [f"item:{name}" for name in features.feature_names] + ["context:age", "context:age (missing)"]
    assert list(found.feature_names[len(PAIR + COSINES) :]) == names
    for row, item in enumerate(found.items):
        known = {1, 2, 3} & {item}
        own = features[item] if known else {"colour (missing)": 1.0, "price (missing)": 1.0}
        for name in features.feature_names:
            assert found.column(f"item:{name}")[row] == pytest.approx(own.get(name, 0.0)), (item, name)
    first = found.query_of == 0
    assert set(found.column("context:age")[first]) == {30.0}
    assert set(found.column("context:age (missing)")[~first]) == {1.0}
    new_contexts = two(model, context_features=people).retrieve(history=[[1], []])
    assert set(new_contexts.column("context:age (missing)")) == {1.0}
    assert set(new_contexts.column("context:age")) == {0.0}


def test_frames_of_every_kind(data, model):
    frame = pl.DataFrame({"product": [3, 1, 2], "colour": ["red", "blue", "red"], "price": [1.0, 3.0, None]})
    people = pl.DataFrame({"user": ["u1", "u2"], "age": [30.0, 40.0]})
    expected = two(model, item_features=frame, context_features=people).retrieve(["u1", "u3"])
    for made in (pl.DataFrame.to_pandas, pl.DataFrame.to_arrow, pl.DataFrame.lazy, pl.DataFrame.to_dict):
        found = two(model, item_features=made(frame), context_features=made(people)).retrieve(["u1", "u3"])
        assert found.feature_names == expected.feature_names
        np.testing.assert_array_equal(found.features, expected.features)
    with pytest.raises(sl.DataError, match="item_features: the frame: no column 'product'"):
        two(model, item_features=people)


def test_features_of_ones_own(data, model):
    def even(candidates):
        return {"even": np.array(candidates.items) % 2 == 0, "unknown": [None] * len(candidates)}

    def joined(candidates):
        prices = pl.DataFrame({"product": [1, 2], "price": [5.0, 6.0]})
        return candidates.to_polars().join(prices, on="product", how="left", maintain_order="left").select("price")

    found = two(model, extra=even).retrieve(["u1", "u2"])
    assert found.feature_names[-2:] == ("extra:even", "extra:unknown")
    np.testing.assert_array_equal(found.column("extra:even"), np.array(found.items) % 2 == 0)
    assert np.isnan(found.column("extra:unknown")).all()
    price = two(model, extra=joined, candidates=30).retrieve(["u1"], exclude_seen=False)
    told = dict(zip(price.items, price.column("extra:price")))
    assert (told[1], told[2]) == (5.0, 6.0)
    assert np.isnan(told[3])


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (lambda c: [1] * len(c), "returned a list"),
        (lambda c: pl.DataFrame({"a": [1]}), r"1 rows for 8 candidates"),
        (lambda c: {"a": ["x"] * len(c)}, "has type String"),
        (lambda c: {"a": [np.inf] * len(c)}, "infinite"),
        (lambda c: {"a": c.ranks, "b": c.ranks[:3]}, "columns that do not form a frame"),
        (lambda c: {3: c.ranks}, "a column named 3"),
    ],
)
def test_functions_that_do_not_describe_candidates(model, extra, told):
    with pytest.raises(sl.SettingError, match=told):
        two(model, extra=extra).retrieve(["u1"])


def test_columns_of_the_data_keep_their_names():
    renamed = events().to_polars().rename({"user": "rank", "product": "score"})
    other = sl.Interactions.from_frame(renamed, context="rank", item="score")
    found = two(sl.EASE().fit(other)).retrieve(["u1"])
    assert found.to_polars().columns[:4] == ["rank", "score", "score_", "relative_score"]
    assert "rank_" in found.to_polars().columns
    assert "Candidates(8 of EASE for 1 query, 6 features: score" in repr(found)
    with pytest.raises(sl.SettingError, match="no feature is called 'x'"):
        found.column("x")


def test_some_queries_are_described_as_all_of_them_are(data, model):
    everyone = two(model, item_features=pl.DataFrame({"product": [1], "x": [2.0]})).retrieve(data.contexts.ids())
    chosen = np.array([7, 0, 3])
    part = everyone.select(chosen)
    again = two(model, item_features=pl.DataFrame({"product": [1], "x": [2.0]})).retrieve(
        [data.contexts.ids()[q] for q in chosen]
    )
    assert part.items == again.items
    np.testing.assert_allclose(part.features, again.features, rtol=1e-4, atol=1e-5)
    chosen_by_name = everyone.select([q in (0, 3, 7) for q in range(everyone.n_queries)])
    assert chosen_by_name.items == everyone.select([0, 3, 7]).items
    assert len(everyone.select([])) == 0


@pytest.mark.parametrize("wrong", [[-1], [99], [0.5], 3, [True], [[0]], ["a"]])
def test_queries_that_there_are_not(data, model, wrong):
    with pytest.raises(sl.SettingError, match=r"expected integers from 0 to 2, or True or False for each of 3 queries"):
        two(model).retrieve(["u1", "u2", "u3"]).select(wrong)


def test_features_in_lists(model):
    found = two(model).retrieve(["u1"])
    assert found.with_features([[1, 2]] * 8, ["a", "b"]).column("b").tolist() == [2.0] * 8
    for wrong, told in (
        ([[1, 2], [3]] * 4, "not a matrix of numbers"),
        ([1] * 8, r"has shape \(8,\)"),
        (["x"], "not a matrix of numbers"),
    ):
        with pytest.raises(sl.SettingError, match=told):
            found.with_features(wrong, ["a", "b"])
