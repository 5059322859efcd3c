"""Evaluation against a ranking spelled out by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from textbook import METRICS, textbook


@pytest.fixture(scope="module")
def events():
    rng = np.random.default_rng(0)
    n = 900
    return sl.Interactions.from_frame(
        {"u": rng.integers(0, 40, n), "i": rng.zipf(1.4, n) % 30, "t": rng.permutation(n)},
        context="u",
        item="i",
        time="t",
    )


@pytest.mark.parametrize("kind", ["time-drop", "time-keep", "contexts"])
def test_equals_the_textbook(events, kind):
    if kind == "contexts":
        split = sl.splits.held_out_contexts(events, 10, fold_in=0.6)
    else:
        split = sl.splits.by_time(events, 0.3, repeats=kind[5:])
    model = sl.IALS(dim=5, epochs=3).fit(split.train)
    result = sl.evaluate(model, split, METRICS)
    everyone = split.truth.contexts.ids()
    for k, context in enumerate(everyone):
        history = split.history.history(context)
        query = {"history": [list(dict.fromkeys(history))]} if split.fold_in else {"contexts": [context]}
        ranked = model.recommend(**query, n=1000, exclude_seen=split.exclude_seen).ids[0]
        expected = textbook(ranked, set(split.truth.history(context)))
        for metric in METRICS:
            np.testing.assert_allclose(
                result.of(metric)[k], expected[metric], rtol=1e-12, err_msg=f"{metric} {context}"
            )
    assert result.contexts.to_series().to_list() == everyone


def test_cut_and_full_ranks_give_the_same_figures(events):
    split = sl.splits.by_time(events, 0.3)
    model = sl.Popularity().fit(split.train)  # with many ties
    cut = sl.evaluate(model, split, ["ndcg@5", "recall@3"], seed=4)
    full = sl.evaluate(model, split, ["ndcg@5", "recall@3", "auc"], seed=4)
    for metric in ("ndcg@5", "recall@3"):
        np.testing.assert_array_equal(cut.of(metric), full.of(metric))


def test_seed_decides_ties_and_threads_and_memory_do_not(events):
    split = sl.splits.by_time(events, 0.3)
    model = sl.Popularity().fit(split.train)
    one = sl.evaluate(model, split, "ndcg@5", seed=1)
    same = sl.evaluate(model, split, "ndcg@5", seed=1, threads=3, memory=100)
    np.testing.assert_array_equal(one.of("ndcg@5"), same.of("ndcg@5"))
    assert any(
        not np.array_equal(one.of("ndcg@5"), sl.evaluate(model, split, "ndcg@5", seed=seed).of("ndcg@5"))
        for seed in range(2, 5)
    )


def test_a_model_that_cannot_tell_items_apart_gets_the_figures_of_chance():
    """Every item equally popular: recall@n is n/|I|, not 1, and AUC is ½."""
    n = 40
    users = np.repeat(np.arange(400), 2)
    items = np.concatenate([[u % n, (u * 7 + 3) % n] for u in range(400)])
    balanced = sl.Interactions.from_frame({"u": users, "i": items}, context="u", item="i")
    truth = sl.Interactions.from_frame({"u": np.arange(400), "i": (np.arange(400) * 11 + 5) % n}, context="u", item="i")
    split = sl.splits.given(balanced, truth, repeats="keep")
    model = sl.Popularity().fit(balanced)
    assert len(set(model.item_scores_)) == 1
    results = [sl.evaluate(model, split, ["recall@10", "auc"], seed=seed) for seed in range(20)]
    assert abs(np.mean([result["recall@10"] for result in results]) - 10 / n) < 0.015
    assert abs(np.mean([result["auc"] for result in results]) - 0.5) < 0.015


def test_auc_leaves_contexts_out_for_which_it_is_not_defined():
    train = sl.Interactions.from_frame({"u": [1, 1, 2], "i": [1, 2, 3]}, context="u", item="i")
    truth = sl.Interactions.from_frame({"u": [1, 2], "i": [3, 1]}, context="u", item="i")
    result = sl.evaluate(sl.Popularity().fit(train), sl.splits.given(train, truth), ["auc", "hit@1"])
    assert np.isnan(result.of("auc")[0])  # only item 3 is ranked for context 1, and it is relevant
    assert np.isfinite(result["auc"])
    assert result.to_polars()["contexts"].to_list() == [1, 2]


def test_the_model_must_know_what_it_is_asked_for(events):
    split = sl.splits.by_time(events, 0.3)
    small = sl.Interactions.from_frame({"u": [1, 2], "i": [1, 2]}, context="u", item="i")
    with pytest.raises(sl.ShortlistError):
        sl.evaluate(sl.Popularity().fit(small), split)
    with pytest.raises(sl.NotFittedError):
        sl.evaluate(sl.Popularity(), split)
    with pytest.raises(sl.SettingError, match="takes a Split"):
        sl.evaluate(sl.Popularity().fit(events), events)
    with pytest.raises(sl.SettingError, match="unknown metric"):
        sl.evaluate(sl.Popularity().fit(split.train), split, ["recal@20"])


def test_a_model_that_may_know_the_answers_is_warned_of(events):
    split = sl.splits.by_time(events, 0.3)
    with pytest.warns(sl.ShortlistWarning, match="may have seen the held-out items"):
        sl.evaluate(sl.EASE(regularization=5).fit(events), split)


def test_n_beyond_the_catalogue(events):
    split = sl.splits.by_time(events, 0.3)
    model = sl.Popularity().fit(split.train)
    assert sl.evaluate(model, split, "recall@2000000000")["recall@2000000000"] == 1


def test_a_model_over_a_larger_catalogue_is_evaluated_by_ids(events):
    split = sl.splits.by_time(events, 0.3)
    same = sl.EASE(regularization=5).fit(split.train)
    grown = sl.EASE(regularization=5).fit(split.train.extend(items=[1000, 2000]))
    results = [sl.evaluate(model, split, "ndcg@5")["ndcg@5"] for model in (same, grown)]
    assert results[0] == pytest.approx(results[1], rel=0.05)


def test_the_result_reads_well(events):
    split = sl.splits.by_time(events, 0.3)
    result = sl.evaluate(sl.Popularity().fit(split.train), split, ["recall@3", "ndcg@5"])
    values = result.of("recall@3")
    assert result["recall@3"] == values.mean()
    assert result.stderr["recall@3"] == pytest.approx(values.std(ddof=1) / len(values) ** 0.5)
    assert list(result) == ["recall@3", "ndcg@5"]
    assert dict(result)["ndcg@5"] == result["ndcg@5"]
    assert result.to_polars().columns == ["metric", "mean", "stderr", "contexts"]
    assert result.per_context().columns == ["u", "recall@3", "ndcg@5"]
    assert f"recall@3  {result['recall@3']:.4f} ± " in repr(result)
    assert result["NDCG@5"] == result["ndcg@5"]
    with pytest.raises(KeyError, match="was not evaluated"):
        result["auc"]


class TestCandidates:
    def make(self, scores: dict[str, int], truth: str, negatives: list[str]):
        """A popularity model with these counts, one context, one true item, these candidates."""
        users, items = [], []
        for item, count in scores.items():
            users += [f"u{k}" for k in range(count)]
            items += [item] * count
        train = sl.Interactions.from_frame({"u": [*users, "me"], "i": [*items, "own"]}, context="u", item="i")
        true = sl.Interactions.from_frame({"u": ["me"], "i": [truth]}, context="u", item="i")
        others = sl.Interactions.from_frame({"u": ["me"] * len(negatives), "i": negatives}, context="u", item="i")
        return sl.Popularity().fit(train), true, others

    def test_rank_among_the_candidates_only(self):
        model, truth, negatives = self.make({"a": 9, "b": 7, "c": 5, "d": 3}, "c", ["b", "d"])
        result = sl.evaluate_candidates(model, truth, negatives, ["hit@1", "hit@2", "mrr"])
        assert dict(result) == {"hit@1": 0.0, "hit@2": 1.0, "mrr": 0.5}
        assert "not comparable" in result.protocol

    def test_ties_and_duplicates_of_the_true_item_are_settled_at_random(self):
        model, truth, negatives = self.make({"a": 5, "b": 5, "c": 2}, "a", ["b", "a", "c"])
        places = [1 / sl.evaluate_candidates(model, truth, negatives, "mrr", seed=seed)["mrr"] for seed in range(300)]
        counts = np.bincount(np.round(places).astype(int), minlength=5)
        assert counts[4] == 0
        assert (counts[1:4] > 60).all()  # three places, a hundred times each

    def test_what_does_not_fit(self):
        model, _, negatives = self.make({"a": 5, "b": 5}, "a", ["b"])
        two = sl.Interactions.from_frame({"u": ["me", "me"], "i": ["a", "b"]}, context="u", item="i")
        with pytest.raises(sl.DataError, match="one held-out item each"):
            sl.evaluate_candidates(model, two, negatives)
        with pytest.raises(sl.DataError, match="one held-out item each"):
            sl.evaluate_candidates(model, two.extend(contexts=["u1"]), negatives)
        other = sl.Interactions.from_frame({"u": ["me", "u1"], "i": ["a", "b"]}, context="u", item="i")
        with pytest.raises(sl.DataError, match="1 of 2 contexts have no candidates"):
            sl.evaluate_candidates(model, other, negatives)
        strange = sl.Interactions.from_frame({"u": ["me"], "i": ["zzz"]}, context="u", item="i")
        with pytest.raises(sl.UnknownIdError, match="zzz"):
            sl.evaluate_candidates(model, strange, negatives)


class TestCompare:
    def result(self, values: np.ndarray, name: str = "A") -> sl.Evaluation:
        contexts = pl.DataFrame({"u": np.arange(len(values))})
        return sl.Evaluation(name, "test", contexts, {"recall@5": values})

    def test_a_real_difference_and_none(self):
        rng = np.random.default_rng(0)
        base = rng.random(500)
        shifted = base - 0.02 + 0.01 * rng.standard_normal(500)  # paired, so 0.02 stands out of a spread of 0.3
        noise = base + 0.2 * rng.standard_normal(500) * (rng.random(500) < 0.5)
        noise += base.mean() - noise.mean() - 1e-4
        comparison = sl.compare(self.result(base), self.result(shifted, "B"), self.result(noise, "C"))
        frame = comparison.to_polars()
        verdict = dict(zip(frame["model"], frame["worse"]))
        assert verdict == {"A": False, "B": True, "C": False}
        assert comparison.best("recall@5") == ["A", "C"]
        row = frame.row(by_predicate=pl.col("model") == "B", named=True)
        assert row["low"] < row["difference"] < row["high"] < 0
        assert row["difference"] == pytest.approx((shifted - base).mean())
        assert "worse" in repr(comparison)
        assert "no real difference" in repr(comparison)

    def test_the_interval_is_that_of_the_mean(self):
        """For a plain sample the percentile interval is close to mean ± 1.96 standard errors."""
        rng = np.random.default_rng(1)
        a, b = rng.random(2000), rng.random(2000) - 1
        row = sl.compare(self.result(a), self.result(b, "B")).to_polars().row(1, named=True)
        width = 1.96 * (b - a).std(ddof=1) / 2000**0.5
        assert row["high"] - row["low"] == pytest.approx(2 * width, rel=0.1)

    def test_only_what_can_be_compared(self):
        a, b = self.result(np.ones(3)), self.result(np.ones(4))
        with pytest.raises(sl.SettingError, match="different contexts"):
            sl.compare(a, b)
        with pytest.raises(sl.SettingError, match="at least two"):
            sl.compare(a)
        c = sl.Evaluation("C", "another protocol", a.contexts, {"recall@5": np.ones(3)})
        with pytest.raises(sl.SettingError, match="different protocols"):
            sl.compare(a, c)
        nowhere = self.result(np.full(3, np.nan))
        assert "not defined" in repr(sl.compare(a, nowhere))
        assert np.isnan(nowhere["recall@5"])
        with pytest.raises(sl.SettingError, match="different names"):
            sl.compare(a, a, names=["x", "x"])
        assert sl.compare(a, a).to_polars()["model"].to_list() == ["A 1", "A 2"]


def test_few_contexts_give_no_verdict():
    few, many = (
        [
            sl.Evaluation(
                name, "test", pl.DataFrame({"u": range(n)}), {"ap@5": np.full(n, value), "auc": auc * np.ones(n)}
            )
            for name, value, auc in (("A", 1.0, np.nan), ("B", 0.9, 0.6))
        ]
        for n in (9, 10)
    )
    told = sl.compare(*few)
    assert told.best("map@5") == ["A", "B"]
    assert "-0.1000  too few contexts to tell" in repr(told)
    told = sl.compare(*many)
    assert told.best("ap@5") == ["A"]
    assert told.best("auc") == ["B"]  # it is not defined for the other
    assert "not defined for any context" in repr(told)


def test_a_single_context_has_no_standard_error():
    one = sl.Evaluation("A", "test", pl.DataFrame({"u": [1]}), {"ap@5": np.array([0.5])})
    assert one.text("ap@5") == "0.5000"


def test_candidates_for_a_split():
    frame = {"u": [1, 1, 2, 2], "i": ["a", "b", "b", "c"]}
    train = sl.Interactions.from_frame(frame, context="u", item="i")
    truth = sl.Interactions.from_frame({"u": [1, 2], "i": ["c", "a"]}, context="u", item="i")
    split = sl.splits.given(train, truth)
    others = sl.Interactions.from_frame({"u": [1, 2], "i": ["b", "b"]}, context="u", item="i")
    model = sl.Popularity().fit(train)
    of_split, of_truth = (sl.evaluate_candidates(model, one, others) for one in (split, truth))
    assert dict(of_split) == dict(of_truth)
    with pytest.raises(sl.SettingError, match="candidates is NoneType; expected Interactions"):
        sl.evaluate_candidates(model, split, None)
