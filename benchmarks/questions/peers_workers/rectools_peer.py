"""RecTools: `ImplicitALSWrapperModel`. BLAS has one thread, as the documentation of implicit asks for."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from implicit.als import AlternatingLeastSquares
from implicit.cpu.als import AlternatingLeastSquares as CPUAlternatingLeastSquares
from peer_data import CUT, DIM, THREADS, BasePeer, Data
from rectools import Columns
from rectools.dataset import Dataset
from rectools.metrics import NDCG, Recall, calc_metrics
from rectools.models import ImplicitALSWrapperModel


class Timed(CPUAlternatingLeastSquares):
    """Takes the time of the epoch that the wrapper has done."""

    seconds = 0.0

    def fit(self, *arguments: Any, **settings: Any) -> None:
        super().fit(*arguments, callback=self._told, **settings)

    def _told(self, epoch: int, elapsed: float, *loss: Any) -> None:
        self.seconds = elapsed


class Peer(BasePeer):
    packages = ("rectools", "pm-implicit", "pandas")
    _model: Any = None
    _dataset: Any = None
    _truth: Any = None

    def epoch(self) -> dict[str, Any]:
        if self._model is None:
            self._dataset = dataset_of(self.speed)
            peer = Timed(factors=DIM, iterations=1, num_threads=THREADS, random_state=0)
            self._model = ImplicitALSWrapperModel(peer)
        self._model.fit_partial(self._dataset, epochs=1)
        return {"seconds": self._model.model.seconds}

    def prepare_evaluation(self) -> dict[str, Any]:
        data = self.speed
        self._dataset = dataset_of(data)
        peer = AlternatingLeastSquares(factors=DIM, iterations=1, num_threads=THREADS)
        self._model = ImplicitALSWrapperModel(peer).fit(self._dataset)
        users, items = data.factors
        self._model.model.user_factors = users[codes(self._dataset.user_id_map)]
        self._model.model.item_factors = items[codes(self._dataset.item_id_map)]
        self._truth = interactions(data.test)
        return {}

    def evaluate(self) -> dict[str, Any]:
        began = time.perf_counter()
        lists = self._model.recommend(self.speed.users, self._dataset, k=CUT, filter_viewed=True)
        metrics = {"recall": Recall(k=CUT), "ndcg": NDCG(k=CUT)}
        values = calc_metrics(metrics, reco=lists, interactions=self._truth)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "metrics": {name: float(value) for name, value in values.items()}}

    def recommend(self, name: str) -> dict[str, Any]:
        """The wrapper as its documentation makes it; the seed only makes the run repeatable."""
        data = self.retail
        dataset = dataset_of(data)
        model = ImplicitALSWrapperModel(AlternatingLeastSquares(random_state=0, num_threads=THREADS))
        lists = model.fit(dataset).recommend(data.users, dataset, k=CUT, filter_viewed=True)
        out = np.full((len(data.users), CUT), -1)
        rows = np.searchsorted(data.users, lists[Columns.User])
        out[rows, lists[Columns.Rank].to_numpy() - 1] = lists[Columns.Item]
        return self.write_lists(name, out)


def interactions(matrix: Any) -> pd.DataFrame:
    pairs = matrix.tocoo()
    return pd.DataFrame(
        {
            Columns.User: pairs.row,
            Columns.Item: pairs.col,
            Columns.Weight: 1.0,
            Columns.Datetime: pd.Timestamp("2020-01-01"),
        }
    )


def dataset_of(data: Data) -> Dataset:
    return Dataset.construct(interactions(data.train))


def codes(id_map: Any) -> np.ndarray:
    """Our codes in the order of RecTools' own."""
    return np.asarray(id_map.convert_to_external(np.arange(id_map.size)))
