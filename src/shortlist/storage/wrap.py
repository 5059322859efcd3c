"""One place where whatever goes wrong below becomes a StorageError."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from polars.exceptions import PanicException

from shortlist.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def storage_errors(what: str, way_out: str = "") -> Iterator[None]:
    """Turn any failure inside the block into a StorageError that opens with `what` and ends with `way_out`."""
    try:
        yield
    except StorageError:
        raise
    except (Exception, PanicException) as error:  # a panic inside polars derives from BaseException
        reason = f"{error}".strip() or type(error).__name__
        raise StorageError(f"{what}: {reason}{way_out and '; ' + way_out}") from error
