"""Ids as they are typed."""

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

from shortlist.cli.options import Unknown
from shortlist.errors import DataError, SettingError, UnknownIdError

if TYPE_CHECKING:
    from shortlist.data.vocabulary import Id, Vocabulary


def listed(text: str) -> list[str]:
    """The ids in `a,b,c`, or in `@file` with one a line: for ids that hold commas, or many.

    >>> listed("pear,apple"), listed("")
    (['pear', 'apple'], [])
    """
    if not text.startswith("@"):
        return text.split(",") if text else []
    try:
        return [line for _, line in lines_of(text[1:])]
    except DataError as error:
        raise DataError(
            f"{text}: {error}; an id that begins with @ must stand in such a file, one id a line"
        ) from error


def lines_of(path: str) -> list[tuple[int, str]]:
    """The lines of a text file that are not empty, each with its number."""
    try:
        content = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the file {path!r} cannot be read ({getattr(error, 'strerror', None) or error})") from error
    return [(number, line) for number, line in enumerate(content.replace("\r\n", "\n").split("\n"), 1) if line]


def parsed(vocabulary: "Vocabulary", texts: Sequence[str], what: str, unknown: Unknown) -> "tuple[list[Id], list[str]]":
    """The known ids among these texts, and the others as they were typed; those are an error, unless to be skipped."""
    ids = [read_id(vocabulary, text, unknown.value) for text in texts]
    if unknown is Unknown.RAISE:
        vocabulary.encode(ids, what=what)
        return ids, []
    known = [one in vocabulary for one in ids]
    return list(compress(ids, known)), [text for text, found in zip(texts, known) if not found]


def read_id(vocabulary: "Vocabulary", text: str, unknown: str) -> "Id":
    """The id that this text means; `unknown` says what to do with text that cannot be one.

    With "skip" it stays text, which is no id. With "average" a part that cannot be one stays text, so that it counts as
    a part that is not known.
    """
    try:
        return vocabulary.parse(text)
    except UnknownIdError:
        if unknown == "raise":
            raise
        return vocabulary.typed(text.split(",") if vocabulary.is_tuple else [text])
    except SettingError:  # another number of parts
        if unknown != "skip":
            raise
        return text
