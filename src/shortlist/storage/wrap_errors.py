"""One place where whatever goes wrong below becomes a StorageError."""

from __future__ import annotations

from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from polars.exceptions import PanicException

from shortlist.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 500  # characters


@contextmanager
def storage_errors(what: str, way_out: str = "") -> Iterator[None]:
    """Turn any failure inside the block into a StorageError that opens with `what` and ends with `way_out`."""
    try:
        yield
    except StorageError:
        raise
    except (Exception, PanicException) as error:  # a panic inside polars derives from BaseException
        raise StorageError(f"{what}: {reason(error)}{way_out and '; ' + way_out}") from error


def as_directory(path: object) -> Path:
    """The path of a model's directory; StorageError where it is no path."""
    if not isinstance(path, str | PathLike):
        raise StorageError(f"expected the path of a directory for a model, got {path!r:.80}")
    with storage_errors(f"{str(path)!r:.200} is not the path of a directory"):
        return Path(path)


def reason(error: BaseException) -> str:
    """What an error says, cut where it quotes at length what was found."""
    text = f"{error}".strip() or type(error).__name__
    return text if len(text) <= _MOST else f"{text[:_MOST]}… ({len(text):,} characters in all)"
