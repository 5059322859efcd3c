"""Numbers with their nouns and settings with their values, for messages."""

from collections.abc import Iterable, Mapping


def count(n: int, noun: str, plural: str = "") -> str:
    """A number and its noun, in the plural unless there is one.

    >>> count(1, "query", "queries"), count(1234, "item")
    ('1 query', '1,234 items')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """A span of time in the largest unit of which it is at least one.

    >>> duration(30 * 86400), duration(5400), duration(1), duration(0.25)
    ('30 days', '1.5 hours', '1 second', '0.25 seconds')
    """
    units = (("day", 86400), ("hour", 3600), ("minute", 60))
    unit, size = next((one for one in units if seconds >= one[1]), ("second", 1))
    number = f"{seconds / size:.4g}"
    return f"{number} {unit}{'' if number == '1' else 's'}"


def listed(settings: Mapping[str, object]) -> str:
    """Settings as they are written in a call.

    >>> listed({"dim": 64, "solver": "eigen"})
    "dim=64, solver='eigen'"
    """
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def joined(words: Iterable[str]) -> str:
    """Words as a sentence lists them.

    >>> joined(["dim", "epochs", "seed"]), joined(["dim"])
    ('dim, epochs and seed', 'dim')
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
