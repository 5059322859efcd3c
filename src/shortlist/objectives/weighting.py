"""Strengths of observed pairs: how the weights in the data enter a loss."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from shortlist._checks import numbers, one_of
from shortlist.errors import SettingError

Weighting: TypeAlias = Literal["binary", "log", "raw"]
WEIGHTINGS = ("binary", "log", "raw")


class _Unstated(str):
    """The default of a setting: equal to the plain string, but distinguishable from one that a user passed."""

    __slots__ = ()


BY_DEFAULT: Weighting = cast(Weighting, _Unstated("binary"))


def is_stated(weighting: Weighting) -> bool:
    """Return whether the user passed the weighting, instead of leaving a recommender's default."""
    return not isinstance(weighting, _Unstated)


def strengths(
    values: npt.NDArray[np.float32] | None, weighting: Weighting, confidence: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """Return the strength of each observed pair: 1 (`"binary"`), log₂(1 + w) (`"log"`), or w itself (`"raw"`).

    Raw counts and quantities are rarely good weights: one purchase of 80,995 pieces is not 80,995 purchases. All three
    weightings give 1 for w = 1. If all strengths are 1, the result has a single element that applies to all. Strengths
    are multiplied by `confidence`, under any weighting.

    >>> strengths(np.array([1, 3], dtype=np.float32), "log")
    array([1., 2.], dtype=float32)
    """
    one_of("weighting", weighting, WEIGHTINGS)
    if values is not None:
        values = numbers("values", values)
    if confidence is not None:
        confidence = numbers("confidence", confidence)
        if values is not None and weighting != "binary" and confidence.shape != values.shape:
            raise SettingError(
                f"confidence has shape {confidence.shape} and values has shape {values.shape}; expected the same shape",
                field="confidence",
            )
    if values is None or weighting == "binary":
        return np.ones(1, np.float32) if confidence is None else confidence
    by_pair: npt.NDArray[np.float32] = np.log2(1 + values) if weighting == "log" else values
    return by_pair if confidence is None else by_pair * confidence
