"""The clock that stands still while Numba compiles."""

from __future__ import annotations

import threading
import time

import numba
import pytest
from numba.core.event import Event, EventStatus, Listener, register, unregister

from shortlist import _clock
from shortlist._clock import working_seconds


@pytest.fixture
def ticks(monkeypatch):
    """A clock of ticks: each reading is one later; compiling takes many readings or none, as the test says."""
    now = [0.0]
    monkeypatch.setattr(_clock.time, "perf_counter", lambda: now[0])
    return now


def test_it_stands_still_while_a_kernel_is_compiled(ticks):
    def outer(x):
        return inner(x) + 1

    inner = numba.njit(lambda x: 2 * x)
    kernel = numba.njit(outer)
    read = []

    class Slow(Listener):
        """Compiling takes ten seconds more each time an event comes."""

        def on_start(self, event):
            ticks[0] += 10
            read.append(working_seconds())

        def on_end(self, event):
            ticks[0] += 10
            read.append(working_seconds())

    slow = Slow()
    register("numba:compile", slow)
    try:
        before = working_seconds()
        ticks[0] += 1
        assert kernel(3) == 7
        ticks[0] += 1
        assert kernel(3) == 7
    finally:
        unregister("numba:compile", slow)
    assert ticks[0] >= 42  # the kernel, and the one that it calls
    # What comes after the end of the last compilation is work again: ten seconds of it here.
    assert working_seconds() - before == pytest.approx(12)
    assert [one - before for one in read[:-1]] == pytest.approx([1] * (len(read) - 1))


def test_other_threads_see_it_stand_still_too():
    kernel = numba.njit(lambda x: x - 1)
    begun, go_on, waited = threading.Event(), threading.Event(), []

    class Waiting(Listener):
        def on_start(self, event):
            begun.set()
            go_on.wait(60)

        def on_end(self, event):
            pass

    waiting = Waiting()
    register("numba:compile", waiting)
    try:
        thread = threading.Thread(target=kernel, args=(1,))
        thread.start()
        assert begun.wait(60)
        first = working_seconds()
        time.sleep(0.01)
        waited.append(working_seconds() - first)
    finally:
        go_on.set()
        thread.join()
        unregister("numba:compile", waiting)
    assert waited == [pytest.approx(0, abs=1e-9)]


def test_a_compilation_whose_end_was_missed_does_not_stop_it(ticks):
    kernel = numba.njit(lambda x: x + 5)
    begun = Event("numba:compile", EventStatus.START, {"dispatcher": kernel})
    _clock._COMPILATION.on_start(begun)
    before = working_seconds()
    ticks[0] += 7
    assert working_seconds() - before == 7
    assert kernel(1) == 6
    ticks[0] += 3
    assert working_seconds() - before == 10
