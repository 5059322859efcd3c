"""Shortlist, which also makes the data for everybody."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from peer_data import CUT, DIM, THREADS, BasePeer

import shortlist as sl

CONTEXTS, ITEMS, PAIRS = 50_000, 20_000, 3_000_000
EPOCHS = 6  # of a fit, the first of which is not counted: peers have a warm-up too, and a WARP slows down as it learns
ASKED = 10_000  # users whose lists are evaluated for the clock
PLAIN = {"dim": DIM, "epochs": EPOCHS, "schedule": "constant", "init": "random", "init_scale": 0.1}
METRICS = (f"recall@{CUT}", f"ndcg@{CUT}")


class Peer(BasePeer):
    packages = ("shortlist", "numba")
    _split: Any = None
    _model: Any = None

    def prepare(self) -> dict[str, Any]:
        """Write the data."""
        split = speed_split()
        model = sl.IALS(dim=DIM, epochs=1).fit(split.train, threads=THREADS)
        factors = {"user_factors": model.context_embeddings_, "item_factors": model.item_embeddings_}
        write(self.folder / "speed.npz", split, factors)
        retail = retail_split()
        write(self.folder / "retail.npz", retail, {})
        return {"speed": about(split), "retail": about(retail)}

    def epoch(self) -> dict[str, Any]:
        """iALS; the step that solves for the contexts once more at the end of a fit is no epoch."""
        return {"seconds": self._epoch(sl.IALS(dim=DIM, epochs=EPOCHS))}

    def epoch_warp(self) -> dict[str, Any]:
        """To compare LightFM's epoch with: its learning rate and its ten draws at most."""
        return {"seconds": self._epoch(sl.WARP(optimizer="adagrad", learning_rate=0.05, rounds=10, **PLAIN))}

    def epoch_bpr(self) -> dict[str, Any]:
        """To compare RecBole's epoch with: its learning rate, Adam, one negative a pair."""
        return {"seconds": self._epoch(sl.BPR(optimizer="adam", learning_rate=0.001, **PLAIN))}

    def _epoch(self, model: Any) -> float:
        if self._split is None:
            self._split = speed_split()
        seconds: list[float] = []
        model.fit(self._split.train, callbacks=[lambda epoch: seconds.append(epoch.seconds)], threads=THREADS)
        return median(seconds[1:])

    def prepare_evaluation(self) -> dict[str, Any]:
        self._split = speed_split()
        self._model = sl.IALS(dim=DIM, epochs=1).fit(self._split.train, threads=THREADS)
        return {}

    def evaluate(self) -> dict[str, Any]:
        began = time.perf_counter()
        values = sl.evaluate(self._model, self._split, METRICS, threads=THREADS)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "metrics": {name.partition("@")[0]: value for name, value in values.items()}}

    def recommend(self, name: str) -> dict[str, Any]:
        """`IALS()`, all settings left out."""
        split = retail_split()
        model = sl.IALS().fit(split.train, threads=THREADS)
        lists = model.recommend(split.truth.contexts.ids(), n=CUT).ids
        return self.write_lists(name, np.stack([split.train.items.encode(items) for items in lists]))


def speed_split() -> Any:
    events = sl.datasets.synthetic(CONTEXTS, ITEMS, PAIRS, seed=1)
    split = sl.splits.at_random(events, 0.1, seed=1)
    return sl.splits.given(split.train, split.truth.select(split.truth.context_codes < ASKED))


def retail_split() -> Any:
    """That of the README and of `shortlist demo`."""
    events = sl.datasets.load("online-retail").interactions
    return sl.splits.by_time(events, test=0.1, repeats="drop")


def write(file: Path, split: Any, arrays: dict[str, Any]) -> None:
    """A split by the codes of `split.train`. Pairs count once, whatever their weights."""
    train, truth = split.train.by_context, split.truth.by_context
    users = split.train.contexts.encode(split.truth.contexts.frame)
    order = np.argsort(users)
    lengths = np.zeros(train.n_rows, np.int64)
    lengths[users] = truth.lengths
    np.savez(
        file,
        shape=[train.n_rows, train.n_columns],
        users=users[order],
        train_indptr=train.indptr,
        train_indices=train.indices,
        test_indptr=np.concatenate([[0], np.cumsum(lengths)]),
        test_indices=truth.take(order).indices,
        **arrays,
    )


def about(split: Any) -> dict[str, int]:
    return {
        "users": split.train.n_contexts,
        "items": split.train.n_items,
        "training_pairs": len(split.train.by_context),
        "users_asked": split.truth.n_contexts,
        "test_pairs": len(split.truth.by_context),
    }
