"""Saving of models: a crash at any moment leaves either the complete old model or the complete new one.

If the directory does not exist, everything is written to a hidden sibling directory, flushed to disk, and renamed. If
it already has a model, the new files are written next to the old ones under unique names. Renaming the new manifest
over the old one switches to the new model. The old files are deleted after the rename is flushed to disk.
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
    FORMAT_VERSION,
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

_ADVICE = "save to another path, or remove it first"
_NO_SHA256, _LONGEST = "0" * 64, (1 << 63) - 1  # placeholders until the files are written


def save_model(path: str | os.PathLike[str], model: StoredModel) -> None:
    """Save a model to the directory `path`, replacing an existing Shortlist model.

    Missing parent directories are created. A directory with other content is refused. When this returns, the model is
    on disk. If it raises StorageError, nothing was changed, with one exception: if only the final flush to disk
    failed, the new model is there, and the message says so. If several saves to one path run at once, the last wins.
    """
    target = Path(os.path.abspath(as_directory(path)))  # not resolved: a symbolic link to a model directory is allowed
    with take_ticket() as ticket:
        with storage_errors(f"cannot save this model to '{target}'"):
            _check(model, ticket)
        with storage_errors(f"could not save the model to '{target}'", "nothing was changed"):
            if os.path.lexists(target) or not _save_new(target, model, ticket):
                _save_over(target, model, ticket)
    with suppress(OSError):
        for staging in abandoned_staging(target):
            shutil.rmtree(staging, ignore_errors=True)


def _check(model: StoredModel, ticket: str) -> None:
    """Raise ValueError unless `load_model` will be able to read the model; do not touch the disk."""
    if not isinstance(model.kind, str) or not model.kind:
        raise ValueError(f"its kind is {model.kind!r:.80}, expected a class name")
    for name, value in (("settings", model.settings), ("extra", model.extra)):
        if not isinstance(value, dict):
            raise ValueError(f"{name} is of type {type(value).__name__}, expected a dict")
        check_json(value, name, depth=1)  # it is nested one level deep in the manifest
    for name, array in model.arrays.items():
        check_array_name(name)
        array_files.check_array(name, array)
    for name, table in model.tables.items():
        check_table_name(name)
        table_files.check_table(name, table)
    entries = _array_entries(model)
    size = array_files.file_bytes(entries, FORMAT_VERSION)
    files = {arrays_file(ticket): FileEntry(size, _NO_SHA256)}
    files |= {table_file(name, ticket): FileEntry(_LONGEST, _NO_SHA256) for name in model.tables}
    from_bytes(to_bytes(_manifest(model, ticket, files)))  # as long as the final manifest, or a few digits longer


def _save_new(target: Path, model: StoredModel, ticket: str) -> bool:
    """Save to a path that does not exist; return False if another save has created it in the meantime."""
    created: list[Path] = []
    staging = staging_directory(target, ticket)
    first = True
    try:
        _make_parents(target, created)
        os.mkdir(staging)
        write_file(staging / MANIFEST, [memoryview(_write_parts(staging, model, ticket))])
        sync_directory(staging)
        try:
            os.rename(staging, target)
        except OSError:
            if not target.is_dir():
                raise
            shutil.rmtree(staging, ignore_errors=True)
            first = False  # this save may have created the parents, which must be flushed to disk
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        with suppress(OSError):
            for parent in reversed(created):
                os.rmdir(parent)
        raise
    _flush(target, [target.parent, *(parent.parent for parent in reversed(created))])
    return first


def _save_over(target: Path, model: StoredModel, ticket: str) -> None:
    """Save to a directory that is empty or has a model."""
    _existing_files(target)
    draft = target / manifest_draft(ticket)
    try:
        write_file(draft, [memoryview(_write_parts(target, model, ticket))])
        sync_directory(target)
        replaced = _existing_files(target)  # again: another save may have finished in the meantime
        os.replace(draft, target / MANIFEST)
    except BaseException:
        _withdraw(target, ticket)
        raise
    _flush(target, [target])
    _sweep(target, ticket, replaced)


def _write_parts(directory: Path, model: StoredModel, ticket: str) -> bytes:
    """Write arrays and tables; return the bytes of their manifest."""
    name = arrays_file(ticket)
    chunks = array_files.encode(_array_entries(model), FORMAT_VERSION, model.arrays)
    files = {name: FileEntry(*write_file(directory / name, chunks))}
    for table, ids in model.tables.items():
        name = table_file(table, ticket)
        files[name] = FileEntry(*write_file(directory / name, [table_files.encode(ids)]))
    return to_bytes(_manifest(model, ticket, files))


def _array_entries(model: StoredModel) -> dict[str, ArrayEntry]:
    return {name: ArrayEntry(a.dtype.name, tuple(int(n) for n in a.shape)) for name, a in model.arrays.items()}


def _manifest(model: StoredModel, ticket: str, files: dict[str, FileEntry]) -> Manifest:
    tables = {
        name: TableEntry(
            table_file(name, ticket), ids.height, tuple((column, str(dtype)) for column, dtype in ids.schema.items())
        )
        for name, ids in model.tables.items()
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


def _existing_files(target: Path) -> frozenset[str]:
    """Return the file names of the model at `target`; raise StorageError if it is neither a model nor empty.

    A damaged model can be replaced if its manifest can still be recognised.
    """
    if not target.is_dir():
        message = f"cannot save a model to '{target}': it is not a directory"
        raise StorageError(message, code="target-exists", field="path", hint=_ADVICE)
    names = os.listdir(target)
    if MANIFEST not in names:
        foreign = sorted(name for name in names if not is_ours(name))  # an interrupted save may have left other files
        if foreign:
            raise StorageError(
                f"cannot save a model to '{target}': the directory is not empty and not a Shortlist model "
                f"(it has {foreign[0]!r}{', ...' if len(foreign) > 1 else ''} and no {MANIFEST})",
                code="target-exists",
                field="path",
                hint=_ADVICE,
            )
        return frozenset()
    raw = manifest_bytes(target)
    with storage_errors(
        f"cannot save a model to '{target}', because its {MANIFEST} is not one of Shortlist", _ADVICE, "target-exists"
    ):
        content = parse_ours(raw)
        check_version(content)
        files = content.get("files")
        return frozenset(files if isinstance(files, dict) else ())


def _make_parents(target: Path, created: list[Path]) -> None:
    """Create the missing parent directories of `target`; append them to `created`, outermost first."""
    for parent in reversed(target.parents):
        if not parent.exists():
            with suppress(FileExistsError):  # another save has just created it
                os.mkdir(parent)
                created.append(parent)


def _flush(target: Path, directories: list[Path]) -> None:
    try:
        for directory in directories:
            sync_directory(directory)
    except OSError as error:
        raise StorageError(
            f"the model at '{target}' is saved and can be loaded, but flushing it to disk failed: {error}",
            hint="save again to make sure that it survives a power loss",
        ) from error


def _withdraw(target: Path, ticket: str) -> None:
    """Delete the files of an interrupted save, unless its manifest is already in place."""
    with suppress(OSError):
        if (target / MANIFEST).exists() and ticket.encode() in manifest_bytes(target):
            return
        for name in os.listdir(target):
            if ticket in name and is_ours(name):
                with suppress(OSError):
                    os.unlink(target / name)


def _sweep(target: Path, ticket: str, replaced: frozenset[str]) -> None:
    """Delete the files of the old model and of crashed saves.

    The files of crashed saves are found before the manifest is read. A writer that has ended by then has either
    written its manifest before or never will, so nobody needs a file of it that the manifest does not list. Files of
    saves that are still running are kept.
    """
    with suppress(OSError, ValueError):
        old = {name for name in os.listdir(target) if is_ours(name) and (name in replaced or ticket in name)}
        old.update(abandoned_files(target))
        needed = parse_ours(manifest_bytes(target)).get("files")
        if not isinstance(needed, dict):
            return
        for name in old:
            if name not in needed:
                with suppress(OSError):  # in use (Windows), or another save has deleted it
                    os.unlink(target / name)
