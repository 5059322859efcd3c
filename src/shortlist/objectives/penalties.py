"""Penalties γ of a rank: how much worse a positive is for every item above it (section 4.2, WARP)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shortlist._checks import whole


class Penalty(ABC):
    """γ(r) for a positive with r items above it, 0 where there are none; WARP weighs its steps by it.

    Ranks are estimated by the number of rounds N that it took to find a negative above the positive, or within the
    margin: r ≈ ⌊(|I| − 1)/N⌋ (Weston et al. 2011; the article has a fraction that is always 0). In the mean that is
    Σ_N p(1−p)^{N−1}⌊(|I|−1)/N⌋ with p = r/(|I|−1): 1.4 to 4.6 times the rank itself.
    """

    @abstractmethod
    def __call__(self, above: npt.ArrayLike, n_items: int) -> npt.NDArray[np.float64]:
        """γ of these numbers of items above, in a catalogue of so many."""

    def table(self, n_items: int) -> npt.NDArray[np.float32]:
        """γ(0) … γ(n_items − 1)."""
        return self(np.arange(n_items), n_items).astype(np.float32)


@dataclass(frozen=True)
class Reciprocal(Penalty):
    """γ(r) = 1 + 1/2 + … + 1/r: the head of the list counts most (WSABIE).

    >>> Reciprocal()([0, 1, 2], 10)
    array([0. , 1. , 1.5])
    """

    def __call__(self, above: npt.ArrayLike, n_items: int) -> npt.NDArray[np.float64]:
        """See `Penalty`."""
        sums = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, max(n_items, 2)))])
        return np.asarray(sums[np.asarray(above)])


@dataclass(frozen=True)
class Linear(Penalty):
    """γ(r) = r/(|I| − 1): every place counts alike, as for AUC.

    >>> Linear()([0, 9], 10)
    array([0., 1.])
    """

    def __call__(self, above: npt.ArrayLike, n_items: int) -> npt.NDArray[np.float64]:
        """See `Penalty`."""
        return np.asarray(above) / max(1.0, n_items - 1)


@dataclass(frozen=True)
class Step(Penalty):
    """γ(r) = 1 where r ≥ n, else 0: whether the positive is among the first n, as for precision@n.

    >>> Step(2)([0, 1, 2, 3], 10)
    array([0., 0., 1., 1.])
    """

    n: int = 10

    def __post_init__(self) -> None:
        whole("n", self.n)

    def __call__(self, above: npt.ArrayLike, n_items: int) -> npt.NDArray[np.float64]:
        """See `Penalty`."""
        return (np.asarray(above) >= self.n).astype(np.float64)


@dataclass(frozen=True)
class TopN(Penalty):
    """γ(r) = min(r, n)/n: every place of the first n counts, none behind them; concave, unlike `Step`.

    >>> TopN(2)([0, 1, 2, 3], 10)
    array([0. , 0.5, 1. , 1. ])
    """

    n: int = 10

    def __post_init__(self) -> None:
        whole("n", self.n)

    def __call__(self, above: npt.ArrayLike, n_items: int) -> npt.NDArray[np.float64]:
        """See `Penalty`."""
        return np.asarray(np.minimum(np.asarray(above), self.n) / self.n)
