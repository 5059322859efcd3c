"""Objectives that are learnt from by sampling: pointwise, pairwise and softmax (section 3 of the article)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shortlist._checks import number, one_of
from shortlist.objectives.losses import CODES, NEGATIVE_LABELS, LossName, _namespace, loss_slopes, loss_values


@dataclass(frozen=True)
class Pointwise:
    """Every pair by itself: Σ_{(c,i)∈S} α(c,i)·l(ŷ(i|c)/τ, y) + Σ_{(c,j)∉S} α(c,j)·l(ŷ(j|c)/τ, y⁻).

    y is 1, or the pair's strength where the recommender says so; y⁻ is 0 for the square loss and −1 for the others.
    What α(c,j) is follows from how negatives are drawn: `shortlist.sampling.implied_weight`.

    Args:
        loss: `"square"`, `"logistic"` or `"hinge"`, see `loss_values`.
        negative_weight: the weight α̃ of a step on a negative.
        temperature: τ. Scores that are cosines need one well below 1; other scores can grow instead.

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
        """y⁻."""
        return NEGATIVE_LABELS[self.loss]

    def values(self, scores: Any, labels: Any) -> Any:
        """The loss of each score, with NumPy or torch."""
        return loss_values(self.loss, scores / self.temperature, labels)

    def slopes(self, scores: Any, labels: Any) -> Any:
        """Its derivative by the score."""
        return loss_slopes(self.loss, scores / self.temperature, labels) / self.temperature


@dataclass(frozen=True)
class Pairwise:
    """A positive above a negative: Σ_{(c,i)∈S} Σ_{j∈I} α(c,i,j)·l((ŷ(i|c) − ŷ(j|c))/τ, 1).

    Args:
        loss: `"logistic"` (BPR), `"hinge"` (WARP's) or `"square"`.
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
        """The loss of each difference ŷ(i|c) − ŷ(j|c), with NumPy or torch."""
        return loss_values(self.loss, differences / self.temperature, 1.0)

    def slopes(self, differences: Any) -> Any:
        """Its derivative by the difference."""
        return loss_slopes(self.loss, differences / self.temperature, 1.0) / self.temperature


@dataclass(frozen=True)
class Softmax:
    """The positive among all items: −Σ_{(c,i)∈S} α(c,i)·ln p(i|c), p(i|c) = exp(ŷ(i|c)/τ) / Σ_{j∈I} exp(ŷ(j|c)/τ).

    The denominator is the partition function (the article has "numerator"). From a sample of m negatives, drawn with
    probabilities q, it is learnt as −z_i + ln(e^{z_i} + Σ_l e^{z_l}/(m·q_l)) with z = ŷ/τ.

    Args:
        temperature: τ, 1/ν of the article: the smaller, the more it is about the top of the list. Scores that are
            cosines need one well below 1, such as 0.1; other scores can grow instead.

    >>> Softmax(0.1)
    Softmax(temperature=0.1)
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        number("temperature", self.temperature, above=True)

    def values(self, positives: Any, negatives: Any, log_expected: Any = 0.0) -> Any:
        """The loss of each row, with NumPy or torch, by log-sum-exp.

        Args:
            positives: the scores of n positives.
            negatives: n × m scores of negatives, −∞ where there is none.
            log_expected: ln(m·q) of each negative where they are a sample; 0 where they are all items but the positive.
        """
        z = self._logits(positives, negatives, log_expected)
        xp = _namespace(z)
        top = z.max(1)
        top = top[0] if isinstance(top, tuple) else top  # torch gives the places too
        return top + xp.log(xp.exp(z - top[:, None]).sum(1)) - z[:, 0]

    def slopes(self, positives: Any, negatives: Any, log_expected: Any = 0.0) -> Any:
        """Its derivatives by the scores, n × (1 + m): the positive first."""
        z = self._logits(positives, negatives, log_expected)
        xp = _namespace(z)
        top = z.max(1)
        top = top[0] if isinstance(top, tuple) else top
        weights = xp.exp(z - top[:, None])
        weights = weights / weights.sum(1)[:, None]
        weights[:, 0] = weights[:, 0] - 1
        return weights / self.temperature

    def _logits(self, positives: Any, negatives: Any, log_expected: Any) -> Any:
        xp = _namespace(negatives)
        stacked = xp.concatenate((positives[:, None], negatives), 1)
        z = stacked / self.temperature
        z[:, 1:] = z[:, 1:] - log_expected
        return z


OBJECTIVES: dict[str, type[Pointwise | Pairwise | Softmax]] = {
    "Pointwise": Pointwise,
    "Pairwise": Pairwise,
    "Softmax": Softmax,
}
