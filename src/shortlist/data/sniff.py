"""Recognise files by their first bytes, and refuse those that cannot be read, with advice."""

from __future__ import annotations

import zipfile
from pathlib import Path

from shortlist._wording import Message
from shortlist.data.csv_lines import shortened
from shortlist.errors import DataError

_LOOK = 1024
_AS_CSV = "save the sheet as CSV and pass the CSV"
_PACKED = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"7z\xbc\xaf": "7z", b"Rar!": "rar"}


def refuse_other_content(path: Path, file_format: str | None, row: str = "event") -> None:
    """Refuse a file whose content does not match `file_format` (None: not known yet).

    `row` is what messages call a row. Only for events do they suggest to pass `format=`.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(_LOOK)
    except OSError as error:
        raise _unreadable(f"{path} cannot be opened: {error.strerror or error}") from error
    if not start:
        raise DataError(
            f"{path} is empty (0 bytes); expected {row}s: check that it was written or downloaded fully",
            code="empty-data",
        )
    if start.startswith(b"PK\x03\x04"):
        raise _zip_error(path)
    if start.startswith(b"\xd0\xcf\x11\xe0"):
        raise _unreadable(f"{path} is an Office file, such as an Excel workbook", _AS_CSV)
    for mark, program in _PACKED.items():
        if start.startswith(mark):
            raise _unreadable(f"{path} is compressed with {program}", "decompress it, or use gzip instead")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or (b"\0" in start[:2] and file_format in ("csv", "tsv", "jsonl")):
        raise _unreadable(f"{path} is UTF-16 text", "convert it, for example with iconv -f utf-16 -t utf-8")
    if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise _unreadable(
            f"{path} is a web page (HTML)", "check the download link: it may need a login or a confirmation"
        )
    if start.startswith(b"PAR1") and file_format not in ("parquet", None):
        hint = Message("rename it or pass {format}", format="parquet") if row == "event" else "rename it"
        raise _unreadable(f"{path} is a Parquet file although its name says {file_format}", hint)
    if file_format == "parquet" and not start.startswith(b"PAR1"):
        advice = Message("if it is CSV, {}", Message("pass {format}", format="csv") if row == "event" else "rename it")
        if start.startswith(b"\x1f\x8b"):
            raise _unreadable(f"{path} is a gzipped file, not a Parquet file", Message("decompress it or, {}", advice))
        line = start.split(b"\n")[0]
        if _is_text(line):
            raise _unreadable(
                f"{path} is not a Parquet file: it does not begin with PAR1 but with {shortened(line)}", advice
            )
        raise _unreadable(f"{path} is not a Parquet file: it does not begin with PAR1")


def _zip_error(path: Path) -> DataError:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        names = []
    if any(name.startswith("xl/") for name in names):
        return _unreadable(f"{path} is an Excel workbook", _AS_CSV)
    content = f" that holds {', '.join(names[:3])}{' …' * (len(names) > 3)}" if names else ""
    return _unreadable(f"{path} is a zip archive{content}", "unpack it first")


def _unreadable(message: str, hint: str | None = None) -> DataError:
    return DataError(message, code="unreadable-file", hint=hint)


def _is_text(data: bytes) -> bool:
    return data.decode("utf-8", "replace").isprintable() and bool(data.strip())
