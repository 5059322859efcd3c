"""The arrays and numbers of a sampler, for kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.sampling.history_filter import history_filter

UNIFORM, POPULARITY, IN_BATCH, ADAPTIVE, REJECTION = 0, 1, 2, 3, 4
POSITIVE, HISTORY = 0, 1  # which items are excluded


class SamplerTables(NamedTuple):
    """The state of any sampler for kernels; an array that a sampler does not use has a single element."""

    code: int
    exclude: int
    n_items: int
    indptr: npt.NDArray[np.int64]  # the histories
    indices: npt.NDArray[np.int32]
    bits: npt.NDArray[np.uint64]  # the history filter
    offset: npt.NDArray[np.int64]
    share: npt.NDArray[np.float64]  # Popularity: the alias table
    alias: npt.NDArray[np.int32]
    lists: npt.NDArray[np.int32]  # AdaptiveRank: for each coordinate, the items from the largest to the smallest
    sigma: npt.NDArray[np.float32]
    gamma: float
    margin: float  # Rejection
    rounds: int

    @classmethod
    def of(cls, code: int, exclude: str, histories: SparseRows) -> SamplerTables:
        """Return tables with the fields of all samplers; set the other fields with `_replace`."""
        if exclude == "history":
            bits, offset = history_filter(histories)
        else:
            bits, offset = np.zeros(1, np.uint64), np.zeros(1, np.int64)
        return cls(
            code=code,
            exclude=HISTORY if exclude == "history" else POSITIVE,
            n_items=int(histories.n_columns),
            indptr=histories.indptr,
            indices=histories.indices,
            bits=bits,
            offset=offset,
            share=np.zeros(1),
            alias=np.zeros(1, np.int32),
            lists=np.zeros((1, 1), np.int32),
            sigma=np.zeros(1, np.float32),
            gamma=1.0,
            margin=0.0,
            rounds=0,
        )
