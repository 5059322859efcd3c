"""Thread pools for kernels that release the GIL; BLAS is limited to one thread inside.

Each call creates its own pool, so a fork cannot break it. Starting two threads takes about 0.1 ms; small jobs run in
the calling thread.
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

from shortlist._checks import integer
from shortlist._signals import HeldSignals
from shortlist.errors import SettingError

Step: TypeAlias = Callable[[int, int], object]  # called with the number of rows done and the total


def thread_count(threads: int | None = None) -> int:
    """Return the number of threads: the argument, or `SHORTLIST_THREADS`, or the number of CPUs of this process."""
    if threads is None:
        setting = os.environ.get("SHORTLIST_THREADS", "").strip()
        if setting:
            if not (setting.isascii() and setting.isdigit()) or int(setting) < 1:
                raise SettingError(
                    f"SHORTLIST_THREADS is {setting!r}; expected an integer ≥ 1", field="SHORTLIST_THREADS"
                )
            return int(setting)
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return integer("threads", threads)


class _BlasGuard:
    """Limit on BLAS threads. It counts its callers, so that the last one to leave restores the user's own setting."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: dict[object, int] = {}  # the limit of each active caller
        self._before: list[int] = []
        self._applied: list[int] = []  # the counts that were set last
        self._found: list[Any] | None = None
        self._per_thread: list[Any] = []  # libraries in which each thread has a setting of its own
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Forget all callers after a fork: they exist in the parent only."""
        self._lock = threading.Lock()
        if self._wanted:
            self._wanted = {}
            self._set(self._before)
            self._applied = self._before

    def _libraries(self) -> list[Any]:
        if self._found is None:
            import scipy.linalg.cython_blas  # noqa: F401  (loads SciPy's BLAS, so that it is found too)
            from threadpoolctl import ThreadpoolController

            libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            # Faiss has its own BLAS with a setting per thread. Leave it alone, whether faiss is already loaded or not.
            self._found = [library for library in libraries if "faiss" not in library.filepath]
            self._per_thread = [
                library
                for library in self._found
                if library.internal_api == "mkl" or getattr(library, "threading_layer", "") == "openmp"
            ]
        return self._found

    def _set(self, counts: Sequence[int]) -> None:
        for library, count in zip(self._libraries(), counts):
            if hasattr(library, "clear_controlling_thread"):
                # threadpoolctl lets only one thread change OpenBLAS and silently ignores the others. The count of
                # callers in this class already coordinates them.
                library.clear_controlling_thread(force=True)
            library.set_num_threads(count)
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)

    @contextmanager
    def limit(self, count: int) -> Iterator[None]:
        """Limit BLAS to `count` threads; nested and concurrent limits and the user's own setting apply too."""
        caller = object()
        try:
            self._enter(caller, count)
            yield
        finally:
            try:
                self._leave(caller)
            except BaseException:  # Ctrl-C: the user's setting must be restored anyway
                self._leave(caller)
                raise

    def _enter(self, caller: object, count: int) -> None:
        with self._lock:
            if not self._wanted:
                self._before = self._applied = [library.get_num_threads() for library in self._libraries()]
            self._wanted[caller] = count
            self._apply()

    def _leave(self, caller: object) -> None:
        with self._lock:
            self._wanted.pop(caller, None)
            self._apply()

    def _apply(self) -> None:
        """Set the counts if they are not set: setting them takes longer than a search of a small catalogue."""
        counts = [min([before, *self._wanted.values()]) for before in self._before]
        if counts != self._applied or self._per_thread:
            self._set(counts)
            self._applied = counts

    def limit_this_thread(self) -> None:
        """Limit BLAS in a thread of a pool, where the setting belongs to the thread."""
        self._libraries()
        for library in self._per_thread:
            library.set_num_threads(1)


_guard = _BlasGuard()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit the BLAS of NumPy and SciPy to one thread; blocks may be nested and entered by several threads at once."""
    with blas_threads(1):
        yield


@contextmanager
def blas_threads(threads: int | None) -> Iterator[None]:
    """Limit BLAS to a number of threads; do nothing if it is None."""
    if threads is None:
        yield
        return
    with _guard.limit(thread_count(threads)):
        yield


def balanced_chunks(work: npt.NDArray[Any], n_chunks: int) -> list[tuple[int, int]]:
    """Split the rows into at most `n_chunks` contiguous chunks of about equal work; `work` has one number per row.

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
    """Call `work(start, stop)` for every chunk in a pool of threads, with single-threaded BLAS.

    Idle threads take the next chunk from a queue. The first exception empties the queue; it is raised here when the
    running chunks are finished. Ctrl-C does the same, even if pressed repeatedly, so no thread stays inside a kernel.
    `step` is called after each chunk, by one thread at a time.
    """
    if step is not None:
        work = _with_progress(work, chunks, step)
    n_threads = min(thread_count(threads), len(chunks))
    if n_threads <= 1:
        # In the calling thread, BLAS may use all its threads, unless one thread was requested.
        with single_threaded_blas() if threads == 1 else nullcontext():
            for start, stop in chunks:
                work(start, stop)
        return
    queue = iter(chunks)
    lock = threading.Lock()

    def empty_queue() -> None:
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
                empty_queue()
                raise

    with (
        HeldSignals() as held,
        single_threaded_blas(),
        ThreadPoolExecutor(n_threads, "shortlist", initializer=held.join) as pool,
    ):
        for future in [pool.submit(drain) for _ in range(n_threads)]:
            future.result()


def _with_progress(
    work: Callable[[int, int], object], chunks: Sequence[tuple[int, int]], step: Step
) -> Callable[..., object]:
    total = sum(stop - start for start, stop in chunks)
    done, lock = [0], threading.Lock()

    def work_and_report(start: int, stop: int) -> None:
        work(start, stop)
        with lock:
            done[0] += stop - start
            step(done[0], total)

    return work_and_report


class Background:
    """A background thread that runs one job at a time; when the `with` block ends, no job is left running."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._job: Future[object] | None = None

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        with HeldSignals():
            self._pool.shutdown()

    def start(self, work: Callable[..., object], *args: Any) -> None:
        """Start a job; call `wait` before starting the next one."""
        with HeldSignals():
            self._job = self._pool.submit(work, *args)

    def wait(self) -> None:
        """Wait for the current job, if any, and raise its exception."""
        with HeldSignals():
            if self._job is not None:
                self._job.result()
