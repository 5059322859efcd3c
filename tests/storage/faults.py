"""Something happens at the k-th call that changes the disk."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS = ("open", "write", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir")


@contextmanager
def at_call(happening: Callable[[int, str, tuple[Any, ...]], None]) -> Iterator[list[str]]:
    """Tell `happening` of each call before it is made: its index, name and arguments. The list names those made."""
    made: list[str] = []
    originals = {name: getattr(os, name) for name in CALLS}

    def watched(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            made.append(name)
            happening(len(made) - 1, name, args)
            return originals[name](*args, **kwargs)

        return call

    for name in CALLS:
        setattr(os, name, watched(name))
    try:
        yield made
    finally:
        for name, original in originals.items():
            setattr(os, name, original)
