"""LensKit: `ImplicitMFScorer`. Its threads are set by LK_NUM_THREADS, LK_NUM_BACKEND_THREADS and LK_NUM_PROCS."""

from __future__ import annotations

import time
from typing import Any

import lenskit
import numpy as np
import pandas as pd
from lenskit.als import ImplicitMFScorer
from lenskit.batch import recommend
from lenskit.data import ItemListCollection, from_interactions_df
from lenskit.metrics import NDCG, Recall, RunAnalysis
from lenskit.pipeline import topn_pipeline
from lenskit.training import TrainingOptions
from peer_data import CUT, DIM, BasePeer


class Peer(BasePeer):
    packages = ("lenskit", "pandas")
    _trainer: Any = None
    _pipeline: Any = None
    _truth: Any = None
    _processes = 1

    def epoch(self) -> dict[str, Any]:
        """Cholesky, the only way it has."""
        if self._trainer is None:
            scorer = ImplicitMFScorer(embedding_size=DIM)
            self._trainer = scorer.create_trainer(dataset_of(self.speed.train), TrainingOptions(rng=0))
        began = time.perf_counter()
        self._trainer.train_epoch()
        return {"seconds": time.perf_counter() - began}

    def prepare_evaluation(self) -> dict[str, Any]:
        """`user_embeddings="prefer"` takes the stored embeddings: it saves folding in every user again."""
        data = self.speed
        scorer = ImplicitMFScorer(embedding_size=DIM, epochs=1, user_embeddings="prefer")
        self._pipeline = topn_pipeline(scorer)
        self._pipeline.train(dataset_of(data.train))
        scorer = self._pipeline.node("scorer").component
        users, items = data.factors
        scorer.user_embeddings = users[np.asarray(scorer.users.ids(), np.int64)]
        scorer.item_embeddings = items[np.asarray(scorer.items.ids(), np.int64)]
        self._truth = ItemListCollection.from_df(frame(data.test), ["user_id"])
        seconds = {processes: self._evaluate(processes)["seconds"] for processes in (1, 2)}
        self._processes = min(seconds, key=lambda processes: seconds[processes])
        return {"seconds_by_processes": seconds}

    def evaluate(self) -> dict[str, Any]:
        """By as many processes as were faster: two have to be started and fed."""
        return self._evaluate(self._processes)

    def _evaluate(self, processes: int) -> dict[str, Any]:
        began = time.perf_counter()
        lists = recommend(self._pipeline, self.speed.users.tolist(), CUT, n_jobs=processes)
        values = RunAnalysis(Recall(CUT), NDCG(CUT)).measure(lists, self._truth).list_summary()["mean"]
        seconds = time.perf_counter() - began
        named = {name.partition("@")[0].lower(): float(value) for name, value in values.items()}
        return {"seconds": seconds, "metrics": named}

    def recommend(self, name: str) -> dict[str, Any]:
        """The scorer in a top-n pipeline, all defaults; the seed only makes the run repeatable."""
        data = self.retail
        pipeline = topn_pipeline(ImplicitMFScorer())
        pipeline.train(dataset_of(data.train), TrainingOptions(rng=0))
        out = np.full((len(data.users), CUT), -1)
        for row, user in enumerate(data.users.tolist()):
            items = lenskit.recommend(pipeline, user, CUT).ids()
            out[row, : len(items)] = items
        return self.write_lists(name, out)


def frame(matrix: Any) -> pd.DataFrame:
    pairs = matrix.tocoo()
    return pd.DataFrame({"user_id": pairs.row, "item_id": pairs.col})


def dataset_of(matrix: Any) -> Any:
    return from_interactions_df(frame(matrix))
