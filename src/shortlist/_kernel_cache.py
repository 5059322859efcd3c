"""Cache of compiled kernels on disk.

Numba caches kernels next to the source or in `NUMBA_CACHE_DIR`, and only in a writable folder. This cache differs:

* It reads read-only folders, because an image may be built by one user and run by another.
* If a folder cannot be written, it tries the next one. A full disk does not end a fit.
* It compiles a kernel again when any Shortlist file imported by the kernel's file has changed. Numba checks only the
  kernel's own file, and so returns old code when an inlined function has changed.
* Each entry records which kernel it contains. Numba writes the index before the code, so a crash between the two, or
  another process, could store the code of one kernel under the name of another.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler import CompileResult
from numba.misc.appdirs import AppDirs

from shortlist._compile_notes import note, silenced
from shortlist._version import __version__
from shortlist.errors import ShortlistError

VARIABLE = "SHORTLIST_CACHE_DIR"
_HOME = Path(__file__).parent
_IMPORT = re.compile(r"^from (shortlist[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_ADVICE = f"set {VARIABLE} to a writable folder"


@dataclass(frozen=True)
class Folder:
    """A folder for compiled kernels, and where its path comes from."""

    path: Path | None  # None: next to the source
    why: str  # where the path comes from
    private: bool = False  # must belong to the current user
    closed: bool = False  # must not be accessible to other users

    def __str__(self) -> str:
        return f"{_HOME}/**/__pycache__" if self.path is None else str(self.path)

    def beside(self, source: Path) -> Path:
        """Return the folder for the kernels of a source file."""
        if self.path is None:
            return source.parent / "__pycache__"
        digest = hashlib.sha256(os.fsencode(source.parent)).hexdigest()[:16]  # distinguishes several installations
        return self.path / f"{source.parent.name}-{digest}"

    def usable(self) -> bool:
        """Return whether it is safe to read: kernels are code, so those of another user are not loaded."""
        if self.path is None or not self.private or not hasattr(os, "geteuid"):
            return True
        try:
            status = os.lstat(self.path) if self.closed else os.stat(self.path)
        except OSError:
            return False  # it does not exist, and another user could create it now
        shared = stat.S_IMODE(status.st_mode) & 0o077
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not (self.closed and shared)

    def make(self, folder: Path) -> None:
        """Create a subfolder for kernels; raise OSError if that fails."""
        if self.path is not None:
            self.path.mkdir(mode=0o700 if self.closed else 0o777, parents=True, exist_ok=True)
        if not self.usable():
            raise PermissionError(errno.EPERM, "it belongs to another user or is accessible to others")
        folder.mkdir(parents=True, exist_ok=True)

    def writable(self) -> bool:
        """Return whether kernels can be written to it."""
        subfolder = self.beside(_HOME / "kernels.py")
        try:
            self.make(subfolder)
            with tempfile.TemporaryFile(dir=subfolder):
                return True
        except OSError:
            return False


def folders() -> list[Folder]:
    """Return the folders to read kernels from, in order. New kernels go to the first writable one.

    If the user names a writable folder, it is the only one.
    """
    chosen = []
    if given := numba.config.CACHE_DIR:  # type: ignore[attr-defined]
        chosen.append(Folder(Path(os.path.abspath(given)), "NUMBA_CACHE_DIR"))
    if given := os.environ.get(VARIABLE, "").strip():
        chosen.append(Folder(Path(os.path.abspath(os.path.expanduser(given))), VARIABLE))
    for k, folder in enumerate(chosen, 1):
        if folder.writable():
            return chosen[:k]
    user_cache = Path(AppDirs(appname="shortlist", appauthor=False).user_cache_dir)  # type: ignore[no-untyped-call]
    candidates = [*chosen, Folder(None, "beside the package")]
    if user_cache.is_absolute():  # relative if the user has no home directory
        candidates.append(Folder(user_cache, "the user's cache", private=True))
    with suppress(OSError):  # there is no folder for temporary files
        user = os.geteuid() if hasattr(os, "geteuid") else "kernels"
        temporary = Path(tempfile.gettempdir()).absolute() / f"shortlist-{user}"
        candidates.append(Folder(temporary, "temporary files", private=True, closed=True))
    return candidates


def writable() -> Folder | None:
    """Return the first writable folder, or None if there is none."""
    return next((folder for folder in folders() if folder.writable()), None)


class KernelCache(FunctionCache):
    """The cache of one kernel, with one entry for each combination of argument types.

    Numba calls `load_overload` before it compiles and `save_overload` after. Versions `for_kernels` cannot be called
    from Python; they are stored in the same files under different keys.
    """

    def __init__(self, kernel: Callable[..., Any], for_kernels: bool = False) -> None:
        self._py_func, self._name, self._for_kernels = kernel, repr(kernel), for_kernels
        self._source = Path(os.path.abspath(kernel.__code__.co_filename))
        self._stamp = _stamp(self._source)  # read now: an upgrade may replace the files while this process runs
        if not for_kernels:
            _caches.append(self)

    @property
    def cache_path(self) -> str:
        """The folder that is searched first."""
        return str(self._places[0][0].beside(self._source))

    @cached_property
    def _places(self) -> list[tuple[Folder, _Entries]]:
        code, tag = self._py_func.__code__, sys.implementation.cache_tag
        name = re.sub("[<>]", "", f"{self._source.stem}.{self._py_func.__qualname__}-{code.co_firstlineno}.{tag}")
        return [(folder, _entries(folder.beside(self._source), name, self._stamp)) for folder in _folders()]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel for these types from the first folder that has it, or None."""
        target_context.refresh()
        key = self._index_key(sig, target_context.codegen())
        for folder, entries in self._places:
            if folder.usable() and (payload := entries.load(key)) is not None:
                return CompileResult._rebuild(target_context, *payload)  # type: ignore[no-untyped-call]
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a kernel in the first folder that can be written."""
        if data.library.has_dynamic_globals:
            return
        key, payload = self._index_key(sig, data.library.codegen), data._reduce()
        errors = []
        for folder, entries in self._places:
            try:
                folder.make(folder.beside(self._source))
                entries.save(key, payload)
                return
            except OSError as error:
                errors.append(f"{folder.beside(self._source)}: {error.strerror or error}")
        _report_not_cached(errors)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return super()._index_key(sig, codegen), self._for_kernels  # type: ignore[no-untyped-call]

    def is_cached(self) -> bool:
        """Return whether the kernel is on disk for at least one combination of types."""
        return any(folder.usable() and entries.any() for folder, entries in self._places)

    def flush(self) -> None:
        """Do nothing: Numba calls this to recompile everything, which Shortlist never requests."""


class _Entries(IndexDataCacheFile):
    """The cache files of one kernel in one folder. Unreadable entries and entries of other kernels count as missing."""

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._source_stamp, key, data))  # type: ignore[no-untyped-call]

    def load(self, key: Any) -> Any:
        try:
            stamp, stored_key, data = super().load(key)  # type: ignore[no-untyped-call]
        except Exception:  # any error from a damaged pickle; TypeError if there is no entry
            return None
        return data if (stamp, stored_key) == (self._source_stamp, key) else None

    def any(self) -> bool:
        """Return whether there is at least one entry."""
        return bool(self._load_index())

    def _load_index(self) -> dict[Any, str]:
        try:
            return dict(super()._load_index())  # type: ignore[no-untyped-call]
        except Exception:
            return {}


def _entries(folder: Path, name: str, stamp: str) -> _Entries:
    return _Entries(str(folder), name, stamp)  # type: ignore[no-untyped-call]


_folders = cache(folders)
_caches: list[KernelCache] = []
_cache_errors: list[str] = []
_noted: list[bool] = []  # not empty once the user has been told


def _report_not_cached(errors: list[str]) -> None:
    """Tell the user, once per process, that compiled kernels cannot be cached."""
    _cache_errors.extend(errors)
    if not _noted and not silenced():
        _noted.append(True)
        reasons = "; ".join(errors)
        note(f"compiled kernels cannot be cached, so every process compiles them again; {_ADVICE} ({reasons})")


def require_cached() -> None:
    """Raise an error if a kernel that this process compiled could not be cached."""
    if _cache_errors:
        reasons = "; ".join(dict.fromkeys(_cache_errors))
        raise ShortlistError(f"compiled kernels cannot be cached ({reasons})", code="kernel-cache", hint=_ADVICE)


def count_cached() -> tuple[int, int]:
    """Return how many of the imported kernels are on disk, and how many kernels are imported."""
    return sum(cache.is_cached() for cache in _caches), len(_caches)


def kernel_modules() -> list[str]:
    """Return the names of the modules that define kernels."""
    names = {path: ".".join(["shortlist", *path.relative_to(_HOME).with_suffix("").parts]) for path in _sources()}
    return sorted(name for path, name in names.items() if _HOME / "_numba.py" in _read(path)[1])


# --- the sources of a kernel -----------------------------------------------------------------------------------------


@cache
def _stamp(source: Path) -> str:
    """Return a digest of a file and of all Shortlist files that it imports, directly or indirectly."""
    pending, seen = [source], {source}
    while pending:
        for imported in _read(pending.pop())[1] - seen:
            seen.add(imported)
            pending.append(imported)
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(seen):
        digest.update(_read(path)[0])
    return digest.hexdigest()


@cache
def _read(source: Path) -> tuple[bytes, set[Path]]:
    """Return a digest of a file, and the Shortlist files that it imports at module level."""
    content = source.read_bytes()
    imported = {
        path for match in _IMPORT.finditer(content.decode(errors="replace")) for path in _files(*match.groups())
    }
    return hashlib.sha256(content).digest(), imported


def _files(module: str, names: str) -> Iterator[Path]:
    """Yield the files of `from module import names`; each name may itself be a module."""
    home = _HOME.joinpath(*module.split(".")[1:])
    for name in re.findall(r"\w+", names):
        if (path := home / f"{name}.py") in _sources():
            yield path
    for path in (home.with_suffix(".py"), home / "__init__.py"):
        if path in _sources():
            yield path


@cache
def _sources() -> frozenset[Path]:
    return frozenset(_HOME.rglob("*.py"))
