"""Signals are taken between kernels: never inside compilation, and never while threads are inside kernels."""

from __future__ import annotations

import importlib.util
import signal
import threading
from contextlib import suppress

import numpy as np
import pytest
from numba.core import event

from interrupts import uncached_kernel
from shortlist._signals import HeldSignals, InterruptedWork


class Raised(BaseException):
    pass


def raising(*_):
    raise Raised


@pytest.fixture
def sigint():
    """Set the handler of SIGINT; pytest's own comes back afterwards."""
    before = signal.getsignal(signal.SIGINT)
    yield lambda handler: signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGINT, before)


class Interrupting(event.Listener):
    """Interrupts at the event of a given number, twice, and counts how many events come after that."""

    def __init__(self, number=0):
        self.number, self.before, self.after = number, 0, 0

    def on_start(self, _):
        self.before += 1
        if self.before - 1 == self.number:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            self.after = 1
        elif self.after:
            self.after += 1

    def on_end(self, _):
        pass


@pytest.mark.parametrize(
    ("kind", "number"),
    [("numba:compiler_lock", 0), ("numba:run_pass", 0), ("numba:run_pass", 12), ("numba:llvm_lock", 0)],
)
def test_an_interrupt_ends_compilation_between_two_passes(kind, number, sigint):
    sigint(signal.default_int_handler)
    compiled, listener = uncached_kernel(), Interrupting(number)
    with event.install_listener(kind, listener), pytest.raises(KeyboardInterrupt):
        compiled(np.ones(3))
    assert listener.after, "the interrupt came inside a pass"
    assert listener.after == 1 or kind != "numba:run_pass"
    assert not compiled.signatures
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert compiled(np.ones(3)) == 3


def test_an_interrupt_waits_until_a_kernel_is_loaded_from_the_cache(tmp_path, sigint):
    path = tmp_path / "kernels.py"
    path.write_text("from shortlist._numba import kernel\n\n@kernel\ndef last(values):\n    return values[-1]\n")

    def loaded():
        spec = importlib.util.spec_from_file_location("kernels", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.last

    assert loaded()(np.ones(3)) == 1
    again = loaded()
    load = again._cache.load_overload

    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        return load(*args)

    again._cache.load_overload = interrupted
    sigint(signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        again(np.ones(3))
    assert again.stats.cache_hits.total() == 1
    assert again(np.ones(3)) == 1


def test_the_first_error_of_a_handler_is_raised_at_the_end(sigint):
    sigint(raising)
    with pytest.raises(Raised), HeldSignals() as held:  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        first = held.error
        assert isinstance(first, Raised)
        signal.raise_signal(signal.SIGINT)
        assert held.error is first
    assert signal.getsignal(signal.SIGINT) is raising


def test_an_inner_block_ends_early_and_the_outer_one_gets_the_error(sigint):
    sigint(raising)
    with pytest.raises(Raised), HeldSignals() as outer:  # noqa: PT012
        with pytest.raises(InterruptedWork), HeldSignals() as inner:  # noqa: PT012
            signal.raise_signal(signal.SIGINT)
            assert isinstance(inner.error, Raised)
        assert outer.error is inner.error


def test_a_thread_that_works_for_a_block_ends_early(sigint):
    sigint(raising)
    ends = []

    def work(held):
        if held:
            held.join()
        with HeldSignals() as inner:
            ends.append(inner.error)
        ends.append("done")

    def run(held=None):
        thread = threading.Thread(target=ignoring_interrupts, args=(work, held))
        thread.start()
        thread.join()

    with pytest.raises(Raised), HeldSignals() as held:  # noqa: PT012
        run(held)
        assert ends == [None, "done"]
        signal.raise_signal(signal.SIGINT)
        ends.clear()
        run(held)
        assert ends == [held.error]
        ends.clear()
        run()  # which works for somebody else
        assert ends == [None, "done"]


def ignoring_interrupts(work, held):
    with suppress(InterruptedWork):
        work(held)


def test_the_error_of_the_work_is_told_too(sigint):
    sigint(raising)
    with pytest.raises(Raised) as caught, HeldSignals():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        raise ValueError("of the work")
    assert repr(caught.value.__context__) == "ValueError('of the work')"


def test_a_handler_that_raises_nothing_runs_at_once(sigint):
    runs = []
    sigint(lambda *_: runs.append(1))
    with HeldSignals() as held:
        signal.raise_signal(signal.SIGINT)
        assert runs == [1]
        signal.raise_signal(signal.SIGINT)
    assert runs == [1, 1]
    assert held.error is None


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_signal_that_is_ignored_or_left_to_the_system_stays_so(handler, sigint):
    sigint(handler)
    with HeldSignals():
        assert signal.getsignal(signal.SIGINT) == handler
    assert signal.getsignal(signal.SIGINT) == handler


def test_a_handler_that_raises_on_the_way_in_or_out_leaves_none_behind(sigint, monkeypatch):
    """SIGTERM comes while SIGINT is held already, or is still held."""
    sigint(raising)
    before = signal.signal(signal.SIGTERM, raising)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(signal, "getsignal", terminated(signal.getsignal))
            with pytest.raises(Raised), HeldSignals():
                raise AssertionError("the signal came before")
        assert signal.getsignal(signal.SIGINT) is raising

        with monkeypatch.context() as patch, pytest.raises(Raised), HeldSignals():
            patch.setattr(signal, "signal", interrupted(signal.signal))
        assert signal.getsignal(signal.SIGINT) is raising
        with pytest.raises(Raised):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def terminated(getsignal):
    def look(number):
        if number == signal.SIGTERM:
            signal.raise_signal(number)
        return getsignal(number)

    return look


def interrupted(set_handler):
    def set_and_interrupt(number, handler):
        set_handler(number, handler)
        signal.raise_signal(signal.SIGINT)

    return set_and_interrupt


def test_other_threads_hold_nothing(sigint):
    sigint(raising)
    handlers = []

    def work():
        with HeldSignals():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [raising]
