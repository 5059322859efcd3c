"""Parsing and serializing of Thrift's compact protocol, as far as footers of Parquet files need it.

This module does not interpret the fields, so parsing and serializing a footer preserves everything in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12
_MAX_DEPTH = 64


class ThriftField(NamedTuple):
    """A value with its type; the value of a list is a `ThriftList`, of a struct a dict by field number."""

    kind: int
    value: Any


class ThriftList(NamedTuple):
    """The values of a list, all of one type."""

    kind: int
    values: list[Any]


Struct: TypeAlias = dict[int, ThriftField]


def parse(raw: bytes | memoryview) -> Struct:
    """Return the struct in these bytes; raise ValueError if they are not exactly one struct."""
    reader = _Reader(bytes(raw))
    try:
        struct = reader.struct(0)
    except IndexError:
        raise ValueError("it ends too early") from None
    if reader.at != len(reader.raw):
        raise ValueError(f"{len(reader.raw) - reader.at} bytes follow after its end")
    return struct


def serialize(struct: Struct) -> bytes:
    """Return the bytes of a struct, with its fields ordered by number.

    >>> serialize({1: ThriftField(I32, 2), 3: ThriftField(BINARY, b"ab")}).hex()
    '15042802616200'
    >>> parse(bytes.fromhex("15042802616200"))
    {1: ThriftField(kind=5, value=2), 3: ThriftField(kind=8, value=b'ab')}
    """
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def byte(self) -> int:
        self.at += 1
        return self.raw[self.at - 1]

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.raw):
            raise IndexError
        self.at += size
        return self.raw[self.at - size : self.at]

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("a number in it is longer than 64 bits")

    def zigzag(self) -> int:
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def struct(self, depth: int) -> Struct:
        if depth > _MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels")
        fields: Struct = {}
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            if number in fields:
                raise ValueError(f"field {number} occurs twice")
            kind = head & 0x0F
            fields[number] = ThriftField(kind, None if kind in (TRUE, FALSE) else self.value(kind, depth))
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in (I16, I32, I64):
            return self.zigzag()
        if kind == BINARY:
            return self.take(self.varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            head = self.byte()
            size = self.varint() if head >> 4 == 15 else head >> 4
            if size > len(self.raw) - self.at:  # each value takes at least one byte
                raise IndexError
            return ThriftList(head & 0x0F, [self.value(head & 0x0F, depth + 1) for _ in range(size)])
        if kind == DOUBLE:
            return self.take(8)
        if kind in (I8, TRUE, FALSE):  # a boolean in a list is a byte
            return self.take(1)
        raise ValueError(f"a value in it is of the type {kind}, which no footer has")


def _write_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number, (kind, value) in sorted(struct.items()):
        if 0 < number - before < 16:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            _write_varint(out, _zigzagged(number))
        before = number
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I16, I32, I64):
        _write_varint(out, _zigzagged(value))
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        size = len(value.values)
        out.append(min(size, 15) << 4 | value.kind)
        if size >= 15:
            _write_varint(out, size)
        for element in value.values:
            _write_value(out, value.kind, element)
    else:
        out += value


def _write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _zigzagged(value: int) -> int:
    return (value << 1) ^ (value >> 63)
