"""A lock for what a loaded model computes when it is first used."""

from __future__ import annotations

import os
from threading import RLock

_locks = [RLock()]


def first_use() -> RLock:
    """Return the lock; a forked process has a new one, because the thread that held it may exist in the parent only."""
    return _locks[0]


def _renew() -> None:
    _locks[0] = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
