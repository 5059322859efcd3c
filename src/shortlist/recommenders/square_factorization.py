"""Base class of multilinear recommenders with a choice of two square losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from shortlist._checks import one_of
from shortlist.objectives.pairwise_square import PairwiseSquare
from shortlist.objectives.pointwise_square import PointwiseSquare
from shortlist.recommenders.multilinear_model import MultilinearModel
from shortlist.recommenders.pointwise_factorization import PointwiseFactorization

SquareLossName: TypeAlias = Literal["pointwise", "pairwise"]


@dataclass(kw_only=True, repr=False, eq=False)
class SquareFactorization(PointwiseFactorization, MultilinearModel):
    """A multilinear model under `PointwiseSquare` or `PairwiseSquare`."""

    loss: SquareLossName = "pointwise"

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        super().check_settings()
        one_of("loss", self.loss, ("pointwise", "pairwise"))

    def unused_settings(self) -> dict[str, str]:
        """Return the settings that have no effect given the other settings, as {name: reason}."""
        unused = super().unused_settings()
        if self.loss == "pairwise":
            names = ("unobserved_weight", "unobserved_context_exponent", "strength_as", "observed_weight", "convention")
            unused |= dict.fromkeys(names, "with loss='pairwise', only with loss='pointwise'")
        return unused

    def objective(self) -> PointwiseSquare | PairwiseSquare:  # type: ignore[override]
        """Return the loss that `fit` minimises."""
        one_of("loss", self.loss, ("pointwise", "pairwise"))  # `check_settings` of the base class calls this first
        if self.loss == "pointwise":
            return self._pointwise()
        return PairwiseSquare(
            regularization=self.regularization,
            regularization_exponent=self.regularization_exponent,
            item_exponent=self.unobserved_item_exponent,
            weighting=self.weighting,
        )
