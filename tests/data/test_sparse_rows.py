from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data.sparse_rows import COUNT, LATEST, SUM, SparseRows, by_key, csr_error, has_pairs, rows_of


@st.composite
def events(draw):
    n_rows, n_columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    n = draw(st.integers(0, 40))
    pairs = draw(st.lists(st.tuples(st.integers(0, n_rows - 1), st.integers(0, n_columns - 1)), min_size=n, max_size=n))
    keys = np.array([r for r, _ in pairs], np.int32)
    columns = np.array([c for _, c in pairs], np.int32)
    weights = np.array(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), np.float32)
    times = np.array(draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)), np.int64)
    return keys, columns, weights, times, n_rows, n_columns


@settings(max_examples=150, deadline=None)
@given(events(), st.sampled_from([SUM, COUNT, LATEST]), st.booleans(), st.booleans())
def test_rows_of_against_a_dictionary(data, merge, weighted, timed):
    keys, columns, weights, times, n_rows, n_columns = data
    order = np.argsort(times, kind="stable").astype(np.uint32) if timed else None
    rows = rows_of(keys, columns, weights if weighted else None, order, n_rows, n_columns, merge)

    expected: dict[tuple[int, int], list[float]] = defaultdict(list)
    for e in range(len(keys)) if order is None else order:
        expected[int(keys[e]), int(columns[e])].append(float(weights[e]) if weighted else 1.0)
    value = {SUM: sum, COUNT: len, LATEST: lambda seen: seen[-1]}[merge]
    assert rows.n_rows == n_rows
    assert rows.n_columns == n_columns
    assert len(rows) == len(expected)
    assert rows.indptr.dtype == np.int64
    assert rows.indices.dtype == np.int32
    found = {}
    for r in range(n_rows):
        assert np.all(np.diff(rows.row(r)) > 0)
        for p in range(rows.indptr[r], rows.indptr[r + 1]):
            found[r, int(rows.indices[p])] = 1.0 if rows.values is None else float(rows.values[p])
    assert found == {pair: float(value(seen)) for pair, seen in expected.items()}
    if not weighted and (merge == LATEST or len(expected) == len(keys)):
        assert rows.values is None

    turned = rows.transpose()
    assert (turned.n_rows, turned.n_columns) == (n_columns, n_rows)
    back = {}
    for c in range(n_columns):
        assert np.all(np.diff(turned.row(c)) > 0)
        for p in range(turned.indptr[c], turned.indptr[c + 1]):
            back[int(turned.indices[p]), c] = 1.0 if turned.values is None else float(turned.values[p])
    assert back == found
    asked = np.array([(r, c) for r in range(n_rows) for c in range(n_columns)], np.int32)
    answers = has_pairs(rows.indptr, rows.indices, asked[:, 0].copy(), asked[:, 1].copy())
    assert answers.tolist() == [(r, c) in found for r, c in asked.tolist()]


@settings(max_examples=80, deadline=None)
@given(events(), st.booleans())
def test_by_key_keeps_the_order(data, timed):
    keys, columns, _, times, n_rows, _ = data
    order = np.argsort(times, kind="stable").astype(np.uint32) if timed else None
    indptr, values = by_key(keys, columns, n_rows, order)
    walk = range(len(keys)) if order is None else order
    for r in range(n_rows):
        assert values[indptr[r] : indptr[r + 1]].tolist() == [columns[e] for e in walk if keys[e] == r]
    indptr, places = by_key(keys, np.arange(len(keys), dtype=np.uint32), n_rows, order)
    assert places.dtype == np.uint32
    assert [int(e) for e in places] == [int(e) for r in range(n_rows) for e in walk if keys[e] == r]


def test_take_and_from_lists():
    rows = SparseRows.from_lists([np.array([3, 1, 3]), np.array([]), np.array([0])], 4)
    assert rows.indptr.tolist() == [0, 2, 2, 3]
    assert rows.indices.tolist() == [1, 3, 0]
    assert rows.lengths.tolist() == [2, 0, 1]
    picked = rows.take(np.array([2, 0, 0, 1]))
    assert [picked.row(r).tolist() for r in range(4)] == [[0], [1, 3], [1, 3], []]
    weighted = SparseRows(rows.indptr, rows.indices, np.array([1, 2, 3], np.float32), 4).take(np.array([2, 0]))
    assert weighted.values is not None
    assert weighted.values.tolist() == [3, 1, 2]
    assert len(rows.take(np.array([], np.int64))) == 0
    assert SparseRows.from_lists([], 4).n_rows == 0


def test_sums_are_exact_beyond_float32():
    n = 1_000_001
    rows = rows_of(np.zeros(n, np.int32), np.zeros(n, np.int32), np.full(n, 0.1, np.float32), None, 1, 1, SUM)
    assert rows.values is not None
    assert rows.values[0] == pytest.approx(n * float(np.float32(0.1)), rel=1e-7)


def _rows(indptr, indices, values=None, n_columns=4):
    weights = None if values is None else np.array(values, np.float32)
    return SparseRows(np.array(indptr, np.int64), np.array(indices, np.int32), weights, n_columns)


@pytest.mark.parametrize(
    ("rows", "n_rows", "wrong"),
    [
        (_rows([0, 2, 2, 3], [1, 3, 0]), 3, None),
        (_rows([0], []), 0, None),
        (_rows([0, 0, 0], [], []), 2, None),
        (_rows([0, 2, 2, 3], [1, 3, 0]), 2, "expected int64 (3,)"),
        (_rows([1, 2, 3], [1, 3, 0]), 2, "from 1 to 3; expected 0 to 3"),
        (_rows([0, 2, 4], [1, 3, 0]), 2, "from 0 to 4; expected 0 to 3"),
        (_rows([0, 2, 1, 3], [1, 3, 0]), 3, "row 1 goes from 2 back to 1"),
        (_rows([0, 2**63 - 1, -2, 3], [1, 3, 0]), 3, "row 1 goes from 9223372036854775807 back to -2"),
        (_rows([0, 3], [1, 3, 4]), 1, "from 1 to 4; expected 0 to 3"),
        (_rows([0, 3], [-1, 1, 3]), 1, "from -1 to 3; expected 0 to 3"),
        (_rows([0, 0, 3], [1, 3, 2]), 2, "row 1 has column 2 after column 3"),
        (_rows([0, 3], [1, 1, 2]), 1, "row 0 has column 1 after column 1"),
        (_rows([0, 2], [1, 2], [1]), 1, "one per column"),
        (_rows([0, 2], [1, 2], [1, np.inf]), 1, "the value of entry 1 is inf"),
    ],
)
def test_fault_names_what_is_wrong(rows, n_rows, wrong):
    found = csr_error(rows, n_rows)
    assert found is None if wrong is None else wrong in found


def test_fault_of_other_types():
    good = _rows([0, 1], [1], [1])
    for field, dtype in (("indptr", np.int32), ("indices", np.int64), ("values", np.float64)):
        assert "expected" in csr_error(replace(good, **{field: getattr(good, field).astype(dtype)}), 1)
    assert "expected" in csr_error(replace(good, indices=good.indices.reshape(1, 1), values=None), 1)


@settings(max_examples=150, deadline=None)
@given(events(), st.booleans())
def test_fault_finds_none_in_what_is_built_here(data, weighted):
    keys, columns, weights, _, n_rows, n_columns = data
    rows = rows_of(keys, columns, weights if weighted else None, None, n_rows, n_columns, SUM)
    assert csr_error(rows, n_rows) is None
    assert csr_error(rows.transpose(), n_columns) is None


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(-1, 6), min_size=1, max_size=6),
    st.lists(st.integers(-1, 4), max_size=6),
)
def test_fault_against_the_definition(indptr, indices):
    lists = [indices[a:b] for a, b in pairwise(indptr)]
    bounds = indptr[0] == 0 and indptr[-1] == len(indices) and sorted(indptr) == indptr
    good = bounds and all(set(one) <= set(range(4)) and sorted(set(one)) == one for one in lists)
    assert (csr_error(_rows(indptr, indices), len(indptr) - 1) is None) == good


def test_what_rows_count_for():
    rows = SparseRows(np.array([0, 2, 2, 3]), np.array([1, 3, 0], np.int32), None, 4)
    assert rows.effective_counts.tolist() == [2, 0, 1]
    faded = replace(rows, confidence=np.array([0.5, 0.25, 1], np.float32))
    assert faded.effective_counts.tolist() == [0.75, 0, 1]
    assert faded.sums(np.array([1e30, 1, 3], np.float32))[2] == 3  # whatever is in the rows before
    assert rows.sums(np.full(1, 2, np.float32)).tolist() == [4, 0, 2]
    assert rows.effective_counts.dtype == faded.effective_counts.dtype == np.float64


def test_column_counts_by_parts():
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 7, (1 << 20) + 5).astype(np.int32)
    rows = SparseRows(np.array([0, len(columns)]), columns, None, 9)
    np.testing.assert_array_equal(rows.column_counts(), np.bincount(columns, minlength=9))
    assert SparseRows(np.array([0]), np.empty(0, np.int32), None, 3).column_counts().tolist() == [0, 0, 0]
