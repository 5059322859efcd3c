"""Loading of models: files are mapped into memory, so that loading takes milliseconds and processes share the pages.

The manifest, the sizes of files and their headers are always checked. Checksums and values are checked on request.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from shortlist.errors import StorageError
from shortlist.storage import arrays as array_files
from shortlist.storage import id_tables as table_files
from shortlist.storage.file_names import MANIFEST
from shortlist.storage.files import file_size, machine_memory, map_file, open_regular, read_exactly, sha256_of
from shortlist.storage.manifest import MAX_BYTES, Manifest, from_bytes, parse_ours
from shortlist.storage.stored_model import StoredModel
from shortlist.storage.wrap_errors import as_directory, storage_errors

if TYPE_CHECKING:
    import os
    from io import FileIO

    import numpy as np
    from numpy.typing import NDArray

    from shortlist.storage.manifest import FileEntry

_ATTEMPTS = 50
_RESTORE = "restore it from a copy, or save the model again"


def load_model(path: str | os.PathLike[str], *, verify: bool = False, mapped: bool = True) -> StoredModel:
    """Return the model at `path`, or raise StorageError.

    The manifest with its own sha256, the size of every file, and names, dtypes, shapes and numbers of rows are always
    checked.

    Args:
        path: the directory of the model.
        verify: also check the sha256 of every file and that all numbers are finite, which reads everything once.
        mapped: whether arrays and ids are views of the mapped files. They stay valid when another model is saved to the
            directory. A file must never be changed in place. If False, all files are read into memory.
    """
    directory = as_directory(path)
    with storage_errors(f"cannot load the model at '{directory}'", code="model-damaged"), ExitStack() as files:
        manifest, opened = _open(directory, files)

        def content(name: str) -> NDArray[np.uint8]:
            return _content(opened[name], manifest.files[name], verify, mapped)

        tables = {}
        with storage_errors(
            f"the arrays in '{directory / manifest.arrays_file}' cannot be used", _RESTORE, "model-damaged"
        ):
            buffer = content(manifest.arrays_file)
            arrays = array_files.decode(manifest.arrays, manifest.format_version, buffer, verify=verify)
        for name, entry in manifest.tables.items():
            with storage_errors(
                f"the table {name!r} in '{directory / entry.file}' cannot be used", _RESTORE, "model-damaged"
            ):
                tables[name] = table_files.decode(entry, content(entry.file), directory / entry.file)
                if verify:
                    tables[name].frame  # noqa: B018  # reading it checks all values
    return StoredModel(manifest.kind, manifest.settings, arrays, {**tables}, manifest.extra)


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


def _content(file: FileIO, expected: FileEntry, verify: bool, mapped: bool) -> NDArray[np.uint8]:
    size = file_size(file)
    if size != expected.bytes:
        raise ValueError(f"it has {size:,} bytes, the manifest says {expected.bytes:,}")
    if size > machine_memory():  # a sparse file can claim any size and take no space on the disk
        raise ValueError(f"it has {size:,} bytes, but this machine has {machine_memory():,} bytes of memory")
    if mapped:
        content = map_file(file, size)
        sha256 = sha256_of(content) if verify else expected.sha256
    else:
        content, sha256 = read_exactly(file, size)
    if verify and sha256 != expected.sha256:
        raise ValueError(f"it was altered: its sha256 is {sha256}, the manifest says {expected.sha256}")
    return content
