"""Ids from lists, arrays and frames of any library, as Python values.

Frames are read column by column: polars reads whole frames with threads that a forked process does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from shortlist._fork import require_polars_threads
from shortlist.errors import SettingError

_FRAMES = "a frame of polars, pandas or Arrow, or {column: ids}"


def is_frame(given: object) -> bool:
    """Whether it is a frame of polars, pandas, Arrow or another library: iterating over it gives columns, not rows."""
    return isinstance(given, pl.DataFrame | pl.LazyFrame) or hasattr(type(given), "columns")


def is_table(given: object) -> bool:
    """Whether it is a frame, or {column: ids}; a mapping from ids to single values is not."""
    if not isinstance(given, Mapping):
        return is_frame(given)
    columns = [hasattr(one, "__len__") and not isinstance(one, str | bytes | Mapping) for one in given.values()]
    return bool(columns) and all(columns)


def as_list(given: Any, expected: str) -> list[Any]:
    """A Series, an array or any other iterable as a list of Python values."""
    if isinstance(given, pl.Series):
        return given.to_list()
    if isinstance(given, np.ndarray) and given.ndim:
        return list(given.tolist())
    if hasattr(given, "to_pylist"):  # Arrow's scalars are no ids
        return list(given.to_pylist())
    try:
        return list(given)
    except TypeError:
        raise SettingError(f"expected {expected}, got {given!r:.80}") from None


def ids_of_frame(frame: Any, names: Sequence[str], what: str) -> list[Any]:
    """The ids in a frame, one a row; tuples where an id has several columns.

    Columns are matched by name where the names are the same, else by position.

    Args:
        frame: a frame of polars, pandas or Arrow, or a mapping from column names to lists.
        names: the columns of an id.
        what: what the ids are of, for messages.
    """
    if isinstance(frame, pl.LazyFrame):
        require_polars_threads("collecting a lazy frame")
        frame = frame.collect()
    found, columns = _columns_of(frame, what)
    if len(found) != len(names):
        raise SettingError(f"the frame of {what} has the columns {', '.join(found)}; expected {', '.join(names)}")
    if set(found) == set(names):
        columns = [columns[found.index(name)] for name in names]
    lengths = {name: len(column) for name, column in zip(found, columns)}
    if len(set(lengths.values())) > 1:
        raise SettingError(f"the columns of the frame of {what} differ in length: {lengths}")
    return columns[0] if len(columns) == 1 else list(zip(*columns))


def _columns_of(frame: Any, what: str) -> tuple[list[str], list[list[Any]]]:
    """The names of the columns, and their values."""
    if isinstance(frame, pl.DataFrame):
        return frame.columns, [column.to_list() for column in frame.get_columns()]
    if isinstance(frame, Mapping):
        expected = f"a list of ids in each column of the {what}"
        return list(map(str, frame)), [as_list(values, expected) for values in frame.values()]
    library = type(frame).__module__.partition(".")[0]
    if library == "pandas":
        return list(map(str, frame.columns)), [frame.iloc[:, k].tolist() for k in range(frame.shape[1])]
    if library == "pyarrow":
        return list(frame.schema.names), [column.to_pylist() for column in frame.columns]
    if not hasattr(frame, "__arrow_c_stream__"):
        raise SettingError(f"cannot take {what} from {type(frame).__name__}; expected a list, or {_FRAMES}")
    require_polars_threads(f"reading {what} from {type(frame).__name__}")
    return _columns_of(pl.DataFrame(frame), what)
