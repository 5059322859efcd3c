"""iCD: the model of iALS, learned by coordinate descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shortlist.recommenders.alternating import Alternating
from shortlist.solvers.coordinate import CoordinateSolver
from shortlist.solvers.exact import ExactSolver
from shortlist.solvers.half_step import HalfStep


@dataclass(kw_only=True, repr=False, eq=False)
class ICD(Alternating):
    """Implicit coordinate descent (Bayer et al. 2017): minimises the loss of `IALS` one coordinate at a time.

    An epoch costs O(|S|d + (|C|+|I|)d²), compared with O(|S|d² + (|C|+|I|)d³) for the exact solver of `IALS`, but it
    makes less progress, so more epochs are needed. Like `IALS`, it solves for the contexts exactly at the end. The
    settings are those of `IALS` without `solver`, `block` and `device`; `IALS(solver="coordinate")` is the same model.

    >>> from shortlist import datasets
    >>> model = ICD(dim=16, epochs=3).fit(datasets.load("online-retail").interactions)
    >>> len(model.recommend([12347], n=5).ids[0])
    5
    """

    def _half_steps(self) -> tuple[HalfStep[Any], HalfStep[Any]]:
        return CoordinateSolver(), ExactSolver()
