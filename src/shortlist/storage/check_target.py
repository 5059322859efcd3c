"""Whether a place can be saved to, told before there is anything to save."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from shortlist.errors import StorageError


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a place where no directory can be made, or in one that is there.

    It is tried, by making the directories that are missing and taking them away again.
    """
    place = Path(os.path.abspath(path))
    made: list[Path] = []
    try:
        trial = place / f".{os.getpid()}.tmp" if os.path.lexists(place) else place
        for one in [*reversed(trial.parents), trial]:
            if not one.exists():
                os.mkdir(one)
                made.append(one)
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot save to '{path}': {reason}; name another directory") from error
    finally:
        for one in reversed(made):
            with suppress(OSError):
                one.rmdir()
