"""Measurements of an index, made when it is built."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IndexMeasurements:
    """Recall and speed of an index on queries that were not used to choose its settings, compared with exact search.

    Attributes:
        n: the number of items per query.
        queries: the number of queries.
        recall: the mean fraction of the n best items that the index finds.
        stderr: the standard error of the recall.
        milliseconds: the median time per query, with one query per call and one thread.
        exact_milliseconds: the same for exact search.
        build_seconds: the time to build the index.
        nbytes: the size of the index, without the item vectors.
    """

    n: int
    queries: int
    recall: float
    stderr: float
    milliseconds: float
    exact_milliseconds: float
    build_seconds: float
    nbytes: int

    def __str__(self) -> str:
        return (
            f"recall@{self.n} {self.recall:.4f} ± {self.stderr:.4f}, {self.milliseconds:.3g} ms per query "
            f"(exact search {self.exact_milliseconds:.3g} ms), {self.nbytes / 1e6:,.1f} MB, built in "
            f"{self.build_seconds:.1f} s; on {self.queries} queries, one thread"
        )
