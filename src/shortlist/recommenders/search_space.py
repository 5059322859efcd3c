"""Search spaces: which values of a setting are worth trying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from shortlist._checks import flag, number, whole
from shortlist.errors import SettingError

Value: TypeAlias = "bool | int | float | str"


@dataclass(frozen=True, init=False)
class When:
    """Where a setting has a meaning: another setting is one of these.

    >>> When("similarity", "cosine", "tfidf").holds({"similarity": "bm25"})
    False
    """

    setting: str
    options: tuple[Value, ...]

    def __init__(self, setting: str, *options: Value) -> None:
        object.__setattr__(self, "setting", setting)
        object.__setattr__(self, "options", options)

    def holds(self, settings: Mapping[str, Any]) -> bool:
        """Whether it is so among these settings."""
        return settings.get(self.setting) in self.options


@dataclass(frozen=True)
class Real:
    """A number from `low` to `high`; `log`: as likely between 0.1 and 1 as between 1 and 10.

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
    """A whole number from `low` to `high`, both of them possible; `log` as for `Real`."""

    low: int
    high: int
    log: bool = False
    when: When | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, whole(name, getattr(self, name), least=0))
        _check_range(self)


@dataclass(frozen=True, init=False)
class Choice:
    """One of several values, in no order.

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
    """Values that are tried one after the other, the smallest first: more is better, but takes longer.

    The search for the other settings begins at the smallest value. At each larger one it goes on from the settings that
    were best before.

    >>> Increasing(256, 64, 128).values
    (64, 128, 256)
    """

    values: tuple[int, ...]

    def __init__(self, *values: int) -> None:
        _check_options("Increasing", values, (int,))
        object.__setattr__(self, "values", tuple(sorted(whole("a value that grows", one) for one in values)))

    @property
    def when(self) -> None:
        """It always has a meaning."""
        return


Dimension: TypeAlias = Real | Integer | Choice | Increasing
Space: TypeAlias = dict[str, Dimension]


def _check_range(what: Real | Integer) -> None:
    flag("log", what.log)
    told = f"the range from {what.low:g} to {what.high:g}"
    if not what.low < what.high:
        raise SettingError(f"{told} is empty; expected low below high")
    if what.log and what.low <= 0:
        raise SettingError(f"{told} has no logarithm; let it begin above 0, or log=False")


def _check_options(name: str, options: tuple[Any, ...], kinds: tuple[type, ...]) -> None:
    if not options or not all(isinstance(one, kinds) for one in options) or len(set(options)) < len(options):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise SettingError(f"{name}{options!r}; expected one or more distinct values of type {expected}")
