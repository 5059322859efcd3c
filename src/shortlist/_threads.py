"""Threads: a pool of Python threads over nogil kernels, with BLAS kept to one thread inside.

A pool is made per call, so nothing of it can be broken by a fork; starting two threads costs some 0.1 ms, and small
jobs run inline.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import whole
from shortlist._signals import HeldSignals
from shortlist.errors import SettingError

Step: TypeAlias = Callable[[int, int], object]  # called with how many rows are done, and of how many


def thread_count(threads: int | None = None) -> int:
    """How many threads to use: the argument, else `SHORTLIST_THREADS`, else the CPUs this process may run on."""
    if threads is None:
        setting = os.environ.get("SHORTLIST_THREADS", "").strip()
        if setting:
            if not (setting.isascii() and setting.isdigit()) or int(setting) < 1:
                raise SettingError(f"SHORTLIST_THREADS is {setting!r}; expected a whole number of at least 1")
            return int(setting)
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return whole("threads", threads)


class _BlasGuard:
    """Counts who is inside, so that overlapping callers restore the user's own BLAS setting and not each other's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: dict[object, int] = {}  # by everyone who is inside
        self._before: list[int] = []
        self._controller: Any = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """In a forked child nobody is inside, whoever was inside in the parent."""
        self._lock = threading.Lock()
        if self._wanted:
            self._wanted = {}
            self._set(self._before)

    def _libraries(self) -> list[Any]:
        if self._controller is None:
            import scipy.linalg.cython_blas  # noqa: F401  (so that SciPy's BLAS is loaded and found too)
            from threadpoolctl import ThreadpoolController

            self._controller = ThreadpoolController().select(user_api="blas")
        # Faiss has a BLAS of its own, whose setting is each thread's own; it is faiss's affair, loaded early or late.
        return [one for one in self._controller.lib_controllers if "faiss" not in one.filepath]

    def _set(self, counts: Sequence[int]) -> None:
        for library, count in zip(self._libraries(), counts):
            if hasattr(library, "clear_controlling_thread"):
                # threadpoolctl lets one thread at a time change OpenBLAS and ignores the others without a word; our
                # own count settles whose turn it is.
                library.clear_controlling_thread(force=True)
            library.set_num_threads(count)
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)

    @contextmanager
    def limit(self, count: int) -> Iterator[None]:
        """Keep BLAS to `count` threads, or to as few as anyone inside wants; never more than the user allows."""
        guest = object()
        try:
            self._enter(guest, count)
            yield
        finally:
            try:
                self._leave(guest)
            except BaseException:  # Ctrl-C: the user's setting must come back all the same
                self._leave(guest)
                raise

    def _enter(self, guest: object, count: int) -> None:
        with self._lock:
            if not self._wanted:
                self._before = [library.get_num_threads() for library in self._libraries()]
            self._wanted[guest] = count
            self._apply()

    def _leave(self, guest: object) -> None:
        with self._lock:
            self._wanted.pop(guest, None)
            self._apply()

    def _apply(self) -> None:
        self._set([min([before, *self._wanted.values()]) for before in self._before])

    def limit_this_thread(self) -> None:
        """For a thread of our own pool: MKL and BLAS over OpenMP keep their setting per thread."""
        for library in self._libraries():
            if library.internal_api == "mkl" or getattr(library, "threading_layer", "") == "openmp":
                library.set_num_threads(1)


_guard = _BlasGuard()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep every BLAS of NumPy and SciPy to one thread; may be nested and entered from several threads at once."""
    with blas_threads(1):
        yield


@contextmanager
def blas_threads(threads: int | None) -> Iterator[None]:
    """Keep BLAS to as many threads as asked for, where anything was asked for."""
    if threads is None:
        yield
        return
    with _guard.limit(thread_count(threads)):
        yield


def balanced_chunks(work: npt.NDArray[Any], n_chunks: int) -> list[tuple[int, int]]:
    """Cut rows 0…len(work) into at most `n_chunks` runs of about equal total work.

    >>> balanced_chunks(np.array([1, 1, 1, 1, 2, 2]), 2)
    [(0, 4), (4, 6)]
    """
    n_rows = len(work)
    if n_rows <= 1:
        return [(0, 1)] * n_rows
    total = np.concatenate([[0.0], np.cumsum(work, dtype=np.float64)])
    cuts = np.searchsorted(total, np.linspace(0, total[-1], max(1, n_chunks) + 1)[1:-1])
    bounds = np.unique(np.concatenate([[0], cuts, [n_rows]]))
    return [(int(a), int(b)) for a, b in pairwise(bounds)]


def run_chunks(
    work: Callable[[int, int], object],
    chunks: Sequence[tuple[int, int]],
    threads: int | None = None,
    step: Step | None = None,
) -> None:
    """Call `work(start, stop)` for every chunk, from a queue that idle threads take from; BLAS is single-threaded.

    The first exception stops the queue and is raised here once the chunks that have begun are finished. Ctrl-C does the
    same, however often it is pressed: no thread is left inside a kernel. `step` is told after each chunk how far it is,
    by one thread at a time.
    """
    if step is not None:
        work = _told(work, chunks, step)
    n_threads = min(thread_count(threads), len(chunks))
    if n_threads <= 1:
        # One chunk may well use all of BLAS's threads, unless one thread is what was asked for.
        with single_threaded_blas() if threads == 1 else nullcontext():
            for start, stop in chunks:
                work(start, stop)
        return
    queue = iter(chunks)
    lock = threading.Lock()

    def give_up() -> None:
        with lock:
            for _ in queue:
                pass

    def drain() -> None:
        _guard.limit_this_thread()
        while held.error is None:
            with lock:
                chunk = next(queue, None)
            if chunk is None:
                return
            try:
                work(*chunk)
            except BaseException:
                give_up()
                raise

    with (
        HeldSignals() as held,
        single_threaded_blas(),
        ThreadPoolExecutor(n_threads, "shortlist", initializer=held.join) as pool,
    ):
        for future in [pool.submit(drain) for _ in range(n_threads)]:
            future.result()


def _told(work: Callable[[int, int], object], chunks: Sequence[tuple[int, int]], step: Step) -> Callable[..., object]:
    total = sum(stop - start for start, stop in chunks)
    done, lock = [0], threading.Lock()

    def work_and_tell(start: int, stop: int) -> None:
        work(start, stop)
        with lock:
            done[0] += stop - start
            step(done[0], total)

    return work_and_tell


class Background:
    """Run one job at a time in a thread of its own; no signal leaves a job running when the `with` block ends."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._job: Future[object] | None = None

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        with HeldSignals():
            self._pool.shutdown()

    def start(self, work: Callable[..., object], *args: Any) -> None:
        """Start a job; whoever starts another one waits for this one first."""
        with HeldSignals():
            self._job = self._pool.submit(work, *args)

    def wait(self) -> None:
        """Wait for the job, if there is one; its exception is raised here."""
        with HeldSignals():
            if self._job is not None:
                self._job.result()
