"""Loading of models: check everything, allocate no memory before a file's size is checked, read each file once."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from shortlist.errors import StorageError
from shortlist.storage import arrays as array_files
from shortlist.storage import id_tables as table_files
from shortlist.storage.file_names import MANIFEST
from shortlist.storage.files import file_size, machine_memory, open_regular, read_exactly
from shortlist.storage.manifest import MAX_BYTES, Manifest, from_bytes, parse_ours
from shortlist.storage.stored_model import StoredModel
from shortlist.storage.wrap_errors import as_directory, storage_errors

if TYPE_CHECKING:
    import os
    from io import FileIO

    import numpy as np
    from numpy.typing import NDArray

_ATTEMPTS = 50
_RESTORE = "restore it from a copy, or save the model again"


def load_model(path: str | os.PathLike[str]) -> StoredModel:
    """Return the model at `path`, exactly as it was saved, or raise StorageError.

    Every file is read once and checked against the manifest: the size before it is read, then sha256, names, dtypes,
    shapes and number of rows. Arrays are read-only views of one buffer.
    """
    directory = as_directory(path)
    with storage_errors(f"cannot load the model at '{directory}'", code="model-damaged"), ExitStack() as files:
        manifest, opened = _open(directory, files)
        tables = {}
        arrays_path = directory / manifest.arrays_file
        with storage_errors(f"the arrays in '{arrays_path}' cannot be used", _RESTORE, "model-damaged"):
            buffer = _content(arrays_path, manifest, opened)
            arrays = array_files.decode(manifest.arrays, buffer)
        for name, entry in manifest.tables.items():
            with storage_errors(
                f"the table {name!r} in '{directory / entry.file}' cannot be used", _RESTORE, "model-damaged"
            ):
                raw = _content(directory / entry.file, manifest, opened).tobytes()
                tables[name] = table_files.decode(entry, raw)
    return StoredModel(manifest.kind, manifest.settings, arrays, tables, manifest.extra)


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Return the manifest of the model at `path`, checked against its own sha256; do not read arrays and ids."""
    directory = as_directory(path)
    with storage_errors(f"cannot read '{directory / MANIFEST}'", code="model-damaged"):
        return from_bytes(manifest_bytes(directory))


def is_model(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` has a manifest of a Shortlist model; only `load_model` checks that the model is intact."""
    try:
        with storage_errors(""):
            parse_ours(manifest_bytes(Path(path)))
    except StorageError:
        return False
    return True


def manifest_bytes(directory: Path) -> bytes:
    """Return the bytes of the manifest in `directory`; raise StorageError if there is none."""
    try:
        file = open_regular(directory / MANIFEST)
    except (FileNotFoundError, NotADirectoryError) as error:
        if not directory.exists():
            problem = "it does not exist"
        elif not directory.is_dir():
            problem = "it is a file"
        else:
            problem = f"the directory has no {MANIFEST}"
        raise StorageError(
            f"no model at '{directory}': {problem}; expected a directory written by `save`, with a {MANIFEST}",
            code="model-missing",
            field="path",
        ) from error
    with file:
        size = file_size(file)
        if size > MAX_BYTES:
            raise StorageError(
                f"'{directory / MANIFEST}' has {size:,} bytes; a manifest has at most {MAX_BYTES:,}",
                code="model-damaged",
            )
        return read_exactly(file, size)[0].tobytes()


def _open(directory: Path, files: ExitStack) -> tuple[Manifest, dict[str, FileIO]]:
    """Return the manifest and all its files, open, so that a save can no longer remove them.

    A save may replace the model after its manifest is read and before its files are open. The new manifest is read
    then.
    """
    previous = ""
    for _ in range(_ATTEMPTS):
        manifest = read_manifest(directory)
        try:
            return manifest, {name: files.enter_context(open_regular(directory / name)) for name in manifest.files}
        except FileNotFoundError as error:
            if manifest.sha256 == previous:
                raise StorageError(
                    f"'{error.filename}' is missing from the model at '{directory}'",
                    code="model-damaged",
                    hint=_RESTORE,
                ) from error
            previous = manifest.sha256
            files.close()
    raise StorageError(
        f"the model at '{directory}' was replaced {_ATTEMPTS} times while being read", code="busy", hint="try again"
    )


def _content(path: Path, manifest: Manifest, opened: dict[str, FileIO]) -> NDArray[np.uint8]:
    expected, size = manifest.files[path.name], file_size(opened[path.name])
    if size != expected.bytes:
        raise ValueError(f"it has {size:,} bytes, the manifest says {expected.bytes:,}")
    if size > machine_memory():  # a sparse file can claim any size and take no space on the disk
        raise ValueError(f"it has {size:,} bytes, but this machine has {machine_memory():,} bytes of memory")
    content, sha256 = read_exactly(opened[path.name], size)
    if sha256 != expected.sha256:
        raise ValueError(f"it was altered: its sha256 is {sha256}, the manifest says {expected.sha256}")
    return content
