"""A file made block by block: killed, disturbed or refused at any moment, it is whole or not there."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shortlist.errors import StorageError
from shortlist.storage import draft as draft_file
from shortlist.storage.draft import folder_of, opened
from storage.draft_killer import BLOCKS, HEAD, TAIL, WHOLE, make
from storage.faults import at_call
from storage.samples import child_environment


class Stopped(BaseException):
    pass


def begin(target: Path, blocks: int) -> None:
    """Leave a draft with so many blocks."""
    with opened(target, HEAD, {"n": 1}, overwrite=False, restart=False) as draft:
        for k in range(blocks):
            draft.append(BLOCKS[k], {"k": k})


def check_whole(target: Path) -> None:
    assert target.read_bytes() == WHOLE
    assert os.listdir(target.parent) == [target.name]


@pytest.mark.parametrize("blocks", [0, 1, 3, 4])
def test_it_goes_on(tmp_path: Path, blocks: int) -> None:
    target = tmp_path / "lists"
    begin(target, blocks)
    assert not target.exists()
    assert folder_of(target).exists() == (blocks > 0)  # nothing done, nothing left
    assert make(target) == blocks
    check_whole(target)


SITUATIONS, MOMENTS = ["nothing", "file", "begun"], ["before", "after"]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which drafts were killed, all of them by one process."""
    folder = tmp_path_factory.mktemp("killed")
    jobs = [(str(folder / f"{situation}-{when}"), situation, when) for situation in SITUATIONS for when in MOMENTS]
    for base, *_ in jobs:
        Path(base).mkdir()
    command = [sys.executable, "-m", "storage.draft_killer", json.dumps(jobs)]
    subprocess.run(command, check=True, timeout=600, env=child_environment())
    return folder


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("when", MOMENTS)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_killed_at_every_call(killed: Path, situation: str, when: str) -> None:
    base = killed / f"{situation}-{when}"
    points = json.loads((base / "points.json").read_text())
    if situation != "begun":
        assert points.count("write") == 1 + 1 + 2 * len(BLOCKS) + 2  # head, identity, blocks and lines, tail and line
    step = "replace" if situation == "file" else "link"
    assert points.count(step) == 1
    for k, name in enumerate(points):
        target = base / str(k) / "lists"
        there = target.read_bytes() if target.exists() else None
        in_place = k > points.index(step) or (name == step and when == "after")
        in_place |= name == "failed"  # nobody was killed
        assert there == (WHOLE if in_place else b"older" if situation == "file" else None), (k, name)
        before = make(target, overwrite=True)
        assert before >= (1 if situation == "begun" and not in_place else 0)
        check_whole(target)


def test_killed_when_it_was_in_place_needs_no_overwriting(tmp_path: Path) -> None:
    target = tmp_path / "lists"

    def stop(index: int, name: str, args: tuple[Any, ...]) -> None:
        if name in ("link", "replace"):
            raise Stopped

    with pytest.raises(Stopped), at_call(after=stop):
        make(target)
    assert folder_of(target).exists()
    assert make(target) == len(BLOCKS)
    check_whole(target)


def test_what_was_linked_and_moved_away_is_not_changed(tmp_path: Path) -> None:
    target, kept = tmp_path / "lists", tmp_path / "kept"

    def stop(index: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "link":
            raise Stopped

    with pytest.raises(Stopped), at_call(after=stop):
        make(target)
    target.rename(kept)
    with pytest.raises(StorageError, match=r"content' has a second hard link.*pass restart=True"):
        make(target)
    assert make(target, restart=True) == 0
    assert kept.read_bytes() == target.read_bytes() == WHOLE
    assert sorted(os.listdir(tmp_path)) == ["kept", "lists"]


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_comes_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    target = tmp_path / "lists"
    if not links:
        monkeypatch.setattr(os, "link", _no_links)
    with opened(target, HEAD, {"n": 1}, overwrite=False, restart=False) as draft:
        for k, block in enumerate(BLOCKS):
            draft.append(block, {"k": k})
        target.write_bytes(b"somebody's")
        with pytest.raises(StorageError, match="already exists; pass overwrite=True"):
            draft.finish(TAIL)
    assert target.read_bytes() == b"somebody's"
    with pytest.raises(StorageError, match="already exists; pass overwrite=True"):
        make(target)
    assert make(target, overwrite=True) == len(BLOCKS)
    check_whole(target)


def test_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _no_links)
    assert make(tmp_path / "lists") == 0
    check_whole(tmp_path / "lists")


def _no_links(*args: Any, **kwargs: Any) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_an_error_at_every_call(tmp_path: Path, code: int) -> None:
    with at_call() as calls:
        make(tmp_path / "lists")
    assert len(calls) > 20
    for k in range(len(calls)):
        target = tmp_path / str(k) / "lists"
        target.parent.mkdir()

        def fail(index: int, name: str, args: tuple[Any, ...], k: int = k) -> None:
            if index == k:
                raise OSError(code, os.strerror(code))

        failed = ""
        with at_call(fail):
            try:
                make(target)
            except StorageError as error:
                failed = str(error)
        assert not failed or os.strerror(code) in failed
        if failed and target.exists():  # the disk did not confirm the last step
            assert calls[k] in ("open", "fsync")
            assert target.read_bytes() == WHOLE
        elif failed:
            assert not folder_of(target).exists() or (folder_of(target) / "journal").stat().st_size
        make(target, overwrite=True)
        check_whole(target)


def test_refusals(tmp_path: Path) -> None:
    target = tmp_path / "lists"
    begin(target, 2)
    before = {name: (folder_of(target) / name).read_bytes() for name in os.listdir(folder_of(target))}
    with pytest.raises(StorageError, match=r"draft of another file: n was 1 and is 2; .* pass restart=True"):
        make(target, n=2)
    assert before == {name: (folder_of(target) / name).read_bytes() for name in os.listdir(folder_of(target))}
    target.write_bytes(b"somebody's")
    for restart in (False, True):
        with pytest.raises(StorageError, match="already exists; pass overwrite=True"):
            make(target, restart=restart)
    assert before == {name: (folder_of(target) / name).read_bytes() for name in os.listdir(folder_of(target))}
    assert make(target, overwrite=True) == 2
    check_whole(target)
    with pytest.raises(StorageError, match="already exists"):
        make(target)
    assert make(target, overwrite=True, restart=True) == 0
    check_whole(target)


def test_restart(tmp_path: Path) -> None:
    target = tmp_path / "lists"
    begin(target, 3)
    assert make(target, n=2, restart=True) == 0
    check_whole(target)


def test_one_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    target = tmp_path / "lists"
    with opened(target, HEAD, {"n": 1}, overwrite=False, restart=False) as draft:
        draft.append(BLOCKS[0], {"k": 0})
        for restart in (False, True):
            with pytest.raises(StorageError, match="being written by another process"):
                make(target, restart=restart)
    assert make(target) == 1
    check_whole(target)


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EIO])
def test_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    fcntl = pytest.importorskip("fcntl")
    target = tmp_path / "lists"

    def no_locks(*args: Any) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", no_locks)
        with pytest.raises(StorageError, match=rf"cannot be locked against other processes: {os.strerror(code)}; "):
            make(target)
    assert os.listdir(tmp_path) == []
    begin(target, 2)
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", no_locks)
        with pytest.raises(StorageError, match="cannot be locked"):
            make(target)
    assert make(target) == 2
    check_whole(target)


def test_who_comes_second_takes_nothing_from_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process begins at the worst of times: when it has been seen that there is no folder yet."""
    pytest.importorskip("fcntl")
    target = tmp_path / "lists"
    mkdir = Path.mkdir
    others = []

    def meanwhile(self: Path, *args: Any, **kwargs: Any) -> None:
        if self == folder_of(target) and not others:
            others.append(opened(target, HEAD, {"n": 1}, overwrite=False, restart=False))
            others.append(others[0].__enter__())
        mkdir(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", meanwhile)
    with pytest.raises(StorageError, match="being written by another process"):
        make(target)
    for k, block in enumerate(BLOCKS):
        others[1].append(block, {"k": k})
    others[1].finish(TAIL)
    others[0].__exit__(None, None, None)
    check_whole(target)


def test_whoever_is_refused_does_not_remove_a_folder_just_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "lists"

    def meanwhile(target: Path, overwrite: bool) -> None:
        folder_of(target).mkdir()  # by another process, which has not come any further
        raise StorageError("refused")

    monkeypatch.setattr(draft_file, "_refuse_target", meanwhile)
    with pytest.raises(StorageError, match="refused"):
        make(target)
    assert folder_of(target).is_dir()


def test_a_journal_that_was_removed_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever had it goes between our opening it and our lock."""
    fcntl = pytest.importorskip("fcntl")
    target = tmp_path / "lists"
    flock = fcntl.flock

    def removed(*args: Any) -> None:
        os.unlink(folder_of(target) / "journal")
        flock(*args)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", removed)
        with pytest.raises(StorageError, match="being written by another process"):
            make(target)
    assert make(target) == 0
    check_whole(target)


def test_what_is_no_json_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(TypeError, match="not JSON serializable"),
        opened(tmp_path / "lists", HEAD, {"n": object()}, overwrite=False, restart=False),
    ):
        pass
    assert os.listdir(tmp_path) == []


def test_an_empty_journal_is_nobodys(tmp_path: Path) -> None:
    target = tmp_path / "lists"
    begin(target, 2)
    (folder_of(target) / "journal").write_bytes(b"")
    target.write_bytes(b"older")
    with pytest.raises(StorageError, match="already exists"):
        make(target)
    assert os.listdir(tmp_path) == ["lists"]


@pytest.mark.parametrize("name", ["content", "journal"])
def test_what_was_changed_is_refused(tmp_path: Path, name: str) -> None:
    target = tmp_path / "lists"
    begin(target, 3)
    path = folder_of(target) / name
    good = path.read_bytes()
    for at in range(len(good) - (name == "journal")):  # but for its last line's end: then that line does not count
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(StorageError, match="pass restart=True"):
            make(target)
    for end in range(len(good)):
        path.write_bytes(good[:end])
        if name == "content":
            with pytest.raises(StorageError, match="pass restart=True"):
                make(target)
    path.unlink()
    if name == "content":
        with pytest.raises(StorageError, match="is missing; pass restart=True"):
            make(target)
    assert make(target, restart=True) == 0
    check_whole(target)


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "lists"
    folder_of(target).mkdir()
    (folder_of(target) / "diary").write_text("mine")
    for restart in (False, True):
        with pytest.raises(StorageError, match=r"contains other files \('diary'\)"):
            make(target, restart=restart)
    assert os.listdir(folder_of(target)) == ["diary"]


def test_places_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "file" / "lists", tmp_path / "folder", tmp_path / ("x" * 300)):
        with pytest.raises(StorageError):
            make(place)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    make(tmp_path / "deep" / "er" / "lists")
    check_whole(tmp_path / "deep" / "er" / "lists")
