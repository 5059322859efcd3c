"""Conversion of the users' lists, frames and histories of ids to rows of codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import one_of
from shortlist._wording import Argument, Message
from shortlist.data.id_lists import as_list, ids_of_frame, is_frame, is_table
from shortlist.data.sparse_rows import SUM, SparseRows, rows_of
from shortlist.data.vocabulary import Codes, Id, Unknown, Vocabulary
from shortlist.errors import DataError, SettingError

SKIP = Message("pass {unknown} to drop them", unknown="skip")


class Advice(NamedTuple):
    """Advice on unknown ids for error messages, in terms of the parameters of the called method."""

    contexts: str
    items: str


_NEW = Message("for a new user pass {} with their items", Argument("history", "[[…]]"))
ANY = Advice(Message("{}; to drop unknown ids, pass {unknown}", _NEW, unknown="skip"), SKIP)  # may skip queries
EACH = Advice(Message("{}; or drop unknown ids", _NEW), "drop unknown ids")  # for methods that answer every query
KNOWN_ONLY = Advice(SKIP, SKIP)  # for methods without history=


def check_unknown(unknown: Unknown) -> None:
    """Check `unknown` for ids without parts: only 'raise' and 'skip' are valid."""
    if isinstance(unknown, str) and unknown == "average":
        raise SettingError(
            "unknown is 'average', which needs contexts of several parts and a model of the parts, such as PARAFAC; "
            "expected 'raise' or 'skip'"
        )
    one_of("unknown", unknown, ("raise", "skip"))


def as_floats(given: Mapping[Id, Any]) -> npt.NDArray[np.float32]:
    """Return the values as float32: infinity if too large, and all NaN if any value is not a number."""
    try:
        with np.errstate(over="ignore"):
            return np.array([float(value) for value in given.values()], np.float64).astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        return np.full(len(given), np.nan, np.float32)


def refuse_frame(name: str, given: object, way_out: str) -> None:
    """Refuse a frame where a list is expected; iterating over it would give its columns."""
    if is_frame(given):
        raise SettingError(f"{name} is a frame ({type(given).__name__}); expected a list: {way_out}")


def as_rows(ids: Any, vocabulary: Vocabulary, what: str) -> Any:
    """Return the ids of a frame or of {column: ids} as a list; return anything else unchanged.

    Columns are matched by name, else by position.
    """
    return ids_of_frame(ids, vocabulary.names, what) if is_table(ids) else ids


def in_order(contexts: pl.DataFrame, vocabulary: Vocabulary) -> pl.DataFrame:
    """Return a frame of contexts with its columns in the vocabulary's order, matched by name, else by position."""
    names = vocabulary.names
    if contexts.width != len(names):
        raise SettingError(
            f"the frame of contexts has the columns {', '.join(contexts.columns)}; expected {', '.join(names)}"
        )
    return contexts[list(names)] if set(names) == set(contexts.columns) else contexts


def rows_of_lists(
    given: Sequence[Iterable[Id] | Mapping[Id, float]],
    vocabulary: Vocabulary,
    unknown: Unknown,
    name: str,
    what: str,
    way_out: str = SKIP,
) -> SparseRows:
    """Return rows of codes from lists of ids or {id: weight}; the weights of repeated ids add up.

    For messages, `name` is the word for a list, with {} for its number, `what` is the word for an id, and `way_out` is
    the advice on unknown ids.
    """
    lists: list[list[Id]] = []
    weights: dict[int, npt.NDArray[np.float32]] = {}
    for k, ids in enumerate(given):
        if type(ids) is list:
            lists.append(ids)
            continue
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise SettingError(
                f"{name.format(k)} is {ids!r:.80}; expected a list of {what} ids, or {{id: weight}}; write "
                f"[{ids!r:.80}] for a single id"
            )
        refuse_frame(name.format(k), ids, f"pass its column of {what} ids")
        lists.append(as_list(ids, f"a list of {what} ids"))
        if isinstance(ids, Mapping):
            weights[k] = as_floats(ids)
            if not np.isfinite(weights[k]).all() or (weights[k] < 0).any():
                raise DataError(
                    f"{name.format(k)}: expected weights from 0 to {np.finfo(np.float32).max:.2g}; "
                    f"got {dict(ids)!r:.200}"
                )
    codes = vocabulary.encode(list(chain.from_iterable(lists)), unknown="mark")
    row_of = np.repeat(np.arange(len(lists), dtype=np.int32), [len(ids) for ids in lists])
    values = None
    if weights:
        parts = [weights[k] if k in weights else np.ones(len(ids), np.float32) for k, ids in enumerate(lists)]
        values = np.concatenate(parts)
    known = codes >= 0
    if not known.all():
        if unknown != "skip":  # raise an error about the first list with an unknown id
            vocabulary.encode(lists[row_of[np.argmin(known)]], what=what, way_out=way_out)
        codes, row_of, values = codes[known], row_of[known], None if values is None else values[known]
    return summed_rows(row_of, codes, values, len(lists), len(vocabulary))


def summed_rows(
    row_of: npt.NDArray[np.int32], codes: Codes, values: npt.NDArray[np.float32] | None, n_rows: int, n_columns: int
) -> SparseRows:
    """Return entries as rows, with repeats added up."""
    if n_rows != 1:
        return rows_of(row_of, codes, values, None, n_rows, n_columns, SUM)
    distinct, place = np.unique(codes, return_inverse=True)  # avoids an array over all columns
    summed = np.bincount(place, values, len(distinct)).astype(np.float32)
    plain = values is None and len(distinct) == len(codes)
    return SparseRows(np.array([0, len(distinct)]), distinct, None if plain else summed, n_columns)
