"""Protection against hangs of polars after a fork.

A fork does not copy the threads of polars' pool, so a child process that uses the pool waits forever. A fitted model
answers queries without the pool. Operations that need it, such as reading files, check here first.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from shortlist.errors import ShortlistError

_NAME = re.compile(r"polars-\d+")  # the names of polars' pool threads
_TASKS = Path("/proc/self/task")


class _Pool:
    """Whether polars' pool was running at the last fork, and whether this process lost it in a fork."""

    def __init__(self) -> None:
        self.was_running = False
        self.lost = False

    def before_fork(self) -> None:
        self.was_running = "polars" in sys.modules and _pool_is_running()

    def in_child(self) -> None:
        self.lost = self.lost or self.was_running


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pool.before_fork, after_in_child=_pool.in_child)


def polars_threads() -> bool:
    """Return whether polars can use its thread pool in this process."""
    return not _pool.lost


def require_polars_threads(what: str) -> None:
    """Raise an error if polars would hang in this process; `what` names the operation in the message."""
    if _pool.lost:
        raise ShortlistError(
            f"{what} needs the threads of polars, which do not survive a fork, and this process was forked after they "
            "had started",
            code="forked",
            hint="Do this before the fork, or start the process with multiprocessing.get_context('spawn')",
        )


def _pool_is_running() -> bool:
    try:
        tasks = list(_TASKS.iterdir())
    except OSError:  # not Linux: assume that the pool is running
        return True
    return any(_NAME.match(_name_of(task)) for task in tasks)


def _name_of(task: Path) -> str:
    try:
        return task.joinpath("comm").read_text()
    except OSError:  # the thread has just ended; threads of the pool never end
        return ""
