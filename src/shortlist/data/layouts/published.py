"""What a public layout holds once it is read, and how its published split is put together."""

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
    """The parts of a data set; None where the files say nothing about it.

    `interactions` may be learnt from when `split` is asked; `everything` are these events and the ones asked for.
    """

    interactions: Interactions
    items: pl.DataFrame | None = None
    contexts: pl.DataFrame | None = None
    split: Split | None = None
    validation: Split | None = None
    candidates: Interactions | None = None
    everything: Interactions | None = None


def published(train: Interactions, truth: Interactions, protocol: str) -> Split:
    """A split as it was published; items of the truth that `train` does not know belong to its catalogue already."""
    return replace(given(train, truth), protocol=protocol)


def coded(numbers: Array, name: str) -> tuple[Vocabulary, Codes]:
    """Whole numbers from 0 as ids: a sorted vocabulary, and the code of each."""
    top = int(numbers.max())
    if top < 4 * len(numbers) + (1 << 20):  # as good as always: ids that were counted through
        used = np.zeros(top + 1, np.bool_)
        used[numbers] = True
        ids = np.flatnonzero(used)
        codes = (np.cumsum(used, dtype=np.int32) - 1)[numbers].astype(np.int32)
    else:
        ids, inverse = np.unique(numbers, return_inverse=True)
        codes = inverse.reshape(-1).astype(np.int32)
    return Vocabulary(pl.Series(name, ids).to_frame()), codes


def events_of(users: Array, items: Array, positions: Array | None = None) -> Interactions:
    """Events of numbered users with numbered items, in their order."""
    contexts, context_codes = coded(users, USER)
    catalogue, item_codes = coded(items, ITEM)
    columns = Columns((USER,), ITEM, None, None if positions is None else POSITION)
    dtype = None if positions is None else pl.Int64()
    return Interactions(
        contexts, catalogue, context_codes, item_codes, times=positions, columns=columns, time_dtype=dtype
    )


def part_of(events: Interactions, keep: npt.NDArray[np.bool_]) -> Interactions:
    """Some of the events: their contexts only, but all the items, since the catalogue is published as a whole."""
    context_codes = events.context_codes[keep]
    contexts, remap = compacted(events.contexts, context_codes)
    return events.with_codes(contexts, events.items, remap[context_codes], events.item_codes[keep], keep)


def together(known: Interactions, more: Interactions) -> Interactions:
    """The events of both, in this order, with the same columns; the ids of the second that are new come last."""
    contexts, items = known.contexts.extend(more.contexts.frame), known.items.extend(more.items.frame)
    context_codes = contexts.encode(more.contexts.frame)[more.context_codes]
    item_codes = items.encode(more.items.frame)[more.item_codes]
    return Interactions(
        contexts,
        items,
        np.concatenate([known.context_codes, context_codes]),
        np.concatenate([known.item_codes, item_codes]),
        weights=_joined(known.weights, more.weights),
        times=_joined(known.times, more.times),
        columns=known.columns,
        time_dtype=known.time_dtype,
        aggregate=known.aggregate,
        dropped={what: known.dropped.get(what, 0) + more.dropped.get(what, 0) for what in known.dropped | more.dropped},
    )


def _joined(first: Array | None, second: Array | None) -> Array | None:
    return None if first is None or second is None else np.concatenate([first, second])


def with_items(events: Interactions, items: pl.DataFrame) -> Interactions:
    """The same events with more items in the catalogue."""
    known = events.extend(items=items.to_series())
    known.dropped.update(events.dropped)
    return known


def among(parts: PublishedData, users: Array, items: Array, dropped: Mapping[str, int]) -> PublishedData:
    """Add the items that each true one is to be ranked against, for `evaluate_candidates`.

    Kept are those of users that are asked for, each item once and the true one not at all: the evaluations published
    with these files collect scores by item, so that a second mention makes no difference. Items known from here only
    belong to the catalogue as well. What was `dropped` before is counted with what is dropped here.
    """
    assert parts.split is not None
    assert parts.everything is not None
    split, more = parts.split, pl.DataFrame({ITEM: np.unique(items)})
    train = with_items(split.train, more)
    split = replace(published(train, split.truth, split.protocol), dropped=split.dropped)
    context_codes = split.truth.contexts.encode(pl.DataFrame({USER: users}), unknown="mark")
    item_codes = train.items.encode(pl.DataFrame({ITEM: items}))
    asked = context_codes >= 0
    key = context_codes.astype(np.int64) * train.n_items + item_codes
    true = split.truth.context_codes.astype(np.int64) * train.n_items + split.truth.item_codes
    first = np.zeros(len(key), np.bool_)
    first[np.unique(key, return_index=True)[1]] = True
    wrong = ~np.isin(key, true)
    keep = asked & first & wrong
    counts = {
        **dropped,
        "candidates of users that are not asked for": int((~asked).sum()),
        "candidates that are the true item": int((asked & ~wrong).sum()),
        "candidates named twice": int((asked & wrong & ~first).sum()),
    }
    candidates = Interactions(
        split.truth.contexts,
        train.items,
        context_codes[keep],
        item_codes[keep],
        dropped={what: count for what, count in counts.items() if count},
    )
    everything = with_items(parts.everything, more)
    return replace(parts, interactions=train, split=split, candidates=candidates, everything=everything)
