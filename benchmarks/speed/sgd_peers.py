"""How the peers of `speed.sgd` learn: each reports the seconds and the embeddings of every epoch in the same way.

A peer's own biases are coordinates of the embeddings, so that every score is one inner product. The clock runs around
the peer's own epoch, as it says itself (implicit, which calls back with the seconds) or as is measured around the
method that does one (Cornac, LightFM); what `fit` does before the first epoch is in none of them. What they do in an
epoch of |S| samples is not quite the same:

* implicit, Cornac: positives at random with replacement. A negative that is in the user's history is not drawn again:
  the sample is left out, and counts as one all the same. Cornac draws negatives uniformly, implicit by popularity.
* LightFM: positives in a fresh shuffle, Adagrad, and negatives are drawn again until one is not in the history; by
  popularity for BPR, uniformly for WARP, whose cap is on the draws, those from the history among them.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Told = Callable[[float, np.ndarray, np.ndarray], object]  # of an epoch: seconds, users' and items' embeddings
ROUNDS = 10  # WARP's cap on draws


class Enough(Exception):  # noqa: N818  (it is no error)
    """Raised by who is told, where no more epochs are wanted."""


def run(peer: str, matrix: Any, dim: int, settings: dict[str, Any], threads: int, seed: int, told: Told) -> None:
    """Learn from a 0/1 matrix of users × items (CSR) until the epochs of the settings are over, or it is enough."""
    with contextlib.suppress(Enough):
        PEERS[peer](matrix, dim, settings, threads, seed, told)


def implicit_bpr(matrix: Any, dim: int, settings: dict[str, Any], threads: int, seed: int, told: Told) -> None:
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(
        factors=dim, learning_rate=settings["learning_rate"], regularization=settings["regularization"],
        iterations=settings["epochs"], num_threads=threads, verify_negative_samples=True, random_state=seed,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about BLAS, which it does not use here
        model.fit(
            matrix, show_progress=False,
            callback=lambda _, seconds, *counts: told(seconds, model.user_factors, model.item_factors),
        )  # fmt: skip


def cornac_bpr(matrix: Any, dim: int, settings: dict[str, Any], threads: int, seed: int, told: Told) -> None:
    from cornac.data import Dataset
    from cornac.models import BPR
    from cornac.utils import get_rng

    class Timed(BPR):  # type: ignore[misc]
        def _fit_sgd(self, *arguments: Any) -> Any:
            began = time.perf_counter()
            counts = super()._fit_sgd(*arguments)
            told(time.perf_counter() - began, *with_bias(self.u_factors, self.i_factors, self.i_biases))
            return counts

    n_users, n_items = matrix.shape
    pairs = matrix.tocoo()
    # `Dataset.from_uir` would make the same of Python tuples.
    data = Dataset(
        n_users, n_items, {k: k for k in range(n_users)}, {k: k for k in range(n_items)},
        (pairs.row, pairs.col, np.ones(len(pairs.row), np.float64)),
    )  # fmt: skip
    model = Timed(
        k=dim, learning_rate=settings["learning_rate"], lambda_reg=settings["regularization"],
        max_iter=settings["epochs"], num_threads=threads, verbose=False,
    )  # fmt: skip
    model.rng = get_rng(seed)  # with the argument `seed` it would use one thread
    model.fit(data)


def lightfm(loss: str) -> Callable[..., None]:
    def fit(matrix: Any, dim: int, settings: dict[str, Any], threads: int, seed: int, told: Told) -> None:
        from lightfm import LightFM

        class Timed(LightFM):  # type: ignore[misc]
            def _run_epoch(self, *arguments: Any) -> None:
                began = time.perf_counter()
                super()._run_epoch(*arguments)
                seconds = time.perf_counter() - began
                told(seconds, *with_bias(self.user_embeddings, self.item_embeddings, self.item_biases))

        model = Timed(
            no_components=dim, loss=loss, learning_schedule="adagrad", learning_rate=settings["learning_rate"],
            item_alpha=settings["regularization"], user_alpha=settings["regularization"], max_sampled=ROUNDS,
            random_state=seed,
        )  # fmt: skip
        model.fit(matrix.tocoo(), epochs=settings["epochs"], num_threads=threads)

    return fit


def with_bias(users: np.ndarray, items: np.ndarray, biases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ones = np.ones((len(users), 1), np.float32)
    return np.hstack([users, ones], dtype=np.float32), np.hstack([items, biases[:, None]], dtype=np.float32)


PEERS: dict[str, Callable[..., None]] = {
    "implicit-bpr": implicit_bpr,
    "cornac-bpr": cornac_bpr,
    "lightfm-bpr": lightfm("bpr"),
    "lightfm-warp": lightfm("warp"),
}
LABELS = {
    "implicit-bpr": "implicit, BPR",
    "cornac-bpr": "Cornac, BPR",
    "lightfm-bpr": "LightFM, BPR",
    "lightfm-warp": "LightFM, WARP",
}
