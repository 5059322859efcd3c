"""Losses of a single score: NumPy, torch and the kernels agree, and the slopes are the derivatives."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shortlist.objectives import loss_slopes, loss_values
from shortlist.objectives.losses import CODES, NEGATIVE_LABELS, loss_slope, loss_value

LOSSES = list(CODES)
SCORES = np.array([-30.0, -4.1, -1.3, -0.5, 0.0, 0.2, 0.7, 1.6, 3.9, 25.0])
LABELS = [1.0, -1.0, 0.0, 2.5]


def printed(loss: str, score: float, label: float) -> float:
    """As the docstring of `loss_values` prints it."""
    if loss == "square":
        return (score - label) ** 2
    return math.log(1 + math.exp(-label * score)) if loss == "logistic" else max(0.0, 1 - label * score)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("loss", LOSSES)
def test_values_are_the_printed_ones(loss, label):
    expected = [printed(loss, score, label) for score in SCORES]
    np.testing.assert_allclose(loss_values(loss, SCORES, label), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_are_differences(loss, label):
    step = 1e-6
    differences = [(printed(loss, s + step, label) - printed(loss, s - step, label)) / (2 * step) for s in SCORES]
    np.testing.assert_allclose(loss_slopes(loss, SCORES, label), differences, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("loss", LOSSES)
def test_kernels_agree(loss, label):
    scores = SCORES.astype(np.float32)
    code, one = CODES[loss], np.float32(label)
    values = [loss_value(code, score, one) for score in scores]
    slopes = [loss_slope(code, score, one) for score in scores]
    np.testing.assert_allclose(values, loss_values(loss, SCORES, label), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slopes, loss_slopes(loss, SCORES, label), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("loss", LOSSES)
def test_torch_agrees_and_derives_the_slopes(loss, label):
    torch = pytest.importorskip("torch")
    scores = torch.tensor(SCORES, requires_grad=True)
    values = loss_values(loss, scores, label)
    np.testing.assert_allclose(values.detach().numpy(), loss_values(loss, SCORES, label), rtol=1e-12)
    values.sum().backward()
    np.testing.assert_allclose(scores.grad.numpy(), loss_slopes(loss, SCORES, label), rtol=1e-9, atol=1e-12)
    slopes = loss_slopes(loss, torch.tensor(SCORES), label)
    np.testing.assert_allclose(slopes.numpy(), loss_slopes(loss, SCORES, label), rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_labels_may_be_one_a_score(loss):
    labels = np.resize([1.0, -1.0, 3.0], len(SCORES))
    for given in (loss_values, loss_slopes):
        one_by_one = [float(given(loss, np.array([s]), y)[0]) for s, y in zip(SCORES, labels)]
        np.testing.assert_allclose(given(loss, SCORES, labels), one_by_one)
        torch = pytest.importorskip("torch")
        np.testing.assert_allclose(given(loss, torch.tensor(SCORES), torch.tensor(labels)).numpy(), one_by_one)


@pytest.mark.parametrize("scale", [1e3, 1e30])
def test_large_scores_neither_overflow_nor_vanish(scale):
    """In float32 too, in which e^100 is infinite."""
    for kind in (np.float64, np.float32):
        scores = np.array([-scale, scale], kind)
        with np.errstate(all="raise", under="ignore"):
            np.testing.assert_allclose(loss_values("logistic", scores, 1.0), [scale, 0])
            np.testing.assert_allclose(loss_slopes("logistic", scores, 1.0), [-1, 0])
    one = np.float32(1)
    assert [loss_slope(CODES["logistic"], np.float32(s), one) for s in (-scale, scale)] == [-1, 0]
    assert loss_value(CODES["logistic"], np.float32(-scale), one) == pytest.approx(scale)


def test_a_hinge_is_flat_from_its_kink_on():
    assert loss_slopes("hinge", np.array([1.0, 1.0 - 1e-9]), 1.0).tolist() == [0, -1]
    assert loss_slope(CODES["hinge"], np.float32(1), np.float32(1)) == 0


def test_why_negatives_have_the_label_minus_one():
    """With y = 0, as the article's Algorithm 1 prints it, the slope is 0 at every score: nothing would be learnt."""
    for loss in ("logistic", "hinge"):
        assert not loss_slopes(loss, SCORES, 0.0).any()
        assert NEGATIVE_LABELS[loss] == -1
        assert (loss_slopes(loss, SCORES, NEGATIVE_LABELS[loss]) >= 0).all()
        assert loss_slopes(loss, SCORES, NEGATIVE_LABELS[loss]).any()
    assert NEGATIVE_LABELS["square"] == 0
    assert loss_slopes("square", SCORES[SCORES != 0], 0.0).all()
