"""Checks of settings and arguments, with error messages in one style."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._wording import Argument, Message
from shortlist.errors import SettingError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
DEFAULT_MEMORY = 256 * 2**20
_NOT_NUMBERS = (bool, np.timedelta64)  # subclasses of int and np.integer that are not accepted as numbers


def refusal(name: str, value: object, expected: str) -> SettingError:
    """Return the error for an argument with a wrong value.

    >>> print(refusal("test", 1.5, "a fraction between 0 and 1"))
    test=1.5; expected a fraction between 0 and 1
    """
    return SettingError(Message("{}; expected {}", Argument(name, f"{value!r:.80}"), expected), field=name)


def integer(name: str, value: object, least: int = 1, most: int = 2**63 - 1) -> int:
    """Return the value as an int; raise `SettingError` unless it is an integer from `least` to `most`."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, _NOT_NUMBERS)
    if not is_integer or not least <= value <= most:  # type: ignore[operator]
        bound = f"≤ {most}" if is_integer and value > most else f"≥ {least}"  # type: ignore[operator]
        raise SettingError(f"{name} is {value!r}; expected an integer {bound}", field=name)
    return int(value)  # type: ignore[call-overload, no-any-return]


def number(name: str, value: object, least: float = 0.0, *, above: bool = False) -> float:
    """Return the value as a float; raise `SettingError` unless it is finite and ≥ `least`, or > `least` if `above`.

    With `least=-inf`, every finite number is accepted.
    """
    result = math.nan
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, _NOT_NUMBERS):
        with suppress(OverflowError):  # a Python int can be too large for a float
            result = float(value)
    if not math.isfinite(result) or result < least or (above and result == least):
        expected = f"number {'>' if above else '≥'} {least:g}" if math.isfinite(least) else "finite number"
        raise SettingError(f"{name} is {value!r}; expected a {expected}", field=name)
    return result


def fraction(name: str, value: object) -> float:
    """Return the value as a float; raise `SettingError` unless it is a number from 0 to 1, both included."""
    try:
        result = number(name, value)
    except SettingError:
        result = math.inf
    if result > 1:
        raise SettingError(f"{name} is {value!r}; expected a number from 0 to 1", field=name)
    return result


def flag(name: str, value: object) -> bool:
    """Return the value as a bool; raise `SettingError` unless it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise SettingError(f"{name} is {value!r}; expected True or False", field=name)
    return bool(value)


def one_of(name: str, value: object, allowed: Sequence[str]) -> str:
    """Return the value; raise `SettingError` unless it is one of the allowed strings."""
    if not isinstance(value, str) or value not in allowed:
        raise SettingError(f"{name} is {value!r}; expected one of {', '.join(map(repr, allowed))}", field=name)
    return str(value)


def instance(name: str, value: object, kind: type, expected: str) -> None:
    """Raise `SettingError` unless the value is an instance of the class `kind`; `expected` describes it in words."""
    if not isinstance(value, kind):
        raise SettingError(f"{name} is {value!r:.80}; expected {expected}", field=name)


def numbers(name: str, values: object) -> npt.NDArray[Any]:
    """Return the values as an array of numbers; any shape is accepted, and so are infinity and NaN."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # nested lists of unequal lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "iuf":
        raise SettingError(f"{name} is {values!r:.80}; expected numbers", field=name)
    return array


def refuse_large_squares(owner: str, sums: npt.NDArray[np.float64]) -> None:
    """Raise `SettingError` if a sum of squared weights does not fit in float32.

    Args:
        owner: whose weights they are, for the message: "an item".
        sums: for each owner, the sum of its squared weights.
    """
    largest, most = float(sums.max(initial=0)), float(np.finfo(np.float32).max)
    if largest > most:
        raise SettingError(
            f"the weights of {owner} are too large: its squares sum to {largest:.2g}, but float32 ends at {most:.2g}",
            code="diverged",
            field="weighting",
            hint=Message("use {weighting} or 'binary', or scale the weights down", weighting="log"),
        )


def memory_bytes(memory: int | str | None) -> int:
    """Return a memory budget in bytes, from a number of bytes or text such as '512MB'; None means 256 MiB.

    >>> memory_bytes("64 MiB"), memory_bytes("1GB")
    (67108864, 1000000000)
    """
    if memory is None:
        return DEFAULT_MEMORY
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", memory)
        if match is None or match[2].upper() not in _UNITS:
            raise SettingError(
                f"memory is {memory!r}; expected bytes or text such as '256MB' or '1GiB'", field="memory"
            )
        return int(min(float(match[1]), 1e18) * _UNITS[match[2].upper()])
    return integer("memory", memory)
