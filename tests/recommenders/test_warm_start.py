"""Beginning from another model, and learning from more events."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from recommenders.factorizations import events, same
from shortlist.recommenders.warm_start import grown, warm_embeddings
from shortlist.solvers.als import initial_embeddings

# weights are beside the point here
pytestmark = pytest.mark.filterwarnings("ignore:the weights of column:shortlist.errors.ShortlistWarning")


def scores(model):
    return model.context_embeddings_ @ model.item_embeddings_.T


def warm(start, data, model):
    items = initial_embeddings(data.n_items, model.dim, model.init_scale, model.seed)
    return warm_embeddings(start, data, items, start.objective().with_weights(data.by_context), None)


def test_epochs_from_a_model_go_on_where_it_was():
    """Two epochs and then two more are four: the first half-step solves for the contexts anyway."""
    data = events()
    first = sl.IALS(dim=5, epochs=2, solver="exact").fit(data)
    np.testing.assert_allclose(
        scores(sl.IALS(dim=5, epochs=2, solver="exact").fit(data, start=first)),
        scores(sl.IALS(dim=5, epochs=4, solver="exact").fit(data)),
        rtol=1e-3, atol=1e-4,
    )  # fmt: skip
    losses = [
        one.loss.total for one in (first, sl.IALS(dim=5, epochs=2).fit(data, start=first)) for one in one.training_
    ]
    assert losses == sorted(losses, reverse=True)


def test_embeddings_are_taken_by_ids():
    data = events(60, 30)
    start = sl.IALS(dim=5, epochs=3).fit(data)
    part = data.select(data.context_codes % 2 == 0, compact=True)  # other codes, same ids
    contexts, items = warm(start, part, sl.IALS(dim=5))
    np.testing.assert_array_equal(items, start.item_embeddings_[start.items_.encode(part.items.ids())])
    np.testing.assert_array_equal(contexts, start.context_embeddings_[start.contexts_.encode(part.contexts.ids())])


def test_new_items_are_folded_in_where_a_known_context_had_them():
    data = events(60, 30)
    start = sl.IALS(dim=5, epochs=3).fit(data)
    more = data.extend(contexts=[1000], items=["new", "nobody's", "a stranger's"])
    new, nobodys, strangers = more.items.encode(["new", "nobody's", "a stranger's"])
    frame = pl.concat([data.to_polars().drop("when"), pl.DataFrame(
        {"user": [0, 3, 1000], "product": ["new", "new", "a stranger's"]})])  # fmt: skip
    codes = (more.contexts.encode(frame["user"]), more.items.encode(frame["product"]))
    more = sl.Interactions(more.contexts, more.items, *codes)
    model = sl.IALS(dim=5)
    contexts, items = warm(start, more, model)
    np.testing.assert_allclose(items[new], start.fold_in_items([[0, 3]])[0], rtol=0.2, atol=1e-3)  # |C| grew by one
    random = initial_embeddings(more.n_items, 5, model.init_scale, model.seed)
    np.testing.assert_array_equal(items[[nobodys, strangers]], random[[nobodys, strangers]])
    assert (contexts[-1] == 0).all()
    fitted = sl.IALS(dim=5, epochs=2).fit(more, start=start)
    assert np.isfinite(fitted.recommend([1000, 0]).scores[0]).all()


def test_fewer_dimensions_are_filled_and_more_refused():
    data = events()
    small = sl.IALS(dim=3, epochs=4).fit(data)
    contexts, items = warm(small, data, sl.IALS(dim=8))
    np.testing.assert_array_equal(items[:, :3], small.item_embeddings_)
    np.testing.assert_array_equal(contexts[:, :3], small.context_embeddings_)
    assert items[:, 3:].any(axis=1).all()
    assert not contexts[:, 3:].any()
    large = sl.IALS(dim=8, epochs=2).fit(data, start=small)
    assert large.training_[-1].loss.total < small.training_[-1].loss.total
    with pytest.raises(
        sl.SettingError, match=r"start has 8 dimensions, but dim is 3; set dim to 8 or more, or omit start"
    ):
        sl.IALS(dim=3).fit(data, start=large)


def test_what_cannot_be_begun_from():
    data = events()
    with pytest.raises(sl.SettingError, match="expected a fitted recommender with embeddings"):
        sl.IALS().fit(data, start=sl.EASE().fit(data))
    with pytest.raises(sl.SettingError, match="expected a fitted recommender with embeddings"):
        sl.IALS().fit(data, start="model")
    with pytest.raises(sl.NotFittedError):
        sl.IALS().fit(data, start=sl.IALS())
    other = sl.Interactions.from_frame({"u": [1], "i": [2]}, context="u", item="i")
    with pytest.raises(
        sl.DataError,
        match=r"start knows none of the 30 items: its ids look like 2, those of the interactions like 'i00'",
    ):
        sl.IALS().fit(data, start=sl.IALS(dim=2, epochs=1).fit(other))


def test_a_break_of_a_warm_fit_changes_nothing(tmp_path):
    data = events()
    start = sl.IALS(dim=3, epochs=2).fit(data)
    short = sl.IALS(dim=5, epochs=1).fit(data, start=start, checkpoint=tmp_path / "c")
    resumed = sl.IALS(dim=5, epochs=3).fit(data, start=start, checkpoint=tmp_path / "c")
    same(resumed, sl.IALS(dim=5, epochs=3).fit(data, start=start))
    assert not np.array_equal(short.item_embeddings_, resumed.item_embeddings_)


@pytest.mark.parametrize("loaded", [False, True])
def test_learning_from_more_events(loaded, tmp_path):
    everything = events(120, 36)
    late = everything.times >= np.quantile(everything.times, 0.8)
    early, more = everything.select(~late, compact=True), everything.select(late, compact=True)
    model = sl.IALS(dim=8, epochs=6).fit(early)
    if loaded:
        model.save(tmp_path / "model")
        model = sl.load(tmp_path / "model")
    known = model.contexts_.ids(), model.items_.ids()
    assert model.partial_fit(more, epochs=3) is model
    assert model.contexts_.ids()[: len(known[0])] == known[0]
    assert model.items_.ids()[: len(known[1])] == known[1]
    assert set(model.contexts_.ids()) == set(everything.contexts.ids())
    assert len(model.seen_) == everything.n_pairs
    assert len(model.training_) == 3
    assert model.epochs == 6
    whole = sl.IALS(dim=8, epochs=9).fit(everything)
    assert model.training_[-1].loss.total < 1.1 * whole.training_[-1].loss.total
    np.testing.assert_allclose(model.fold_in([everything.history(7)]), model.context_embeddings_[
        model.contexts_.encode([7])], rtol=1e-3, atol=1e-4)  # fmt: skip
    model.save(tmp_path / "grown")
    assert sl.load(tmp_path / "grown").recommend([7]).ids == model.recommend([7]).ids


def frame(**columns):
    return sl.Interactions.from_frame(columns, context="u", item="i", weight="w" if "w" in columns else None)


def grown_values(old, new):
    rows = grown(sl.IALS(dim=1, epochs=1).fit(old), new).by_context
    return rows.indptr.tolist(), rows.indices.tolist(), None if rows.values is None else rows.values.tolist()


def test_weights_add_up():
    old = frame(u=["a", "b"], i=[1, 2], w=[3.0, 4.0])
    assert grown_values(old, frame(u=["b", "c"], i=[2, 1], w=[5.0, 6.0])) == ([0, 1, 2, 3], [0, 1, 0], [3, 9, 6])
    assert grown_values(old, frame(u=["b"], i=[2])) == ([0, 1, 2], [0, 1], [3, 5])
    plain = frame(u=["a", "b"], i=[1, 2])
    assert grown_values(plain, frame(u=["c"], i=[0])) == ([0, 1, 2, 3], [0, 1, 2], None)
    assert grown_values(plain, frame(u=["a"], i=[1])) == ([0, 1, 2], [0, 1], [2, 1])
    latest = frame(u=["b"], i=[2], w=[5.0]).aggregated("latest")
    assert grown_values(old, latest) == ([0, 1, 2], [0, 1], [3, 5])


def test_contexts_of_several_columns_grow_too():
    old = sl.Interactions.from_frame({"u": [1, 1], "d": ["x", "y"], "i": [1, 2]}, context=["u", "d"], item="i")
    new = sl.Interactions.from_frame({"who": [2, 1], "day": ["x", "x"], "i": [1, 3]}, context=["who", "day"], item="i")
    model = sl.IALS(dim=2, epochs=1).fit(old).partial_fit(new, epochs=1)
    assert model.contexts_.names == ("u", "d")
    assert model.contexts_.ids() == [(1, "x"), (1, "y"), (2, "x")]
    assert model.items_.ids() == [1, 2, 3]


def test_wrong_events_leave_the_model_as_it_was():
    model = sl.IALS(dim=2, epochs=1).fit(events())
    before = model.recommend([0]).ids
    with pytest.raises(sl.DataError, match="partial_fit expects Interactions"):
        model.partial_fit([1])
    with pytest.raises(
        sl.DataError, match="new events' ids of user are String, the model's are Int64; cast the column"
    ):
        model.partial_fit(frame(u=["a"], i=["x"]))
    with pytest.raises(
        sl.DataError, match="new events' ids of product are Int64, the model's are String; cast the colu"
    ):
        model.partial_fit(frame(u=[1], i=[1]))
    with pytest.raises(
        sl.DataError, match=r"ids of user are UInt64, the model's are Int64; some ids do not fit; drop.*type$"
    ):
        model.partial_fit(frame(u=pl.Series([2**64 - 1], dtype=pl.UInt64), i=["x"]))
    two = sl.Interactions.from_frame({"who": [2], "day": ["x"], "i": ["x"]}, context=["who", "day"], item="i")
    with pytest.raises(
        sl.DataError, match="ids of user are Int64, String, the model's are Int64; use the same number of columns"
    ):
        model.partial_fit(two)
    with pytest.raises(sl.SettingError, match="epochs is 0"):
        model.partial_fit(events(), epochs=0)
    with pytest.raises(sl.NotFittedError):
        sl.IALS().partial_fit(events())
    assert model.recommend([0]).ids == before
