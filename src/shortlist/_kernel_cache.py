"""Where compiled kernels are kept between processes.

Numba keeps them beside the source, or where `NUMBA_CACHE_DIR` says, and only where it can write. Here

* a folder that can only be read is read all the same: an image is built by one user and run by another;
* where one folder cannot be written, the next is tried, and a full disk ends no fit;
* a kernel is compiled again when any file of Shortlist that its own file imports has changed: Numba looks at its own
  file alone, and serves old code where a function that it has inlined is new;
* an entry says what it is. Numba writes the index before the code, so that a crash between the two, or another process,
  could put the code of one kernel under the name of another.
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
_HOW = f"set {VARIABLE} to a folder that can be written"


@dataclass(frozen=True)
class Folder:
    """A place for kernels, and who says so."""

    path: Path | None  # None: beside the source
    why: str
    private: bool = False  # whether nobody else may own it
    closed: bool = False  # whether nobody else may look into it

    def __str__(self) -> str:
        return f"{_HOME}/**/__pycache__" if self.path is None else str(self.path)

    def beside(self, source: Path) -> Path:
        """Return the folder for the kernels of a file."""
        if self.path is None:
            return source.parent / "__pycache__"
        where = hashlib.sha256(os.fsencode(source.parent)).hexdigest()[:16]  # as there may be several installations
        return self.path / f"{source.parent.name}-{where}"

    def usable(self) -> bool:
        """Return whether it may be read: kernels are code, so those of someone else are not."""
        if self.path is None or not self.private or not hasattr(os, "geteuid"):
            return True
        try:
            found = os.lstat(self.path) if self.closed else os.stat(self.path)
        except OSError:
            return False  # not there, and whoever makes it now is not known
        shared = stat.S_IMODE(found.st_mode) & 0o077
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not (self.closed and shared)

    def make(self, folder: Path) -> None:
        """Make a folder of kernels inside it; OSError where that cannot be."""
        if self.path is not None:
            self.path.mkdir(mode=0o700 if self.closed else 0o777, parents=True, exist_ok=True)
        if not self.usable():
            raise PermissionError(errno.EPERM, "it is someone else's, or open to others")
        folder.mkdir(parents=True, exist_ok=True)

    def writable(self) -> bool:
        """Return whether kernels can be put into it."""
        place = self.beside(_HOME / "kernels.py")
        try:
            self.make(place)
            with tempfile.TemporaryFile(dir=place):
                return True
        except OSError:
            return False


def folders() -> list[Folder]:
    """Return the places to look for kernels, and to put new ones into the first that can be written.

    A place that the user names is the only one, unless it cannot be written.
    """
    chosen = []
    if given := numba.config.CACHE_DIR:  # type: ignore[attr-defined]
        chosen.append(Folder(Path(os.path.abspath(given)), "NUMBA_CACHE_DIR"))
    if given := os.environ.get(VARIABLE, "").strip():
        chosen.append(Folder(Path(os.path.abspath(os.path.expanduser(given))), VARIABLE))
    for k, one in enumerate(chosen, 1):
        if one.writable():
            return chosen[:k]
    own = Path(AppDirs(appname="shortlist", appauthor=False).user_cache_dir)  # type: ignore[no-untyped-call]
    found = [*chosen, Folder(None, "beside the package")]
    if own.is_absolute():  # without a home it is not
        found.append(Folder(own, "the user's cache", private=True))
    with suppress(OSError):  # no folder for temporary files
        user = os.geteuid() if hasattr(os, "geteuid") else "kernels"
        place = Path(tempfile.gettempdir()).absolute() / f"shortlist-{user}"
        found.append(Folder(place, "temporary files", private=True, closed=True))
    return found


def writable() -> Folder | None:
    """Return the first place that can be written, None where none can."""
    return next((one for one in folders() if one.writable()), None)


class KernelCache(FunctionCache):
    """The compiled versions of one kernel on disk; Numba asks it before it compiles, and hands it what it compiled.

    Those `for_kernels` cannot be called from Python; they are in the same files under other keys.
    """

    def __init__(self, kernel: Callable[..., Any], for_kernels: bool = False) -> None:
        self._py_func, self._name, self._for_kernels = kernel, repr(kernel), for_kernels
        self._source = Path(os.path.abspath(kernel.__code__.co_filename))
        self._stamp = _stamp(self._source)  # now: an upgrade may replace the files while this process runs
        if not for_kernels:
            _caches.append(self)

    @property
    def cache_path(self) -> str:
        """Where kernels are looked for first."""
        return str(self._places[0][0].beside(self._source))

    @cached_property
    def _places(self) -> list[tuple[Folder, _Entries]]:
        code, tag = self._py_func.__code__, sys.implementation.cache_tag
        name = re.sub("[<>]", "", f"{self._source.stem}.{self._py_func.__qualname__}-{code.co_firstlineno}.{tag}")
        return [(one, _entries(one.beside(self._source), name, self._stamp)) for one in _folders()]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel for these types from the first folder that has it, None where none has."""
        target_context.refresh()
        key = self._index_key(sig, target_context.codegen())
        for folder, entries in self._places:
            if folder.usable() and (payload := entries.load(key)) is not None:
                return CompileResult._rebuild(target_context, *payload)  # type: ignore[no-untyped-call]
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel in the first folder that takes it."""
        if data.library.has_dynamic_globals:
            return
        key, payload = self._index_key(sig, data.library.codegen), data._reduce()
        trouble = []
        for folder, entries in self._places:
            try:
                folder.make(folder.beside(self._source))
                entries.save(key, payload)
                return
            except OSError as error:
                trouble.append(f"{folder.beside(self._source)}: {error.strerror or error}")
        _not_kept(trouble)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return super()._index_key(sig, codegen), self._for_kernels  # type: ignore[no-untyped-call]

    def is_kept(self) -> bool:
        """Return whether it is on disk, for any types."""
        return any(folder.usable() and entries.any() for folder, entries in self._places)

    def flush(self) -> None:
        """Forget nothing: Numba calls it to compile everything anew, which nobody does here."""


class _Entries(IndexDataCacheFile):
    """The files of one kernel in one folder. What cannot be read, or is of another kernel, is not there."""

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._source_stamp, key, data))  # type: ignore[no-untyped-call]

    def load(self, key: Any) -> Any:
        try:
            stamp, found, data = super().load(key)  # type: ignore[no-untyped-call]
        except Exception:  # whatever a damaged pickle raises, and None where there is none
            return None
        return data if (stamp, found) == (self._source_stamp, key) else None

    def any(self) -> bool:
        """Return whether there are some."""
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
_unkept: list[str] = []  # what went wrong
_told: list[bool] = []


def _not_kept(trouble: list[str]) -> None:
    """Say, once in a process, that kernels are compiled for this process alone."""
    _unkept.extend(trouble)
    if not _told and not silenced():
        _told.append(True)
        note(f"compiled kernels cannot be kept, so every process compiles them again; {_HOW} ({'; '.join(trouble)})")


def require_kept() -> None:
    """Raise an error where something that was compiled could not be kept."""
    if _unkept:
        raise ShortlistError(f"compiled kernels cannot be kept ({'; '.join(dict.fromkeys(_unkept))}); {_HOW}")


def compiled_ahead() -> tuple[int, int]:
    """Return how many kernels are on disk, of those that have been imported, and how many have been imported."""
    return sum(one.is_kept() for one in _caches), len(_caches)


def kernel_modules() -> list[str]:
    """Return the modules that have kernels."""
    named = {path: ".".join(["shortlist", *path.relative_to(_HOME).with_suffix("").parts]) for path in _sources()}
    return sorted(name for path, name in named.items() if _HOME / "_numba.py" in _read(path)[1])


# --- what a kernel is compiled from ----------------------------------------------------------------------------------


@cache
def _stamp(source: Path) -> str:
    """Return a digest of a file and of all files of Shortlist that it imports, directly or not."""
    pending, seen = [source], {source}
    while pending:
        for one in _read(pending.pop())[1] - seen:
            seen.add(one)
            pending.append(one)
    digest = hashlib.sha256(__version__.encode())
    for one in sorted(seen):
        digest.update(_read(one)[0])
    return digest.hexdigest()


@cache
def _read(source: Path) -> tuple[bytes, set[Path]]:
    """Return a digest of a file, and the files of Shortlist that it imports at its top."""
    content = source.read_bytes()
    imported = {
        path for found in _IMPORT.finditer(content.decode(errors="replace")) for path in _files(*found.groups())
    }
    return hashlib.sha256(content).digest(), imported


def _files(module: str, names: str) -> Iterator[Path]:
    """Give the files behind `from module import names`: a name may be a module too."""
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
