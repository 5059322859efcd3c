"""Build one sparse matrix from the entries of several fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.data.features.feature_fields import Field
from shortlist.data.sparse_rows import LATEST, SparseRows, rows_of
from shortlist.data.vocabulary import Codes


class Triples(NamedTuple):
    """The row, column and value of every entry, in any order."""

    rows: npt.NDArray[np.int32]
    columns: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]


def with_starts(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Return the fields with `start` set so that their columns follow each other."""
    out, start = [], 0
    for field in fields:
        out.append(replace(field, start=start))
        start += field.n_columns
    return tuple(out)


def with_missing_counts(fields: Sequence[Field], rows: SparseRows) -> tuple[Field, ...]:
    """Return the fields with `n_missing` counted over these rows."""
    counts = np.bincount(rows.indices, minlength=rows.n_columns)
    return tuple(replace(field, n_missing=int(counts[field.missing])) for field in fields)


def triples(rows: SparseRows) -> Triples:
    """Return the entries of a matrix as triples."""
    values = np.ones(len(rows), np.float32) if rows.values is None else rows.values
    return Triples(np.repeat(np.arange(rows.n_rows, dtype=np.int32), rows.lengths), rows.indices, values)


def matrix(parts: Sequence[Triples], n_rows: int, fields: Sequence[Field]) -> SparseRows:
    """Build a matrix from entries. Its arrays are writable: kernels are compiled for writable arrays."""
    rows, columns, values = (
        np.concatenate([np.empty(0, dtype), *(part[k] for part in parts)])
        for k, dtype in enumerate((np.int32, np.int32, np.float32))
    )
    return rows_of(rows, columns, values, None, n_rows, sum(field.n_columns for field in fields), LATEST)


def take_or_missing(rows: SparseRows, codes: Codes, fields: Sequence[Field]) -> SparseRows:
    """Return the rows with these codes; code −1 gives a row in which every field is missing."""
    if not (codes < 0).any():
        return rows.take(codes)
    columns = np.array([field.missing for field in fields], np.int32)
    longer = SparseRows(
        np.append(rows.indptr, rows.indptr[-1] + len(columns)),
        np.append(rows.indices, columns),
        np.append(triples(rows).values, np.ones(len(columns), np.float32)),
        rows.n_columns,
    )
    return longer.take(np.where(codes < 0, rows.n_rows, codes))
