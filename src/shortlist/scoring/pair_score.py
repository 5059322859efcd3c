"""The score of one pair inside a kernel."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_lean_kernel

Array: TypeAlias = npt.NDArray[Any]


@fast_lean_kernel
def pair_score(A: Array, a: int, B: Array, b: int, cosine: int | None) -> Any:
    """The inner product of the rows A_a and B_b; or, of their first `cosine` coordinates the cosine, of others that.

    A row that is zero has the cosine 0 with any other.
    """
    if cosine is None:
        total = np.float32(0)
        for f in range(A.shape[1]):
            total += A[a, f] * B[b, f]
        return total
    dot, of_a, of_b = np.float32(0), np.float32(0), np.float32(0)
    for f in range(cosine):
        dot += A[a, f] * B[b, f]
        of_a += A[a, f] * A[a, f]
        of_b += B[b, f] * B[b, f]
    total = dot / np.sqrt(of_a * of_b) if of_a > 0 and of_b > 0 else np.float32(0)
    for f in range(cosine, A.shape[1]):
        total += A[a, f] * B[b, f]
    return total


def unit_rows(rows: npt.NDArray[np.float32], cosine: int) -> npt.NDArray[np.float32]:
    """Rows whose inner products are the scores that `pair_score` gives: the first `cosine` coordinates of length 1."""
    if cosine == 0:
        return rows
    out = rows.copy()
    lengths = np.linalg.norm(rows[:, :cosine], axis=1, keepdims=True)
    out[:, :cosine] /= np.where(lengths > 0, lengths, 1)
    return out
