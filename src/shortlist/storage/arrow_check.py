"""Check of an Arrow file before polars reads it.

Polars trusts a file and allocates as much memory as the file claims to need. This module checks, without allocating,
that the file has the simple form that Shortlist writes: integer and string columns with the expected names and number
of rows; no nested columns, metadata, compression, dictionaries or nulls; every value inside the file and used once.
What is read can then be no larger than the file. In other Arrow files, many strings or metadata entries may refer to
the same bytes. The check also returns where the values are, so that a mapped file can be used without polars.

The layout is described in the Arrow columnar format under "IPC file format". Its headers are flatbuffers: a table
starts with the distance back to its list of field offsets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAGIC = b"ARROW1"
_FOOTER_SCHEMA, _FOOTER_DICTIONARIES, _FOOTER_BATCHES, _FOOTER_METADATA = 1, 2, 3, 4
_SCHEMA_FIELDS, _SCHEMA_METADATA = 1, 2
_FIELD_NAME, _FIELD_TYPE, _FIELD_DICTIONARY, _FIELD_CHILDREN, _FIELD_METADATA = 0, 2, 4, 5, 6
_MESSAGE_KIND, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH, _MESSAGE_METADATA = 1, 2, 3, 4
_BATCH_LENGTH, _BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION, _BATCH_VARIADIC = 0, 1, 2, 3, 4
_KIND_RECORD_BATCH = 3
_FIELD_TYPE_TABLE, _INTEGER_BITS, _INTEGER_SIGNED = 3, 0, 1
_TYPE_INTEGER, _TYPE_LARGE_STRING = 2, 20


@dataclass(frozen=True)
class Span:
    """A range of bytes in the file."""

    start: int
    size: int


@dataclass(frozen=True)
class ArrowLayout:
    """Where the values of a table are.

    Attributes:
        dtypes: the polars type of each column.
        batches: for each record batch its number of rows and its buffers. A column of integers has two buffers
            (validity and values), a column of strings three (validity, offsets and text).
    """

    dtypes: list[str]
    batches: list[tuple[int, list[Span]]]


def check_layout(raw: memoryview, rows: int, columns: Sequence[str]) -> ArrowLayout:
    """Raise ValueError unless `raw` is a simple Arrow file with `rows` rows and columns of these names."""
    try:
        return _check(raw, rows, columns)
    except struct.error as error:
        raise ValueError("it is not an Arrow file: a header points outside the file") from error


def _check(raw: memoryview, rows: int, columns: Sequence[str]) -> ArrowLayout:
    if len(raw) < 18 or raw[:6] != _MAGIC or raw[-6:] != _MAGIC:
        raise ValueError("it is not an Arrow file: its first or last bytes are not 'ARROW1'")
    footer_end = len(raw) - 10
    footer_start = footer_end - _number(bytes(raw[footer_end:]), "<i", 0)
    if not 8 <= footer_start <= footer_end:
        raise ValueError("it is not an Arrow file: its footer is longer than the file")
    footer = bytes(raw[footer_start:footer_end])
    root = _number(footer, "<I", 0)
    if _vector(footer, root, _FOOTER_DICTIONARIES)[1]:
        raise ValueError("it has dictionaries; ids are stored as plain integers or strings")
    dtypes = _check_schema(footer, _table(footer, _field(footer, root, _FOOTER_SCHEMA)), columns)
    _refuse_metadata(footer, root, _FOOTER_METADATA)
    first, count = _vector(footer, root, _FOOTER_BATCHES)
    free, batches = 8, []
    for i in range(count):
        at = first + 24 * i  # a block: offset (8 bytes), header length (4), padding (4), body length (8)
        offset, head, body = _number(footer, "<q", at), _number(footer, "<i", at + 8), _number(footer, "<q", at + 16)
        if offset < free or head < 8 or body < 0 or offset + head + body > footer_start:
            raise ValueError("a record batch lies outside the file or overlaps another one")
        free = offset + head + body
        batches.append(_check_batch(bytes(raw[offset : offset + head]), offset + head, body, dtypes))
    if (rows_read := sum(n for n, _ in batches)) != rows:
        raise ValueError(f"it has {rows_read} rows, the manifest says {rows}")
    return ArrowLayout(dtypes, batches)


def _check_schema(footer: bytes, schema: int, columns: Sequence[str]) -> list[str]:
    _refuse_metadata(footer, schema, _SCHEMA_METADATA)
    first, count = _vector(footer, schema, _SCHEMA_FIELDS)
    if count != len(columns):
        raise ValueError(f"it has {count} columns, the manifest says {len(columns)}")
    dtypes = []
    for i, expected in enumerate(columns):
        field = _table(footer, first + 4 * i)
        start, size = _vector(footer, field, _FIELD_NAME)
        if footer[start : start + size] != expected.encode():
            name = footer[start : start + min(size, 80)].decode("utf-8", "replace")
            raise ValueError(f"it has a column {name!r} where the manifest says {expected!r:.80}")
        kind = _field(footer, field, _FIELD_TYPE)
        if not kind or _number(footer, "<B", kind) not in (_TYPE_INTEGER, _TYPE_LARGE_STRING):
            raise ValueError(f"its column {expected!r:.80} has neither integers nor strings (LargeUtf8)")
        if _vector(footer, field, _FIELD_CHILDREN)[1] or _field(footer, field, _FIELD_DICTIONARY):
            raise ValueError(f"its column {expected!r:.80} has nested columns or a dictionary")
        _refuse_metadata(footer, field, _FIELD_METADATA)
        dtypes.append(_dtype(footer, field, _number(footer, "<B", kind)))
    return dtypes


def _dtype(footer: bytes, field: int, kind: int) -> str:
    """Return the name of a column's polars type."""
    if kind == _TYPE_LARGE_STRING:
        return "String"
    integer = _table(footer, _field(footer, field, _FIELD_TYPE_TABLE))
    bits, signed = _field(footer, integer, _INTEGER_BITS), _field(footer, integer, _INTEGER_SIGNED)
    sign = "" if signed and _number(footer, "<B", signed) else "U"
    return f"{sign}Int{_number(footer, '<i', bits) if bits else 0}"


def _refuse_metadata(raw: bytes, table: int, index: int) -> None:
    if _vector(raw, table, index)[1]:
        raise ValueError("it has custom metadata; a table of ids has none")


def _check_batch(head: bytes, body_start: int, body: int, dtypes: Sequence[str]) -> tuple[int, list[Span]]:
    columns = len(dtypes)
    if head[:4] != b"\xff\xff\xff\xff" or _number(head, "<i", 4) != len(head) - 8:
        raise ValueError("a record batch has a header of the wrong length")
    message = head[8:]
    root = _number(message, "<I", 0)
    kind, length = _field(message, root, _MESSAGE_KIND), _field(message, root, _MESSAGE_BODY_LENGTH)
    if not kind or _number(message, "<B", kind) != _KIND_RECORD_BATCH:
        raise ValueError("a block that should be a record batch is something else")
    if (_number(message, "<q", length) if length else 0) != body:
        raise ValueError("a record batch has a body of the wrong length")
    _refuse_metadata(message, root, _MESSAGE_METADATA)
    batch = _table(message, _field(message, root, _MESSAGE_HEADER))
    if _vector(message, batch, _BATCH_VARIADIC)[1]:
        raise ValueError("it has string views; ids are stored as plain strings")
    if _field(message, batch, _BATCH_COMPRESSION):
        raise ValueError("it is compressed; only uncompressed files are read, because their size limits the memory")
    at = _field(message, batch, _BATCH_LENGTH)
    rows = _number(message, "<q", at) if at else 0
    first, count = _vector(message, batch, _BATCH_NODES)
    if count != columns:
        raise ValueError(f"a record batch has {count} columns, the manifest says {columns}")
    if not 0 <= rows * columns <= body:
        raise ValueError(f"a record batch claims {rows} rows in {body} bytes")
    for i in range(count):  # a node: length (8 bytes), nulls (8)
        if _number(message, "<q", first + 16 * i) != rows or _number(message, "<q", first + 16 * i + 8) != 0:
            raise ValueError("a column has nulls or not as many values as its record batch has rows")
    first, count = _vector(message, batch, _BATCH_BUFFERS)
    if count != (expected := sum(3 if dtype == "String" else 2 for dtype in dtypes)):
        raise ValueError(f"a record batch has {count} buffers, its columns need {expected}")
    free, buffers = 0, []
    for i in range(count):  # a buffer: offset (8 bytes), length (8)
        start, size = _number(message, "<q", first + 16 * i), _number(message, "<q", first + 16 * i + 8)
        if start < free or size < 0 or start + size > body:
            raise ValueError("the values of a column lie outside their record batch or overlap others")
        free = start + size
        buffers.append(Span(body_start + start, size))
    return rows, buffers


def _number(raw: bytes, kind: str, at: int) -> int:
    if at < 0:  # struct would count it from the end
        raise struct.error("negative offset")
    value: int = struct.unpack_from(kind, raw, at)[0]
    return value


def _field(raw: bytes, table: int, index: int) -> int:
    """Return the position of a table's field, or 0 if it is absent."""
    fields = table - _number(raw, "<i", table)
    if 4 + 2 * index >= _number(raw, "<H", fields):
        return 0
    offset = _number(raw, "<H", fields + 4 + 2 * index)
    return table + offset if offset else 0


def _table(raw: bytes, at: int) -> int:
    """Return the position of the table that the field at `at` points to."""
    if not at:
        raise struct.error("absent table")
    return at + _number(raw, "<I", at)


def _vector(raw: bytes, table: int, index: int) -> tuple[int, int]:
    """Return the position of the first element of a table's vector and its length; (0, 0) if it is absent."""
    at = _field(raw, table, index)
    if not at:
        return 0, 0
    start = _table(raw, at)
    return start + 4, _number(raw, "<I", start)
