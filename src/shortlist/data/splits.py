"""Splits: what a model may learn from, and what it is asked for afterwards.

| function | trains on | asks for | note |
|---|---|---|---|
| `by_time` | all events before a moment | what the known contexts did after it | the default: nothing leaks |
| `leave_last_out` | all but each context's last | that last one | leaks the future of other contexts |
| `at_random` | a random share of events | the rest | leaks the future |
| `held_out_contexts` | the events of some | part of the others' events, given the rest | generalises strongly |
| `k_fold_contexts` | the same, k times, each context held out once | | |
| `given` | a published training set | a published test set | |

Every one returns a `Split` and says what it left out.
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

from shortlist._phrases import count
from shortlist.data.interactions import Interactions, compacted, time_order
from shortlist.data.sparse_rows import by_key, has_pairs
from shortlist.data.times import as_length, first_at_or_after, first_within, is_temporal, shown
from shortlist.data.vocabulary import Codes, Vocabulary
from shortlist.errors import DataError, SettingError, ShortlistWarning

Repeats: TypeAlias = Literal["drop", "keep"]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Split:
    """A training set and a question about it.

    `truth` holds each relevant pair once (its newest event stands for it); its contexts are the ones to ask for, and
    they are also the contexts of `history`, which holds what is known of them at that moment. The items of all three
    are those of `train`. `dropped` counts what was left out, by reason: its counts of events and pairs, the truth, the
    training events and, with `fold_in`, the history add up to all the events there were.
    """

    train: Interactions
    history: Interactions
    truth: Interactions
    protocol: str
    repeats: Repeats
    fold_in: bool = False  # the contexts of `truth` are not in `train`: only their history tells about them
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def exclude_seen(self) -> bool:
        """Whether items of the history are left out of the ranking: so where repeats do not count as right answers."""
        return self.repeats == "drop"

    def events(self) -> Interactions:
        """Everything that it holds: the training set, the truth and, where it is folded in, the history.

        What a model is fitted to once its settings are chosen. Events that the split has left out are not in it.
        """
        train = self.train
        parts = [train, self.history, self.truth] if self.fold_in else [train, self.truth]
        contexts = train.contexts
        for part in parts[1:]:
            contexts = contexts.extend(part.contexts.frame)
        weighted, timed = (any(one.weights is not None for one in parts), all(one.times is not None for one in parts))
        weights = [np.ones(len(one), np.float32) if one.weights is None else one.weights for one in parts]
        return Interactions(
            contexts,
            train.items,
            np.concatenate([contexts.encode(one.contexts.frame)[one.context_codes] for one in parts]),
            np.concatenate([train.items.encode(one.items.frame)[one.item_codes] for one in parts]),
            weights=np.concatenate(weights) if weighted else None,
            times=np.concatenate([one.times for one in parts if one.times is not None]) if timed else None,
            columns=train.columns,
            time_dtype=train.time_dtype,
            aggregate=train.aggregate,
        )

    def __repr__(self) -> str:
        left_out = ", ".join(f"{count:,} {what}" for what, count in self.dropped.items() if count) or "nothing"
        return (
            f"Split by {self.protocol}, repeats {'dropped' if self.repeats == 'drop' else 'kept'}\n"
            f"  train    {count(len(self.train), 'event')} of {count(self.train.n_contexts, 'context')}"
            f" with {count(self.train.n_items, 'item')}\n"
            f"  truth    {count(len(self.truth), 'pair')} of {count(self.truth.n_contexts, 'context')}"
            f"{' (not in train; their history is folded in)' if self.fold_in else ''}\n"
            f"  dropped  {left_out}"
        )


def by_time(
    events: Interactions,
    test: float | int | str | dt.date | dt.datetime | dt.timedelta | np.datetime64 | np.timedelta64 = 0.1,
    *,
    repeats: Repeats = "drop",
) -> Split:
    """Train on everything before a moment, ask for what came after: the split that leaks nothing.

    Args:
        events: with times.
        test: what to ask for, one of
            * a share of the events, such as 0.1: the newest tenth, up to events of the same time;
            * a length of time: the newest stretch of that length, which ends with the newest event. A `timedelta`, a
              `np.timedelta64`, or text such as `"7d"` in s, m (or min), h, d or w;
            * the moment at which the test begins: a date, a datetime, ISO text, or, where the time column holds plain
              numbers, a number.

            A moment without a time zone is local time in the zone of the time column. A local time that the clock
            skips in spring stands for the first instant after the gap, so a day without a midnight begins when the
            clock resumes. One that occurs twice in autumn stands for the earlier of the two.
        repeats: `"drop"` pairs from the truth that are in the training set (and let evaluation leave seen items out of
            the ranking), or `"keep"` them.

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
        side = "train on" if late.all() else "ask for"
        first, last, moment = (shown(one, events.time_dtype) for one in (times.min(), times.max(), cut))
        raise DataError(f"nothing is left to {side}: the cut is at {moment}, the events run from {first} to {last}")
    return _weak(events, late, f"time: test from {shown(cut, events.time_dtype)}", repeats)


def leave_last_out(events: Interactions, n: int = 1, *, repeats: Repeats = "drop") -> Split:
    """Ask for the last `n` events of each context, train on the ones before them.

    Published tables often use it. It leaks: while one context's last event is being predicted, the model has learnt
    from later events of others; a warning says so. Contexts with `n` or fewer events stay in training whole.
    """
    times = _times(events, "leave_last_out")
    n = _whole(n, "n", 1)
    warnings.warn(
        "leave-last-out trains on events that are newer than the ones it asks for; use splits.by_time unless a "
        "published table is to be reproduced",
        ShortlistWarning,
        stacklevel=2,
    )
    everywhere = np.arange(len(events), dtype=np.uint32)
    indptr, places = by_key(events.context_codes, everywhere, events.n_contexts, time_order(times))
    sizes = np.diff(indptr)
    late = np.zeros(len(events), np.bool_)
    late[places] = np.arange(len(events)) >= np.repeat(indptr[1:] - np.where(sizes > n, min(n, len(events)), 0), sizes)
    if not late.any():
        raise DataError(f"no context has more than {count(n, 'event')}, so nothing can be left out")
    short = int((sizes <= n).sum())
    return _weak(events, late, f"leaving each context's last {n} out", repeats, {"contexts with too few events": short})


def at_random(events: Interactions, test: float = 0.1, *, seed: int = 0, repeats: Repeats = "drop") -> Split:
    """Ask for a random share of the events. Leaks the future like any random split; `by_time` does not."""
    _check_events(events, "at_random")
    share = _share(test, "test")
    late = np.random.default_rng([_whole(seed, "seed", 0), 1]).random(len(events)) < share
    if late.all() or not late.any():
        raise DataError(f"{len(events):,} events are too few to take a share of {share:g} from")
    return _weak(events, late, f"chance: {share:.0%} of events, seed {seed}", repeats)


def held_out_contexts(
    events: Interactions,
    test: float | int = 0.1,
    *,
    fold_in: float = 0.8,
    by: Literal["random", "time"] = "random",
    seed: int = 0,
) -> Split:
    """Train on some contexts; show the model part of the history of the others and ask for the rest.

    Strong generalisation, the protocol of Liang et al. 2018 (Mult-VAE): the share `fold_in` of a held-out context's
    pairs is its history, the rest (rounded down, so 5 pairs are needed at 0.8) the truth.

    Args:
        events: the events; pairs are counted once.
        test: how many contexts to hold out, or the share of them.
        fold_in: the share of pairs shown.
        by: the pairs asked for are drawn at `"random"` or are the newest in `"time"`.
        seed: for both draws.
    """
    _check_events(events, "held_out_contexts")
    if isinstance(test, int | np.integer) and not isinstance(test, bool):
        count = _whole(test, "test", 1)
    else:
        count = round(_share(test, "test") * events.n_contexts)
    if not 0 < count < events.n_contexts:
        raise SettingError(
            f"test={test!r} holds {count:,} of {events.n_contexts:,} contexts out; leave some on both sides"
        )
    _check_fold_in(events, fold_in, by)
    chosen = np.random.default_rng([_whole(seed, "seed", 0), 2]).permutation(events.n_contexts)[:count]
    held = np.zeros(events.n_contexts, np.bool_)
    held[chosen] = True
    return _strong(events, held, fold_in, by, seed, f"held-out contexts: {count:,}, {fold_in:.0%} shown, seed {seed}")


def k_fold_contexts(
    events: Interactions,
    k: int = 5,
    *,
    fold_in: float = 0.8,
    by: Literal["random", "time"] = "random",
    seed: int = 0,
) -> Iterator[Split]:
    """`held_out_contexts` k times, each context being held out once; a split is made when it is asked for."""
    _check_events(events, "k_fold_contexts")
    k = _whole(k, "k", 2)
    if k > events.n_contexts:
        raise SettingError(f"k={k}: there are only {events.n_contexts:,} contexts")
    _check_fold_in(events, fold_in, by)
    fold = np.random.default_rng([_whole(seed, "seed", 0), 2]).permutation(events.n_contexts) % k
    return (
        _strong(
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
    """A published split: ask for `truth` after training on `train`.

    With `history` the contexts of `truth` are strangers whose history is folded in; without it they are contexts of
    `train`. Contexts and items that `train` does not know are left out and counted, as everywhere.
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
        dropped["history events with items not in train"] = int((~warm).sum())
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


def among(asked: Interactions, there: Interactions) -> Mask:
    """Which events of one have their pair in the other, by ids."""
    contexts = there.contexts.encode(asked.contexts.frame, unknown="mark")[asked.context_codes]
    items = there.items.encode(asked.items.frame, unknown="mark")[asked.item_codes]
    found = (contexts >= 0) & (items >= 0)
    found[found] = has_pairs(there.by_context.indptr, there.by_context.indices, contexts[found], items[found])
    return found


# --- how they are made -----------------------------------------------------------------------------------------------


def _weak(
    events: Interactions, late: Mask, protocol: str, repeats: Repeats, dropped: dict[str, int] | None = None
) -> Split:
    """Contexts are known from training. What is new after the cut, contexts or items, is counted and left out."""
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
    """Some of the events, with those ids only that occur in them, and the new codes of the old ids (−1: none)."""
    context_codes, item_codes = events.context_codes[keep], events.item_codes[keep]
    contexts, context_map = compacted(events.contexts, context_codes)
    items, item_map = compacted(events.items, item_codes)
    part = events.with_codes(contexts, items, context_map[context_codes], item_map[item_codes], keep)
    return part, context_map, item_map


def _strong(
    events: Interactions, held: Mask, fold_in: float, by: Literal["random", "time"], seed: int, protocol: str
) -> Split:
    """Each pair of a held-out context, with all its events, goes either into the history or into the truth."""
    share = _share(fold_in, "fold_in")
    theirs = held[events.context_codes]
    train, _, item_map = _part(events, ~theirs)
    item_codes = item_map[events.item_codes[theirs]]
    known = item_codes >= 0
    others = events.select(np.flatnonzero(theirs)[known])
    others = others.with_codes(others.contexts, train.items, others.context_codes, item_codes[known], slice(None))
    dropped = {"events with items not in train": int((~known).sum())}

    places, ends = _by_pair(others.context_codes, others.item_codes, others.times, others.n_contexts, others.n_items)
    newest = places[ends]
    pair_contexts = others.context_codes[newest]
    sizes = np.bincount(pair_contexts, minlength=others.n_contexts)
    n_asked = np.floor((1 - share) * sizes + 1e-9).astype(np.int64)
    n_asked = np.minimum(n_asked, np.maximum(sizes - 1, 0))  # something must be shown
    if not n_asked.any():
        raise DataError(f"no held-out context has enough pairs to ask for {1 - share:.0%} of them; lower fold_in")
    few = held & (n_asked == 0)
    dropped["held-out contexts with too few pairs"] = int(few.sum())
    dropped["events of held-out contexts with too few pairs"] = int(few[others.context_codes].sum())

    key = np.random.default_rng([seed, 3]).random(len(newest)) if by == "random" else others.times[newest]  # type: ignore[index]
    order = np.lexsort([key, pair_contexts])
    rank = np.empty(len(newest), np.int64)
    rank[order] = np.arange(len(newest)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    asked_pair = rank >= (sizes - n_asked)[pair_contexts]
    asked = np.empty(len(others), np.bool_)
    asked[places] = np.repeat(asked_pair, np.diff(np.flatnonzero(ends), prepend=-1))
    keep = ~few[others.context_codes]
    history = others.select(~asked & keep)
    truth = others.select(asked)
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
    """Count and leave out what cannot be asked for, then give truth and history the same contexts.

    Args:
        train: what is learnt from.
        history: what is known of the contexts asked for; `truth_contexts` are its codes.
        truth: the events asked for, under whatever vocabularies.
        truth_contexts: the contexts of those events, −1 where they are not known.
        truth_items: their items as codes of `train`, −1 where they are not known.
        protocol: in words.
        repeats: whether pairs of the history count.
        fold_in: whether the contexts are strangers to `train`.
        dropped: what has been left out already.
    """
    dropped = dict(dropped)
    has_history = np.append(np.bincount(history.context_codes, minlength=history.n_contexts) > 0, False)  # [-1]: False
    strange = ~has_history[truth_contexts]
    cold = (truth_items < 0) & ~strange
    dropped["test events of contexts without history"] = int(strange.sum())
    dropped["test contexts without history"] = len(np.unique(truth.context_codes[strange]))
    dropped["test events with items not in train"] = int(cold.sum())
    dropped["test items not in train"] = len(np.unique(truth.item_codes[truth_items < 0]))
    usable = np.flatnonzero(~strange & ~cold)
    times = None if truth.times is None else truth.times[usable]
    places, ends = _by_pair(truth_contexts[usable], truth_items[usable], times, history.n_contexts, train.n_items)
    keep = np.sort(usable[places[ends]])
    dropped["test events that repeat a test pair"] = len(usable) - len(keep)
    if repeats == "drop":
        view = history.by_context
        seen = has_pairs(view.indptr, view.indices, truth_contexts[keep], truth_items[keep])
        dropped["test pairs that repeat a pair of the history"] = int(seen.sum())
        keep = keep[~seen]
    if not len(keep):
        counts = ", ".join(f"{count:,} {what}" for what, count in dropped.items() if count)
        raise DataError(f"the split by {protocol} leaves nothing to ask for: {counts}")
    contexts, remap = compacted(history.contexts, truth_contexts[keep])
    known_events = remap[history.context_codes] >= 0
    if fold_in:
        dropped["history events of contexts that are not asked for"] = int((~known_events).sum())
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
    """The places of events sorted by context, item and time, and at which of them a pair's newest event stands.

    So what is chosen depends on the order of rows only between events of one pair at one time.
    """
    places = np.arange(len(contexts), dtype=np.uint32)
    _, by_item = by_key(items, places, n_items, time_order(times))
    _, by_pair = by_key(contexts, places, n_contexts, by_item)
    context, item = contexts[by_pair], items[by_pair]
    ends = np.ones(len(places), np.bool_)
    ends[:-1] = (context[1:] != context[:-1]) | (item[1:] != item[:-1])
    return by_pair, ends


def _check_events(events: object, who: str, name: str = "events") -> None:
    if not isinstance(events, Interactions):
        what = "" if name == "events" else f" as {name}"
        raise DataError(
            f"{who} takes Interactions{what}, got {type(events).__name__}; make them with Interactions.from_frame, "
            ".read or .from_csr"
        )


def _times(events: Interactions, who: str) -> npt.NDArray[Any]:
    _check_events(events, who)
    if events.times is None:
        raise DataError(f"{who} needs times; name the column with time= when the events are read")
    return events.times


def _cut(test: Any, events: Interactions, times: npt.NDArray[Any]) -> Any:
    """The number in the time column from which on events are asked for."""
    if isinstance(test, np.generic) and test.dtype.kind in "iuf":
        test = test.item()
    plain = isinstance(test, int | float) and not isinstance(test, bool)
    if isinstance(test, float) and 0 < test < 1:
        place = min(len(times) - 1, int(np.ceil(len(times) * (1 - test) - 1e-9)))
        cut = np.partition(times, place)[place]
        if cut == times.min() < times.max():  # so many share the first moment; something must be left to train on
            cut = times[times > cut].min()
        return cut
    length = as_length(test)
    if length is not None and length <= 0:
        raise SettingError(f"test={test!r}; expected a length of time above 0, such as '7d'")
    dtype = events.time_dtype
    if dtype is not None and is_temporal(dtype) and not isinstance(test, bool):
        if plain:
            raise SettingError(
                f"test={test!r}; expected a length such as '7d', a date such as '2011-11-01', or a share between 0 "
                "and 1; the time column holds dates or datetimes, not plain numbers"
            )
        if length is not None:
            return times[times >= first_within(length, int(times.max()), dtype)].min()
        return first_at_or_after(test, dtype, name="test")
    if isinstance(test, bool) or (plain and (not math.isfinite(test) or test <= min(0, times.min()))):
        raise SettingError(f"test={test!r}; expected a share between 0 and 1, or the moment at which the test begins")
    if not plain:
        what = "moment" if length is None else "beginning of the test"
        raise SettingError(f"the time column holds plain numbers, so the {what} must be one too; got test={test!r:.80}")
    return test


def _check_same_type(own: Vocabulary, other: Vocabulary, what: str) -> None:
    """Ids of unlike types never match, so that a whole side of the split would go as unknown."""
    found, expected = other.frame.dtypes, own.frame.dtypes
    if [dtype == pl.String for dtype in found] != [dtype == pl.String for dtype in expected]:
        raise DataError(
            f"the ids of {', '.join(other.names)} in {what} are of type {', '.join(map(str, found))}, those of "
            f"{', '.join(own.names)} of type {', '.join(map(str, expected))}; cast one of them"
        )


def _check_fold_in(events: Interactions, fold_in: float, by: str) -> None:
    _share(fold_in, "fold_in")
    if not isinstance(by, str) or by not in ("random", "time"):
        raise SettingError(f"by={by!r:.80}; expected 'random' or 'time'")
    if by == "time":
        _times(events, "a split with by='time'")


def _check_repeats(repeats: str) -> None:
    if not isinstance(repeats, str) or repeats not in ("drop", "keep"):
        raise SettingError(f"repeats={repeats!r:.80}; expected 'drop' or 'keep'")


def _share(value: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise SettingError(f"{name}={value!r}; expected a share between 0 and 1")
    return float(value)


def _whole(value: int, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SettingError(f"{name}={value!r}; expected a whole number of at least {least}")
    return int(value)
