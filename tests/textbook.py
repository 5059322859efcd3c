"""Metrics of a ranking that is spelled out, by the article's formulas."""

from __future__ import annotations

import math

METRICS = ["precision@3", "recall@3", "capped_recall@3", "ap@5", "ndcg@5", "hit@2", "mrr@4", "mrr", "auc"]


def textbook(ranked: list, relevant: set) -> dict[str, float]:
    """The article's formulas over an explicit list."""
    places = [k for k, item in enumerate(ranked, 1) if item in relevant]
    size, n_items = len(relevant), len(ranked)

    def hits(n):
        return sum(place <= n for place in places)

    def ap(n):
        return sum(hits(place) / place for place in places if place <= n) / min(size, n)

    def ndcg(n):
        ideal = sum(1 / math.log2(k + 1) for k in range(1, min(size, n) + 1))
        return sum(1 / math.log2(place + 1) for place in places if place <= n) / ideal

    above = sum(sum(other > place for other in range(1, n_items + 1) if other not in places) for place in places)
    return {
        "precision@3": hits(3) / 3,
        "recall@3": hits(3) / size,
        "capped_recall@3": hits(3) / min(3, size),
        "ap@5": ap(5),
        "ndcg@5": ndcg(5),
        "hit@2": float(hits(2) > 0),
        "mrr@4": 1 / places[0] if places[0] <= 4 else 0.0,
        "mrr": 1 / places[0],
        "auc": above / (size * (n_items - size)) if size < n_items else float("nan"),
    }
