"""Concatenation of Parquet files without decoding any value.

A Parquet file is `PAR1`, row groups, a footer with the offset of each row group, the footer's length, `PAR1`. Nothing
that readers need inside a row group depends on its position in the file. So the row groups of many files, followed by
one footer with corrected offsets, are a valid file. This costs no more than copying the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from shortlist.storage.thrift import I64, LIST, STRUCT, Struct, ThriftField, ThriftList, parse, serialize

MAGIC = b"PAR1"
_LENGTH = 4  # bytes of the footer's length

# Field numbers from the definition of Parquet (parquet.thrift).
_SCHEMA, _ROWS, _GROUPS = 2, 3, 4  # of the footer
_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 5, 7  # of a row group
_CHUNK_OFFSET, _METADATA, _INDEXES = 2, 3, (4, 5, 6, 7)  # of a column in it
_PAGE_OFFSETS, _BLOOM_FILTER = (9, 10, 11), (14, 15)  # of that column's metadata


def split(file: bytes | memoryview) -> tuple[memoryview, bytes]:
    """Split a complete Parquet file into its row groups and its footer."""
    view = memoryview(file)
    end = len(view) - _LENGTH - len(MAGIC)
    if end < len(MAGIC) or view[: len(MAGIC)] != MAGIC or view[-len(MAGIC) :] != MAGIC:
        raise ValueError("it is not a Parquet file")
    length = int.from_bytes(view[end : end + _LENGTH], "little")
    if length > end - len(MAGIC):
        raise ValueError("its footer is longer than the file")
    return view[len(MAGIC) : end - length], bytes(view[end - length : end])


def join_footers(parts: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the end of a concatenated file: the joined footer, its length and `PAR1`.

    Args:
        parts: for each of the files the offset of its row groups in the new file, and its footer; at least one file.
            All files must have the same columns.
    """
    joined = parse(parts[0][1])
    rows, groups = 0, []
    for offset, raw in parts:
        footer = parse(raw)
        if footer.get(_SCHEMA) != joined.get(_SCHEMA):
            raise ValueError("its parts have different columns")
        rows += footer[_ROWS].value
        for group in footer[_GROUPS].value.values:
            _move(group, offset - len(MAGIC))
            groups.append(group)
    joined[_ROWS] = ThriftField(I64, rows)
    joined[_GROUPS] = ThriftField(LIST, ThriftList(STRUCT, groups))
    footer_bytes = serialize(joined)
    return footer_bytes + len(footer_bytes).to_bytes(_LENGTH, "little") + MAGIC


def _move(group: Struct, by: int) -> None:
    """Shift the offsets of a row group; drop optional parts whose offsets are inside the data."""
    group.pop(_ORDINAL, None)  # starts at 0 in each file
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
    """Shift an offset; 0 means that it is not given."""
    if number in struct and struct[number].value:
        struct[number] = ThriftField(struct[number].kind, struct[number].value + by)
