"""What was measured of an index when it was made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IndexMeasurements:
    """How an index does on queries that had no part in choosing its settings, beside exact search on the same."""

    n: int
    queries: int
    recall: float  # the share of the exact best n that it finds
    stderr: float
    milliseconds: float  # a query, one a call, one thread: the median
    exact_milliseconds: float
    build_seconds: float
    nbytes: int

    def __str__(self) -> str:
        return (
            f"recall@{self.n} {self.recall:.4f} ± {self.stderr:.4f}, {self.milliseconds:.3g} ms a query "
            f"(exact search {self.exact_milliseconds:.3g} ms), {self.nbytes / 1e6:,.1f} MB, built in "
            f"{self.build_seconds:.1f} s; on {self.queries} queries, one thread"
        )
