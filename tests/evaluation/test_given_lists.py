"""Ranked lists from anywhere are evaluated as those of a model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import shortlist as sl

METRICS = ["recall@5", "ndcg@5", "hit@1", "coverage@5", "popularity@5", "novelty@5"]


@pytest.fixture(scope="module")
def split():
    return sl.splits.at_random(sl.datasets.synthetic(60, 30, 900, seed=0), test=0.2, seed=0)


@pytest.fixture(scope="module")
def model(split):
    return sl.EASE(regularization=10.0).fit(split.train)


@pytest.fixture(scope="module")
def lists(split, model):
    return model.recommend(split.truth.contexts.ids(), n=8)


def test_the_same_as_the_model_that_made_them(split, model, lists):
    expected = sl.evaluate(model, split, METRICS)
    frame = lists.to_polars()
    shuffled = frame.sample(fraction=1, shuffle=True, seed=1)
    only_scores, columns = shuffled.drop("rank"), shuffled.to_dict(as_series=False)
    for given in (
        lists, frame, shuffled, shuffled.lazy(), only_scores, columns, pa.table(columns), pd.DataFrame(columns),
    ):  # fmt: skip
        result = sl.evaluate(given, split, METRICS)
        assert dict(result) == pytest.approx(dict(expected))
        for metric in METRICS[:3]:
            np.testing.assert_array_equal(result.of(metric), expected.of(metric))
    assert "given lists of up to 8 items" in result.protocol
    assert result.model == "given lists"


def test_by_hand(split):
    truth = split.truth
    user, other = truth.contexts.ids()[:2]
    hit = truth.history(user)[0]
    history = set(split.history.history(user)) | set(truth.history(user))
    misses = [item for item in split.train.items.ids() if item not in history][:2]
    context, item = truth.contexts.names[0], split.train.items.names[0]
    given = {context: [user] * 3, item: [*misses, hit], "rank": [1, 2, 7]}
    with pytest.warns(
        sl.ShortlistWarning, match=rf"{truth.n_contexts - 1} of the truth's {truth.n_contexts} contexts have no list"
    ):
        result = sl.evaluate(given, split, ["ndcg@3", "hit@2"])
    assert result.of("hit@2")[0] == 0
    ideal = sum(1 / np.log2(1 + k) for k in range(1, 1 + min(3, len(truth.history(user)))))
    assert result.of("ndcg@3")[0] == pytest.approx(1 / np.log2(4) / ideal)
    assert result.of("ndcg@3")[truth.contexts.ids().index(other)] == 0


def test_seen_items_are_warned_of(split):
    model = sl.EASE().fit(split.train)
    lists = model.recommend(split.truth.contexts.ids(), n=6, exclude_seen=False)
    with pytest.warns(sl.ShortlistWarning, match="listed items are in the history of their context"):
        sl.evaluate(lists, split, ["ndcg@5"])
    kept = sl.splits.at_random(sl.datasets.synthetic(60, 30, 900, seed=0), test=0.2, seed=0, repeats="keep")
    lists = sl.EASE().fit(kept.train).recommend(kept.truth.contexts.ids(), n=6, exclude_seen=False)
    sl.evaluate(lists, kept, ["ndcg@5"])


def test_other_contexts_are_counted_and_ignored(split, lists):
    frame = lists.to_polars()
    context = frame.columns[0]
    other = frame.head(3).with_columns(pl.col(context) + 10_000)
    result = sl.evaluate(pl.concat([frame, other]), split, ["ndcg@5"])
    assert "lists of 1 other context ignored" in result.protocol


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda frame: frame.drop("rank", "score"), sl.DataError, "'rank' or 'score'; the frame has"),
        (lambda frame: frame.rename({frame.columns[1]: "thing"}), sl.DataError, "'thing', 'rank', 'score'"),
        (lambda frame: pl.concat([frame, frame.head(2)]), sl.DataError, "2 of 474 rows repeat a listed pair"),
        (lambda frame: frame.with_columns(pl.lit(9999).alias(frame.columns[1])).unique(frame.columns[0]),
         sl.UnknownIdError, "unknown item 9999 .* list only items of split.train"),
        (lambda frame: frame.with_columns(pl.col(frame.columns[0]) + 10_000), sl.DataError, "none of the 59 contexts"),
        (lambda frame: frame.with_columns(pl.lit("first").alias("rank")), sl.DataError, "'rank' has type String"),
        (lambda frame: frame.with_columns(pl.lit(None).alias("rank")), sl.DataError, "'rank' has type Null"),
        (lambda frame: frame.head(0), sl.DataError, "the lists are empty"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(split, lists, change, error, message):
    with pytest.raises(error, match=message):
        sl.evaluate(change(lists.to_polars()), split, ["ndcg@5"])


def test_metrics_that_lists_cannot_answer(split, lists):
    with pytest.raises(sl.SettingError, match="auc needs the whole ranking, but only lists are given"):
        sl.evaluate(lists, split, ["auc", "ndcg@5"])
    with pytest.raises(sl.SettingError, match="ndcg@20 needs longer lists: the longest has 8 items; use a smaller n"):
        sl.evaluate(lists, split, ["ndcg@20"])
    with pytest.raises(sl.SettingError, match="given lists cannot be evaluated with a slate"):
        sl.evaluate(lists, split, ["ndcg@5"], slate=sl.slates.MMR(0.3))
    with pytest.raises(sl.SettingError, match="evaluate takes a Split"):
        sl.evaluate(lists, split.train, ["ndcg@5"])


def test_decimals_and_columns_that_are_called_rank(split, lists):
    expected = sl.evaluate(lists, split, ["ndcg@5"])["ndcg@5"]
    frame = lists.to_polars()
    decimals = frame.drop("rank").with_columns(pl.col("score").cast(pl.Decimal(30, 10)))
    assert sl.evaluate(decimals, split, ["ndcg@5"])["ndcg@5"] == pytest.approx(expected)
    context, item = frame.columns[:2]
    renamed = split.train.to_polars().rename({context: "rank"})
    again = sl.splits.at_random(sl.Interactions.from_frame(renamed, context="rank", item=item), test=0.2, seed=0)
    own = sl.EASE().fit(again.train).recommend(again.truth.contexts.ids(), n=8)
    assert own.to_polars().columns == ["rank", item, "rank_", "score"]
    by_rank = sl.evaluate(own, again, ["ndcg@5"])["ndcg@5"]
    assert sl.evaluate(own.to_polars().drop("rank_"), again, ["ndcg@5"])["ndcg@5"] == pytest.approx(by_rank)
