import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import shortlist as sl

ALL = {"probes": 10**6, "refine": 10**6}


@pytest.fixture(scope="module")
def events():
    return sl.datasets.load("online-retail").interactions


@pytest.fixture(scope="module")
def model(events):
    return sl.IALS(dim=12, epochs=3).fit(events)


@pytest.fixture(scope="module")
def index(model):
    return model.index("quantized", **ALL)


def same(found, expected):
    assert found.ids == expected.ids
    assert found.queries == expected.queries
    for one, other in zip(found.scores, expected.scores):
        assert np.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_an_index_answers_as_the_model_does(model, index, events):
    whom = events.contexts.ids()[:40]
    some = events.items.ids()[:60]
    same(index.search(whom, n=7), model.recommend(whom, n=7))
    same(index.search(whom, n=7, exclude_seen=False), model.recommend(whom, n=7, exclude_seen=False))
    same(index.search(whom, n=70, allow=some), model.recommend(whom, n=70, allow=some))
    same(index.search(whom, n=7, deny=some), model.recommend(whom, n=7, deny=some))
    lists = [some[k:] for k in range(40)]
    same(index.search(whom, n=7, deny=lists), model.recommend(whom, n=7, deny=lists))
    same(index.search(whom, n=7, allow=lists), model.recommend(whom, n=7, allow=lists))
    histories = [some[:3], [], some[5:9]]
    same(index.search(history=histories, n=7), model.recommend(history=histories, n=7))
    slate = sl.slates.MMR(0.5)
    same(index.search(whom, n=7, slate=slate), model.recommend(whom, n=7, slate=slate))
    found, expected = index.search(whom[:2], n=10**6), model.recommend(whom[:2], n=10**6)
    for one, other in zip(found.ids, expected.ids):  # products may round differently, so near ones may change places
        assert sorted(one) == sorted(other)


@pytest.mark.parametrize("frame", [pl.DataFrame, pd.DataFrame, pa.table, dict])
def test_contexts_in_a_frame(model, index, events, frame):
    whom, some = events.contexts.ids()[:4], events.items.ids()[:6]
    same(index.search(frame({"customer": whom}), n=7), model.recommend(whom, n=7))
    found = index.search(frame({"customer": [*whom, -1]}), n=7, unknown="skip")
    assert (found.queries, found.skipped) == (whom, [-1])
    with pytest.raises(sl.SettingError, match="expected a list of item ids"):
        index.only(allow=frame({"product": some}))


def test_vectors_are_queries_too(model, index):
    vectors = model.fold_in([["10002"], ["10080", "10120"]])
    found = index.search(vectors, n=5)
    same(found, index.search(history=[["10002"], ["10080", "10120"]], n=5, exclude_seen=False))
    assert found.to_polars().columns[0] == "query"
    assert "10002" not in index.search(vectors, n=5, deny=[["10002"], []]).ids[0]


def test_part_of_the_catalogue(model, index, events):
    whom = events.contexts.ids()[:10]
    ids = events.items.ids()
    half = index.only(deny=ids[::2])
    same(half.search(whom, n=9), model.recommend(whom, n=9, deny=ids[::2]))
    both = half.only(allow=ids[:400])
    same(both.search(whom, n=9), model.recommend(whom, n=9, allow=ids[1:400:2]))
    same(both.search(whom, n=9, deny=ids[:41]), model.recommend(whom, n=9, allow=ids[41:400:2]))
    same(both.search(whom, n=9, allow=ids[300:]), model.recommend(whom, n=9, allow=ids[301:400:2]))
    assert "50.0% of them allowed" in repr(half)
    with pytest.raises(sl.SettingError, match="one list of item ids for all queries"):
        index.only(allow=[ids[:3]])


def test_unknown_contexts_and_mistakes(index):
    assert index.search([12347, -5], n=2, unknown="skip").skipped == [-5]
    with pytest.raises(sl.UnknownIdError):
        index.search([-5], n=2)
    with pytest.raises(sl.SettingError, match="pass either vectors or history=, not both"):
        index.search(np.zeros((1, 12)), history=[[]])
    with pytest.raises(sl.SettingError, match="query vectors have 3 dimensions; the items have 12"):
        index.search(np.zeros((1, 3)))
    with pytest.raises(
        sl.SettingError, match=r"expected a row for each query; for a single vector write vector\[None\]"
    ):
        index.search(np.zeros(12))
    with pytest.raises(sl.SettingError, match="threads is 0"):
        index.search([12347], threads=0)
    with pytest.raises(sl.SettingError, match="has no setting 'priority'; it has precision"):
        index.model.index("exact", priority=[1])
    with pytest.raises(sl.SettingError, match="expected an Index"):
        sl.UserState(index.model, ["10002"]).recommend(3, index="x")
    with pytest.raises(sl.SettingError, match="n is 0"):
        index.search([12347], n=0)
    with pytest.raises(sl.SettingError, match="exclude_seen is 'no'; expected True or False"):
        index.search([12347], exclude_seen="no")
    with pytest.raises(sl.SettingError, match="unknown is 'zzz'"):
        index.search(np.zeros((1, 12)), unknown="zzz")


def test_an_index_belongs_to_a_model_as_it_was(events):
    model = sl.IALS(dim=4, epochs=1).fit(events)
    index = model.index()
    model.fit(events)
    with pytest.raises(sl.SettingError, match="fitted again"):
        index.search([12347])


def test_a_fit_during_a_search_is_noticed(events, monkeypatch):
    model = sl.IALS(dim=4, epochs=1).fit(events)
    index = model.index("exact")
    search = index.vectors.search

    def slow(*args, **settings):
        found = search(*args, **settings)
        model.fit(sl.datasets.synthetic(50, 40, 500, seed=1))
        return found

    monkeypatch.setattr(index.vectors, "search", slow)
    with pytest.raises(sl.SettingError, match="fitted again"):
        index.search([12347])


def test_ids_in_an_array_are_not_taken_for_vectors():
    rng = np.random.default_rng(0)
    frame = {"user": rng.integers(0, 9, 400), "day": rng.integers(0, 7, 400), "item": rng.integers(0, 30, 400)}
    model = sl.IALS(dim=2, epochs=2).fit(sl.Interactions.from_frame(frame, context=["user", "day"], item="item"))
    index = model.index("exact")
    ids = model.contexts_.ids()[:3]
    same(index.search(ids, n=4), model.recommend(ids, n=4))
    for asked in (np.array(ids), np.array(ids) > 0):
        with pytest.raises(sl.ShortlistError) as of_index:
            index.search(asked, n=4)
        with pytest.raises(sl.ShortlistError) as of_model:
            model.recommend(asked, n=4)
        assert str(of_index.value) == str(of_model.value)
    with pytest.raises(sl.SettingError, match=r"np.stack\(vectors\)"):
        index.search([model.context_embeddings_[0]], n=4)


def test_an_index_tells_what_it_is(model, capsys):
    index = model.index("quantized", target_recall=0.9, n=20, progress=True)
    told = capsys.readouterr().err
    assert "lists, round 1" in told
    assert repr(index) in told
    assert index.kind == "quantized"
    assert index.settings.keys() == {"probes", "refine"}
    assert index.measured.recall > 0.85
    assert len(index) == len(model.items_)
    assert model.index().kind == "exact"
    assert "fast enough" in model.index().why
    assert repr(model.index("exact", precision="int8")).startswith("Index('exact', precision=int8) of IALS")
    assert f"Index('quantized', lists={index.vectors.n_lists}, probes=" in repr(index)


def test_a_recall_that_is_not_reached_is_warned_of(model):
    with pytest.warns(sl.ShortlistWarning, match=r"below target_recall=0.99"):
        model.index("quantized", target_recall=0.99, probes=1)


def test_users_that_move_may_ask_an_index(model, index):
    state = sl.UserState(model, ["10002", "10080"])
    same(state.recommend(5, index=index), state.recommend(5))
    other = sl.IALS(dim=4, epochs=1).fit(sl.Interactions.from_frame({"c": [1], "i": ["a"]}, context="c", item="i"))
    with pytest.raises(sl.SettingError, match="belongs to another model"):
        state.recommend(5, index=other.index("exact"))


@pytest.mark.parametrize("make", [sl.BPR, sl.FactorizationMachine, sl.RankALS, sl.SoftmaxMF])
def test_models_with_and_without_biases_have_indexes(make, events):
    model = make(dim=6, epochs=1, seed=1).fit(events, threads=1)
    whom = events.contexts.ids()[:20]
    same(model.index("quantized", **ALL).search(whom, n=5), model.recommend(whom, n=5))


def test_contexts_by_their_name_in_recommend():
    events = sl.Interactions.from_frame({"u": [1, 1, 2, 3], "i": [1, 2, 3, 1]}, context="u", item="i")
    index = sl.IALS(dim=2, epochs=1).fit(events).index("exact")
    assert index.search(contexts=[1, 3], n=1).ids == index.search([1, 3], n=1).ids
    for queries, contexts in (([1], [1]), (None, np.zeros((1, 2)))):
        with pytest.raises(sl.SettingError, match="pass either queries"):
            index.search(queries, contexts=contexts)


def test_an_index_of_an_older_state_cannot_be_restricted():
    events = sl.Interactions.from_frame({"u": [1, 1, 2], "i": ["a", "b", "a"]}, context="u", item="i")
    model = sl.IALS(dim=2, epochs=1, regularization=0.1, unobserved_weight=0.1).fit(events)
    index = model.index("exact")
    model.partial_fit(sl.Interactions.from_frame({"u": [1], "i": ["c"]}, context="u", item="i"))
    for call in (lambda: index.search([1]), lambda: index.only(deny=["a"])):
        with pytest.raises(sl.SettingError, match="fitted again or got new items after this index was made") as caught:
            call()
        assert caught.value.code == "stale-index"
