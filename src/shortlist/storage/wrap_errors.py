"""Conversion of any error during storage into a `StorageError`."""

from __future__ import annotations

from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from polars.exceptions import PanicException

from shortlist.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_LENGTH = 500  # characters


@contextmanager
def storage_errors(what: str, advice: str = "", code: str | None = None) -> Iterator[None]:
    """Turn any error inside the block into a StorageError that starts with `what` and ends with `advice`.

    `code` is the code of the error.
    """
    try:
        yield
    except StorageError:
        raise
    except (Exception, PanicException) as error:  # polars' PanicException derives from BaseException
        raise StorageError(f"{what}: {reason(error)}", code=code, hint=advice or None) from error


def as_directory(path: object) -> Path:
    """Return the path of a model directory; raise StorageError if it is not a path."""
    if not isinstance(path, str | PathLike):
        raise StorageError(f"expected the path of a directory for a model, got {path!r:.80}")
    with storage_errors(f"{str(path)!r:.200} is not the path of a directory"):
        return Path(path)


def reason(error: BaseException) -> str:
    """Return the message of an error, cut after 500 characters."""
    text = f"{error}".strip() or type(error).__name__
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}… ({len(text):,} characters in total)"
