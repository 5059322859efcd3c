"""Tables of ids in Arrow files, uncompressed, so that their content cannot be larger than the file."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import polars as pl

from shortlist._fork import require_polars_threads
from shortlist.storage.arrow_check import check_layout

if TYPE_CHECKING:
    from shortlist.storage.manifest import TableEntry

DTYPES: dict[str, type[pl.DataType]] = {
    name: getattr(pl, name)
    for name in (
        *("Int8", "Int16", "Int32", "Int64", "Int128"),
        *("UInt8", "UInt16", "UInt32", "UInt64", "UInt128"),
        "String",
    )
    if hasattr(pl, name)  # polars added the 128-bit types in different versions
}


def check_table(name: str, frame: object) -> None:
    """Raise ValueError unless the table can be written and read back unchanged."""
    if not isinstance(frame, pl.DataFrame):
        raise ValueError(f"table {name!r} is of type {type(frame).__name__}; expected a polars DataFrame")
    if not frame.width:
        raise ValueError(f"table {name!r} has no columns; expected at least one column of ids")
    for column in frame:
        if str(column.dtype) not in DTYPES:
            raise ValueError(
                f"column {column.name!r} of table {name!r} has dtype {column.dtype}; "
                "ids are stored as integers or strings: cast it to one of these"
            )
        if column.null_count():
            raise ValueError(f"column {column.name!r} of table {name!r} has {column.null_count()} nulls; ids have none")


def encode(frame: pl.DataFrame) -> memoryview:
    """Return the Arrow file of a table. Strings are LargeUtf8, not views, because every Arrow reader supports it."""
    require_polars_threads("writing a table of ids")
    out = BytesIO()
    frame.rechunk().write_ipc(out, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
    return out.getbuffer()


def decode(entry: TableEntry, raw: bytes) -> pl.DataFrame:
    """Return the table in an Arrow file; raise ValueError if it does not match `entry`."""
    require_polars_threads("reading a table of ids")
    check_layout(raw, entry.rows, [name for name, _ in entry.columns])
    _check_schema(entry, pl.Schema(pl.read_ipc_schema(BytesIO(raw))))
    frame = pl.read_ipc(raw)
    _check_schema(entry, frame.schema)
    if frame.height != entry.rows:
        raise ValueError(f"it has {frame.height} rows, the manifest says {entry.rows}")
    if any(column.null_count() for column in frame):
        raise ValueError("it has nulls; ids have none")
    return frame


def _check_schema(entry: TableEntry, schema: pl.Schema) -> None:
    columns = tuple((name, str(dtype)) for name, dtype in schema.items())
    if columns != entry.columns:
        raise ValueError(f"it has the columns {columns}, the manifest says {entry.columns}")
