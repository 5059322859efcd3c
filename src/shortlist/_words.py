"""Numbers with their nouns, for messages."""


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
