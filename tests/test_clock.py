"""The clock that stands still while Numba compiles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import numba
import pytest
from numba.core.event import Event, EventStatus, Listener, register, unregister

from shortlist import _clock
from shortlist._clock import working_seconds
from shortlist.cli.output import Stopwatch


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


FIT = """
import json, sys, time
import numpy as np
from numba.core.event import Listener, register
import shortlist as sl
from shortlist._clock import compiled

class Spent(Listener):  # the same by Numba's events alone
    depth, seconds = 0, 0.0
    def on_start(self, event):
        self.began = self.began if self.depth else time.perf_counter()
        self.depth += 1
    def on_end(self, event):
        self.depth -= 1
        self.seconds += 0 if self.depth else time.perf_counter() - self.began

rng = np.random.default_rng(0)
frame = {"user": rng.integers(0, 300, 5000), "item": rng.integers(0, 100, 5000)}
events = sl.Interactions.from_frame(frame, context="user", item="item")
events.by_context, events.by_item
spent = Spent()
register("numba:compile", spent)
before = compiled()
began = time.perf_counter()
model = sl.IALS(dim=8, epochs=2).fit(events, progress=False)
wall = time.perf_counter() - began
fit, compiling = sum(one.seconds for one in model.training_), spent.seconds
after = compiled()
began, spent.seconds = time.perf_counter(), 0.0
index = model.index("exact", n=5, progress=False)
took = time.perf_counter() - began
print(json.dumps({
    "wall": wall, "fit": fit, "compiling": compiling, "kernels": after.kernels - before.kernels,
    "clock": after.seconds - before.seconds, "cpu": after.cpu_seconds - before.cpu_seconds,
    "index_wall": took, "index_compiling": spent.seconds,
    "query": index.measured.milliseconds / 1e3 * index.measured.queries, "build": index.measured.build_seconds,
}))
"""


def test_seconds_of_epochs_and_queries_are_not_those_of_the_compiler(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, timeout=600, check=True
    )
    found = json.loads(done.stdout)
    assert found["kernels"] > 0
    assert found["compiling"] > 0
    assert found["fit"] + found["compiling"] <= found["wall"]
    assert found["clock"] == pytest.approx(found["compiling"], rel=0.1)
    assert found["cpu"] > 0
    assert found["index_compiling"] > 0
    assert found["build"] + found["index_compiling"] <= found["index_wall"]


def test_a_stopwatch_stands_still_too(ticks):
    kernel = numba.njit(lambda x: x * 7)

    class Slow(Listener):
        def on_start(self, event):
            ticks[0] += 10

        def on_end(self, event):
            pass

    slow = Slow()
    with Stopwatch() as watch:
        register("numba:compile", slow)
        try:
            assert kernel(2) == 14
        finally:
            unregister("numba:compile", slow)
        ticks[0] += 1
    assert watch.seconds == pytest.approx(1)
