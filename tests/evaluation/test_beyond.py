"""Metrics beyond accuracy through `evaluate`, in results and comparisons, and the warning about untrained items."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from shortlist.data.sparse_rows import SparseRows
from shortlist.evaluation import catalogue_search
from shortlist.evaluation.cold_items import out_of_place
from shortlist.evaluation.evaluate import DEFAULT_METRICS
from shortlist.scoring import DotProductScorer

OVERALL = ["coverage@6", "gini@6"]
PER_CONTEXT = ["popularity@6", "novelty@6", "distance@6", "cold_share@6"]
BEYOND = [*OVERALL, *PER_CONTEXT]


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


@pytest.fixture(scope="module")
def split(events):
    return sl.splits.by_time(events, 0.3)


@pytest.fixture(scope="module")
def model(split):
    return sl.IALS(dim=5, epochs=3).fit(split.train)


@dataclass(kw_only=True, repr=False, eq=False)
class Given(sl.Recommender):
    """Scores that are given, item by item."""

    scores: tuple[float, ...] = ()
    _arrays: ClassVar[tuple[str, ...]] = ()

    def check_settings(self):
        pass

    def _check_arrays(self):
        pass

    def learn(self, interactions, plan, monitor):
        pass

    def scorer(self, queries, threads=None):
        return DotProductScorer(np.ones((len(queries), 1), np.float32), np.array(self.scores, np.float32)[:, None])


def textbook(tops: list[list], train: sl.Interactions) -> dict[str, object]:
    """By ids, from lists and histories as anyone would get them."""
    contexts = {one: set(train.history(one)) for one in train.contexts.ids()}
    had = {item: {c for c, row in contexts.items() if item in row} for item in train.items.ids()}
    times = sorted(sum(item in top for top in tops) for item in had)
    size = len(times)

    def cosine(a, b):
        return len(had[a] & had[b]) / math.sqrt(len(had[a]) * len(had[b])) if had[a] and had[b] else 0.0

    def mean(values):
        values = list(values)
        return sum(values) / len(values) if values else math.nan

    return {
        "coverage@6": len(set().union(*tops)) / size,
        "gini@6": sum((2 * k - size - 1) * x for k, x in enumerate(times, 1)) / ((size - 1) * sum(times)),
        "popularity@6": [mean(len(had[item]) / len(contexts) for item in top) for top in tops],
        "novelty@6": [mean(-math.log2(len(had[item]) / len(contexts)) for item in top) for top in tops],
        "distance@6": [mean(1 - cosine(a, b) for a, b in combinations(top, 2)) for top in tops],
        "cold_share@6": [mean(not had[item] for item in top) for top in tops],
    }


@pytest.mark.parametrize("kind", ["time-drop", "time-keep", "contexts"])
@pytest.mark.parametrize("others", [[], ["recall@3"], ["recall@9", "auc"]])
def test_equals_the_textbook(events, kind, others):
    if kind == "contexts":
        split = sl.splits.held_out_contexts(events, 10, fold_in=0.6)
    else:
        split = sl.splits.by_time(events, 0.3, repeats=kind[5:])
    model = sl.IALS(dim=5, epochs=3).fit(split.train)
    result = sl.evaluate(model, split, [*others, *BEYOND])
    tops = []
    for context in split.truth.contexts.ids():
        history = list(dict.fromkeys(split.history.history(context)))
        query = {"history": [history]} if split.fold_in else {"contexts": [context]}
        tops.append(model.recommend(**query, n=6, exclude_seen=split.exclude_seen).ids[0])
    expected = textbook(tops, split.train)
    for metric in PER_CONTEXT:
        np.testing.assert_allclose(result.of(metric), expected[metric], rtol=1e-12, atol=1e-12, err_msg=metric)
    for metric in OVERALL:
        assert result[metric] == pytest.approx(expected[metric], rel=1e-12)
    for metric in others:
        assert result[metric] == sl.evaluate(model, split, metric)[metric]


def test_a_planted_case():
    """Everyone is offered a, which 2 of 4 had, and b, which 3 had, both of them 2; c had one context, d none."""
    train = sl.Interactions.from_frame({"u": [1, 2, 1, 2, 3, 4], "i": [*"aabbbc"]}, context="u", item="i")
    truth = sl.Interactions.from_frame({"u": [1, 2, 3, 4], "i": [*"aaaa"]}, context="u", item="i")
    split = sl.splits.given(train.extend(items=["d"]), truth, repeats="keep")
    model = Given(scores=(4.0, 3.0, 2.0, 1.0)).fit(split.train)
    names = ["coverage", "gini", "popularity", "novelty", "distance", "cold_share"]
    result = sl.evaluate(model, split, [f"{name}@2" for name in names])
    expected = [0.5, 16 / 24, 0.625, (1 + math.log2(4 / 3)) / 2, 1 - 2 / math.sqrt(6), 0.0]
    assert list(result.values()) == pytest.approx(expected, rel=1e-14)


def test_threads_memory_and_order_of_metrics_change_nothing(split, model):
    one = sl.evaluate(model, split, BEYOND)
    for other in (
        sl.evaluate(model, split, BEYOND, threads=1),
        sl.evaluate(model, split, BEYOND, threads=3, memory=1000),
        sl.evaluate(model, split, [*BEYOND[::-1], "recall@20", "auc"]),
    ):
        for metric in PER_CONTEXT:
            np.testing.assert_array_equal(one.of(metric), other.of(metric))
        for metric in OVERALL:
            assert one[metric] == other[metric]


def test_ids_change_nothing(events):
    """Renamed items have other codes and the same figures."""
    frame = events.to_polars()
    rng = np.random.default_rng(3)
    names = {old: f"{k:03}" for k, old in zip(rng.permutation(events.n_items), events.items.ids())}
    renamed = frame.with_columns(pl.col("i").replace_strict(names))
    results = []
    for data in (frame, renamed):
        split = sl.splits.by_time(sl.Interactions.from_frame(data, context="u", item="i", time="t"), 0.3)
        results.append(sl.evaluate(sl.EASE(regularization=5).fit(split.train), split, BEYOND))
    for metric in BEYOND:
        assert results[0][metric] == pytest.approx(results[1][metric], rel=1e-6), metric


@pytest.mark.parametrize(
    "model",
    [
        sl.UserKNN(neighbours=1),  # ties everywhere: searched again as a whole
        sl.ItemKNN(neighbours=4),
        sl.SLIM(l1=1.5, l2=1.0),
        sl.Popularity(),
        sl.EASE(regularization=5.0),  # none
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("n", [1, 6, 29, 30, 50])
def test_lists_are_those_that_people_are_shown(model, split, n):
    """Though equal scores are ordered at random where ranks are judged."""
    model.fit(split.train)
    shown = model.recommend(split.truth.contexts.ids(), n=n).ids
    metrics = [f"coverage@{n}", f"popularity@{n}"]
    result = sl.evaluate(model, split, ["recall@3", *metrics])
    share = dict(zip(model.items_.ids(), model.popularity_ / len(model.contexts_)))
    assert result[metrics[0]] == pytest.approx(len({one for row in shown for one in row}) / split.train.n_items)
    np.testing.assert_allclose(result.of(metrics[1]), [np.mean([share[one] for one in row]) for row in shown])


def test_only_tied_contexts_are_searched_again(split, monkeypatch):
    searched = []
    real = catalogue_search.top_n

    def top_n(scorer, n, **how):
        searched.append(scorer.n_queries)
        return real(scorer, n, **how)

    class Tied(sl.EASE):
        """Knows nothing about one context."""

        def scorer(self, queries, threads=None):
            scorer = super().scorer(queries, threads)
            real_score = scorer.score

            def score(rows, items, out):
                real_score(rows, items, out)
                out[np.arange(rows.start, rows.stop) == 3] = 0

            scorer.score = score
            return scorer

    monkeypatch.setattr(catalogue_search, "top_n", top_n)
    model = Tied(regularization=5.0).fit(split.train)
    result = sl.evaluate(model, split, ["popularity@4"])
    assert searched == [split.truth.n_contexts, 1]
    popular = sl.evaluate(sl.Popularity().fit(split.train), split, ["popularity@4"])
    assert result.of("popularity@4")[3] == popular.of("popularity@4")[3]


class TestEconomy:
    """One search for everything that lists can answer, none that nobody asked for."""

    @pytest.fixture
    def searches(self, monkeypatch):
        done = []
        real = {name: getattr(catalogue_search, name) for name in ("top_n", "item_ranks")}

        def top_n(scorer, n, **how):
            done.append(("top_n", n))
            return real["top_n"](scorer, n, **how)

        def item_ranks(scorer, targets, **how):
            done.append(("item_ranks",))
            return real["item_ranks"](scorer, targets, **how)

        monkeypatch.setattr(catalogue_search, "top_n", top_n)
        monkeypatch.setattr(catalogue_search, "item_ranks", item_ranks)
        return done

    @pytest.mark.parametrize(
        ("metrics", "expected"),
        [
            (["recall@5", "ndcg@9"], [("top_n", 9)]),
            (["recall@5", "coverage@9", "gini@3"], [("top_n", 10)]),
            (["recall@9", "distance@2"], [("top_n", 10)]),
            (["novelty@4"], [("top_n", 5)]),
            (["auc", "recall@9"], [("item_ranks",)]),
            (["auc", "recall@9", "coverage@4"], [("item_ranks",), ("top_n", 5)]),
        ],
    )
    def test_searches(self, searches, split, model, metrics, expected):
        sl.evaluate(model, split, metrics)
        assert searches == expected

    def test_pairs_are_counted_only_for_distance(self, monkeypatch, split, model):
        def never(*_, **__):
            raise AssertionError

        monkeypatch.setattr("shortlist.metrics.beyond_accuracy.cosine_sums", never)
        sl.evaluate(model, split, ["recall@5", "coverage@5", "novelty@5"])
        with pytest.raises(AssertionError):
            sl.evaluate(model, split, ["distance@5"])


class TestResult:
    def test_both_groups(self, split, model):
        result = sl.evaluate(model, split)
        assert list(result) == list(DEFAULT_METRICS)
        assert result.accuracy == ["recall@20", "ndcg@20"]
        assert result.beyond_accuracy == [f"{one[:-2]}@20" for one in BEYOND]
        lines = repr(result).splitlines()
        assert lines[3].startswith("beyond accuracy")
        assert f"  coverage@20    {result['coverage@20']:.4f}" in lines
        assert f"  novelty@20     {result['novelty@20']:.4f} ± {result.stderr['novelty@20']:.4f}" in lines
        assert "beyond" not in repr(sl.evaluate(model, split, "recall@5"))
        assert repr(sl.evaluate(model, split, "gini@5")).splitlines()[1].startswith("beyond")

    def test_one_number_for_all(self, split, model):
        result = sl.evaluate(model, split, ["recall@6", *BEYOND])
        n = split.truth.n_contexts
        for metric in OVERALL:
            assert isinstance(result[metric], float)
            assert math.isnan(result.stderr[metric])
            with pytest.raises(sl.SettingError, match="one number for all contexts"):
                result.of(metric)
        assert result["ild@6"] == result["distance@6"]
        assert result.to_polars()["contexts"].to_list() == [n] * 7
        assert result.per_context().columns == ["u", "recall@6", *PER_CONTEXT]
        assert result.stderr["novelty@6"] == pytest.approx(result.of("novelty@6").std(ddof=1) / n**0.5)

    def test_lists_that_are_too_short_have_no_value(self):
        train = sl.Interactions.from_frame({"u": [1, 1, 2, 3], "i": [1, 2, 3, 3]}, context="u", item="i")
        truth = sl.Interactions.from_frame({"u": [1, 2], "i": [3, 1]}, context="u", item="i")
        result = sl.evaluate(sl.Popularity().fit(train), sl.splits.given(train, truth), BEYOND)
        assert np.isnan(result.of("distance@6")).tolist() == [True, False]  # for context 1 only item 3 is left
        assert result.of("popularity@6").tolist() == pytest.approx([2 / 3, 1 / 3])
        assert result.to_polars()["contexts"].to_list() == [2, 2, 2, 2, 1, 2]
        assert math.isfinite(result["distance@6"])

    def test_candidates_refuse_them(self, model, split):
        with pytest.raises(sl.SettingError, match=r"has no coverage@5, distance@5.*use evaluate"):
            sl.evaluate_candidates(model, split.truth, split.truth, ["hit@5", "coverage@5", "ild@5"])


class TestCompare:
    @pytest.fixture
    def results(self, split, model):
        return [sl.evaluate(one, split, ["recall@6", *BEYOND]) for one in (model, sl.Popularity().fit(split.train))]

    def test_no_better_and_no_worse(self, results):
        comparison = sl.compare(*results[::-1])
        frame = comparison.to_polars()
        assert frame["metric"].to_list() == [one for metric in ("recall@6", *BEYOND) for one in (metric, metric)]
        assert frame.schema["worse"] == pl.Boolean
        for metric in BEYOND:
            rows = [row for row in comparison.rows if row["metric"] == metric]
            assert [row["model"] for row in rows] == ["Popularity", "IALS"]  # as given
            assert [row["worse"] for row in rows] == [None, None]
            assert rows[0]["difference"] == rows[0]["low"] == rows[0]["high"] == 0
            assert rows[1]["difference"] == pytest.approx(results[0][metric] - results[1][metric], abs=1e-12)
            if metric in OVERALL:
                assert math.isnan(rows[1]["low"])
            else:
                assert rows[1]["low"] <= rows[1]["difference"] + 1e-12
                assert rows[1]["high"] >= rows[1]["difference"] - 1e-12
            with pytest.raises(sl.SettingError, match="neither better nor worse"):
                comparison.best(metric)
        popularity = next(row for row in comparison.rows if row["metric"] == "popularity@6" and row["model"] == "IALS")
        assert popularity["high"] < 0  # told from zero, and not called worse

    def test_it_reads_well(self, results):
        text = repr(sl.compare(*results))
        beyond = text[text.index("coverage@6") :]
        assert "coverage@6 (difference to IALS)\n" in beyond
        assert "novelty@6 (difference to IALS with its 95% interval)" in beyond
        assert "worse" not in beyond
        assert "best" not in beyond
        assert "nan" not in beyond
        assert re.search(r"popularity@6 .*interval\)\n  IALS .*± 0.\d{4}\n  Popularity .* \+0.\d{4} \[.*\]\n", beyond)

    def test_only_beyond_accuracy(self, split, model):
        comparison = sl.compare(*[sl.evaluate(model, split, "gini@3")] * 2)
        assert comparison.to_polars().schema["worse"] == pl.Boolean
        assert comparison.to_polars()["difference"].to_list() == [0, 0]

    def test_equal_draws_for_all_metrics(self, results):
        """Whether compared alone or beside others, an interval is the same."""
        both = sl.compare(*results).rows
        values = [{"novelty@6": one.of("novelty@6")} for one in results]
        alone = sl.compare(
            *(sl.Evaluation(one.model, one.protocol, one.contexts, v) for one, v in zip(results, values))
        )
        row = next(row for row in both if row["metric"] == "novelty@6" and row["model"] == "Popularity")
        assert alone.rows[1] == pytest.approx(row)


@pytest.fixture(scope="module")
def cold():
    """40 contexts, items 0…9 had by some, 10…19 by nobody."""
    u, i = np.repeat(np.arange(40), 2), np.concatenate([[c % 10, (c + 1) % 10] for c in range(40)])
    train = sl.Interactions.from_frame({"u": u, "i": i}, context="u", item="i").extend(items=range(10, 20))
    truth = sl.Interactions.from_frame({"u": np.arange(40), "i": (np.arange(40) + 5) % 10}, context="u", item="i")
    return sl.splits.given(train, truth)


class TestUntrained:
    def evaluated(self, cold, scores, metrics="recall@5"):
        return sl.evaluate(Given(scores=tuple(scores)).fit(cold.train), cold, metrics)

    def test_folding_is_warned_of(self, cold):
        scores = [*np.linspace(0.5, 0.6, 10), *np.linspace(0.0, 0.3, 9), 9.0]  # one that nobody had above all
        with pytest.warns(
            sl.ShortlistWarning, match=r"20% of the first 5 positions in the lists of Given .*deny="
        ) as told:
            result = self.evaluated(cold, scores, ["recall@5", "cold_share@5"])
        assert told[0].filename == __file__
        assert result["cold_share@5"] == pytest.approx(0.2)
        with pytest.warns(sl.ShortlistWarning, match="100% of the first 1 position "):
            self.evaluated(cold, scores, ["recall@1", "hit@20"])  # by what is seen first

    def test_lists_that_nobody_asked_for_are_not_looked_at(self, cold):
        self.evaluated(cold, [*[0.0] * 10, *[1.0] * 10], ["auc"])

    def test_where_all_is_equal_recommend_takes_the_popular_ones(self, cold):
        result = self.evaluated(cold, [0.0] * 20, ["recall@5", "cold_share@5"])
        assert result["cold_share@5"] == 0
        model = Given(scores=tuple([0.0] * 20)).fit(cold.train)
        assert max(max(row) for row in model.recommend(range(40), n=5).ids) < 10

    def test_ties_at_the_end_of_lists(self, cold):
        """Three good items, then nothing but ties: no alarm; with the trained ones below, there is one."""
        self.evaluated(cold, [3.0, 2.0, 1.0, *[0.0] * 17], ["recall@5", "cold_share@5"])
        with pytest.warns(sl.ShortlistWarning, match="of the first 5 positions"):
            self.evaluated(cold, [3.0, 2.0, 1.0, *[-0.1] * 7, *[0.0] * 10])

    def test_where_trained_items_run_out_the_others_fill_the_list(self, cold):
        result = self.evaluated(cold, [*[1.0] * 10, *[0.0] * 10], ["cold_share@15"])
        assert result["cold_share@15"] == pytest.approx(7 / 15)  # 8 of the 10 are not seen

    def test_few_are_chance(self):
        top = np.array([[0, 1, 2, 3]] * 100)
        popularity = np.array([3, 2, 2, 1, 1, 0])
        assert out_of_place(top, popularity, None) == 0
        top[7, 2] = 5
        assert out_of_place(top, popularity, None) == 1 / 400
        excluded = SparseRows.from_lists([np.array([4, 2] if q == 7 else [4]) for q in range(100)], 6)
        assert out_of_place(top, popularity, excluded) == 0  # three trained ones were left for four places

    @pytest.mark.parametrize("model", [sl.Popularity(), sl.EASE(regularization=1.0), sl.IALS(dim=4, epochs=2)])
    def test_our_own_models_do_not_fold(self, cold, model):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sl.evaluate(model.fit(cold.train), cold, ["recall@3", "cold_share@3"])
