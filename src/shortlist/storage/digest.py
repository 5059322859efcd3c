"""Digests that identify data."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.data.histories import Histories
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Vocabulary
from shortlist.storage import id_tables as table_files


def digest(*parts: Vocabulary | SparseRows | Histories | npt.NDArray[Any]) -> str:
    """Return a sha256 of the content of ids, rows, ordered histories and arrays."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, Vocabulary):
            sha.update(hashlib.sha256(table_files.encode(part.frame)).digest())
            continue
        for array in _arrays(part):
            described = "none" if array is None else f"{array.dtype} {array.shape}"
            sha.update(described.encode())
            if array is not None:
                sha.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return sha.hexdigest()


def _arrays(part: SparseRows | Histories | npt.NDArray[Any]) -> tuple[npt.NDArray[Any] | None, ...]:
    if isinstance(part, SparseRows):
        return part.indptr, part.indices, part.values
    if isinstance(part, Histories):
        return part.indptr, part.items, part.times, part.weights
    return (part,)
