from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from shortlist.data.interactions import Interactions
from shortlist.errors import DataError, SettingError, UnknownIdError

ROWS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 5), st.integers(0, 9), st.integers(0, 4)), min_size=1, max_size=60
)
SCHEMA = {"u": pl.String, "i": pl.Int64, "w": pl.Float32, "t": pl.Int64}


def frame_of(rows):
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def take(rows, **parts):
    frame = rows if isinstance(rows, pl.DataFrame) else frame_of(rows)
    return Interactions.from_frame(frame, **{"context": "u", "item": "i"} | parts)


def entries(view, rows, columns):
    """What a view holds, by ids."""
    out = {}
    for r, one in enumerate(rows.ids()):
        for p in range(view.indptr[r], view.indptr[r + 1]):
            pair = one, columns.ids([view.indices[p]])[0]
            assert pair not in out
            out[pair] = 1.0 if view.values is None else float(view.values[p])
    return out


@settings(max_examples=150, deadline=None)
@given(ROWS, st.sampled_from(["sum", "count", "latest"]), st.booleans(), st.booleans())
def test_views_and_histories_against_dictionaries(rows, aggregate, weighted, timed):
    events = take(rows, weight="w" if weighted else None, time="t" if timed else None, aggregate=aggregate)
    in_time = (
        sorted(rows, key=lambda row: row[3]) if timed else rows
    )  # sorted is stable: of equal times the last row wins
    pairs = defaultdict(list)
    histories = defaultdict(list)
    for u, i, w, _ in in_time:
        pairs[u, i].append(float(w) if weighted else 1.0)
        histories[u].append(i)
    merge = {"sum": sum, "count": len, "latest": lambda seen: seen[-1]}[aggregate]
    expected = {pair: float(merge(seen)) for pair, seen in pairs.items()}
    assert entries(events.by_context, events.contexts, events.items) == expected
    assert entries(events.by_item, events.items, events.contexts) == {(i, u): w for (u, i), w in expected.items()}
    assert {u: events.history(u) for u in events.contexts} == histories
    ordered = events.histories
    assert (ordered.weights is None, ordered.times is None) == (not weighted, not timed)
    assert entries(ordered.sets(), events.contexts, events.items) == expected
    assert len(events) == len(rows)
    assert events.n_pairs == len(pairs)

    matrix, contexts, items = events.to_csr()
    assert matrix.shape == (len(contexts), len(items)) == (events.n_contexts, events.n_items)
    assert {
        (contexts[r], items[c]): float(v) for r, c, v in zip(*matrix.tocoo().coords, matrix.tocoo().data)
    } == expected
    back = Interactions.from_csr(matrix, contexts=contexts, items=items)
    assert entries(back.by_context, back.contexts, back.items) == expected


@settings(max_examples=60, deadline=None)
@given(ROWS, st.randoms())
def test_the_order_of_rows_changes_no_view(rows, random):
    a, b = (take(r, weight="w") for r in (rows, random.sample(rows, len(rows))))
    assert a.contexts == b.contexts
    assert a.items == b.items
    for one, other in ((a.by_context, b.by_context), (a.by_item, b.by_item)):
        assert one.indptr.tolist() == other.indptr.tolist()
        assert one.indices.tolist() == other.indices.tolist()
        assert (one.values is None) == (other.values is None)
        if one.values is not None:
            assert one.values.tolist() == other.values.tolist()


@settings(max_examples=60, deadline=None)
@given(ROWS, st.data())
def test_select(rows, data):
    events = take(rows, weight="w", time="t")
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    chosen = [row for row, wanted in zip(rows, keep) if wanted]
    for mask in (keep, np.flatnonzero(keep)):
        some = events.select(mask)
        assert some.to_polars().rows() == chosen
        assert some.contexts is events.contexts
        small = events.select(mask, compact=True)
        assert small.to_polars().rows() == chosen
        assert small.contexts.ids() == sorted({u for u, *_ in chosen})
        assert small.items.ids() == sorted({i for _, i, *_ in chosen})
        size = f"{len(chosen):,} event" + ("" if len(chosen) == 1 else "s")
        assert repr(small).startswith(f"Interactions({size} of")


def test_extend():
    events = take([("a", 1, 2, 3), ("b", 2, 2, 1)], weight="w", time="t")
    grown = events.extend(contexts=["z", "a"], items=[9, 1, 7])
    assert grown.contexts.ids() == ["a", "b", "z"]
    assert grown.items.ids() == [1, 2, 9, 7]
    assert_frame_equal(grown.to_polars(), events.to_polars())
    assert grown.by_context.n_rows == 3
    assert grown.by_item.n_rows == 4
    assert grown.history("z") == []
    assert grown.times is not None
    assert np.shares_memory(grown.times, events.times)
    with pytest.raises(SettingError, match="single value"):
        events.extend(contexts="z")
    with pytest.raises(DataError):
        events.extend(items=["x"])


def test_immutable_and_unknown():
    events = take([("a", 1, 2, 3)], weight="w", time="t")
    for array in (events.context_codes, events.item_codes, events.weights, events.times):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(UnknownIdError, match="unknown context 'q'"):
        events.history("q")


def test_repr():
    events = take([("a", 1, 2, 3), ("a", 1, 4, 9)], weight="w", time="t", aggregate="latest")
    assert repr(events) == (
        "Interactions(2 events of 1 context (u) with 1 item (i), 1 distinct pair, weights 2 … 4 (latest), 3 … 9)"
    )


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_array, sp.lil_matrix, sp.dok_array])
def test_from_csr(kind):
    dense = np.array([[0, 2.5, 0], [1, 0, 0]])
    events = Interactions.from_csr(kind(dense), contexts=["b", "a"], items=np.array([30, 10, 20]))
    assert entries(events.by_context, events.contexts, events.items) == {("b", 10): 2.5, ("a", 30): 1.0}
    assert events.contexts.ids() == ["b", "a"]
    assert events.items.ids() == [30, 10, 20]
    plain = Interactions.from_csr(kind(dense), weighted=False)
    assert plain.weights is None
    assert plain.contexts.ids() == [0, 1]
    matrix, _, _ = events.to_csr()
    assert np.array_equal(matrix.toarray(), dense)


def test_from_csr_with_tuples_and_repeats():
    matrix = sp.coo_array(([1.0, 2.0, 3.0], ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    events = Interactions.from_csr(matrix, contexts=[("a", 1), ("a", 2)])
    assert events.contexts.names == ("context_1", "context_2")
    assert entries(events.by_context, events.contexts, events.items) == {(("a", 1), 0): 3.0, (("a", 2), 1): 3.0}


@pytest.mark.parametrize(
    ("matrix", "parts", "message"),
    [
        (np.eye(2), {}, "expected a SciPy sparse matrix, contexts × items, got ndarray"),
        (pl.DataFrame({"a": [1]}), {}, "got DataFrame; for a frame use Interactions.from_frame"),
        (sp.coo_array(np.ones(3)), {}, "expected a SciPy sparse matrix"),
        (sp.csr_array((2, 2)), {}, "stores no entries"),
        (sp.csr_array([[1.0, -1.0]]), {}, "1 of 2 stored values are negative; expected weights ≥ 0"),
        (sp.csr_array([[1.0, np.nan]]), {}, "1 of 2 stored values are not finite"),
        (sp.csr_array([[1.0, 1e300]]), {}, "1 of 2 stored values are not finite"),
        (sp.csr_array([[1.0]]), {"contexts": ["a", "b"]}, "2 context ids for 1 rows; expected one id per row"),
        (sp.csr_array([[1.0]]), {"items": []}, "0 item ids for 1 columns"),
        (sp.csr_array([[1.0], [1.0]]), {"contexts": ["a", "a"]}, "'context' are not distinct: 1 of 2 are repeated"),
        (sp.csr_array([[1.0], [1.0]]), {"contexts": ["a", 1]}, "not all of one integer or string type"),
        (sp.csr_array([[1.0], [1.0]]), {"contexts": [("a", 1), ("b",)]}, "not all of one integer or string type"),
    ],
    ids=range(12),
)
def test_bad_matrices(matrix, parts, message):
    with pytest.raises(DataError, match=message):
        Interactions.from_csr(matrix, **parts)


def test_from_csr_at_size_makes_no_lists():
    matrix = sp.coo_array((np.ones(3), ([0, 5, 1_999_999], [0, 1, 2])), shape=(2_000_000, 3))
    assert Interactions.from_csr(matrix).contexts.ids([1_999_999]) == [1_999_999]


def test_reading_from_many_threads_at_once():
    """polars' dictionaries are private to a call; one call must not see another's ids."""
    frames = [pl.DataFrame({"u": [f"{k}-{j % 97}" for j in range(3000)], "i": range(3000)}) for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for frame, events in zip(frames, pool.map(take, frames)):
            assert_frame_equal(events.to_polars(), frame)
            assert events.n_contexts == 97


def test_the_same_codes_every_time():
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"u": rng.integers(0, 9999, 200_000), "i": [str(k) for k in rng.integers(0, 999, 200_000)]})
    first, second = take(frame), take(frame)
    assert np.array_equal(first.context_codes, second.context_codes)
    assert np.array_equal(first.item_codes, second.item_codes)
    assert np.all(np.diff(np.array(first.contexts.ids())) > 0)


def test_a_matrix_handed_out_is_the_users_to_change():
    events = Interactions.from_frame(
        {"u": [1, 1, 2], "i": [1, 2, 1], "w": [5, 0, 2.5]}, context="u", item="i", weight="w"
    )
    matrix, _, _ = events.to_csr()
    matrix.data[:] = 1
    matrix.eliminate_zeros()
    again, _, _ = events.to_csr()
    assert again.toarray().tolist() == [[5, 0], [2.5, 0]]
    assert events.n_pairs == 3


def test_weights_that_add_up_to_too_much():
    events = Interactions.from_frame({"u": [1, 1], "i": [1, 1], "w": [3e38, 3e38]}, context="u", item="i", weight="w")
    with pytest.raises(DataError, match="scale them down"):
        events.by_context  # noqa: B018
