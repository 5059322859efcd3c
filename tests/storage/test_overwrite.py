from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from shortlist.errors import StorageError
from shortlist.storage import file_names, load_model, save_model
from storage.samples import child_environment, clean, leftovers, same, sample

if TYPE_CHECKING:
    from pathlib import Path


def test_each_save_replaces_the_one_before_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    for version in range(4):
        save_model(tmp_path / "m", sample(version))
        assert same(load_model(tmp_path / "m"), sample(version))
        assert clean(tmp_path / "m")


def test_missing_parents_are_made(tmp_path: Path) -> None:
    save_model(tmp_path / "a" / "b" / "m", sample(1))
    assert same(load_model(tmp_path / "a" / "b" / "m"), sample(1))


def test_a_path_relative_to_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_model("m", sample(1))
    save_model("m/", sample(2))
    assert same(load_model("m"), sample(2))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    save_model(".", sample(3))
    assert same(load_model(tmp_path / "empty"), sample(3))


def test_a_very_long_name(tmp_path: Path) -> None:
    save_model(tmp_path / ("m" * 255), sample(1))
    assert same(load_model(tmp_path / ("m" * 255)), sample(1))


def test_an_empty_directory_is_used(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    inode = (tmp_path / "m").stat().st_ino
    save_model(tmp_path / "m", sample(1))
    assert same(load_model(tmp_path / "m"), sample(1))
    assert (tmp_path / "m").stat().st_ino == inode  # it may be a mount point, or have permissions of its own
    assert clean(tmp_path / "m")


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "thesis.tex").write_text("all of it")
    with pytest.raises(StorageError, match=r"not empty.*thesis\.tex.*another path"):
        save_model(tmp_path / "m", sample(1))
    assert os.listdir(tmp_path / "m") == ["thesis.tex"]
    assert leftovers(tmp_path / "m") == []


@pytest.mark.parametrize("text", ['{"manifest_version": 3}', "[]", "no json", '{"format": "other-model"}'])
def test_a_directory_with_a_foreign_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "manifest.json").write_text(text)
    with pytest.raises(StorageError, match="another path"):
        save_model(tmp_path / "m", sample(1))
    assert os.listdir(tmp_path / "m") == ["manifest.json"]
    assert (tmp_path / "m" / "manifest.json").read_text() == text


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("mine")
    with pytest.raises(StorageError, match="not a directory"):
        save_model(tmp_path / "m", sample(1))
    with pytest.raises(StorageError):
        save_model(tmp_path / "m" / "below", sample(1))
    assert (tmp_path / "m").read_text() == "mine"
    assert os.listdir(tmp_path) == ["m"]


def test_a_model_of_a_later_version_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    text = '{"format": "shortlist-model", "format_version": 3, "shortlist_version": "9.1"}'
    (tmp_path / "m" / "manifest.json").write_text(text)
    with pytest.raises(StorageError, match=r"9\.1"):
        save_model(tmp_path / "m", sample(1))
    assert (tmp_path / "m" / "manifest.json").read_text() == text


def test_a_damaged_model_can_be_replaced(tmp_path: Path) -> None:
    save_model(tmp_path / "m", sample(1))
    manifest = tmp_path / "m" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"Sample"', '"Simple"'))
    with pytest.raises(StorageError, match="sha256"):
        load_model(tmp_path / "m")
    save_model(tmp_path / "m", sample(2))
    assert same(load_model(tmp_path / "m"), sample(2))
    assert clean(tmp_path / "m")


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    save_model(tmp_path / "m", sample(1))
    mine = ["README.md", "arrays.safetensors", "table-items.arrow", "manifest-.tmp", ".hidden"]
    for name in mine:
        (tmp_path / "m" / name).write_text("mine")
    (tmp_path / ".shortlist-notes").mkdir()
    save_model(tmp_path / "m", sample(2))
    assert same(load_model(tmp_path / "m"), sample(2))
    assert set(mine) <= set(os.listdir(tmp_path / "m"))
    assert len(os.listdir(tmp_path / "m")) == len(mine) + 4
    assert (tmp_path / ".shortlist-notes").exists()


def test_a_link_to_a_model_directory_is_saved_through(tmp_path: Path) -> None:
    save_model(tmp_path / "real", sample(1))
    (tmp_path / "link").symlink_to("real")
    save_model(tmp_path / "link", sample(2))
    assert (tmp_path / "link").is_symlink()
    assert same(load_model(tmp_path / "real"), sample(2))


def test_a_model_of_a_process_that_still_runs_is_replaced_whole(tmp_path: Path) -> None:
    program = f"""
from storage.samples import sample
from shortlist.storage import save_model
save_model({str(tmp_path / "m")!r}, sample(1))
print("saved", flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "saved\n"
        save_model(tmp_path / "m", sample(2))
        assert clean(tmp_path / "m")
        child.communicate("\n", timeout=20)
    assert child.returncode == 0
    assert same(load_model(tmp_path / "m"), sample(2))


def _dead() -> str:
    child = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE, check=True, text=True
    )
    return child.stdout.strip()


def _leave(target: Path, place: str, pid: str) -> list[Path]:
    """Put files there as a save would have that did not come to its end."""
    ticket = f"{place}-{pid}-{'0' * 16}"
    staging = file_names.staging_directory(target, ticket)
    staging.mkdir()
    left = [
        target / file_names.arrays_file(ticket),
        target / file_names.manifest_draft(ticket),
        staging / "manifest.json",
    ]
    for path in left:
        path.write_text("unfinished")
    return left


@pytest.mark.parametrize(
    ("place", "pid", "days", "kept"),
    [
        ("here", "dead", 0, False),
        ("here", "living", 9, True),
        ("here", "own", 0, False),  # this process has no other save running
        ("elsewhere", "dead", 0.9, True),
        ("elsewhere", "living", 1.1, False),
    ],
)
def test_leftovers_go_when_nobody_can_still_be_writing_them(
    tmp_path: Path, place: str, pid: str, days: float, kept: bool
) -> None:
    target = tmp_path / "m"
    save_model(target, sample(1))
    number = {"dead": _dead(), "living": str(os.getppid()), "own": str(os.getpid())}[pid]
    left = _leave(target, file_names._place() if place == "here" else "0123abcd", number)
    for path in (*left, left[-1].parent):
        then = path.stat().st_mtime - days * 86400
        os.utime(path, (then, then))
    save_model(tmp_path / "other", sample(1))
    assert all(path.exists() for path in left)  # they are the business of saves to the same path only
    save_model(target, sample(2))
    assert [path.exists() for path in left] == [kept] * 3
    assert left[-1].parent.exists() == kept
    assert same(load_model(target), sample(2))
