"""Lines on standard error about the compiler, which keeps a first call waiting. Light: nothing is imported for it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

VARIABLE = "SHORTLIST_COMPILE_NOTE"  # 0: no lines

_lock = threading.Lock()
_calls = [0, 0]  # that are inside `silent`; and whether the first of them wanted silence


def silenced() -> bool:
    """Return whether nothing may be written now."""
    return bool(_calls[0] and _calls[1]) or os.environ.get(VARIABLE, "").strip() == "0"


@contextmanager
def silent(wanted: bool = True) -> Iterator[None]:
    """Write no lines inside the `with` block, if that is wanted; whichever thread compiles.

    The outermost block decides: a search that tells how far it is has fits in it that do not.
    """
    _enter(wanted)
    try:
        yield
    finally:
        with _lock:
            _calls[0] -= 1


def note(text: str) -> None:
    """Write a line, above a progress bar if there is one; rich has put itself in the place of `sys.stderr` then."""
    with suppress(Exception):  # closed, or None: not worth an error
        sys.stderr.write(f"shortlist: {text}\n")
        sys.stderr.flush()


def _enter(wanted: bool) -> None:
    with _lock:
        _calls[:] = [_calls[0] + 1, _calls[1] if _calls[0] else int(wanted)]


def _in_child() -> None:
    global _lock  # noqa: PLW0603  (another thread of the parent may have held it)
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
