"""A file that is made block by block over a long time, and survives a kill at any moment.

Beside the target `lists.parquet` there is a folder `lists.parquet.parts` with two files. `content` is the target as far
as it is made; `journal` says what is to be made and has a line for each finished block: how long it is, its sha256, and
what whoever makes it wants to know of it in the end. A block is written and made durable before its line is, so the
journal never speaks of what is not there; what stands behind the last block that it speaks of is cut off when somebody
goes on. At the end `content` takes the target's name in one step, and the folder goes. Where nothing is to be replaced
it is first linked to that name, which a file that has come there meanwhile prevents.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedRandom
from pathlib import Path
from typing import Any

from shortlist.errors import StorageError
from shortlist.storage.files import open_locked, sync_directory, write_all
from shortlist.storage.strict_json import canonical_sha256, parse_json
from shortlist.storage.wrap_errors import storage_errors

SUFFIX = ".parts"
_CONTENT, _JOURNAL = "content", "journal"
_READ = 8 << 20  # bytes
_ANEW = "pass restart=True to begin anew"


@dataclass(frozen=True)
class DraftBlock:
    """A finished block: where it begins, how long it is, and what its maker wants to know of it."""

    offset: int
    size: int
    about: dict[str, Any]


@dataclass(eq=False)
class Draft:
    """An unfinished file. `blocks` are those it has; `complete` says that it had taken its place before a kill."""

    target: Path
    blocks: list[DraftBlock] = field(default_factory=list)
    complete: bool = False
    _overwrite: bool = False
    _journal: BufferedRandom | None = None
    _content: int = -1
    _end: int = 0
    _new: bool = False

    @property
    def folder(self) -> Path:
        """Where it is made."""
        return folder_of(self.target)

    def append(self, content: bytes | memoryview, about: dict[str, Any]) -> None:
        """Add a block; when this returns, it outlives a kill and a power loss."""
        view = memoryview(content)
        with self._errors():
            write_all(self._content, view)
            os.fsync(self._content)
            self._note({"size": len(view), "sha256": hashlib.sha256(view).hexdigest(), "about": about})
        self.blocks.append(DraftBlock(self._end, len(view), about))
        self._end += len(view)

    def finish(self, tail: bytes) -> None:
        """Add the end, and let the file take its place; the folder goes."""
        with self._errors():
            write_all(self._content, tail)
            os.fsync(self._content)
            self._note({"complete": self._end + len(tail)})
            self._take_place()
            sync_directory(self.target.parent)
        self.remove()
        self.complete = True

    def _take_place(self) -> None:
        content = self.folder / _CONTENT
        if not self._overwrite:
            try:
                os.link(content, self.target)
                return
            except (OSError, AttributeError):  # something is there, or there are no links on this file system
                _refuse_target(self.target, overwrite=False)
        os.replace(content, self.target)

    def remove(self) -> None:
        """Remove what is left of the folder."""
        for name in (_CONTENT, _JOURNAL):
            with suppress(OSError):
                os.unlink(self.folder / name)
        with suppress(OSError):
            os.rmdir(self.folder)

    def _note(self, line: dict[str, Any]) -> None:
        assert self._journal is not None
        write_all(self._journal.fileno(), _line(line))
        os.fsync(self._journal.fileno())

    def _errors(self) -> AbstractContextManager[None]:
        done = f"the {len(self.blocks):,} blocks that are finished stay in '{self.folder}', and the same call goes on"
        return storage_errors(f"could not write '{self.target}'", f"{done} from there")

    # --- opening -----------------------------------------------------------------------------------------------------

    def _read(self, head: bytes, identity: dict[str, Any], derived: Collection[str]) -> None:
        """Go on with what is there, or begin."""
        assert self._journal is not None
        lines, end = _lines(self._journal.read())
        self._new = not lines
        os.ftruncate(self._journal.fileno(), end)
        os.lseek(self._journal.fileno(), end, os.SEEK_SET)
        if not lines:
            self._begin(head, identity)
            return
        first, *rest = lines
        if different := _differences(first.get("identity"), identity, derived):
            raise StorageError(
                f"'{self.folder}' holds the beginning of another file: {different}; go on as it was begun, or {_ANEW}"
            )
        self._end = len(head)
        for one in rest:
            if "complete" not in one:
                self.blocks.append(DraftBlock(self._end, one["size"], one["about"]))
                self._end += one["size"]
        content = self.folder / _CONTENT
        if not content.exists():
            sizes = [one["complete"] for one in rest if "complete" in one]
            self.complete = bool(sizes) and self.target.is_file() and self.target.stat().st_size == sizes[-1]
            if not self.complete:
                raise StorageError(f"'{content}' is gone; {_ANEW}")
            return
        if content.stat().st_nlink > 1:
            self.complete = self.target.exists() and self.target.samefile(content)  # a kill came before the folder went
            if not self.complete:
                raise StorageError(f"'{content}' has another name, under which it must not change; {_ANEW}")
            return
        self._open()
        self._verify(head, [one["sha256"] for one in rest if "complete" not in one])
        os.ftruncate(self._content, self._end)
        os.lseek(self._content, self._end, os.SEEK_SET)

    def _begin(self, head: bytes, identity: dict[str, Any]) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.folder / _CONTENT)
        self._open(os.O_CREAT)
        write_all(self._content, head)
        os.fsync(self._content)
        self._end = len(head)
        self._note({"identity": identity})
        sync_directory(self.folder)
        sync_directory(self.folder.parent)

    def _open(self, flags: int = 0) -> None:
        path = self.folder / _CONTENT
        self._content = os.open(path, os.O_RDWR | flags | getattr(os, "O_BINARY", 0), 0o666)

    def _verify(self, head: bytes, digests: list[str]) -> None:
        """Refuse content that is not what the journal says."""
        good = _digest(self._content, len(head)) == hashlib.sha256(head).hexdigest()
        for block, expected in zip(self.blocks, digests):
            good = good and _digest(self._content, block.size) == expected
        if not good:
            raise StorageError(f"'{self.folder / _CONTENT}' is not what was written there; {_ANEW}")

    def _is_empty(self) -> bool:
        """Whether it is ours, and nobody would miss it."""
        if self._journal is None:
            return False
        return not self.blocks and (self._new or not os.fstat(self._journal.fileno()).st_size)

    def close(self) -> None:
        """Let go of the files; what is finished stays."""
        if self._content >= 0:
            os.close(self._content)
        if self._journal is not None:
            self._journal.close()  # and with it the lock goes


@contextmanager
def opened(
    target: Path,
    head: bytes,
    identity: dict[str, Any],
    *,
    overwrite: bool,
    restart: bool,
    derived: Collection[str] = (),
) -> Iterator[Draft]:
    """The draft of a file, nobody else's as long as it is open: as far as it was made before, or a new one.

    Args:
        target: the file to be.
        head: what it begins with.
        identity: JSON that says what is made. A draft of anything else is refused.
        overwrite: whether a file that is there already may be replaced.
        restart: whether to throw away what was made before.
        derived: names in the identity that follow from others: a refusal speaks of them where nothing else changed.
    """
    draft = Draft(target, _overwrite=overwrite)
    folder, made = draft.folder, False
    identity = json.loads(json.dumps(identity))
    try:
        with storage_errors(f"cannot write to '{target}'", "name another file"):
            if not folder.is_dir():
                _refuse_target(target, overwrite)
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):  # somebody is faster; the lock decides
                    folder.mkdir()
                    made = True
            elif strange := sorted(set(os.listdir(folder)) - {_CONTENT, _JOURNAL}):
                raise StorageError(
                    f"'{folder}' is the folder to work in, and holds other things ('{strange[0]}'); move them away, or "
                    "name another file"
                )
            busy = f"'{target}' is being made by another process; wait for it, or name another file"
            draft._journal = open_locked(folder / _JOURNAL, busy)
            if restart:
                _refuse_target(target, overwrite)
                os.ftruncate(draft._journal.fileno(), 0)
            try:
                draft._read(head, identity, derived)
            except (KeyError, TypeError, ValueError) as error:
                raise StorageError(f"'{folder}' is not usable: its journal is not as written; {_ANEW}") from error
            if not draft.complete:
                _refuse_target(target, overwrite)
        yield draft
    finally:
        if draft._is_empty():
            draft.remove()
        draft.close()
        if made:
            with suppress(OSError):
                folder.rmdir()  # where nothing is in it


def folder_of(target: Path) -> Path:
    """Where a file is made."""
    return target.with_name(target.name + SUFFIX)


def _refuse_target(target: Path, overwrite: bool) -> None:
    if target.is_dir():
        raise StorageError(f"'{target}' is a directory; name a file")
    if os.path.lexists(target) and not overwrite:
        raise StorageError(f"'{target}' is there already; pass overwrite=True to replace it, or name another file")


def _line(content: dict[str, Any]) -> bytes:
    """A line of the journal, which begins with a digest of itself."""
    return f"{canonical_sha256(content)[:16]} {json.dumps(content)}\n".encode()


def _lines(raw: bytes) -> tuple[list[dict[str, Any]], int]:
    """The whole lines of a journal, and where the last one ends: what is behind it was cut off by a kill."""
    end = raw.rfind(b"\n") + 1
    found = []
    for line in raw[:end].splitlines():
        digest, _, text = line.partition(b" ")
        content = parse_json(text)
        if not isinstance(content, dict) or canonical_sha256(content)[:16].encode() != digest:
            raise ValueError("a line is not what was written")
        found.append(content)
    return found, end


def _digest(fd: int, size: int) -> str:
    """The sha256 of the next bytes, as many of them as there are."""
    digest = hashlib.sha256()
    while size:
        got = os.read(fd, min(size, _READ))
        if not got:
            break
        digest.update(got)
        size -= len(got)
    return digest.hexdigest()


def _differences(before: Any, now: dict[str, Any], derived: Collection[str]) -> str:
    """What is not the same; long digests are not shown, nor what follows from the rest."""
    if not isinstance(before, dict):
        raise TypeError("it does not say what it is of")
    found = {}
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old != new:
            shown = [one for one in (old, new) if not isinstance(one, str) or len(one) < 64]
            found[name] = f"{name} was {old!r:.80} and is {new!r:.80}" if len(shown) == 2 else f"{name} changed"
    return ", ".join([text for name, text in found.items() if name not in derived] or found.values())
