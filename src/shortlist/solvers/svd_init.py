"""Start values from the leading singular vectors of the matrix of observed pairs."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh, qr
from scipy.sparse import csr_matrix

from shortlist._threads import single_threaded_blas
from shortlist.data.sparse_rows import SparseRows

Floats: TypeAlias = npt.NDArray[np.float32]
_EXTRA, _ITERATIONS = 16, 4  # extra directions, and iterations of the subspace iteration


def singular_vectors(rows: SparseRows, dim: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Return U, s, V with UsVᵀ ≈ D_c^−½ X D_i^−½, where X is 1 at the observed pairs and D has the numbers of pairs.

    This is a randomised subspace iteration (Halko et al. 2011). It is bound by nine QR factorizations of
    (|C| or |I|) × (d + 16), unless rows have many more than d pairs. There are min(dim, |C|, |I|) vectors.

    BLAS runs on one thread: the panels of the QR are narrow, and on a busy machine threads would mostly wait for each
    other.

    >>> U, s, V = singular_vectors(SparseRows.from_lists([[0], [0, 1], [1]], n_columns=2), dim=2)
    >>> [round(float(value), 3) for value in s]
    [1.0, 0.707]
    """
    shape = (rows.n_rows, rows.n_columns)
    wanted = min(dim, *shape)
    size = min(dim + _EXTRA, *shape)
    by_row = np.maximum(rows.lengths, 1) ** -0.5
    by_column = np.maximum(rows.column_counts(), 1) ** -0.5
    values = (np.repeat(by_row, rows.lengths) * by_column[rows.indices]).astype(np.float32)
    matrix = csr_matrix((values, rows.indices, rows.indptr), shape=shape)
    transposed = matrix.T.tocsr()
    directions = np.random.default_rng(seed).standard_normal((shape[1], size), dtype=np.float32)
    with single_threaded_blas():
        basis = _orthonormal(matrix @ directions)
        for _ in range(_ITERATIONS):
            basis = _orthonormal(matrix @ _orthonormal(transposed @ basis))
        right = transposed @ basis
        squares, rotation = eigh(right.T @ right)
        rotation = np.ascontiguousarray(rotation[:, ::-1][:, :wanted])
        s = np.sqrt(np.maximum(squares[::-1][:wanted], 0)).astype(np.float32)
        return basis @ rotation, s, (right @ rotation) / np.maximum(s, 1e-6)


def spread_along(start: Floats, vectors: Floats, s: Floats, scale: float) -> None:
    """Replace start values by rows of vectors·√s, each of length `scale`.

    Rows without pairs do not change, and neither do coordinates without a vector.
    """
    k = vectors.shape[1]
    rows = vectors * np.sqrt(s)
    length = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    known = length > 1e-6 * max(float(length.max(initial=0.0)), 1e-30)
    start[known, :k] = rows[known] * (scale * np.sqrt(k / start.shape[1]) / length[known, None])


def _orthonormal(columns: Floats) -> Floats:
    basis: Floats = qr(columns, mode="economic", overwrite_a=True, check_finite=False)[0]
    return basis
