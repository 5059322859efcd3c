"""Rows of a mapped file that are checked when they are used, because a check of all would read the whole file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._kernel_views import for_kernels
from shortlist.data.sparse_rows import SparseRows, csr_error
from shortlist.errors import StorageError


@dataclass(frozen=True, eq=False)
class UncheckedRows:
    """`SparseRows` whose types and shapes were checked, but not the numbers."""

    rows: SparseRows

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]], n_rows: int, n_columns: int) -> UncheckedRows:
        """Return the histories in the arrays of a model; raise StorageError if types or shapes are wrong."""
        indptr, indices, values = arrays["seen.indptr"], arrays["seen.indices"], arrays.get("seen.values")
        if indptr.dtype != np.int64 or indptr.shape != (n_rows + 1,):
            raise _damaged(f"indptr is {indptr.dtype} {indptr.shape}; expected int64 {(n_rows + 1,)}")
        if indices.dtype != np.int32 or indices.ndim != 1:
            raise _damaged(f"the columns are {indices.dtype} {indices.shape}; expected int32 in one dimension")
        if values is not None and (values.dtype != np.float32 or values.shape != indices.shape):
            shapes = f"{values.dtype} {values.shape}; expected float32 {indices.shape}"
            raise _damaged(f"the values are {shapes}, one per column")
        values = None if values is None else for_kernels(values)
        return cls(SparseRows(for_kernels(indptr), for_kernels(indices), values, n_columns))

    def checked(self) -> SparseRows:
        """Return all rows; raise StorageError if one is damaged."""
        if problem := csr_error(self.rows, self.rows.n_rows):
            raise _damaged(problem)
        return self.rows

    def take(self, which: npt.NDArray[Any]) -> SparseRows:
        """Return these rows, in this order; raise StorageError if one is damaged."""
        starts, stops = self.rows.indptr[which], self.rows.indptr[which + 1]
        if not ((starts >= 0) & (starts <= stops) & (stops <= len(self.rows))).all():
            raise _damaged("a row lies outside of the entries")
        taken = self.rows.take(which)
        if problem := csr_error(taken, len(which)):
            raise _damaged(problem)
        return taken


def _damaged(problem: str) -> StorageError:
    return StorageError(f"the model's histories do not fit its contexts and items: {problem}", code="model-damaged")
