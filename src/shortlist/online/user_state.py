"""Someone whose events come one by one, and the embedding that a model gives them."""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import number, one_of, whole
from shortlist._phrases import count, duration
from shortlist.data.id_lists import as_list
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Id
from shortlist.errors import DataError, SettingError
from shortlist.objectives.weighting import Weighting, strengths
from shortlist.recommenders.base import ItemLists, Recommender
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.given import refuse_frame
from shortlist.recommenders.index import Index
from shortlist.recommenders.recommendations import Recommendations
from shortlist.retrieval.slates.base import Slate

Time: TypeAlias = float | dt.datetime | np.datetime64
DecayBy: TypeAlias = Literal["time", "events"]
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LARGEST = float(np.finfo(np.float32).max)  # of a weight, and of what the weights of an item sum to


class Event(NamedTuple):
    """An item that someone had: its id, its weight, and when, in the unit of the half-life; of a `datetime` seconds."""

    item: Id
    weight: float = 1.0
    time: float | None = None


class UserState:
    """Someone's events as they come, and the embedding that follows from them.

    After any sequence of events the embedding is what the model folds the history in to, events that have faded
    counting for less:

        state.embedding == model.fold_in([state.history], confidence=[state.confidence()])[0]

    It is computed when it is asked for, and then kept until something changes. It is folded in afresh, not carried on
    from event to event, so nothing can add up to an error; that takes a fraction of a millisecond.

    With a half-life an event of weight w counts w̃ = w·2^(−age/half_life), from its `time` to that of the newest event
    (or to `now`, where that is given), or in events that came after it. Repeats of an item add up. What is left of an
    item, g, multiplies α, its weight in the loss: g = f(Σw̃)/f(Σw), where f is the model's `weighting`, so that α is
    what the model makes of the weight Σw̃; where α does not depend on weights (`weighting="binary"`, or
    `strength_as="label"`), it is 2^(−age/half_life) of the item's latest event. The item is g parts observed and 1 − g
    parts unobserved, as `fold_in(confidence=)` has it: it fades from an observed one to one that was never had, and is
    still left out of answers. Under models that learn from sampled negatives what is drawn depends on the items that
    are named, faded or not, so there the two differ by chance.

    The model is shared, and no state changes it; a state itself is for one thread at a time. If the model is fitted
    again, the state goes on with what it has become; `with_model` takes the events to another one.

    Args:
        model: a fitted recommender with embeddings (`DotProduct`).
        history: events to begin with, as `extend` takes them.
        half_life: the age at which an event counts half; a number, or a `timedelta` of Python's or NumPy's. None:
            events do not fade. This and the next three stay as they are; `with_model` makes a state with others.
        decay_by: whether ages are in `"time"`, and then every event has one, or in `"events"`.
        max_events: keep so many; where there are more, the oldest is forgotten.
        unknown: items that the model does not know `"raise"` an error, or are passed over (`"skip"`) and counted in
            `skipped`.

    >>> import shortlist as sl
    >>> events = sl.datasets.load("online-retail").interactions
    >>> model = sl.IALS(dim=8, epochs=2).fit(events)
    >>> state = sl.UserState(model, events.history(12347)[:3], half_life=10, decay_by="events")
    >>> state.add("84558A")
    >>> len(state), state.embedding.shape
    (4, (8,))
    >>> len(state.recommend(n=5).ids[0])
    5
    """

    def __init__(
        self,
        model: DotProduct,
        history: Iterable[Any] | Mapping[Id, float] | None = None,
        *,
        half_life: float | dt.timedelta | np.timedelta64 | None = None,
        decay_by: DecayBy = "time",
        max_events: int | None = None,
        unknown: Literal["raise", "skip"] = "raise",
    ) -> None:
        self.model = _checked(model)
        self._in_seconds = False  # whether the half-life was a timedelta
        if isinstance(half_life, dt.timedelta | np.timedelta64):
            if decay_by == "events":
                raise SettingError(f"half_life is {half_life!r}, but decay_by is 'events'; expected a number of events")
            half_life = _seconds(half_life)
            self._in_seconds = True
        self._half_life = None if half_life is None else float(number("half_life", half_life, above=True))
        self._decay_by = one_of("decay_by", decay_by, ("time", "events"))
        if self._half_life is None and decay_by == "events":
            raise SettingError(
                "decay_by is 'events', which changes nothing without half_life; pass half_life=, or leave it out"
            )
        self._max_events = None if max_events is None else whole("max_events", max_events)
        self._unknown = one_of("unknown", unknown, ("raise", "skip"))
        self.skipped = 0  # events of items that the model does not know
        # By age, the oldest first; those of the same time in the order in which they came.
        self._codes: list[int] = []
        self._weights: list[float] = []
        self._times: list[float] = []  # empty where events have none
        self._vocabulary = model.items_
        self._kept: tuple[float | None, npt.NDArray[np.float32], npt.NDArray[np.float32]] | None = None
        if history is not None:
            self.extend(history)

    @property
    def half_life(self) -> float | None:
        """The age at which an event counts half, in seconds where it was a timedelta; None: events do not fade."""
        return self._half_life

    @property
    def _half_life_in_words(self) -> str:
        assert self._half_life is not None
        if self._in_seconds:
            return duration(self._half_life)
        number = f"{self._half_life:,.10g}"
        unit = "in time" if self.decay_by == "time" else "event" if number == "1" else "events"
        return f"{number} {unit}"

    @property
    def decay_by(self) -> str:
        """Whether ages are in `"time"` or in `"events"`."""
        return self._decay_by

    @property
    def max_events(self) -> int | None:
        """How many are kept; None: all."""
        return self._max_events

    @property
    def unknown(self) -> str:
        """What becomes of items that the model does not know: `"raise"` or `"skip"`."""
        return self._unknown

    # --- events ------------------------------------------------------------------------------------------------------

    def add(self, item: Id, weight: float = 1.0, time: Time | None = None) -> None:
        """Take note of an event: the item, how much it counts, and when it was.

        Either all events have a time or none has; without one, the last that came is the newest. Events may come late.
        """
        self._take([Event(item, weight, _as_number(time))])

    def extend(self, events: Iterable[Any] | Mapping[Id, float]) -> None:
        """Take note of several events, or of none of them if one is refused.

        Args:
            events: item ids, `Event`s or tuples (item, weight, time) with the last one or two left out, or
                {item: weight}. Of a frame with these columns, its rows: `frame.iter_rows()` of polars',
                `frame.itertuples(index=False)` of pandas'.
        """
        refuse_frame("events", events, "pass frame.iter_rows() of polars, or frame.itertuples(index=False) of pandas")
        no_list = not isinstance(events, Iterable) or (isinstance(events, np.ndarray) and not events.ndim)
        if isinstance(events, str | bytes) or no_list:
            raise SettingError(
                f"expected a list of items, of (item, weight, time), or {{item: weight}}; got {events!r}"
            )
        if isinstance(events, Mapping):
            self._take([Event(item, weight) for item, weight in events.items()])
            return
        found = []
        for one in as_list(events, "a list of events"):
            if isinstance(one, tuple) and not 1 <= len(one) <= 3:
                raise SettingError(f"expected an event as (item, weight, time); got {one!r:.80}")
            event = Event(*one) if isinstance(one, tuple) else Event(one)
            found.append(event._replace(time=_as_number(event.time)))
        self._take(found)

    def remove(self, item: Id) -> None:
        """Forget all events of an item, as when someone takes it back; also of one that the model has lost."""
        (code,) = self._vocabulary.encode([item], unknown="mark")
        keep = [k for k, one in enumerate(self._codes) if one != code]
        if len(keep) == len(self._codes):
            raise DataError(f"there is no event of the item {item!r} to remove")
        self._codes, self._weights = [self._codes[k] for k in keep], [self._weights[k] for k in keep]
        self._times = [self._times[k] for k in keep] if self._times else []
        self._kept = None

    def _take(self, events: list[Event]) -> None:
        self._renew()
        for one in as_list(events, "a list of events"):
            if number("weight", one.weight) > _LARGEST:
                raise SettingError(f"weight is {one.weight!r}; expected a number of at most {_LARGEST:.2g}")
        mark: Literal["mark", "raise"] = "mark" if self.unknown == "skip" else "raise"
        way_out = "leave them out, or make the state with unknown='skip'"
        codes = self._vocabulary.encode([one.item for one in events], unknown=mark, what="item", way_out=way_out)
        known = [(int(code), one) for code, one in zip(codes, events) if code >= 0]
        self._check_times([one.time for _, one in known])
        for code, one in known:
            at = len(self._codes) if one.time is None else bisect_right(self._times, one.time)
            self._codes.insert(at, code)
            self._weights.insert(at, float(one.weight))
            if one.time is not None:
                self._times.insert(at, one.time)
        self.skipped += len(events) - len(known)
        surplus = 0 if self.max_events is None else len(self._codes) - self.max_events
        if surplus > 0:
            del self._codes[:surplus], self._weights[:surplus], self._times[:surplus]
        self._kept = None

    def _check_times(self, new: list[float | None]) -> None:
        without = sum(time is None for time in new)
        untimed = f"{without:,} of {count(len(new), 'event')} {'has' if len(new) == 1 else 'have'} no time"
        if self.half_life is not None and self.decay_by == "time" and without:
            raise DataError(f"{untimed}, but half_life is {self._half_life_in_words}; pass time=, or decay_by='events'")
        if without and (self._times or without < len(new)):
            raise DataError(f"{untimed}, but others have; expected all or none")
        if self._codes and not self._times and without < len(new):
            raise DataError("the event has a time, but those before it have none; expected all or none")

    # --- what follows from them --------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        """The events, the oldest first."""
        times: Iterable[float | None] = self._times or [None] * len(self._codes)
        ids = self._vocabulary.ids(self._codes)
        return [Event(*one) for one in zip(ids, self._weights, times)]

    @property
    def history(self) -> dict[Id, float]:
        """The items with the sums of their weights, as they would be without fading."""
        rows = self._rows(None)
        assert rows.values is not None
        return dict(zip(self._vocabulary.ids(rows.indices), rows.values.tolist()))

    def confidence(self, now: Time | None = None) -> dict[Id, float]:
        """What is left of each item, from 0 to 1, for `DotProduct.fold_in`; by default at the newest event."""
        rows = self._rows(_as_number(now))
        left = np.ones(len(rows), np.float32) if rows.confidence is None else rows.confidence
        return dict(zip(self._vocabulary.ids(rows.indices), left.tolist()))

    @property
    def embedding(self) -> npt.NDArray[np.float32]:
        """The embedding at the newest event; zero without events. It cannot be written to."""
        return self.embedding_at(None)

    def embedding_at(self, now: Time | None) -> npt.NDArray[np.float32]:
        """The embedding at a time that is not before the newest event, at which events have faded further."""
        return self._embedding(_as_number(now), None)

    def _embedding(self, now: float | None, rows: SparseRows | None) -> npt.NDArray[np.float32]:
        self._renew()
        items = self.model.item_embeddings_
        if self._kept is None or self._kept[0] != now or self._kept[1] is not items:
            rows = self._rows(now) if rows is None else rows
            found = self.model._folded(rows.settled())[0]
            found.flags.writeable = False
            self._kept = now, items, found
        return self._kept[2]

    def recommend(
        self,
        n: int = 10,
        *,
        now: Time | None = None,
        exclude_seen: bool = True,
        allow: ItemLists | None = None,
        deny: ItemLists | None = None,
        slate: Slate | None = None,
        index: Index | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
    ) -> Recommendations:
        """The n best items, as `Recommender.recommend` gives them for a history; one query, so `ids[0]`.

        Args:
            n: how many.
            now: see `embedding_at`.
            exclude_seen: leave out the items of the history, however much they have faded.
            allow: as in `Recommender.recommend`, as are the others.
            deny: never these.
            slate: pick the n out of more: see `shortlist.slates`.
            index: ask this index of the model, as `model.index(...)` made it, instead of scoring every item.
            memory: what blocks of scores may take; an index has no use for it.
            threads: how many to use.
        """
        self._renew()
        moment = _as_number(now)
        rows = self._rows(moment)
        filters: dict[str, Any] = {"exclude_seen": exclude_seen, "allow": allow, "deny": deny}
        filters |= {"slate": slate, "index": index}
        embedding = self._embedding(moment, rows)[None]
        return self.model._recommend_from(embedding, rows, n, **filters, memory=memory, threads=threads)

    def _rows(self, now: float | None) -> SparseRows:
        """The history as one row: items, sums of weights, and what is left of them."""
        self._renew()
        codes, weights = np.array(self._codes, np.int32), np.array(self._weights)
        distinct, place = np.unique(codes, return_inverse=True)
        total = np.minimum(np.bincount(place, weights, len(distinct)), _LARGEST)
        rows = SparseRows(np.array([0, len(distinct)]), distinct, total.astype(np.float32), len(self._vocabulary))
        left = self._left(now)
        if left is None:
            return rows
        weighting: Weighting = getattr(self.model, "weighting", "binary")
        if weighting == "binary" or getattr(self.model, "strength_as", "weight") == "label":
            confidence = np.zeros(len(distinct))
            np.maximum.at(confidence, place, left)
        else:
            faded = np.minimum(np.bincount(place, weights * left, len(distinct)), _LARGEST)
            of_all = strengths(total, weighting)
            confidence = np.divide(strengths(faded, weighting), of_all, out=np.ones_like(of_all), where=of_all > 0)
        return replace(rows, confidence=np.minimum(confidence, 1).astype(np.float32))

    def _left(self, now: float | None) -> npt.NDArray[np.float64] | None:
        """2^(−age/half_life) of each event; None where nothing fades."""
        if now is not None:
            if self.decay_by == "events" or self.half_life is None:
                what = "decay_by is 'events'" if self.half_life is not None else "there is no half_life"
                raise SettingError(f"now is {now:g}, but {what}: only ages in time depend on it; leave it out")
            if self._times and now < self._times[-1]:
                raise SettingError(f"now is {now:g}, before the newest event at {self._times[-1]:g}")
        if self.half_life is None:
            return None
        if self.decay_by == "events":
            ages = np.arange(len(self._codes) - 1, -1, -1, dtype=np.float64)
        else:
            newest = now if now is not None else self._times[-1] if self._times else 0.0
            ages = newest - np.array(self._times, np.float64)
        return np.asarray(np.exp2(-ages / self.half_life))

    def _renew(self) -> None:
        """Take the items' codes from the model as it is now: it may have been fitted again."""
        if self._vocabulary is self.model.items_:
            return
        ids, vocabulary = self._vocabulary.ids(self._codes), self.model.items_
        way_out = (
            "the model has lost them: remove(item) forgets them, with_model(model, unknown='skip') passes over them"
        )
        mark: Literal["mark", "raise"] = "mark" if self.unknown == "skip" else "raise"
        codes = vocabulary.encode(ids, unknown=mark, what="item", way_out=way_out)
        keep = np.flatnonzero(codes >= 0).tolist()
        self.skipped += len(codes) - len(keep)
        self._codes, self._weights = codes[keep].tolist(), [self._weights[k] for k in keep]
        self._times = [self._times[k] for k in keep] if self._times else []
        self._vocabulary, self._kept = vocabulary, None

    # --- elsewhere ---------------------------------------------------------------------------------------------------

    def with_model(self, model: DotProduct, unknown: Literal["raise", "skip"] | None = None) -> UserState:
        """The same events under another model, such as a later one; this state stays as it is.

        Args:
            model: the other one, or the same.
            unknown: what becomes of items that it does not know; as here, unless given.
        """
        settings = self._settings() | ({} if unknown is None else {"unknown": unknown})
        other = UserState(model, self.events, **settings)
        other._in_seconds = self._in_seconds
        return other

    def to_dict(self) -> dict[str, Any]:
        """Settings and events in plain Python values, for JSON; `from_dict` reads them back. The model is not in it."""
        return {**self._settings(), "events": [list(one) for one in self.events]}

    @classmethod
    def from_dict(cls, model: DotProduct, stored: Mapping[str, Any]) -> UserState:
        """The state that `to_dict` was called on, under a model that knows its items."""
        names = ("half_life", "decay_by", "max_events", "unknown", "events")
        if not isinstance(stored, Mapping) or set(stored) != set(names):
            found = sorted(map(str, stored)) if isinstance(stored, Mapping) else type(stored).__name__
            raise DataError(f"expected what to_dict makes, with {', '.join(names)}; found {found!s:.200}")
        events = stored["events"]
        if not isinstance(events, list) or not all(isinstance(one, list | tuple) and len(one) == 3 for one in events):
            raise DataError("events: expected a list of [item, weight, time]")
        settings = {name: stored[name] for name in names[:-1]}
        if settings["half_life"] is None:
            del settings["decay_by"]  # nothing fades
        return cls(model, [Event(*one) for one in events], **settings)

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("half_life", "decay_by", "max_events", "unknown")}

    def __len__(self) -> int:
        return len(self._codes)

    def __repr__(self) -> str:
        told = f"{count(len(self), 'event')} of {count(len(set(self._codes)), 'item')}"
        if self.half_life is not None:
            told += f", half-life {self._half_life_in_words}"
        if self.max_events is not None:
            told += f", at most {self.max_events:,}"
        return f"UserState({told}) under {type(self.model).__name__}"


def _checked(model: object) -> DotProduct:
    if not isinstance(model, DotProduct):
        kind = type(model).__name__
        found = f"model is of type {kind}, which has no embeddings; expected"
        way_out = (
            f". {kind} answers recommend(history=[[…]]) for anyone's items" if isinstance(model, Recommender) else ""
        )
        raise SettingError(f"{found} a fitted recommender with embeddings, such as IALS or BPR{way_out}")
    model._require_fit()
    return model


def _seconds(span: dt.timedelta | np.timedelta64) -> float:
    if isinstance(span, np.timedelta64):
        if np.isnat(span):
            raise SettingError(f"half_life is {span!r}; expected a number above 0, or a timedelta")
        return float(span.astype("timedelta64[us]") / np.timedelta64(1, "s"))  # of any unit, months too
    return span.total_seconds()


def _as_number(time: Time | None) -> float | None:
    """A time as a number: of a `datetime` the seconds since 1970, in UTC unless it says otherwise."""
    if time is None:
        return None
    found: object = time
    if isinstance(found, np.datetime64):  # of any unit, and Python's have microseconds
        found = found.astype("datetime64[us]").item()
    elif isinstance(found, np.generic) and not isinstance(found, np.timedelta64):
        found = found.item()
    if isinstance(found, dt.datetime):
        found = ((found if found.tzinfo else found.replace(tzinfo=dt.UTC)) - _EPOCH) / dt.timedelta(seconds=1)
    elif isinstance(time, np.datetime64):
        found = None  # NaT, or a year that Python does not know
    with suppress(OverflowError):  # a whole number may be longer than any float
        if isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found):
            return found
    raise DataError(f"time is {time!r:.80}; expected a finite number or a datetime")
