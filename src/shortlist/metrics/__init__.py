"""Ranks and the metrics over them: arrays in, numbers out (article, section "Evaluation").

R is the set of ranks, counted from 1, that a model gives to the relevant items of one context; N is the number of items
that were ranked for it: the whole catalogue, less what was excluded; g(r) = 1 / log2(r + 1). Every metric gives one
value per context, in [0, 1] and the higher the better; how to average them is the caller's affair.

| written           | function            | also called            | value for one context                           |
|-------------------|---------------------|------------------------|-------------------------------------------------|
| `precision@n`     | `precision`         |                        | #{r ∈ R: r ≤ n} / n                             |
| `recall@n`        | `recall`            |                        | #{r ∈ R: r ≤ n} / #R                            |
| `capped_recall@n` | `capped_recall`     |                        | #{r ∈ R: r ≤ n} / min(n, #R)                    |
| `ap@n`            | `average_precision` | map, average_precision | Σ_{r ∈ R, r ≤ n} precision@r / min(n, #R)       |
| `ndcg@n`          | `ndcg`              |                        | Σ_{r ∈ R, r ≤ n} g(r) / Σ_{i ≤ min(n, #R)} g(i) |
| `hit@n`           | `hit_rate`          | hr, hit_rate           | 1 if min R ≤ n, else 0                          |
| `mrr`, `mrr@n`    | `reciprocal_rank`   | rr                     | 1 / min R, and 0 if that is beyond n            |
| `auc`             | `auc`               |                        | #{r ∈ R, r' ∉ R: r < r'} / (#R · (N − #R))      |

>>> from shortlist.metrics import Ranks, parse_metrics
>>> ranks = Ranks.from_lists([[1, 4], [3]], n_items=10)
>>> for metric in parse_metrics("recall@3, ndcg@3, auc"):
...     print(metric, metric.compute(ranks).round(3).tolist())
recall@3 [0.5, 1.0]
ndcg@3 [0.613, 0.5]
auc [0.875, 0.778]
"""

from shortlist.metrics.measures import (
    auc,
    average_precision,
    capped_recall,
    hit_rate,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
)
from shortlist.metrics.ranks import Ranks
from shortlist.metrics.spec import Metric, parse_metric, parse_metrics

__all__ = [
    "Metric",
    "Ranks",
    "auc",
    "average_precision",
    "capped_recall",
    "hit_rate",
    "ndcg",
    "parse_metric",
    "parse_metrics",
    "precision",
    "recall",
    "reciprocal_rank",
]
