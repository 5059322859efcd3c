"""Parsing and formatting of parts: settings that are small frozen dataclasses, such as an objective or a sampler.

A part can also be given as text. The text is its repr, for example `Popularity(beta=0.5, exclude='history')`. It is
used in files and on the command line, and is parsed here.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from shortlist.errors import SettingError

T = TypeVar("T")
_MAX_LENGTH = 1000  # characters; parsing a longer text could take unbounded time and depth


def parse_part(name: str, given: Any, kinds: Mapping[str, type[T]]) -> T:
    """Return a part that is given as an object or as text. Nothing in the text is executed.

    Args:
        name: the name of the setting, for error messages.
        given: an object of an allowed class, or text: `"Popularity(beta=0.5)"`, `"Popularity(0.5)"` or `"Popularity"`.
        kinds: the allowed classes by name.
    """
    if isinstance(given, tuple(kinds.values())):
        return cast("T", given)
    expected = f"expected one of {', '.join(kinds)}, as an object or as text such as {_example(kinds)!r}"
    if not isinstance(given, str) or len(given) > _MAX_LENGTH:
        raise SettingError(f"{name} is {given!r:.80}; {expected}", field=name)
    try:
        tree = ast.parse(given.strip(), mode="eval").body
        call = tree if isinstance(tree, ast.Call) else ast.Call(tree, [], [])
        if not isinstance(call.func, ast.Name) or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError
        values = [ast.literal_eval(argument) for argument in call.args]
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        if len(named) < len(call.keywords):
            raise ValueError
    except (TypeError, ValueError, SyntaxError, RecursionError, MemoryError):
        raise SettingError(f"{name} is {given!r:.80}; {expected}", field=name) from None
    lowercase = {kind.lower(): kind for kind in kinds}
    called = call.func.id.lower()
    if called not in lowercase:
        similar = difflib.get_close_matches(called, list(lowercase), 1)
        hint = f"did you mean {lowercase[similar[0]]}? " if similar else ""
        raise SettingError(f"{name} is {given!r:.80}; {hint}{expected}", field=name)
    kind = kinds[lowercase[called]]
    try:
        return kind(*values, **named)
    except TypeError:
        has = ", ".join(field.name for field in fields(kind)) or "none"  # type: ignore[arg-type]
        raise SettingError(f"{name} is {given!r:.80}; the settings of {kind.__name__} are: {has}", field=name) from None


def format_part(part: Any) -> str:
    """Return the text that `parse_part` reads back: the repr, with NumPy numbers as plain Python numbers."""
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    plain = {name: value.item() for name, value in values.items() if hasattr(value, "item")}
    return repr(replace(part, **plain))


def _example(kinds: Mapping[str, type[Any]]) -> str:
    for kind in kinds.values():
        if fields(kind):
            return repr(kind())
    return next(iter(kinds)) + "()"
