"""How the weight of unobserved pairs varies over contexts and over items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class FrequencyWeights:
    """ω = n^ρ / mean(n^ρ) for each context or each item; n is the number of its observed pairs, at least 1.

    The mean is over all of them, so that ω is 1 on average and α₀ keeps its meaning. ρ > 0: what has many pairs counts
    for more where it has none; ρ < 0: for less. With ρ = 0 one element stands for all.

    >>> Omega.of(np.array([1, 4, 1]), 1.0).values
    array([0.5, 2. , 0.5], dtype=float32)
    """

    values: npt.NDArray[np.float32]
    exponent: float
    level: float  # ln mean(n^ρ)

    @classmethod
    def of(cls, counts: npt.NDArray[Any], exponent: float) -> Self:
        """The ω of those who have so many pairs, and no others."""
        if exponent == 0 or not len(counts):
            return cls(np.ones(1, np.float32), 0.0, 0.0)
        powers = _log_powers(counts, exponent)
        most = float(powers.max())  # taken out before exp, which then cannot overflow
        level = most + float(np.log(np.exp(powers - most).mean()))
        return cls(np.exp(powers - level).astype(np.float32), exponent, level)

    def new(self, counts: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """The ω of others who have so many pairs, under the same mean."""
        if self.exponent == 0:
            return self.values
        with np.errstate(over="ignore"):
            return np.exp(_log_powers(counts, self.exponent) - self.level).astype(np.float32)


def _log_powers(counts: npt.NDArray[Any], exponent: float) -> npt.NDArray[np.float64]:
    return np.asarray(exponent * np.log(np.maximum(counts, 1).astype(np.float64)))
