"""Messages that name arguments, so that each interface can word them its own way.

The library says `pass on_bad='drop'`, the command line `pass --on-bad drop`. Both come from the same message. What a
user wrote, such as an id or a path, is never changed, even if it looks like an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from string import Formatter


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument in a message. `value` is Python code, or empty if any value may follow."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words about Python in a message, with a name by which another interface finds its own words."""

    name: str
    python: str

    def __str__(self) -> str:
        return self.python


class Message(str):
    """A string that knows which of its parts are arguments and phrases.

    In the template, `{name}` is the argument of that name with the value given by keyword; `...` stands for any value.
    `{}` is the next positional value, with conversion and format as in `str.format`. An `Argument`, a `Phrase`, a
    `Message` or the text of an error stays structured there.

    >>> Message("pass {on_bad} to drop those {}", "rows", on_bad="drop")
    "pass on_bad='drop' to drop those rows"
    """

    __slots__ = ("parts",)
    parts: tuple[str | Argument | Phrase, ...]

    def __new__(cls, template: str, /, *values: object, **arguments: object) -> Message:
        """Fill the template."""
        parts: list[object] = []
        positional = iter(values)
        for literal, name, spec, conversion in Formatter().parse(template):
            parts.append(literal)
            if name:
                parts.append(_argument(name, arguments[name], spec or ""))
            elif name is not None:
                parts.append(_formatted(next(positional), spec or "", conversion))
        return cls.join_parts(parts)

    @classmethod
    def join_parts(cls, parts: Iterable[object]) -> Message:
        """Return the parts one after the other, none of them read as a template."""
        flat: list[str | Argument | Phrase] = []
        for part in parts:
            if isinstance(part, Message):
                flat += part.parts
            else:
                flat.append(part if isinstance(part, Argument | Phrase) else str(part))
        text = super().__new__(cls, "".join(map(str, flat)))
        text.parts = tuple(flat)
        return text

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).join_parts, (self.parts,)


def render(text: str, word: Callable[[Argument | Phrase], str]) -> str:
    """Return the text with its arguments and phrases in the words of another interface; plain strings are unchanged."""
    if not isinstance(text, Message):
        return text
    return "".join(part if isinstance(part, str) else word(part) for part in text.parts)


def with_hint(message: str, hint: str | None) -> str:
    """Return the message and the way out as one text: the hint is a sentence if it begins with a capital letter.

    >>> with_hint("test is 2", "pass test=0.1"), with_hint("'x' is null", "Fix the data")
    ('test is 2; pass test=0.1', "'x' is null. Fix the data")
    >>> with_hint("did you mean 'dim'?", "Other names end with '_'")
    "did you mean 'dim'? Other names end with '_'"
    """
    if not hint:
        return message
    end = "" if message.endswith((".", "?")) else "."
    return Message.join_parts([message, f"{end} " if hint[0].isupper() else "; ", hint])


def _argument(name: str, value: object, spec: str) -> Argument:
    return Argument(name, "" if value is ... else format(repr(value), spec))


def _formatted(value: object, spec: str, conversion: str | None) -> object:
    text = value.args[0] if isinstance(value, Exception) and value.args else value
    if isinstance(text, Argument | Phrase | Message):
        return text
    return format(repr(value) if conversion == "r" else value, spec)
