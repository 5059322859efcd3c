"""Escape ids and titles so that they are safe to print."""

import re

# Control characters (an id may contain terminal escape codes), and characters that reorder or break lines.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_UNSAFE_IN_LINES = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def shown(value: object, *, lines: bool = False) -> str:
    r"""Return a value as text with control characters escaped. Join tuples with commas. `lines` keeps line ends.

    >>> shown("a\tb"), shown(("ann", 7))
    ('a\\tb', 'ann,7')
    """
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    unsafe = _UNSAFE_IN_LINES if lines else _UNSAFE
    return unsafe.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def counted(counts: dict[str, int]) -> str:
    """Return the counts that are not zero as text.

    >>> counted({"times before 1990": 1200, "events rated below 4": 0})
    'times before 1990 (1,200)'
    """
    return ", ".join(f"{what} ({count:,})" for what, count in counts.items() if count) or "nothing"
