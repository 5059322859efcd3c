"""Signals: handlers run at once, but what they raise waits for a moment at which work can be cut off.

Python runs a signal's handler between any two bytecodes of the main thread, so Ctrl-C raises `KeyboardInterrupt`
anywhere: inside Numba's compiler, where a callback swallows it or LLVM keeps a half-built module; or just after a lock
was taken and before the `with` that would release it, and then a thread waits for that lock for ever.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGBREAK", "SIGTERM", "SIGALRM")  # Ctrl-C, a service that stops, and timeouts
    if hasattr(signal, name)
)
_here = threading.local()  # .held: what holds signals back for the work of this thread


class InterruptedWork(BaseException):
    """Work ends early because of a signal. Where the signal is held, its own exception replaces this one."""


class HeldSignals:
    """Hold back the first exception that a signal handler raises inside the `with` block, and raise it at its end.

    `error` is that exception, so that the work can end early. Handlers that raise nothing work as always. Only the main
    thread runs handlers; threads that work for it `join` its block. A block inside another one raises `InterruptedWork`
    at its end, and the outer one the exception itself. An object serves once.
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
        """Let this thread, which works for the block, end early too."""
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
                if callable(handler):  # not the default of the system, not ignored, and not a handler in C
                    self._handlers[number] = handler
                    signal.signal(number, self._handle)
        except BaseException:  # from a handler that was not replaced yet
            self._restore()
            raise

    def _restore(self) -> None:
        try:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
        finally:  # a handler that is back may raise before the others are: those no longer hold anything
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
    """Raise `InterruptedWork` where a signal has interrupted the work that this thread does, or works for."""
    held: HeldSignals | None = getattr(_here, "held", None)
    if held is not None and held.error is not None:
        raise InterruptedWork
