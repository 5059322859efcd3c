"""Formatting of counts, durations and settings for messages."""

import difflib
from collections.abc import Iterable, Mapping


def count(n: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, in the singular if the number is 1.

    >>> count(1, "query", "queries"), count(1234, "item")
    ('1 query', '1,234 items')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def n_of(n: int, total: int, noun: str) -> str:
    """Return "n of total nouns" with the verb.

    >>> n_of(1, 200, "row"), n_of(3, 200, "id")
    ('1 of 200 rows is', '3 of 200 ids are')
    """
    return f"{n:,} of {total:,} {noun}s {'is' if n == 1 else 'are'}"


def duration(seconds: float) -> str:
    """Return a time span in days, hours, minutes or seconds: the largest unit that fits at least once.

    >>> duration(30 * 86400), duration(5400), duration(1), duration(0.25)
    ('30 days', '1.5 hours', '1 second', '0.25 seconds')
    """
    units = (("day", 86400), ("hour", 3600), ("minute", 60))
    unit, size = next(((unit, size) for unit, size in units if seconds >= size), ("second", 1))
    number = f"{seconds / size:.4g}"
    return f"{number} {unit}{'' if number == '1' else 's'}"


def format_settings(settings: Mapping[str, object]) -> str:
    """Return settings in the form of keyword arguments.

    >>> format_settings({"dim": 64, "solver": "eigen"})
    "dim=64, solver='eigen'"
    """
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def suggest(name: str, known: Iterable[str]) -> str:
    """Return advice for an unknown name: the known name that is nearest, or all known names.

    >>> suggest("dimm", ["dim", "epochs"]), suggest("xyz", ["dim", "epochs"])
    ("did you mean 'dim'?", 'it has dim, epochs')
    """
    names = list(known)
    near = difflib.get_close_matches(name[:80], names, 1)
    return f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names) or 'no settings'}"


def join_words(words: Iterable[str]) -> str:
    """Join words with commas and a final "and".

    >>> join_words(["dim", "epochs", "seed"]), join_words(["dim"])
    ('dim, epochs and seed', 'dim')
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
