"""What users give in many forms, in one: lists, frames and histories of ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import one_of
from shortlist.data.id_lists import as_list, ids_of_frame, is_frame, is_table
from shortlist.data.sparse_rows import SUM, SparseRows, rows_of
from shortlist.data.vocabulary import Codes, Id, Unknown, Vocabulary
from shortlist.errors import DataError, SettingError

SKIP = "pass unknown='skip' to leave them out"


class Advice(NamedTuple):
    """What to do about unknown ids, as it goes with the parameters of the method that was called."""

    contexts: str
    items: str


_NEW = "for someone who was not in training, give their items as history=[[…]] instead of an id"
ANY = Advice(f"{_NEW}; or {SKIP}", SKIP)  # for methods that may answer fewer queries than were asked
EACH = Advice(f"{_NEW}; or leave unknown ids out", "leave unknown ids out")  # for methods that answer every query
KNOWN_ONLY = Advice(SKIP, SKIP)  # for methods without history=


def check_unknown(unknown: Unknown) -> None:
    """Refuse what is not for ids that are known or not, as a whole."""
    if isinstance(unknown, str) and unknown == "average":
        raise SettingError(
            "unknown is 'average', which is for contexts of several parts, and models that know the parts, such as "
            "PARAFAC; expected 'raise' or 'skip'"
        )
    one_of("unknown", unknown, ("raise", "skip"))


def as_floats(given: Mapping[Id, Any]) -> npt.NDArray[np.float32]:
    """The values as float32: infinite where they do not fit it, and NaN throughout where one of them is no number."""
    try:
        with np.errstate(over="ignore"):
            return np.array([float(value) for value in given.values()], np.float64).astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        return np.full(len(given), np.nan, np.float32)


def refuse_frame(name: str, given: object, way_out: str) -> None:
    """Refuse a frame where a list is expected: it would be taken by columns."""
    if is_frame(given):
        raise SettingError(f"{name} is a frame ({type(given).__name__}); expected a list: {way_out}")


def as_rows(ids: Any, vocabulary: Vocabulary, what: str) -> Any:
    """Ids of a frame, or of {column: ids}, as a list; others as they are.

    Columns are matched by name, else by position.
    """
    return ids_of_frame(ids, vocabulary.names, what) if is_table(ids) else ids


def in_order(contexts: pl.DataFrame, vocabulary: Vocabulary) -> pl.DataFrame:
    """A frame of contexts with its columns as the vocabulary has them: matched by name, else by position."""
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
    """Rows of listed ids, or of {id: weight}; repeats add up.

    In messages `name` is the word for a list, with {} for its number, `what` that for an id, and `way_out` the advice
    where ids are unknown.
    """
    lists: list[list[Id]] = []
    weights: dict[int, npt.NDArray[np.float32]] = {}
    for k, one in enumerate(given):
        if type(one) is list:
            lists.append(one)
            continue
        if isinstance(one, str | bytes) or not isinstance(one, Iterable):
            raise SettingError(
                f"{name.format(k)} is {one!r:.80}; expected a list of {what} ids, or {{id: weight}}; write "
                f"[{one!r:.80}] for a list of one"
            )
        refuse_frame(name.format(k), one, f"pass its column of {what} ids")
        lists.append(as_list(one, f"a list of {what} ids"))
        if isinstance(one, Mapping):
            weights[k] = as_floats(one)
            if not np.isfinite(weights[k]).all() or (weights[k] < 0).any():
                raise DataError(
                    f"{name.format(k)}: weights are finite numbers, not negative, to {np.finfo(np.float32).max:.2g}; "
                    f"got {dict(one)!r:.200}"
                )
    codes = vocabulary.encode(list(chain.from_iterable(lists)), unknown="mark")
    row_of = np.repeat(np.arange(len(lists), dtype=np.int32), [len(one) for one in lists])
    values = None
    if weights:
        parts = [weights[k] if k in weights else np.ones(len(one), np.float32) for k, one in enumerate(lists)]
        values = np.concatenate(parts)
    known = codes >= 0
    if not known.all():
        if unknown != "skip":  # say so of the first list that has one
            vocabulary.encode(lists[row_of[np.argmin(known)]], what=what, way_out=way_out)
        codes, row_of, values = codes[known], row_of[known], None if values is None else values[known]
    return summed_rows(row_of, codes, values, len(lists), len(vocabulary))


def summed_rows(
    row_of: npt.NDArray[np.int32], codes: Codes, values: npt.NDArray[np.float32] | None, n_rows: int, n_columns: int
) -> SparseRows:
    """Entries as rows, repeats added up."""
    if n_rows != 1:
        return rows_of(row_of, codes, values, None, n_rows, n_columns, SUM)
    distinct, place = np.unique(codes, return_inverse=True)  # without a count for each column
    summed = np.bincount(place, values, len(distinct)).astype(np.float32)
    plain = values is None and len(distinct) == len(codes)
    return SparseRows(np.array([0, len(distinct)]), distinct, None if plain else summed, n_columns)
