"""Writing a model: a crash at any moment leaves the old one or the new one, whole.

Where there is no directory yet, everything is written into a hidden sibling, made durable, and renamed. In a directory
that is a model already, new files join the old ones under names of their own, and the renaming of the new manifest over
the old one is the moment at which the model changes; only after that has become durable are the old files deleted.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from shortlist._version import __version__
from shortlist.errors import StorageError
from shortlist.storage import arrays as array_files
from shortlist.storage import id_tables as table_files
from shortlist.storage.file_names import (
    MANIFEST,
    abandoned_files,
    abandoned_staging,
    arrays_file,
    is_ours,
    manifest_draft,
    staging_directory,
    table_file,
    take_ticket,
)
from shortlist.storage.files import sync_directory, write_file
from shortlist.storage.load import manifest_bytes
from shortlist.storage.manifest import (
    ArrayEntry,
    FileEntry,
    Manifest,
    TableEntry,
    check_array_name,
    check_table_name,
    check_version,
    from_bytes,
    parse_ours,
    to_bytes,
)
from shortlist.storage.strict_json import check_json
from shortlist.storage.wrap_errors import as_directory, storage_errors

if TYPE_CHECKING:
    from shortlist.storage.stored_model import StoredModel

_ELSEWHERE = "save to another path, or remove it first"
_NO_SHA256, _LONGEST = "0" * 64, (1 << 63) - 1  # stand for what only the written file tells


def save_model(path: str | os.PathLike[str], model: StoredModel) -> None:
    """Write `model` to the directory `path`, replacing the Shortlist model there if there is one.

    Missing parent directories are made. A directory that holds something else is refused. When this returns, the model
    is on the disk. When it raises StorageError, what was there before is there still, or, if only the disk's last
    confirmation failed, the new model is, and the message says so. Of several saves to one path at once the last wins.
    """
    target = Path(os.path.abspath(as_directory(path)))  # not resolved: a link to a model directory may be saved through
    with take_ticket() as ticket:
        with storage_errors(f"cannot save this model to '{target}'"):
            _check(model, ticket)
        with storage_errors(f"could not save the model to '{target}'", "what was there before is unchanged"):
            if os.path.lexists(target) or not _save_new(target, model, ticket):
                _save_over(target, model, ticket)
    with suppress(OSError):
        for staging in abandoned_staging(target):
            shutil.rmtree(staging, ignore_errors=True)


def _check(model: StoredModel, ticket: str) -> None:
    """Raise ValueError unless `load_model` will read all of this; nothing on disk is touched."""
    if not isinstance(model.kind, str) or not model.kind:
        raise ValueError(f"its kind is {model.kind!r:.80}, expected the name of a class")
    for name, value in (("settings", model.settings), ("extra", model.extra)):
        if not isinstance(value, dict):
            raise ValueError(f"{name} is of type {type(value).__name__}, expected a dict")
        check_json(value, name, depth=1)  # one level down in the manifest
    for name, array in model.arrays.items():
        check_array_name(name)
        array_files.check_array(name, array)
    for name, table in model.tables.items():
        check_table_name(name)
        table_files.check_table(name, table)
    entries = _array_entries(model)
    size = len(array_files.header(entries)) + sum(map(array_files.byte_count, entries.values()))
    files = {arrays_file(ticket): FileEntry(size, _NO_SHA256)}
    files |= {table_file(name, ticket): FileEntry(_LONGEST, _NO_SHA256) for name in model.tables}
    from_bytes(to_bytes(_manifest(model, ticket, files)))  # as long as the real one, or a few digits longer


def _save_new(target: Path, model: StoredModel, ticket: str) -> bool:
    """Save to a path where nothing is; False when another save was faster and made the directory."""
    made: list[Path] = []
    staging = staging_directory(target, ticket)
    first = True
    try:
        _make_parents(target, made)
        os.mkdir(staging)
        write_file(staging / MANIFEST, [memoryview(_write_parts(staging, model, ticket))])
        sync_directory(staging)
        try:
            os.rename(staging, target)
        except OSError:
            if not target.is_dir():
                raise
            shutil.rmtree(staging, ignore_errors=True)
            first = False  # the parents may still be ours to confirm
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        with suppress(OSError):
            for parent in reversed(made):
                os.rmdir(parent)
        raise
    _confirm(target, [target.parent, *(parent.parent for parent in reversed(made))])
    return first


def _save_over(target: Path, model: StoredModel, ticket: str) -> None:
    """Save into a directory that is empty or a model already."""
    _files_standing(target)
    draft = target / manifest_draft(ticket)
    try:
        write_file(draft, [memoryview(_write_parts(target, model, ticket))])
        sync_directory(target)
        replaced = _files_standing(target)  # once more: another save may have come first
        os.replace(draft, target / MANIFEST)
    except BaseException:
        _withdraw(target, ticket)
        raise
    _confirm(target, [target])
    _sweep(target, ticket, replaced)


def _write_parts(directory: Path, model: StoredModel, ticket: str) -> bytes:
    """Write arrays and tables; the manifest that describes them."""
    name = arrays_file(ticket)
    files = {name: FileEntry(*write_file(directory / name, array_files.encode(_array_entries(model), model.arrays)))}
    for table, frame in model.tables.items():
        name = table_file(table, ticket)
        files[name] = FileEntry(*write_file(directory / name, [table_files.encode(frame)]))
    return to_bytes(_manifest(model, ticket, files))


def _array_entries(model: StoredModel) -> dict[str, ArrayEntry]:
    return {name: ArrayEntry(a.dtype.name, tuple(int(n) for n in a.shape)) for name, a in model.arrays.items()}


def _manifest(model: StoredModel, ticket: str, files: dict[str, FileEntry]) -> Manifest:
    tables = {
        name: TableEntry(table_file(name, ticket), frame.height, tuple((c.name, str(c.dtype)) for c in frame))
        for name, frame in model.tables.items()
    }
    return Manifest(
        shortlist_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        kind=model.kind,
        settings=model.settings,
        extra=model.extra,
        arrays_file=arrays_file(ticket),
        arrays=_array_entries(model),
        tables=tables,
        files=files,
    )


def _files_standing(target: Path) -> frozenset[str]:
    """Names of the files of the model at `target`, none in an empty directory; StorageError when it is something else.

    A damaged model may be replaced, as long as its manifest still says that it is one.
    """
    if not target.is_dir():
        raise StorageError(f"cannot save a model to '{target}': that is not a directory; {_ELSEWHERE}")
    names = os.listdir(target)
    if MANIFEST not in names:
        foreign = sorted(name for name in names if not is_ours(name))  # ours: left behind by a save into an empty one
        if foreign:
            raise StorageError(
                f"cannot save a model to '{target}': the directory is not empty and not a Shortlist model "
                f"(it has {foreign[0]!r}{', ...' if len(foreign) > 1 else ''} and no {MANIFEST}); {_ELSEWHERE}"
            )
        return frozenset()
    raw = manifest_bytes(target)
    with storage_errors(f"cannot save a model to '{target}', as its {MANIFEST} is not a known one", _ELSEWHERE):
        found = parse_ours(raw)
        check_version(found)
        files = found.get("files")
        return frozenset(files if isinstance(files, dict) else ())


def _make_parents(target: Path, made: list[Path]) -> None:
    """Make the directories above `target` that are missing, and note them in `made`, outermost first."""
    for parent in reversed(target.parents):
        if not parent.exists():
            with suppress(FileExistsError):  # another save needs it too
                os.mkdir(parent)
                made.append(parent)


def _confirm(target: Path, directories: list[Path]) -> None:
    try:
        for directory in directories:
            sync_directory(directory)
    except OSError as error:
        raise StorageError(
            f"the model at '{target}' is saved and can be loaded, but the disk did not confirm it: {error}; "
            "save again to be sure that it outlives a power loss"
        ) from error


def _withdraw(target: Path, ticket: str) -> None:
    """Delete what an interrupted save wrote, unless the interruption came just after its manifest took its place."""
    with suppress(OSError):
        if (target / MANIFEST).exists() and ticket.encode() in manifest_bytes(target):
            return
        for name in os.listdir(target):
            if ticket in name and is_ours(name):
                with suppress(OSError):
                    os.unlink(target / name)


def _sweep(target: Path, ticket: str, replaced: frozenset[str]) -> None:
    """Delete what no longer belongs to the model: the files it had before, and what dead saves left.

    Files are judged before the manifest is read. A writer gone by then has committed before, or never will; so a file
    of it that the manifest does not name is needed by nobody. Files of a save still at work are left alone.
    """
    with suppress(OSError, ValueError):
        old = {name for name in os.listdir(target) if is_ours(name) and (name in replaced or ticket in name)}
        old.update(abandoned_files(target))
        needed = parse_ours(manifest_bytes(target)).get("files")
        if not isinstance(needed, dict):
            return
        for name in old:
            if name not in needed:
                with suppress(OSError):  # in use on Windows, or another save was faster
                    os.unlink(target / name)
