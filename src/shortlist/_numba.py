"""The one way kernels are compiled here."""

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
_FAST = {"reassoc", "contract", "nsz", "arcp"}  # not nnan and ninf: infinities mark excluded items
_LEAN = {"_nrt": False, "forceinline": True}
Static: TypeAlias = tuple[int, ...]


def kernel(function: F) -> F:
    """Compile `function` with Numba: serial, without the GIL, cached on disk.

    Kernels never use `prange`: threads are driven from outside (`shortlist._threads`), so that work is balanced
    dynamically and calls from many threads, or after a fork, are safe.
    """
    return _compiled(function, fastmath=False)


def fast_kernel(function: F) -> F:
    """`kernel` with reassociated sums: for dot products and reductions whose last bits do not matter."""
    return _compiled(function, fastmath=_FAST)


def lean_kernel(function: F) -> F:
    """`kernel` without reference counts and always inlined: for what is called from the innermost loops.

    A kernel counts references to the arrays that it hands on, with an atomic addition for each array of a tuple at
    each call: some 100 ns, and far more where several threads hold the same arrays. Whoever calls owns the arrays
    anyway. Such a function must not make arrays; views are fine.
    """
    return _compiled(function, fastmath=False, **_LEAN)


def fast_lean_kernel(function: F) -> F:
    """`lean_kernel` with reassociated sums, as `fast_kernel`."""
    return _compiled(function, fastmath=_FAST, **_LEAN)


def bare_kernel(function: F) -> F:
    """`kernel` without reference counts, as `lean_kernel`, which LLVM inlines where that is worth it."""
    return _compiled(function, fastmath=False, _nrt=False)


def fast_bare_kernel(function: F) -> F:
    """`bare_kernel` with reassociated sums, as `fast_kernel`."""
    return _compiled(function, fastmath=_FAST, _nrt=False)


def static(number: int) -> Static:
    """Return a number that kernels know when they are compiled: the length of a tuple, which is part of its type.

    A kernel compiles no branch that its static arguments rule out, if it asks `len(argument) == NUMBER` of an argument
    itself, not of a field of one. Arguments that may be None work in the same way: `if argument is None`.
    """
    return (0,) * number


def _compiled(function: F, **options: Any) -> F:
    options |= {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    compiled = numba.njit(**options)(function)
    if hasattr(compiled, "_compile_for_args"):  # not under NUMBA_DISABLE_JIT
        with suppress(OSError):  # no file: it was typed at a prompt, or comes out of an archive
            compiled._cache = KernelCache(function)
        compiled._compile_for_args = _uninterrupted(compiled._compile_for_args)
        inner = _ForKernels(function, options)
        compiled.get_call_template, compiled.get_overload = inner.get_call_template, inner.get_overload
    return cast("F", compiled)


class _ForKernels:
    """The same kernel as other kernels call it: without the wrapper for calls from Python, which takes long to compile.

    These two methods are all that Numba asks of a kernel that it finds in another one.
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
        """Compile what a call needs. A constant is a number like any other.

        Else Numba compiles a kernel once more for each constant that it is called with, and for each variable that
        begins as one.
        """
        plain: Callable[[Any], Any] = types.unliteral
        return self._compiled.get_call_template(
            tuple(map(plain, args)), {name: plain(kind) for name, kind in kws.items()}
        )

    def get_overload(self, signature: Any) -> Any:
        """Return what has been compiled for a call."""
        return self._compiled.get_overload(signature)


def _uninterrupted(compile_for_args: Callable[..., Any]) -> Callable[..., Any]:
    """What Numba calls at the first call with new types, to compile or to load from the cache; signals are held back.

    Later calls find the machine code without any Python, so they cost what they did.
    """

    def compile_uninterrupted(*args: Any, **kwargs: Any) -> Any:
        with HeldSignals(), _UNCOLLECTED:
            return compile_for_args(*args, **kwargs)

    return compile_uninterrupted


class _Uncollected:
    """Puts the garbage collector off while kernels are compiled: it takes a seventh of the time and finds little.

    Threads may be inside together; the last of them puts it back as the first has found it.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._was_on = threading.Lock(), 0, False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Of those inside, only the thread that forked is in the child."""
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
    """Ends a compilation early between two passes of the compiler, where Numba expects errors.

    The kernels that a large kernel calls are compiled one after the other, which takes up to a minute in all.
    """

    def on_start(self, event: event.Event) -> None:
        stop_if_interrupted()

    def on_end(self, event: event.Event) -> None:
        """Nothing: Numba tells this also where the pass ended with an error."""


event.register("numba:run_pass", _BetweenPasses())  # type: ignore[no-untyped-call]


class _Note(event.Listener):
    """Says that a user waits for the compiler, while it still compiles: once for each stretch of waiting.

    Kernels that are compiled within `_GAP` seconds of each other are one stretch; the line comes when it has compiled
    for `_PATIENCE` seconds in all. A timer writes it, since one pass of the compiler may take many seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, Any] | None = None  # the outermost kernel, unless nobody wants to know
        self._began, self._ended, self._spent = 0.0, -_GAP, 0.0
        self._told = False
        self._timer: threading.Timer | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """No compilation goes on in a forked child, and the timer is in the parent."""
        self._lock, self._running, self._timer = threading.Lock(), None, None

    def on_start(self, event: event.Event) -> None:
        running = self._running
        if silenced() or not is_ours(event.data):
            return
        if running is not None and running["dispatcher"].is_compiling:
            return
        now = time.perf_counter()
        if now - self._ended > _GAP:
            self._told, self._spent = False, 0.0
        self._running, self._began = event.data, now
        if not self._told:
            self._timer = threading.Timer(max(0.0, _PATIENCE - self._spent), self._tell, [event.data])
            with suppress(RuntimeError):  # no more threads can be started
                self._timer.start()

    def on_end(self, event: event.Event) -> None:
        if self._running is not event.data:
            return
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._running, self._timer = None, None
        self._ended = time.perf_counter()
        self._spent += self._ended - self._began

    def _tell(self, data: dict[str, Any]) -> None:
        with self._lock:
            if self._running is not data or self._told:
                return
            self._told = True
        # Where nothing can be kept the cache says so, and it is not the first use only.
        note("compiling kernels, first use only" if writable() else "compiling kernels")


_GAP = 10.0
_PATIENCE = 1.0
event.register("numba:compile", _Note())  # type: ignore[no-untyped-call]
