"""Weights ω that grow or shrink with the number of observed pairs of a context or item.

The square losses use them to vary the weight of unobserved pairs, as eALS does (He et al. 2016).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class FrequencyWeights:
    """ω = n^ρ / mean(n^ρ) for each context or each item, where n ≥ 1 is its number of observed pairs.

    The mean is over all contexts (or items), so ω is 1 on average and α₀ keeps its meaning. With ρ > 0, the unobserved
    pairs of a frequent item weigh more; with ρ < 0 they weigh less. With ρ = 0, `values` has a single element for all.

    >>> FrequencyWeights.of(np.array([1, 4, 1]), 1.0).values
    array([0.5, 2. , 0.5], dtype=float32)
    """

    values: npt.NDArray[np.float32]
    exponent: float
    level: float  # ln mean(n^ρ)

    @classmethod
    def of(cls, counts: npt.NDArray[Any], exponent: float) -> Self:
        """Return the ω of rows with these numbers of pairs; the mean is over these rows."""
        if exponent == 0 or not len(counts):
            return cls(np.ones(1, np.float32), 0.0, 0.0)
        powers = _log_powers(counts, exponent)
        largest = float(powers.max())  # subtracted before exp, so that exp cannot overflow
        level = largest + float(np.log(np.exp(powers - largest).mean()))
        return cls(np.exp(powers - level).astype(np.float32), exponent, level)

    def new(self, counts: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return the ω of new rows with these numbers of pairs, under the mean of `of`."""
        if self.exponent == 0:
            return self.values
        with np.errstate(over="ignore"):
            return np.exp(_log_powers(counts, self.exponent) - self.level).astype(np.float32)


def _log_powers(counts: npt.NDArray[Any], exponent: float) -> npt.NDArray[np.float64]:
    return np.asarray(exponent * np.log(np.maximum(counts, 1).astype(np.float64)))
