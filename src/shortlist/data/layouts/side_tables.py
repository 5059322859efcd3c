"""Read small tables about items or users by the pattern of their lines."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from shortlist.data.csv_lines import opened, shortened
from shortlist.data.sniff import refuse_other_content
from shortlist.errors import DataError


def text_of(path: Path) -> str:
    """Return the text of a small file: UTF-8 or, as in the oldest data sets, Latin-1."""
    refuse_other_content(path, None)
    with opened(path) as stream:
        data = stream.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def fields_of(path: Path, pattern: str, written: str, *, key: str, n_headers: int = 0) -> pl.DataFrame:
    """Match every line that is not blank; return the pattern's named groups as columns of text, `key` as integers.

    `written` describes a line for messages.
    """
    lines = pl.DataFrame({"line": text_of(path).split("\n")}).with_row_index("number", 1).slice(n_headers)
    lines = lines.with_columns(pl.col("line").str.strip_chars_end("\r ")).filter(pl.col("line") != "")
    fields = lines.with_columns(pl.col("line").str.extract_groups(pattern).alias("fields"))
    number = pl.col("fields").struct.field(key).cast(pl.Int64, strict=False)
    bad = fields.filter(number.is_null())
    if bad.height:
        place, line = bad.row(0)[:2]
        raise DataError(
            f"{path}: {bad.height:,} of {lines.height:,} lines are not written as {written} "
            f"(first: line {place:,} {shortened(line)})",
            code="bad-rows",
            hint="fix the file",
        )
    return fields.select(pl.col("fields").struct.unnest()).with_columns(pl.col(key).cast(pl.Int64))
