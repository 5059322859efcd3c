"""Similarities and the k nearest, against dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist import SettingError
from shortlist.data.sparse_rows import SparseRows
from shortlist.scoring.similarity import SHORT, Neighbourhood, NeighbourScorer, Similarity, row_keys

ALL = [
    Similarity(),
    Similarity(shrinkage=3.5),
    Similarity(asymmetry=0.3, shrinkage=1.0),
    Similarity(asymmetry=0.0),
    Similarity("tfidf"),
    Similarity("tfidf", shrinkage=2.0, asymmetry=0.8),
    Similarity("bm25"),
    Similarity("bm25", k1=0.3, b=1.0),
]


def rows_of(dense: np.ndarray) -> SparseRows:
    at, columns = np.nonzero(dense)
    indptr = np.searchsorted(at, np.arange(len(dense) + 1)).astype(np.int64)
    return SparseRows(indptr, columns.astype(np.int32), dense[at, columns].astype(np.float32), dense.shape[1])


def textbook(similarity: Similarity, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Every similarity as its formula says, in float64."""
    frequency = (rows > 0).sum(0)
    idf = np.ones(rows.shape[1]) if similarity.name == "cosine" else np.log(len(rows) / np.maximum(frequency, 1))
    out = np.zeros((len(queries), len(rows)))
    mean = rows.sum(1).mean()

    def weighed(v: np.ndarray) -> Any:
        if similarity.name != "bm25":
            return idf * v
        held = similarity.k1 * (1 - similarity.b + similarity.b * v.sum() / mean)
        return idf * v * (similarity.k1 + 1) / np.where(v > 0, v + held, 1)

    weighed_rows = [weighed(y) for y in rows]
    of_rows = [(v**2).sum() ** (1 - similarity.asymmetry) for v in weighed_rows]
    for q, x in enumerate(queries):
        u = weighed(x)
        of_query = (u**2).sum() ** similarity.asymmetry
        for r, v in enumerate(weighed_rows):
            common = (u * v).sum()
            if similarity.name == "bm25":
                out[q, r] = common
            else:
                out[q, r] = common / (of_query * of_rows[r] + similarity.shrinkage) if common else 0
    return out


def nearest(
    similarity: Similarity, queries: np.ndarray, dense: np.ndarray, k: int, *, same: bool, **more: Any
) -> SparseRows:
    rows, asked = rows_of(dense), rows_of(queries)
    by_column = rows.transpose()
    keys = np.arange(len(dense), dtype=np.uint64)
    own = keys if same else np.arange(len(queries), dtype=np.uint64) + 10**9
    space = Neighbourhood(similarity, rows, rows.values, by_column, by_column.values, keys)  # type: ignore[arg-type]
    return space.nearest(asked, asked.values, own, k, **more)  # type: ignore[arg-type]


def agree(found: SparseRows, expected: np.ndarray, k: int) -> None:
    """The k largest of each row of `expected`, where they are positive: the same values, at rows that have them."""
    for q in range(len(expected)):
        got, values = found.row(q), found.values[found.indptr[q] : found.indptr[q + 1]]  # type: ignore[index]
        best = np.sort(expected[q][expected[q] > 1e-12])[::-1][:k]
        np.testing.assert_allclose(np.sort(values)[::-1], best, rtol=2e-5)
        np.testing.assert_allclose(values, expected[q][got], rtol=2e-5)
        assert (np.diff(got) > 0).all()


@pytest.mark.parametrize("similarity", ALL, ids=str)
@pytest.mark.parametrize("density", [0.02, 0.4])  # few in common, when only what is touched is looked at; and many
@pytest.mark.parametrize("binary", [True, False])
def test_the_k_nearest_are_those_of_the_formula(similarity, density, binary):
    rng = np.random.default_rng(1)
    dense = (rng.random((300, 120)) < density) * (1.0 if binary else rng.integers(1, 6, (300, 120)))
    expected = textbook(similarity, dense, dense)
    np.fill_diagonal(expected, 0)
    agree(nearest(similarity, dense, dense, 7, same=True), expected, 7)
    others = (rng.random((11, 120)) < density) * rng.integers(1, 3, (11, 120))
    agree(nearest(similarity, others, dense, 5, same=False), textbook(similarity, others, dense), 5)


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=n, max_size=n)
    ),
    st.integers(1, 14),
    st.sampled_from(ALL),
)
def test_the_k_nearest_of_anything(lists, k, similarity):
    dense = np.array(lists, dtype=float)
    expected = textbook(similarity, dense, dense) if dense.any() else np.zeros((len(dense),) * 2)
    np.fill_diagonal(expected, 0)
    agree(nearest(similarity, dense, dense, k, same=True), expected, k)


def test_one_strength_stands_for_all():
    rng = np.random.default_rng(2)
    dense = (rng.random((80, 60)) < 0.2).astype(float)
    rows = rows_of(dense)
    by_column, keys, one = rows.transpose(), np.arange(80, dtype=np.uint64), np.ones(1, np.float32)
    for similarity in ALL:
        few = Neighbourhood(similarity, rows, one, by_column, one, keys).nearest(rows, one, keys, 9)
        many = nearest(similarity, dense, dense, 9, same=True)
        np.testing.assert_array_equal(few.indices, many.indices)
        np.testing.assert_array_equal(few.values, many.values)


def test_of_equally_near_rows_the_lower_numbers_are_taken():
    dense = np.ones((9, 3))
    found = nearest(Similarity(), dense, dense, 3, same=True)
    assert [list(found.row(q)) for q in (0, 1, 8)] == [[1, 2, 3], [0, 2, 3], [0, 1, 2]]
    sparse = np.zeros((400, 50))
    sparse[[5, 17, 300, 301, 399], 7] = 1  # only what is touched is looked at
    found = nearest(Similarity(), sparse, sparse, 2, same=True)
    assert [list(found.row(q)) for q in (5, 300, 0)] == [[17, 300], [5, 17], []]


def test_strengths_next_to_nothing_have_nothing_in_common():
    for dense in (np.full((3, 4), 1e-40), np.full((900, 2), 1e-25)):
        found = nearest(Similarity(), dense, dense, 2, same=True)
        assert np.isfinite(found.values).all()


@pytest.mark.parametrize("name", ["cosine", "tfidf", "bm25"])
def test_strengths_that_float32_cannot_square(name):
    dense = np.diag(np.full(4, 1e20)) + 1e20 * np.eye(4, k=1)
    with pytest.raises(SettingError, match=r"too large: its squares sum to .* use weighting='log'"):
        nearest(Similarity(name), dense, dense, 2, same=True)


def test_extreme_settings_of_bm25():
    dense = (np.random.default_rng(0).random((30, 20)) < 0.4).astype(float)
    for similarity in (Similarity("bm25", k1=1e39), Similarity("bm25", k1=0.0), Similarity("bm25", k1=1e39, b=0.0)):
        expected = textbook(similarity, dense, dense)
        np.fill_diagonal(expected, 0)
        agree(nearest(similarity, dense, dense, 4, same=True), expected, 4)


def test_neighbours_are_looked_up_block_by_block():
    rng = np.random.default_rng(5)
    dense = (rng.random((60, 40)) < 0.3) * rng.integers(1, 4, (60, 40))
    rows = rows_of(dense)
    by_column, keys = rows.transpose(), row_keys(rows)
    space = Neighbourhood(Similarity(), rows, rows.values, by_column, by_column.values, keys)  # type: ignore[arg-type]
    scorer = NeighbourScorer(space, rows, rows.values, keys, 5, rows)  # type: ignore[arg-type]
    whole = np.empty((60, 40), np.float32)
    scorer.score(slice(0, 60), slice(0, 40), whole)
    for queries, items in ((slice(7, 9), slice(0, 13)), (slice(7, 9), slice(13, 40)), (slice(59, 60), slice(39, 40))):
        part = np.empty((queries.stop - queries.start, items.stop - items.start), np.float32)
        scorer.score(queries, items, part)
        np.testing.assert_allclose(part, whole[queries, items], rtol=1e-6)
    similar = textbook(Similarity(), dense, dense)
    np.fill_diagonal(similar, 0)
    best = np.argsort(-similar, axis=1, kind="stable")[:, :5]
    expected = np.array([similar[q, best[q]] @ dense[best[q]] for q in range(60)])
    clear = [q for q in range(60) if len(np.unique(np.sort(similar[q])[-6:])) == 6]
    assert len(clear) > 10
    np.testing.assert_allclose(whole[clear], expected[clear], rtol=1e-4)


def test_threads_and_parts_do_not_matter():
    rng = np.random.default_rng(3)
    dense = (rng.random((500, 200)) < 0.15).astype(float)
    told: list[tuple[int, int]] = []
    one = nearest(Similarity("tfidf"), dense, dense, 20, same=True, threads=1)
    four = nearest(Similarity("tfidf"), dense, dense, 20, same=True, threads=4, step=lambda *parts: told.append(parts))
    np.testing.assert_array_equal(one.indices, four.indices)
    np.testing.assert_array_equal(one.values, four.values)
    assert told[-1] == (500, 500)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_more_rows_than_two_bytes_can_number():
    n = SHORT + 10
    dense_rows = np.zeros(n, np.int32)
    dense_rows[-3:] = 1  # the last three share column 1, all others column 0
    rows = SparseRows(np.arange(n + 1, dtype=np.int64), dense_rows, None, 2)
    keys, one = np.arange(n, dtype=np.uint64), np.ones(1, np.float32)
    space = Neighbourhood(Similarity(), rows, one, rows.transpose(), one, keys)
    last = rows.take(np.array([n - 1]))
    assert list(space.nearest(last, one, keys[-1:], 10).row(0)) == [n - 3, n - 2]


def test_keys_are_of_the_columns():
    rows = SparseRows.from_lists([np.array(one) for one in ([1, 2], [2, 1], [1], [], [], [0, 1, 2])], 3)
    keys = row_keys(rows)
    assert keys[0] == keys[1]
    assert keys[3] == keys[4]
    assert len(set(keys.tolist())) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "euclid"}, "similarity is 'euclid'; expected one of 'cosine', 'tfidf', 'bm25'"),
        ({"shrinkage": -1}, "shrinkage is -1"),
        ({"asymmetry": 1.5}, "asymmetry is 1.5; expected a number from 0 to 1"),
        ({"b": 2}, "b is 2.0; expected a number from 0 to 1"),
        ({"name": "bm25", "shrinkage": 5.0}, "leave them at 0 and 0.5, or use 'tfidf'"),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(SettingError, match=message):
        Similarity(**settings)
