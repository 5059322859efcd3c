"""Start values from singular vectors, against the whole decomposition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import shortlist as sl
from recommenders.factorizations import events
from shortlist.data.sparse_rows import SparseRows
from shortlist.solvers.svd_init import singular_vectors, spread_along


def dense(rows):
    X = np.zeros((rows.n_rows, rows.n_columns))
    for c in range(rows.n_rows):
        X[c, rows.row(c)] = 1
    return np.maximum(X.sum(1, keepdims=True), 1) ** -0.5 * X * np.maximum(X.sum(0), 1) ** -0.5


@pytest.mark.parametrize(("n_contexts", "n_items"), [(60, 20), (18, 40)])
@pytest.mark.parametrize("dim", [1, 5])
def test_singular_vectors(n_contexts, n_items, dim):
    """Here the subspace is the whole space, so that nothing is left to chance."""
    rows = events(n_contexts, n_items).by_context
    matrix = dense(rows)
    U, s, V = singular_vectors(rows, dim)
    left, values, right = np.linalg.svd(matrix)
    np.testing.assert_allclose(s, values[:dim], rtol=1e-4)
    np.testing.assert_allclose((U * s) @ V.T, (left[:, :dim] * values[:dim]) @ right[:dim], atol=2e-3)
    np.testing.assert_allclose(U.T @ U, np.eye(dim), atol=1e-4)


def test_a_subspace_that_is_not_the_whole_space():
    """At least as much of the matrix as the best approximation leaves, nearly."""
    rows = events(400, 200).by_context
    matrix = dense(rows)
    U, s, V = singular_vectors(rows, 30)
    values = np.linalg.svd(matrix, compute_uv=False)
    left_out = ((matrix - (U * s) @ V.T) ** 2).sum()
    assert (values[30:] ** 2).sum() <= left_out * 1.0001
    assert left_out < 1.05 * (values[30:] ** 2).sum()


def test_rows_without_pairs_and_further_coordinates_stay():
    rows = SparseRows.from_lists([np.array(one, np.int32) for one in ([0, 1], [], [1, 2])], n_columns=4)
    U, s, V = singular_vectors(rows, 8)
    assert U.shape == (3, 3)
    assert V.shape == (4, 3)
    rng = np.random.default_rng(0)
    for vectors, empty in ((U, 1), (V, 3)):
        start = rng.normal(size=(len(vectors), 8)).astype(np.float32)
        before = start.copy()
        spread_along(start, vectors, s, 0.1)
        np.testing.assert_array_equal(start[empty], before[empty])
        np.testing.assert_array_equal(start[:, 3:], before[:, 3:])
        others = np.delete(np.arange(len(vectors)), empty)
        np.testing.assert_allclose(np.linalg.norm(start[others, :3], axis=1), 0.1 * (3 / 8) ** 0.5, rtol=1e-5)


@pytest.mark.parametrize("kind", [sl.BPR, sl.LogisticMF, sl.SoftmaxMF])
def test_a_fit_begins_nearer_to_its_end(kind):
    data = events(200, 60)
    told = {init: kind(dim=4, epochs=3, init=init).fit(data, threads=1) for init in ("random", "svd")}
    assert told["svd"].training_[-1].loss.total < told["random"].training_[-1].loss.total
    again = kind(dim=4, epochs=3, init="svd").fit(data, threads=1)
    np.testing.assert_array_equal(again.item_embeddings_, told["svd"].item_embeddings_)


def test_it_is_for_what_no_other_model_knows():
    """A fit from another model begins from its embeddings."""
    data = events(50, 20)
    other = sl.LogisticMF(dim=4, epochs=3).fit(data, threads=1)
    drawn = sl.LogisticMF(dim=4, epochs=1).fit(data, start=other, threads=1)
    with pytest.warns(sl.ShortlistWarning, match="init='random' has no effect"):
        found = sl.LogisticMF(dim=4, epochs=1, init="random").fit(data, start=other, threads=1)
    np.testing.assert_array_equal(found.item_embeddings_, drawn.item_embeddings_)


def test_a_wrong_name():
    with pytest.raises(sl.SettingError, match="init is 'pca'; expected one of 'random', 'svd'"):
        sl.BPR(init="pca").fit(events(50, 20))


def test_softmax_depends_on_no_threads_and_begins_from_another_model_without_a_warning(recwarn):
    rng = np.random.default_rng(0)
    pairs = rng.random((700, 300)) < 0.05
    data = sl.Interactions.from_csr(csr_matrix(pairs.astype(np.float32)))
    kept = {"dim": 128, "epochs": 2, "weighting": "binary"}
    one, two = (sl.SoftmaxMF(**kept).fit(data, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.item_embeddings_, two.item_embeddings_)
    np.testing.assert_array_equal(one.context_embeddings_, two.context_embeddings_)
    sl.SoftmaxMF(**kept).fit(data, start=one)
    assert not recwarn.list
    with pytest.warns(sl.ShortlistWarning, match="init='random' has no effect"):
        sl.SoftmaxMF(**kept, init="random").fit(data, start=one)
