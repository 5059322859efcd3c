"""The data read from a public layout, and functions to build its published split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.encode import Columns
from shortlist.data.interactions import Interactions, compacted
from shortlist.data.splits import Split, given
from shortlist.data.vocabulary import Codes, Vocabulary

Array = npt.NDArray[Any]
USER, ITEM, RATING, TIME, POSITION = "user", "item", "rating", "time", "position"


@dataclass(frozen=True, eq=False)
class PublishedData:
    """The parts of a published data set; None for parts that the files do not have.

    `interactions` are the training events of `split`; `everything` includes the test events.
    """

    interactions: Interactions
    items: pl.DataFrame | None = None
    contexts: pl.DataFrame | None = None
    split: Split | None = None
    validation: Split | None = None
    candidates: Interactions | None = None
    everything: Interactions | None = None


def published(train: Interactions, truth: Interactions, protocol: str) -> Split:
    """Return a published split. The catalogue of `train` must already include the items of `truth`."""
    return replace(given(train, truth), protocol=protocol)


def coded(numbers: Array, name: str) -> tuple[Vocabulary, Codes]:
    """Return a sorted vocabulary of integer ids ≥ 0, and the code of each number."""
    top = int(numbers.max())
    if top < 4 * len(numbers) + (1 << 20):  # nearly always: published ids are consecutive
        used = np.zeros(top + 1, np.bool_)
        used[numbers] = True
        ids = np.flatnonzero(used)
        codes = (np.cumsum(used, dtype=np.int32) - 1)[numbers].astype(np.int32)
    else:
        ids, inverse = np.unique(numbers, return_inverse=True)
        codes = inverse.reshape(-1).astype(np.int32)
    return Vocabulary(pl.Series(name, ids).to_frame()), codes


def events_of(users: Array, items: Array, positions: Array | None = None) -> Interactions:
    """Build events from integer ids of users and items, in the given order."""
    contexts, context_codes = coded(users, USER)
    catalogue, item_codes = coded(items, ITEM)
    columns = Columns((USER,), ITEM, None, None if positions is None else POSITION)
    dtype = None if positions is None else pl.Int64()
    return Interactions(
        contexts, catalogue, context_codes, item_codes, times=positions, columns=columns, time_dtype=dtype
    )


def part_of(events: Interactions, keep: npt.NDArray[np.bool_]) -> Interactions:
    """Return some of the events, with only their contexts but all items: the catalogue is that of the data set."""
    context_codes = events.context_codes[keep]
    contexts, remap = compacted(events.contexts, context_codes)
    return events.with_codes(contexts, events.items, remap[context_codes], events.item_codes[keep], keep)


def concatenated(first: Interactions, second: Interactions) -> Interactions:
    """Return the events of both, which have the same columns; new ids of `second` get the last codes."""
    contexts, items = first.contexts.extend(second.contexts.frame), first.items.extend(second.items.frame)
    context_codes = contexts.encode(second.contexts.frame)[second.context_codes]
    item_codes = items.encode(second.items.frame)[second.item_codes]
    causes = first.dropped | second.dropped
    return Interactions(
        contexts,
        items,
        np.concatenate([first.context_codes, context_codes]),
        np.concatenate([first.item_codes, item_codes]),
        weights=_joined(first.weights, second.weights),
        times=_joined(first.times, second.times),
        columns=first.columns,
        time_dtype=first.time_dtype,
        aggregate=first.aggregate,
        dropped={cause: first.dropped.get(cause, 0) + second.dropped.get(cause, 0) for cause in causes},
    )


def _joined(first: Array | None, second: Array | None) -> Array | None:
    return None if first is None or second is None else np.concatenate([first, second])


def with_items(events: Interactions, items: pl.DataFrame) -> Interactions:
    """Return the same events with more items in the catalogue."""
    extended = events.extend(items=items.to_series())
    extended.dropped.update(events.dropped)
    return extended


def with_candidates(parts: PublishedData, users: Array, items: Array, dropped: Mapping[str, int]) -> PublishedData:
    """Add candidates: the items to rank each test item against, for `evaluate_candidates`.

    Repeated candidates, test items and candidates of users without test items are dropped and counted with `dropped`.
    (The published evaluations collect scores by item, so repeats make no difference.) Items that only occur as
    candidates are added to the catalogue.
    """
    assert parts.split is not None
    assert parts.everything is not None
    split, candidate_items = parts.split, pl.DataFrame({ITEM: np.unique(items)})
    train = with_items(split.train, candidate_items)
    split = replace(published(train, split.truth, split.protocol), dropped=split.dropped)
    context_codes = split.truth.contexts.encode(pl.DataFrame({USER: users}), unknown="mark")
    item_codes = train.items.encode(pl.DataFrame({ITEM: items}))
    has_test = context_codes >= 0
    key = context_codes.astype(np.int64) * train.n_items + item_codes
    true = split.truth.context_codes.astype(np.int64) * train.n_items + split.truth.item_codes
    first = np.zeros(len(key), np.bool_)
    first[np.unique(key, return_index=True)[1]] = True
    wrong = ~np.isin(key, true)
    keep = has_test & first & wrong
    counts = {
        **dropped,
        "candidates of users without test items": int((~has_test).sum()),
        "candidates that are the true item": int((has_test & ~wrong).sum()),
        "candidates named twice": int((has_test & wrong & ~first).sum()),
    }
    candidates = Interactions(
        split.truth.contexts,
        train.items,
        context_codes[keep],
        item_codes[keep],
        dropped={what: count for what, count in counts.items() if count},
    )
    everything = with_items(parts.everything, candidate_items)
    return replace(parts, interactions=train, split=split, candidates=candidates, everything=everything)
