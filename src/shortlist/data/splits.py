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
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.interactions import Interactions
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import DataError, SettingError, ShortlistWarning

Repeats: TypeAlias = Literal["drop", "keep"]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Split:
    """A training set and a question about it.

    `truth` holds each relevant pair once; its contexts are the ones to ask for, and they are also the contexts of
    `history`, which holds what is known of them at that moment. The items of all three are those of `train`.
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

    def __repr__(self) -> str:
        left_out = ", ".join(f"{count:,} {what}" for what, count in self.dropped.items() if count) or "nothing"
        return (
            f"Split by {self.protocol}, repeats {'dropped' if self.repeats == 'drop' else 'kept'}\n"
            f"  train    {len(self.train):,} events of {self.train.n_contexts:,} contexts"
            f" with {self.train.n_items:,} items\n"
            f"  truth    {len(self.truth):,} pairs of {self.truth.n_contexts:,} contexts"
            f"{' (not in train; their history is folded in)' if self.fold_in else ''}\n"
            f"  dropped  {left_out}"
        )


def by_time(
    events: Interactions, test: float | int | str | dt.date | dt.datetime = 0.1, *, repeats: Repeats = "drop"
) -> Split:
    """Train on everything before a moment, ask for what came after: the split that leaks nothing.

    Args:
        events: with times.
        test: the share of events to ask for (the moment is chosen so that about this share is not older), or the
            moment itself: a date, a datetime, ISO text, or a number in the unit of the time column.
        repeats: `"drop"` pairs from the truth that are in the training set (and let evaluation leave seen items out of
            the ranking), or `"keep"` them.

    >>> events = Interactions.from_frame({"u": [1, 1, 2, 2], "i": [1, 2, 1, 2], "t": [1, 4, 2, 3]},
    ...                                  context="u", item="i", time="t")
    >>> by_time(events, test=0.25)
    Split by time: test from 4, repeats dropped
      train    3 events of 2 contexts with 2 items
      truth    1 pairs of 1 contexts
      dropped  nothing
    """
    times = _times(events, "by_time")
    if isinstance(test, float) and 0 < test < 1:
        cut = np.sort(times)[min(len(times) - 1, int(np.ceil(len(times) * (1 - test) - 1e-9)))]
    elif isinstance(test, bool) or (isinstance(test, int | float) and test <= 0):
        raise SettingError(f"test={test!r}; expected a share between 0 and 1, or the moment at which the test begins")
    else:
        cut = _moment(test, events)
    late = times >= cut
    if late.all() or not late.any():
        side = "train on" if late.all() else "ask for"
        first, last = _shown(times.min(), events), _shown(times.max(), events)
        raise DataError(
            f"nothing is left to {side}: the cut is at {_shown(cut, events)}, the events run from {first} to {last}"
        )
    return _weak(events, late, f"time: test from {_shown(cut, events)}", repeats)


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
    order = np.lexsort([np.arange(len(events)), times, events.context_codes])
    sizes = np.bincount(events.context_codes, minlength=events.n_contexts)
    from_end = np.empty(len(events), np.int64)
    ends = np.cumsum(sizes)[events.context_codes[order]]
    from_end[order] = ends - np.arange(len(events))
    late = (from_end <= n) & (sizes[events.context_codes] > n)
    if not late.any():
        raise DataError(f"no context has more than {n} events, so nothing can be left out")
    short = int((sizes <= n).sum())
    return _weak(events, late, f"leaving each context's last {n} out", repeats, {"contexts with too few events": short})


def at_random(events: Interactions, test: float = 0.1, *, seed: int = 0, repeats: Repeats = "drop") -> Split:
    """Ask for a random share of the events. Leaks the future like any random split; `by_time` does not."""
    share = _share(test, "test")
    late = np.random.default_rng([seed, 1]).random(len(events)) < share
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
    if isinstance(test, int) and not isinstance(test, bool):
        count = _whole(test, "test", 1)
    else:
        count = round(_share(test, "test") * events.n_contexts)
    if not 0 < count < events.n_contexts:
        raise SettingError(
            f"test={test!r} holds {count:,} of {events.n_contexts:,} contexts out; leave some on both sides"
        )
    chosen = np.random.default_rng([seed, 2]).permutation(events.n_contexts)[:count]
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
    """`held_out_contexts` k times, each context being held out once."""
    k = _whole(k, "k", 2)
    if k > events.n_contexts:
        raise SettingError(f"k={k}: there are only {events.n_contexts:,} contexts")
    fold = np.random.default_rng([seed, 2]).permutation(events.n_contexts) % k
    for f in range(k):
        name = f"held-out contexts: fold {f + 1} of {k}, {fold_in:.0%} shown, seed {seed}"
        yield _strong(events, fold == f, fold_in, by, seed, name)


def given(
    train: Interactions, truth: Interactions, *, history: Interactions | None = None, repeats: Repeats = "drop"
) -> Split:
    """A published split: ask for `truth` after training on `train`.

    With `history` the contexts of `truth` are strangers whose history is folded in; without it they are contexts of
    `train`. Contexts and items that `train` does not know are left out and counted, as everywhere.
    """
    _check_repeats(repeats)
    dropped: dict[str, int] = {}
    truth_items = train.items.encode(truth.items.frame.to_series(), unknown="mark")[truth.item_codes]
    if history is None:
        contexts = train.contexts
        truth_contexts = contexts.encode(_ids(truth.contexts), unknown="mark")[truth.context_codes]
        return _assemble(
            train, train, truth, truth_contexts, truth_items, "a given split", repeats, fold_in=False, dropped=dropped
        )
    contexts = history.contexts
    truth_contexts = contexts.encode(_ids(truth.contexts), unknown="mark")[truth.context_codes]
    history_items = train.items.encode(history.items.frame.to_series(), unknown="mark")[history.item_codes]
    known = history_items >= 0
    dropped["history events with items not in train"] = int((~known).sum())
    history = history.with_codes(contexts, train.items, history.context_codes[known], history_items[known], known)
    return _assemble(
        train, history, truth, truth_contexts, truth_items, "a given split", repeats, fold_in=True, dropped=dropped
    )


# --- how they are made -----------------------------------------------------------------------------------------------


def _weak(
    events: Interactions, late: Mask, protocol: str, repeats: Repeats, dropped: dict[str, int] | None = None
) -> Split:
    """Contexts are known from training. What is new after the cut, contexts or items, is counted and left out."""
    _check_repeats(repeats)
    train = events.select(~late, compact=True)
    truth = events.select(late)
    return _assemble(
        train,
        train,
        truth,
        train.contexts.encode(_ids(events.contexts), unknown="mark")[truth.context_codes],
        train.items.encode(_ids(events.items), unknown="mark")[truth.item_codes],
        protocol,
        repeats,
        fold_in=False,
        dropped=dropped or {},
    )


def _strong(
    events: Interactions, held: Mask, fold_in: float, by: Literal["random", "time"], seed: int, protocol: str
) -> Split:
    share = _share(fold_in, "fold_in")
    if by not in ("random", "time"):
        raise SettingError(f"by={by!r}; expected 'random' or 'time'")
    if by == "time":
        _times(events, "held_out_contexts with by='time'")
    train = events.select(~held[events.context_codes], compact=True)
    others = events.select(held[events.context_codes])
    item_codes = train.items.encode(_ids(events.items), unknown="mark")[others.item_codes]
    known = item_codes >= 0
    dropped = {"events with items not in train": int((~known).sum())}
    others = others.with_codes(others.contexts, train.items, others.context_codes[known], item_codes[known], known)
    # Each pair once, standing for itself with its newest event.
    first = _newest_of_pairs(others)
    pair_contexts = others.context_codes[first]
    sizes = np.bincount(pair_contexts, minlength=others.n_contexts)
    n_asked = np.floor((1 - share) * sizes + 1e-9).astype(np.int64)
    dropped["held-out contexts with too few pairs"] = int(((n_asked == 0) & (sizes > 0)).sum())
    if by == "random":
        key: npt.NDArray[Any] = np.random.default_rng([seed, 3]).random(len(first))
    else:
        key = others.times[first] if others.times is not None else first
    order = np.lexsort([key, pair_contexts])
    position = np.empty(len(first), np.int64)
    position[order] = np.arange(len(first)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    asked_pair = position >= (sizes - n_asked)[pair_contexts]
    asked = np.zeros(len(others), np.bool_)
    pair_key = others.context_codes.astype(np.int64) * train.n_items + others.item_codes
    asked_keys = np.sort(pair_key[first[asked_pair]])
    if not len(asked_keys):
        raise DataError(f"no held-out context has enough pairs to ask for {1 - share:.0%} of them; lower fold_in")
    at = np.minimum(np.searchsorted(asked_keys, pair_key), len(asked_keys) - 1)
    asked = asked_keys[at] == pair_key
    keep = (n_asked > 0)[others.context_codes]
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
    strange = truth_contexts < 0
    dropped["test events of contexts without history"] = int(strange.sum())
    dropped["test contexts without history"] = len(np.unique(truth.context_codes[strange]))
    cold = (truth_items < 0) & ~strange
    dropped["test events with items not in train"] = int(cold.sum())
    dropped["test items not in train"] = len(np.unique(truth.item_codes[truth_items < 0]))
    keep = np.flatnonzero(~strange & ~cold)
    key = truth_contexts[keep].astype(np.int64) * train.n_items + truth_items[keep]
    _, last = np.unique(key[::-1], return_index=True)
    distinct = np.sort(len(key) - 1 - last)
    dropped["test events that repeat a test pair"] = len(keep) - len(distinct)
    keep, key = keep[distinct], key[distinct]
    if repeats == "drop":
        seen = history.context_codes.astype(np.int64) * train.n_items + history.item_codes
        known = np.isin(key, seen)
        dropped["test pairs that repeat a pair of the history"] = int(known.sum())
        keep = keep[~known]
    if not len(keep):
        counts = ", ".join(f"{count:,} {what}" for what, count in dropped.items() if count)
        raise DataError(f"the split by {protocol} leaves nothing to ask for: {counts}")
    used = np.zeros(history.n_contexts, np.bool_)
    used[truth_contexts[keep]] = True
    contexts = Vocabulary(history.contexts.take(np.flatnonzero(used)))
    remap = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    known_events = used[history.context_codes]
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


def _newest_of_pairs(events: Interactions) -> npt.NDArray[np.int64]:
    """One place per distinct pair, in rising order: its newest event (the last row where times are equal or absent)."""
    times = np.zeros(len(events)) if events.times is None else events.times
    order = np.lexsort([np.arange(len(events)), times, events.item_codes, events.context_codes])
    contexts, items = events.context_codes[order], events.item_codes[order]
    ends = np.ones(len(events), np.bool_)
    ends[:-1] = (contexts[1:] != contexts[:-1]) | (items[1:] != items[:-1])
    return np.sort(order[ends])


def _ids(vocabulary: Vocabulary) -> Any:
    return vocabulary.ids() if vocabulary.is_tuple else vocabulary.frame.to_series()


def _times(events: Interactions, who: str) -> npt.NDArray[Any]:
    if events.times is None:
        raise DataError(f"{who} needs times; name the column with time= when the events are read")
    return events.times


def _moment(value: int | float | str | dt.date | dt.datetime, events: Interactions) -> Any:
    """The moment as a number in the events' own unit."""
    if isinstance(value, int | float):
        return value
    if events.time_dtype is None or not events.time_dtype.is_temporal():
        raise SettingError(f"the time column holds plain numbers, so the moment must be one too; got {value!r}")
    try:
        text = pl.Series([value.isoformat() if isinstance(value, dt.date) else value])
        moment = text.str.to_datetime(time_unit="us", strict=True)
        if moment.dtype.time_zone is None and getattr(events.time_dtype, "time_zone", None):  # type: ignore[attr-defined]
            moment = moment.dt.replace_time_zone(events.time_dtype.time_zone)  # type: ignore[attr-defined]
        return moment.cast(events.time_dtype).to_physical().item()
    except pl.exceptions.PolarsError as error:
        raise SettingError(
            f"test={value!r} cannot be read as a moment; expected a date such as '2011-11-01'"
        ) from error


def _shown(time: Any, events: Interactions) -> str:
    series = pl.Series([time])
    return str(series.item() if events.time_dtype is None else series.cast(events.time_dtype).item())


def _check_repeats(repeats: str) -> None:
    if repeats not in ("drop", "keep"):
        raise SettingError(f"repeats={repeats!r}; expected 'drop' or 'keep'")


def _share(value: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise SettingError(f"{name}={value!r}; expected a share between 0 and 1")
    return float(value)


def _whole(value: int, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SettingError(f"{name}={value!r}; expected a whole number of at least {least}")
    return int(value)
