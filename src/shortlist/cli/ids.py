"""Ids as they are typed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shortlist.cli.options import Unknown
from shortlist.errors import DataError, UnknownIdError

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
        content = Path(text[1:]).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{text}: the file {text[1:]!r} cannot be read ({reason}); an id that begins with @ "
            "must stand in such a file, one id a line"
        ) from error
    return [line for line in content.replace("\r\n", "\n").split("\n") if line]


def parsed(vocabulary: "Vocabulary", texts: Sequence[str], what: str, unknown: Unknown) -> "tuple[list[Id], list[str]]":
    """The known ids among these texts, and the others as they were typed; those are an error, unless to be skipped."""
    if unknown is Unknown.RAISE:
        ids = [vocabulary.parse(text) for text in texts]
        vocabulary.encode(ids, what=what)
        return ids, []
    known, skipped = [], []
    for text in texts:
        try:
            one = vocabulary.parse(text)
        except UnknownIdError:
            one = None
        if one in vocabulary:
            known.append(one)
        else:
            skipped.append(text)
    return known, skipped
