"""Parquet files put behind each other without reading a single value of them.

A Parquet file is `PAR1`, row groups, a footer that says where these begin, the footer's length, `PAR1`. Nothing that
readers need in a row group says where in the file it stands: the row groups of many files in a row, under one footer
with their places moved, are one file. It costs no more than copying the bytes; to decode all rows and to encode them
again costs more than to encode them once.
"""

from __future__ import annotations

from collections.abc import Sequence

from shortlist.storage.thrift import I64, LIST, STRUCT, Struct, ThriftField, ThriftList, parse, serialize

MAGIC = b"PAR1"
_LENGTH = 4  # bytes of the footer's length

# The numbers that Parquet's definition (parquet.thrift) gives to fields.
_SCHEMA, _ROWS, _GROUPS = 2, 3, 4  # of the footer
_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 5, 7  # of a row group
_CHUNK_OFFSET, _METADATA, _INDEXES = 2, 3, (4, 5, 6, 7)  # of a column in it
_PAGE_OFFSETS, _BLOOM_FILTER = (9, 10, 11), (14, 15)  # of that column's metadata


def split(file: bytes | memoryview) -> tuple[memoryview, bytes]:
    """The row groups of a whole file, and its footer."""
    view = memoryview(file)
    end = len(view) - _LENGTH - len(MAGIC)
    if end < len(MAGIC) or view[: len(MAGIC)] != MAGIC or view[-len(MAGIC) :] != MAGIC:
        raise ValueError("it is no Parquet file")
    length = int.from_bytes(view[end : end + _LENGTH], "little")
    if length > end - len(MAGIC):
        raise ValueError("its footer is longer than the file")
    return view[len(MAGIC) : end - length], bytes(view[end - length : end])


def join_footers(parts: Sequence[tuple[int, bytes]]) -> bytes:
    """What stands behind the row groups of several files, up to the end: the footer of all of them, closed.

    Args:
        parts: for each file where its row groups begin in the new file, and its footer; at least one. All have the
            columns of the first.
    """
    whole = parse(parts[0][1])
    rows, groups = 0, []
    for offset, raw in parts:
        footer = parse(raw)
        if footer.get(_SCHEMA) != whole.get(_SCHEMA):
            raise ValueError("its parts have different columns")
        rows += footer[_ROWS].value
        for group in footer[_GROUPS].value.values:
            _move(group, offset - len(MAGIC))
            groups.append(group)
    whole[_ROWS] = ThriftField(I64, rows)
    whole[_GROUPS] = ThriftField(LIST, ThriftList(STRUCT, groups))
    footer_bytes = serialize(whole)
    return footer_bytes + len(footer_bytes).to_bytes(_LENGTH, "little") + MAGIC


def _move(group: Struct, by: int) -> None:
    """Let a row group begin later; what would have to be moved within the data, and nobody needs, is left out."""
    group.pop(_ORDINAL, None)  # counts from 0 in each file
    _shift(group, _GROUP_OFFSET, by)
    for column in group[_COLUMNS].value.values:
        for index in _INDEXES:
            column.pop(index, None)
        _shift(column, _CHUNK_OFFSET, by)
        metadata: Struct = column[_METADATA].value
        for number in _PAGE_OFFSETS:
            _shift(metadata, number, by)
        for number in _BLOOM_FILTER:
            metadata.pop(number, None)


def _shift(struct: Struct, number: int, by: int) -> None:
    """Move an offset; 0 stands for one that is not told."""
    if number in struct and struct[number].value:
        struct[number] = ThriftField(struct[number].kind, struct[number].value + by)
