"""Lists of known violations, one text file a law. A list may only shrink: a line that is no longer true must go.

A line is some words, such as `shortlist.a shortlist.b`; the last word may be a number. Lines with `#` are comments.
After a rename of modules or classes, `python tests/laws/write_exceptions.py` writes the lists anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "exceptions"
Row = tuple[str, ...]


def read(name: str) -> set[Row]:
    """Return the lines of a list as tuples of words."""
    lines = (FOLDER / f"{name}.txt").read_text().splitlines()
    return {tuple(line.split()) for line in lines if line.strip() and not line.startswith("#")}


def read_counts(name: str) -> dict[Row, int]:
    """Return a list whose lines end in numbers."""
    return {row[:-1]: int(row[-1]) for row in read(name)}


def complaints(name: str, listed: Iterable[Row], actual: Iterable[Row], sentence: str, advice: str) -> list[str]:
    """Return what a test must report: violations that are not listed, and lines that are no longer true.

    `sentence` says in words what a line means: "{0} imports {1}".
    """
    listed, actual = set(listed), set(actual)
    new = [f"new violation: {sentence.format(*row)}. {advice}" for row in sorted(actual - listed)]
    fixed = [
        f"no longer true: {sentence.format(*row)}. Remove the line '{' '.join(row)}' from {FOLDER.name}/{name}.txt."
        for row in sorted(listed - actual)
    ]
    return new + fixed


def count_complaints(
    name: str, listed: Mapping[Row, int], actual: Mapping[Row, int], sentence: str, advice: str
) -> list[str]:
    """Do the same for violations with numbers: a number may neither rise nor stay in the list once it is lower."""
    told = []
    for row in sorted(listed.keys() | actual.keys()):
        limit, number = listed.get(row, 0), actual.get(row, 0)
        said = sentence.format(*row, number=number)
        if number > limit:
            told.append(f"new violation: {said}; the list has {limit or 'no such line'}. {advice}")
        elif number < limit:
            change = (
                f"Write {number} instead of {limit} in" if number else f"Remove the line '{' '.join(row)} {limit}' from"
            )
            told.append(f"better than listed: {said}. {change} {FOLDER.name}/{name}.txt.")
    return told


def check(name: str, actual: Iterable[Row], sentence: str, advice: str) -> None:
    """Fail unless the violations are exactly those of the list."""
    told = complaints(name, read(name), actual, sentence, advice)
    assert not told, "\n".join(told)


def check_counts(name: str, actual: Mapping[Row, int], sentence: str, advice: str) -> None:
    """Fail unless the violations and their numbers are exactly those of the list."""
    told = count_complaints(name, read_counts(name), actual, sentence, advice)
    assert not told, "\n".join(told)
