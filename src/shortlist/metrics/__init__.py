"""Metrics of ranks and of lists: arrays in, numbers out (article, section "Evaluation").

**Accuracy.** R is the set of ranks, counted from 1, of one context's relevant items. N is the number of items ranked
for the context: the catalogue without excluded items. g(r) = 1 / log2(r + 1). Each metric gives one value per context,
in [0, 1], higher is better; the caller averages them.

| written           | function            | also called            | value for one context                           |
|-------------------|---------------------|------------------------|-------------------------------------------------|
| `precision@n`     | `precision`         |                        | #{r ∈ R: r ≤ n} / n                             |
| `recall@n`        | `recall`            |                        | #{r ∈ R: r ≤ n} / #R                            |
| `capped_recall@n` | `capped_recall`     |                        | #{r ∈ R: r ≤ n} / min(n, #R)                    |
| `ap@n`            | `average_precision` | map, average_precision | Σ_{r ∈ R, r ≤ n} precision@r / min(n, #R)       |
| `ndcg@n`          | `ndcg`              |                        | Σ_{r ∈ R, r ≤ n} g(r) / Σ_{i ≤ min(n, #R)} g(i) |
| `hit@n`           | `hit_rate`          | hr, hit_rate           | 1 if min R ≤ n, else 0                          |
| `mrr`, `mrr@n`    | `reciprocal_rank`   | rr                     | 1 / min R, or 0 if min R > n                    |
| `auc`             | `auc`               |                        | #{r ∈ R, r' ∉ R: r < r'} / (#R · (N − #R))      |

>>> from shortlist.metrics import Ranks, parse_metrics
>>> ranks = Ranks.from_lists([[1, 4], [3]], n_items=10)
>>> for metric in parse_metrics("recall@3, ndcg@3, auc"):
...     print(metric, metric.compute(ranks).round(3).tolist())
recall@3 [0.5, 1.0]
ndcg@3 [0.613, 0.5]
auc [0.875, 0.778]

**Beyond accuracy.** L is the list of the first n items recommended to a context; p(i) is the fraction of training
contexts that have item i. Higher values are neither better nor worse. Each list has a value, except that coverage and
gini are one number for all lists.

| written           | function            | also called            | value                                           |
|-------------------|---------------------|------------------------|-------------------------------------------------|
| `coverage@n`      | `coverage`          |                        | fraction of the catalogue that is in any L      |
| `gini@n`          | `gini`              |                        | Gini coefficient of how often items are in L    |
| `popularity@n`    | `popularity`        |                        | mean of p(i) over L                             |
| `novelty@n`       | `novelty`           |                        | mean of −log2 p(i) over L, in bits              |
| `distance@n`      | `distance`          | ild                    | mean of 1 − cos(i, j) over the pairs of L       |
| `cold_share@n`    | `cold_share`        |                        | fraction of L that no training context has      |
| `miscalibration@n` | `miscalibration`   |                        | distance of popularity in L and in the history  |

>>> from shortlist.metrics import Lists
>>> lists = Lists.from_lists([[0, 1], [0, 2]], trained=[[0, 1], [0, 1], [0], [0]], n_items=4)
>>> for metric in parse_metrics("coverage@2, popularity@2, cold_share@2"):
...     print(metric, metric.compute(lists).round(3).tolist())
coverage@2 0.75
popularity@2 [0.75, 0.5]
cold_share@2 [0.0, 0.5]
"""

from typing import Any

from shortlist._renamed import name_in
from shortlist.metrics.accuracy import (
    auc,
    average_precision,
    capped_recall,
    hit_rate,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
)
from shortlist.metrics.beyond_accuracy import cold_share, coverage, distance, gini, miscalibration, novelty, popularity
from shortlist.metrics.lists import Lists
from shortlist.metrics.ranks import Ranks
from shortlist.metrics.spec import Metric, parse_metric, parse_metrics

__all__ = [
    "Lists",
    "Metric",
    "Ranks",
    "auc",
    "average_precision",
    "capped_recall",
    "cold_share",
    "coverage",
    "distance",
    "gini",
    "hit_rate",
    "miscalibration",
    "ndcg",
    "novelty",
    "parse_metric",
    "parse_metrics",
    "popularity",
    "precision",
    "recall",
    "reciprocal_rank",
]


def __getattr__(name: str) -> Any:
    return globals()[name_in(__name__, name)]
