"""Word the library's messages for the command line: `pass on_bad='drop'` becomes `pass --on-bad drop`."""

import re

from shortlist._wording import Argument, Phrase, render

# Arguments of the library that are options of the same name. Without a value: flags, and values only Python can write.
_OPTIONS = {
    *("unknown", "on_bad", "format", "separator", "aggregate", "repeats", "layout", "min_rating", "test", "fold_in"),
    *("time", "weight"),
}
_BARE_OPTIONS = {"restart", "overwrite", "validation", "history"}
_MODEL_SETTINGS = {"weighting"}
_PHRASES = {
    "by_time": "--split time",
    "leave_last_out": "--split last",
    "same-call": "the same command",
    "named-columns": "name its columns with --context and --item",
    "read-layout": "omit --context and --item, and also --weight, --time, --format and --separator",
    "long-lists": "omit --lists, or use",
    "ignore-column": "write the file without the column ",
}


def in_words(message: str) -> str:
    """Return a message of the library with options in place of arguments. Anything that a user wrote is unchanged.

    >>> from shortlist._wording import Message
    >>> in_words(Message("pass {on_bad} to drop those rows", on_bad="drop"))
    'pass --on-bad drop to drop those rows'
    """
    return render(message, _word)


def _word(part: Argument | Phrase) -> str:
    if isinstance(part, Phrase):
        return _PHRASES.get(part.name, part.python)
    if part.name in _MODEL_SETTINGS:
        return f"--set {part.name}={_plain(part.value)}"
    option = f"--{part.name.replace('_', '-')}"
    if part.name in _BARE_OPTIONS:
        return option
    if part.name in _OPTIONS:
        return f"{option} {_plain(part.value)}" if part.value else option
    return str(part)


def _plain(value: str) -> str:
    """Return a value of Python without its quotes, unless a shell needs them."""
    plain = value.strip("'")
    return plain if re.fullmatch(r"[\w.-]+", plain) else value
