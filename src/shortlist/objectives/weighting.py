"""From the weight in the data to the strength a model sees."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from shortlist._checks import numbers, one_of
from shortlist.errors import SettingError

Weighting: TypeAlias = Literal["binary", "log", "raw"]
WEIGHTINGS = ("binary", "log", "raw")


class _Unstated(str):
    """A word that nobody wrote: the default of a setting. It equals the word, and can be told from it."""

    __slots__ = ()


BY_DEFAULT: Weighting = cast(Weighting, _Unstated("binary"))


def is_stated(weighting: Weighting) -> bool:
    """Whether someone wrote the weighting, rather than left it at the default of a recommender."""
    return not isinstance(weighting, _Unstated)


def strengths(
    values: npt.NDArray[np.float32] | None, weighting: Weighting, confidence: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """Strength of each observed pair: 1 (`"binary"`), log₂(1 + w) (`"log"`), or w itself (`"raw"`).

    Counts and quantities are rarely good weights as they are: one purchase of 80,995 pieces is not 80,995 purchases.
    All three give 1 for w = 1. Where every strength is 1 the answer has a single element that stands for all. With a
    `confidence`, strengths are multiplied by it, under any weighting.

    >>> strengths(np.array([1, 3], dtype=np.float32), "log")
    array([1., 2.], dtype=float32)
    """
    one_of("weighting", weighting, WEIGHTINGS)
    if values is not None:
        values = numbers("values", values)
    if confidence is not None:
        confidence = numbers("confidence", confidence)
        if values is not None and weighting != "binary" and confidence.shape != values.shape:
            raise SettingError(f"confidence has shape {confidence.shape}, values {values.shape}; expected one each")
    if values is None or weighting == "binary":
        return np.ones(1, np.float32) if confidence is None else confidence
    found: npt.NDArray[np.float32] = np.log2(1 + values) if weighting == "log" else values
    return found if confidence is None else found * confidence
