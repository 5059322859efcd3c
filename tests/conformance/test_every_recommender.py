"""What every recommender must do, now and later: each in the registry is run through all of this.

A new recommender takes part by being in the registry; where its default settings are slow on tiny data, or its support
for something is stated not to be there, it says so in `CASES`.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import shortlist as sl
from shortlist.data.vocabulary import Vocabulary
from shortlist.recommenders.alternating import Alternating
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.multilinear_model import MultilinearModel
from shortlist.recommenders.registry import REGISTRY, recommender_class
from shortlist.recommenders.sgd_factorization import SGDFactorization

pytestmark = pytest.mark.usefixtures("default_threads")


@dataclass(frozen=True)
class Case:
    settings: dict[str, Any] = field(default_factory=dict)
    similar: bool = True  # has a notion of similar items
    seeded: bool = False  # has start values that a seed decides


SAMPLED = {"dim": 2, "epochs": 150, "learning_rate": 0.1}

CASES = {
    "Popularity": Case(similar=False),
    "EASE": Case({"regularization": 5.0}),
    "IALS": Case({"dim": 6, "epochs": 4}, seeded=True),
    "ICD": Case({"dim": 6, "epochs": 12}, seeded=True),
    "RankALS": Case({"dim": 6, "epochs": 8, "regularization": 0.1}, seeded=True),
    "PARAFAC": Case({"dim": 6, "epochs": 8}, seeded=True),
    "Tucker": Case({"dim": 6, "epochs": 8}, seeded=True),
    "FactorizationMachine": Case({"dim": 6, "epochs": 8}, seeded=True),
    "FeatureIALS": Case({"dim": 6, "epochs": 8}, seeded=True),
    "ItemKNN": Case({"neighbours": 10}),
    "UserKNN": Case({"neighbours": 10}),
    "SLIM": Case({"l1": 0.1, "l2": 2.0}),
    "MatrixFactorization": Case(
        {**SAMPLED, "sampler": "Popularity(beta=0.5)", "objective": "Pairwise('square')", "learning_rate": 0.02},
        seeded=True,
    ),
    "BPR": Case(SAMPLED, seeded=True),
    "AdaptiveBPR": Case({**SAMPLED, "gamma": 10.0}, seeded=True),
    "WARP": Case({**SAMPLED, "learning_rate": 0.05}, seeded=True),
    "LambdaMF": Case({**SAMPLED, "dim": 6, "n_negatives": 2}, seeded=True),
    "LogisticMF": Case({**SAMPLED, "regularization": 0.03}, seeded=True),
    "HingeMF": Case({**SAMPLED, "learning_rate": 0.03, "regularization": 0.2, "n_negatives": 1}, seeded=True),
    "SquareMF": Case({**SAMPLED, "learning_rate": 0.03, "regularization": 0.1}, seeded=True),
    "SoftmaxMF": Case({"dim": 4, "epochs": 60, "learning_rate": 0.03}, seeded=True),
}


def make(name: str, **more: Any) -> Any:
    return recommender_class(name)(**{**CASES[name].settings, **more})


def quick(name: str) -> Any:
    """The same after few epochs, for tests in which it does not matter what was learnt."""
    return make(name, **({"epochs": 2} if "epochs" in CASES[name].settings else {}))


def events(kind: str = "text") -> sl.Interactions:
    """40 contexts × 25 items with taste: even contexts like even items."""
    rng = np.random.default_rng(3)
    users, items = [], []
    for u in range(40):
        liked = rng.permutation(np.arange(u % 2, 25, 2))[: rng.integers(3, 9)]
        users += [u] * len(liked)
        items += list(liked)
    users_, items_ = np.array(users), np.array(items)
    if kind == "text":
        frame = {"user": [f"u{u}" for u in users_], "product": [f"i-{i} ü" for i in items_]}
        return sl.Interactions.from_frame(frame, context="user", item="product")
    if kind == "tuple":
        frame = {"user": [f"u{u // 2}" for u in users_], "day": users_ % 2, "product": items_}
        return sl.Interactions.from_frame(frame, context=["user", "day"], item="product")
    dtype = getattr(pl, kind)
    frame = pl.DataFrame({"user": pl.Series(users_).cast(dtype), "product": pl.Series(items_ + 3).cast(dtype)})
    return sl.Interactions.from_frame(frame, context="user", item="product")


@pytest.fixture(scope="module", params=sorted(REGISTRY))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def data() -> sl.Interactions:
    return events()


@pytest.fixture(scope="module")
def model(name: str, data: sl.Interactions) -> Any:
    """Return a fitted model that the tests of this module share: a test that changes a model fits its own."""
    return make(name).fit(data)


def test_every_recommender_has_a_case():
    assert set(CASES) == set(REGISTRY)


def test_fit_returns_itself_and_learns_nothing_into_settings(name, data):
    model = make(name)
    before = model.settings()
    assert model.fit(data) is model
    assert model.settings() == before | model.derived_
    assert set(model.derived_) == {key for key in type(model).derivable if before[key] is None}
    assert type(model)(**model.settings()).settings() == model.settings()


def test_unfitted_use_is_refused(name):
    model = make(name)
    for call in (
        lambda: model.recommend(["u1"]),
        lambda: model.score(["u1"], [["x"]]),
        lambda: model.rank(["u1"], [["x"]]),
        lambda: model.similar_items(["x"]),
        lambda: model.save("nowhere"),
        lambda: sl.write_lists(model, "nowhere.parquet"),
    ):
        with pytest.raises(sl.NotFittedError, match="has not been fitted"):
            call()


def test_single_equals_batch(model, data):
    everyone = data.contexts.ids()
    batch = model.recommend(everyone, n=7)
    for k in (0, 5, 39):
        alone = model.recommend([everyone[k]], n=7)
        assert alone.ids[0] == batch.ids[k]
        np.testing.assert_allclose(alone.scores[0], batch.scores[k], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["text", "tuple"])
def test_lists_for_everybody_are_those_of_recommend(name, kind, tmp_path):
    data = events(kind)
    model = quick(name).fit(data)
    sl.write_lists(model, tmp_path / "lists.parquet", n=7, block=9, progress=False)
    found, expected = pl.read_parquet(tmp_path / "lists.parquet"), model.recommend(data.contexts.ids(), n=7).to_polars()
    assert found.drop("score").equals(expected.drop("score"))
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-5, atol=1e-6)


FRAMES = {"polars": pl.DataFrame, "lazy": pl.LazyFrame, "pandas": pd.DataFrame, "Arrow": pa.table, "columns": dict}


@pytest.mark.parametrize("kind", ["text", "tuple"])
def test_contexts_may_be_a_frame_of_any_library(name, kind, tmp_path):
    data = events(kind)
    model = quick(name).fit(data)
    known, items = data.contexts.ids()[5:9], data.items.ids()[:3]
    rows = [one if kind == "tuple" else (one,) for one in known]
    columns = {one: list(values) for one, values in zip(data.contexts.names, zip(*rows))}
    stranger = {"user": ["nobody"], "day": [7]}
    longer = {one: columns[one] + stranger[one] for one in columns}
    expected, scores = model.recommend(known, n=3), model.score(known, [items] * 4)
    ranks = [one.tolist() for one in model.rank(known, [items] * 4)]
    for frame in FRAMES.values():
        for given in (frame(columns), frame(dict(reversed(columns.items())))):
            found = model.recommend(given, n=3)
            assert (found.queries, found.ids) == (known, expected.ids)
        np.testing.assert_array_equal(model.score(frame(columns), [items] * 4), scores)
        assert [one.tolist() for one in model.rank(frame(columns), [items] * 4)] == ranks
        found = model.recommend(frame(longer), n=3, unknown="skip")
        assert (found.queries, found.ids) == (known, expected.ids)
        assert found.skipped == [("nobody", 7) if kind == "tuple" else "nobody"]
        with pytest.raises(sl.UnknownIdError, match=r"unknown context .*nobody"):
            model.recommend(frame(longer), n=3)
        with pytest.raises(sl.SettingError, match=r"frame of contexts has the columns .*; expected user"):
            model.recommend(frame({**columns, "more": [1, 2, 3, 4]}))
    for frame in (pl.DataFrame, pd.DataFrame, dict):
        path = tmp_path / f"{frame.__module__}.parquet"
        done = sl.write_lists(model, path, contexts=frame(longer), n=3, unknown="skip", progress=False)
        assert (done.contexts, len(done.skipped)) == (4, 1)
        assert pl.read_parquet(path).drop("score").equals(expected.to_polars().drop("score"))


def test_similar_items_may_be_asked_for_by_a_frame(name, data):
    model, items = quick(name).fit(data), data.items.ids()[:2]
    if not CASES[name].similar:
        for frame in FRAMES.values():
            with pytest.raises(sl.SettingError, match="cannot find similar items"):
                model.similar_items(frame({"product": items}), n=3)
        return
    expected = model.similar_items(items, n=3)
    for frame in FRAMES.values():
        found = model.similar_items(frame({"product": items}), n=3)
        assert (found.queries, found.ids) == (items, expected.ids)
        assert model.similar_items(frame({"product": [*items, "x"]}), n=3, unknown="skip").ids == expected.ids


def test_scores_fall_and_are_those_of_score(model):
    answer = model.recommend(["u3", "u8"], n=9)
    scores = model.score(["u3", "u8"], answer.ids)
    for got, again in zip(answer.scores, scores):
        assert (np.diff(got) <= 0).all()
        np.testing.assert_allclose(got, again, rtol=1e-5, atol=1e-6)


def test_slates_are_picked_from_the_best(model, data):
    everyone, denied = data.contexts.ids(), [data.items.ids()[0]]
    best = model.recommend(everyone, n=5)
    pools = [set(one) for one in model.recommend(everyone, n=12, deny=denied).ids]
    left = data.n_items - len(set(data.history("u3")))
    for kind in sl.slates.SLATES.values():
        same = model.recommend(everyone, n=5, slate=kind(0.0))
        assert same.ids == best.ids
        assert all(np.array_equal(one, other) for one, other in zip(same.scores, best.scores))
        slate = kind(0.7, 12)
        answer = model.recommend(everyone, n=5, slate=slate, deny=denied)
        assert all(len(set(one)) == 5 and set(one) <= pool for one, pool in zip(answer.ids, pools))
        for got, again in zip(answer.scores, model.score(everyone, answer.ids)):
            np.testing.assert_allclose(got, again, rtol=1e-5, atol=1e-6)
        assert model.recommend(everyone, n=5, slate=slate, deny=denied, threads=1).ids == answer.ids
        for n in (12, left, 1000):  # more than the pool, and than there are
            assert len(set(model.recommend(["u3"], n=n, slate=slate).ids[0])) == min(n, left)
        new_users = model.recommend(history=[data.history("u3"), []], n=5, slate=slate)
        assert [len(one) for one in new_users.ids] == [5, 5]


def test_exactly_n_whenever_the_filters_leave_n(model, data):
    seen = set(data.history("u3"))
    left = data.n_items - len(seen)
    for n in (1, left - 1, left, left + 1, 1000):
        assert len(model.recommend(["u3"], n=n).ids[0]) == min(n, left)
        assert len(model.recommend(["u3"], n=n, exclude_seen=False).ids[0]) == min(n, data.n_items)


def test_answers_are_distinct_items_of_the_catalogue(model, data):
    for ids in model.recommend(data.contexts.ids(), n=12).ids:
        assert len(set(ids)) == len(ids) == 12
        assert set(ids) <= set(data.items.ids())


def test_seen_items_are_left_out_or_not(model, data):
    everyone = data.contexts.ids()
    for context, ids in zip(everyone, model.recommend(everyone, n=25).ids):
        assert not set(ids) & set(data.history(context))
    for context, ids in zip(everyone, model.recommend(everyone, n=25, exclude_seen=False).ids):
        assert set(data.history(context)) <= set(ids)


def test_allow_and_deny_for_all_and_per_query(model, data):
    ids = data.items.ids()
    few = ids[:6]
    assert set(model.recommend(["u3"], n=25, allow=few, exclude_seen=False).ids[0]) == set(few)
    assert not set(model.recommend(["u3"], n=25, deny=few).ids[0]) & set(few)
    allow = [ids[:4], ids[10:12]]
    answer = model.recommend(["u3", "u8"], n=25, allow=allow, exclude_seen=False).ids
    assert [set(one) for one in answer] == [set(one) for one in allow]
    answer = model.recommend(["u3", "u8"], n=25, deny=allow, exclude_seen=False).ids
    assert [set(ids) - set(one) for one in answer] == [set(one) for one in allow]
    both = model.recommend(["u3"], n=25, allow=few, deny=few[:2], exclude_seen=False).ids[0]
    assert set(both) == set(few[2:])
    assert model.recommend(["u3"], n=3, allow=[]).ids == [[]]
    assert model.recommend(["u3"], allow=["no such", few[0]], exclude_seen=False).ids == [[few[0]]]


def test_filters_per_query_go_with_skipped_contexts(model, data):
    ids = data.items.ids()
    answer = model.recommend(["nobody", "u3"], n=25, allow=[ids[:2], ids[5:9]], exclude_seen=False, unknown="skip")
    assert [set(one) for one in answer.ids] == [set(ids[5:9])]
    answer = model.recommend(["u3", "nobody"], n=25, deny=[ids[:20], []], exclude_seen=False, unknown="skip")
    assert [set(one) for one in answer.ids] == [set(ids[20:])]


def test_questions_in_any_container(model, data):
    expected = model.recommend(["u3", "u8"], n=3).ids
    for contexts in (
        np.array(["u3", "u8"]),
        pl.Series(["u3", "u8"]),
        ("u3", "u8"),
        iter(["u3", "u8"]),
        {"u3": 1, "u8": 2},
    ):
        assert model.recommend(contexts, n=3).ids == expected
    few = data.items.ids()[:4]
    expected = model.recommend(["u3"], n=9, allow=few, exclude_seen=False).ids
    for allow in (
        np.array(few),
        pl.Series(few),
        set(few),
        iter(few),
        [np.array(few)],
        [iter(few)],
        [dict.fromkeys(few)],
    ):
        assert model.recommend(["u3"], n=9, allow=allow, exclude_seen=False).ids == expected
    told = model.recommend(history=[few], n=3).ids
    others = [np.array(few)], [pl.Series(few)], [pd.Series(few)], [pa.array(few)], ((one for one in few),), [few + few]
    for history in (iter([few]), *others):
        assert model.recommend(history=history, n=3).ids[0][:1] == told[0][:1]


def test_questions_that_are_no_lists(name):
    model = quick(name).fit(events("Int64"))
    for call in (
        lambda: model.recommend(0),
        lambda: model.recommend(np.int64(7)),
        lambda: model.recommend([1], deny=np.int64(3)),
        lambda: model.recommend([1], deny=3.5),
        lambda: model.recommend([1], deny=pl.DataFrame({"i": [5]})),
        lambda: model.recommend([1], deny=[pd.DataFrame({"i": [5]})]),
        lambda: model.score([1], pd.DataFrame({"i": [5]})),
        lambda: model.score([1], [pa.table({"i": [5]})]),
        lambda: model.recommend(history=5),
        lambda: model.score([1], [np.int64(5)]),
        lambda: model.score([1], None),
    ):
        with pytest.raises(sl.SettingError, match="expected"):
            call()
    for wrong in ([3.0], [None], [True], [[5, 6.0]]):
        with pytest.raises(sl.UnknownIdError, match="item ids are integers"):
            model.recommend([1], deny=wrong)
    for weights in ({5: None}, {5: "x"}, {5: float("nan")}):
        with pytest.raises(sl.DataError, match="expected weights from 0 to"):
            model.recommend(history=[weights])
    with pytest.raises(sl.UnknownIdError, match="drop unknown ids"):
        model.rank([1], [[99]])


def test_filters_keep_the_order(model, data):
    ids = data.items.ids()
    whole = model.recommend(["u3"], n=25, exclude_seen=False).ids[0]
    kept = model.recommend(["u3"], n=25, deny=ids[::3], exclude_seen=False).ids[0]
    assert kept == [one for one in whole if one not in set(ids[::3])]


def test_wrong_filters_say_so(model):
    with pytest.raises(sl.UnknownIdError, match="item ids are text"):
        model.recommend(["u3"], deny=[3])
    with pytest.raises(sl.SettingError, match="expected one per query"):
        model.recommend(["u3"], allow=[["a"], ["b"]])
    with pytest.raises(sl.SettingError, match="mixes ids and lists"):
        model.recommend(["u3"], allow=["a", ["b"]])
    with pytest.raises(sl.SettingError, match="expected a list of item ids"):
        model.recommend(["u3"], allow="abc")


def test_unknown_contexts_are_refused_or_skipped(model):
    with pytest.raises(sl.UnknownIdError, match=r"unknown context 'nobody' \(1 of 2 ids is unknown; .* unknown='skip'"):
        model.recommend(["u3", "nobody"])
    answer = model.recommend(["nobody", "u3"], unknown="skip")
    assert answer.queries == ["u3"]
    assert answer.skipped == ["nobody"]
    assert answer.ids == model.recommend(["u3"]).ids
    with pytest.raises(sl.UnknownIdError, match="of type str"):
        model.recommend([3])
    assert len(model.recommend(["nobody"], unknown="skip")) == 0
    assert len(model.recommend([])) == 0
    assert model.rank([], []) == model.score([], []) == []


def test_unknown_items_in_a_history_are_refused_or_skipped(model, data):
    known = data.items.ids()[0]
    with pytest.raises(sl.UnknownIdError, match="unknown item 'no such'"):
        model.recommend(history=[[known, "no such"]])
    skipped = model.recommend(history=[[known, "no such"]], unknown="skip")
    assert skipped.ids == model.recommend(history=[[known]]).ids
    with pytest.raises(sl.UnknownIdError, match="unknown item"):
        model.score(["u3"], [["no such"]])


def test_queries_that_make_no_sense(model):
    with pytest.raises(sl.SettingError, match="one of the two"):
        model.recommend()
    with pytest.raises(sl.SettingError, match="one of the two"):
        model.recommend(["u3"], history=[[]])
    with pytest.raises(sl.SettingError, match=r"write \['u3'\]"):
        model.recommend("u3")
    with pytest.raises(sl.SettingError, match="one history per query"):
        model.recommend(history="abc")
    with pytest.raises(sl.SettingError, match="list of item ids"):
        model.recommend(history=["abc"])
    for n in (0, -1, 2.5, True):
        with pytest.raises(sl.SettingError, match="n is"):
            model.recommend(["u3"], n=n)


def test_a_history_answers_as_the_context_that_has_it(model, data):
    everyone = data.contexts.ids()
    known = model.recommend(everyone, n=8)
    told = model.recommend(history=[data.history(one) for one in everyone], n=8)
    if isinstance(model, SGDFactorization):  # contexts are learnt beside the items, so these are near at best
        assert np.mean([len({*a} & {*b}) / 8 for a, b in zip(known.ids, told.ids)]) > 0.75
        return
    assert known.ids == told.ids
    for a, b in zip(known.scores, told.scores):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_many_may_ask_at_once(model, data):
    everyone = [data.history(one) for one in data.contexts.ids()]
    alone = [model.recommend(history=[one], n=5) for one in everyone]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda one: model.recommend(history=[one], n=5), everyone * 3))
    for one, expected in zip(together, alone * 3):
        assert one.ids == expected.ids
        np.testing.assert_array_equal(one.scores[0], expected.scores[0])


def test_histories_as_interactions_and_with_weights(model, data):
    answer = model.recommend(history=data, n=5)
    assert answer.queries == data.contexts.ids()
    assert answer.ids == model.recommend(history=[data.history(one) for one in data.contexts.ids()], n=5).ids
    item = data.items.ids()[0]
    assert model.recommend(history=[{item: 1.0}]).ids == model.recommend(history=[[item]]).ids
    with pytest.raises(sl.DataError, match="expected weights from 0 to"):
        model.recommend(history=[{item: -1.0}])


def order_matters(model: Any) -> bool:
    """Return whether permuting a history changes a score."""
    ids = model.items_.ids()
    histories = [ids[:4], ids[3:9], ids[1:8:2]]
    scores = model.score(None, [ids] * 3, history=histories)
    permuted = model.score(None, [ids] * 3, history=[history[::-1] for history in histories])
    return not np.array_equal(scores, permuted)


def test_the_order_of_a_history_matters_only_if_the_model_is_ordered(model):
    assert order_matters(model) == model.ordered


def test_an_item_named_twice_has_one_score(model, data):
    ids = data.items.ids()
    for scores in model.score(["u3", "u8"], [[ids[4], *ids, ids[4]]] * 2):
        assert scores[0] == scores[5] == scores[-1]


def test_an_empty_history_gets_the_popular_items(model, data):
    popular = make("Popularity").fit(data).recommend(history=[[]], n=25).ids
    assert model.recommend(history=[[]], n=25).ids == popular


def test_contexts_without_events(name, data):
    grown = data.extend(contexts=["newcomer"], items=["novelty"])
    model = quick(name).fit(grown)
    answer = model.recommend(["newcomer"], n=25).ids[0]
    assert len(answer) == 25
    popularity = data.by_context.take(np.arange(data.n_contexts))
    counts = np.bincount(popularity.indices, minlength=data.n_items)
    assert answer[0] == data.items.ids([int(np.argmax(counts))])[0]
    assert np.isfinite(model.score(["newcomer", "u3"], [["novelty"], ["novelty"]])).all()


def test_ranks_are_the_order_of_recommend(model, data):
    everyone = data.contexts.ids()
    for exclude_seen in (True, False):
        answer = model.recommend(everyone, n=9, exclude_seen=exclude_seen)
        for ranks in model.rank(everyone, answer.ids, exclude_seen=exclude_seen):
            assert ranks.tolist() == list(range(1, 10))
    seen = data.history("u3")
    assert set(model.rank(["u3"], [seen], exclude_seen=True)[0]) == {0}
    every = model.rank(["u3"], [data.items.ids()])[0]
    assert sorted(every) == list(range(1, data.n_items + 1))
    with pytest.raises(sl.SettingError, match="one list per query"):
        model.rank(["u3"], [[], []])


def test_similar_items(name, model, data):
    items = data.items.ids()[:3]
    if not CASES[name].similar:
        with pytest.raises(sl.SettingError, match="cannot find similar items"):
            model.similar_items(items)
        return
    answer = model.similar_items(items, n=4)
    assert [len(ids) for ids in answer.ids] == [4, 4, 4]
    assert all(one not in ids for one, ids in zip(items, answer.ids))
    assert answer.queries == items
    assert not set(model.similar_items(items, n=25, deny=items).ids[0]) & set(items)
    assert answer.to_polars().columns == ["product", "similar_product", "rank", "score"]
    # Even items are liked by even contexts, so the neighbours of an item share its parity.
    number = [
        int(one.split("-")[1].split()[0]) for ids in model.similar_items(data.items.ids(), n=3).ids for one in ids
    ]
    own = np.repeat([int(one.split("-")[1].split()[0]) for one in data.items.ids()], 3)
    assert np.mean((np.array(number) - own) % 2 == 0) > 0.9


def test_learns_taste(name, model, data):
    if name == "Popularity":
        pytest.skip("popularity knows no taste")
    hits = [
        (int(one.split("-")[1].split()[0]) - int(context[1:])) % 2 == 0
        for context, ids in zip(data.contexts.ids(), model.recommend(data.contexts.ids(), n=3).ids)
        for one in ids
    ]
    assert np.mean(hits) > 0.9


INTEGERS = ["Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"]
FAMILIES = [SGDFactorization, MultilinearModel, Alternating, Recommender]  # one is of the first that it belongs to


def family(name: str) -> Any:
    """The base whose recommenders share most of their code."""
    return next(base for base in FAMILIES if issubclass(recommender_class(name), base))


def id_types() -> list[tuple[str, str]]:
    """Text for every recommender, and each type of integers for at least one of every family."""
    pairs = [(name, "text") for name in sorted(REGISTRY)]
    for base in FAMILIES:
        members = [name for name in sorted(REGISTRY) if family(name) is base]
        rounds = max(2 * len(members), len(INTEGERS))
        pairs += [(members[k % len(members)], INTEGERS[k % len(INTEGERS)]) for k in range(rounds)]
    return list(dict.fromkeys(pairs))


def test_every_family_has_every_type_of_ids():
    assert {(family(name), kind) for name, kind in id_types()} == set(product(FAMILIES, [*INTEGERS, "text"]))


@pytest.mark.parametrize(("name", "kind"), id_types())
def test_ids_come_back_in_their_own_type(name, kind, tmp_path):
    data = events(kind)
    model = quick(name).fit(data)
    model.save(tmp_path / "model")
    for one in (model, sl.load(tmp_path / "model")):
        frame = one.recommend(data.contexts.ids()[:3], n=2).to_polars()
        assert frame["user"].dtype == data.to_polars()["user"].dtype
        assert frame["product"].dtype == data.to_polars()["product"].dtype
        assert frame["user"].to_list() == [one for one in data.contexts.ids()[:3] for _ in range(2)]


def test_tuple_contexts(name, tmp_path):
    data = events("tuple")
    model = quick(name).fit(data)
    model.save(tmp_path / "model")
    for one in (model, sl.load(tmp_path / "model")):
        answer = one.recommend([("u3", 1), ("u0", 0)], n=3)
        assert answer.queries == [("u3", 1), ("u0", 0)]
        assert answer.to_polars().columns == ["user", "day", "product", "rank", "score"]
        with pytest.raises(sl.UnknownIdError):
            one.recommend([("u3", 7)])


def test_saved_and_loaded_in_a_new_process_they_answer_the_same(data, tmp_path):
    """One process for all of them, as starting one takes longer than the rest."""
    models = {name: quick(name).fit(data) for name in sorted(REGISTRY)}
    for name, model in models.items():
        model.save(tmp_path / name)
    everyone = data.contexts.ids()
    script = (
        "import json, sys, shortlist as sl\n"
        "everyone, folder, answers = json.load(sys.stdin), sys.argv[1], {}\n"
        "for name in sys.argv[2:]:\n"
        "    model = sl.load(f'{folder}/{name}')\n"
        "    answer = model.recommend(everyone, n=6); told = model.recommend(history=[[model.items_.ids()[2]]], n=6)\n"
        "    answers[name] = {'ids': answer.ids + told.ids, 'settings': model.settings(),\n"
        "      'scores': [[float(s) for s in row] for row in answer.scores + told.scores]}\n"
        "print(json.dumps(answers))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), *models],
        input=json.dumps(everyone), capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = json.loads(run.stdout)
    assert set(answers) == set(REGISTRY)
    for name, model in models.items():
        got = answers[name]
        here, told = model.recommend(everyone, n=6), model.recommend(history=[[data.items.ids()[2]]], n=6)
        assert got["ids"] == here.ids + told.ids, name
        assert got["settings"] == model.settings(), name
        for a, b in zip(got["scores"], here.scores + told.scores):
            assert a == [float(score) for score in b], name


def test_the_same_seed_gives_the_same_scores_at_any_thread_count(name, data):
    items = [data.items.ids()] * 3
    people = ["u1", "u2", "u3"]
    one = make(name).fit(data, threads=1).score(people, items)
    for threads in (1, 2, 3):
        again = make(name).fit(data, threads=threads).score(people, items)
        np.testing.assert_allclose(again, one, rtol=1e-5, atol=1e-6)
    if CASES[name].seeded:
        assert not np.allclose(make(name, seed=99).fit(data).score(people, items), one)


def test_the_order_of_rows_does_not_matter(name, data):
    frame = data.to_polars()
    shuffled = sl.Interactions.from_frame(
        frame.sample(fraction=1, shuffle=True, seed=5), context="user", item="product"
    )
    a, b = make(name).fit(data), make(name).fit(shuffled)
    assert a.recommend(data.contexts.ids(), n=5).ids == b.recommend(data.contexts.ids(), n=5).ids


def test_one_item_one_context(name):
    tiny = sl.Interactions.from_frame({"u": ["only"], "i": [7]}, context="u", item="i")
    model = make(name).fit(tiny)
    assert model.recommend(["only"], n=3).ids == [[]]
    assert model.recommend(["only"], n=3, exclude_seen=False).ids == [[7]]
    assert model.recommend(history=[[]], n=3).ids == [[7]]
    assert model.rank(["only"], [[7]])[0].tolist() == [1]


def test_one_item_many_contexts_and_the_reverse(name):
    many = list(range(30))
    for frame in ({"u": many, "i": [1] * 30}, {"u": [1] * 30, "i": many}):
        model = make(name).fit(sl.Interactions.from_frame(frame, context="u", item="i"))
        answer = model.recommend([1], n=30, exclude_seen=False)
        assert np.isfinite(np.concatenate(answer.scores)).all()
        assert len(answer.ids[0]) == len(set(frame["i"]))


def test_settings_may_be_set_until_the_fit_which_checks_them(name, data):
    model = quick(name)
    model.weighting = "bogus"
    with pytest.raises(sl.SettingError, match="weighting is 'bogus'"):
        model.fit(data)
    model.weighting = "binary"
    before = quick(name).fit(data, threads=1).recommend(["u1"], n=3)
    assert model.fit(data, threads=1).recommend(["u1"], n=3).ids == before.ids
    assert model.fit(data, threads=1).recommend(["u1"], n=3).ids == before.ids  # it can be fitted again


def test_settings_of_a_fitted_model_are_frozen(name, model, data, tmp_path):
    model.save(tmp_path / "model")
    for fitted in (model, sl.load(tmp_path / "model"), copy.copy(model)):
        for setting, value in model.settings().items():
            with pytest.raises(sl.SettingError, match=rf"^{setting} cannot be set, because this {name} is fitted"):
                setattr(fitted, setting, value)
        assert fitted.settings() == model.settings()
    another = type(model)(**{**quick(name).settings(), "weighting": "log"}).fit(data)  # as the message advises
    assert another.weighting == "log"


def test_an_unknown_setting_is_refused(name, model):
    unfitted = make(name)
    for either in (unfitted, model):
        with pytest.raises(sl.SettingError, match=rf"{name} has no setting 'weightin'; did you mean 'weighting'\?"):
            either.weightin = "log"
        assert "weightin" not in vars(either)
    unfitted.extra_, unfitted._private = 1, 2  # free names


def test_settings_of_numpy_types_can_be_saved(name, data, tmp_path):
    kinds = {float: np.float64, int: np.int64, bool: np.bool_, str: str, NoneType: lambda none: none}
    settings = {key: kinds[type(value)](value) for key, value in make(name).settings().items()}
    make(name, **settings).fit(data).save(tmp_path / "model")
    loaded = sl.load(tmp_path / "model")
    assert loaded.settings() == make(name).settings() | loaded.derived_


def test_a_loaded_model_can_do_everything(model, data, tmp_path):
    model.save(tmp_path / "model")
    loaded = sl.load(tmp_path / "model")
    told = [data.history("u3"), []]
    assert loaded.recommend(history=told, n=4).ids == model.recommend(history=told, n=4).ids
    loaded.fit(events("tuple"))
    assert len(loaded.recommend([("u3", 1)], n=4).ids[0]) == 4


def test_what_could_not_be_loaded_is_not_saved_over_a_good_model(name, data, tmp_path):
    model = make(name, **({"epochs": 1} if "epochs" in make(name).settings() else {})).fit(data)
    model.save(tmp_path / "model")
    before = {one.name: one.read_bytes() for one in (tmp_path / "model").iterdir()}
    broken = copy.copy(model)
    broken.items_ = Vocabulary(model.items_.frame[:-1])
    with pytest.raises(sl.StorageError, match="the model could not be loaded again"):
        broken.save(tmp_path / "model")
    assert {one.name: one.read_bytes() for one in (tmp_path / "model").iterdir()} == before


def test_a_callback_may_stand_alone(name, data):
    quick(name).fit(data, callbacks=lambda epoch: None)


def test_who_learns_in_epochs_can_go_on_and_others_say_so(name, data, tmp_path):
    if "epochs" not in make(name).settings():
        for asked in ({"checkpoint": tmp_path / "c"}, {"start": make(name).fit(data)}):
            with pytest.raises(sl.SettingError, match=f"{name} does not learn in epochs and does not accept"):
                make(name).fit(data, **asked)
        return
    everyone, items = data.contexts.ids(), [data.items.ids()] * data.n_contexts
    how = {"schedule": "constant"} if "schedule" in make(name).settings() else {}  # what else depends on the epochs
    made = make(name, epochs=3, **how).fit(data, checkpoint=tmp_path / "c")
    how["epochs"] = made.epochs + 2
    resumed, whole = make(name, **how).fit(data, checkpoint=tmp_path / "c"), make(name, **how).fit(data)
    np.testing.assert_array_equal(resumed.score(everyone, items), whole.score(everyone, items))
    split = sl.splits.held_out_contexts(data, 8, fold_in=0.6)
    model = make(name, epochs=3).fit(split.train, validation=split, start=whole)
    assert 1 <= model.best_epoch_ <= len(model.training_)


def test_nothing_to_learn_from(name, data):
    with pytest.raises(sl.DataError, match="no events to learn from"):
        make(name).fit(data.select(np.zeros(len(data), bool)))


def test_wrong_input_to_fit(name):
    for wrong in (None, [[1, 2]], np.eye(3), "file.csv"):
        with pytest.raises(sl.DataError, match="fit expects Interactions"):
            make(name).fit(wrong)


def test_repr_shows_settings_and_state(name, model):
    assert repr(make(name)).startswith(f"{name}(")
    assert "fitted on 40 contexts × 25 items" in repr(model)


def test_answers_as_a_frame_and_as_text(model):
    answer = model.recommend(["u3", "u8"], n=2)
    frame = answer.to_polars()
    assert frame.columns == ["user", "product", "rank", "score"]
    assert frame["rank"].to_list() == [1, 2, 1, 2]
    assert frame["product"].to_list() == [one for ids in answer.ids for one in ids]
    assert answer[1] == list(zip(answer.ids[1], [float(s) for s in answer.scores[1]]))
    assert "user u3: " in repr(answer)
    assert json.loads(json.dumps(answer.to_dicts()))[0]["query"] == "u3"


def test_a_small_memory_budget_gives_the_same_answers(model, data):
    everyone = data.contexts.ids()
    assert model.recommend(everyone, n=5, memory=64).ids == model.recommend(everyone, n=5, memory="1GB").ids


def test_fitting_loads_no_heavy_library(tmp_path):
    """One process for all of them: what the first loads, it says before the next is fitted."""
    path = tmp_path / "events.csv"
    path.write_text("u,i\n" + "\n".join(f"u{k % 5},i{k % 7}" for k in range(60)))
    settings = {name: quick(name).settings() for name in sorted(REGISTRY)}
    script = (
        "import sys, shortlist as sl\n"
        f"events = sl.Interactions.read({str(path)!r}, context='u', item='i')\n"
        "heavy = {'torch', 'faiss', 'ray', 'fastapi', 'optuna', 'lightgbm', 'pandas', 'pyarrow', 'matplotlib'}\n"
        f"for name, settings in {settings!r}.items():\n"
        "    getattr(sl, name)(**settings).fit(events).recommend(['u1'])\n"
        "    loaded = heavy & set(sys.modules)\n"
        "    if loaded:\n"
        "        sys.exit(f'{name} loaded {loaded}')\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
