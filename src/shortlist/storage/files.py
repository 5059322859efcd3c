"""Reading and writing of files: each file is written once, flushed to disk, and then mapped or read once."""

from __future__ import annotations

import errno
import hashlib
import mmap
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

_BLOCK = 8 << 20  # large enough for a negligible cost per call, small enough to be hashed from the CPU cache
_BINARY = getattr(os, "O_BINARY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # opening a named pipe must not wait for a writer


def write_file(path: Path, chunks: Iterable[memoryview]) -> tuple[int, str]:
    """Create a file from byte views, without copying them, and flush it to disk; return its size and sha256."""
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
    """Open a file for reading and writing, create it if it is missing, and lock it for as long as it is open.

    Raise StorageError with the message `busy` if another process has locked it. The lock of a killed process is
    released by the system. A file that cannot be locked at all is refused too, and removed if it was created here.
    """
    created = not os.path.lexists(path)
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | _BINARY, 0o666), "r+b")
    try:
        _lock(file.fileno())
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        raise BlockingIOError  # the process that had locked it has just removed it
    except BlockingIOError:
        file.close()
        raise StorageError(busy, code="busy") from None
    except OSError as error:
        file.close()
        if created:
            with suppress(OSError):
                os.unlink(path)
        raise StorageError(
            f"'{path}' cannot be locked against other processes: {error.strerror or error}",
            code="not-writable",
            hint="choose a file on a file system that supports locks",
        ) from error


def _lock(fd: int) -> None:
    with suppress(ImportError):  # Windows has no such locks
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_all(fd: int, content: bytes | memoryview) -> None:
    """Write all bytes at the current position."""
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view[:_BLOCK]) :]


def sync_directory(path: Path) -> None:
    """Flush the entries of a directory to disk."""
    if os.name == "nt":  # directories cannot be opened there; the file system journals its entries
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_regular(path: Path) -> FileIO:
    """Open a regular file for reading; refuse links, pipes, devices and directories."""
    try:
        fd = os.open(path, os.O_RDONLY | _NOFOLLOW | _NONBLOCK | _BINARY)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise StorageError(
                f"'{path}' is a symbolic link; a model must have regular files only: copy the file that it points to"
            ) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise StorageError(f"'{path}' is not a regular file; a model must have regular files only")
    return open(fd, "rb", buffering=0)


def file_size(file: FileIO) -> int:
    """Return the size of an open file in bytes."""
    return os.fstat(file.fileno()).st_size


def machine_memory() -> int:
    """Return the memory of this machine in bytes, or 2⁶² if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def read_exactly(file: FileIO, size: int) -> tuple[NDArray[np.uint8], str]:
    """Return the first `size` bytes of an open file and their sha256, read in a single pass.

    Memory is allocated before reading, so callers must compare `size` with `file_size` first.
    """
    buffer = np.empty(size, dtype=np.uint8)
    digest = hashlib.sha256()
    view, done = buffer.data, 0
    while done < size:
        n_read = file.readinto(view[done : done + _BLOCK])
        if not n_read:
            raise EOFError(f"it ends after {done} bytes, expected {size}")
        digest.update(view[done : done + n_read])
        done += n_read
    return buffer, digest.hexdigest()


def map_file(file: FileIO, size: int) -> NDArray[np.uint8]:
    """Map the first `size` bytes of an open file into memory; processes that map the same file share its pages.

    The pages are private once they are written to, so nothing can change the file. The mapping stays valid when the
    file is deleted or its name is given to another file; a file that is cut in place ends the process (SIGBUS).
    """
    if not size:
        return np.empty(0, np.uint8)
    return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY), np.uint8)


def sha256_of(content: NDArray[np.uint8]) -> str:
    """Return the sha256 of a mapped file."""
    digest = hashlib.sha256()
    for start in range(0, len(content), _BLOCK):
        digest.update(content[start : start + _BLOCK].data)
    return digest.hexdigest()
