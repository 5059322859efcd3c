"""Bytes to disk and back: each file is written once, made durable, and read once."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from shortlist.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from io import BufferedRandom, FileIO
    from pathlib import Path

    from numpy.typing import NDArray

_BLOCK = 8 << 20  # large enough that calls cost nothing, small enough to be hashed while still in the cache
_BINARY = getattr(os, "O_BINARY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # opening a named pipe must not wait for someone to write


def write_file(path: Path, chunks: Iterable[memoryview]) -> tuple[int, str]:
    """Create `path` from byte views, without copying them, and make its content durable; its size and sha256."""
    size, digest = 0, hashlib.sha256()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _BINARY, 0o666)
    try:
        for chunk in chunks:
            for start in range(0, len(chunk), _BLOCK):
                block = chunk[start : start + _BLOCK]
                size += len(block)
                digest.update(block)
                while block:
                    block = block[os.write(fd, block) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    return size, digest.hexdigest()


def open_locked(path: Path, busy: str) -> BufferedRandom:
    """A file to read and write, made where there is none, and nobody else's as long as it is open.

    Where another process has it, StorageError with the message `busy`; the lock of a killed process goes with it. What
    cannot be locked at all is refused too, and is not left behind if it was made here.
    """
    made = not os.path.lexists(path)
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | _BINARY, 0o666), "r+b")
    try:
        _lock(file.fileno())
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        raise BlockingIOError  # whoever had it has just removed it
    except BlockingIOError:
        file.close()
        raise StorageError(busy) from None
    except OSError as error:
        file.close()
        if made:
            with suppress(OSError):
                os.unlink(path)
        raise StorageError(
            f"'{path}' cannot be locked against other processes: {error.strerror or error}; name a file on a file "
            "system that has locks"
        ) from error


def _lock(fd: int) -> None:
    with suppress(ImportError):  # Windows has no such locks
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_all(fd: int, content: bytes | memoryview) -> None:
    """Write everything where the file stands."""
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view[:_BLOCK]) :]


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    if os.name == "nt":  # directories cannot be opened there; the file system journals names by itself
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_regular(path: Path) -> FileIO:
    """Open a regular file for reading; links, pipes, devices and directories are refused."""
    try:
        fd = os.open(path, os.O_RDONLY | _NOFOLLOW | _NONBLOCK | _BINARY)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise StorageError(
                f"'{path}' is a symbolic link; a model is made of regular files only: copy the file it points to"
            ) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise StorageError(f"'{path}' is not a regular file; a model is made of regular files only")
    return open(fd, "rb", buffering=0)


def file_size(file: FileIO) -> int:
    """How many bytes an open file has."""
    return os.fstat(file.fileno()).st_size


def machine_memory() -> int:
    """How many bytes of memory this machine has, or a number beyond all machines where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def read_exactly(file: FileIO, size: int) -> tuple[NDArray[np.uint8], str]:
    """The first `size` bytes of an open file and their sha256, taken from the same single pass.

    Memory is reserved before reading, so the caller first compares `size` with `file_size`.
    """
    buffer = np.empty(size, dtype=np.uint8)
    digest = hashlib.sha256()
    view, done = buffer.data, 0
    while done < size:
        got = file.readinto(view[done : done + _BLOCK])
        if not got:
            raise EOFError(f"it ends after {done} bytes, {size} were expected")
        digest.update(view[done : done + got])
        done += got
    return buffer, digest.hexdigest()
