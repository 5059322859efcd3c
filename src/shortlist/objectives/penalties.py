"""WARP's penalties γ: how much a positive costs when r items rank above it (section 4.2.3 of the article)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer


class Penalty(ABC):
    """γ(r) for a positive with r items above it; γ(0) = 0. WARP weights its steps by γ.

    WARP draws negatives until one scores above the positive, or within the margin below it. After N draws, the estimate
    is r ≈ ⌊(|I| − 1)/N⌋ (Weston et al. 2011; the fraction printed in the article is always 0). Its mean is
    Σ_N p(1−p)^{N−1}⌊(|I|−1)/N⌋ with p = r/(|I|−1), which is 1.4 to 4.6 times r.
    """

    @abstractmethod
    def __call__(self, above: npt.ArrayLike, n_items: int) -> npt.NDArray[np.float64]:
        """Return γ(r) for each r in `above`, the number of items ranked above, in a catalogue of `n_items`."""

    def table(self, n_items: int) -> npt.NDArray[np.float32]:
        """Return γ(0) … γ(n_items − 1)."""
        return self(np.arange(n_items), n_items).astype(np.float32)


@dataclass(frozen=True)
class Reciprocal(Penalty):
    """γ(r) = 1 + 1/2 + … + 1/r: the top of the list counts most (WSABIE).

    >>> Reciprocal()([0, 1, 2], 10)
    array([0. , 1. , 1.5])
    """

    def __call__(self, above: npt.ArrayLike, n_items: int) -> npt.NDArray[np.float64]:
        """See `Penalty`."""
        sums = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, max(n_items, 2)))])
        return np.asarray(sums[np.asarray(above)])


@dataclass(frozen=True)
class Linear(Penalty):
    """γ(r) = r/(|I| − 1): every rank counts the same, as in AUC.

    >>> Linear()([0, 9], 10)
    array([0., 1.])
    """

    def __call__(self, above: npt.ArrayLike, n_items: int) -> npt.NDArray[np.float64]:
        """See `Penalty`."""
        return np.asarray(above) / max(1.0, n_items - 1)


@dataclass(frozen=True)
class Step(Penalty):
    """γ(r) = 1 if r ≥ n, else 0: whether the positive is in the top n, as in precision@n.

    >>> Step(2)([0, 1, 2, 3], 10)
    array([0., 0., 1., 1.])
    """

    n: int = 10

    def __post_init__(self) -> None:
        integer("n", self.n)

    def __call__(self, above: npt.ArrayLike, n_items: int) -> npt.NDArray[np.float64]:
        """See `Penalty`."""
        return (np.asarray(above) >= self.n).astype(np.float64)


@dataclass(frozen=True)
class TopN(Penalty):
    """γ(r) = min(r, n)/n: each of the top n ranks counts the same, later ranks add nothing; concave, unlike `Step`.

    >>> TopN(2)([0, 1, 2, 3], 10)
    array([0. , 0.5, 1. , 1. ])
    """

    n: int = 10

    def __post_init__(self) -> None:
        integer("n", self.n)

    def __call__(self, above: npt.ArrayLike, n_items: int) -> npt.NDArray[np.float64]:
        """See `Penalty`."""
        return np.asarray(np.minimum(np.asarray(above), self.n) / self.n)
