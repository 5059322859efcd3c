"""Ids from two places: whether they can meet, and in which types."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import polars as pl

from shortlist.data.vocabulary import Id, integer_of
from shortlist.errors import DataError


def comparable(
    ours: pl.DataFrame, others: pl.DataFrame, whose: str, *, by_spelling: bool
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Our ids and others, with the columns in the same order and in types that can be compared.

    Integers and text never meet, unless one side comes from a text file (`by_spelling`): there 7 and '7' are the same.

    Args:
        ours: our columns of ids.
        others: the others'; by name where the names are the same, else by place.
        whose: what to call them in messages.
        by_spelling: whether integers and text may be compared as text.
    """
    if ours.width != others.width:
        raise DataError(
            f"an id has {ours.width} columns here ({', '.join(ours.columns)}) and {others.width} in {whose} "
            f"({', '.join(others.columns)}); pass as id= the columns that make up an id there"
        )
    if set(ours.columns) == set(others.columns):
        others = pl.DataFrame([others.get_column(name) for name in ours.columns])
    pairs = [_pair(a, b, whose, by_spelling) for a, b in zip(ours.get_columns(), others.get_columns())]
    return pl.DataFrame([a for a, _ in pairs]), pl.DataFrame([b for _, b in pairs])


def respelled(one: Id, types: list[pl.DataType]) -> Id:
    """An id in these types, as far as its spelling allows.

    >>> respelled(7, [pl.String()]), respelled("7", [pl.Int64()]), respelled("007", [pl.Int64()])
    ('7', 7, '007')
    """
    if isinstance(one, tuple):
        return tuple(_respelled(part, dtype) for part, dtype in zip(one, types)) if len(one) == len(types) else one
    return _respelled(one, types[0])


def _respelled(part: Any, dtype: pl.DataType) -> Any:
    if dtype == pl.String and isinstance(part, int | np.integer) and not isinstance(part, bool):
        return str(part)
    if dtype.is_integer() and isinstance(part, str) and (number := integer_of(part)) is not None:
        return number
    return part


def _pair(ours: pl.Series, others: pl.Series, whose: str, by_spelling: bool) -> tuple[pl.Series, pl.Series]:
    if others.dtype in (pl.Categorical, pl.Enum):
        others = others.cast(pl.String)
    if ours.dtype == others.dtype:
        return ours, others
    if ours.dtype.is_integer() and others.dtype.is_integer():
        return _wide_enough(ours, others)
    if len(others) and not (others.dtype.is_integer() or others.dtype == pl.String):
        raise DataError(f"column {others.name!r} of {whose} has type {others.dtype}; ids are integers or strings")
    if by_spelling or not (len(ours) and len(others)):
        return ours.cast(pl.String), others.cast(pl.String)
    wanted = "pl.String" if others.dtype == pl.String else "pl.Int64"
    raise DataError(
        f"ids of {ours.name!r} are {_type(ours)} here (such as {ours[0]!r}) and {_type(others)} in {whose} (such as "
        f"{others[0]!r}): they would never meet. Cast one of them, for example with "
        f"frame.with_columns(pl.col({ours.name!r}).cast({wanted})), and make the features anew"
    )


def _wide_enough(ours: pl.Series, others: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Integers of two types in the first type that holds all of them."""
    for dtype in (pl.Int64, pl.UInt64, pl.Int128):
        with suppress(pl.exceptions.InvalidOperationError):
            return ours.cast(dtype), others.cast(dtype)
    return ours, others


def _type(ids: pl.Series) -> str:
    return "text" if ids.dtype == pl.String else f"integers ({ids.dtype})"
