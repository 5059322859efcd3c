"""Checks of settings and arguments, so that every message reads alike."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.errors import SettingError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
DEFAULT_MEMORY = 256 * 2**20
_NONE = (bool, np.timedelta64)  # integers to Python and to NumPy, and no numbers


def whole(name: str, value: object, least: int = 1, most: int = 2**63 - 1) -> int:
    """A whole number of at least `least` and at most `most`."""
    number_ = isinstance(value, int | np.integer) and not isinstance(value, _NONE)
    if not number_ or not least <= value <= most:  # type: ignore[operator]
        bound = f"of at most {most}" if number_ and value > most else f"of at least {least}"  # type: ignore[operator]
        raise SettingError(f"{name} is {value!r}; expected a whole number {bound}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def number(name: str, value: object, least: float = 0.0, *, above: bool = False) -> float:
    """A finite number of at least `least`, or above it; any finite number where `least` is −∞."""
    found = math.nan
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, _NONE):
        with suppress(OverflowError):  # a whole number may be longer than any float
            found = float(value)
    if not math.isfinite(found) or found < least or (above and found == least):
        bound = f"number {'above' if above else 'of at least'} {least:g}" if math.isfinite(least) else "finite number"
        raise SettingError(f"{name} is {value!r}; expected a {bound}")
    return found


def share(name: str, value: object) -> float:
    """A number from 0 to 1, both included."""
    try:
        found = number(name, value)
    except SettingError:
        found = math.inf
    if found > 1:
        raise SettingError(f"{name} is {value!r}; expected a number from 0 to 1")
    return found


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise SettingError(f"{name} is {value!r}; expected True or False")
    return bool(value)


def one_of(name: str, value: object, allowed: Sequence[str]) -> str:
    """One of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        raise SettingError(f"{name} is {value!r}; expected one of {', '.join(map(repr, allowed))}")
    return str(value)


def instance(name: str, value: object, kind: type, expected: str) -> None:
    """Refuse what is no object of a class."""
    if not isinstance(value, kind):
        raise SettingError(f"{name} is {value!r:.80}; expected {expected}")


def numbers(name: str, values: object) -> npt.NDArray[Any]:
    """Numbers as an array, of whatever shape and finite or not."""
    try:
        found = np.asarray(values)
    except (TypeError, ValueError):  # lists of several lengths
        found = np.empty(0, object)
    if found.dtype.kind not in "iuf":
        raise SettingError(f"{name} is {values!r:.80}; expected numbers")
    return found


def refuse_large_squares(whose: str, sums: npt.NDArray[np.float64]) -> None:
    """Refuse weights whose sum of squares, one for each of them, does not fit float32."""
    largest, most = float(sums.max(initial=0)), float(np.finfo(np.float32).max)
    if largest > most:
        raise SettingError(
            f"the weights of {whose} are too large: its squares sum to {largest:.2g}, float32 ends at "
            f"{most:.2g}; take weighting='log' or 'binary', or weights in other units"
        )


def memory_bytes(memory: int | str | None) -> int:
    """A memory budget: a number of bytes or text such as '512MB'; 256 MiB by default.

    >>> memory_bytes("64 MiB"), memory_bytes("1GB")
    (67108864, 1000000000)
    """
    if memory is None:
        return DEFAULT_MEMORY
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", memory)
        if match is None or match[2].upper() not in _UNITS:
            raise SettingError(f"memory is {memory!r}; expected bytes or text such as '256MB' or '1GiB'")
        return int(min(float(match[1]), 1e18) * _UNITS[match[2].upper()])
    return whole("memory", memory)
