"""What stage one found, a row for each query and candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._phrases import count
from shortlist.data.vocabulary import Codes, Id, rows_at
from shortlist.errors import SettingError
from shortlist.recommenders.base import Queries, Recommender

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class Candidates:
    """A row for each query and candidate, query after query: which item, where stage one has it, and features of it.

    Made by `TwoStage.retrieve`; what a `Reranker` learns from and scores. The rows of query q are
    `indptr[q]:indptr[q + 1]`.

    Attributes:
        first: stage one.
        queries: whom they are for, with `queries.labels` and `queries.histories`.
        indptr: where each query's rows begin, and the end: (queries + 1,).
        item_codes: the items, as codes of `first.items_`.
        scores: what stage one scores them.
        ranks: their places in stage one's ranking, under the same filters, from 1.
        center: of each query the mean of what stage one scores its best, as many as there are candidates.
        spread: likewise the standard deviation.
        features: a column for each of `feature_names`, float32; NaN where something is not known.
        feature_names: what the columns are.
        threads: how many whoever looks at them may use; None for all CPUs.
    """

    first: Recommender
    queries: Queries
    indptr: npt.NDArray[np.int64]
    item_codes: Codes
    scores: Floats
    ranks: npt.NDArray[np.int64]
    center: npt.NDArray[np.float64]
    spread: npt.NDArray[np.float64]
    features: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))
    feature_names: tuple[str, ...] = ()
    threads: int | None = None

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.item_codes)

    @property
    def n_queries(self) -> int:
        """How many queries they are for."""
        return len(self.indptr) - 1

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """How many candidates each query has."""
        return np.diff(self.indptr)

    @property
    def query_of(self) -> npt.NDArray[np.int64]:
        """For each row the number of its query, from 0."""
        return np.repeat(np.arange(self.n_queries), self.sizes)

    @property
    def items(self) -> list[Id]:
        """For each row the id of its item."""
        return self.first.items_.ids(self.item_codes)

    def column(self, name: str) -> Floats:
        """A feature by its name, a value a row."""
        if name not in self.feature_names:
            raise SettingError(f"no feature is called {name!r}; there are {', '.join(map(repr, self.feature_names))}")
        found: Floats = self.features[:, self.feature_names.index(name)]
        return found

    def to_polars(self) -> pl.DataFrame:
        """A row a candidate: the query's columns, the item, then every feature.

        Where the data has a column of such a name already, ours gets an underscore behind.
        """
        columns = rows_at(self.queries.labels.frame(), self.query_of).get_columns()
        columns += self.first.items_.take(self.item_codes).get_columns()
        taken = {column.name for column in columns}
        for name, values in zip(self.feature_names, self.features.T):
            free = name
            while free in taken:
                free += "_"
            taken.add(free)
            columns.append(pl.Series(free, np.ascontiguousarray(values)))
        return pl.DataFrame(columns)

    def select(self, queries: npt.ArrayLike) -> Candidates:
        """Only some queries: their numbers from 0, in any order, or True and False for each."""
        queries = self._numbers(queries)
        sizes = self.sizes[queries]
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.repeat(self.indptr[queries] - indptr[:-1], sizes) + np.arange(indptr[-1])
        return replace(
            self,
            queries=self.queries.take(queries),
            indptr=indptr,
            item_codes=self.item_codes[rows],
            scores=self.scores[rows],
            ranks=self.ranks[rows],
            center=self.center[queries],
            spread=self.spread[queries],
            features=self.features[rows] if self.feature_names else self.features,
        )

    def _numbers(self, queries: npt.ArrayLike) -> npt.NDArray[np.int64]:
        found = np.asarray(queries)
        if found.dtype == np.bool_ and found.shape == (self.n_queries,):
            return np.flatnonzero(found)
        good = found.ndim == 1 and (found.dtype.kind in "iu" or not len(found))
        if not good or (len(found) and not 0 <= found.min() <= found.max() < self.n_queries):
            raise SettingError(
                f"queries are {queries!r:.80}; expected numbers from 0 to {self.n_queries - 1}, or True and False for "
                f"each of {self.n_queries:,}"
            )
        return found.astype(np.int64)

    def with_features(self, features: npt.ArrayLike, names: Sequence[str]) -> Candidates:
        """The same rows with these features instead."""
        try:
            features = np.asarray(features, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise SettingError(f"the features are no numbers in rows of one length: {error}") from error
        if features.shape != (len(self), len(names)):
            raise SettingError(
                f"the features are of shape {features.shape}; expected {len(self):,} rows, one a candidate, and "
                f"{len(names)} columns, one a name"
            )
        return replace(self, features=features, feature_names=tuple(names))

    def __repr__(self) -> str:
        shown = ", ".join(self.feature_names[:10]) + (", …" if len(self.feature_names) > 10 else "")
        return (
            f"Candidates({len(self):,} of {type(self.first).__name__} for "
            f"{count(self.n_queries, 'query', 'queries')}, "
            f"{count(len(self.feature_names), 'feature')}{': ' + shown if shown else ''})"
        )
