"""Text that is safe to show, whatever is in an id or a title."""

import re

# Control characters (an id may hold a terminal's escape codes) and what reorders or breaks a line.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_UNSAFE_IN_LINES = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def shown(value: object, *, lines: bool = False) -> str:
    r"""A value as text, control characters escaped (line ends stay with `lines`); a tuple with commas.

    >>> shown("a\tb"), shown(("ann", 7))
    ('a\\tb', 'ann,7')
    """
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    unsafe = _UNSAFE_IN_LINES if lines else _UNSAFE
    return unsafe.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def counted(counts: dict[str, int]) -> str:
    """Counts in words, without those that are zero."""
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "nothing"
