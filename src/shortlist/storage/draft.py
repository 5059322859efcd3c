"""A file that is written block by block over a long time, and survives a kill at any moment.

While the target `lists.parquet` is written, a folder `lists.parquet.parts` next to it has two files. `content` is the
part of the target that is written so far. `journal` identifies the work and has one line per finished block: its size,
its sha256, and information from the caller. A block is flushed to disk before its line is written, so the journal never
lists a block that does not exist. When the work is resumed, anything after the last listed block is cut off.

At the end, `content` is renamed to the target in one step, and the folder is removed. If no file may be replaced,
`content` is hard-linked to the target instead, which fails if a file has appeared there in the meantime.
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

from shortlist._phrases import count
from shortlist._wording import Message, Phrase
from shortlist.errors import StorageError
from shortlist.storage.files import open_locked, sync_directory, write_all
from shortlist.storage.strict_json import canonical_sha256, parse_json
from shortlist.storage.wrap_errors import storage_errors

SUFFIX = ".parts"
_CONTENT, _JOURNAL = "content", "journal"
_READ = 8 << 20  # bytes
_RESTART = Message("pass {restart} to start over", restart=True)


@dataclass(frozen=True)
class DraftBlock:
    """A finished block: its offset, its size in bytes, and information from the caller."""

    offset: int
    size: int
    about: dict[str, Any]


@dataclass(eq=False)
class Draft:
    """An unfinished file with its finished `blocks`; `complete` if the target had been finished before a kill."""

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
        """The folder of the unfinished file."""
        return folder_of(self.target)

    def append(self, content: bytes | memoryview, about: dict[str, Any]) -> None:
        """Add a block and flush it to disk; once this returns, it survives a kill and a power loss."""
        view = memoryview(content)
        with self._errors():
            write_all(self._content, view)
            os.fsync(self._content)
            self._note({"size": len(view), "sha256": hashlib.sha256(view).hexdigest(), "about": about})
        self.blocks.append(DraftBlock(self._end, len(view), about))
        self._end += len(view)

    def finish(self, tail: bytes) -> None:
        """Add the end of the file, move the file to the target, and remove the folder."""
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
            except (OSError, AttributeError):  # the target exists, or the file system has no hard links
                _refuse_target(self.target, overwrite=False)
        os.replace(content, self.target)

    def remove(self) -> None:
        """Remove the folder and its files."""
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
        blocks = count(len(self.blocks), "finished block")
        call = Phrase("same-call", "the same call")
        kept = Message("'{}' has the {}; run {} again to resume", self.folder, blocks, call)
        return storage_errors(f"could not write '{self.target}'", kept, "not-writable")

    # --- opening -----------------------------------------------------------------------------------------------------

    def _read(self, head: bytes, identity: dict[str, Any], derived: Collection[str]) -> None:
        """Resume from the journal if it has lines, else start."""
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
                f"'{self.folder}' is the draft of another file: {different}",
                code="checkpoint-differs",
                hint=Message("use the original settings, or {}", _RESTART),
            )
        self._end = len(head)
        for line in rest:
            if "complete" not in line:
                self.blocks.append(DraftBlock(self._end, line["size"], line["about"]))
                self._end += line["size"]
        content = self.folder / _CONTENT
        if not content.exists():
            sizes = [line["complete"] for line in rest if "complete" in line]
            self.complete = bool(sizes) and self.target.is_file() and self.target.stat().st_size == sizes[-1]
            if not self.complete:
                raise StorageError(f"'{content}' is missing", code="checkpoint-damaged", hint=_RESTART)
            return
        if content.stat().st_nlink > 1:
            self.complete = self.target.exists() and self.target.samefile(content)  # killed before the cleanup
            if not self.complete:
                raise StorageError(
                    f"'{content}' has a second hard link, which must not change",
                    code="checkpoint-damaged",
                    hint=_RESTART,
                )
            return
        self._open()
        self._verify(head, [line["sha256"] for line in rest if "complete" not in line])
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
        """Raise StorageError if the content does not match the journal."""
        intact = _digest(self._content, len(head)) == hashlib.sha256(head).hexdigest()
        for block, expected in zip(self.blocks, digests):
            intact = intact and _digest(self._content, block.size) == expected
        if not intact:
            raise StorageError(f"'{self.folder / _CONTENT}' was altered", code="checkpoint-damaged", hint=_RESTART)

    def _is_empty(self) -> bool:
        """Return whether this process has locked the draft and it has nothing worth keeping."""
        if self._journal is None:
            return False
        return not self.blocks and (self._new or not os.fstat(self._journal.fileno()).st_size)

    def close(self) -> None:
        """Close the files; the finished blocks stay on disk."""
        if self._content >= 0:
            os.close(self._content)
        if self._journal is not None:
            self._journal.close()  # this also releases the lock


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
    """Open the draft of a file and lock it: resume an existing draft or start a new one.

    Args:
        target: the path of the finished file.
        head: the first bytes of the file.
        identity: JSON that identifies the work. A draft with another identity is refused.
        overwrite: whether an existing target may be replaced.
        restart: whether to discard an existing draft.
        derived: keys of the identity that follow from other keys. An error message lists them only if no other key
            has changed.
    """
    draft = Draft(target, _overwrite=overwrite)
    folder, created = draft.folder, False
    identity = json.loads(json.dumps(identity))
    try:
        with storage_errors(f"cannot write to '{target}'", "choose another file", "not-writable"):
            if not folder.is_dir():
                _refuse_target(target, overwrite)
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):  # another process was faster; the lock decides
                    folder.mkdir()
                    created = True
            elif foreign := sorted(set(os.listdir(folder)) - {_CONTENT, _JOURNAL}):
                raise StorageError(
                    f"'{folder}' is needed for the unfinished file but contains other files ('{foreign[0]}')",
                    code="target-exists",
                    hint="move them away, or choose another file",
                )
            busy = f"'{target}' is being written by another process; wait until it is finished, or choose another file"
            draft._journal = open_locked(folder / _JOURNAL, busy)
            if restart:
                _refuse_target(target, overwrite)
                os.ftruncate(draft._journal.fileno(), 0)
            try:
                draft._read(head, identity, derived)
            except (KeyError, TypeError, ValueError) as error:
                raise StorageError(
                    f"'{folder}' cannot be used: its journal is damaged", code="checkpoint-damaged", hint=_RESTART
                ) from error
            if not draft.complete:
                _refuse_target(target, overwrite)
        yield draft
    finally:
        if draft._is_empty():
            draft.remove()
        draft.close()
        if created:
            with suppress(OSError):
                folder.rmdir()  # only succeeds if it is empty


def folder_of(target: Path) -> Path:
    """Return the folder of the draft of a file."""
    return target.with_name(target.name + SUFFIX)


def _refuse_target(target: Path, overwrite: bool) -> None:
    if target.is_dir():
        raise StorageError(f"'{target}' is a directory; expected a file", code="target-exists")
    if os.path.lexists(target) and not overwrite:
        hint = Message("pass {overwrite} to replace it, or choose another file", overwrite=True)
        raise StorageError(f"'{target}' already exists", code="target-exists", field="overwrite", hint=hint)


def _line(content: dict[str, Any]) -> bytes:
    """Return a line of the journal, which starts with its own digest."""
    return f"{canonical_sha256(content)[:16]} {json.dumps(content)}\n".encode()


def _lines(raw: bytes) -> tuple[list[dict[str, Any]], int]:
    """Return the complete lines of a journal and the end of the last one; a kill may leave part of a line after it."""
    end = raw.rfind(b"\n") + 1
    lines = []
    for line in raw[:end].splitlines():
        digest, _, text = line.partition(b" ")
        content = parse_json(text)
        if not isinstance(content, dict) or canonical_sha256(content)[:16].encode() != digest:
            raise ValueError("a line does not match its digest")
        lines.append(content)
    return lines, end


def _digest(fd: int, size: int) -> str:
    """Return the sha256 of the next `size` bytes, or of fewer at the end of the file."""
    digest = hashlib.sha256()
    while size:
        block = os.read(fd, min(size, _READ))
        if not block:
            break
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()


def _differences(before: Any, now: dict[str, Any], derived: Collection[str]) -> str:
    """Describe the changed keys of an identity, without long digests and without keys that follow from others."""
    if not isinstance(before, dict):
        raise TypeError("it has no identity")
    changes = {}
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old != new:
            short = all(not isinstance(value, str) or len(value) < 64 for value in (old, new))
            changes[name] = f"{name} was {old!r:.80} and is {new!r:.80}" if short else f"{name} changed"
    return ", ".join([text for name, text in changes.items() if name not in derived] or changes.values())
