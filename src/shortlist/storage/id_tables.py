"""Tables of ids in Arrow files, uncompressed, so that their content cannot be larger than the file."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from shortlist._fork import require_polars_threads
from shortlist.data.mapped_ids import IdBatch, Integers, MappedIds, Strings, frame_of
from shortlist.storage.arrow_check import ArrowLayout, Span, check_layout
from shortlist.storage.wrap_errors import storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

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
_NUMPY = {
    f"{sign}Int{8 * size}": np.dtype(f"<{'u' if sign else 'i'}{size}") for sign in ("", "U") for size in (1, 2, 4, 8)
}


def check_table(name: str, frame: object) -> None:
    """Raise ValueError unless the table can be written and read back unchanged."""
    if isinstance(frame, MappedIds):
        frame = frame.frame
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


def encode(table: pl.DataFrame | MappedIds) -> memoryview:
    """Return the Arrow file of a table. Strings are LargeUtf8, not views, because every Arrow reader supports it."""
    require_polars_threads("writing a table of ids")
    out = BytesIO()
    frame_of(table).rechunk().write_ipc(out, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
    return out.getbuffer()


def decode(entry: TableEntry, raw: NDArray[np.uint8], where: str | Path) -> MappedIds:
    """Return the table in an Arrow file, without reading its values; raise ValueError if it does not match `entry`.

    The values are checked when they are used; `where` is the path for the messages.
    """
    layout = check_layout(raw.data, entry.rows, [name for name, _ in entry.columns])
    columns = tuple((name, dtype) for (name, _), dtype in zip(entry.columns, layout.dtypes))
    if columns != entry.columns:
        raise ValueError(f"it has the columns {columns}, the manifest says {entry.columns}")
    schema = pl.Schema({name: DTYPES[dtype]() for name, dtype in entry.columns})
    if len(schema) != len(entry.columns):
        raise ValueError("two of its columns have the same name")
    return MappedIds(schema, entry.rows, _batches(layout, raw), lambda: _frame(schema, entry.rows, raw, where))


def _frame(schema: pl.Schema, rows: int, raw: NDArray[np.uint8], where: str | Path) -> pl.DataFrame:
    """Read a table with polars, which checks its values."""
    require_polars_threads("reading a table of ids")
    with storage_errors(f"the table of ids in '{where}' cannot be used", "restore it from a copy", "model-damaged"):
        frame = pl.read_ipc(raw.tobytes())
        if frame.schema != schema or frame.height != rows or any(column.null_count() for column in frame):
            raise ValueError("its values do not match its header")
    return frame


def _batches(layout: ArrowLayout, raw: NDArray[np.uint8]) -> list[IdBatch] | None:
    """Return the record batches as views of the file; None if a column has integers of 128 bits."""
    if not set(layout.dtypes) <= {*_NUMPY, "String"}:
        return None
    return [IdBatch(rows, list(_columns(layout.dtypes, rows, buffers, raw))) for rows, buffers in layout.batches]


def _columns(dtypes: list[str], rows: int, buffers: list[Span], raw: NDArray[np.uint8]) -> Iterator[Integers | Strings]:
    """Yield the columns of a record batch as views of the file."""
    spans = iter(buffers)
    for dtype in dtypes:
        next(spans)  # validity: there are no nulls
        if dtype == "String":
            offsets = _numbers(raw, next(spans), np.dtype(np.int64), rows + 1 if rows else 0)
            text = next(spans)
            yield Strings(offsets, raw[text.start : text.start + text.size])
        else:
            yield Integers(_numbers(raw, next(spans), _NUMPY[dtype], rows))


def _numbers(raw: NDArray[np.uint8], span: Span, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    if span.size < count * dtype.itemsize:
        raise ValueError(f"a column has {span.size} bytes for {count} numbers of {dtype.itemsize} bytes")
    return np.ndarray(count, dtype, raw.data, span.start)
