from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.cli.config import _settings
from shortlist.cli.model_settings import ConfigFile, make_models, typed
from shortlist.errors import SettingError


@dataclass
class Odd:
    """Settings of every kind."""

    count: int = 1
    share: float = 0.1
    kind: Literal["a", "b"] = "a"
    symmetric: bool = False
    most: int | None = None
    either: int | float | None = None
    _private: int = field(default=0, init=False)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "3", 3),
        ("share", "1e-3", 0.001),
        ("kind", "b", "b"),
        ("symmetric", "true", True),
        ("symmetric", "False", False),
        ("most", "7", 7),
        ("most", "none", None),
        ("either", "2", 2),
        ("either", "2.5", 2.5),
    ],
)
def test_typed(name, text, value):
    found = typed(Odd, name, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("count", "1.5", "expected an integer"),
        ("kind", "c", "expected one of a, b"),
        ("symmetric", "yes", "expected true or false"),
        ("most", "some", "expected an integer or none"),
        ("either", "x", "expected an integer or a number or none"),
    ],
)
def test_refused(name, text, words):
    with pytest.raises(SettingError, match=words):
        typed(Odd, name, text)


@given(st.floats(0, 1e30, exclude_min=True), st.integers(1, 10**6))
def test_numbers_of_a_file_arrive_as_they_are(share, count):
    stored = ConfigFile("shop.toml", _settings({"regularization": share, "ials": {"dim": count}}, "shop.toml", "fit"))
    (model,) = make_models(["ials"], [], stored)
    assert (model.regularization, model.dim) == (share, count)


def test_typed_ones_win_and_those_of_others_stay():
    stored = ConfigFile("shop.toml", ["ials.dim=2", "ials.epochs=3", "ease.regularization=9"])
    (model,) = make_models(["ials"], ["dim=5"], stored)
    assert (model.dim, model.epochs) == (5, 3)
    (model,) = make_models(["EASE"], [], stored)
    assert model.regularization == 9
    with pytest.raises(SettingError, match=r"shop.toml: .*there are several models"):
        make_models(["ials", "ease"], [], ConfigFile("shop.toml", ["dim=2"]))
