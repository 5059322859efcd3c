"""A clock that stops while Numba compiles.

Numba compiles a kernel at its first call and caches it on disk, so the first fit on a fresh machine takes a minute
longer than later ones. All time measurements of work read this clock, so that compilation does not count.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from numba.core.event import Event, Listener, register


class Compiled(NamedTuple):
    """What this process has compiled so far."""

    kernels: int  # of Shortlist only
    seconds: float
    cpu_seconds: float


class _Compilation(Listener):
    """Total time spent compiling. Numba compiles in one thread at a time; compilations may be nested."""

    def __init__(self) -> None:
        # Seconds of all finished compilations; event data and start time of the running one.
        # A single tuple, so that other threads always read consistent values.
        self._state: tuple[float, dict[str, object] | None, float] = (0.0, None, 0.0)
        self.kernels, self.cpu_seconds = 0, 0.0
        self._cpu_start = 0.0

    def on_start(self, event: Event) -> None:
        """Start counting, unless this compilation is nested in another one."""
        seconds, running, _ = self._state
        self.kernels += is_ours(event.data)
        if running is None or not _is_compiling(running):
            self._cpu_start = time.process_time()
            self._state = (seconds, event.data, time.perf_counter())

    def on_end(self, event: Event) -> None:
        """Stop counting when the outermost compilation ends."""
        seconds, running, start = self._state
        if running is event.data:
            self.cpu_seconds += time.process_time() - self._cpu_start
            self._state = (seconds + time.perf_counter() - start, None, 0.0)

    def until(self, now: float) -> float:
        """Return the seconds spent compiling until `now`, a value of `time.perf_counter`."""
        seconds, running, start = self._state
        if running is None or not _is_compiling(running):
            return seconds
        return seconds + max(0.0, now - start)


def is_ours(event_data: dict[str, object]) -> bool:
    """Return whether an event of Numba is about a kernel of Shortlist."""
    return str(event_data["dispatcher"].py_func.__module__).startswith("shortlist.")  # type: ignore[attr-defined]


def _is_compiling(event_data: dict[str, object]) -> bool:
    """Return whether the compilation is still running; Ctrl-C can suppress the event that marks its end."""
    return bool(event_data["dispatcher"].is_compiling)  # type: ignore[attr-defined]


_COMPILATION = _Compilation()
register("numba:compile", _COMPILATION)  # type: ignore[no-untyped-call]


def working_seconds() -> float:
    """Return the time in seconds, like `time.perf_counter`, minus the time in which any thread compiled.

    Only differences between two readings are meaningful. If one thread compiles while another one works, the time of
    the working thread is underestimated; in a fit, all threads wait for the compiler. Loading a kernel from disk takes
    milliseconds and counts as work. So does compilation by PyTorch for a GPU.
    """
    now = time.perf_counter()
    return now - _COMPILATION.until(now)


def compiled() -> Compiled:
    """Return how many kernels this process has compiled, and the time it took."""
    seconds = _COMPILATION.until(time.perf_counter())
    return Compiled(_COMPILATION.kernels, seconds, _COMPILATION.cpu_seconds)
