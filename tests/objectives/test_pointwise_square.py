"""The Gramian loss against the double sum over C × I that it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from problems import dense_loss, problems
from shortlist.errors import SettingError
from shortlist.objectives import FrequencyWeights, PointwiseSquare, strengths


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
    rows = make_problem().by_context
    labels = {"weighting": "raw", "strength_as": "label", "unobserved_weight": 0.3}
    added = PointwiseSquare(**labels, observed_weight=2.0).terms(rows)
    shrunk = type(rows)(rows.indptr, rows.indices, rows.values * np.float32(2.0 / 2.3), rows.n_columns)
    total = PointwiseSquare(**labels, observed_weight=2.3, convention="total").terms(shrunk)
    np.testing.assert_allclose(added.excess, total.excess, rtol=1e-5)
    np.testing.assert_allclose(added.target, total.target, rtol=1e-5)
    np.testing.assert_array_equal(added.dense, total.dense)


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


@pytest.mark.parametrize("name", ["unobserved_item_exponent", "unobserved_context_exponent"])
@pytest.mark.parametrize("value", [float("nan"), float("-inf"), "1", None, True])
def test_exponents_may_be_negative_but_must_be_finite(name, value):
    PointwiseSquare(**{name: -3})
    with pytest.raises(SettingError, match=f"{name} is .*; expected a finite number"):
        PointwiseSquare(**{name: value})


@pytest.mark.parametrize("convention", ["added", "total"])
def test_exponents_of_zero_take_no_arrays(convention, make_problem):
    terms = PointwiseSquare(convention=convention, weighting="binary").terms(make_problem().by_context)
    assert [len(one) for one in (terms.excess, terms.target, terms.dense, terms.omega)] == [1, 1, 1, 1]


def test_weights_as_they_are_need_no_copy(make_problem):
    rows = make_problem().by_context
    terms = PointwiseSquare(weighting="raw").terms(rows)
    assert terms.excess is rows.values
    assert terms.target is rows.values


def test_omega_is_one_on_average_and_grows_as_its_exponent_says():
    counts = np.array([0, 1, 10, 1000])
    for exponent in (0.5, -0.5, 2.0, -300.0, 300.0):
        omega = FrequencyWeights.of(counts, exponent)
        np.testing.assert_allclose(omega.values.mean(), 1, rtol=1e-5)
        assert np.isfinite(omega.values).all()
        assert omega.values[0] == omega.values[1]  # nobody counts as less than one
        assert (np.diff(omega.values[1:]) * np.sign(exponent) >= 0).all()
        np.testing.assert_array_equal(omega.new(counts), omega.values)
    assert (
        FrequencyWeights.of(counts, 0.0).values.tolist() == FrequencyWeights.of(counts, 0.0).new(counts).tolist() == [1]
    )


def test_a_stranger_is_weighed_by_the_mean_of_those_who_were_there():
    omega = FrequencyWeights.of(np.array([1, 3]), 1.0)
    np.testing.assert_allclose(omega.new(np.array([1, 2, 3, 8])), [0.5, 1, 1.5, 4])


@settings(max_examples=60, deadline=None)
@given(problems())
def test_excess_is_the_weight_beyond_the_unobserved_one(problem):
    """With the dense part, an observed pair weighs α in the total convention and α + α₀ωω in the added one."""
    o, rows, terms = problem.objective, problem.by_context, problem.context_terms
    row = np.repeat(np.arange(rows.n_rows), rows.lengths)
    dense = np.broadcast_to(terms.dense, rows.n_rows)[row] * np.broadcast_to(terms.omega, rows.n_columns)[rows.indices]
    added = dense if o.convention == "added" else 0
    strength = np.broadcast_to(strengths(rows.values, o.weighting), len(rows)) if o.strength_as == "weight" else 1
    weight = np.broadcast_to(terms.excess, len(rows)) + dense
    np.testing.assert_allclose(weight, o.observed_weight * strength + added, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrong", [{"observed_weight": 1e39}, {"regularization_exponent": 1000.0}])
def test_settings_beyond_float32(wrong, make_problem):
    with pytest.raises(SettingError, match="too large"):
        PointwiseSquare(**wrong).terms(make_problem().by_context)


@pytest.mark.parametrize("name", ["weighting", "strength_as", "convention"])
def test_words_that_are_not_known(name):
    with pytest.raises(SettingError, match=f"{name} is 'x'; expected one of"):
        PointwiseSquare(**{name: "x"})
