"""Evaluation of two stages against a ranking spelled out by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from reranking.worlds import ByFeature, Linear, events
from shortlist.reranking.pair_digests import PairDigests
from textbook import METRICS, textbook


@pytest.mark.parametrize("kind", ["drop", "keep", "contexts"])
@pytest.mark.parametrize("metrics", [METRICS, [one for one in METRICS if "@" in one]])
@pytest.mark.parametrize("n", [4, 100])
def test_equals_the_textbook(kind, metrics, n):
    data = events()
    if kind == "contexts":
        test = sl.splits.held_out_contexts(data, 10, fold_in=0.6)
        held = sl.splits.held_out_contexts(test.train, 10, fold_in=0.6)
    else:
        test = sl.splits.by_time(data, 0.3, repeats=kind)
        held = sl.splits.by_time(test.train, 0.3, repeats=kind)
    two = sl.TwoStage(sl.IALS(dim=5, epochs=3).fit(held.train), ByFeature("popularity", -1.0), candidates=n).fit(held)
    two = two.with_first(sl.IALS(dim=5, epochs=3).fit(test.train))
    result = sl.evaluate(two, test, metrics)
    first = sl.evaluate(two.first, test, [f"recall@{n}", *metrics])
    for k, context in enumerate(test.truth.contexts.ids()):
        history = list(dict.fromkeys(test.history.history(context)))
        query = {"history": [history]} if test.fold_in else {"contexts": [context]}
        ranked = two.recommend(**query, n=1000, exclude_seen=test.exclude_seen).ids[0]
        expected = textbook(ranked, set(test.truth.history(context)))
        for metric in metrics:
            np.testing.assert_allclose(result.of(metric)[k], expected[metric], rtol=1e-12, err_msg=metric)
    assert list(result) == [*metrics, *(f"first:{metric}" for metric in first)]
    for metric in first:
        np.testing.assert_array_equal(result.of(f"first:{metric}"), first.of(metric))


def test_it_says_what_was_done():
    split = sl.splits.by_time(events(), 0.3)
    held = sl.splits.by_time(split.train, 0.3)
    two = sl.TwoStage(sl.EASE().fit(held.train), Linear(), candidates=6).fit(held)
    two = two.with_first(sl.EASE().fit(split.train))
    result = sl.evaluate(two, split)
    assert result.model == "EASE + Linear"
    assert "seen items excluded, the first 6 of EASE reranked by Linear\n" in repr(result)
    plain = sl.evaluate(sl.Popularity().fit(split.train), split)
    assert result.protocol == plain.protocol
    with pytest.warns(sl.ShortlistWarning, match="second stage learned"):
        less = sl.evaluate(sl.TwoStage(two.first, Linear(), candidates=3).fit(split), split)
    rows = sl.compare(result, plain, less).rows
    assert {row["metric"] for row in rows} == set(plain)
    assert {row["model"] for row in rows} == {"EASE + Linear 1", "Popularity", "EASE + Linear 3"}
    assert "first:recall@6" in repr(result)
    assert result.beyond_accuracy[0] == "coverage@20"
    assert not [name for name in result if name.startswith("first:") and "coverage" in name]
    whole, first = result.stages()
    assert list(whole) == list(first) == ["recall@20", "ndcg@20"]
    assert first.model == "EASE"
    assert "EASE + Linear" in repr(sl.compare(whole, first))
    # Lists of the same 6 candidates, in another order, hold the same items.
    six = sl.evaluate(two, split, ["coverage@6", "gini@6"])
    alone = sl.evaluate(two.first, split, ["coverage@6", "gini@6"])
    assert dict(six) == {**alone, "first:recall@6": six["first:recall@6"]}
    with pytest.raises(sl.SettingError, match="no accuracy metric"):
        six.stages()
    with pytest.raises(sl.SettingError, match="evaluate takes a Split"):
        sl.evaluate(two, split.train)
    with pytest.raises(sl.NotFittedError):
        sl.evaluate(sl.TwoStage(two.first, Linear()), split)


def test_lists_are_those_of_recommend():
    split = sl.splits.by_time(events(), 0.3)
    held = sl.splits.by_time(split.train, 0.3)
    popular = sl.TwoStage(sl.Popularity().fit(held.train), ByFeature("popularity", -1.0), candidates=6).fit(held)
    popular = popular.with_first(sl.Popularity().fit(split.train))  # with many ties
    shown = popular.recommend(split.truth.contexts.ids(), n=3).ids
    result = sl.evaluate(popular, split, ["coverage@3"])
    assert result["coverage@3"] == pytest.approx(len({one for ids in shown for one in ids}) / split.train.n_items)


def test_a_second_stage_that_knows_the_answers_is_warned_of():
    data = events()
    test = sl.splits.by_time(data, 0.3)
    held = sl.splits.by_time(test.train, 0.3)
    honest = sl.TwoStage(sl.EASE().fit(held.train), Linear()).fit(held).with_first(sl.EASE().fit(test.train))
    sl.evaluate(honest, test, "ndcg@5")  # a warning would be an error here
    cheat = sl.TwoStage(sl.EASE().fit(test.train), Linear()).fit(test)
    with pytest.warns(sl.ShortlistWarning, match="second stage learned from 102 of 102 held-out pairs") as told:
        sl.evaluate(cheat, test, "ndcg@5")
    assert told[0].filename == __file__
    later = sl.splits.by_time(data, 0.2)  # another split of the same events, whose truth is part of it
    with pytest.warns(sl.ShortlistWarning, match="second stage learned"):
        sl.evaluate(cheat.with_first(sl.EASE().fit(later.train)), later, "ndcg@5")
    kept = sl.splits.by_time(data, 0.3, repeats="keep")
    before = sl.splits.by_time(kept.train, 0.3, repeats="keep")
    honest = sl.TwoStage(sl.EASE().fit(before.train), Linear()).fit(before).with_first(sl.EASE().fit(kept.train))
    sl.evaluate(honest, kept, "ndcg@5")  # pairs that come again are no answers known before
    with pytest.warns(sl.ShortlistWarning, match="not fitted on split.train"):
        sl.evaluate(sl.TwoStage(sl.EASE().fit(held.train), Linear()).fit(held), test, "ndcg@5")


def test_how_much_of_the_answers_a_second_stage_knows():
    data = events()
    kept = sl.splits.by_time(data, 0.3, repeats="keep")
    first = sl.EASE().fit(kept.train)
    cheat = sl.TwoStage(first, Linear()).fit(kept)
    pairs = [(user, item) for user in kept.truth.contexts for item in set(kept.truth.history(user))]
    new = [pair for pair in pairs if pair[1] not in kept.train.history(pair[0])]
    assert 0 < len(new) < len(pairs)
    assert cheat.knows_answers(kept) == pytest.approx(len(new) / len(pairs))  # the others may have come again
    with pytest.warns(sl.ShortlistWarning, match=f"learned from {len(new)} of {len(pairs)} held-out pairs"):
        sl.evaluate(cheat, kept, "ndcg@5")
    contexts, items = kept.truth.contexts, kept.truth.items
    codes = contexts.encode([new[0][0]]), items.encode([new[0][1]])
    cheat.reranker_state.pairs = PairDigests.of(contexts, items, *codes)
    with pytest.warns(sl.ShortlistWarning, match=f"learned from 1 of {len(pairs)} held-out pairs"):
        sl.evaluate(cheat, kept, "ndcg@5")
    before = sl.splits.by_time(kept.train, 0.3, repeats="keep")
    honest = sl.TwoStage(sl.EASE().fit(before.train), Linear()).fit(before)
    assert honest.knows_answers(kept) == 0


def test_who_clicked_may_well_buy():
    data = events()
    test = sl.splits.by_time(data, 0.3)
    first = sl.EASE().fit(test.train)
    truth = test.truth.to_polars().select("user", "product")
    others = pl.DataFrame({"user": [f"u{k}" for k in range(40)]}).join(pl.DataFrame({"product": range(5)}), how="cross")
    others = others.join(truth, on=["user", "product"], how="anti").with_columns(clicked=pl.col("product") == 0)

    def shown(n):
        clicks = truth[:n].with_columns(clicked=pl.lit(True))
        return sl.TwoStage(first, Linear()).fit_impressions(pl.concat([clicks, others]), clicked="clicked")

    sl.evaluate(shown(5), test, "ndcg@5")  # a warning would be an error here
    with pytest.warns(sl.ShortlistWarning, match=r"clicks on 51 of 102 held-out pairs .* may be too good\. Train it"):
        sl.evaluate(shown(51), test, "ndcg@5")


def test_further_models_that_know_the_answers_are_warned_of():
    data = events()
    test = sl.splits.by_time(data, 0.3)
    held = sl.splits.by_time(test.train, 0.3)
    early, late = sl.EASE().fit(held.train), sl.EASE().fit(test.train)
    some = held.train.select(held.train.item_codes < 20, compact=True)
    honest = {"a": sl.ItemKNN().fit(held.train), "b": sl.EASE().fit(some)}  # which need not know everything
    two = sl.TwoStage(early, ByFeature("rank", -1.0), models=honest).fit(held)
    fresh = {"a": sl.ItemKNN().fit(test.train), "b": sl.EASE().fit(test.train)}
    sl.evaluate(two.with_first(late, models=fresh), test, "ndcg@5")
    everything = sl.EASE().fit(data)
    with pytest.warns(sl.ShortlistWarning, match="the further model 'b' was not fitted on split.train") as told:
        sl.evaluate(two.with_first(late, models=fresh | {"b": everything}), test, "ndcg@5")
    assert told[0].filename == __file__
    with pytest.warns(sl.ShortlistWarning, match="the further model 'a' was not fitted on split.train") as told:
        sl.TwoStage(early, ByFeature("rank"), models=honest | {"a": everything}).fit(held)
    assert told[0].filename == __file__


def test_the_catalogue_is_searched_once(monkeypatch):
    from shortlist.evaluation import catalogue_search

    split = sl.splits.by_time(events(), 0.3)
    held = sl.splits.by_time(split.train, 0.3)
    two = (
        sl.TwoStage(sl.EASE().fit(held.train), Linear(), candidates=6).fit(held).with_first(sl.EASE().fit(split.train))
    )
    searched, top_n, item_ranks = [], catalogue_search.top_n, catalogue_search.item_ranks
    expected = sl.evaluate(two, split, ["ndcg@10", "auc", "coverage@4"])
    monkeypatch.setattr(
        catalogue_search, "top_n", lambda *args, **how: [searched.append("top"), top_n(*args, **how)][1]
    )
    monkeypatch.setattr(
        catalogue_search, "item_ranks", lambda *args, **how: [searched.append("ranks"), item_ranks(*args, **how)][1]
    )
    assert dict(sl.evaluate(two, split, ["ndcg@10", "recall@4", "coverage@4"]))["ndcg@10"] == expected["ndcg@10"]
    assert searched == ["top"]
    searched.clear()
    assert dict(sl.evaluate(two, split, ["ndcg@10", "auc", "coverage@4"])) == dict(expected)
    assert sorted(searched) == ["ranks", "top"]
