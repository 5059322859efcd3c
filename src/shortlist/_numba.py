"""Decorators that compile kernels with Numba."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeAlias, TypeVar, cast

import numba
from numba.core import event, types

from shortlist._clock import is_ours
from shortlist._compile_notes import note, silenced
from shortlist._kernel_cache import KernelCache, writable
from shortlist._signals import HeldSignals, stop_if_interrupted

F = TypeVar("F", bound=Callable[..., Any])
_FAST = {"reassoc", "contract", "nsz", "arcp"}  # without nnan and ninf: infinities mark excluded items
_LEAN = {"_nrt": False, "forceinline": True}
Static: TypeAlias = tuple[int, ...]


def kernel(function: F) -> F:
    """Compile a function with Numba: serial, without the GIL, cached on disk.

    Kernels never use `prange`. `shortlist._threads` runs them in Python threads instead: this balances the work
    dynamically, and is safe for calls from several threads and after a fork.
    """
    return _compiled(function, fastmath=False)


def fast_kernel(function: F) -> F:
    """Compile as `kernel` does, with reassociated sums: for dot products and sums whose last bits do not matter."""
    return _compiled(function, fastmath=_FAST)


def lean_kernel(function: F) -> F:
    """Compile as `kernel` does, without reference counts and always inlined: for calls in innermost loops.

    When a kernel passes arrays to another one, it counts references: one atomic addition per array and call. This
    takes about 100 ns, and far more if several threads use the same arrays. The counts are not needed because the
    caller owns the arrays. A function without reference counts must not create arrays; views are fine.
    """
    return _compiled(function, fastmath=False, **_LEAN)


def fast_lean_kernel(function: F) -> F:
    """Compile as `lean_kernel` does, with reassociated sums as in `fast_kernel`."""
    return _compiled(function, fastmath=_FAST, **_LEAN)


def bare_kernel(function: F) -> F:
    """Compile as `kernel` does, without reference counts; LLVM decides about inlining."""
    return _compiled(function, fastmath=False, _nrt=False)


def fast_bare_kernel(function: F) -> F:
    """Compile as `bare_kernel` does, with reassociated sums as in `fast_kernel`."""
    return _compiled(function, fastmath=_FAST, _nrt=False)


def static(number: int) -> Static:
    """Return a number as a compile-time constant: a tuple of this length, because the length is part of its type.

    A kernel tests `len(argument) == NUMBER`, and Numba does not compile the branches that are ruled out. This works for
    arguments only, not for fields of arguments. Arguments that may be None work in the same way: `if argument is None`.
    """
    return (0,) * number


def _compiled(function: F, **options: Any) -> F:
    options |= {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    compiled = numba.njit(**options)(function)
    if hasattr(compiled, "_compile_for_args"):  # not under NUMBA_DISABLE_JIT
        with suppress(OSError):  # no source file: typed at a prompt, or in an archive
            compiled._cache = KernelCache(function)
        compiled._compile_for_args = _uninterrupted(compiled._compile_for_args)
        inner = _ForKernels(function, options)
        compiled.get_call_template, compiled.get_overload = inner.get_call_template, inner.get_overload
    return cast("F", compiled)


class _ForKernels:
    """The version of a kernel that other kernels call: without the wrapper for Python calls, which is slow to compile.

    Numba uses only these two methods of a kernel that is called in another kernel.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function, self._options = function, options

    @cached_property
    def _compiled(self) -> Any:
        options: dict[str, Any] = {**self._options, "no_cpython_wrapper": True}
        compiled: Any = numba.njit(**options)(self._function)
        with suppress(OSError):
            compiled._cache = KernelCache(self._function, for_kernels=True)
        return compiled

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile the version for a call, treating constants as ordinary numbers.

        Otherwise Numba would compile the kernel again for each constant argument, and for each variable that is
        initialised with a constant.
        """
        plain: Callable[[Any], Any] = types.unliteral
        return self._compiled.get_call_template(
            tuple(map(plain, args)), {name: plain(kind) for name, kind in kws.items()}
        )

    def get_overload(self, signature: Any) -> Any:
        """Return the compiled version for a call."""
        return self._compiled.get_overload(signature)


def _uninterrupted(compile_for_args: Callable[..., Any]) -> Callable[..., Any]:
    """Return Numba's function for the first call with new types, with signals held back while it compiles or loads.

    Later calls reach the machine code without any Python code, so they are not slowed down.
    """

    def compile_uninterrupted(*args: Any, **kwargs: Any) -> Any:
        with HeldSignals(), _UNCOLLECTED:
            return compile_for_args(*args, **kwargs)

    return compile_uninterrupted


class _Uncollected:
    """A `with` block that switches the garbage collector off during compilation, where it takes 1/7 of the time.

    Several threads may be inside at once. The last one to leave restores the setting that the first one found.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._was_on = threading.Lock(), 0, False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Replace the lock after a fork: its owner may not exist in the child."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._was_on:
                gc.enable()


_UNCOLLECTED = _Uncollected()


class _BetweenPasses(event.Listener):
    """Listener that ends an interrupted compilation between two compiler passes, where Numba expects errors.

    Without it Ctrl-C could take a minute: a large kernel compiles all kernels that it calls, one after the other.
    """

    def on_start(self, event: event.Event) -> None:
        stop_if_interrupted()

    def on_end(self, event: event.Event) -> None:
        """Do nothing: Numba also sends this event after a pass that failed."""


event.register("numba:run_pass", _BetweenPasses())  # type: ignore[no-untyped-call]


class _Note(event.Listener):
    """Listener that tells the user to wait for the compiler, once per waiting period.

    Compilations less than `_GAP` seconds apart belong to one period. The note is written when the compilations of the
    period have taken `_PATIENCE` seconds in total. A timer writes it, because one compiler pass can take many seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, Any] | None = None  # the outermost compilation; None if notes are off
        self._start, self._end, self._spent = 0.0, -_GAP, 0.0
        self._noted = False
        self._timer: threading.Timer | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Reset after a fork: the compilation and the timer exist in the parent only."""
        self._lock, self._running, self._timer = threading.Lock(), None, None

    def on_start(self, event: event.Event) -> None:
        running = self._running
        if silenced() or not is_ours(event.data):
            return
        if running is not None and running["dispatcher"].is_compiling:
            return
        now = time.perf_counter()
        if now - self._end > _GAP:
            self._noted, self._spent = False, 0.0
        self._running, self._start = event.data, now
        if not self._noted:
            self._timer = threading.Timer(max(0.0, _PATIENCE - self._spent), self._write_note, [event.data])
            with suppress(RuntimeError):  # no more threads can be started
                self._timer.start()

    def on_end(self, event: event.Event) -> None:
        if self._running is not event.data:
            return
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._running, self._timer = None, None
        self._end = time.perf_counter()
        self._spent += self._end - self._start

    def _write_note(self, data: dict[str, Any]) -> None:
        with self._lock:
            if self._running is not data or self._noted:
                return
            self._noted = True
        # If no folder is writable, every process compiles again; the cache reports that separately.
        note("compiling kernels, first use only" if writable() else "compiling kernels")


_GAP = 10.0  # seconds
_PATIENCE = 1.0  # seconds
event.register("numba:compile", _Note())  # type: ignore[no-untyped-call]
