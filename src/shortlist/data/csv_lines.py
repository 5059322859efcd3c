"""Text files line by line: decompress them, count fields, and find the line number and text of a row."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist.errors import DataError


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file as bytes; decompress it if its first bytes say gzip. Errors in the archive raise `DataError`."""
    try:
        with path.open("rb") as stream:
            gzipped = stream.read(2) == b"\x1f\x8b"
            stream.seek(0)
            yield cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if gzipped else stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} cannot be read: {error}", code="unreadable-file") from error


@contextmanager
def opened_text(path: Path) -> Iterator[BinaryIO]:
    """Open a text file as bytes, like `opened`, and skip a UTF-8 byte order mark."""
    with opened(path) as stream:
        if stream.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            stream.seek(0)
        yield stream


def blocks_of_lines(path: Path) -> Iterator[bytes]:
    """Yield a text file in blocks; each block ends at the end of a line."""
    with opened_text(path) as stream:
        while block := stream.read(_BLOCK):
            block += stream.readline()
            yield block if block.endswith(b"\n") else block + b"\n"


# polars pads short lines with nulls and drops extra fields of long lines without an error. So lines are counted here.


@dataclass(frozen=True)
class LineCounts:
    """What `survey` counted in a text file. A record with quoted line breaks counts once; blank lines do not count."""

    ragged_lines: tuple[int, ...]  # line numbers of the first ragged lines (wrong number of fields)
    n_records: int  # includes the header
    n_ragged: int  # number of ragged lines
    ragged_fields: int  # number of fields in the first ragged line
    n_quoted: int  # fields that begin with a quote
    stray_line: int  # first line with a quote inside a field, or 0
    n_leading: int  # blank lines before the first record
    n_blank: int  # blank lines after the first record


# Positions in the state array of `_walk`.
_IN_QUOTES, _FRESH, _CLOSED, _FIELDS, _LENGTH, _LINE, _RECORD_LINE, _RECORD_AT, _AT = range(9)
_RECORDS, _RAGGED, _RAGGED_FIELDS, _QUOTED, _STRAY_LINE, _LEADING, _BLANK, _RAGGED_LINES = range(9, 17)
SHOWN = 3  # number of bad lines that a message quotes
_BLOCK = 1 << 22


def survey(path: Path, separator: str, width: int) -> LineCounts:
    """Count the lines and fields of a file whose lines should have `width` fields."""
    return _walked(path, separator, width, np.empty(0, np.uint8))[0]


def without_ragged(path: Path, separator: str, width: int) -> io.BytesIO:
    """Return the lines that have `width` fields, without leading blank lines. All in memory: for broken files only."""
    with opened(path) as stream:
        size = sum(len(block) for block in iter(lambda: stream.read(_BLOCK), b""))
    good = np.empty(size + 1, np.uint8)
    _, length = _walked(path, separator, width, good)
    return io.BytesIO(good[:length].tobytes().lstrip(b"\r\n"))


def _walked(path: Path, separator: str, width: int, out: npt.NDArray[np.uint8]) -> tuple[LineCounts, int]:
    state = np.zeros(_RAGGED_LINES + SHOWN, np.int64)
    state[[_FRESH, _FIELDS, _LINE, _RECORD_LINE]] = 1
    with opened_text(path) as stream:
        block = b""
        for block in iter(lambda: stream.read(_BLOCK), b""):
            _walk(np.frombuffer(block, np.uint8), ord(separator), width, state, out)
    if state[_IN_QUOTES]:
        raise DataError(
            f"{path}: the quote opened in line {state[_RECORD_LINE]:,} is never closed",
            code="unreadable-file",
            hint="Close or remove it",
        )
    if not block.endswith(b"\n"):
        _walk(np.frombuffer(b"\n", np.uint8), ord(separator), width, state, out)
    ragged = tuple(line for line in state[_RAGGED_LINES:].tolist() if line)
    return LineCounts(ragged, *state[_RECORDS:_RAGGED_LINES].tolist()), int(state[_RECORD_AT])


@kernel
def _walk(
    data: npt.NDArray[np.uint8], separator: int, width: int, state: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]
) -> None:
    """Count the lines and fields of a block of text; copy lines with `width` fields to `out` unless `out` is empty."""
    in_quotes, fresh, closed = state[_IN_QUOTES], state[_FRESH], state[_CLOSED]
    fields, length, line, at = state[_FIELDS], state[_LENGTH], state[_LINE], state[_AT]
    copy = len(out) > 0
    for p in range(len(data)):
        byte = data[p]
        if copy:
            out[at] = byte
            at += 1
        if in_quotes:
            if byte == 34:
                in_quotes, closed = 0, 1  # or the first of a doubled quote: the second reopens the field
            elif byte == 10:
                line += 1
        elif byte == 10:
            if length > 0:
                state[_RECORDS] += 1
                if fields != width:
                    if state[_RAGGED] == 0:
                        state[_RAGGED_FIELDS] = fields
                    if state[_RAGGED] < SHOWN:
                        state[_RAGGED_LINES + state[_RAGGED]] = state[_RECORD_LINE]
                    state[_RAGGED] += 1
                    at = state[_RECORD_AT]
            else:
                state[_LEADING if state[_RECORDS] == 0 else _BLANK] += 1
            state[_RECORD_AT] = at
            line += 1
            state[_RECORD_LINE] = line
            fields, length, fresh, closed = 1, 0, 1, 0
        elif byte == separator:
            fields += 1
            length += 1
            fresh, closed = 1, 0
        elif byte == 34:
            length += 1
            if fresh or closed:
                state[_QUOTED] += fresh
                in_quotes, fresh, closed = 1, 0, 0
            elif state[_STRAY_LINE] == 0:
                state[_STRAY_LINE] = line
        elif byte != 13:
            length += 1
            if closed and state[_STRAY_LINE] == 0:
                state[_STRAY_LINE] = line
            fresh, closed = 0, 0
    state[_IN_QUOTES], state[_FRESH], state[_CLOSED] = in_quotes, fresh, closed
    state[_FIELDS], state[_LENGTH], state[_LINE], state[_AT] = fields, length, line, at


# --- line numbers of rows --------------------------------------------------------------------------------------------


def lines_of_rows(path: Path, rows: list[int], survey: LineCounts, separator: str, *, header: bool) -> list[int]:
    """Return the line numbers (from 1) of polars' `rows`: those count from 0 and include blank lines."""
    if not survey.n_quoted:
        return [survey.n_leading + header + row + 1 for row in rows]
    begins: list[int] = []
    with opened(path) as stream:
        # Quoted fields may hold line breaks, so row numbers are not line numbers.
        reader = csv.reader(
            io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline=""), delimiter=separator
        )
        begin = 1
        for row, _ in enumerate(reader, -survey.n_leading - header):
            if row in rows:
                begins.append(begin)
                if len(begins) == len(rows):
                    break
            begin = reader.line_num + 1
    return begins


def lines_at(path: Path, numbers: list[int]) -> list[str]:
    """Return the text of these lines (ascending, counted from 1), shortened and quoted for a message."""
    texts: list[str] = []
    with opened(path) as stream:
        line = 1
        while len(texts) < len(numbers):
            # Count line breaks by block; split no lines that are not requested.
            block = stream.read(_BLOCK) + stream.readline()
            if not block:
                break
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
            for number in numbers[len(texts) :]:
                if number - line > len(ends) or (number - line == len(ends) and block.endswith(b"\n")):
                    break
                begin = 0 if number == line else int(ends[number - line - 1]) + 1
                end = int(ends[number - line]) if number - line < len(ends) else len(block)
                texts.append(shortened(block[begin : min(end, begin + 400)]))
            line += len(ends)
    return texts


def shortened(line: bytes | str) -> str:
    """Return a line in quotes, cut to 60 characters."""
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    text = text.rstrip("\r\n").removeprefix("\ufeff")
    return repr(text if len(text) <= 60 else text[:59] + "…")
