"""The half-step of alternating least squares: improve one side of the embeddings while the other is fixed."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows
from shortlist.objectives.pointwise_square import Terms

Basis = TypeVar("Basis")


class HalfStep(Protocol[Basis]):
    """A solver of a half-step in two parts: `prepare` what all rows of a side share, then `solve` any of the rows.

    A row's result depends on the basis, the other side and that row alone. So the rows can be solved in pieces, in
    other processes or on other machines, with the same bits.
    """

    def prepare(
        self,
        rows: SparseRows,
        terms: Terms,
        other: npt.NDArray[np.float32],
        embeddings: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> Basis:
        """Return what `solve` needs of all rows and of the whole other side, such as its Gramian.

        It may rotate both sides in place by the same orthogonal matrix, which does not change scores.

        Args:
            rows: the observed pairs, with all rows of the side.
            terms: the terms of these rows.
            other: the other side's embeddings.
            embeddings: the side's embeddings.
            threads: number of threads.
        """

    def solve(
        self,
        rows: SparseRows,
        terms: Terms,
        other: npt.NDArray[np.float32],
        basis: Basis,
        out: npt.NDArray[np.float32],
        threads: int | None = None,
    ) -> None:
        """Improve some rows of the side, in place.

        Args:
            rows: the observed pairs of these rows.
            terms: the terms of these rows; see `normal_equations.part`.
            other: the other side's embeddings after `prepare`.
            basis: the result of `prepare`.
            out: the embeddings of these rows after `prepare`; changed in place.
            threads: number of threads.
        """


def half_step(
    solver: HalfStep[Basis],
    rows: SparseRows,
    terms: Terms,
    other: npt.NDArray[np.float32],
    embeddings: npt.NDArray[np.float32],
    threads: int | None = None,
) -> None:
    """Run a whole half-step: improve all rows of `embeddings`, in place; `other` may be rotated in place."""
    basis = solver.prepare(rows, terms, other, embeddings, threads)
    solver.solve(rows, terms, other, basis, embeddings, threads)
