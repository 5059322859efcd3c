"""What a file is by its first bytes, whatever its name says, and what to do where that is no file of events."""

from __future__ import annotations

import zipfile
from pathlib import Path

from shortlist.data.csv_lines import shortened
from shortlist.errors import DataError

_LOOK = 1024
_PACKED = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"7z\xbc\xaf": "7z", b"Rar!": "rar"}


def refuse_other_content(path: Path, kind: str | None, row: str = "event") -> None:
    """Refuse a file that cannot be what it is to be read as (`kind`; None where that is not known yet).

    `row` is what it should have in its rows; of events the format can be said too.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(_LOOK)
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {error.strerror or error}") from error
    if not start:
        raise DataError(f"{path} is empty (0 bytes); expected {row}s: was it written, or downloaded, to the end?")
    if start.startswith(b"PK\x03\x04"):
        raise _is_zip(path)
    if start.startswith(b"\xd0\xcf\x11\xe0"):
        raise DataError(f"{path} is an Office file, such as an Excel workbook; save the sheet as CSV and pass that")
    for mark, program in _PACKED.items():
        if start.startswith(mark):
            raise DataError(f"{path} is packed ({program}); unpack it first, or pack it with gzip")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or (b"\0" in start[:2] and kind in ("csv", "tsv", "jsonl")):
        raise DataError(f"{path} is UTF-16 text; convert it, for example with iconv -f utf-16 -t utf-8")
    if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise DataError(f"{path} is a web page; was it downloaded from a page that asks for something first?")
    if start.startswith(b"PAR1") and kind not in ("parquet", None):
        say = " or pass format='parquet'" if row == "event" else ""
        raise DataError(f"{path} is a Parquet file although its name says {kind}; rename it{say}")
    if kind == "parquet" and not start.startswith(b"PAR1"):
        say = "pass format='csv'" if row == "event" else "rename it"
        if start.startswith(b"\x1f\x8b"):
            raise DataError(f"{path} is a gzipped file, not a Parquet file; unpack it or, if it is CSV, {say}")
        line = start.split(b"\n")[0]
        found = f" but begins with {shortened(line)}; if it is CSV, {say}" if _is_text(line) else ""
        raise DataError(f"{path} is not a Parquet file: it does not begin with the mark PAR1{found}")


def _is_zip(path: Path) -> DataError:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        names = []
    if any(name.startswith("xl/") for name in names):
        return DataError(f"{path} is an Excel workbook; save the sheet as CSV and pass that")
    holds = f" that holds {', '.join(names[:3])}{' …' * (len(names) > 3)}" if names else ""
    return DataError(f"{path} is a zip archive{holds}; unpack it first")


def _is_text(data: bytes) -> bool:
    return data.decode("utf-8", "replace").isprintable() and bool(data.strip())
