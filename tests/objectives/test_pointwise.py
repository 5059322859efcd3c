"""The Gramian loss against the double sum over C × I that it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from problems import dense_loss, problems
from shortlist.errors import SettingError
from shortlist.objectives import PointwiseSquare, strengths


@settings(max_examples=150, deadline=None)
@given(problems())
def test_loss_equals_the_brute_force_double_sum(problem):
    loss = problem.objective.loss(problem.by_context, problem.by_item, problem.W, problem.H)
    expected = dense_loss(problem)
    np.testing.assert_allclose(
        [loss.observed, loss.unobserved, loss.regularizer, loss.total], [*expected, sum(expected)], rtol=2e-4, atol=1e-4
    )


def test_conventions_are_the_same_loss_up_to_a_change_of_weight_and_label(make_problem):
    """α(ŷ−y)² + α₀ŷ² = (α+α₀)(ŷ − αy/(α+α₀))² + const: A and b of the normal equations agree."""
    problem = make_problem(weighting="raw")
    rows = problem.by_context
    added = PointwiseSquare(weighting="raw", unobserved_weight=0.3).terms(rows)
    shifted = type(rows)(rows.indptr, rows.indices, rows.values + np.float32(0.3), rows.n_columns)
    total = PointwiseSquare(weighting="raw", unobserved_weight=0.3, convention="total").terms(shifted)
    np.testing.assert_allclose(added.excess, total.excess, rtol=1e-5)
    assert not np.allclose(added.target, total.target)  # α·y differs: y must change with α to keep it


def test_ridge_is_scaled_by_frequency(make_problem):
    rows = make_problem().by_context
    objective = PointwiseSquare(regularization=0.5, unobserved_weight=0.2, regularization_exponent=1.0)
    np.testing.assert_allclose(objective.terms(rows).ridge, 0.5 * (rows.lengths + 0.2 * rows.n_columns), rtol=1e-6)
    constant = PointwiseSquare(regularization=0.5, regularization_exponent=0.0)
    np.testing.assert_allclose(constant.terms(rows).ridge, 0.5)


def test_strengths():
    values = np.array([0, 1, 3, 80995], np.float32)
    assert strengths(values, "binary").tolist() == [1]
    np.testing.assert_allclose(strengths(values, "log"), np.log2(1 + values))
    assert strengths(values, "raw") is values
    assert strengths(None, "log").tolist() == [1]


@given(
    st.sampled_from(["unobserved_weight", "regularization", "regularization_exponent", "observed_weight"]),
    st.sampled_from([-1.0, float("nan"), float("inf"), "1", None, True]),
)
def test_settings_that_make_no_sense(name, value):
    with pytest.raises(SettingError, match=name):
        PointwiseSquare(**{name: value})


@pytest.mark.parametrize("wrong", [{"observed_weight": 1e39}, {"regularization_exponent": 1000.0}])
def test_settings_beyond_float32(wrong, make_problem):
    with pytest.raises(SettingError, match="too large"):
        PointwiseSquare(**wrong).terms(make_problem().by_context)


@pytest.mark.parametrize("name", ["weighting", "strength_as", "convention"])
def test_words_that_are_not_known(name):
    with pytest.raises(SettingError, match=f"{name} is 'x'; expected one of"):
        PointwiseSquare(**{name: "x"})
