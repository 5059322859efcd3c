"""Delayed exceptions of signal handlers: a handler runs at once, but its exception waits until work can stop safely.

Python runs signal handlers between any two bytecodes of the main thread, so Ctrl-C can raise `KeyboardInterrupt`
anywhere. In Numba's compiler, a callback may swallow it, or LLVM may keep a half-built module. Between taking a lock
and entering the `with` block that releases it, it leaves the lock taken forever.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGBREAK", "SIGTERM", "SIGALRM")  # Ctrl-C, service stop, timeouts
    if hasattr(signal, name)
)
_here = threading.local()  # .held: the HeldSignals block that this thread works in


class InterruptedWork(BaseException):
    """Raised to end work early after a signal. `HeldSignals` replaces it by the exception of the signal handler."""


class HeldSignals:
    """A `with` block that delays the first exception of a signal handler until the end of the block.

    `error` is that exception; work inside the block can check it to end early. Handlers that raise nothing are not
    affected. Only the main thread runs handlers; worker threads call `join` to take part in its block. A nested block
    raises `InterruptedWork` at its end, and the outermost block raises the exception itself. Each object is used once.
    """

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._outer: HeldSignals | None = None
        self._holding = True
        self._handlers: dict[int, Any] = {}

    @property
    def error(self) -> BaseException | None:
        return self._error if self._outer is None else self._outer.error

    def join(self) -> None:
        """Make this worker thread part of the block, so that it can end early too."""
        _here.held = self

    def __enter__(self) -> HeldSignals:
        self._outer = getattr(_here, "held", None)
        if self._outer is None and threading.current_thread() is threading.main_thread():
            self._install()
        _here.held = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _here.held = self._outer
        self._restore()
        if self._error is not None:
            raise self._error.with_traceback(None) from (None if isinstance(error, InterruptedWork) else error)
        if error is None:
            stop_if_interrupted()

    def _install(self) -> None:
        try:
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):  # not the system default, not ignored, not a handler in C
                    self._handlers[number] = handler
                    signal.signal(number, self._handle)
        except BaseException:  # from a handler that is not replaced yet
            self._restore()
            raise

    def _restore(self) -> None:
        try:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
        finally:  # a restored handler may raise before the rest is restored; stop holding signals in any case
            self._holding = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handlers[number](number, frame)
        except BaseException as error:
            if not self._holding:
                raise
            if self._error is None:
                self._error = error


def stop_if_interrupted() -> None:
    """Raise `InterruptedWork` if a signal has interrupted the `HeldSignals` block of this thread."""
    held: HeldSignals | None = getattr(_here, "held", None)
    if held is not None and held.error is not None:
        raise InterruptedWork
