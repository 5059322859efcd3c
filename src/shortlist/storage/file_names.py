"""Names of the files in a model directory.

Every save has a unique ticket and puts it into the name of every file that it writes. So two saves never write the same
file, and for a file that no manifest lists, the ticket tells whether its writer may still be running.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import time
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANIFEST = "manifest.json"

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_TABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_TICKET = r"(?P<place>[0-9a-f]{8})-(?P<pid>[0-9]{1,10})-(?P<nonce>[0-9a-f]{16})"
_OURS = re.compile(rf"(?:arrays|manifest|table-{_TABLE.pattern})-(?P<ticket>{_TICKET})\.(?:safetensors|arrow|tmp)")

# If the writer's process cannot be checked (another host, another container, Windows), its unfinished files count as
# abandoned after a day.
_ABANDONED_AFTER_S = 24 * 3600.0

_active: set[str] = set()  # tickets of the saves that are running in this process


def is_plain(name: str) -> bool:
    """Return whether `name` is a plain file name: no separator, no leading dot, no drive, no device."""
    return _PLAIN.fullmatch(name) is not None


def is_table_name(name: str) -> bool:
    """Return whether `name` is a valid name of a table: short enough to be part of a file name."""
    return _TABLE.fullmatch(name) is not None


def is_ours(name: str) -> bool:
    """Return whether a file name has the form that only a save of Shortlist gives; the manifest does not count."""
    return _OURS.fullmatch(name) is not None


def arrays_file(ticket: str) -> str:
    """Return the name of the arrays file of the save with this ticket."""
    return f"arrays-{ticket}.safetensors"


def table_file(table: str, ticket: str) -> str:
    """Return the file name of a table of the save with this ticket."""
    return f"table-{table}-{ticket}.arrow"


def manifest_draft(ticket: str) -> str:
    """Return the temporary name of a new manifest, until it replaces the old one."""
    return f"manifest-{ticket}.tmp"


def staging_directory(target: Path, ticket: str) -> Path:
    """Return the hidden sibling of `target` in which a first save is prepared."""
    return target.parent / f"{_staging_prefix(target)}{ticket}.tmp"


@contextmanager
def take_ticket() -> Iterator[str]:
    """Return a unique ticket, marked as in use until the block ends."""
    ticket = f"{_place()}-{os.getpid()}-{secrets.token_hex(8)}"
    _active.add(ticket)
    try:
        yield ticket
    finally:
        _active.discard(ticket)


def abandoned_files(directory: Path) -> list[str]:
    """Return the names of files in `directory` that a save wrote and whose writer is no longer running."""
    return [name for name in os.listdir(directory) if (m := _OURS.fullmatch(name)) and _gone(m, directory / name)]


def abandoned_staging(target: Path) -> list[Path]:
    """Return the staging directories of `target` whose writer is no longer running."""
    pattern = re.compile(rf"{re.escape(_staging_prefix(target))}(?P<ticket>{_TICKET})\.tmp")
    return [
        target.parent / name
        for name in os.listdir(target.parent)
        if (m := pattern.fullmatch(name)) and _gone(m, target.parent / name)
    ]


def _staging_prefix(target: Path) -> str:
    # A hash, because a long name plus a suffix may be too long for the file system.
    return f".shortlist-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"


def _gone(match: re.Match[str], path: Path) -> bool:
    if os.name == "posix" and match["place"] == _place():
        pid = int(match["pid"])
        return match["ticket"] not in _active if pid == os.getpid() else not _alive(pid)
    try:
        return time.time() - os.lstat(path).st_mtime > _ABANDONED_AFTER_S
    except OSError:
        return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # only checks; on Windows it would end the process, so it is not called there
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


@cache
def _place() -> str:
    """Return a hash of the scope of a process id: the host, and on Linux the PID namespace."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return hashlib.sha256(f"{platform.node()}\n{namespace}".encode()).hexdigest()[:8]
