"""The manifest: a list of the contents of a model directory, with checksums."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, TypeVar

from shortlist._version import __version__
from shortlist.storage import arrays as array_files
from shortlist.storage import id_tables as table_files
from shortlist.storage.file_names import MANIFEST, is_plain, is_table_name
from shortlist.storage.strict_json import canonical_sha256, check_json, parse_json

FORMAT = "shortlist-model"
FORMAT_VERSION = 2
READABLE = (1, 2)
MAX_BYTES = 1 << 20  # usually a few KB; parsed JSON can take 20 times its length in memory

_KEYS = {
    *("format", "format_version", "shortlist_version", "created", "kind", "settings", "extra"),
    *("arrays", "tables", "files", "sha256"),
}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_T = TypeVar("_T")


@dataclass(frozen=True)
class ArrayEntry:
    """The name of an array's NumPy dtype, and its shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class TableEntry:
    """A table of ids: its file, its number of rows, and its columns in order as (name, polars dtype)."""

    file: str
    rows: int
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FileEntry:
    """A file of the model: its size in bytes and its sha256."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`.

    Attributes:
        shortlist_version: The version of Shortlist that saved the model.
        created: The time of the save, in UTC, as ISO 8601.
        kind: The registered name of the model's class.
        settings: The model's settings.
        extra: Other small JSON data.
        arrays_file: The safetensors file with all arrays.
        arrays: The arrays by name.
        tables: The tables of ids by name.
        files: All files except the manifest, by name.
        format_version: The version of the file format.
        sha256: The sha256 of the canonical JSON of all the above; it identifies this version of the model.
    """

    shortlist_version: str
    created: str
    kind: str
    settings: dict[str, Any]
    extra: dict[str, Any]
    arrays_file: str
    arrays: dict[str, ArrayEntry]
    tables: dict[str, TableEntry]
    files: dict[str, FileEntry]
    format_version: int = FORMAT_VERSION
    sha256: str = ""

    @property
    def total_bytes(self) -> int:
        """The total size of all files except the manifest."""
        return sum(entry.bytes for entry in self.files.values())


def to_bytes(manifest: Manifest) -> bytes:
    """Return `manifest.json`, indented and with its own sha256; raise ValueError if it is too large to be read back."""
    plain = {
        "format": FORMAT,
        "format_version": manifest.format_version,
        "shortlist_version": manifest.shortlist_version,
        "created": manifest.created,
        "kind": manifest.kind,
        "settings": manifest.settings,
        "extra": manifest.extra,
        "arrays": {
            "file": manifest.arrays_file,
            "entries": {name: {"dtype": e.dtype, "shape": list(e.shape)} for name, e in manifest.arrays.items()},
        },
        "tables": {
            name: {"file": e.file, "rows": e.rows, "columns": [list(column) for column in e.columns]}
            for name, e in manifest.tables.items()
        },
        "files": {name: {"bytes": e.bytes, "sha256": e.sha256} for name, e in manifest.files.items()},
    }
    text = json.dumps({**plain, "sha256": canonical_sha256(plain)}, indent=1, ensure_ascii=True, allow_nan=False)
    raw = text.encode("ascii") + b"\n"
    if len(raw) > MAX_BYTES:
        raise ValueError(
            f"{MANIFEST} would have {len(raw):,} bytes, expected at most {MAX_BYTES:,}; "
            "put large data into arrays or tables, not into settings or extra"
        )
    return raw


def parse_ours(raw: bytes) -> dict[str, Any]:
    """Return the JSON object of a Shortlist manifest, intact or not; raise ValueError if it is something else."""
    content = parse_json(raw)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        shown = repr(content.get("format")) if isinstance(content, dict) else f"a {type(content).__name__}"
        raise ValueError(f"it does not describe a Shortlist model: its format is {shown:.80}, expected {FORMAT!r}")
    return content


def check_version(content: dict[str, Any]) -> None:
    """Raise ValueError unless this version of Shortlist can read the file format."""
    version, writer = content.get("format_version"), content.get("shortlist_version")
    if type(version) is int and version > FORMAT_VERSION:
        raise ValueError(
            f"it was written by Shortlist {writer!s:.40} in format version {version}, but this is Shortlist "
            f"{__version__}, which reads versions up to {FORMAT_VERSION}; upgrade Shortlist to read it"
        )
    if type(version) is not int or version not in READABLE:
        raise ValueError(f"its format_version is {version!r:.40}, expected {' or '.join(map(str, READABLE))}")


def from_bytes(raw: bytes) -> Manifest:
    """Parse `manifest.json` and check all types and its sha256; raise ValueError if anything is wrong."""
    content = parse_ours(raw)
    check_version(content)
    if content.keys() != _KEYS:
        wrong = sorted(content.keys() ^ _KEYS)
        raise ValueError(f"its keys are not those of a Shortlist model: {wrong!r:.200}")
    claimed = _typed(content.pop("sha256"), str, "sha256")
    check_json(content, "the manifest")  # the parser accepts 1e999, which becomes infinity
    if canonical_sha256(content) != claimed:
        raise ValueError("it was altered: its content does not match its own sha256; restore it from a copy")
    arrays = _object(content["arrays"], "arrays", {"file", "entries"})
    manifest = Manifest(
        shortlist_version=_typed(content["shortlist_version"], str, "shortlist_version"),
        created=_typed(content["created"], str, "created"),
        kind=_typed(content["kind"], str, "kind"),
        settings=_object(content["settings"], "settings"),
        extra=_object(content["extra"], "extra"),
        arrays_file=_typed(arrays["file"], str, "arrays.file"),
        arrays={name: _array(name, e) for name, e in _object(arrays["entries"], "arrays.entries").items()},
        tables={name: _table(name, e) for name, e in _object(content["tables"], "tables").items()},
        files={name: _file(name, e) for name, e in _object(content["files"], "files").items()},
        format_version=content["format_version"],
        sha256=claimed,
    )
    _check_files(manifest)
    return manifest


def check_array_name(name: object) -> None:
    """Raise ValueError unless `name` is a valid array name."""
    if not isinstance(name, str) or not is_plain(name) or name == "__metadata__":
        raise ValueError(f"{name!r:.80} cannot name an array; use at most 200 letters, digits, '_', '.' and '-'")


def check_table_name(name: object) -> None:
    """Raise ValueError unless `name` is a valid table name."""
    if not isinstance(name, str) or not is_table_name(name):
        raise ValueError(f"{name!r:.80} cannot name a table; use at most 64 letters, digits, '_', '.' and '-'")


def _array(name: str, value: object) -> ArrayEntry:
    where = f"arrays.entries[{name!r:.80}]"
    check_array_name(name)
    entry = _object(value, where, {"dtype", "shape"})
    dtype = _typed(entry["dtype"], str, f"{where}.dtype")
    if dtype not in array_files.CODES:
        raise ValueError(f"{where}.dtype is {dtype!r:.40}, expected one of {', '.join(array_files.CODES)}")
    shape = tuple(_count(n, f"{where}.shape") for n in _typed(entry["shape"], list, f"{where}.shape"))
    if len(shape) > array_files.MAX_DIMENSIONS:
        raise ValueError(f"{where} has {len(shape)} dimensions, expected at most {array_files.MAX_DIMENSIONS}")
    return ArrayEntry(dtype, shape)


def _table(name: str, value: object) -> TableEntry:
    where = f"tables[{name!r:.80}]"
    check_table_name(name)
    entry = _object(value, where, {"file", "rows", "columns"})
    columns = []
    for column in _typed(entry["columns"], list, f"{where}.columns"):
        if not isinstance(column, list) or len(column) != 2 or not all(isinstance(part, str) for part in column):
            raise ValueError(f"{where}.columns has {column!r:.80}, expected pairs of name and dtype")
        if column[1] not in table_files.DTYPES:
            raise ValueError(f"{where}.columns has the dtype {column[1]!r:.40}, expected an integer or String")
        columns.append((column[0], column[1]))
    if not columns:
        raise ValueError(f"{where} has no columns")
    file, rows = _typed(entry["file"], str, f"{where}.file"), _count(entry["rows"], f"{where}.rows")
    return TableEntry(file, rows, tuple(columns))


def _file(name: str, value: object) -> FileEntry:
    where = f"files[{name!r:.80}]"
    if not is_plain(name) or name == MANIFEST:
        raise ValueError(f"it lists the file {name!r:.80}, which is not a plain file name")
    entry = _object(value, where, {"bytes", "sha256"})
    sha256 = _typed(entry["sha256"], str, f"{where}.sha256")
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"{where}.sha256 is {sha256!r:.80}, expected 64 hexadecimal digits")
    return FileEntry(_count(entry["bytes"], f"{where}.bytes"), sha256)


def _check_files(manifest: Manifest) -> None:
    named = [manifest.arrays_file, *(table.file for table in manifest.tables.values())]
    if sorted(named) != sorted(manifest.files):
        raise ValueError("the files it lists are not the files of its arrays and tables")
    needed = array_files.file_bytes(manifest.arrays, manifest.format_version)
    listed = manifest.files[manifest.arrays_file].bytes
    if needed != listed:
        raise ValueError(f"its arrays take {needed:,} bytes, but their file is listed with {listed:,}")


def _typed(value: object, kind: type[_T], where: str) -> _T:
    if not isinstance(value, kind):
        raise ValueError(f"{where} is of type {type(value).__name__}, expected {kind.__name__}")
    return value


def _count(value: object, where: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{where} has the value {value!r:.40}, expected an integer from 0 to 2⁶³ − 1")
    return value


def _object(value: object, where: str, keys: set[str] | None = None) -> dict[str, Any]:
    members: dict[str, Any] = _typed(value, dict, where)
    if keys is not None and members.keys() != keys:
        raise ValueError(f"{where} has the keys {sorted(members)!r:.200}, expected {sorted(keys)}")
    return members
