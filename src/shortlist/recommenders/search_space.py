"""Search spaces: the values of settings that are worth trying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from shortlist._checks import flag, integer, number
from shortlist.errors import SettingError

Value: TypeAlias = "bool | int | float | str"


@dataclass(frozen=True, init=False)
class When:
    """A condition for using a setting: another setting has one of these values.

    >>> When("similarity", "cosine", "tfidf").holds({"similarity": "bm25"})
    False
    """

    setting: str
    options: tuple[Value, ...]

    def __init__(self, setting: str, *options: Value) -> None:
        object.__setattr__(self, "setting", setting)
        object.__setattr__(self, "options", options)

    def holds(self, settings: Mapping[str, Any]) -> bool:
        """Return whether the condition is true for these settings."""
        return settings.get(self.setting) in self.options


@dataclass(frozen=True)
class Real:
    """A number from `low` to `high`; with `log`, 0.1 to 1 is as likely as 1 to 10.

    >>> Real(1e-4, 0.1, log=True)
    Real(low=0.0001, high=0.1, log=True, when=None)
    """

    low: float
    high: float
    log: bool = False
    when: When | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, number(name, getattr(self, name), float("-inf")))
        _check_range(self)


@dataclass(frozen=True)
class Integer:
    """An integer from `low` to `high`, both included; `log` as for `Real`."""

    low: int
    high: int
    log: bool = False
    when: When | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, integer(name, getattr(self, name), least=0))
        _check_range(self)


@dataclass(frozen=True, init=False)
class Choice:
    """One of several unordered values.

    >>> Choice("binary", "log")
    Choice(options=('binary', 'log'), when=None)
    """

    options: tuple[Value, ...]
    when: When | None

    def __init__(self, *options: Value, when: When | None = None) -> None:
        _check_options("Choice", options, (bool, int, float, str))
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "when", when)


@dataclass(frozen=True, init=False)
class Increasing:
    """Values tried in increasing order, for a setting such as `dim` where more is better but slower.

    The other settings are first searched at the smallest value. At each larger value, the search starts from the best
    settings so far.

    >>> Increasing(256, 64, 128).values
    (64, 128, 256)
    """

    values: tuple[int, ...]

    def __init__(self, *values: int) -> None:
        _check_options("Increasing", values, (int,))
        object.__setattr__(self, "values", tuple(sorted(integer("a value of Increasing", value) for value in values)))

    @property
    def when(self) -> None:
        """None: the setting has no condition."""
        return


Dimension: TypeAlias = Real | Integer | Choice | Increasing
Space: TypeAlias = dict[str, Dimension]


def _check_range(what: Real | Integer) -> None:
    flag("log", what.log)
    text = f"the range from {what.low:g} to {what.high:g}"
    if not what.low < what.high:
        raise SettingError(f"{text} is empty; expected low < high")
    if what.log and what.low <= 0:
        raise SettingError(f"{text} has no logarithm", hint="use low > 0, or log=False")


def _check_options(name: str, options: tuple[Any, ...], kinds: tuple[type, ...]) -> None:
    if not options or not all(isinstance(option, kinds) for option in options) or len(set(options)) < len(options):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise SettingError(f"{name}{options!r}; expected one or more distinct values of type {expected}")
