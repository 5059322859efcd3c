"""A disk that forgets what was not synced: at every call, every way the disk may look must be a whole model.

The disk remembers a file's bytes as of its last fsync (nothing, if there was none) and a directory's names as of the
directory's last fsync. Changes of names since then may have reached it: none, all, or just the last one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shortlist.storage import load_model, save_model
from storage.faults import at_call
from storage.samples import same, sample
from storage.test_faults import check_whole, prepare

Names = dict[int, dict[str, int]]  # of directories, by inode: name -> inode


class Disk:
    """Watches what below `root` has become durable; told of each call before it is made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.synced: Path | None = None
        self.content = {path.stat().st_ino: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        self.names = self.seen = self._now()
        self.looks: list[tuple[str, Names, dict[int, bytes]]] = []

    def before_call(self, index: int, name: str, args: tuple[Any, ...]) -> None:
        self.look(f"before call {index}, {name}")
        if name == "fsync":
            self.synced = Path(os.readlink(f"/proc/self/fd/{args[0]}"))

    def look(self, when: str) -> None:
        """Note the effect of the last call, and all that a power loss now could leave."""
        now = self._now()
        if self.synced is not None:
            inode = self.synced.stat().st_ino
            if self.synced.is_dir():
                self.names = {**self.names, inode: now[inode]}
            else:
                self.content = {**self.content, inode: self.synced.read_bytes()}
            self.synced = None
        none = {inode: self.names.get(inode, {}) for inode in now}
        last = {inode: dict(names) for inode, names in none.items()}
        for inode, names in now.items():
            before = self.seen.get(inode, {})
            for name in before.keys() - names.keys():
                last[inode].pop(name, None)
            last[inode].update({name: child for name, child in names.items() if before.get(name) != child})
        self.seen = now
        self.looks += [(f"{when}, names: {way}", names, self.content) for way, names in zip(WAYS, (none, now, last))]

    def _now(self) -> Names:
        directories = [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]
        return {path.stat().st_ino: {e.name: e.inode() for e in os.scandir(path)} for path in directories}


WAYS = ("none", "all", "last")


def rebuild(names: Names, content: dict[int, bytes], inode: int, at: Path) -> None:
    at.mkdir()
    for name, child in names[inode].items():
        if child in names:
            rebuild(names, content, child, at / name)
        else:
            (at / name).write_bytes(content.get(child, b""))


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs to know which file a descriptor is")
@pytest.mark.parametrize("situation", ["nothing", "empty", "model", "deep"])
def test_power_lost_at_every_call(tmp_path: Path, situation: str) -> None:
    target = prepare(tmp_path / "live", situation)
    disk = Disk(tmp_path / "live")
    with at_call(disk.before_call):
        save_model(target, sample(2))
    disk.look("at the end")
    new = []
    for i, (when, names, content) in enumerate(disk.looks):
        copy = tmp_path / f"copy-{i}"
        rebuild(names, content, disk.root.stat().st_ino, copy)
        found = copy / target.relative_to(disk.root)
        print(when)  # noqa: T201  (shown when a line below fails)
        new.append(check_whole(found, situation))
        save_model(found, sample(3))
        assert same(load_model(found), sample(3)), when
    assert not new[0]
    assert all(new[-3:])  # once it has returned, the model stays
