"""Objectives as settings: what they compute, for NumPy and for torch, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.errors import SettingError
from shortlist.objectives import OBJECTIVES, Pairwise, Pointwise, Softmax, loss_slopes, loss_values

RNG = np.random.default_rng(3)
POSITIVES, NEGATIVES = RNG.normal(size=6), RNG.normal(size=(6, 4))
LOG_EXPECTED = np.log(4 * RNG.dirichlet(np.ones(4), size=6))
NONE = NEGATIVES.copy()
NONE[0, 1] = NONE[3, :3] = -np.inf  # as where nothing was left to draw

CASES = [(NEGATIVES, 0.0), (NEGATIVES, LOG_EXPECTED), (NONE, 0.0), (NONE, LOG_EXPECTED)]


def by_torch(temperature: float, negatives: np.ndarray, log_expected: np.ndarray | float) -> tuple[np.ndarray, ...]:
    """Cross-entropy of the positive among its logits, and its gradients by the scores."""
    torch = pytest.importorskip("torch")
    positives = torch.tensor(POSITIVES, requires_grad=True)
    others = torch.tensor(negatives, requires_grad=True)
    corrected = others / temperature - torch.as_tensor(log_expected)
    logits = torch.cat((positives[:, None] / temperature, corrected), 1)
    targets = torch.zeros(len(POSITIVES), dtype=torch.long)
    values = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    values.sum().backward()
    slopes = torch.cat((positives.grad[:, None], others.grad), 1)
    return values.detach().numpy(), slopes.numpy()


@pytest.mark.parametrize("temperature", [1.0, 0.2, 3.0])
@pytest.mark.parametrize(("negatives", "log_expected"), CASES)
def test_softmax_is_cross_entropy(negatives, log_expected, temperature):
    values, slopes = by_torch(temperature, negatives, log_expected)
    objective = Softmax(temperature)
    np.testing.assert_allclose(objective.values(POSITIVES, negatives, log_expected), values, rtol=1e-10)
    np.testing.assert_allclose(objective.slopes(POSITIVES, negatives, log_expected), slopes, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("negatives", "log_expected"), CASES)
def test_softmax_of_tensors(negatives, log_expected):
    torch = pytest.importorskip("torch")
    values, slopes = by_torch(0.5, negatives, log_expected)
    positives = torch.tensor(POSITIVES, requires_grad=True)
    others = torch.tensor(negatives, requires_grad=True)
    given = Softmax(0.5).values(positives, others, torch.as_tensor(log_expected))
    np.testing.assert_allclose(given.detach().numpy(), values, rtol=1e-10)
    given.sum().backward()
    np.testing.assert_allclose(positives.grad.numpy(), slopes[:, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.nan_to_num(others.grad.numpy()), slopes[:, 1:], rtol=1e-9, atol=1e-12)
    told = Softmax(0.5).slopes(positives.detach(), others.detach(), torch.as_tensor(log_expected))
    np.testing.assert_allclose(told.numpy(), slopes, rtol=1e-9, atol=1e-12)


def test_softmax_over_everything_is_a_logarithm_of_a_probability():
    scores = np.array([0.3, -1.0, 2.0])
    p = np.exp(scores / 0.7) / np.exp(scores / 0.7).sum()
    np.testing.assert_allclose(Softmax(0.7).values(scores[:1], scores[None, 1:]), -np.log(p[0]), rtol=1e-12)


def test_what_is_handed_in_stays_as_it_was():
    positives, negatives = POSITIVES.copy(), NEGATIVES.copy()
    Softmax(0.1).values(positives, negatives, LOG_EXPECTED)
    Softmax(0.1).slopes(positives, negatives, LOG_EXPECTED)
    np.testing.assert_array_equal(positives, POSITIVES)
    np.testing.assert_array_equal(negatives, NEGATIVES)


def test_softmax_does_not_overflow():
    with np.errstate(all="raise", under="ignore"):
        assert Softmax(1e-3).values(np.array([-5.0]), np.array([[5.0]]))[0] == pytest.approx(10_000)
        np.testing.assert_allclose(Softmax(1.0).slopes(np.array([-900.0]), np.array([[900.0]])), [[-1, 1]])


def test_of_one_negative_it_is_the_pairwise_logistic_loss_shifted_by_ln_q():
    """−ŷ_i + ln(e^{ŷ_i} + e^{ŷ_j}/q) = ln(1 + exp(−(ŷ_i − ŷ_j + ln q)))."""
    negatives, log_q = NEGATIVES[:, :1], LOG_EXPECTED[:, :1]
    shifted = POSITIVES - negatives[:, 0] + log_q[:, 0]
    np.testing.assert_allclose(
        Softmax().values(POSITIVES, negatives, log_q), Pairwise("logistic").values(shifted), rtol=1e-12
    )
    slopes = Pairwise("logistic").slopes(shifted)
    np.testing.assert_allclose(
        Softmax().slopes(POSITIVES, negatives, log_q), np.stack([slopes, -slopes], 1), rtol=1e-12
    )


@pytest.mark.parametrize("loss", ["square", "logistic", "hinge"])
def test_pairs_and_points(loss):
    differences, labels = NEGATIVES[0], np.array([1.0, -1.0, 1.0, 2.0])
    np.testing.assert_array_equal(Pairwise(loss).values(differences), loss_values(loss, differences, 1.0))
    np.testing.assert_array_equal(Pairwise(loss).slopes(differences), loss_slopes(loss, differences, 1.0))
    np.testing.assert_array_equal(Pointwise(loss).values(differences, labels), loss_values(loss, differences, labels))
    np.testing.assert_array_equal(Pointwise(loss).slopes(differences, labels), loss_slopes(loss, differences, labels))
    assert Pointwise(loss).negative_label == (0 if loss == "square" else -1)
    for objective, more in ((Pairwise(loss, 0.3), (1.0,)), (Pointwise(loss, temperature=0.3), (labels,))):
        given = more if isinstance(objective, Pointwise) else ()
        np.testing.assert_allclose(objective.values(differences, *given), loss_values(loss, differences / 0.3, *more))
        step = 1e-6
        ends = [objective.values(differences + sign * step, *given) for sign in (1, -1)]
        np.testing.assert_allclose(
            objective.slopes(differences, *given), (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Pointwise("cubic"), "loss is 'cubic'; expected one of 'square', 'logistic', 'hinge'"),
        (lambda: Pairwise("Logistic"), "loss is 'Logistic'; expected one of"),
        (lambda: Pairwise(None), "loss is None; expected one of"),
        (lambda: Pointwise("square", -1.0), "negative_weight is -1.0; expected a number ≥ 0"),
        (lambda: Pointwise("square", np.nan), "negative_weight is nan; expected"),
        (lambda: Pairwise("hinge", 0.0), "temperature is 0.0; expected a number > 0"),
        (lambda: Pointwise("hinge", temperature=-1.0), "temperature is -1.0; expected a number > 0"),
        (lambda: Softmax(0.0), "temperature is 0.0; expected a number > 0"),
        (lambda: Softmax(-1), "temperature is -1; expected a number > 0"),
        (lambda: Softmax(np.inf), "temperature is inf; expected"),
        (lambda: Softmax("warm"), "temperature is 'warm'; expected"),
    ],
)
def test_what_makes_no_sense_is_refused(make, told):
    with pytest.raises(SettingError, match=told):
        make()


def test_they_are_values():
    for kind in OBJECTIVES.values():
        assert kind() == kind()
        assert hash(kind()) == hash(kind())
        with pytest.raises(AttributeError):
            kind().loss = "square"
