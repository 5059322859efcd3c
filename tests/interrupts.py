"""Ctrl-C that comes while threads work."""

from __future__ import annotations

import signal
import threading
import time

from numba.core.caching import NullCache

from shortlist._numba import kernel


class Interrupts:
    """While the `with` block runs, `send` interrupts the main thread twice, and finds out whether that leaves."""

    def __init__(self) -> None:
        self.left_early = False
        self.sent = threading.Event()
        self._handled, self._left = threading.Semaphore(0), threading.Event()

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        assert self.sent.wait(30)
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, *_: object) -> None:
        self._handled.release()
        if not self._left.is_set():
            raise KeyboardInterrupt

    def send(self) -> None:
        """Call this once, in the thread that works."""
        for _ in range(2):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            assert self._handled.acquire(timeout=30)
            time.sleep(0.05)  # for the main thread to come to where it waits
        self.left_early = self._left.wait(0.2)
        self.sent.set()


def uncached_kernel():
    """A kernel that is compiled anew; it returns the sum of an array."""

    def total(values):
        return values.sum()

    compiled = kernel(total)
    compiled._cache = NullCache()
    return compiled
