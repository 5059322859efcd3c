"""Something happens at the k-th call that changes the disk."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Happening: TypeAlias = "Callable[[int, str, tuple[Any, ...]], None]"

# Every function of `os` that changes what is on a disk; `test_nothing_is_missed` sees that a save uses no other way.
CALLS = tuple(
    name
    for name in (
        *("open", "write", "writev", "pwrite", "pwritev", "sendfile", "copy_file_range", "fsync", "fdatasync", "sync"),
        *("mkdir", "rename", "replace", "link", "symlink", "unlink", "remove", "rmdir", "truncate", "ftruncate"),
        *("posix_fallocate", "chmod", "fchmod", "chown", "utime", "mkfifo", "mknod", "setxattr"),
    )
    if hasattr(os, name)
)


def _nothing(index: int, name: str, args: tuple[Any, ...]) -> None:
    pass


@contextmanager
def at_call(happening: Happening = _nothing, after: Happening = _nothing) -> Iterator[list[str]]:
    """Tell `happening` of each call before it is made, and `after` when it has been: its index, name and arguments.

    The list names those made.
    """
    made: list[str] = []
    originals = {name: getattr(os, name) for name in CALLS}

    def watched(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            made.append(name)
            index = len(made) - 1
            happening(index, name, args)
            result = originals[name](*args, **kwargs)
            after(index, name, args)
            return result

        return call

    for name in CALLS:
        setattr(os, name, watched(name))
    try:
        yield made
    finally:
        for name, original in originals.items():
            setattr(os, name, original)
