"""Splits of events into a training set and a test set.

| function | training set | test set | note |
|---|---|---|---|
| `by_time` | all events before a moment | later events of the known contexts | the default: nothing leaks |
| `leave_last_out` | all but each context's last event | the last event | leaks the future of other contexts |
| `at_random` | a random fraction of events | the other events | leaks the future |
| `held_out_contexts` | all events of some contexts | part of the events of the others | tests fold-in of new contexts |
| `k_fold_contexts` | the same, k times, each context held out once | | |
| `given` | a published training set | a published test set | |

Each function returns a `Split`, which counts the events it could not use.
"""

from __future__ import annotations

import datetime as dt
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import refusal
from shortlist._phrases import count
from shortlist._wording import Message, Phrase
from shortlist.data.interactions import Interactions, compacted, time_order
from shortlist.data.sparse_rows import by_key, has_pairs
from shortlist.data.times import as_length, first_at_or_after, first_within, is_temporal, shown
from shortlist.data.vocabulary import Codes, Vocabulary
from shortlist.errors import DataError, SettingError, ShortlistWarning

Repeats: TypeAlias = Literal["drop", "keep"]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Split:
    """A training set and a test set.

    `truth` holds each test pair once (with its newest event). `history` holds the events of the same contexts that are
    known before the test. All three have the items of `train`. `dropped` counts events and pairs that are in none of
    them, by reason: with the events of `train`, `truth` and, if `fold_in`, `history` they sum to all events.
    """

    train: Interactions
    history: Interactions
    truth: Interactions
    protocol: str
    repeats: Repeats
    fold_in: bool = False  # the contexts of `truth` are not in `train`: their `history` is folded in
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def exclude_seen(self) -> bool:
        """Whether evaluation excludes items of the history from the ranking: true if repeated pairs were dropped."""
        return self.repeats == "drop"

    def events(self) -> Interactions:
        """Return the events of the training set, the truth and, if `fold_in`, the history.

        Fit the final model on them once settings are chosen. Dropped events are not included.
        """
        train = self.train
        parts = [train, self.history, self.truth] if self.fold_in else [train, self.truth]
        contexts = train.contexts
        for part in parts[1:]:
            contexts = contexts.extend(part.contexts.frame)
        weighted = any(part.weights is not None for part in parts)
        timed = all(part.times is not None for part in parts)
        weights = [np.ones(len(part), np.float32) if part.weights is None else part.weights for part in parts]
        return Interactions(
            contexts,
            train.items,
            np.concatenate([contexts.encode(part.contexts.frame)[part.context_codes] for part in parts]),
            np.concatenate([train.items.encode(part.items.frame)[part.item_codes] for part in parts]),
            weights=np.concatenate(weights) if weighted else None,
            times=np.concatenate([part.times for part in parts if part.times is not None]) if timed else None,
            columns=train.columns,
            time_dtype=train.time_dtype,
            aggregate=train.aggregate,
        )

    def __repr__(self) -> str:
        dropped = ", ".join(f"{count:,} {what}" for what, count in self.dropped.items() if count) or "nothing"
        return (
            f"Split by {self.protocol}, repeats {'dropped' if self.repeats == 'drop' else 'kept'}\n"
            f"  train    {count(len(self.train), 'event')} of {count(self.train.n_contexts, 'context')}"
            f" with {count(self.train.n_items, 'item')}\n"
            f"  truth    {count(len(self.truth), 'pair')} of {count(self.truth.n_contexts, 'context')}"
            f"{' (not in train; their history is folded in)' if self.fold_in else ''}\n"
            f"  dropped  {dropped}"
        )


def by_time(
    events: Interactions,
    test: float | int | str | dt.date | dt.datetime | dt.timedelta | np.datetime64 | np.timedelta64 = 0.1,
    *,
    repeats: Repeats = "drop",
) -> Split:
    """Train on all events before a moment and test on the later ones: the split that leaks nothing.

    Args:
        events: events with times.
        test: the test set, one of
            * a fraction of the events, such as 0.1: the newest tenth; events with the same time are never split;
            * a length of time that ends with the newest event: a `timedelta`, a `np.timedelta64`, or text such as
              `"7d"` in s, m (or min), h, d or w;
            * the moment at which the test begins: a date, a datetime, ISO text, or, if the time column holds plain
              numbers, a number.

            A moment without a time zone is local time in the zone of the time column. A local time that the clock
            skips in spring means the first instant after the gap. A local time that occurs twice in autumn means the
            earlier one.
        repeats: what to do with test pairs that are also in the training set: `"drop"` removes them, and evaluation
            then excludes seen items from the ranking; `"keep"` keeps them.

    >>> events = Interactions.from_frame({"u": [1, 1, 2, 2], "i": [1, 2, 1, 2], "t": [1, 4, 2, 3]},
    ...                                  context="u", item="i", time="t")
    >>> by_time(events, test=0.25)
    Split by time: test from 4, repeats dropped
      train    3 events of 2 contexts with 2 items
      truth    1 pair of 1 context
      dropped  nothing
    """
    times = _times(events, "by_time")
    cut = _cut(test, events, times)
    late = times >= cut
    if late.all() or not late.any():
        side = "training" if late.all() else "test"
        first, last, moment = (shown(time, events.time_dtype) for time in (times.min(), times.max(), cut))
        raise DataError(
            f"the {side} set is empty: the cut is at {moment}, the events are from {first} to {last}", code="empty-data"
        )
    return _warm_split(events, late, f"time: test from {shown(cut, events.time_dtype)}", repeats)


def leave_last_out(events: Interactions, n: int = 1, *, repeats: Repeats = "drop") -> Split:
    """Test on the last `n` events of each context, train on the earlier ones.

    Published tables often use this split, but it leaks: to predict a context's last event, the model learns from later
    events of other contexts. So it warns. All events of contexts with `n` or fewer events are training events.
    """
    times = _times(events, "leave_last_out")
    n = _integer(n, "n", 1)
    warnings.warn(
        ShortlistWarning(
            "leave-last-out trains on events that are newer than test events",
            hint=Message("use {} unless you reproduce a published table", Phrase("by_time", "splits.by_time")),
        ),
        stacklevel=2,
    )
    everywhere = np.arange(len(events), dtype=np.uint32)
    indptr, places = by_key(events.context_codes, everywhere, events.n_contexts, time_order(times))
    sizes = np.diff(indptr)
    late = np.zeros(len(events), np.bool_)
    late[places] = np.arange(len(events)) >= np.repeat(indptr[1:] - np.where(sizes > n, min(n, len(events)), 0), sizes)
    if not late.any():
        raise DataError(
            f"no context has more than {count(n, 'event')}, so the test set is empty", code="empty-data", hint="lower n"
        )
    short = int((sizes <= n).sum())
    return _warm_split(
        events, late, f"leaving each context's last {n} out", repeats, {"contexts with too few events": short}
    )


def at_random(events: Interactions, test: float = 0.1, *, seed: int = 0, repeats: Repeats = "drop") -> Split:
    """Test on a random fraction of the events. Like any random split it leaks the future; `by_time` does not."""
    _check_events(events, "at_random")
    fraction = _fraction(test, "test")
    late = np.random.default_rng([_integer(seed, "seed", 0), 1]).random(len(events)) < fraction
    if late.all() or not late.any():
        raise DataError(
            f"{len(events):,} events are too few for a test set of {fraction:.1%}", code="empty-data", field="test"
        )
    return _warm_split(events, late, f"chance: {fraction:.0%} of events, seed {seed}", repeats)


def held_out_contexts(
    events: Interactions,
    test: float | int = 0.1,
    *,
    fold_in: float = 0.8,
    by: Literal["random", "time"] = "random",
    seed: int = 0,
) -> Split:
    """Train on some contexts; fold in part of the pairs of the others and test on the rest.

    Also called strong generalisation, the protocol of Liang et al. 2018 (Mult-VAE). The fraction `fold_in` of a
    held-out context's pairs is its history; the rest, rounded down, is the truth: with 0.8 a context needs 5 pairs.

    Args:
        events: the events; repeated pairs count once.
        test: the number of contexts to hold out, or the fraction of them.
        fold_in: the fraction of pairs in the history.
        by: draw the test pairs at `"random"`, or take the newest by `"time"`.
        seed: seed of both draws.
    """
    _check_events(events, "held_out_contexts")
    if isinstance(test, int | np.integer) and not isinstance(test, bool):
        count = _integer(test, "test", 1)
    else:
        count = round(_fraction(test, "test") * events.n_contexts)
    if not 0 < count < events.n_contexts:
        message = Message("{test} holds out {:,} of {:,} contexts", count, events.n_contexts, test=test)
        raise SettingError(message, field="test", hint="hold out at least 1 and not all")
    _check_fold_in(events, fold_in, by)
    chosen = np.random.default_rng([_integer(seed, "seed", 0), 2]).permutation(events.n_contexts)[:count]
    held = np.zeros(events.n_contexts, np.bool_)
    held[chosen] = True
    return _fold_in_split(
        events, held, fold_in, by, seed, f"held-out contexts: {count:,}, {fold_in:.0%} shown, seed {seed}"
    )


def k_fold_contexts(
    events: Interactions,
    k: int = 5,
    *,
    fold_in: float = 0.8,
    by: Literal["random", "time"] = "random",
    seed: int = 0,
) -> Iterator[Split]:
    """Yield k splits as `held_out_contexts` makes them; each context is held out once. Splits are made lazily."""
    _check_events(events, "k_fold_contexts")
    k = _integer(k, "k", 2)
    if k > events.n_contexts:
        raise SettingError(f"k={k}: there are only {events.n_contexts:,} contexts", field="k")
    _check_fold_in(events, fold_in, by)
    fold = np.random.default_rng([_integer(seed, "seed", 0), 2]).permutation(events.n_contexts) % k
    return (
        _fold_in_split(
            events,
            fold == f,
            fold_in,
            by,
            seed,
            f"held-out contexts: fold {f + 1} of {k}, {fold_in:.0%} shown, seed {seed}",
        )
        for f in range(k)
    )


def given(
    train: Interactions, truth: Interactions, *, history: Interactions | None = None, repeats: Repeats = "drop"
) -> Split:
    """Build a published split: train on `train`, test on `truth`.

    With `history`, the contexts of `truth` are new and their history is folded in. Without it, they are contexts of
    `train`. Test events with unknown contexts or items are dropped and counted, as in all splits.
    """
    parts = {"train": train, "truth": truth} | ({} if history is None else {"history": history})
    for name, part in parts.items():
        _check_events(part, "given", name)
    _check_repeats(repeats)
    known = train if history is None else history
    _check_same_type(known.contexts, truth.contexts, "truth")
    _check_same_type(train.items, truth.items, "truth")
    _check_same_type(train.items, known.items, "history")
    truth_contexts = known.contexts.encode(truth.contexts.frame, unknown="mark")[truth.context_codes]
    truth_items = train.items.encode(truth.items.frame, unknown="mark")[truth.item_codes]
    dropped: dict[str, int] = {}
    if history is not None:
        items = train.items.encode(history.items.frame, unknown="mark")[history.item_codes]
        warm = items >= 0
        dropped["history events of unknown items"] = int((~warm).sum())
        known = history.with_codes(history.contexts, train.items, history.context_codes[warm], items[warm], warm)
    return _assemble(
        train,
        known,
        truth,
        truth_contexts,
        truth_items,
        "a given split",
        repeats,
        fold_in=history is not None,
        dropped=dropped,
    )


def among(events: Interactions, other: Interactions) -> Mask:
    """Return a mask of the events whose (context, item) pair, by id, occurs in `other`."""
    contexts = other.contexts.encode(events.contexts.frame, unknown="mark")[events.context_codes]
    items = other.items.encode(events.items.frame, unknown="mark")[events.item_codes]
    matches = (contexts >= 0) & (items >= 0)
    matches[matches] = has_pairs(other.by_context.indptr, other.by_context.indices, contexts[matches], items[matches])
    return matches


# --- construction ----------------------------------------------------------------------------------------------------


def _warm_split(
    events: Interactions, late: Mask, protocol: str, repeats: Repeats, dropped: dict[str, int] | None = None
) -> Split:
    """Test on the `late` events. Those with contexts or items that are not in the training set are dropped."""
    _check_repeats(repeats)
    train, context_map, item_map = _part(events, ~late)
    return _assemble(
        train,
        train,
        events.select(late),
        context_map[events.context_codes[late]],
        item_map[events.item_codes[late]],
        protocol,
        repeats,
        fold_in=False,
        dropped=dropped or {},
    )


def _part(events: Interactions, keep: Mask) -> tuple[Interactions, Codes, Codes]:
    """Return some events with only the ids that occur in them, and the new codes of the old ids (−1: dropped)."""
    context_codes, item_codes = events.context_codes[keep], events.item_codes[keep]
    contexts, context_map = compacted(events.contexts, context_codes)
    items, item_map = compacted(events.items, item_codes)
    part = events.with_codes(contexts, items, context_map[context_codes], item_map[item_codes], keep)
    return part, context_map, item_map


def _fold_in_split(
    events: Interactions, held: Mask, fold_in: float, by: Literal["random", "time"], seed: int, protocol: str
) -> Split:
    """Split the pairs of held-out contexts into history and truth. All events of a pair stay together."""
    fraction = _fraction(fold_in, "fold_in")
    is_held = held[events.context_codes]
    train, _, item_map = _part(events, ~is_held)
    item_codes = item_map[events.item_codes[is_held]]
    known = item_codes >= 0
    held_out = events.select(np.flatnonzero(is_held)[known])
    codes = held_out.context_codes
    held_out = held_out.with_codes(held_out.contexts, train.items, codes, item_codes[known], slice(None))
    dropped = {"held-out events of unknown items": int((~known).sum())}

    places, ends = _by_pair(codes, held_out.item_codes, held_out.times, held_out.n_contexts, held_out.n_items)
    newest = places[ends]
    pair_contexts = codes[newest]
    sizes = np.bincount(pair_contexts, minlength=held_out.n_contexts)
    n_test = np.floor((1 - fraction) * sizes + 1e-9).astype(np.int64)
    n_test = np.minimum(n_test, np.maximum(sizes - 1, 0))  # keep at least one pair in the history
    if not n_test.any():
        raise DataError(
            f"no held-out context has enough pairs to test on {1 - fraction:.0%} of them",
            code="empty-data",
            field="fold_in",
            hint="lower fold_in",
        )
    too_few = held & (n_test == 0)
    dropped["held-out contexts with too few pairs"] = int(too_few.sum())
    dropped["events of held-out contexts with too few pairs"] = int(too_few[codes].sum())

    key = np.random.default_rng([seed, 3]).random(len(newest)) if by == "random" else held_out.times[newest]  # type: ignore[index]
    order = np.lexsort([key, pair_contexts])
    rank = np.empty(len(newest), np.int64)
    rank[order] = np.arange(len(newest)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_test_pair = rank >= (sizes - n_test)[pair_contexts]
    is_test = np.empty(len(held_out), np.bool_)
    is_test[places] = np.repeat(is_test_pair, np.diff(np.flatnonzero(ends), prepend=-1))
    history = held_out.select(~is_test & ~too_few[codes])
    truth = held_out.select(is_test)
    return _assemble(
        train,
        history,
        truth,
        truth.context_codes,
        truth.item_codes,
        protocol,
        "drop",
        fold_in=True,
        dropped=dropped,
    )


def _assemble(
    train: Interactions,
    history: Interactions,
    truth: Interactions,
    truth_contexts: npt.NDArray[np.int32],
    truth_items: npt.NDArray[np.int32],
    protocol: str,
    repeats: Repeats,
    *,
    fold_in: bool,
    dropped: dict[str, int],
) -> Split:
    """Drop and count test events that cannot be used, then give truth and history the same contexts.

    Args:
        train: the training events.
        history: the known events of the test contexts.
        truth: the test events, with any vocabularies.
        truth_contexts: the contexts of the test events as codes of `history`, −1 for unknown ones.
        truth_items: the items of the test events as codes of `train`, −1 for unknown ones.
        protocol: the name of the split.
        repeats: whether to drop or keep test pairs that are in the history.
        fold_in: whether the contexts are not in `train`.
        dropped: counts of events that were dropped before.
    """
    dropped = dict(dropped)
    has_history = np.append(np.bincount(history.context_codes, minlength=history.n_contexts) > 0, False)  # [-1]: False
    no_history = ~has_history[truth_contexts]
    cold = (truth_items < 0) & ~no_history
    dropped["test events of unknown contexts"] = int(no_history.sum())
    dropped["unknown test contexts"] = len(np.unique(truth.context_codes[no_history]))
    dropped["test events of unknown items"] = int(cold.sum())
    dropped["unknown test items"] = len(np.unique(truth.item_codes[truth_items < 0]))
    usable = np.flatnonzero(~no_history & ~cold)
    times = None if truth.times is None else truth.times[usable]
    places, ends = _by_pair(truth_contexts[usable], truth_items[usable], times, history.n_contexts, train.n_items)
    keep = np.sort(usable[places[ends]])
    dropped["test events of repeated pairs"] = len(usable) - len(keep)
    if repeats == "drop":
        view = history.by_context
        seen = has_pairs(view.indptr, view.indices, truth_contexts[keep], truth_items[keep])
        known = "the history" if fold_in else "training"
        dropped[f"test pairs already in {known}"] = int(seen.sum())
        keep = keep[~seen]
    if not len(keep):
        counts = ", ".join(f"{count:,} {what}" for what, count in dropped.items() if count)
        keep_repeats = Message("hold out more, or pass {repeats}", repeats="keep")
        raise DataError(
            f"the test set is empty: all held-out events were dropped (split by {protocol.replace(': ', ', ')}: "
            f"{counts})",
            code="empty-data",
            field="test",
            hint=keep_repeats if repeats == "drop" and not fold_in and seen.any() else "hold out more",
        )
    contexts, remap = compacted(history.contexts, truth_contexts[keep])
    known_events = remap[history.context_codes] >= 0
    if fold_in:
        dropped["history events of unused contexts"] = int((~known_events).sum())
    return Split(
        train=train,
        history=history.with_codes(
            contexts,
            train.items,
            remap[history.context_codes[known_events]],
            history.item_codes[known_events],
            known_events,
        ),
        truth=truth.with_codes(contexts, train.items, remap[truth_contexts[keep]], truth_items[keep], keep),
        protocol=protocol,
        repeats=repeats,
        fold_in=fold_in,
        dropped=dropped,
    )


def _by_pair(
    contexts: Codes, items: Codes, times: npt.NDArray[Any] | None, n_contexts: int, n_items: int
) -> tuple[npt.NDArray[np.uint32], Mask]:
    """Return the positions of events sorted by context, item and time, and a mask of each pair's newest event.

    The result depends on the order of events only for events of the same pair at the same time.
    """
    places = np.arange(len(contexts), dtype=np.uint32)
    _, by_item = by_key(items, places, n_items, time_order(times))
    _, by_pair = by_key(contexts, places, n_contexts, by_item)
    context, item = contexts[by_pair], items[by_pair]
    ends = np.ones(len(places), np.bool_)
    ends[:-1] = (context[1:] != context[:-1]) | (item[1:] != item[:-1])
    return by_pair, ends


def _check_events(events: object, function: str, name: str = "events") -> None:
    if not isinstance(events, Interactions):
        what = "" if name == "events" else f" as {name}"
        raise DataError(
            f"{function} expects Interactions{what}, got {type(events).__name__}",
            field=name,
            hint="create them with Interactions.from_frame, .read or .from_csr",
        )


def _times(events: Interactions, function: str) -> npt.NDArray[Any]:
    _check_events(events, function)
    if events.times is None:
        raise DataError(
            Message("{} needs times", Phrase(function, function)),
            code="no-times",
            field="time",
            hint=Message("pass {time} with the name of the time column when you read the events", time=...),
        )
    return events.times


def _cut(test: Any, events: Interactions, times: npt.NDArray[Any]) -> Any:
    """Return the first time of the test set, as a number of the time column."""
    if isinstance(test, np.generic) and test.dtype.kind in "iuf":
        test = test.item()
    plain = isinstance(test, int | float) and not isinstance(test, bool)
    if isinstance(test, float) and 0 < test < 1:
        place = min(len(times) - 1, int(np.ceil(len(times) * (1 - test) - 1e-9)))
        cut = np.partition(times, place)[place]
        if cut == times.min() < times.max():  # many events share the first time: leave them for training
            cut = times[times > cut].min()
        return cut
    length = as_length(test)
    if length is not None and length <= 0:
        raise refusal("test", test, "a length of time > 0, such as '7d'")
    dtype = events.time_dtype
    if dtype is not None and is_temporal(dtype) and not isinstance(test, bool):
        if plain:
            raise refusal(
                "test",
                test,
                "a duration such as '7d', a date such as '2011-11-01', or a fraction between 0 and 1; a plain number "
                "is not possible, because the time column holds dates or datetimes",
            )
        if length is not None:
            return times[times >= first_within(length, int(times.max()), dtype)].min()
        return first_at_or_after(test, dtype, name="test")
    if isinstance(test, bool) or (plain and (not math.isfinite(test) or test <= min(0, times.min()))):
        raise refusal("test", test, "a fraction between 0 and 1, or the time at which the test begins")
    if not plain:
        raise refusal(
            "test", test, "a number as the time at which the test begins: the time column holds plain numbers"
        )
    return test


def _check_same_type(vocabulary: Vocabulary, other: Vocabulary, what: str) -> None:
    """Refuse ids of different types: they never match, so that all would be unknown."""
    types, expected = other.frame.dtypes, vocabulary.frame.dtypes
    if [dtype == pl.String for dtype in types] != [dtype == pl.String for dtype in expected]:
        raise DataError(
            f"the ids of {', '.join(other.names)} in {what} have type {', '.join(map(str, types))}, those of "
            f"{', '.join(vocabulary.names)} have type {', '.join(map(str, expected))}",
            code="column-type",
            hint="cast one of them",
        )


def _check_fold_in(events: Interactions, fold_in: float, by: str) -> None:
    _fraction(fold_in, "fold_in")
    if not isinstance(by, str) or by not in ("random", "time"):
        raise refusal("by", by, "'random' or 'time'")
    if by == "time":
        _times(events, "a split with by='time'")


def _check_repeats(repeats: str) -> None:
    if not isinstance(repeats, str) or repeats not in ("drop", "keep"):
        raise refusal("repeats", repeats, "'drop' or 'keep'")


def _fraction(value: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise refusal(name, value, "a fraction between 0 and 1")
    return float(value)


def _integer(value: int, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise refusal(name, value, f"an integer ≥ {least}")
    return int(value)
