"""Checks of settings."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from shortlist import SettingError
from shortlist._checks import flag, fraction, number


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.float16(1), np.int8(1), np.float64(1)])
def test_numbers_of_any_type(value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert number("x", value) == 1.0
        assert type(number("x", value)) is float


@pytest.mark.parametrize(
    "value", [float("nan"), 10**400, -1, True, "1", None, np.float16("inf"), np.timedelta64(3, "s")]
)
def test_what_is_no_usable_number(value):
    with pytest.raises(SettingError, match=r"x is .*; expected a number ≥ 0"):
        number("x", value)


def test_flags():
    assert flag("x", np.bool_(True)) is True
    with pytest.raises(SettingError, match=r"x is 1; expected True or False"):
        flag("x", 1)


@pytest.mark.parametrize("value", [1.0001, -0.1, float("nan"), True, "0.5", None, 10**400])
def test_shares(value):
    assert [fraction("x", one) for one in (0, 0.25, np.float32(1))] == [0, 0.25, 1]
    with pytest.raises(SettingError, match=r"x is .*; expected a number from 0 to 1"):
        fraction("x", value)
