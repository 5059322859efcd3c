"""The kernels that count pairs against their twins over a dense matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data.sparse_rows import SparseRows
from shortlist.metrics import cosines
from shortlist.metrics.cosines import cosine_sums, cosine_sums_numpy, cosine_table, cosine_table_numpy, listed_items


def make(
    n_contexts: int, n_items: int, n_lists: int, n: int, density: float, seed: int
) -> tuple[np.ndarray, SparseRows]:
    """Trained rows, popular items in many of them; lists without repeats, some of them short."""
    rng = np.random.default_rng(seed)
    chance = density * 2 * rng.random(n_items) ** 2
    trained = [np.flatnonzero(rng.random(n_items) < chance).astype(np.int32) for _ in range(n_contexts)]
    lists = np.array([rng.permutation(n_items)[:n] for _ in range(n_lists)], np.int32).reshape(n_lists, min(n, n_items))
    lengths = rng.integers(0, lists.shape[1] + 1, n_lists)
    lists[(np.arange(lists.shape[1]) >= lengths[:, None]) & (rng.random(n_lists) < 0.4)[:, None]] = -1
    return lists, SparseRows.from_lists(trained, n_items)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 30),
    st.integers(1, 25),
    st.integers(0, 20),
    st.integers(1, 30),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.integers(0, 10**6),
)
def test_equals_its_twin(n_contexts, n_items, n_lists, n, density, seed):
    lists, trained = make(n_contexts, n_items, n_lists, n, density, seed)
    np.testing.assert_allclose(cosine_sums(lists, trained), cosine_sums_numpy(lists, trained), rtol=1e-12, atol=1e-12)
    listed, items = listed_items(lists, trained), np.unique(lists[lists >= 0])
    assert listed.codes[items].tolist() == list(range(len(items)))
    assert (np.delete(listed.codes, items) == len(items)).all()
    np.testing.assert_allclose(cosine_table(listed), cosine_table_numpy(lists, trained), rtol=1e-6)


@pytest.mark.parametrize("density", [0.02, 0.6])  # counts cleared step by step, and all at once
def test_threads_and_parts_change_nothing(monkeypatch, density):
    lists, trained = make(200, 60, 150, 10, density, 1)
    whole = cosine_sums(lists, trained, threads=1)
    table = cosine_table(listed_items(lists, trained), threads=1)
    np.testing.assert_allclose(whole, cosine_sums_numpy(lists, trained), rtol=1e-12, atol=1e-12)
    monkeypatch.setattr(cosines, "SMALL", 0)
    for threads in (1, 2, 3, 7):
        np.testing.assert_array_equal(cosine_sums(lists, trained, threads=threads), whole)
        np.testing.assert_array_equal(cosine_table(listed_items(lists, trained), threads=threads), table)
    monkeypatch.setattr(cosines, "PLACES", 64)
    np.testing.assert_allclose(cosine_sums(lists, trained, threads=2), whole, rtol=1e-13)


def test_more_items_than_16_bits_can_number():
    rng = np.random.default_rng(4)
    n_items = 70_000
    lists = rng.permutation(n_items).astype(np.int32).reshape(-1, 10)  # every item is in one of them
    trained = SparseRows.from_lists([rng.permutation(lists[:20].ravel())[:100] for _ in range(4)], n_items)
    sums = cosine_sums(lists, trained)
    assert sums[:20].min() > 0
    np.testing.assert_allclose(sums[:20], cosine_sums_numpy(lists[:20], trained), rtol=1e-12)
    assert not sums[20:].any()


def test_weights_of_the_training_pairs_do_not_count():
    lists, trained = make(50, 20, 30, 5, 0.4, 2)
    rng = np.random.default_rng(0)
    weighted = SparseRows(trained.indptr, trained.indices, rng.random(len(trained)).astype(np.float32), 20)
    np.testing.assert_array_equal(cosine_sums(lists, weighted), cosine_sums(lists, trained))
