"""The order of a history: it matters to recommenders that are `ordered`, and to no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from conformance.test_every_recommender import order_matters
from shortlist.ranking.split_queries import queries_of
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.warm_start import grown
from shortlist.scoring import DotProductScorer


@dataclass(kw_only=True, repr=False, eq=False)
class AfterLast(Recommender):
    """The score of an item is the number of times it came right after the last item of the history."""

    ordered: ClassVar[bool] = True
    _arrays: ClassVar[tuple[str, ...]] = ("followed_",)

    def check_settings(self):
        pass

    def learn(self, interactions, options, monitor):
        histories, n = interactions.histories, interactions.n_items
        self.followed_ = np.zeros((n, n), np.float32)
        for r in range(histories.n_rows):
            items = histories.row(r)
            np.add.at(self.followed_, (items[:-1], items[1:]), 1)

    def scorer(self, queries, threads=None):
        newest = queries.histories.last(1)
        one_hot = np.zeros((len(queries), len(self.items_)), np.float32)
        one_hot[np.repeat(np.arange(len(queries)), newest.lengths), newest.items] = 1
        return DotProductScorer(one_hot, self.followed_.T)

    def _check_arrays(self):
        self._require_shape("followed_", (len(self.items_),) * 2)


@dataclass(kw_only=True, repr=False, eq=False)
class LastItem(DotProduct):
    """The embedding of a user is that of the newest item, so the order decides."""

    ordered: ClassVar[bool] = True

    def check_settings(self):
        pass

    def learn(self, interactions, options, monitor):
        self.item_embeddings_ = np.eye(interactions.n_items, dtype=np.float32)
        self.context_embeddings_ = self._newest(interactions.histories)

    def _newest(self, histories):
        newest = histories.last(1)
        embeddings = np.zeros((histories.n_rows, len(self.item_embeddings_)), np.float32)
        embeddings[newest.lengths > 0] = self.item_embeddings_[newest.items]
        return embeddings

    def encode(self, queries, threads=None):
        return self._newest(queries.histories)

    def _fold_in(self, histories, threads=None):
        raise NotImplementedError

    _fold_in_items = _fold_in


def timed() -> sl.Interactions:
    """Each user sees items in a circle, from a start of their own; the rows of the frame are shuffled."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(12), 6)
    times = np.tile(np.arange(6), 12)
    items = (users * 5 + times) % 9
    order = rng.permutation(len(users))
    frame = pl.DataFrame({"user": users, "item": items, "t": times, "w": items + 1.0})[order]
    return sl.Interactions.from_frame(frame, context="user", item="item", time="t", weight="w")


def test_sets_pay_nothing_for_the_order():
    data = timed()
    split = sl.splits.at_random(data, 0.2, seed=1)
    model = sl.EASE(weighting="raw").fit(split.train)
    model.recommend(history=split.history)
    sl.evaluate(model, split, ["ndcg@3"])
    for part in (split.train, split.history, split.truth):
        assert "histories" not in vars(part)  # they would be cached there
    assert not hasattr(model, "histories_")


@pytest.fixture(scope="module")
def after_last() -> Any:
    return AfterLast().fit(timed())


class TestOrdered:
    def test_a_permuted_history_changes_the_answer(self, after_last):
        assert order_matters(after_last)

    def test_a_context_answers_by_its_newest_item(self, after_last):
        user = 3
        assert timed().history(user) == [(user * 5 + t) % 9 for t in range(6)]
        assert after_last.recommend([user], n=1, exclude_seen=False).ids == [[(user * 5 + 6) % 9]]

    def test_a_history_is_read_from_the_oldest_to_the_newest(self, after_last):
        assert after_last.recommend(history=[[4, 1], [1, 4]], n=1).ids == [[2], [5]]

    def test_repeats_are_kept(self, after_last):
        assert after_last.queries(history=[[4, 1, 4]]).histories.items.tolist() == [4, 1, 4]
        assert after_last.recommend(history=[[4, 1, 4]], n=1).ids == [[5]]

    def test_histories_of_other_data_keep_order_times_and_weights(self, after_last):
        other = sl.Interactions.from_frame(
            {"who": ["x", "x", "y"], "what": [7, 2, 20], "when": [9, 4, 1], "w": [2.0, 3.0, 1.0]},
            context="who", item="what", time="when", weight="w",
        )  # fmt: skip
        histories = after_last.queries(history=other, unknown="skip").histories
        assert histories.items.tolist() == [after_last.items_.ids().index(item) for item in (2, 7)]
        assert histories.times.tolist() == [4, 9]
        assert histories.weights.tolist() == [3, 2]
        assert histories.lengths.tolist() == [2, 0]

    def test_evaluation_asks_with_ordered_histories(self):
        data = timed()
        with pytest.warns(sl.ShortlistWarning, match="leave-last-out"):
            split = sl.splits.leave_last_out(data, repeats="keep")
        model = AfterLast().fit(split.train)
        queries = queries_of(model, split).queries
        assert queries.histories.row(0).tolist() == split.history.histories.row(0).tolist()
        assert sl.evaluate(model, split, ["hit@1"])["hit@1"] == 1
        split = sl.splits.held_out_contexts(data, test=0.3, seed=0)
        assert queries_of(AfterLast().fit(split.train), split).queries.histories.times is not None

    def test_seen_items_are_excluded_once(self, after_last):
        (ids,) = after_last.recommend(history=[[4, 1, 4]], n=20).ids
        assert sorted(ids) == [0, 2, 3, 5, 6, 7, 8]

    def test_lists_for_everybody_and_frames_of_contexts(self, after_last, tmp_path):
        done = sl.write_lists(after_last, tmp_path / "lists.parquet", n=2, exclude_seen=False, block=5)
        lists = after_last.recommend(list(range(12)), n=2, exclude_seen=False)
        assert pl.read_parquet(done.path)["item"].to_list() == lists.to_polars()["item"].to_list()

    def test_a_saved_model_of_ones_own_class(self, after_last, tmp_path):
        after_last.save(tmp_path / "model")
        for verify in (False, True):
            again = sl.load(tmp_path / "model", code=[AfterLast], verify=verify)
            assert again.recommend(list(range(12)), n=3).ids == after_last.recommend(list(range(12)), n=3).ids
            assert again.recommend(history=[[4, 1], [1, 4]], n=1).ids == [[2], [5]]
            for name in ("indptr", "items", "times", "weights"):
                stored, expected = (getattr(model.histories_, name) for model in (again, after_last))
                np.testing.assert_array_equal(stored, expected)
        with pytest.raises(
            sl.StorageError, match=r"your own class .*AfterLast; pass the class: load\(path, code=\[Aft"
        ):
            sl.load(tmp_path / "model")
        with pytest.raises(sl.SettingError, match="code has 'x'; expected classes of recommenders"):
            sl.load(tmp_path / "model", code=["x"])
        for code in (AfterLast, "AfterLast", 5):
            with pytest.raises(sl.SettingError, match=r"code is .*; expected a list of classes of recommenders"):
                sl.load(tmp_path / "model", code=code)

    def test_new_events_come_in_their_order(self, after_last):
        new = sl.Interactions.from_frame(
            {"user": [3, 99, 3], "item": [7, 20, 8], "t": [9.5, 1.0, 2.5]}, context="user", item="item", time="t"
        )
        together = grown(after_last, new)
        assert together.history(3) == [*timed().history(3)[:3], 8, *timed().history(3)[3:], 7]
        assert together.history(99) == [20]
        row = together.histories.take(together.contexts.encode([3]))
        assert row.times.tolist() == [0, 1, 2, 2.5, 3, 4, 5, 9.5]
        assert row.weights.tolist() == [
            *(item + 1.0 for item in timed().history(3)[:3]),
            1,
            *(item + 1.0 for item in timed().history(3)[3:]),
            1,
        ]
        without = sl.Interactions.from_frame({"user": [3], "item": [7]}, context="user", item="item")
        assert grown(after_last, without).history(3) == [*timed().history(3), 7]
        assert grown(after_last, without).times is None


@pytest.fixture(scope="module")
def last_item() -> Any:
    return LastItem().fit(timed())


def test_a_state_hands_its_events_over_in_order(last_item):
    state = sl.UserState(last_item, [(4, 2.0, 10), (1, 1.0, 5)])  # the event of item 1 happened before
    assert state.recommend(1, exclude_seen=False).ids == [[4]]
    state.add(7, time=7)
    assert state.recommend(1, exclude_seen=False).ids == [[4]]
    state.add(1, time=11)
    assert state.recommend(1, exclude_seen=False).ids == [[1]]
    history = state.history_at(None)
    assert history.items.tolist() == [1, 7, 4, 1]
    assert (history.times.tolist(), history.weights.tolist()) == ([5, 7, 10, 11], [1, 1, 2, 1])
    assert sorted(state.recommend(9).ids[0]) == [0, 2, 3, 5, 6, 8]
    np.testing.assert_array_equal(state.embedding, last_item.fold_in([[1, 7, 4, 1]])[0])


def test_so_do_many_states(last_item):
    states = sl.UserStates(last_item, {"ann": [4, 1], "bob": [1, 4]})
    assert states.recommend(n=1, exclude_seen=False).ids == [[1], [4]]
    states.extend({"ann": [5], "cy": []})
    assert states.recommend(n=1, exclude_seen=False).ids == [
        [5],
        [4],
        last_item.recommend(history=[[]], n=1).ids[0],
    ]
    np.testing.assert_array_equal(states.embeddings(["bob"])[0], states["bob"].embedding)


def test_an_index_and_half_lives(last_item):
    index = last_item.index("exact")
    assert index.search(history=[[4, 1], [1, 4]], n=1, exclude_seen=False).ids == [[1], [4]]
    assert index.search([3], n=1, exclude_seen=False).ids == [[(3 * 5 + 5) % 9]]
    with pytest.raises(sl.SettingError, match="LastItem reads histories in order, so half_life has no effect"):
        sl.UserState(last_item, half_life=3, decay_by="events")
    with pytest.raises(sl.SettingError, match="LastItem reads histories in order, without confidences"):
        last_item.fold_in([[1]], confidence=[{1: 0.5}])


def test_events_that_are_merged_in_another_way(after_last):
    frame = {"user": [3], "item": [7], "w": [1.0]}
    new = sl.Interactions.from_frame(frame, context="user", item="item", weight="w", aggregate="latest")
    with pytest.raises(sl.DataError, match="the new events have aggregate='latest', unlike the events of the fit"):
        grown(after_last, new)


@dataclass(kw_only=True, repr=False, eq=False)
class Named(AfterLast):
    """A recommender whose arrays have the names that a test asks for."""

    name: str = "layer0.codes"

    def state_dict(self):
        return {self.name: self.followed_}

    def load_state_dict(self, state):
        (self.followed_,) = [state[self.name]]
        if self.name == "broken":
            raise RuntimeError("size mismatch for layer0.weight")


def test_names_of_arrays(tmp_path):
    model = Named().fit(timed())
    model.save(tmp_path / "model")
    again = sl.load(tmp_path / "model", code=[Named], verify=True)
    np.testing.assert_array_equal(again.followed_, model.followed_)
    sl.convert(tmp_path / "model", tmp_path / "again", code=[Named])
    for name in ("popularity", "seen.values", "items.hashes", "histories.items"):
        with pytest.raises(sl.StorageError, match=f"state_dict has an array '{name}', a name that Shortlist uses"):
            Named(name=name).fit(timed()).save(tmp_path / "other")
    with pytest.raises(sl.StorageError, match=r"size mismatch for layer0\.weight"):
        Named(name="broken").fit(timed()).save(tmp_path / "other")
    assert not (tmp_path / "other").exists()
