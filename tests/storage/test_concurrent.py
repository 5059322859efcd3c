"""Several at once: readers see whole models only, and of several writers one wins."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from shortlist.errors import StorageError
from shortlist.storage import Manifest, load, load_model, save_model
from storage.samples import child_environment, clean, leftovers, same, sample

if TYPE_CHECKING:
    from pathlib import Path

WRITER = """
import sys, time
from storage.samples import sample
from shortlist.storage import save_model
first, end, n = int(sys.argv[2]), time.monotonic() + float(sys.argv[3]), 0
while time.monotonic() < end:
    save_model(sys.argv[1], sample(first + n % 5))
    n += 1
print(n)
"""


def _writer(target: Path, first: int, seconds: float) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WRITER, str(target), str(first), str(seconds)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=child_environment())


@pytest.mark.parametrize("start", [pytest.param("nothing", marks=pytest.mark.slow), "model"])
def test_two_processes_write_while_threads_read(tmp_path: Path, start: str) -> None:
    target = tmp_path / "m"
    known = {version: sample(version) for version in (0, 1, 2, 3, 4, 10, 11, 12, 13, 14)}
    if start == "model":
        save_model(target, known[0])
    writers = [_writer(target, 0, 2.0), _writer(target, 10, 2.0)]
    while not target.exists() and any(writer.poll() is None for writer in writers):
        time.sleep(0.01)

    def read(_: int) -> int:
        count = 0
        while any(writer.poll() is None for writer in writers):
            loaded = load_model(target)
            assert same(loaded, known[loaded.settings["version"]])
            count += 1
        return count

    with ThreadPoolExecutor(2) as pool:
        reads = sum(pool.map(read, range(2)))
    writes = [int(writer.communicate()[0]) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert reads > 5
    assert min(writes) > 5
    save_model(target, known[1])
    assert same(load_model(target), known[1])
    assert clean(target)


def test_threads_that_save_for_the_first_time_at_once(tmp_path: Path) -> None:
    for attempt in range(10):
        target = tmp_path / "deep" / str(attempt) / "m"
        barrier = threading.Barrier(4)

        def first(version: int, target: Path = target, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            save_model(target, sample(version))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(first, range(4)))
        assert any(same(load_model(target), sample(version)) for version in range(4))
        assert leftovers(target) == []
        save_model(target, sample(5))  # takes away what the others could not know to be finished
        assert clean(target)


def test_a_reader_that_comes_too_late_takes_the_new_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "m"
    save_model(target, sample(0))
    read_manifest, versions = load.read_manifest, iter(range(1, 5))

    def slow(path: Path) -> Manifest:
        manifest = read_manifest(path)
        for version in versions:
            save_model(target, sample(version))  # takes the files of the manifest just read away
            break
        return manifest

    monkeypatch.setattr(load, "read_manifest", slow)
    assert same(load_model(target), sample(4))


def test_a_reader_does_not_try_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "m"
    save_model(target, sample(0))
    read_manifest = load.read_manifest

    def slow(path: Path) -> Manifest:
        manifest = read_manifest(path)
        save_model(target, sample(1))
        return manifest

    monkeypatch.setattr(load, "read_manifest", slow)
    with pytest.raises(StorageError, match=r"replaced .* times while being read"):
        load_model(target)


def test_a_model_replaced_while_it_is_read_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "m"
    save_model(target, sample(0))
    content, replaced = load._content, threading.Event()

    def slow(*args: object) -> object:
        if not replaced.is_set():
            replaced.set()
            save_model(target, sample(1))
        return content(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(load, "_content", slow)
    assert same(load_model(target), sample(0))
    assert same(load_model(target), sample(1))
