"""The line on standard error that says why a first call takes long."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from numba.core.event import Event, EventStatus

import shortlist as sl
from shortlist import _compile_notes, _numba
from shortlist._compile_notes import note, silenced, silent
from shortlist.recommenders.fit_progress import watched

LINE = "shortlist: compiling kernels"


@pytest.fixture(autouse=True)
def not_silenced(monkeypatch):
    monkeypatch.delenv("SHORTLIST_COMPILE_NOTE")


class Kernel:
    """What an event of Numba's tells of a kernel."""

    def __init__(self, module="shortlist.solvers.eigen"):
        self.py_func = SimpleNamespace(__module__=module)
        self.is_compiling = False

    def event(self, status):
        return Event("numba:compile", status, self.data)

    def start(self, listener):
        self.is_compiling, self.data = True, {"dispatcher": self}
        listener.on_start(self.event(EventStatus.START))

    def end(self, listener):
        listener.on_end(self.event(EventStatus.END))
        self.is_compiling = False


class Told(list):
    """The lines, and whether one more comes."""

    def __init__(self):
        self._came = threading.Semaphore(0)

    def __call__(self, text):
        self.append(text)
        self._came.release()

    def comes(self):
        return self._came.acquire(timeout=30)

    def stays_away(self):
        return not self._came.acquire(timeout=0.1)


@pytest.fixture
def told(monkeypatch):
    lines = Told()
    monkeypatch.setattr(_numba, "note", lines)
    return lines


@pytest.fixture
def listener(told, monkeypatch):
    monkeypatch.setattr(_numba, "_PATIENCE", 0.01)
    return _numba._Note()


def test_it_comes_while_the_kernel_is_still_compiled(listener, told):
    kernel = Kernel()
    kernel.start(listener)
    assert told.comes()
    kernel.end(listener)
    assert told == ["compiling kernels, first use only"]


def test_it_does_not_promise_what_cannot_be_kept(listener, told, monkeypatch):
    monkeypatch.setattr(_numba, "writable", lambda: None)
    Kernel().start(listener)
    assert told.comes()
    assert told == ["compiling kernels"]


def test_quick_ones_say_nothing_until_they_add_up(listener, told, monkeypatch):
    monkeypatch.setattr(_numba, "_PATIENCE", 1e9)
    kernel = Kernel()
    kernel.start(listener)
    kernel.end(listener)
    assert told.stays_away()
    listener._spent = 1e9
    kernel.start(listener)
    assert told.comes()


def test_once_for_each_stretch(listener, told, monkeypatch):
    kernel, inner = Kernel(), Kernel()
    for _ in range(3):
        kernel.start(listener)
        inner.start(listener)  # compiled for the other one
        if not told:
            assert told.comes()
        inner.end(listener)
        kernel.end(listener)
    assert told.stays_away()
    monkeypatch.setattr(_numba, "_GAP", -1.0)  # long after
    kernel.start(listener)
    assert told.comes()
    assert len(told) == 2


@pytest.mark.parametrize("module", ["numpy_user.kernels", None])
def test_kernels_of_others_are_their_own_affair(listener, told, module):
    Kernel(module).start(listener)
    assert told.stays_away()


def test_a_missed_end_does_not_hide_the_next_one(listener, told):
    kernel = Kernel()
    kernel.start(listener)
    assert told.comes()
    kernel.is_compiling = False
    listener._ended = -1e9
    Kernel().start(listener)
    assert told.comes()


def test_a_forked_child_begins_anew(listener, told):
    with listener._lock:  # of a thread that the child does not have
        Kernel().start(listener)
        assert told.stays_away()
        listener._reset()
    Kernel().start(listener)
    assert told.comes()
    assert len(told) == 1


def test_no_thread_can_be_started(listener, told, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", refuse)
    kernel = Kernel()
    kernel.start(listener)
    kernel.end(listener)


@pytest.mark.parametrize("how", ["variable", "block"])
def test_it_can_be_silenced(listener, told, monkeypatch, how):
    if how == "variable":
        monkeypatch.setenv("SHORTLIST_COMPILE_NOTE", "0")
        Kernel().start(listener)
    else:
        with silent():
            Kernel().start(listener)
    assert told.stays_away()
    assert silenced() == (how == "variable")


def test_the_outermost_block_decides():
    with silent(False), silent():
        assert not silenced()
    with silent():
        with silent(False):
            assert silenced()
        assert silenced()
    assert not silenced()


def test_progress_says_whether():
    for progress, expected in ((False, True), (True, False), (None, False)):
        with watched("x", [], progress):
            assert silenced() is expected
    events = sl.Interactions.from_frame({"user": [1, 1, 2], "item": [1, 2, 1]}, context="user", item="item")
    heard = []
    sl.IALS(dim=2, epochs=1).fit(events, callbacks=lambda _: heard.append(silenced()), progress=False)
    sl.IALS(dim=2, epochs=1).fit(events, callbacks=lambda _: heard.append(silenced()))
    assert heard == [True, False]


def test_no_stream_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    note("x")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    note("x")
    _compile_notes._in_child()
    with silent():
        assert silenced()


SLOW = """
import sys, time
from shortlist import _numba
_numba._PATIENCE = 0.0
from shortlist._numba import kernel
from shortlist._random import mixed
import numpy as np
sys.stdout.write("result\\n")
mixed(np.uint64(1))
time.sleep(0.2)
"""


def run(code, folder, **more):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), **more}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
    )


def test_a_process_says_it_once_and_not_when_it_loads(tmp_path):
    first, second = run(SLOW, tmp_path), run(SLOW, tmp_path)
    assert first.stderr == f"{LINE}, first use only\n"
    assert (first.stdout, second.stdout, second.stderr) == ("result\n", "result\n", "")
    assert run(SLOW, tmp_path / "other", SHORTLIST_COMPILE_NOTE="0").stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="terminals")
def test_it_stands_above_a_progress_bar():
    import pty

    code = (
        "from shortlist._compile_notes import note\nfrom shortlist._progress import steps\n"
        "with steps('fitting', 'items', None) as step:\n"
        "    step(1, 4); note('compiling kernels'); step(2, 4)\n"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    ):
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 4096):
                shown += chunk
        except OSError:  # what Linux says at the end
            pass
    os.close(ours)
    before, _, after = shown.decode().partition(LINE)
    assert before.endswith(("\r\x1b[2K", "\x1b[2K\r", "\x1b[2K"))  # the bar is wiped off its line
    assert after.startswith("\r\n")
    assert "fitting" in after  # and drawn again below
