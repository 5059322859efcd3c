"""Settings that are made of parts, such as an objective or a sampler: small frozen dataclasses, or their text.

The text of a part is its repr, how it is made: `Popularity(beta=0.5, exclude='history')`. It goes into files and
command lines, and is read back here.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from shortlist._renamed import new_part
from shortlist.errors import SettingError

T = TypeVar("T")
_LONGEST = 1000  # characters of a text; parsing more may take any time and depth


def part_of(name: str, given: Any, kinds: Mapping[str, type[T]]) -> T:
    """The part that is given, as an object or as text. Nothing in the text is executed.

    Args:
        name: the setting, for messages.
        given: one of the kinds, or text such as `"Popularity(beta=0.5)"`, `"Popularity(0.5)"` or `"Popularity"`.
        kinds: the parts that fit there, by their names.
    """
    if isinstance(given, tuple(kinds.values())):
        return cast("T", given)
    expected = f"expected one of {', '.join(kinds)}, as an object or as text such as {_example(kinds)!r}"
    if not isinstance(given, str) or len(given) > _LONGEST:
        raise SettingError(f"{name} is {given!r:.80}; {expected}")
    try:
        tree = ast.parse(given.strip(), mode="eval").body
        call = tree if isinstance(tree, ast.Call) else ast.Call(tree, [], [])
        if not isinstance(call.func, ast.Name) or any(one.arg is None for one in call.keywords):
            raise ValueError
        values = [ast.literal_eval(one) for one in call.args]
        named = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        if len(named) < len(call.keywords):
            raise ValueError
    except (TypeError, ValueError, SyntaxError, RecursionError, MemoryError):
        raise SettingError(f"{name} is {given!r:.80}; {expected}") from None
    known = {kind.lower(): kind for kind in kinds}
    called = new_part(call.func.id).lower()
    if called not in known:
        near = difflib.get_close_matches(called, list(known), 1)
        hint = f"did you mean {known[near[0]]}? " if near else ""
        raise SettingError(f"{name} is {given!r:.80}; {hint}{expected}")
    kind = kinds[known[called]]
    try:
        return kind(*values, **named)
    except TypeError:
        has = ", ".join(one.name for one in fields(kind)) or "none"  # type: ignore[arg-type]
        raise SettingError(f"{name} is {given!r:.80}; the settings of {kind.__name__} are: {has}") from None


def text_of(part: Any) -> str:
    """The text that `part_of` reads back: the repr, with numbers of NumPy as plain ones."""
    values = {one.name: getattr(part, one.name) for one in fields(part)}
    plain = {name: value.item() for name, value in values.items() if hasattr(value, "item")}
    return repr(replace(part, **plain))


def _example(kinds: Mapping[str, type[Any]]) -> str:
    for kind in kinds.values():
        if fields(kind):
            return repr(kind())
    return next(iter(kinds)) + "()"
