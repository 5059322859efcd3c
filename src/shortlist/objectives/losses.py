"""Losses of a single score and their derivatives: square, logistic and hinge (section 3 of the article)."""

from __future__ import annotations

import sys
from typing import Any, Literal, TypeAlias

import numpy as np

from shortlist._checks import numbers, one_of
from shortlist._numba import fast_lean_kernel
from shortlist.errors import SettingError

LossName: TypeAlias = Literal["square", "logistic", "hinge"]
SQUARE, LOGISTIC, HINGE = 0, 1, 2
CODES = {"square": SQUARE, "logistic": LOGISTIC, "hinge": HINGE}
# Labels of negatives in pointwise losses. Algorithm 1 of the article uses 0 for every loss. With y = 0 the logistic and
# hinge losses have slope 0 at every score, so nothing would be learned from negatives.
NEGATIVE_LABELS = {"square": 0.0, "logistic": -1.0, "hinge": -1.0}


def loss_values(loss: LossName, scores: Any, labels: Any) -> Any:
    """Return l(ŷ, y) for NumPy arrays or torch tensors:

        square    (ŷ − y)²
        logistic  ln(1 + exp(−yŷ))
        hinge     max(0, 1 − yŷ)

    >>> loss_values("hinge", np.array([0.25, 2.0]), 1.0)
    array([0.75, 0.  ])
    """  # noqa: D415
    scores, labels = _checked(loss, scores, labels)
    if loss == "square":
        return (scores - labels) ** 2
    if loss == "hinge":
        return (1 - labels * scores).clip(0)
    z, xp = labels * scores, array_namespace(scores)
    return xp.logaddexp(0 * z, -z)


def loss_slopes(loss: LossName, scores: Any, labels: Any) -> Any:
    """Return ∂l/∂ŷ for NumPy arrays or torch tensors; 0 at the kink of the hinge.

    >>> loss_slopes("logistic", np.array([0.0]), 1.0)
    array([-0.5])
    """
    scores, labels = _checked(loss, scores, labels)
    if loss == "square":
        return 2 * (scores - labels)
    z, xp = labels * scores, array_namespace(scores)
    if loss == "hinge":
        return xp.where(z < 1, -labels * (0 * scores + 1), 0 * scores)
    e = xp.exp(-abs(z))
    return -labels * xp.where(z > 0, e, 0 * z + 1) / (1 + e)


def _checked(loss: object, scores: Any, labels: Any) -> tuple[Any, Any]:
    """Check scores and labels and return them as arrays or tensors; a single label stays a number."""
    one_of("loss", loss, tuple(CODES))
    if not _is_tensor(scores):
        scores = numbers("scores", scores)
    if not (_is_tensor(labels) or isinstance(labels, int | float | np.number)):
        labels = numbers("labels", labels)
        try:
            np.broadcast_shapes(labels.shape, scores.shape)
        except ValueError:
            shapes = f"labels have shape {labels.shape} and scores {tuple(scores.shape)}"
            raise SettingError(f"{shapes}; expected one label for each score", field="labels") from None
    return scores, labels


def _is_tensor(array: Any) -> bool:
    return type(array).__module__.startswith("torch")


def array_namespace(array: Any) -> Any:
    """Return the torch module for a tensor, otherwise NumPy."""
    return sys.modules["torch"] if _is_tensor(array) else np


@fast_lean_kernel
def loss_value(code: int, score: Any, label: Any) -> Any:
    """Return the loss of a single score; the twin of `loss_values` for kernels."""
    if code == SQUARE:
        return (score - label) * (score - label)
    z = score * label
    if code == HINGE:
        return max(np.float32(0), np.float32(1) - z)
    return np.log1p(np.exp(-abs(z))) + max(np.float32(0), -z)


@fast_lean_kernel
def loss_slope(code: int, score: Any, label: Any) -> Any:
    """Return the slope at a single score; the twin of `loss_slopes` for kernels."""
    if code == SQUARE:
        return np.float32(2) * (score - label)
    z = score * label
    if code == HINGE:
        return -label if z < np.float32(1) else np.float32(0)
    return -label / (np.float32(1) + np.exp(z))
