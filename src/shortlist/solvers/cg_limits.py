"""Limits of conjugate gradients and thresholds of float32 noise, shared by the solvers on CPU and GPU."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

NEAR = 0.5  # a row is over-relaxed if its change is at most this fraction of its length
FROZEN = 1e-12  # a coordinate is frozen if its diagonal entry is below this fraction of the row's largest
END = 1e-6  # a row has converged if its error is this fraction of its length, both in the preconditioner's norm
CLEAR = 1e-5  # float32 noise does not matter for eigenvalues above this fraction of the Gramian's largest
NOISE = 4 * 2.0**-23  # a column is only rounding errors if it is shorter than this times √d times the longest column


def least_ridge(ridge: npt.NDArray[np.float32]) -> float:
    """Return the smallest λ > 0 of the rows, or 0 if all are 0; rows without weight, whose λ is 0, are not solved."""
    return float(ridge.min(initial=np.inf, where=ridge > 0)) if ridge.any() else 0.0


class CGLimits(NamedTuple):
    """When a row stops: at `tolerance` times its first residual, or after `max_steps`; then it is over-relaxed."""

    relaxation: float = 1.5  # factor of the total move; 1 is the result of conjugate gradients
    tolerance: float = 0.3
    max_steps: int = 2


ON_THE_WAY = CGLimits()
TO_THE_END = CGLimits(1.0, 0.0, 60)
