"""The files that lists are written to, block by block: what they begin with, a block of them, what they end with."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from shortlist.errors import SettingError
from shortlist.storage.draft import DraftBlock
from shortlist.storage.parquet import MAGIC, join_footers, split


class ListFile(ABC):
    """A format that can be written block by block."""

    nested: ClassVar[bool] = True  # whether a cell can hold a list

    @abstractmethod
    def head(self, empty: pl.DataFrame) -> bytes:
        """What the file begins with, of a frame with its columns."""

    @abstractmethod
    def block(self, frame: pl.DataFrame) -> tuple[bytes | memoryview, dict[str, Any]]:
        """The bytes of some rows, and what `tail` has to know of them."""

    def tail(self, empty: pl.DataFrame, blocks: Sequence[DraftBlock]) -> bytes:
        """What the file ends with."""
        return b""


class Parquet(ListFile):
    """A row group for each block; the footers of all of them are joined in the end.

    Level 1 of zstd, since level 3 takes a third more time and makes the file no smaller: scores hardly shrink, and ids
    are numbers of a dictionary already.
    """

    def head(self, empty: pl.DataFrame) -> bytes:
        """Four letters."""
        return MAGIC

    def block(self, frame: pl.DataFrame) -> tuple[bytes | memoryview, dict[str, Any]]:
        """A row group, and its footer."""
        groups, footer = split(_written(frame))
        return groups, {"footer": base64.b64encode(footer).decode()}

    def tail(self, empty: pl.DataFrame, blocks: Sequence[DraftBlock]) -> bytes:
        """One footer for all."""
        footers = [(one.offset, base64.b64decode(one.about["footer"])) for one in blocks]
        return join_footers([(len(MAGIC), split(_written(empty))[1]), *footers])


def _written(frame: pl.DataFrame) -> memoryview:
    buffer = BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=1, row_group_size=max(1, frame.height))
    return buffer.getbuffer()


class Csv(ListFile):
    """Text with a line for each row, below a line of names."""

    nested = False

    def __init__(self, separator: str = ",") -> None:
        self._separator = separator

    def head(self, empty: pl.DataFrame) -> bytes:
        """The names."""
        return empty.write_csv(separator=self._separator).encode()

    def block(self, frame: pl.DataFrame) -> tuple[bytes | memoryview, dict[str, Any]]:
        """Lines."""
        buffer = BytesIO()
        frame.write_csv(buffer, separator=self._separator, include_header=False)
        return buffer.getbuffer(), {}


class JsonLines(ListFile):
    """An object a row."""

    def head(self, empty: pl.DataFrame) -> bytes:
        """Nothing."""
        return b""

    def block(self, frame: pl.DataFrame) -> tuple[bytes | memoryview, dict[str, Any]]:
        """Lines."""
        buffer = BytesIO()
        frame.write_ndjson(buffer)
        return buffer.getbuffer(), {}


_BY_SUFFIX: dict[str, ListFile] = {
    ".parquet": Parquet(),
    ".pq": Parquet(),
    ".csv": Csv(),
    ".tsv": Csv("\t"),
    ".jsonl": JsonLines(),
    ".ndjson": JsonLines(),
}


def list_file(path: Path, *, nested: bool) -> ListFile:
    """The format that a file's name says; one that holds lists in a cell where `nested`."""
    found = _BY_SUFFIX.get(path.suffix.lower())
    if found is None or "\0" in str(path):
        without = " and has no NUL in it" if found else ""
        raise SettingError(f"{str(path)!r}: expected a name that ends in {', '.join(_BY_SUFFIX)}{without}")
    if nested and not found.nested:
        raise SettingError(f"'{path}': a cell of text holds no list; use format='long', or name a .parquet or .jsonl")
    return found
