"""Small events with a planted taste, and second stages whose every number can be checked by hand."""

from __future__ import annotations

import numpy as np
import polars as pl

import shortlist as sl
from shortlist.reranking.candidates import Candidates


def events(seed: int = 0, n_users: int = 40, n_items: int = 30, n: int = 900) -> sl.Interactions:
    rng = np.random.default_rng(seed)
    return sl.Interactions.from_frame(
        {
            "user": [f"u{u}" for u in rng.integers(0, n_users, n)],
            "product": rng.zipf(1.3, n) % n_items,
            "when": rng.permutation(n),
        },
        context="user",
        item="product",
        time="when",
    )


def planted(seed: int = 0) -> tuple[sl.Interactions, pl.DataFrame, pl.DataFrame]:
    """Three times: 0 to 1 people buy what is of their group, later what of it is in season, 1 to 2 and 2 to 3.

    Each time has a season of its own, so what was bought before says nothing of it; the two frames do.
    """
    rng = np.random.default_rng(seed)
    n_users, n_items = 300, 200
    group = rng.integers(0, 4, n_items)
    seasons = [rng.random(n_items) < share for share in (1.0, 0.25, 0.25)]
    users, items, times = [], [], []
    for u in range(n_users):
        for when, season in enumerate(seasons):
            chosen = rng.choice(np.flatnonzero((group == u % 4) & season), size=5 if when else 12, replace=False)
            users += [u] * len(chosen)
            items += chosen.tolist()
            times += (when + rng.random(len(chosen))).tolist()
    found = sl.Interactions.from_frame({"u": users, "i": items, "t": times}, context="u", item="i", time="t")
    held, test = (pl.DataFrame({"i": np.arange(n_items), "season": one.astype(np.int64)}) for one in seasons[1:])
    return found, held, test


class Linear:
    """Least squares on the features."""

    def fit(self, candidates: Candidates, relevance: np.ndarray) -> None:
        self.weights = np.linalg.lstsq(self._table(candidates), relevance, rcond=None)[0]

    def score(self, candidates: Candidates) -> np.ndarray:
        return self._table(candidates) @ self.weights

    def _table(self, candidates: Candidates) -> np.ndarray:
        return np.column_stack([candidates.features, np.ones(len(candidates))]).astype(np.float64)


class ByFeature:
    """One feature, or less of it: an order that a test can write down. It keeps what it was given."""

    def __init__(self, name: str, sign: float = 1.0) -> None:
        self.name, self.sign = name, sign

    def fit(self, candidates: Candidates, relevance: np.ndarray) -> None:
        self.candidates, self.relevance = candidates, relevance

    def score(self, candidates: Candidates) -> np.ndarray:
        return self.sign * candidates.column(self.name)
