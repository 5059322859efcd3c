"""LightFM, from the package lightfm-next."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from lightfm import LightFM
from lightfm.evaluation import recall_at_k
from peer_data import CUT, DIM, THREADS, BasePeer, top_lists


class Timed(LightFM):
    """Takes the time of an epoch, without what `fit_partial` does before it."""

    seconds = 0.0

    def _run_epoch(self, *arguments: Any) -> None:
        began = time.perf_counter()
        super()._run_epoch(*arguments)
        self.seconds = time.perf_counter() - began


class Peer(BasePeer):
    packages = ("lightfm-next",)
    _model: Any = None

    def epoch(self) -> dict[str, Any]:
        """WARP, the loss that its documentation recommends for implicit feedback; it has no iALS."""
        if self._model is None:
            self._model = Timed(no_components=DIM, loss="warp", random_state=0)
        self._model.fit_partial(self.speed.train.tocoo(), epochs=1, num_threads=THREADS)
        return {"seconds": self._model.seconds}

    def prepare_evaluation(self) -> dict[str, Any]:
        data = self.speed
        self._model = LightFM(no_components=DIM, loss="warp", random_state=0)
        self._model.fit_partial(data.train.tocoo(), epochs=0)
        self._model.user_embeddings, self._model.item_embeddings = data.factors
        self._model.user_biases[:] = self._model.item_biases[:] = 0
        return {}

    def evaluate(self) -> dict[str, Any]:
        data = self.speed
        began = time.perf_counter()
        recalls = recall_at_k(self._model, data.test, data.train, k=CUT, num_threads=THREADS, check_intersections=False)
        return {"seconds": time.perf_counter() - began, "metrics": {"recall": float(recalls.mean())}}

    def recommend(self, name: str) -> dict[str, Any]:
        """`LightFM().fit(matrix)`, all defaults: logistic loss, one epoch, ten components."""
        return self.write_lists(name, self._lists(LightFM(random_state=0), {}))

    def recommend_quickstart(self, name: str) -> dict[str, Any]:
        """What its quickstart does: WARP and 30 epochs."""
        return self.write_lists(name, self._lists(LightFM(loss="warp", random_state=0), {"epochs": 30}))

    def _lists(self, model: LightFM, settings: dict[str, Any]) -> np.ndarray:
        data = self.retail
        model.fit(data.train.tocoo(), num_threads=THREADS, **settings)
        user_biases, users = model.get_user_representations()
        item_biases, items = model.get_item_representations()
        scores = users[data.users] @ items.T + user_biases[data.users, None] + item_biases
        return top_lists(scores, data.train[data.users])
