"""Signals: handlers run at once, but what they raise waits until work that must not be cut off is done.

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


class HeldSignals:
    """Hold back the first exception that a signal handler raises inside the `with` block, and raise it at its end.

    `error` is that exception, so that a loop can end early. Handlers that raise nothing work as always. Outside the
    main thread this does nothing: no handler ever runs there. Of nested blocks the outermost one gets the exception. An
    object serves once.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._holding = True
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> HeldSignals:
        if threading.current_thread() is not threading.main_thread():
            return self
        try:
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):  # not the default of the system, not ignored, and not a handler in C
                    self._handlers[number] = handler
                    signal.signal(number, self._handle)
        except BaseException:  # from a handler that was not replaced yet
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()
        if self.error is not None:
            raise self.error.with_traceback(None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handlers[number](number, frame)
        except BaseException as error:
            if not self._holding:
                raise
            if self.error is None:
                self.error = error

    def _restore(self) -> None:
        try:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
        finally:  # a handler that is back may raise before the others are: those no longer hold anything
            self._holding = False
