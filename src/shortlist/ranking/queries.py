"""Queries in codes: known contexts, or histories of any users."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.histories import Histories
from shortlist.data.vocabulary import Codes, Id, Vocabulary


@dataclass(frozen=True, eq=False)
class QueryLabels:
    """The labels of queries: codes of a vocabulary, or numbers from 0 in a column called `name`."""

    vocabulary: Vocabulary | None
    codes: npt.NDArray[np.int32]
    name: str = field(default="history", kw_only=True)

    @classmethod
    def numbers(cls, n: int, name: str = "history") -> QueryLabels:
        """Return the labels 0, 1, …, n − 1."""
        return cls(None, np.arange(n, dtype=np.int32), name=name)

    def ids(self) -> list[Id]:
        """Return the ids, or the numbers."""
        return self.codes.tolist() if self.vocabulary is None else self.vocabulary.ids(self.codes)

    def frame(self) -> pl.DataFrame:
        """Return the labels as a frame with the original columns, or with one column of numbers."""
        if self.vocabulary is None:
            return pl.DataFrame({self.name: self.codes})
        return self.vocabulary.take(self.codes)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of `frame`."""
        return (self.name,) if self.vocabulary is None else self.vocabulary.names

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries that a model can answer.

    Attributes:
        labels: what the answer is labelled with.
        codes: the codes of known contexts, −1 for new combinations of known parts; None for histories of any users.
        histories: the history of each query.
        known: for each requested query, whether it is in here; the others were skipped.
        skipped: the ids of the skipped queries.
    """

    labels: QueryLabels
    codes: Codes | None
    histories: Histories
    known: npt.NDArray[np.bool_]
    skipped: list[Id] = field(default_factory=list)

    @classmethod
    def of(cls, labels: QueryLabels, codes: Codes | None, histories: Histories) -> Queries:
        """Return queries without skipped ones."""
        return cls(labels, codes, histories, np.ones(len(labels), np.bool_))

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, which: npt.NDArray[Any]) -> Queries:
        """Return the queries at these positions."""
        labels = replace(self.labels, codes=self.labels.codes[which])
        codes = None if self.codes is None else self.codes[which]
        return Queries.of(labels, codes, self.histories.take(which))
