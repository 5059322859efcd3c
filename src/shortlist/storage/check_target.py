"""Early check whether a model can be saved to a path."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from shortlist.errors import StorageError


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise `StorageError` unless a directory can be created at this path, or in it if it exists.

    The check creates the missing directories and removes them again.
    """
    target = Path(os.path.abspath(path))
    created: list[Path] = []
    try:
        trial = target / f".{os.getpid()}.tmp" if os.path.lexists(target) else target
        for directory in [*reversed(trial.parents), trial]:
            if not directory.exists():
                os.mkdir(directory)
                created.append(directory)
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(
            f"cannot save to '{path}': {reason}", code="not-writable", field="path", hint="choose another directory"
        ) from error
    finally:
        for directory in reversed(created):
            with suppress(OSError):
                directory.rmdir()
