"""A user whose events arrive one by one, and the embedding that a model gives them."""

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

from shortlist._checks import integer, number, one_of
from shortlist._phrases import count, duration
from shortlist.data.histories import Histories
from shortlist.data.id_lists import as_list
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Id, Vocabulary
from shortlist.errors import DataError, SettingError
from shortlist.objectives.weighting import Weighting, strengths
from shortlist.ranking.engine import best_for_embeddings
from shortlist.ranking.index import Index, index_of
from shortlist.ranking.inputs import ItemLists, refuse_frame
from shortlist.ranking.protocols import EmbeddingRanker, has_embeddings, is_ranker
from shortlist.ranking.queries import Queries, QueryLabels
from shortlist.ranking.recommendations import Recommendations
from shortlist.ranking.request import Request
from shortlist.retrieval.slates.base import Slate

Time: TypeAlias = float | dt.datetime | np.datetime64
DecayBy: TypeAlias = Literal["time", "events"]
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LARGEST = float(np.finfo(np.float32).max)  # largest weight, and largest sum of an item's weights


class Event(NamedTuple):
    """An event of a user: item id, weight, and time in the unit of the half-life (seconds for a `datetime`)."""

    item: Id
    weight: float = 1.0
    time: float | None = None


class UserState:
    """The events of one user as they arrive, and the embedding that a model computes from them.

    After any sequence of events, the embedding is the model's fold-in of the history, where old events can count less:

        state.embedding == model.fold_in([state.history], confidence=[state.confidence()])[0]

    It is computed when you read it, in a fraction of a millisecond, and cached until something changes. Every
    computation uses the whole history, so errors do not accumulate over events.

    A model that is `ordered` gets the events in their order, with weights and times; a half-life is refused.

    With a half-life, old events fade: an event of weight w counts w̃ = w·2^(−age/half_life). Its age is the time to the
    newest event, or to `now` if you pass it; with `decay_by="events"` it is the number of later events. Weights of a
    repeated item add up. The confidence of an item is g = f(Σw̃)/f(Σw), where f is the model's `weighting`; the item's
    α is multiplied by g, which gives the α of a pair with weight Σw̃. If α does not depend on weights
    (`weighting="binary"` or `strength_as="label"`), g is 2^(−age/half_life), with the age of the item's latest event.
    In both cases, a fraction g of the item counts as observed and the rest as unobserved; see `DotProduct.fold_in`. A
    fully faded item counts as if it had never been there, but it is still dropped from recommendations. For models with
    sampled negatives a fully faded item still has a small effect, because the draws depend on all items of the history.

    Many states can share a model, since they never change it. Do not use a state from several threads at a time. If the
    model is fitted again, the state uses the new embeddings; `with_model` copies the events to another model.

    Args:
        model: a fitted recommender with embeddings, such as `IALS` or `BPR`.
        history: events to start with, as for `extend`.
        half_life: age at which an event counts half: a number, or a `timedelta` of Python or NumPy. None: events do not
            fade. `half_life` and `decay_by` cannot be changed later.
        decay_by: `"time"`: ages are differences of event times, so every event needs a time. `"events"`: ages are
            numbers of later events.
        max_events: number of events to keep; when there are more, the oldest are dropped.
        unknown: what to do with unknown items: `"raise"` an error, or `"skip"` them and count them in `skipped`.

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
        model: EmbeddingRanker,
        history: Iterable[Any] | Mapping[Id, float] | None = None,
        *,
        half_life: float | dt.timedelta | np.timedelta64 | None = None,
        decay_by: DecayBy = "time",
        max_events: int | None = None,
        unknown: Literal["raise", "skip"] = "raise",
    ) -> None:
        self.model = require_embeddings(model)
        self._in_seconds = False  # whether the half-life was a timedelta
        if isinstance(half_life, dt.timedelta | np.timedelta64):
            if decay_by == "events":
                raise SettingError(
                    f"half_life is {half_life!r}, but decay_by is 'events'; expected a number of events",
                    field="half_life",
                )
            half_life = _seconds(half_life)
            self._in_seconds = True
        self._half_life = None if half_life is None else float(number("half_life", half_life, above=True))
        self._decay_by = one_of("decay_by", decay_by, ("time", "events"))
        if self._half_life is not None and model.ordered:
            raise SettingError(
                f"{type(model).__name__} reads histories in order, so half_life has no effect",
                code="no-effect",
                field="half_life",
                hint="omit half_life",
            )
        if self._half_life is None and decay_by == "events":
            raise SettingError(
                "decay_by='events' has no effect without half_life",
                hint="pass half_life=, or omit decay_by",
                code="no-effect",
                field="decay_by",
            )
        self._max_events = None if max_events is None else integer("max_events", max_events)
        self._unknown = one_of("unknown", unknown, ("raise", "skip"))
        self.skipped = 0  # number of skipped events of unknown items
        # Oldest first; events of the same time in order of arrival.
        self._codes: list[int] = []
        self._weights: list[float] = []
        self._times: list[float] = []  # empty if events have no times
        self._vocabulary = model.items_
        self._cached: tuple[float | None, npt.NDArray[np.float32], npt.NDArray[np.float32]] | None = None
        if history is not None:
            self.extend(history)

    @property
    def half_life(self) -> float | None:
        """The age at which an event counts half, in seconds if it was a timedelta; None: events do not fade."""
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
        """How ages are measured: `"time"` or `"events"`."""
        return self._decay_by

    @property
    def max_events(self) -> int | None:
        """The number of events to keep; None: all."""
        return self._max_events

    @property
    def unknown(self) -> str:
        """What happens to unknown items: `"raise"` or `"skip"`."""
        return self._unknown

    # --- events ------------------------------------------------------------------------------------------------------

    def add(self, item: Id, weight: float = 1.0, time: Time | None = None) -> None:
        """Add an event.

        Either all events have a time or none has. Events with times may arrive in any order; without times, the last
        event added is the newest.

        Args:
            item: the item's id.
            weight: the weight of the event.
            time: when it happened: a number in the unit of the half-life, or a datetime.
        """
        self._add_all([Event(item, weight, as_number(time))])

    def extend(self, events: Iterable[Any] | Mapping[Id, float]) -> None:
        """Add several events; if one is invalid, none is added.

        Args:
            events: a list of item ids, `Event`s or tuples (item,), (item, weight) or (item, weight, time); or
                {item: weight}. For a frame with these columns pass its rows: `frame.iter_rows()` with polars,
                `frame.itertuples(index=False)` with pandas.
        """
        self._add_all(as_events(events))

    def remove(self, item: Id) -> None:
        """Remove all events of an item, for example after a return; the model need not know the item any more."""
        (code,) = self._vocabulary.encode([item], unknown="mark")
        keep = [k for k, other in enumerate(self._codes) if other != code]
        if len(keep) == len(self._codes):
            raise DataError(f"there is no event of the item {item!r} to remove", field="item")
        self._codes, self._weights = [self._codes[k] for k in keep], [self._weights[k] for k in keep]
        self._times = [self._times[k] for k in keep] if self._times else []
        self._cached = None

    def _add_all(self, events: list[Event]) -> None:
        self.recode()
        self.insert(self.checked(events, coded(events, self._vocabulary, self.unknown)), len(events))

    def checked(self, events: list[Event], codes: Iterable[int]) -> list[tuple[int, Event]]:
        """Return the events of known items with their codes; refuse weights and times that do not fit."""
        for event in events:
            plain = type(event.weight) is float and 0 <= event.weight <= _LARGEST
            if not plain and number("weight", event.weight) > _LARGEST:
                raise SettingError(f"weight is {event.weight!r}; expected a number ≤ {_LARGEST:.2g}", field="weight")
        known = [(code, event) for code, event in zip(codes, events) if code >= 0]
        self._check_times([event.time for _, event in known])
        return known

    def insert(self, known: list[tuple[int, Event]], n_events: int) -> None:
        """Add checked events of known items; the others of `n_events` count as skipped."""
        for code, event in known:
            at = len(self._codes) if event.time is None else bisect_right(self._times, event.time)
            self._codes.insert(at, code)
            self._weights.insert(at, float(event.weight))
            if event.time is not None:
                self._times.insert(at, event.time)
        self.skipped += n_events - len(known)
        surplus = 0 if self.max_events is None else len(self._codes) - self.max_events
        if surplus > 0:
            del self._codes[:surplus], self._weights[:surplus], self._times[:surplus]
        self._cached = None

    def _check_times(self, new: list[float | None]) -> None:
        without = sum(time is None for time in new)
        untimed = f"{without:,} of {count(len(new), 'event')} {'has' if len(new) == 1 else 'have'} no time"
        if self.half_life is not None and self.decay_by == "time" and without:
            raise DataError(
                f"{untimed}, but half_life is {self._half_life_in_words}",
                code="no-times",
                field="time",
                hint="pass time=, or decay_by='events'",
            )
        if without and (self._times or without < len(new)):
            raise DataError(f"{untimed}, but other events have; expected all or none", code="no-times", field="time")
        if self._codes and not self._times and without < len(new):
            raise DataError("the event has a time, but earlier events have none; expected all or none", field="time")

    # --- embedding and recommendations --------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        """The events, the oldest first."""
        times: Iterable[float | None] = self._times or [None] * len(self._codes)
        ids = self._vocabulary.ids(self._codes)
        return [Event(*fields) for fields in zip(ids, self._weights, times)]

    @property
    def history(self) -> dict[Id, float]:
        """The items with the sums of their weights, before fading."""
        rows = self.rows(None)
        assert rows.values is not None
        return dict(zip(self._vocabulary.ids(rows.indices), rows.values.tolist()))

    def confidence(self, now: Time | None = None) -> dict[Id, float]:
        """Return the confidence of each item, from 0 to 1, for `DotProduct.fold_in`; by default at the newest event."""
        rows = self.rows(as_number(now))
        confidence = np.ones(len(rows), np.float32) if rows.confidence is None else rows.confidence
        return dict(zip(self._vocabulary.ids(rows.indices), confidence.tolist()))

    @property
    def embedding(self) -> npt.NDArray[np.float32]:
        """The embedding at the newest event, as a read-only array; zero without events."""
        return self.embedding_at(None)

    def embedding_at(self, now: Time | None) -> npt.NDArray[np.float32]:
        """Return the embedding at the time `now`, at or after the newest event, when events have faded further."""
        return self._embedding(as_number(now), None)

    def _embedding(self, now: float | None, history: Histories | None) -> npt.NDArray[np.float32]:
        embedding = self.cached(now)
        if embedding is None:
            history = self.history_at(now) if history is None else history
            embedding = self.keep(now, self.model.encode(numbered_queries(settled(history)))[0])
        return embedding

    def cached(self, now: float | None) -> npt.NDArray[np.float32] | None:
        """Return the embedding at the time `now` if nothing changed since it was computed."""
        self.recode()
        cached = self._cached
        if cached is None or cached[0] != now or cached[1] is not self.model.item_embeddings_:
            return None
        return cached[2]

    def keep(self, now: float | None, embedding: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Cache the embedding at the time `now`, read-only, and return it."""
        embedding.flags.writeable = False
        self._cached = now, self.model.item_embeddings_, embedding
        return embedding

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
        """Return the n best items, like `Recommender.recommend` for a history; the only list is `ids[0]`.

        Args:
            n: number of items.
            now: time at which to recommend, as in `embedding_at`; by default the time of the newest event.
            exclude_seen: drop the items of the history, however faded.
            allow: recommend only these items, as in `Recommender.recommend`.
            deny: never recommend these items, as in `Recommender.recommend`.
            slate: a method that picks the n items from a larger pool; see `shortlist.slates`.
            index: search this index of the model, made with `model.index(...)`, instead of scoring every item.
            memory: memory limit for blocks of scores, in bytes or as text such as "256MB"; an index ignores it.
            threads: number of threads; all CPUs by default.
        """
        request = Request(
            n=n, exclude_seen=exclude_seen, allow=allow, deny=deny, slate=slate, memory=memory, threads=threads
        )
        self.recode()
        moment = as_number(now)
        history = self.history_at(moment)
        embedding, queries = self._embedding(moment, history)[None], numbered_queries(history)
        if index is not None:
            return index_of(index, self.model).search_encoded(queries, embedding, request)
        return best_for_embeddings(self.model, embedding, queries, request)

    def history_at(self, now: float | None) -> Histories:
        """Return the history in the model's codes: in order for models that are `ordered`, else as a set."""
        if not self.model.ordered:
            return Histories.of_sets(self.rows(now))
        self.recode()
        self._decay(now)  # refuses `now`, which would have no effect
        codes, weights = np.array(self._codes, np.int32), np.array(self._weights, np.float32)
        times = np.array(self._times, np.float64) if self._times else None
        return Histories(np.array([0, len(codes)]), codes, times, weights, len(self._vocabulary))

    def rows(self, now: float | None) -> SparseRows:
        """Return the history as one row in the model's codes: items, sums of weights, and confidences."""
        self.recode()
        codes, weights = np.array(self._codes, np.int32), np.array(self._weights)
        distinct, place = np.unique(codes, return_inverse=True)
        total = np.minimum(np.bincount(place, weights, len(distinct)), _LARGEST)
        rows = SparseRows(np.array([0, len(distinct)]), distinct, total.astype(np.float32), len(self._vocabulary))
        decay = self._decay(now)
        if decay is None:
            return rows
        weighting: Weighting = getattr(self.model, "weighting", "binary")
        if weighting == "binary" or getattr(self.model, "strength_as", "weight") == "label":
            confidence = np.zeros(len(distinct))
            np.maximum.at(confidence, place, decay)
        else:
            faded = np.minimum(np.bincount(place, weights * decay, len(distinct)), _LARGEST)
            full = strengths(total, weighting)
            confidence = np.divide(strengths(faded, weighting), full, out=np.ones_like(full), where=full > 0)
        return replace(rows, confidence=np.minimum(confidence, 1).astype(np.float32))

    def _decay(self, now: float | None) -> npt.NDArray[np.float64] | None:
        """Return 2^(−age/half_life) of each event, or None if events do not fade."""
        if now is not None:
            if self.decay_by == "events" or self.half_life is None:
                reason = "decay_by is 'events'" if self.half_life is not None else "there is no half_life"
                raise SettingError(
                    f"now is {now:g}, but {reason}, so it has no effect", hint="omit now", field="now", code="no-effect"
                )
            if self._times and now < self._times[-1]:
                raise SettingError(
                    f"now is {now:g}; expected a time ≥ that of the newest event, {self._times[-1]:g}", field="now"
                )
        if self.half_life is None:
            return None
        if self.decay_by == "events":
            ages = np.arange(len(self._codes) - 1, -1, -1, dtype=np.float64)
        else:
            newest = now if now is not None else self._times[-1] if self._times else 0.0
            ages = newest - np.array(self._times, np.float64)
        return np.asarray(np.exp2(-ages / self.half_life))

    def recode(self) -> None:
        """Encode the items again if the model was fitted again."""
        if self._vocabulary is self.model.items_:
            return
        ids, vocabulary = self._vocabulary.ids(self._codes), self.model.items_
        way_out = "the model was fitted again without them; call remove(item), or with_model(model, unknown='skip')"
        mark: Literal["mark", "raise"] = "mark" if self.unknown == "skip" else "raise"
        codes = vocabulary.encode(ids, unknown=mark, what="item", way_out=way_out)
        keep = np.flatnonzero(codes >= 0).tolist()
        self.skipped += len(codes) - len(keep)
        self._codes, self._weights = codes[keep].tolist(), [self._weights[k] for k in keep]
        self._times = [self._times[k] for k in keep] if self._times else []
        self._vocabulary, self._cached = vocabulary, None

    # --- other models and storage -------------------------------------------------------------------------------------

    def with_model(self, model: EmbeddingRanker, unknown: Literal["raise", "skip"] | None = None) -> UserState:
        """Return a new state with the same events for another model, such as a newer one.

        Args:
            model: the other model.
            unknown: what to do with items that it does not know; by default as in this state.
        """
        settings = self._settings() | ({} if unknown is None else {"unknown": unknown})
        other = UserState(model, self.events, **settings)
        other._in_seconds = self._in_seconds
        return other

    def to_dict(self) -> dict[str, Any]:
        """Return settings and events as plain Python values, for JSON, without the model; see `from_dict`."""
        return {**self._settings(), "events": [list(event) for event in self.events]}

    @classmethod
    def from_dict(cls, model: EmbeddingRanker, stored: Mapping[str, Any]) -> UserState:
        """Return the state that `to_dict` stored, for a model that knows its items."""
        names = ("half_life", "decay_by", "max_events", "unknown", "events")
        if not isinstance(stored, Mapping) or set(stored) != set(names):
            got = sorted(map(str, stored)) if isinstance(stored, Mapping) else type(stored).__name__
            raise DataError(
                f"expected the result of to_dict, with {', '.join(names)}; got {got!s:.200}", field="stored"
            )
        events = stored["events"]
        if not isinstance(events, list) or not all(
            isinstance(event, list | tuple) and len(event) == 3 for event in events
        ):
            raise DataError("events: expected a list of [item, weight, time]", field="stored")
        settings = {name: stored[name] for name in names[:-1]}
        if settings["half_life"] is None:
            del settings["decay_by"]  # refused without a half-life
        return cls(model, [Event(*event) for event in events], **settings)

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("half_life", "decay_by", "max_events", "unknown")}

    def __len__(self) -> int:
        return len(self._codes)

    def __repr__(self) -> str:
        text = f"{count(len(self), 'event')} of {count(len(set(self._codes)), 'item')}"
        if self.half_life is not None:
            text += f", half-life {self._half_life_in_words}"
        if self.max_events is not None:
            text += f", at most {self.max_events:,}"
        return f"UserState({text}) of {type(self.model).__name__}"


def numbered_queries(histories: Histories) -> Queries:
    """Return queries for histories in codes, numbered from 0."""
    return Queries.of(QueryLabels.numbers(histories.n_rows), None, histories)


def settled(histories: Histories) -> Histories:
    """Return the histories without items that have faded fully."""
    return histories if histories.sets().confidence is None else Histories.of_sets(histories.sets().settled())


def as_events(events: Iterable[Any] | Mapping[Id, float]) -> list[Event]:
    """Return the events that a user passed, with times as numbers; see `UserState.extend`."""
    refuse_frame("events", events, "pass frame.iter_rows() of polars, or frame.itertuples(index=False) of pandas")
    not_a_list = not isinstance(events, Iterable) or (isinstance(events, np.ndarray) and not events.ndim)
    if isinstance(events, str | bytes) or not_a_list:
        raise SettingError(
            f"expected a list of items or of (item, weight, time), or {{item: weight}}; got {events!r}", field="events"
        )
    if isinstance(events, Mapping):
        return [Event(item, weight) for item, weight in events.items()]
    parsed = []
    for given in as_list(events, "a list of events", "events"):
        if isinstance(given, tuple) and not 1 <= len(given) <= 3:
            raise SettingError(f"expected an event as (item, weight, time); got {given!r:.80}", field="events")
        event = Event(*given) if isinstance(given, tuple) else Event(given)
        parsed.append(event if event.time is None else event._replace(time=as_number(event.time)))
    return parsed


def coded(events: list[Event], items: Vocabulary, unknown: str) -> list[int]:
    """Return the code of each event's item, −1 for unknown items if they are skipped."""
    mark: Literal["mark", "raise"] = "mark" if unknown == "skip" else "raise"
    way_out = "drop them, or create the state with unknown='skip'"
    codes = items.encode([event.item for event in events], unknown=mark, what="item", field="events", way_out=way_out)
    listed: list[int] = codes.tolist()
    return listed


def require_embeddings(model: object) -> EmbeddingRanker:
    """Return the model if it is fitted and has embeddings; else raise an error."""
    if not has_embeddings(model):
        kind = type(model).__name__
        problem = f"model is of type {kind}, which has no embeddings; expected"
        way_out = f"For {kind}, call recommend(history=[[…]]) instead" if is_ranker(model) else None
        raise SettingError(
            f"{problem} a fitted recommender with embeddings, such as IALS or BPR", field="model", hint=way_out
        )
    model.require_fit()
    return model


def _seconds(span: dt.timedelta | np.timedelta64) -> float:
    if isinstance(span, np.timedelta64):
        if np.isnat(span):
            raise SettingError(f"half_life is {span!r}; expected a number > 0, or a timedelta", field="half_life")
        return float(span.astype("timedelta64[us]") / np.timedelta64(1, "s"))  # for all units, also months
    return span.total_seconds()


def as_number(time: Time | None) -> float | None:
    """Return a time as a number; for a `datetime` the seconds since 1970, in UTC if it has no time zone."""
    if time is None:
        return None
    value: object = time
    if isinstance(value, np.datetime64):  # any unit; Python's datetimes have microseconds
        value = value.astype("datetime64[us]").item()
    elif isinstance(value, np.generic) and not isinstance(value, np.timedelta64):
        value = value.item()
    if isinstance(value, dt.datetime):
        value = ((value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH) / dt.timedelta(seconds=1)
    elif isinstance(time, np.datetime64):
        value = None  # NaT, or a year outside of Python's range
    with suppress(OverflowError):  # an integer can be too large for a float
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return value
    raise DataError(f"time is {time!r:.80}; expected a finite number or a datetime", field="time")
