"""Kernels from many threads at once and after a fork; BLAS left as it was found."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numba.core import event
from threadpoolctl import threadpool_info, threadpool_limits

import shortlist as sl
from interrupts import Interrupts, uncached_kernel
from shortlist._threads import Background, _guard, balanced_chunks, run_chunks, single_threaded_blas, thread_count
from shortlist._threads import blas_threads as blas_limit

CHUNKS = [(k, k + 1) for k in range(9)]


def blas_threads() -> set[int]:
    found = [one for one in threadpool_info() if one["user_api"] == "blas" and "faiss" not in one["filepath"]]
    return {one["num_threads"] for one in found}


@pytest.fixture(scope="module")
def model():
    return fitted()


def fitted():
    return sl.IALS(dim=8, epochs=2).fit(sl.datasets.synthetic(300, 120, 6000, seed=1), threads=2)


def answer(model) -> list:
    """Everything a server asks of a model."""
    known = model.recommend(list(range(300)), n=5, threads=2, deny=[3, 4])
    told = model.recommend(history=[[1, 2, 3], []], n=5, allow=[[1, 2, 5, 6], [7, 8]])
    similar = model.similar_items([1, 2], n=3)
    ranks = model.rank([5], [[1, 2, 3]])[0].tolist()
    scores = [float(score) for score in known.scores[0]]
    many = model.recommend(list(range(300)) * 20, n=2, deny=list(range(5000)))  # more ids than polars is faster for
    assert many.ids == [[]] * 6000
    return [known.ids, told.ids, similar.ids, ranks, scores, model.fold_in([[1, 2, 3]]).tolist()]


def test_many_threads_at_once(model):
    expected = answer(model)
    with threadpool_limits(2, user_api="blas"):
        with ThreadPoolExecutor(6) as pool:
            fits = [pool.submit(fitted) for _ in range(6)]
            for got in [pool.submit(answer, model) for _ in range(18)]:
                assert got.result() == expected
            for fit in fits:
                assert answer(fit.result()) == expected
        assert blas_threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork(model):
    expected = answer(model)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=lambda: queue.put(answer(model))) for _ in range(2)]
    for child in children:
        child.start()
    try:
        assert [queue.get(timeout=60) for _ in children] == [expected, expected]
        for child in children:
            child.join(60)
            assert child.exitcode == 0
    finally:
        for child in children:
            child.kill()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_forked_from_within_gets_the_users_blas_setting_back():
    with threadpool_limits(2, user_api="blas"):
        with single_threaded_blas():
            pid = os.fork()
            if pid == 0:
                with single_threaded_blas():
                    inside = blas_threads()
                os._exit(0 if inside == {1} and blas_threads() == {2} else 1)
            _, status = os.waitpid(pid, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            assert blas_threads() == {1}
        assert blas_threads() == {2}


def test_overlapping_guards_restore_what_the_user_set():
    with threadpool_limits(2, user_api="blas"):
        inner, outer = threading.Event(), threading.Event()

        def first():
            with single_threaded_blas():
                inner.set()
                outer.wait(10)

        thread = threading.Thread(target=first)
        thread.start()
        inner.wait(10)
        with single_threaded_blas():
            assert blas_threads() == {1}
        assert blas_threads() == {1}  # the other one is still inside
        outer.set()
        thread.join()
        assert blas_threads() == {2}


def test_an_inner_guard_gives_back_what_the_outer_one_allows():
    with threadpool_limits(3, user_api="blas"):
        with blas_limit(2):
            with single_threaded_blas():
                assert blas_threads() == {1}
            assert blas_threads() == {2}
            with blas_limit(5):
                assert blas_threads() == {2}
        assert blas_threads() == {3}
        with blas_limit(5):
            assert blas_threads() == {3}


def test_parallel_fits_leave_blas_as_it_was():
    events = sl.datasets.synthetic(60, 40, 900, seed=1)
    with threadpool_limits(2, user_api="blas"):
        with ThreadPoolExecutor(3) as pool:
            for fit in [pool.submit(sl.EASE().fit, events, threads=1 + k % 2) for k in range(24)]:
                fit.result()
        assert blas_threads() == {2}


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_chunk_is_worked_on_once(threads):
    seen = np.zeros(1000, np.int64)

    def work(start, stop):
        seen[start:stop] += 1

    run_chunks(work, balanced_chunks(np.ones(1000), 37), threads)
    assert (seen == 1).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_an_exception_stops_the_rest_and_reaches_the_caller(threads):
    done = []

    def work(start, stop):
        if start == 0:
            raise ValueError("first")
        done.append(start)

    with pytest.raises(ValueError, match="first"):
        run_chunks(work, [(k, k + 1) for k in range(10000)], threads)
    assert len(done) < 9999


def test_chunks_are_balanced_by_work():
    rng = np.random.default_rng(0)
    work = rng.pareto(1.5, 5000) + 0.1
    chunks = balanced_chunks(work, 16)
    assert chunks[0][0] == 0
    assert chunks[-1][1] == 5000
    assert all(a[1] == b[0] for a, b in itertools.pairwise(chunks))
    sizes = [work[a:b].sum() for a, b in chunks]
    assert max(sizes) < work.sum() / 16 + 2 * work.max()
    assert balanced_chunks(np.ones(0), 4) == []


def test_thread_count(monkeypatch):
    assert thread_count(3) == 3
    monkeypatch.setenv("SHORTLIST_THREADS", "5")
    assert thread_count() == 5
    monkeypatch.setenv("SHORTLIST_THREADS", "many")
    with pytest.raises(sl.SettingError, match="SHORTLIST_THREADS"):
        thread_count()
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(sl.SettingError, match="threads is"):
            thread_count(wrong)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals for one thread")
def test_interrupts_wait_for_chunks_that_have_begun_and_begin_no_others():
    begun, interrupts = [], Interrupts()

    def work(start, _stop):
        begun.append(start)
        if start == 0:
            interrupts.send()
        else:
            interrupts.sent.wait(30)

    with interrupts, pytest.raises(KeyboardInterrupt):
        run_chunks(work, CHUNKS, threads=2)
    assert not interrupts.left_early
    assert set(begun) <= {0, 1}


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals for one thread")
@pytest.mark.parametrize("waits", [True, False])
def test_interrupts_wait_for_the_job_in_the_background(waits):
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), Background("test") as job:  # noqa: PT012
        job.start(interrupts.send)
        if waits:
            job.wait()
    assert not interrupts.left_early


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals for one thread")
def test_an_interrupt_ends_the_compilation_in_a_thread():
    interrupts = Interrupts()

    class Listener(event.Listener):
        def on_start(self, _):
            interrupts.send()

        def on_end(self, _):
            pass

    compiled = uncached_kernel()

    def work(start, stop):
        assert compiled(np.arange(start, stop)) == start

    with interrupts, event.install_listener("numba:compile", Listener()), pytest.raises(KeyboardInterrupt):
        run_chunks(work, CHUNKS, threads=2)
    assert not interrupts.left_early
    assert not compiled.signatures
    run_chunks(work, CHUNKS, threads=2)


def test_a_handler_that_raises_nothing_stops_no_chunks():
    seen, before = [], signal.signal(signal.SIGINT, lambda *_: None)
    try:
        run_chunks(lambda start, _: (seen.append(start), signal.raise_signal(signal.SIGINT)), CHUNKS, threads=2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert sorted(seen) == [start for start, _ in CHUNKS]


@pytest.mark.parametrize("inside", [True, False])
def test_an_interrupt_on_the_way_in_or_out_leaves_blas_as_it_was(inside, monkeypatch):
    apply, interrupts = _guard._apply, []

    def interrupted():
        if not interrupts and bool(_guard._wanted) is inside:
            interrupts.append(1)
            signal.raise_signal(signal.SIGINT)
        apply()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with threadpool_limits(2, user_api="blas"), monkeypatch.context() as patch:
            patch.setattr(_guard, "_apply", interrupted)
            with pytest.raises(KeyboardInterrupt), single_threaded_blas():
                assert blas_threads() == {1}
            assert blas_threads() == {2}
            assert not _guard._wanted
    finally:
        signal.signal(signal.SIGINT, before)
