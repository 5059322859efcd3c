"""Convert what users pass (lists, frames, histories of ids) to codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import one_of
from shortlist._phrases import count, n_of
from shortlist._wording import Argument, Message
from shortlist.data.histories import Histories
from shortlist.data.id_lists import as_list, ids_of_frame, is_frame, is_table
from shortlist.data.interactions import Interactions
from shortlist.data.vocabulary import Codes, Id, Unknown, Vocabulary, is_id
from shortlist.errors import DataError, SettingError, UnknownIdError
from shortlist.ranking.queries import Queries, QueryLabels
from shortlist.retrieval.filters import CsrRows

History: TypeAlias = Sequence[Iterable[Id] | Mapping[Id, float]] | Interactions
ItemLists: TypeAlias = Iterable[Id] | Sequence[Iterable[Id]]

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
            "expected 'raise' or 'skip'",
            field="unknown",
        )
    one_of("unknown", unknown, ("raise", "skip"))


def as_floats(given: Mapping[Id, Any]) -> npt.NDArray[np.float32]:
    """Return the values as float32: infinity if too large, and all NaN if any value is not a number."""
    try:
        with np.errstate(over="ignore"):
            return np.array([float(value) for value in given.values()], np.float64).astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        return np.full(len(given), np.nan, np.float32)


def refuse_frame(name: str, given: object, way_out: str, field: str | None = None) -> None:
    """Refuse a frame where a list is expected; iterating over it would give its columns.

    The `field` of the error is `name` by default.
    """
    if is_frame(given):
        raise SettingError(
            f"{name} is a frame ({type(given).__name__}); expected a list: {way_out}", field=field or name
        )


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
            f"the frame of contexts has the columns {', '.join(contexts.columns)}; expected {', '.join(names)}",
            field="contexts",
        )
    return contexts[list(names)] if set(names) == set(contexts.columns) else contexts


def histories_of_lists(
    given: Sequence[Iterable[Id] | Mapping[Id, float]],
    vocabulary: Vocabulary,
    unknown: Unknown,
    name: str,
    what: str,
    way_out: str = SKIP,
) -> Histories:
    """Return histories in codes from lists of ids or {id: weight}, in the given order.

    For messages, `name` is the word for a list, with {} for its number, `what` is the word for an id, and `way_out` is
    the advice on unknown ids.
    """
    field = "history" if what == "item" else "contexts"
    lists: list[list[Id]] = []
    weights: dict[int, npt.NDArray[np.float32]] = {}
    for k, ids in enumerate(given):
        if type(ids) is list:
            lists.append(ids)
            continue
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise SettingError(
                f"{name.format(k)} is {ids!r:.80}; expected a list of {what} ids, or {{id: weight}}",
                field=field,
                hint=f"write [{ids!r:.80}] for a single id",
            )
        refuse_frame(name.format(k), ids, f"pass its column of {what} ids", field)
        lists.append(as_list(ids, f"a list of {what} ids", field))
        if isinstance(ids, Mapping):
            weights[k] = as_floats(ids)
            if not np.isfinite(weights[k]).all() or (weights[k] < 0).any():
                raise DataError(
                    f"{name.format(k)}: expected weights from 0 to {np.finfo(np.float32).max:.2g}; "
                    f"got {dict(ids)!r:.200}",
                    field=field,
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
            vocabulary.encode(lists[row_of[np.argmin(known)]], what=what, field=field, way_out=way_out)
        codes, row_of, values = codes[known], row_of[known], None if values is None else values[known]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=len(lists)))]).astype(np.int64)
    return Histories(indptr, codes, None, values, len(vocabulary))


def history_queries(
    history: History, items: Vocabulary, unknown: Unknown, *, ordered: bool, way_out: str = SKIP
) -> Queries:
    """Return queries for histories of any users, with or without their order."""
    one_of("unknown", unknown, ("raise", "skip"))
    refuse_frame("history", history, "convert it with Interactions.from_frame(frame, context=…, item=…)")
    if isinstance(history, Interactions):
        labels = QueryLabels(history.contexts, np.arange(history.n_contexts, dtype=np.int32))
        return Queries.of(labels, None, histories_of(history, items, unknown, ordered=ordered, way_out=way_out))
    if isinstance(history, str | bytes | int | np.integer | Mapping):
        single = history if isinstance(history, Mapping) else [history]
        raise SettingError(
            f"history is {history!r}; expected a list with one history per query: write history={[single]!r}",
            field="history",
        )
    lists = as_list(history, "a list with one history per query", "history")
    rows = histories_of_lists(lists, items, unknown, "history {}", "item", way_out)
    return Queries.of(QueryLabels.numbers(len(lists)), None, rows)


def histories_of(
    events: Interactions, items: Vocabulary, unknown: Unknown, *, ordered: bool, way_out: str = SKIP
) -> Histories:
    """Return the history of each context of these events, in the codes of `items`."""
    histories = events.histories if ordered else Histories.of_sets(events.by_context)
    return recoded(histories, events.items, items, unknown, way_out)


def recoded(
    histories: Histories, source: Vocabulary, items: Vocabulary, unknown: Unknown, way_out: str = SKIP
) -> Histories:
    """Recode histories from the codes of `source` to those of `items`."""
    if source is items or source == items:
        return histories
    codes = items.encode(source.frame, unknown="mark")
    new = histories.recode(codes, len(items))
    if len(new) < len(histories) and unknown == "raise":
        missing = codes[histories.items] < 0
        first = source.ids([histories.items[int(np.argmax(missing))]])[0]
        raise UnknownIdError(
            f"unknown item {first!r} in a history ({n_of(int(missing.sum()), len(histories), 'event')} unknown; the "
            f"model knows {count(len(items), 'item')})",
            code="unknown-item",
            field="history",
            hint=way_out,
        )
    return new


def known_codes(
    vocabulary: Vocabulary, ids: Iterable[Id], unknown: Unknown, what: str, way_out: str
) -> tuple[Codes, npt.NDArray[np.bool_], list[Id]]:
    """Return the codes of the known ids, a mask of the known ids, and the skipped ids."""
    check_unknown(unknown)
    if not isinstance(ids, str | bytes | int | np.integer | tuple | pl.Series | np.ndarray):
        ids = as_list(ids, f"a list of {what}s", f"{what}s")
    codes = vocabulary.encode(ids, unknown="mark" if unknown == "skip" else "raise", what=what, way_out=way_out)
    known = codes >= 0
    return codes[known], known, [] if known.all() else [id_ for id_, kept in zip(ids, known) if not kept]


def item_lists(items: Sequence[Iterable[Id]], vocabulary: Vocabulary, n_queries: int) -> list[Codes]:
    """Return the codes of one list of items per query."""
    refuse_frame("items", items, "one list of item ids per query")
    lists = as_list(items, "one list of items per query", "items")
    if len(lists) != n_queries:
        raise SettingError(
            f"{count(len(lists), 'list')} of items for {count(n_queries, 'query', 'queries')}; "
            "expected one list per query",
            field="items",
        )
    for ids in lists:
        refuse_frame("a list of items", ids, "pass its column of item ids", "items")
    lists = [ids if isinstance(ids, str | bytes | int) else as_list(ids, "a list of items", "items") for ids in lists]
    return [vocabulary.encode(ids, what="item", way_out=EACH.items) for ids in lists]


def filter_codes(
    name: str, given: ItemLists | None, items: Vocabulary, answered: npt.NDArray[np.bool_]
) -> tuple[Codes | None, CsrRows | None]:
    """Encode a filter: one list for all queries, or one list per query. Keep only the lists of answered queries.

    Unknown ids are ignored, since they cannot be recommended anyway; ids of a wrong type are an error.
    """
    if given is None:
        return None, None
    if isinstance(given, str | bytes | int | Mapping) or is_frame(given):
        raise SettingError(
            f"{name} is {given!r:.80}; expected a list of item ids, or one such list per query", field=name
        )
    entries = as_list(given, f"a list of item ids as {name}", name)
    nested = [isinstance(entry, Iterable) and not isinstance(entry, str | bytes) for entry in entries]
    if any(nested) and not all(nested):
        raise SettingError(
            f"{name} mixes ids and lists of ids; expected a list of ids, or one list per query", field=name
        )
    if not any(nested):
        return known_items(name, entries, items), None
    for ids in entries:
        refuse_frame(f"a list of {name}", ids, "pass its column of item ids", name)
    if len(entries) != len(answered):
        raise SettingError(
            f"{name} has {count(len(entries), 'list')} for {count(len(answered), 'query', 'queries')}; "
            "expected one per query",
            field=name,
        )
    rows = [known_items(name, as_list(ids, "a list", name), items) for ids, kept in zip(entries, answered) if kept]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return None, (indptr, np.concatenate([np.empty(0, np.int32), *rows]))


def filter_for_all(name: str, given: Iterable[Id] | None, audience: str) -> list[Id] | None:
    """Return a filter that must be one list for all queries; `filter_codes` refuses anything that is not a list."""
    if given is None or isinstance(given, str | bytes | int | Mapping) or is_frame(given):
        return given  # type: ignore[return-value]
    ids = as_list(given, f"a list of item ids as {name}", name)
    if any(isinstance(id_, Iterable) and not isinstance(id_, str | bytes) for id_ in ids):
        raise SettingError(f"{name} is a list of lists; expected one list of item ids for all {audience}", field=name)
    return ids


def known_items(name: str, ids: list[Id], items: Vocabulary) -> Codes:
    """Return the codes of the known ids of a filter; refuse ids of a wrong type."""
    codes = items.encode(ids, unknown="mark")
    text = items.dtypes[0] == pl.String
    for id_ in ids:
        if not is_id(id_) or isinstance(id_, str) != text:
            expected = "text" if text else "integers"
            raise UnknownIdError(
                f"{name}: {id_!r} is of type {type(id_).__name__}, but item ids are {expected}",
                code="unknown-item",
                field=name,
            )
    return codes[codes >= 0]
