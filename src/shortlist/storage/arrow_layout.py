"""A look at an Arrow file before it is handed to a reader that believes it.

Polars reserves memory for what a file claims to unpack to. This checks, without reserving any, that the file is of the
plain kind we write: no compression, no dictionaries, no nulls, every value inside the file and used once, and as many
rows as announced. So what is read can be no larger than the file. The layout is that of the Arrow columnar format, "IPC
file format"; its headers are flatbuffers: a table starts with the distance back to its list of field offsets.
"""

from __future__ import annotations

import struct

_MAGIC = b"ARROW1"
_FOOTER_DICTIONARIES, _FOOTER_BATCHES = 2, 3
_MESSAGE_KIND, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH = 1, 2, 3
_BATCH_LENGTH, _BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION = 0, 1, 2, 3
_KIND_RECORD_BATCH = 3


def check_layout(raw: bytes, rows: int, columns: int) -> None:
    """Raise ValueError unless `raw` is a plain Arrow file of `rows` rows and `columns` columns."""
    try:
        _check(raw, rows, columns)
    except struct.error as error:
        raise ValueError("it is not an Arrow file: a header points outside of the file") from error


def _check(raw: bytes, rows: int, columns: int) -> None:
    if len(raw) < 18 or raw[:6] != _MAGIC or raw[-6:] != _MAGIC:
        raise ValueError("it is not an Arrow file: its first or last bytes are not 'ARROW1'")
    footer_end = len(raw) - 10
    footer_start = footer_end - _number(raw, "<i", footer_end)
    if not 8 <= footer_start <= footer_end:
        raise ValueError("it is not an Arrow file: its footer is longer than the file")
    footer = raw[footer_start:footer_end]
    root = _number(footer, "<I", 0)
    if _vector(footer, root, _FOOTER_DICTIONARIES)[1]:
        raise ValueError("it has dictionaries; ids are kept as plain integers or strings")
    first, count = _vector(footer, root, _FOOTER_BATCHES)
    found, free = 0, 8
    for i in range(count):
        at = first + 24 * i  # a block: offset (8 bytes), header length (4), padding (4), body length (8)
        offset, head, body = _number(footer, "<q", at), _number(footer, "<i", at + 8), _number(footer, "<q", at + 16)
        if offset < free or head < 8 or body < 0 or offset + head + body > footer_start:
            raise ValueError("a record batch lies outside of the file or on top of another")
        free = offset + head + body
        found += _check_batch(raw[offset : offset + head], body, columns)
    if found != rows:
        raise ValueError(f"it has {found} rows, the manifest says {rows}")


def _check_batch(head: bytes, body: int, columns: int) -> int:
    if head[:4] != b"\xff\xff\xff\xff" or _number(head, "<i", 4) != len(head) - 8:
        raise ValueError("a record batch has a header of another length than announced")
    message = head[8:]
    root = _number(message, "<I", 0)
    kind, length = _field(message, root, _MESSAGE_KIND), _field(message, root, _MESSAGE_BODY_LENGTH)
    if not kind or _number(message, "<B", kind) != _KIND_RECORD_BATCH:
        raise ValueError("a record batch is of another kind than announced")
    if (_number(message, "<q", length) if length else 0) != body:
        raise ValueError("a record batch has a body of another length than announced")
    batch = _table(message, _field(message, root, _MESSAGE_HEADER))
    if _field(message, batch, _BATCH_COMPRESSION):
        raise ValueError("it is compressed; only plain files are read, as their content cannot outgrow them")
    at = _field(message, batch, _BATCH_LENGTH)
    rows = _number(message, "<q", at) if at else 0
    first, count = _vector(message, batch, _BATCH_NODES)
    if count != columns:
        raise ValueError(f"a record batch has {count} columns, the manifest says {columns}")
    if not 0 <= rows * columns <= body:
        raise ValueError(f"a record batch announces {rows} rows in {body} bytes")
    for i in range(count):  # a node: length (8 bytes), nulls (8)
        if _number(message, "<q", first + 16 * i) != rows or _number(message, "<q", first + 16 * i + 8) != 0:
            raise ValueError("a column has nulls or another length than its record batch")
    first, count = _vector(message, batch, _BATCH_BUFFERS)
    free = 0
    for i in range(count):  # a buffer: offset (8 bytes), length (8)
        start, size = _number(message, "<q", first + 16 * i), _number(message, "<q", first + 16 * i + 8)
        if start < free or size < 0 or start + size > body:
            raise ValueError("a column's values lie outside of their record batch or on top of others")
        free = start + size
    return rows


def _number(raw: bytes, kind: str, at: int) -> int:
    if at < 0:  # struct would count from the end
        raise struct.error("negative offset")
    value: int = struct.unpack_from(kind, raw, at)[0]
    return value


def _field(raw: bytes, table: int, index: int) -> int:
    """Where a table's field is, or 0 when it is absent."""
    fields = table - _number(raw, "<i", table)
    if 4 + 2 * index >= _number(raw, "<H", fields):
        return 0
    offset = _number(raw, "<H", fields + 4 + 2 * index)
    return table + offset if offset else 0


def _table(raw: bytes, at: int) -> int:
    """Where the table is that the field at `at` points to."""
    if not at:
        raise struct.error("absent table")
    return at + _number(raw, "<I", at)


def _vector(raw: bytes, table: int, index: int) -> tuple[int, int]:
    """Where a table's vector has its first member, and how many it has; (0, 0) when it is absent."""
    at = _field(raw, table, index)
    if not at:
        return 0, 0
    start = _table(raw, at)
    return start + 4, _number(raw, "<I", start)
