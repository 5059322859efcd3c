"""Digests of pairs: a set of pairs by id, whatever the codes."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist as sl
from shortlist.reranking import pair_digests
from shortlist.reranking.pair_digests import PairDigests


def events(pairs, **names):
    users, items = zip(*pairs)
    return sl.Interactions.from_frame({"u": list(users), "i": list(items)}, context="u", item="i", **names)


@pytest.mark.parametrize("of_texts", [False, True])
def test_pairs_are_found_by_their_ids(of_texts):
    rng = np.random.default_rng(0)
    drawn = {(f"u{u}", int(i)) for u, i in rng.integers(0, 40, (400, 2))}
    some, others = events(sorted(drawn)[::2]), events(sorted(drawn))
    pairs = PairDigests.of_events(some)
    if of_texts:  # as models of earlier versions have them
        texts = [(user, item) for user in some.contexts for item in some.history(user)]
        pairs = PairDigests(np.unique(pair_digests._hashes(texts)), True)
    view = others.by_context
    users = others.contexts.ids(np.repeat(np.arange(view.n_rows), view.lengths))
    expected = [pair in set(sorted(drawn)[::2]) for pair in zip(users, others.items.ids(view.indices))]
    assert pairs.holds(others).tolist() == expected
    assert len(pairs.values) == len(some)


def test_a_pair_is_not_the_pair_turned_round():
    assert not PairDigests.of_events(events([(1, 2)])).holds(events([(2, 1)])).any()
    assert not PairDigests.of_events(events([("1", 2)])).holds(events([(1, 2)])).any()


def test_each_id_is_hashed_once(monkeypatch):
    hashed, hashes = [], pair_digests._hashes
    monkeypatch.setattr(pair_digests, "_hashes", lambda ids: [hashed.extend(ids), hashes(ids)][1])
    PairDigests.of_events(events([(u, i) for u in range(5) for i in range(7)]))
    assert sorted(hashed) == sorted([*range(5), *range(7)])
