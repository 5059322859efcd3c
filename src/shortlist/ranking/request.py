"""The arguments of a search: the number of items, filters, a slate, memory and threads."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._checks import flag, integer, memory_bytes
from shortlist.data.vocabulary import Vocabulary
from shortlist.ranking.inputs import ItemLists, filter_codes
from shortlist.ranking.queries import Queries
from shortlist.retrieval.filters import CsrRows, Filters
from shortlist.retrieval.slates.base import Slate, check_slate


@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    """The arguments of a search, checked.

    Attributes:
        n: number of items per list.
        exclude_seen: drop the items of the query's history.
        allow: return only these items: one list of ids for all queries, or one list per query.
        deny: never return these items: one list of ids for all queries, or one list per query.
        slate: a method that picks the n items from a larger pool.
        memory: limit for blocks of scores, in bytes or as text such as "256MB"; in bytes after the check.
        threads: number of threads; None for all CPUs.
    """

    n: int = 10
    exclude_seen: bool = True
    allow: ItemLists | None = None
    deny: ItemLists | None = None
    slate: Slate | None = None
    memory: Any = None
    threads: int | None = None

    def __post_init__(self) -> None:
        self.n = integer("n", self.n)
        self.exclude_seen = flag("exclude_seen", self.exclude_seen)
        self.memory = memory_bytes(self.memory)
        if self.slate is not None:
            check_slate(self.slate)

    def size(self, n_items: int) -> int:
        """Return the length of the lists, if the filters leave enough of `n_items` items."""
        return min(self.n, n_items)

    def depth(self, n_items: int) -> int:
        """Return the number of items to search: the size of the lists, or of the slate's pool."""
        n = self.size(n_items)
        return n if self.slate is None else self.slate.depth(n, n_items)

    def filters(self, queries: Queries, items: Vocabulary) -> Filters:
        """Return the filters in codes."""
        histories = queries.histories
        exclude = (histories.indptr, histories.items) if self.exclude_seen else None
        if self.allow is None and self.deny is None:
            return Filters(exclude=exclude)
        allow, allow_rows = filter_codes("allow", self.allow, items, queries.known)
        deny, deny_rows = filter_codes("deny", self.deny, items, queries.known)
        if deny_rows is not None:
            exclude = _merged(exclude, deny_rows)
        return Filters(exclude=exclude, deny=deny, allow=allow, allow_rows=allow_rows)


def _merged(first: CsrRows | None, second: CsrRows) -> CsrRows:
    """Join the entries of both, row by row."""
    if first is None:
        return second
    rows: list[npt.NDArray[np.int32]] = [
        np.concatenate([first[1][a:b], second[1][c:d]])
        for (a, b), (c, d) in zip(pairwise(first[0]), pairwise(second[0]))
    ]
    return first[0] + second[0], np.concatenate([np.empty(0, np.int32), *rows])
