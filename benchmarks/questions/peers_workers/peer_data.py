"""The data that all libraries get, in plain NumPy and SciPy, and how a worker says what it is."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

CUT = 20  # length of the lists, and the k of the metrics
THREADS = 2
DIM = 128


@dataclass(frozen=True)
class Data:
    """Training pairs of users × items, and what some users did afterwards.

    Attributes:
        train: 0/1 matrix of all users × items.
        test: 0/1 matrix of the same shape, with pairs in the rows of `users` only.
        users: who is asked for, in ascending order.
        factors: embeddings of all users and of all items; none in the data for quality.
    """

    train: sp.csr_matrix
    test: sp.csr_matrix
    users: np.ndarray
    factors: tuple[np.ndarray, np.ndarray] | None

    @classmethod
    def read(cls, file: Path) -> Data:
        loaded = np.load(file)
        shape = tuple(loaded["shape"])
        matrices = [
            sp.csr_matrix(
                (
                    np.ones(len(loaded[f"{part}_indices"]), np.float32),
                    loaded[f"{part}_indices"],
                    loaded[f"{part}_indptr"],
                ),
                shape,
            )
            for part in ("train", "test")
        ]
        factors = (loaded["user_factors"], loaded["item_factors"]) if "user_factors" in loaded else None
        return cls(*matrices, loaded["users"], factors)


class BasePeer:
    """What all workers have: the data, read when it is needed, and the versions."""

    packages: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def versions(self) -> dict[str, str]:
        versions = {"python": platform.python_version()}
        for name in (*self.packages, "numpy", "scipy", "torch"):
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return versions

    @cached_property
    def speed(self) -> Data:
        """Data for the clock."""
        return Data.read(self.folder / "speed.npz")

    @cached_property
    def retail(self) -> Data:
        """Data for quality: the bundled Online Retail."""
        return Data.read(self.folder / "retail.npz")

    def write_lists(self, name: str, lists: np.ndarray) -> dict[str, Any]:
        """Keep the lists of `retail.users`: codes of items, -1 where a list has ended."""
        if lists.shape != (len(self.retail.users), CUT):
            raise ValueError(f"lists of shape {lists.shape}")
        np.save(self.folder / f"{name}.npy", lists.astype(np.int32))
        return {"lists": name}


def top_lists(scores: np.ndarray, seen: sp.csr_matrix, n: int = CUT) -> np.ndarray:
    """The n best unseen items of each row, best first."""
    scores = np.array(scores, np.float32)
    seen = seen.tocoo()
    scores[seen.row, seen.col] = -np.inf
    best = np.argpartition(-scores, n, axis=1)[:, :n]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1)
