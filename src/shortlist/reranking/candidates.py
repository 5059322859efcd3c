"""The candidates of stage one: one row per query and candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._phrases import count
from shortlist.data.vocabulary import Codes, Id, rows_at
from shortlist.errors import SettingError
from shortlist.ranking.queries import Queries
from shortlist.recommenders.base import Recommender

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class Candidates:
    """Candidate items of stage one for each query, with their scores, ranks and features. A reranker's input.

    `TwoStage.retrieve` makes them; a `Reranker` learns from them and scores them. There is one row per query and
    candidate, sorted by query: the rows of query q are `indptr[q]:indptr[q + 1]`. `to_polars()` returns a frame.

    Attributes:
        first: stage one.
        queries: the queries, with `queries.labels` and `queries.histories`.
        indptr: the first row of each query, then the number of rows: (queries + 1,).
        item_codes: the item of each row, as a code of `first.items_`.
        scores: stage one's score of each row.
        ranks: the rank of each row in stage one's ranking, under the same filters, from 1.
        center: for each query the mean of stage one's scores over its n best items, n being the number of candidates.
        spread: the standard deviation of the same scores.
        features: a float32 matrix with one column for each of `feature_names`; NaN for unknown values.
        feature_names: the names of the columns.
        threads: the number of threads a reranker may use; None for all CPUs.
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
        """The number of queries."""
        return len(self.indptr) - 1

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The number of candidates of each query."""
        return np.diff(self.indptr)

    @property
    def query_of(self) -> npt.NDArray[np.int64]:
        """The position of each row's query, from 0."""
        return np.repeat(np.arange(self.n_queries), self.sizes)

    @property
    def items(self) -> list[Id]:
        """The item id of each row."""
        return self.first.items_.ids(self.item_codes)

    def column(self, name: str) -> Floats:
        """Return the values of one feature, one per row."""
        if name not in self.feature_names:
            raise SettingError(
                f"no feature is called {name!r}; the features are {', '.join(map(repr, self.feature_names))}",
                field="name",
            )
        values: Floats = self.features[:, self.feature_names.index(name)]
        return values

    def to_polars(self) -> pl.DataFrame:
        """Return a frame with one row per candidate: the query's columns, the item, then the features.

        A feature whose name is already taken by a column of the data gets an underscore at its end.
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
        """Return the candidates of some queries: positions from 0 in any order, or one True or False per query."""
        queries = self._positions(queries)
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

    def _positions(self, queries: npt.ArrayLike) -> npt.NDArray[np.int64]:
        positions = np.asarray(queries)
        if positions.dtype == np.bool_ and positions.shape == (self.n_queries,):
            return np.flatnonzero(positions)
        good = positions.ndim == 1 and (positions.dtype.kind in "iu" or not len(positions))
        if not good or (len(positions) and not 0 <= positions.min() <= positions.max() < self.n_queries):
            raise SettingError(
                f"queries is {queries!r:.80}; expected integers from 0 to {self.n_queries - 1}, or True or False for "
                f"each of {count(self.n_queries, 'query', 'queries')}",
                field="queries",
            )
        return positions.astype(np.int64)

    def with_features(self, features: npt.ArrayLike, names: Sequence[str]) -> Candidates:
        """Return the same rows with these features instead."""
        try:
            features = np.asarray(features, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise SettingError(f"features is not a matrix of numbers: {error}", field="features") from error
        if features.shape != (len(self), len(names)):
            raise SettingError(
                f"features has shape {features.shape}; expected {len(self):,} rows, one per candidate, and "
                f"{len(names)} columns, one per name",
                field="features",
            )
        return replace(self, features=features, feature_names=tuple(names))

    def __repr__(self) -> str:
        shown = ", ".join(self.feature_names[:10]) + (", …" if len(self.feature_names) > 10 else "")
        return (
            f"Candidates({len(self):,} of {type(self.first).__name__} for "
            f"{count(self.n_queries, 'query', 'queries')}, "
            f"{count(len(self.feature_names), 'feature')}{': ' + shown if shown else ''})"
        )
