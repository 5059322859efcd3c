"""What a second stage learns from, against the same spelled out."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from reranking.worlds import ByFeature, events


@pytest.mark.parametrize("kind", ["drop", "keep", "contexts"])
@pytest.mark.parametrize("n", [3, 12])
def test_candidates_and_labels_of_a_split(kind, n):
    data = events()
    if kind == "contexts":
        split = sl.splits.held_out_contexts(data, 12, fold_in=0.6)
    else:
        split = sl.splits.by_time(data, 0.3, repeats=kind)
    model = sl.IALS(dim=4, epochs=3).fit(split.train)
    spy = ByFeature("rank")
    two = sl.TwoStage(model, spy, candidates=n).fit(split)
    expected: dict = {}
    without = missed = 0
    for user in split.truth.contexts.ids():
        history = {"history": [list(dict.fromkeys(split.history.history(user)))]} if split.fold_in else {}
        ids = model.recommend(**history or {"contexts": [user]}, n=n, exclude_seen=split.exclude_seen).ids[0]
        truth = set(split.truth.history(user))
        labels = [int(item in truth) for item in ids]
        missed += len(truth - set(ids))
        if 0 < sum(labels) < len(labels):
            expected[user] = list(zip(ids, labels))
        else:
            without += 1
    found = spy.candidates
    who = [found.queries.labels.ids()[q] for q in found.query_of]
    told: dict = {}
    for user, item, label in zip(who, found.items, spy.relevance.tolist()):
        told.setdefault(user, []).append((item, label))
    assert told == expected
    assert two.training_ == {
        "lists": len(expected),
        "candidates": sum(map(len, expected.values())),
        "relevant candidates": sum(label for rows in expected.values() for _, label in rows),
        "contexts without a relevant candidate": without,
        "relevant items that stage one did not find": missed,
    }
    assert f"trained on {len(expected)} lists" in repr(two)


def impressions(data, seed=1, n=400):
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "user": [f"u{u}" for u in rng.integers(0, 45, n)],  # some of them unknown
            "request": rng.integers(0, 3, n),
            "product": rng.integers(0, 33, n),  # likewise
            "clicked": rng.random(n) < 0.3,
        }
    ).unique(["user", "request", "product"], maintain_order=True, keep="first")


def to_pandas(frame):
    return frame.to_pandas()


def to_arrow(frame):
    return frame.to_arrow()


def to_dict(frame):
    return frame.to_dict(as_series=False)


@pytest.mark.parametrize("request_", [None, "request"])
@pytest.mark.parametrize("exclude_seen", [True, False])
def test_impressions(request_, exclude_seen):
    data = events()
    model = sl.IALS(dim=4, epochs=3).fit(data)
    shown = impressions(data)
    spy = ByFeature("rank")
    two = sl.TwoStage(model, spy, candidates=7)
    two.fit_impressions(shown, clicked="clicked", request=request_, exclude_seen=exclude_seen)
    lists: dict = {}
    for user, request, item, clicked in shown.iter_rows():
        if user in data.contexts and item in data.items and not (exclude_seen and item in data.history(user)):
            one = lists.setdefault((user, request if request_ else 0), {})
            one[item] = max(one.get(item, 0), int(clicked))
    lists = {who: one for who, one in lists.items() if len(set(one.values())) > 1}
    found = spy.candidates
    assert found.n_queries == len(lists) == two.training_["lists"]
    people = found.queries.labels.ids()
    left = list(lists.items())
    for q in range(found.n_queries):
        rows = slice(found.indptr[q], found.indptr[q + 1])
        items = found.items[rows]
        grades = dict(zip(items, spy.relevance[rows].tolist()))
        match = [k for k, (who, one) in enumerate(left) if who[0] == people[q] and one == grades]
        assert match, "a list that was not shown"
        left.pop(match[0])
        ranks = model.rank([people[q]], [items], exclude_seen=exclude_seen)[0]
        np.testing.assert_array_equal(found.ranks[rows], ranks)
        np.testing.assert_allclose(found.scores[rows], model.score([people[q]], [items])[0], rtol=1e-5)
        best = model.recommend([people[q]], n=7, exclude_seen=exclude_seen).scores[0]
        scaled = (found.scores[rows] - best.mean()) / best.std()
        np.testing.assert_allclose(found.column("relative_score")[rows], scaled, rtol=1e-3, atol=1e-4)
    assert not left
    seen = sum(user in data.contexts and item in data.history(user) for user, _, item, _ in shown.iter_rows())
    if exclude_seen and request_:
        assert two.training_["shown items that had been seen"] == seen
    assert two.training_["shown items of contexts or items that stage one does not know"] > 0


def test_impressions_in_other_forms():
    data = events()
    model = sl.EASE().fit(data)
    shown = impressions(data)
    grades = []
    numbers = shown.with_columns(pl.col("clicked").cast(pl.Int64))
    for given in (
        shown,
        *(made(one) for made in (to_pandas, to_arrow, pl.DataFrame.lazy, to_dict) for one in (shown, numbers)),
    ):
        spy = ByFeature("rank")
        sl.TwoStage(model, spy).fit_impressions(given, clicked="clicked", request="request")
        grades.append(spy.relevance)
    for other in grades[1:]:
        np.testing.assert_array_equal(grades[0], other)


def test_what_was_shown_again_counts_with_its_greatest_grade():
    data = events()
    spy = ByFeature("rank")
    shown = {"user": ["u1"] * 6, "product": [1, 1, 2, 3, 2, 3], "grade": [3, 3, 5, 0, 1, 30]}
    sl.TwoStage(sl.EASE().fit(data), spy).fit_impressions(shown, clicked="grade", exclude_seen=False)
    assert dict(zip(spy.candidates.items, spy.relevance.tolist())) == {1: 3, 2: 5, 3: 30}
    often = {"user": ["u1"] * 60, "product": [1] * 59 + [2], "grade": [True] * 59 + [False]}
    sl.TwoStage(sl.EASE().fit(data), spy).fit_impressions(often, clicked="grade", exclude_seen=False)
    assert spy.relevance.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("clicked", "told"),
    [
        (
            pl.lit("yes"),
            "'clicked' has type String; expected True or False, 0 or 1, or integer grades up to 30",
        ),
        (pl.lit(None), r"is null in .* rows; expected True or False"),
        (pl.when(pl.col("clicked")).then(1), r"is null in \d+ of \d+ rows; .*; fill or drop these rows"),
        (pl.lit(0.5), r"is invalid in .* rows, such as 0.5; expected True or False"),
        (pl.lit(-1), r"is invalid in .* rows, such as -1"),
        (pl.lit(31), r"is invalid in .* rows, such as 31"),
        (pl.lit(float("nan")), "is (invalid in .* rows, such as nan|null)"),  # which pandas does not tell apart
        (pl.lit(float("inf")), r"is invalid in .* rows, such as inf"),
        (pl.lit(0), r"none of \d+ shown items was clicked"),
        (pl.lit(True), r"cannot learn an order.*add clicked and not clicked impressions.*exclude_seen=False"),
    ],
)
def test_clicks_that_say_nothing(clicked, told):
    data = events()
    two = sl.TwoStage(sl.EASE().fit(data), ByFeature("rank"))
    shown = impressions(data).with_columns(clicked=clicked)
    for made in (pl.DataFrame.clone, to_pandas):
        with pytest.raises(sl.DataError, match=told) as raised:
            two.fit_impressions(made(shown), clicked="clicked")
        assert "on_bad" not in str(raised.value)
    with pytest.raises(sl.DataError, match=r"column 'user' is null in 1 of \d+ rows; fill or drop"):
        two.fit_impressions(
            pl.concat([impressions(data), impressions(data)[:1].with_columns(user=None)]), clicked="clicked"
        )


def test_mistakes():
    data = events()
    split = sl.splits.by_time(data, 0.3)
    two = sl.TwoStage(sl.EASE().fit(split.train), ByFeature("rank"))
    with pytest.raises(sl.SettingError, match="fit takes a Split whose train"):
        two.fit(data)
    everything = sl.TwoStage(sl.EASE().fit(data), ByFeature("rank"))
    with pytest.warns(sl.ShortlistWarning, match="it may have seen the held-out items") as told:
        everything.fit(split)
    assert told[0].filename == __file__
    shown = impressions(data)
    with pytest.raises(sl.DataError, match="no column 'x'"):
        two.fit_impressions(shown, clicked="x")
    with pytest.raises(sl.DataError, match="stage one knows none of the"):
        two.fit_impressions(shown.with_columns(user=pl.lit("nobody")), clicked="clicked")
    with pytest.raises(sl.NotFittedError, match="second stage has not been fitted"):
        two.recommend(["u1"])
