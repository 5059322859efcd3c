"""The base class of slates that use item similarities: `MMR` and `DPP`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.metrics.cosines import cosine_table, listed_items
from shortlist.retrieval.slates.base import Catalogue, Codes, Scores, Slate, Values, blocks, over_pools
from shortlist.retrieval.slates.slate_kernels import ItemSimilarity


@dataclass(frozen=True)
class DiversitySlate(Slate):
    """The base class of `MMR` and `DPP`, which differ only in their kernels."""

    diversity: float = 0.3
    pool: int = 100

    _kernel: ClassVar[Callable[..., None]]

    def __post_init__(self) -> None:
        self._check(diversity=self.diversity)

    @property
    def trade_off(self) -> float:
        """The diversity δ."""
        return self.diversity

    def _places(
        self,
        codes: Codes,
        scores: Scores,
        n: int,
        catalogue: Catalogue,
        histories: SparseRows,
        memory: int,
        threads: int,
    ) -> npt.NDArray[np.int32]:
        similarity = item_similarity(codes, n, catalogue, memory, threads)
        places = np.empty((len(codes), n), np.int32)

        def work(rows: slice, pools: Codes, relevance: Values) -> None:
            type(self)._kernel(pools, relevance, similarity, self.trade_off, places[rows])

        over_pools(work, codes, scores, threads)
        return places


def item_similarity(codes: Codes, n: int, catalogue: Catalogue, memory: int, threads: int) -> ItemSimilarity:
    """Return the item embeddings if there are any, else a table of cosines or the items' columns of the training data.

    Pools share most of their items. So with many queries a table of all pairs is cheaper than the pairs of each pool,
    if it fits into memory. The result is the same.
    """
    vectors, trained = catalogue.vectors, catalogue.trained
    empty = ItemSimilarity(
        np.empty((trained.n_columns, 0), np.float32),
        np.empty((0, 0), np.float32),
        np.empty(0, np.int64),
        np.empty(0, np.int32),
        np.empty(0),
        np.empty(0, np.int32),
        0,
    )
    if vectors is not None:
        return empty._replace(vectors=vectors)
    listed = listed_items(codes, trained)
    rows, end = listed.codes.astype(np.int32), listed.end
    ends = np.flatnonzero(listed.histories == end)
    lengths = np.diff(ends, prepend=-1) - 1  # of the histories, restricted to items of the pools
    steps_of_table = (float((lengths.astype(np.float64) ** 2).sum()) + end * end) / 2
    column_lengths = np.append(np.diff(listed.entry_starts)[:-1], 0)[rows]
    steps_of_pairs = float(n * sum(int(column_lengths[codes[block]].sum()) for block in blocks(codes)))
    if 4 * end * end <= memory and steps_of_table < steps_of_pairs:
        return empty._replace(table=cosine_table(listed, threads), rows=rows)
    contexts = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths + 1)[listed.entries]
    starts, scale = listed.entry_starts, listed.scale
    return empty._replace(starts=starts, contexts=contexts, scale=scale, rows=rows, n_contexts=len(lengths))
