"""How far the rows of a half-step go by conjugate gradients, and what float32 resolves: on a CPU and a GPU alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

NEAR = 0.5  # rows whose change is below this share of their length are near enough for a step beyond
FROZEN = 1e-12  # coordinates whose diagonal is below this share of the row's largest stay where they are
END = 1e-6  # the error at which a row is at its end, as a share of its length, both in the preconditioner's norm
CLEAR = 1e-5  # of the largest eigenvalue of a Gramian: above it, the noise of a sum in float32 does not matter
NOISE = 4 * 2.0**-23  # times √d, of the longest column: a column of this length is rounding errors


def least_ridge(ridge: npt.NDArray[np.float32]) -> float:
    """The smallest λ of the rows, or 0 where there is none; rows without any weight, whose λ is 0, are not solved."""
    return float(ridge.min(initial=np.inf, where=ridge > 0)) if ridge.any() else 0.0


class CGLimits(NamedTuple):
    """A row takes steps until its residual is `tolerance` times what it was, then goes `relaxation` times as far."""

    relaxation: float = 1.5  # where 1 is where conjugate gradients have brought it
    tolerance: float = 0.3
    max_steps: int = 2


ON_THE_WAY = CGLimits()
TO_THE_END = CGLimits(1.0, 0.0, 60)
