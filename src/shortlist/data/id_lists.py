"""Convert ids in lists, arrays and frames of any library to Python values.

Frames are read column by column: for whole frames polars uses threads, which a forked process does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from shortlist._fork import require_polars_threads
from shortlist.errors import SettingError

_FRAMES = "a frame of polars, pandas or Arrow, or {column: ids}"


def is_frame(value: object) -> bool:
    """Return whether this is a frame of polars, pandas, Arrow or another library. Iterating over one yields columns."""
    return isinstance(value, pl.DataFrame | pl.LazyFrame) or hasattr(type(value), "columns")


def is_table(table: object) -> bool:
    """Return whether this is a frame or {column: ids}. A mapping from ids to single values is neither."""
    if not isinstance(table, Mapping):
        return is_frame(table)
    columns = [hasattr(ids, "__len__") and not isinstance(ids, str | bytes | Mapping) for ids in table.values()]
    return bool(columns) and all(columns)


def as_list(values: Any, expected: str, field: str | None = None) -> list[Any]:
    """Convert a Series, an array or any other iterable to a list of Python values; `field` is for the error."""
    if isinstance(values, pl.Series):
        return values.to_list()
    if isinstance(values, np.ndarray) and values.ndim:
        return list(values.tolist())
    if hasattr(values, "to_pylist"):  # iterating over Arrow arrays yields Arrow scalars
        return list(values.to_pylist())
    try:
        return list(values)
    except TypeError:
        raise SettingError(f"expected {expected}, got {values!r:.80}", field=field) from None


def ids_of_frame(frame: Any, names: Sequence[str], what: str) -> list[Any]:
    """Return the ids in a frame, one per row. If an id has several columns, it is a tuple.

    Columns are matched by name if the frame has exactly these names, else by position.

    Args:
        frame: a frame of polars, pandas or Arrow, or a mapping from column names to lists.
        names: the columns of an id.
        what: the word for the ids in messages.
    """
    if isinstance(frame, pl.LazyFrame):
        require_polars_threads("collecting a lazy frame")
        frame = frame.collect()
    frame_names, columns = _columns_of(frame, what)
    if len(frame_names) != len(names):
        raise SettingError(
            f"the frame of {what} has the columns {', '.join(frame_names)}; expected {', '.join(names)}",
            field=_field(what),
        )
    if set(frame_names) == set(names):
        columns = [columns[frame_names.index(name)] for name in names]
    lengths = {name: len(column) for name, column in zip(frame_names, columns)}
    if len(set(lengths.values())) > 1:
        raise SettingError(f"the columns of the frame of {what} differ in length: {lengths}", field=_field(what))
    return columns[0] if len(columns) == 1 else list(zip(*columns))


def _field(what: str) -> str | None:
    """Return the argument that has these ids, if the word for them is its name."""
    return what if what in ("contexts", "items", "ids") else None


def _columns_of(frame: Any, what: str) -> tuple[list[str], list[list[Any]]]:
    """Return the names of the columns and their values."""
    if isinstance(frame, pl.DataFrame):
        return frame.columns, [column.to_list() for column in frame.get_columns()]
    if isinstance(frame, Mapping):
        expected = f"a list of ids in each column of the {what}"
        return list(map(str, frame)), [as_list(values, expected, _field(what)) for values in frame.values()]
    library = type(frame).__module__.partition(".")[0]
    if library == "pandas":
        return list(map(str, frame.columns)), [frame.iloc[:, k].tolist() for k in range(frame.shape[1])]
    if library == "pyarrow":
        return list(frame.schema.names), [column.to_pylist() for column in frame.columns]
    if not hasattr(frame, "__arrow_c_stream__"):
        raise SettingError(
            f"cannot take {what} from {type(frame).__name__}; expected a list, or {_FRAMES}", field=_field(what)
        )
    require_polars_threads(f"reading {what} from {type(frame).__name__}")
    return _columns_of(pl.DataFrame(frame), what)
