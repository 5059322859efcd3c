"""EASE: a linear model from histories to items, in closed form."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shortlist._checks import number, one_of
from shortlist._kernel_views import for_kernels
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Codes
from shortlist.errors import DataError
from shortlist.objectives.weighting import BY_DEFAULT, WEIGHTINGS, Weighting, strengths
from shortlist.ranking.queries import Queries
from shortlist.recommenders.base import Recommender, largest_of
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.fit_progress import Monitor
from shortlist.recommenders.search_space import Real, Space
from shortlist.scoring.history_scorer import HistoryScorer


@dataclass(kw_only=True, repr=False, eq=False)
class EASE(Recommender):
    """Embarrassingly shallow autoencoder (Steck 2019).

    ŷ(i|c) = Σ_{j∈I_c} x_{cj}·B_{ji}, where B minimises ‖X − XB‖²_F + λ‖B‖²_F with diag(B) = 0.

    The closed form is B = I − P·diag(1/diag(P)) with P = (XᵀX + λI)⁻¹. It inverts an items × items matrix, so it is for
    catalogues of up to some ten thousand items. New histories are scored directly, without folding in.

    Args:
        regularization: λ, on the scale of how often items occur; try 30 to 3000.
        weighting: the strength x of a pair with weight w: `"binary"` 1, `"log"` log₂(1 + w), `"raw"` w.
    """

    regularization: float = 300.0
    weighting: Weighting = BY_DEFAULT

    _arrays: ClassVar[tuple[str, ...]] = ("item_weights_",)

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        number("regularization", self.regularization, above=True)
        one_of("weighting", self.weighting, WEIGHTINGS)

    @classmethod
    def space(cls) -> Space:
        """Return the search space: λ, on the scale of how often items occur."""
        return {"regularization": Real(1.0, 1e4, log=True)}

    def learn(self, interactions: Interactions, options: FitOptions, monitor: Monitor) -> None:
        """Learn from interactions."""
        _refuse_too_large(interactions.n_items)
        self.item_weights_ = item_weights(interactions.by_context, self.weighting, self.regularization)

    def scorer(self, queries: Queries, threads: int | None = None) -> HistoryScorer:
        """Return a scorer of all items for these queries."""
        rows = queries.histories.sets()
        return HistoryScorer(rows, strengths(rows.values, self.weighting), for_kernels(self.item_weights_))

    def _similarity(self, codes: Codes) -> HistoryScorer:
        """Return a scorer of how much each item alone adds to the scores of the others: its row of B."""
        rows = SparseRows(np.arange(len(codes) + 1, dtype=np.int64), codes, None, len(self.items_))
        return HistoryScorer(rows, np.ones(1, np.float32), for_kernels(self.item_weights_))

    def _check_arrays(self) -> None:
        self._require_shape("item_weights_", (len(self.items_),) * 2)

    def _largest(self) -> float:
        B = self.item_weights_
        return self._strongest(self.weighting) * largest_of(float(B.max()), -float(B.min()))


def item_weights(rows: SparseRows, weighting: Weighting, regularization: float) -> npt.NDArray[np.float32]:
    """Compute B in float64 in one items × items matrix, by LAPACK's Cholesky inverse in O(n³)."""
    import scipy.sparse as sp
    from scipy.linalg import lapack

    values = np.broadcast_to(strengths(rows.values, weighting), len(rows)).astype(np.float64)
    X = sp.csr_array((values, rows.indices, rows.indptr), shape=(rows.n_rows, rows.n_columns))
    # A symmetric matrix is its own transpose: Fortran order costs nothing and lets LAPACK work in place.
    G: npt.NDArray[np.float64] = np.asfortranarray((X.T @ X).toarray().T)
    G[np.diag_indices_from(G)] += regularization
    factor, info = lapack.dpotrf(G, lower=1, overwrite_a=1, clean=0)
    P, info2 = lapack.dpotri(factor, lower=1, overwrite_c=1)
    if info or info2:
        raise DataError(
            f"cannot invert XᵀX + {regularization:g}·I", field="regularization", hint="raise regularization"
        )
    return _weights_from_inverse(P)


def _weights_from_inverse(P: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Compute B_{ji} = −P_{ji}/P_{ii} from the lower triangle of P, a block of rows at a time."""
    scale = -1 / np.diag(P)
    B: npt.NDArray[np.float32] = np.empty(P.shape, np.float32)
    size = 256
    for start in range(0, len(P), size):
        stop = min(start + size, len(P))
        B[start:stop, :start] = P[start:stop, :start] * scale[:start]
        B[:start, start:stop] = P[start:stop, :start].T * scale[start:stop]
        corner: npt.NDArray[Any] = np.tril(P[start:stop, start:stop])
        corner = corner + np.tril(corner, -1).T
        B[start:stop, start:stop] = corner * scale[start:stop]
    np.fill_diagonal(B, 0)
    return B


def _refuse_too_large(n_items: int) -> None:
    need = n_items**2 * (8 + 8 + 4)  # the sparse product at worst, the inverse, the result
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return
    if need > memory:
        most = int((memory / 20) ** 0.5)
        raise DataError(
            f"EASE on {n_items:,} items needs about {need / 2**30:,.0f} GiB of memory, and this machine has "
            f"{memory / 2**30:,.0f} GiB, enough for {most:,} items",
            code="too-large",
            hint="use IALS, which has no such limit",
        )
