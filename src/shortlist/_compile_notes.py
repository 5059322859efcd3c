"""Notes on standard error that tell the user a first call is waiting for the compiler. Imports nothing heavy."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

VARIABLE = "SHORTLIST_COMPILE_NOTE"  # 0: write no notes

_lock = threading.Lock()
_calls = [0, 0]  # how many `silent` blocks are active; whether the outermost one is silent


def silenced() -> bool:
    """Return whether notes are switched off at the moment."""
    return bool(_calls[0] and _calls[1]) or os.environ.get(VARIABLE, "").strip() == "0"


@contextmanager
def silent(wanted: bool = True) -> Iterator[None]:
    """Write no notes inside the `with` block if `wanted`, whichever thread compiles.

    The outermost block decides. Example: a search that shows progress runs fits that do not.
    """
    _enter(wanted)
    try:
        yield
    finally:
        with _lock:
            _calls[0] -= 1


def note(text: str) -> None:
    """Write a line; it appears above a progress bar if there is one, because rich then replaces `sys.stderr`."""
    with suppress(Exception):  # sys.stderr is closed or None: not worth an error
        sys.stderr.write(f"shortlist: {text}\n")
        sys.stderr.flush()


def _enter(wanted: bool) -> None:
    with _lock:
        _calls[:] = [_calls[0] + 1, _calls[1] if _calls[0] else int(wanted)]


def _in_child() -> None:
    global _lock  # noqa: PLW0603  (another thread of the parent may have held the lock)
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
