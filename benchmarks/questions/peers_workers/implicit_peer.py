"""implicit: `AlternatingLeastSquares`. BLAS has one thread (OPENBLAS_NUM_THREADS), as its documentation asks for."""

from __future__ import annotations

import time
from typing import Any

from implicit.als import AlternatingLeastSquares
from implicit.evaluation import ranking_metrics_at_k
from peer_data import CUT, DIM, THREADS, BasePeer


class Peer(BasePeer):
    packages = ("implicit",)
    _model: Any = None

    def epoch(self) -> dict[str, Any]:
        """Conjugate gradients, its default; the clock is its own."""
        if self._model is None:
            self._model = AlternatingLeastSquares(factors=DIM, iterations=1, num_threads=THREADS, random_state=0)
        seconds: list[float] = []
        self._model.fit(
            self.speed.train, show_progress=False, callback=lambda _, elapsed, *loss: seconds.append(elapsed)
        )
        return {"seconds": seconds[0]}

    def prepare_evaluation(self) -> dict[str, Any]:
        self._model = AlternatingLeastSquares(factors=DIM, num_threads=THREADS)
        self._model.user_factors, self._model.item_factors = self.speed.factors
        return {}

    def evaluate(self) -> dict[str, Any]:
        data = self.speed
        began = time.perf_counter()
        values = ranking_metrics_at_k(
            self._model, data.train, data.test, K=CUT, show_progress=False, num_threads=THREADS
        )
        return {"seconds": time.perf_counter() - began, "metrics": {"ndcg": values["ndcg"]}}

    def recommend(self, name: str) -> dict[str, Any]:
        """All defaults; the seed only makes the run repeatable."""
        data = self.retail
        model = AlternatingLeastSquares(random_state=0, num_threads=THREADS)
        model.fit(data.train, show_progress=False)
        return self.write_lists(name, model.recommend(data.users, data.train[data.users], N=CUT)[0])
