"""Every way to ask every recommender, in a process that was forked after polars' threads had started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import shortlist as sl
from conformance.test_every_recommender import events, make, quick
from forking import in_a_child, needs_fork, result
from shortlist.data import vocabulary
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.registry import REGISTRY
from shortlist.reranking.base import Reranker

pytestmark = [
    needs_fork,
    pytest.mark.usefixtures("default_threads"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
FAMILIES = ("BPR", "EASE", "FactorizationMachine", "IALS", "ItemKNN", "PARAFAC", "SoftmaxMF", "UserKNN")
MANY = 4200  # ids, from which on polars would look a Series up with its threads


def questions(model: Any, data: sl.Interactions) -> dict[str, Callable[[], Any]]:
    """Calls of everything that answers, by name."""
    known, items = data.contexts.ids(), data.items.ids()
    frame = data.contexts.frame[:4]
    columns = {column.name: column.to_list() for column in frame}
    other = data.select(slice(0, 60), compact=True)  # its own vocabularies
    lists = [items[:3], items[2:7]]
    history: list[Any] = [items[:2], {items[4]: 2.0}]

    def ask(**more: Any) -> Callable[[], Any]:
        return lambda: model.recommend(known[:2], **{"n": 4, **more})

    calls = {
        "known": ask(),
        "text of an answer": lambda: repr(ask()()),
        "dicts of an answer": lambda: ask()().to_dicts(),
        "one list of an answer": lambda: ask()()[1],
        "more than there are": ask(n=1000),
        "long frame": lambda: ask()().to_polars(),
        "long frame, lists of any length": lambda: ask(n=1000)().to_polars(),
        "frame of lists": lambda: ask()().to_polars("lists"),
        "frame of lists of any length": lambda: ask(n=1000)().to_polars("lists"),
        "allowed": ask(allow=items[3:9], exclude_seen=False),
        "allowed to each": ask(allow=lists),
        "denied": ask(deny=items[:5]),
        "denied to each": ask(deny=lists),
        "a slate": ask(slate=sl.slates.MMR(0.3)),
        "by a frame": lambda: model.recommend(frame, n=3),
        "by a frame of pandas": lambda: model.recommend(pd.DataFrame(columns), n=3),
        "by a table of Arrow": lambda: model.recommend(pa.table(columns), n=3),
        "by columns": lambda: model.recommend(columns, n=3),
        "nobody known": lambda: model.recommend(["nobody"], unknown="skip"),
        "somebody unknown": lambda: model.recommend(["nobody"]),
        "histories": lambda: model.recommend(history=history, n=4),
        "histories, long frame": lambda: model.recommend(history=history, n=4).to_polars(),
        "histories of events": lambda: model.recommend(history=other, n=4),
        "scores": lambda: model.score(known[:2], lists),
        "scores of histories": lambda: model.score(None, lists, history=history),
        "ranks": lambda: model.rank(known[:2], lists, deny=items[5:8]),
        "ranks of histories": lambda: model.rank(None, lists, history=history),
        "similar items": lambda: model.similar_items(items[:2], n=3),
        "similar items, frame": lambda: model.similar_items(items[:2], n=3).to_polars(),
        "text of the model": lambda: repr(model),
    }
    if not data.contexts.is_tuple:
        calls["many in a Series"] = lambda: model.recommend(pl.Series((known * MANY)[:MANY]), n=1)
        calls["many in a frame"] = lambda: model.recommend(pl.DataFrame({"user": (known * MANY)[:MANY]}), n=1)
    elif model.composes_contexts:
        unseen = [("u1", 7), ("nobody", 0), ("u2", 1)]
        calls["unseen"] = lambda: model.recommend([("u1", 1), ("u0", 1)], n=3)
        calls["unseen, average"] = lambda: model.recommend(unseen, n=3, unknown="average").to_polars()
        calls["unseen, skipped"] = lambda: model.recommend(unseen, n=3, unknown="skip")
        calls["unseen, score"] = lambda: model.score(unseen, [items[:2]] * 3, unknown="average")
    if isinstance(model, DotProduct):
        calls["fold in"] = lambda: model.fold_in(history)
        calls["fold in with confidence"] = lambda: model.fold_in(history, confidence=[{items[0]: 0.5}, {}])
        calls["fold in events"] = lambda: model.fold_in(other)
        calls["fold in items"] = lambda: model.fold_in_items([known[:3]])
        calls["state"] = lambda: state(model, items)
        for kind in ("exact", "quantized"):
            index = model.index(kind, progress=False)
            calls[f"{kind} index"] = lambda index=index: index.search(known[:2], n=3, deny=items[:2]).to_polars()
            calls[f"part of the {kind} index"] = lambda index=index: index.only(allow=items[:9]).search(history=history)
        calls["index made in the child"] = lambda: model.index("exact", progress=False).search(frame, n=3)
    if hasattr(model, "explain"):
        calls["explanation"] = lambda: model.explain(known[0], items[5]).to_polars()
        calls["explanation of a history"] = lambda: repr(model.explain(None, items[5], history=items[:3]))
    return calls


def state(model: Any, items: list[Any]) -> Any:
    told = sl.UserState(model, items[:3], half_life=5, decay_by="events")
    told.add(items[5])
    return [told.recommend(n=3).to_polars(), told.history, told.embedding, told.with_model(model).events, repr(told)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAMILIES else pytest.mark.slow) for name in sorted(REGISTRY)]
)
def test_answers_are_the_same_after_a_fork(name):
    calls = {}
    for kind in ("text", "tuple"):
        data = events(kind)
        model = quick(name).fit(data)
        calls |= {f"{question} ({kind})": call for question, call in questions(model, data).items()}
    expected = {question: result(call) for question, call in calls.items()}
    assert in_a_child(calls) == expected


def features(data: sl.Interactions) -> tuple[sl.Features, sl.Features]:
    """Features of the users and of the products of `events("tuple")`."""
    users, products = sorted({user for user, _ in data.contexts.ids()}), data.items.ids()
    of_users = {"user": users, "town": [f"t{len(one)}" for one in users], "age": [float(len(one)) for one in users]}
    of_products = {
        "product": products,
        "colour": ["red" if k % 3 else "blue" for k in products],
        "tags": [["old", "new"][: k % 3] for k in products],
        "words": [" a | b " if k % 2 else "c" for k in products],
        "price": [float(k) if k % 5 else None for k in products],
    }
    kinds = {"categorical": "colour", "multi_valued": {"tags": None, "words": "|"}, "numeric": {"price": "log"}}
    return (
        sl.Features.from_frame(of_users, id="user"),
        sl.Features.from_frame(of_products, id="product", **kinds),
    )


NEW = {
    "product": [901, 902],
    "colour": ["red", "green"],
    "tags": [["old"], None],
    "words": ["b|c", "x"],
    "price": [3, 0],
}


@pytest.mark.parametrize("name", ["FactorizationMachine", "FeatureIALS"])
@pytest.mark.parametrize("frame", [dict, pl.DataFrame, pd.DataFrame])
def test_new_items_come_by_their_features_after_a_fork(name, frame):
    data = events("tuple")
    users, products = features(data)
    known = {"context_features": users} if name == "FactorizationMachine" else {}
    new = frame(NEW)

    def answer() -> Any:
        model = make(name, epochs=2).fit(data, item_features=products, threads=1, **known)
        return lambda: model.add_items(model.item_features_.encode(new, unknown="missing")).recommend(
            data.contexts.ids()[:3], n=30, exclude_seen=False
        )

    assert in_a_child({"add items": answer()}) == {"add items": result(answer())}


def test_features_are_made_the_same_after_a_fork():
    calls = {
        "made": lambda: [repr(one) for one in features(events_)],
        "encoded": lambda: [products.encode(NEW, unknown="missing")[one] for one in NEW["product"]],
        "joined": lambda: repr(products.select("price").join(products.select("colour"))),
        "aligned": lambda: repr(products.align(events_.items)),
    }
    events_ = events("tuple")
    products = features(events_)[1]
    assert in_a_child(calls) == {name: result(call) for name, call in calls.items()}


class ByScore(Reranker):
    """A second stage that keeps the order of the first."""

    def fit(self, candidates: Any, relevance: Any) -> None: ...

    def score(self, candidates: Any) -> Any:
        return candidates.scores


def test_a_loaded_two_stage_answers_after_a_fork(tmp_path):
    data = events("tuple")
    products = features(data)[1]
    days = data.contexts.frame.with_columns(weekend=pl.col("day") == 1)
    split = sl.splits.at_random(data, test=0.3)
    first, *models = (make(name, epochs=2).fit(split.train) for name in ("PARAFAC", "FactorizationMachine", "IALS"))
    reranker = sl.LambdaMART(trees=3, min_leaf=1)
    two = sl.TwoStage(first, reranker, candidates=10, models=models, item_features=products, context_features=days)
    two.fit(split).save(tmp_path / "two")
    two = sl.load(tmp_path / "two")
    known, items = data.contexts.ids(), data.items.ids()
    unseen = [("u1", 7), ("u2", 1)]
    extra = sl.TwoStage(
        first,
        sl.LambdaMART(trees=3, min_leaf=1),
        candidates=10,
        extra=lambda found: {"even": [one % 2 == 0 for one in found.items], "gap": [None] * len(found)},
    ).fit(split)
    calls = {
        "known": lambda: two.recommend(known[:3], n=5),
        "frame": lambda: two.recommend(known[:3], n=5).to_polars(),
        "unseen": lambda: two.recommend(unseen, n=5, unknown="average").to_polars(),
        "histories": lambda: two.recommend(history=[items[:3]], n=5, allow=items[2:]),
        "by an index": lambda: two.recommend(known[:3], n=5, index=two.first.index("exact", progress=False)),
        "candidates": lambda: two.retrieve(known[:3]).to_polars(),
        "similar": lambda: two.similar_items(items[:1], n=3),
        "importance": two.reranker.importance,
        "extra features": lambda: extra.recommend(known[:3], n=5),
    }
    assert in_a_child(calls) == {name: result(call) for name, call in calls.items()}


@pytest.mark.parametrize("kind", ["text", "tuple"])
def test_a_model_can_be_loaded_after_a_fork(tmp_path, kind, monkeypatch):
    data = events(kind)
    known, items = data.contexts.ids()[:3], data.items.ids()
    make("IALS", epochs=2).fit(data).save(tmp_path / "small")
    monkeypatch.setattr(vocabulary, "_SMALL", 2)
    make("IALS", epochs=2).fit(data).save(tmp_path / "large")  # ids are looked up in an index

    def answers(name, verify=False):
        model = sl.load(tmp_path / name, verify=verify)
        lists = model.recommend(known, n=4), model.recommend(history=[items[:2]], n=4, deny=items[3:4])
        return [one.to_polars() for one in lists], model.items_.ids()

    calls = {
        "small": lambda: answers("small"),
        "large": lambda: answers("large"),
        "verified": lambda: answers("large", verify=True),
    }
    assert in_a_child(calls) == {name: result(call) for name, call in calls.items()}


def test_what_needs_polars_threads_is_refused_and_does_not_hang(tmp_path):
    data = events()
    model = make("Popularity").fit(data)
    products = features(events("tuple"))[1]
    model.save(tmp_path / "saved")
    (tmp_path / "events.csv").write_text("user,product\nu1,i1\n")
    frame = {"user": ["u1"], "product": ["i1"]}
    columns = {"context": "user", "item": "product"}
    two = sl.TwoStage(model, sl.LambdaMART(trees=2))
    calls = {
        "write_lists": lambda: sl.write_lists(model, tmp_path / "lists.csv"),
        "save": lambda: model.save(tmp_path / "again"),
        "events": lambda: sl.Interactions.from_frame(frame, **columns),
        "events in a file": lambda: sl.Interactions.read(tmp_path / "events.csv", **columns),
        "features in a file": lambda: sl.Features.read(tmp_path / "events.csv", id="user"),
        "a lazy frame": lambda: model.recommend(pl.LazyFrame({"user": ["u1"]})),
        "features of a lazy frame": lambda: products.encode(pl.LazyFrame(NEW), unknown="missing"),
        "data that comes with it": lambda: sl.datasets.load("online-retail"),
        "parts of features": products.to_parts,
        "impressions": lambda: two.fit_impressions({**frame, "clicked": [1]}, clicked="clicked"),
    }
    for name, found in in_a_child(calls).items():
        assert "needs the threads of polars, which do not survive a fork" in str(found), name
