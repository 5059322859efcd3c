"""Live users: their events as they arrive, and their embeddings, computed together."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from shortlist._phrases import count
from shortlist._threads import blas_threads
from shortlist.data.histories import Histories
from shortlist.data.id_lists import as_list
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Id, Unknown, Vocabulary, is_id
from shortlist.errors import DataError, SettingError, UnknownIdError
from shortlist.online.user_state import (
    DecayBy,
    Event,
    Time,
    UserState,
    as_events,
    as_number,
    coded,
    numbered_queries,
    settled,
)
from shortlist.ranking.engine import best_for_embeddings
from shortlist.ranking.index import Index, index_of
from shortlist.ranking.inputs import ItemLists
from shortlist.ranking.protocols import EmbeddingRanker
from shortlist.ranking.queries import Queries, QueryLabels
from shortlist.ranking.recommendations import Recommendations
from shortlist.ranking.request import Request
from shortlist.retrieval.slates.base import Slate


class UserStates:
    """The events of many users as they arrive, and the embeddings that a model computes from them in one call.

    Each user is a `UserState`: `states[user]`. The results are those of one user after the other, up to rounding, but
    new events are looked up together, embeddings are folded in together on all threads, and the catalogue is searched
    for all users at once.

    The arguments are those of `UserState`. Do not use the states from several threads at a time.

    Args:
        model: a fitted recommender with embeddings, such as `IALS` or `BPR`.
        events: events to start with, as for `extend`.
        half_life: age at which an event counts half; None: events do not fade.
        decay_by: `"time"` or `"events"`.
        max_events: number of events to keep for each user.
        unknown: what to do with unknown items: `"raise"` an error, or `"skip"` them.

    >>> import shortlist as sl
    >>> events = sl.datasets.load("online-retail").interactions
    >>> model = sl.IALS(dim=8, epochs=2).fit(events)
    >>> states = sl.UserStates(model, {"ann": ["10002", "10080"], "bob": ["84558A"]})
    >>> states.extend({"bob": ["10002"], "cy": ["10120"]})
    >>> states.embeddings().shape, len(states["bob"])
    ((3, 8), 2)
    >>> states.recommend(["cy", "ann"], n=5).queries
    ['cy', 'ann']
    """

    def __init__(
        self,
        model: EmbeddingRanker,
        events: Interactions | Mapping[Id, Iterable[Any] | Mapping[Id, float]] | None = None,
        *,
        half_life: float | dt.timedelta | np.timedelta64 | None = None,
        decay_by: DecayBy = "time",
        max_events: int | None = None,
        unknown: Literal["raise", "skip"] = "raise",
    ) -> None:
        self._settings: dict[str, Any] = {"half_life": half_life, "max_events": max_events, "unknown": unknown}
        self._settings["decay_by"] = decay_by
        self._new_user = UserState(model, **self._settings)  # checks the settings
        self._states: dict[Id, UserState] = {}
        self._names: tuple[str, ...] | None = None  # of the columns of users, from `Interactions`
        if events is not None:
            self.extend(events)

    @property
    def model(self) -> EmbeddingRanker:
        """The model."""
        return self._new_user.model

    # --- events ------------------------------------------------------------------------------------------------------

    def extend(self, events: Interactions | Mapping[Id, Iterable[Any] | Mapping[Id, float]]) -> None:
        """Add events of several users; new users become known. If one event is invalid, none is added.

        Args:
            events: `Interactions`, whose contexts are the users; or {user: events}, with events as for
                `UserState.extend`. The times of `Interactions` are in seconds if they are dates.
        """
        if isinstance(events, Interactions):
            self._check_users(events.contexts.ids())
            self._add(*self._of_interactions(events))
            self._names = events.contexts.names
            return
        if not isinstance(events, Mapping):
            raise SettingError(f"events is {events!r:.80}; expected Interactions, or {{user: events}}", field="events")
        self._check_users(list(events))
        lists = [as_events(of_user) for of_user in events.values()]
        together = [event for of_user in lists for event in of_user]
        self._add(list(events), lists, coded(together, self.model.items_, self._new_user.unknown))

    def _check_users(self, users: list[Id]) -> None:
        """Refuse users that are no ids, or not of one type: a list of recommendations has them in one column."""
        example = next(iter(self._states), users[0] if users else None)
        for user in users:
            if not is_id(user):
                expected = "text, an integer, or a tuple of them"
                raise DataError(f"user {user!r:.80} is not an id; expected {expected}", field="events")
            if _type_of(user) != _type_of(example):
                raise DataError(
                    f"user {user!r:.80} is of another type than user {example!r:.80}; expected ids of one type",
                    field="events",
                )

    def _of_interactions(self, events: Interactions) -> tuple[list[Id], list[list[Event]], list[int]]:
        histories = events.histories
        unknown: Unknown = "mark" if self._new_user.unknown == "skip" else "raise"
        used = np.unique(histories.items)  # the catalogue of the events may be larger
        way_out = "drop them, or create the states with unknown='skip'"
        new = np.full(len(events.items), -1, np.int32)
        new[used] = self.model.items_.encode(events.items.take(used), unknown=unknown, what="item", way_out=way_out)
        weights = [1.0] * len(histories) if histories.weights is None else histories.weights.tolist()
        times = [None] * len(histories) if histories.times is None else histories.times.tolist()
        together = [Event(*fields) for fields in zip(events.items.ids(histories.items), weights, times)]
        lists = [together[a:b] for a, b in pairwise(histories.indptr.tolist())]
        return events.contexts.ids(), lists, new[histories.items].tolist()

    def _add(self, users: Sequence[Id], lists: list[list[Event]], codes: list[int]) -> None:
        """Check the events of all users, then add them; `codes` has the item of each event, list after list."""
        checked, start = [], 0
        for user, events in zip(users, lists):
            state = self._states.get(user)
            if state is None:
                state = UserState(self.model, **self._settings)
            state.recode()
            known = state.checked(events, codes[start : start + len(events)])
            checked.append((user, state, known, len(events)))
            start += len(events)
        for user, state, known, n_events in checked:
            state.insert(known, n_events)
            self._states[user] = state

    def drop(self, user: Id) -> None:
        """Forget a user."""
        self[user]  # raises UnknownIdError
        del self._states[user]

    # --- embeddings and recommendations -------------------------------------------------------------------------------

    def embeddings(
        self, users: Iterable[Id] | None = None, *, now: Time | None = None, threads: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Return the embeddings of users, one row each; those that changed are computed in one call.

        Args:
            users: ids of users; by default all, in the order of their first events.
            now: time of the embeddings, as in `UserState.embedding_at`.
            threads: number of threads; all CPUs by default.
        """
        return self._embedded(self._states_of(users), as_number(now), threads)

    def _embedded(
        self, states: list[UserState], now: float | None, threads: int | None, given: list[Histories] | None = None
    ) -> npt.NDArray[np.float32]:
        """Return the embeddings of states; `given` are their histories, if they were computed already."""
        stale: dict[int, tuple[UserState, Histories]] = {}
        for k, state in enumerate(states):
            if id(state) not in stale and state.cached(now) is None:
                stale[id(state)] = state, state.history_at(now) if given is None else given[k]
        if stale:
            joined = settled(self._joined([history for _, history in stale.values()]))
            with blas_threads(threads):
                embeddings = self.model.encode(numbered_queries(joined), threads)
            for (state, _), embedding in zip(stale.values(), embeddings):
                state.keep(now, embedding.copy())
        out = np.empty((len(states), self.model.item_embeddings_.shape[1]), np.float32)
        for k, state in enumerate(states):
            out[k] = state.cached(now)
        return out

    def _joined(self, histories: list[Histories]) -> Histories:
        """Return single histories together."""
        n_items = len(self.model.items_)
        indptr = np.concatenate([[0], np.cumsum([len(history) for history in histories])]).astype(np.int64)
        items = np.concatenate([np.empty(0, np.int32), *(history.items for history in histories)])
        weights = _concatenated([history.weights for history in histories], np.float32)
        if self.model.ordered:
            times = [history.times for history in histories]
            return Histories(indptr, items, _concatenated(times, np.float64), weights, n_items)
        confidence = _concatenated([history.sets().confidence for history in histories], np.float32)
        return Histories.of_sets(SparseRows(indptr, items, weights, n_items, confidence))

    def recommend(
        self,
        users: Iterable[Id] | None = None,
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
        """Return the n best items of each user; the arguments are those of `UserState.recommend`.

        Args:
            users: ids of users; by default all, in the order of their first events.
            n: number of items per list.
            now: time at which to recommend; by default for each user the time of the newest event.
            exclude_seen: drop the items of the user's history, however faded.
            allow: recommend only these items: one list for all users, or one list per user.
            deny: never recommend these items: one list for all users, or one list per user.
            slate: a method that picks the n items from a larger pool; see `shortlist.slates`.
            index: search this index of the model, made with `model.index(...)`, instead of scoring every item.
            memory: memory limit for blocks of scores, in bytes or as text such as "256MB"; an index ignores it.
            threads: number of threads; all CPUs by default.
        """
        request = Request(
            n=n, exclude_seen=exclude_seen, allow=allow, deny=deny, slate=slate, memory=memory, threads=threads
        )
        asked = self.users if users is None else _as_users(users)
        states, moment = self._states_of(asked), as_number(now)
        histories = [state.history_at(moment) for state in states]
        embeddings = self._embedded(states, moment, threads, histories)
        queries = Queries.of(self._labels(asked), None, self._joined(histories))
        if index is not None:
            return index_of(index, self.model).search_encoded(queries, embeddings, request)
        return best_for_embeddings(self.model, embeddings, queries, request)

    def _labels(self, users: list[Id]) -> QueryLabels:
        if not users:
            return QueryLabels.numbers(0, "user")
        distinct = {user: code for code, user in enumerate(dict.fromkeys(users))}
        codes = np.array([distinct[user] for user in users], np.int32)
        parts = len(users[0]) if users and isinstance(users[0], tuple) else 1
        names = self._names
        if names is None or len(names) != parts:
            names = ("user",) if parts == 1 else tuple(f"user_{k + 1}" for k in range(parts))
        return QueryLabels(Vocabulary.of(list(distinct), list(names)), codes)

    def _states_of(self, users: Iterable[Id] | None) -> list[UserState]:
        return list(self._states.values()) if users is None else [self[user] for user in _as_users(users)]

    # --- a collection of users ----------------------------------------------------------------------------------------

    @property
    def users(self) -> list[Id]:
        """The ids of the users, in the order of their first events."""
        return list(self._states)

    def __getitem__(self, user: Id) -> UserState:
        state = self._states.get(user) if is_id(user) else None
        if state is None:
            raise UnknownIdError(
                f"unknown user {user!r:.80}; {count(len(self), 'user')} known",
                field="users",
                hint="Add events of new users with extend",
            )
        return state

    def __contains__(self, user: Id) -> bool:
        return is_id(user) and user in self._states

    def __iter__(self) -> Iterator[Id]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def with_model(self, model: EmbeddingRanker, unknown: Literal["raise", "skip"] | None = None) -> UserStates:
        """Return new states with the same events for another model, such as a newer one; see `UserState.with_model`."""
        settings = self._settings | ({} if unknown is None else {"unknown": unknown})
        other = UserStates(model, {user: state.events for user, state in self._states.items()}, **settings)
        other._names = self._names
        return other

    def __repr__(self) -> str:
        events = count(sum(map(len, self._states.values())), "event")
        return f"UserStates({count(len(self), 'user')}, {events}) of {type(self.model).__name__}"


def _as_users(users: Iterable[Id]) -> list[Id]:
    if isinstance(users, str | bytes | int | np.integer | tuple):
        raise SettingError(
            f"expected a list of users, got the single value {users!r}", hint=f"write [{users!r}]", field="users"
        )
    return as_list(users, "a list of users", "users")


def _type_of(user: Id) -> tuple[type, ...]:
    """Return the types of the parts of an id: text or integer."""
    parts = user if isinstance(user, tuple) else (user,)
    return tuple(str if isinstance(part, str) else int for part in parts)


def _concatenated(parts: Sequence[npt.NDArray[Any] | None], dtype: Any) -> Any:
    """Return the parts one after the other, or None if a part is missing."""
    arrays = [part for part in parts if part is not None]
    return None if len(arrays) < len(parts) else np.concatenate([np.empty(0, dtype), *arrays])
