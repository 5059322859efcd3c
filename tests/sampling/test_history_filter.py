"""The bits before a history never let one of its items through, nor keep another one out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shortlist.data.sparse_rows import SparseRows
from shortlist.sampling import Uniform
from shortlist.sampling.history_filter import history_filter, in_history

LISTS = st.lists(st.sets(st.integers(0, 300), max_size=60), min_size=1, max_size=6)


@given(LISTS, st.integers(301, 2**31 - 1))
def test_the_filter_agrees_with_the_history(lists, n_items):
    rows = SparseRows.from_lists([np.array(sorted(one), dtype=np.int64) for one in lists], n_items)
    bits, offset = history_filter(rows)
    for c, one in enumerate(lists):
        for j in [*range(301), n_items - 1]:
            assert in_history(rows.indptr, rows.indices, bits, offset, c, j) == (j in one)


@given(LISTS)
def test_sizes_are_powers_of_two_with_room(lists):
    rows = SparseRows.from_lists([np.array(sorted(one), dtype=np.int64) for one in lists], 301)
    _, offset = history_filter(rows)
    for words, length in zip(np.diff(offset).tolist(), rows.lengths.tolist()):
        assert words & (words - 1) == 0
        assert max(8 * length, 64) <= words * 64 < max(16 * length, 65)


def test_few_others_are_searched_for():
    """At most an eighth of the items outside find their bit set, so that the filter is worth its bytes."""
    rng = np.random.default_rng(0)
    rows = SparseRows.from_lists([rng.choice(50_000, 512, replace=False)], 50_000)
    bits, offset = history_filter(rows)
    assert len(bits) == offset[-1] == 512 * 8 // 64
    assert 0.1 < np.unpackbits(bits.view(np.uint8)).mean() <= 0.125


def test_no_filter_is_built_where_only_the_positive_is_excluded():
    rows = SparseRows.from_lists([np.arange(100)], 200)
    assert Uniform("positive").bind(rows).tables.bits.shape == (1,)
    assert len(Uniform("history").bind(rows).tables.bits) == 16
