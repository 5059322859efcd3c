"""Objectives for sampled training: pointwise, pairwise and softmax (section 3 of the article)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shortlist._checks import number, one_of
from shortlist.objectives.losses import CODES, NEGATIVE_LABELS, LossName, array_namespace, loss_slopes, loss_values


@dataclass(frozen=True)
class Pointwise:
    """A loss for each pair: Σ_{(c,i)∈S} α(c,i)·l(ŷ(i|c)/τ, y) + Σ_{(c,j)∉S} α(c,j)·l(ŷ(j|c)/τ, y⁻).

    y is 1, or the pair's strength if the recommender uses strengths as labels. y⁻ is 0 for the square loss and −1 for
    the logistic and hinge losses. The sampler of negatives determines α(c,j): see `shortlist.sampling.implied_weight`.

    Args:
        loss: `"square"`, `"logistic"` or `"hinge"`, see `loss_values`.
        negative_weight: the weight α̃ of a step on a negative.
        temperature: τ. Use a value well below 1, such as 0.1, if scores are cosines; other scores are not bounded.

    >>> Pointwise("logistic")
    Pointwise(loss='logistic', negative_weight=1.0, temperature=1.0)
    """

    loss: LossName = "logistic"
    negative_weight: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        one_of("loss", self.loss, tuple(CODES))
        number("negative_weight", self.negative_weight)
        number("temperature", self.temperature, above=True)

    @property
    def negative_label(self) -> float:
        """The label y⁻ of negatives."""
        return NEGATIVE_LABELS[self.loss]

    def values(self, scores: Any, labels: Any) -> Any:
        """Return the loss of each score; takes NumPy arrays or torch tensors."""
        return loss_values(self.loss, scores / self.temperature, labels)

    def slopes(self, scores: Any, labels: Any) -> Any:
        """Return the derivative of the loss with respect to each score."""
        return loss_slopes(self.loss, scores / self.temperature, labels) / self.temperature


@dataclass(frozen=True)
class Pairwise:
    """A loss on score differences of a positive and a negative: Σ_{(c,i)∈S} Σ_{j∈I} α(c,i,j)·l((ŷ(i|c) − ŷ(j|c))/τ, 1).

    Args:
        loss: `"logistic"` (BPR), `"hinge"` (WARP) or `"square"`.
        temperature: τ, as for `Pointwise`.

    >>> Pairwise("hinge").values(0.25 * __import__("numpy").ones(1))
    array([0.75])
    """

    loss: LossName = "logistic"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        one_of("loss", self.loss, tuple(CODES))
        number("temperature", self.temperature, above=True)

    def values(self, differences: Any) -> Any:
        """Return the loss of each difference ŷ(i|c) − ŷ(j|c); takes NumPy arrays or torch tensors."""
        return loss_values(self.loss, differences / self.temperature, 1.0)

    def slopes(self, differences: Any) -> Any:
        """Return the derivative of the loss with respect to each difference."""
        return loss_slopes(self.loss, differences / self.temperature, 1.0) / self.temperature


@dataclass(frozen=True)
class Softmax:
    """Cross-entropy over the catalogue: −Σ_{(c,i)∈S} α(c,i)·ln p(i|c), p(i|c) = exp(ŷ(i|c)/τ) / Σ_{j∈I} exp(ŷ(j|c)/τ).

    The denominator is the partition function (the article says "numerator"). The sampled softmax with m negatives,
    drawn with probabilities q, is −z_i + ln(e^{z_i} + Σ_l e^{z_l}/(m·q_l)) with z = ŷ/τ.

    Args:
        temperature: τ, 1/ν in the article. A smaller τ puts more weight on the top of the list. Use a value well
            below 1, such as 0.1, if scores are cosines; other scores are not bounded.

    >>> Softmax(0.1)
    Softmax(temperature=0.1)
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        number("temperature", self.temperature, above=True)

    def values(self, positives: Any, negatives: Any, log_expected: Any = 0.0) -> Any:
        """Return the loss of each row by log-sum-exp; takes NumPy arrays or torch tensors.

        Args:
            positives: the scores of n positives.
            negatives: n × m scores of negatives, −∞ for a missing negative.
            log_expected: ln(m·q) of each sampled negative; 0 if the negatives are all items except the positive.
        """
        z = self._logits(positives, negatives, log_expected)
        xp = array_namespace(z)
        top = z.max(1)
        top = top[0] if isinstance(top, tuple) else top  # torch returns the positions too
        return top + xp.log(xp.exp(z - top[:, None]).sum(1)) - z[:, 0]

    def slopes(self, positives: Any, negatives: Any, log_expected: Any = 0.0) -> Any:
        """Return the derivatives with respect to the scores, n × (1 + m); column 0 is the positive."""
        z = self._logits(positives, negatives, log_expected)
        xp = array_namespace(z)
        top = z.max(1)
        top = top[0] if isinstance(top, tuple) else top
        weights = xp.exp(z - top[:, None])
        weights = weights / weights.sum(1)[:, None]
        weights[:, 0] = weights[:, 0] - 1
        return weights / self.temperature

    def _logits(self, positives: Any, negatives: Any, log_expected: Any) -> Any:
        xp = array_namespace(negatives)
        stacked = xp.concatenate((positives[:, None], negatives), 1)
        z = stacked / self.temperature
        z[:, 1:] = z[:, 1:] - log_expected
        return z


OBJECTIVES: dict[str, type[Pointwise | Pairwise | Softmax]] = {
    "Pointwise": Pointwise,
    "Pairwise": Pairwise,
    "Softmax": Softmax,
}
