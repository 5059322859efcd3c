"""File formats that `write_lists` can write block by block."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from shortlist._wording import Message, Phrase
from shortlist.errors import SettingError
from shortlist.storage.draft import DraftBlock
from shortlist.storage.parquet import MAGIC, join_footers, split


class ListFile(ABC):
    """A format that can be written block by block."""

    nested: ClassVar[bool] = True  # whether a cell can contain a list

    @abstractmethod
    def head(self, empty: pl.DataFrame) -> bytes:
        """Return the start of the file; `empty` is a frame with its columns."""

    @abstractmethod
    def block(self, frame: pl.DataFrame) -> tuple[bytes | memoryview, dict[str, Any]]:
        """Return the bytes of some rows, and facts about them that `tail` needs."""

    def tail(self, empty: pl.DataFrame, blocks: Sequence[DraftBlock]) -> bytes:
        """Return the end of the file."""
        return b""


class Parquet(ListFile):
    """A Parquet file with one row group per block; the footers of the blocks are joined at the end.

    It uses zstd level 1: level 3 takes a third longer and the file is no smaller, because scores hardly compress and
    ids are dictionary codes already.
    """

    def head(self, empty: pl.DataFrame) -> bytes:
        """Return the four magic bytes."""
        return MAGIC

    def block(self, frame: pl.DataFrame) -> tuple[bytes | memoryview, dict[str, Any]]:
        """Return a row group, and its footer as a fact."""
        groups, footer = split(_written(frame))
        return groups, {"footer": base64.b64encode(footer).decode()}

    def tail(self, empty: pl.DataFrame, blocks: Sequence[DraftBlock]) -> bytes:
        """Return one footer for all row groups."""
        footers = [(block.offset, base64.b64decode(block.about["footer"])) for block in blocks]
        return join_footers([(len(MAGIC), split(_written(empty))[1]), *footers])


def _written(frame: pl.DataFrame) -> memoryview:
    buffer = BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=1, row_group_size=max(1, frame.height))
    return buffer.getbuffer()


class Csv(ListFile):
    """Text with a header line and one line per row."""

    nested = False

    def __init__(self, separator: str = ",") -> None:
        self._separator = separator

    def head(self, empty: pl.DataFrame) -> bytes:
        """Return the header line."""
        return empty.write_csv(separator=self._separator).encode()

    def block(self, frame: pl.DataFrame) -> tuple[bytes | memoryview, dict[str, Any]]:
        """Return the lines of the rows."""
        buffer = BytesIO()
        frame.write_csv(buffer, separator=self._separator, include_header=False)
        return buffer.getbuffer(), {}


class JsonLines(ListFile):
    """One JSON object per line and row."""

    def head(self, empty: pl.DataFrame) -> bytes:
        """Return nothing."""
        return b""

    def block(self, frame: pl.DataFrame) -> tuple[bytes | memoryview, dict[str, Any]]:
        """Return the lines of the rows."""
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
    """Return the format for a file's suffix; if `nested`, refuse formats whose cells cannot contain lists."""
    file = _BY_SUFFIX.get(path.suffix.lower())
    if file is None or "\0" in str(path):
        without = " and contains no NUL" if file else ""
        raise SettingError(
            f"{str(path)!r}: expected a name that ends in {', '.join(_BY_SUFFIX)}{without}", field="path"
        )
    if nested and not file.nested:
        raise SettingError(
            f"'{path}': text formats cannot store lists",
            field="format",
            hint=Message("{} a .parquet or .jsonl file", Phrase("long-lists", "use format='long', or")),
        )
    return file
