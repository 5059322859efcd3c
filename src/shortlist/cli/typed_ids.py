"""Parse ids from the command line."""

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

from shortlist.cli.options import Unknown
from shortlist.errors import DataError, SettingError, UnknownIdError

if TYPE_CHECKING:
    from shortlist.data.vocabulary import Id, Vocabulary


def listed(text: str) -> list[str]:
    """Return the ids in `a,b,c`, or in `@file` with one id per line (for many ids, or ids with commas).

    >>> listed("pear,apple"), listed("")
    (['pear', 'apple'], [])
    """
    if not text.startswith("@"):
        return text.split(",") if text else []
    try:
        return [line for _, line in lines_of(text[1:])]
    except DataError as error:
        hint = "to pass an id that starts with @, put it into such a file, one id per line"
        raise DataError(f"{text}: {error}", code=error.code, hint=hint) from error


def lines_of(path: str) -> list[tuple[int, str]]:
    """Return the non-empty lines of a text file with their line numbers."""
    try:
        content = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path!r} cannot be read ({getattr(error, 'strerror', None) or error})", code="unreadable-file"
        ) from error
    return [(number, line) for number, line in enumerate(content.replace("\r\n", "\n").split("\n"), 1) if line]


def parsed(vocabulary: "Vocabulary", texts: Sequence[str], what: str, unknown: Unknown) -> "tuple[list[Id], list[str]]":
    """Return the known ids, and the unknown ones as typed. Unknown ids raise an error unless they are skipped."""
    ids = [read_id(vocabulary, text, unknown.value) for text in texts]
    if unknown is Unknown.RAISE:
        vocabulary.encode(ids, what=what)
        return ids, []
    known = [key in vocabulary for key in ids]
    return list(compress(ids, known)), [text for text, is_known in zip(texts, known) if not is_known]


def read_id(vocabulary: "Vocabulary", text: str, unknown: str) -> "Id":
    """Parse an id. `unknown` says how to handle text that is not a valid id.

    With "skip", return the text unchanged; it matches no id. With "average", keep an invalid part of a compound id as
    text, so that it counts as unknown.
    """
    try:
        return vocabulary.parse(text)
    except UnknownIdError:
        if unknown == "raise":
            raise
        return vocabulary.typed(text.split(",") if vocabulary.is_tuple else [text])
    except SettingError:  # wrong number of parts
        if unknown != "skip":
            raise
        return text
