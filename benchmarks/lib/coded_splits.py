"""A split as arrays of codes, for machines that have NumPy but not Shortlist."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Rows(NamedTuple):
    """As `shortlist.data.sparse_rows.Rows`, which needs Numba."""

    indptr: np.ndarray
    indices: np.ndarray
    n_columns: int

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return len(self.indptr) - 1

    @property
    def lengths(self) -> np.ndarray:
        """How many entries each row has."""
        return np.diff(self.indptr)

    def __len__(self) -> int:
        return len(self.indices)

    def transpose(self) -> Rows:
        """The same entries by columns."""
        row = np.repeat(np.arange(self.n_rows, dtype=np.int32), self.lengths)
        counts = np.bincount(self.indices, minlength=self.n_columns)
        order = np.argsort(self.indices, kind="stable")
        return Rows(np.concatenate([[0], np.cumsum(counts)]), row[order], self.n_rows)


def coded(name: str, split: Any) -> dict[str, np.ndarray]:
    """The parts of a split by the codes of the training items, a row a context of the truth."""
    train, wanted = split.train, split.truth.contexts.ids()
    codes = {label: code for code, label in enumerate(train.items.ids())}
    arrays = {f"{name} n": np.array([train.n_contexts, train.n_items])}
    for part, events in (("train", train), ("history", split.history), ("truth", split.truth)):
        rows, ids = events.by_context, events.items.ids()
        place = np.array([codes.get(label, -1) for label in ids], np.int32)
        if part != "train":
            known = {label: code for code, label in enumerate(events.contexts.ids())}
            rows = rows.take(np.array([known[label] for label in wanted]))
        assert (place[rows.indices] >= 0).all()
        arrays[f"{name} {part} indptr"], arrays[f"{name} {part} indices"] = rows.indptr, place[rows.indices]
    return arrays


def parts(name: str, loaded: Any) -> tuple[Rows, Rows, Rows]:
    """Train, history and truth of what `coded` made."""
    n_items = int(loaded[f"{name} n"][1])
    names = [(f"{name} {part} indptr", f"{name} {part} indices") for part in ("train", "history", "truth")]
    train, history, truth = (Rows(loaded[indptr], loaded[indices], n_items) for indptr, indices in names)
    return train, history, truth
