"""The score of a single pair, for kernels."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_lean_kernel

Array: TypeAlias = npt.NDArray[Any]


@fast_lean_kernel
def pair_score(A: Array, a: int, B: Array, b: int, cosine: int | None) -> Any:
    """Return the inner product of the rows A_a and B_b.

    With `cosine`, return the cosine of their first `cosine` coordinates plus the inner product of the others. The
    cosine with a row of zeros is 0.
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
    """Scale the first `cosine` coordinates to length 1, so that inner products are the scores of `pair_score`."""
    if cosine == 0:
        return rows
    out = rows.copy()
    lengths = np.linalg.norm(rows[:, :cosine], axis=1, keepdims=True)
    out[:, :cosine] /= np.where(lengths > 0, lengths, 1)
    return out
