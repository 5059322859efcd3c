"""A clock that stands still while Numba compiles.

Numba compiles a kernel when it is first called, and keeps it on disk: on a fresh machine the first fit takes a minute
longer than any later one. Whatever measures work therefore reads this clock.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from numba.core.event import Event, Listener, register


class Compiled(NamedTuple):
    """What this process has compiled so far."""

    kernels: int  # of Shortlist
    seconds: float
    cpu_seconds: float


class _Compilation(Listener):
    """Adds up how long Numba has compiled. Its lock lets one thread compile at a time; kernels may nest."""

    def __init__(self) -> None:
        # The seconds of all compilations that have ended, and the event data and the begin of the one that runs.
        # One tuple, so that other threads always read both as they belong together.
        self._state: tuple[float, dict[str, object] | None, float] = (0.0, None, 0.0)
        self.kernels, self.cpu_seconds = 0, 0.0
        self._cpu_began = 0.0

    def on_start(self, event: Event) -> None:
        """Begin to count, unless this kernel is compiled for another one."""
        seconds, running, _ = self._state
        self.kernels += is_ours(event.data)
        if running is None or not _compiles(running):
            self._cpu_began = time.process_time()
            self._state = (seconds, event.data, time.perf_counter())

    def on_end(self, event: Event) -> None:
        """Stop counting, when the outermost kernel is compiled."""
        seconds, running, began = self._state
        if running is event.data:
            self.cpu_seconds += time.process_time() - self._cpu_began
            self._state = (seconds + time.perf_counter() - began, None, 0.0)

    def until(self, now: float) -> float:
        """Return the seconds of compilation up to this reading of `time.perf_counter`."""
        seconds, running, began = self._state
        if running is None or not _compiles(running):
            return seconds
        return seconds + max(0.0, now - began)


def is_ours(running: dict[str, object]) -> bool:
    """Return whether the kernel that an event of Numba's tells of is one of Shortlist's."""
    return str(running["dispatcher"].py_func.__module__).startswith("shortlist.")  # type: ignore[attr-defined]


def _compiles(running: dict[str, object]) -> bool:
    """Return whether the compilation still runs: a Ctrl-C may have kept its end from us."""
    return bool(running["dispatcher"].is_compiling)  # type: ignore[attr-defined]


_COMPILATION = _Compilation()
register("numba:compile", _COMPILATION)  # type: ignore[no-untyped-call]


def working_seconds() -> float:
    """Read the clock: like `time.perf_counter`, without the seconds in which any thread compiled.

    Only differences mean anything. A thread that waits for what another one compiles stands still with it, as the
    threads of a fit do; the time of one that works meanwhile is told too short. Loading a kernel from the disk takes
    milliseconds and counts. So does what PyTorch compiles for a GPU.
    """
    now = time.perf_counter()
    return now - _COMPILATION.until(now)


def compiled() -> Compiled:
    """Return how many kernels this process has compiled, and how long that took."""
    seconds = _COMPILATION.until(time.perf_counter())
    return Compiled(_COMPILATION.kernels, seconds, _COMPILATION.cpu_seconds)
