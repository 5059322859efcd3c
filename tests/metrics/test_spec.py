from __future__ import annotations

import numpy as np
import pytest

from shortlist import metrics
from shortlist.errors import SettingError
from shortlist.metrics import Lists, Metric, Ranks, parse_metric, parse_metrics

METRICS = ["precision@3", "recall@3", "capped_recall@3", "ap@3", "ndcg@3", "hit@3", "mrr@3", "mrr", "auc"]


@pytest.mark.parametrize(
    ("text", "name", "n"),
    [
        ("precision@5", "precision", 5),
        ("recall@20", "recall", 20),
        ("capped_recall@50", "capped_recall", 50),
        ("ap@10", "ap", 10),
        ("map@10", "ap", 10),
        ("average_precision@10", "ap", 10),
        ("ndcg@100", "ndcg", 100),
        (" NDCG@100 ", "ndcg", 100),
        ("hit@1", "hit", 1),
        ("hr@1", "hit", 1),
        ("hit_rate@1", "hit", 1),
        ("mrr", "mrr", None),
        ("rr@10", "mrr", 10),
        ("auc", "auc", None),
        ("coverage@20", "coverage", 20),
        ("gini@20", "gini", 20),
        ("popularity@5", "popularity", 5),
        ("Novelty@5", "novelty", 5),
        ("distance@10", "distance", 10),
        ("ild@10", "distance", 10),
        ("cold_share@20", "cold_share", 20),
    ],
)
def test_parse_and_write_again(text, name, n):
    metric = parse_metric(text)
    assert metric == Metric(name, n)
    assert parse_metric(str(metric)) == metric
    assert metric.needs_full_ranks == (n is None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ndcg", "has no n.*'ndcg@10'"),
        ("ndcg@0", "'ndcg@0' has '0' after the @.*'ndcg@10'"),
        ("ndcg@-5", "has '-5' after"),
        ("ndcg@x", "has 'x' after"),
        ("ndcg@", "has '' after"),
        ("ndcg@1.5", "has '1.5' after"),
        ("ndcg@²", "has '²' after"),
        ("ndcg@9999999999", "expected an integer from 1"),
        ("ndcg@" + "9" * 5000, "after the @"),
        ("ndcg@5@5", "has '5@5' after"),
        ("coverage", "has no n.*'coverage@10'"),
        ("gini@0", "'gini@0' has '0' after the @"),
        ("novlty@5", "did you mean 'novelty'"),
        ("auc@10", "takes no n; write 'auc'"),
        ("auc@x", "takes no n; write 'auc'"),
        (
            "recal@20",
            "unknown metric 'recal'; did you mean 'recall'.*known: precision, recall, capped_recall, ap, ndcg",
        ),
        ("zzz", r"unknown metric 'zzz' \(known"),
        ("", "unknown metric ''"),
        (7, "a metric is 7; expected text"),
    ],
)
def test_what_is_no_metric(text, message):
    with pytest.raises(SettingError, match=message):
        parse_metric(text)


def test_metric_itself_checks():
    with pytest.raises(SettingError, match="has no n"):
        Metric("recall")
    with pytest.raises(SettingError, match="takes no n"):
        Metric("auc", 5)
    with pytest.raises(SettingError, match="the n of metric 'ap' is 0"):
        Metric("map", 0)
    with pytest.raises(SettingError, match="unknown metric"):
        Metric("nope", 5)


def test_several():
    assert parse_metrics("recall@20, map@10,auc,") == [Metric("recall", 20), Metric("ap", 10), Metric("auc")]
    assert parse_metrics(["map@10", "ap@10", Metric("ap", 10)]) == [Metric("ap", 10)]
    for nothing in ([], "", " , "):
        with pytest.raises(SettingError, match="metrics is empty"):
            parse_metrics(nothing)
    with pytest.raises(SettingError, match="unknown metric ''"):
        parse_metrics(["recall@5", ""])


def test_compute_calls_the_function_of_that_name():
    ranks = Ranks.from_lists([[2, 9, 30], [5]], n_items=50)
    same = {
        "precision@10": metrics.precision(ranks, 10),
        "recall@10": metrics.recall(ranks, 10),
        "capped_recall@2": metrics.capped_recall(ranks, 2),
        "ap@10": metrics.average_precision(ranks, 10),
        "ndcg@10": metrics.ndcg(ranks, 10),
        "hit@4": metrics.hit_rate(ranks, 4),
        "mrr": metrics.reciprocal_rank(ranks),
        "mrr@4": metrics.reciprocal_rank(ranks, 4),
        "auc": metrics.auc(ranks),
    }
    for text, values in same.items():
        np.testing.assert_array_equal(parse_metric(text).compute(ranks), values)
        assert parse_metric(text).defined(ranks).all()


def test_which_metrics_see_lists_and_which_are_one_number():
    beyond = ["coverage@3", "gini@3", "popularity@3", "novelty@3", "distance@3", "cold_share@3"]
    assert [str(one) for one in parse_metrics([*METRICS, *beyond]) if one.beyond_accuracy] == beyond
    assert [str(one) for one in parse_metrics([*METRICS, *beyond]) if not one.per_context] == beyond[:2]
    ranks = Ranks.from_lists([[1]], n_items=4)
    lists = Lists.from_lists([[0, 2, 1]], trained=[[0, 1]], n_items=4)
    for metric in parse_metrics(beyond):
        values = metric.compute(lists)
        np.testing.assert_array_equal(values, getattr(metrics, metric.name)(lists, 3))
        assert values.shape == ((1,) if metric.per_context else ())
        with pytest.raises(SettingError, match=f"'{metric}' is computed from Lists, got Ranks"):
            metric.compute(ranks)
    with pytest.raises(SettingError, match="'recall@3' is computed from Ranks, got Lists"):
        parse_metric("recall@3").compute(lists)


def test_defined_marks_what_auc_refuses():
    ranks = Ranks.from_lists([[1, 2], [2]], n_items=2)
    assert Metric("auc").defined(ranks).tolist() == [False, True]
    assert Metric("recall", 5).defined(ranks).tolist() == [True, True]
