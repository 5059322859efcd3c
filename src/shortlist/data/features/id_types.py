"""Convert ids from two sources to types in which they can be compared."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import polars as pl

from shortlist.data.vocabulary import Id, integer_of
from shortlist.errors import DataError


def comparable(
    ours: pl.DataFrame, others: pl.DataFrame, origin: str, *, by_spelling: bool
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return both frames of ids with columns in the same order and in comparable types.

    Integers and text do not match, unless one side comes from a text file (`by_spelling`): then 7 and '7' are equal.

    Args:
        ours: our id columns.
        others: the other id columns, matched by name if the names are the same, else by position.
        origin: what messages call the other ids.
        by_spelling: whether to compare integers and text as text.
    """
    if ours.width != others.width:
        raise DataError(
            f"ids have {ours.width} columns here ({', '.join(ours.columns)}) but {others.width} in {origin} "
            f"({', '.join(others.columns)})",
            field="id",
            hint="pass the same columns as id=",
        )
    if set(ours.columns) == set(others.columns):
        others = pl.DataFrame([others.get_column(name) for name in ours.columns])
    pairs = [_pair(a, b, origin, by_spelling) for a, b in zip(ours.get_columns(), others.get_columns())]
    return pl.DataFrame([a for a, _ in pairs]), pl.DataFrame([b for _, b in pairs])


def converted(id: Id, types: list[pl.DataType]) -> Id:  # noqa: A002
    """Convert an id to these types where its spelling allows it.

    >>> converted(7, [pl.String()]), converted("7", [pl.Int64()]), converted("007", [pl.Int64()])
    ('7', 7, '007')
    """
    if isinstance(id, tuple):
        return tuple(_converted(part, dtype) for part, dtype in zip(id, types)) if len(id) == len(types) else id
    return _converted(id, types[0])


def _converted(part: Any, dtype: pl.DataType) -> Any:
    if dtype == pl.String and isinstance(part, int | np.integer) and not isinstance(part, bool):
        return str(part)
    if dtype.is_integer() and isinstance(part, str) and (number := integer_of(part)) is not None:
        return number
    return part


def _pair(ours: pl.Series, others: pl.Series, origin: str, by_spelling: bool) -> tuple[pl.Series, pl.Series]:
    if others.dtype in (pl.Categorical, pl.Enum):
        others = others.cast(pl.String)
    if ours.dtype == others.dtype:
        return ours, others
    if ours.dtype.is_integer() and others.dtype.is_integer():
        return _wide_enough(ours, others)
    if len(others) and not (others.dtype.is_integer() or others.dtype == pl.String):
        raise DataError(
            f"column {others.name!r} of {origin} has type {others.dtype}; ids are integers or strings",
            field=others.name,
            code="column-type",
        )
    if by_spelling or not (len(ours) and len(others)):
        return ours.cast(pl.String), others.cast(pl.String)
    target = "pl.String" if others.dtype == pl.String else "pl.Int64"
    raise DataError(
        f"ids of {ours.name!r} are {_type(ours)} here (such as {ours[0]!r}) but {_type(others)} in {origin} (such as "
        f"{others[0]!r}): they would never match",
        code="column-type",
        field=ours.name,
        hint=f"Cast one of them, for example with "
        f"frame.with_columns(pl.col({ours.name!r}).cast({target})), and create the features again",
    )


def _wide_enough(ours: pl.Series, others: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Cast integers of two types to the first type that holds all values."""
    for dtype in (pl.Int64, pl.UInt64, pl.Int128):
        with suppress(pl.exceptions.InvalidOperationError):
            return ours.cast(dtype), others.cast(dtype)
    return ours, others


def _type(ids: pl.Series) -> str:
    return "text" if ids.dtype == pl.String else f"integers ({ids.dtype})"
