"""Base class of factorizations with the pointwise square loss, with its settings."""

from __future__ import annotations

from dataclasses import dataclass

from shortlist.objectives.pointwise_square import Convention, PointwiseSquare, StrengthAs
from shortlist.objectives.weighting import BY_DEFAULT, Weighting
from shortlist.recommenders.factorization import Factorization
from shortlist.recommenders.search_space import Increasing, Real, Space
from shortlist.recommenders.unused_settings import unused_labels


@dataclass(kw_only=True, repr=False, eq=False)
class PointwiseFactorization(Factorization):
    """A factorization with the settings of `PointwiseSquare`; a subclass adds the embeddings and the solver."""

    regularization: float = 0.003
    unobserved_weight: float = 0.1
    regularization_exponent: float = 1.0
    unobserved_item_exponent: float = 0.0
    unobserved_context_exponent: float = 0.0
    weighting: Weighting = BY_DEFAULT
    strength_as: StrengthAs = "weight"
    observed_weight: float = 1.0
    convention: Convention = "added"

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        super().check_settings()
        self._pointwise()

    def unused_settings(self) -> dict[str, str]:
        """Return the settings that have no effect given the other settings, as {name: reason}."""
        return super().unused_settings() | unused_labels(self)

    @classmethod
    def space(cls) -> Space:
        """Return the search space: regularization and α₀ (Rendle et al. 2021), and exponents; the dimension grows."""
        return {
            "dim": Increasing(64, 128, 256),
            "regularization": Real(1e-5, 0.1, log=True),
            "unobserved_weight": Real(3e-3, 3.0, log=True),
            "unobserved_item_exponent": Real(-0.3, 1.0),
            "unobserved_context_exponent": Real(-0.5, 0.75),
        }

    def objective(self) -> PointwiseSquare:
        """Return the loss that `fit` minimises."""
        return self._pointwise()

    def _pointwise(self) -> PointwiseSquare:
        return PointwiseSquare(
            unobserved_weight=self.unobserved_weight,
            regularization=self.regularization,
            regularization_exponent=self.regularization_exponent,
            weighting=self.weighting,
            strength_as=self.strength_as,
            observed_weight=self.observed_weight,
            convention=self.convention,
            unobserved_item_exponent=self.unobserved_item_exponent,
            unobserved_context_exponent=self.unobserved_context_exponent,
        )
