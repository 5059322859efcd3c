"""ItemKNN, UserKNN and SLIM from ids to scores, against dense matrices and the textbooks' formulas."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist as sl

# weights are beside the point here
pytestmark = pytest.mark.filterwarnings("ignore:the weights of column:shortlist.errors.ShortlistWarning")

RNG = np.random.default_rng(7)
X = (RNG.random((50, 30)) < 0.25) * RNG.integers(1, 5, (50, 30)).astype(float)
X[:, 29] = 0
X[0, 29] = 2  # an item that one context had
CONTEXTS = [f"c{k:02d}" for k in range(50)]
ITEMS = [f"i{k:02d}" for k in range(30)]


@pytest.fixture(scope="module")
def events():
    rows, columns = np.nonzero(X)
    return sl.Interactions.from_frame(
        {
            "c": [CONTEXTS[r] for r in rows],
            "i": [ITEMS[c] for c in columns],
            "w": X[rows, columns],
        },
        context="c",
        item="i",
        weight="w",
    )


def strengths(weighting: str) -> np.ndarray:
    return {"binary": (X > 0).astype(float), "log": np.log2(1 + X), "raw": X}[weighting]


def scores(model: sl.Recommender) -> np.ndarray:
    return np.array(model.score(CONTEXTS, [ITEMS] * 50))


@pytest.mark.parametrize("weighting", ["binary", "log", "raw"])
@pytest.mark.parametrize("k", [3, 100])
def test_item_neighbours(events, weighting, k):
    """ŷ(i|c) = Σ_{j∈N_k(i)} x_cj·cos(i, j)."""
    S = strengths(weighting)
    norms = np.linalg.norm(S, axis=0)
    cosine = (S.T @ S / (np.outer(norms, norms) + 4.0)).astype(np.float32)
    np.fill_diagonal(cosine, 0)
    nearest = np.zeros_like(cosine)
    for i in range(30):
        best = np.argsort(-cosine[i], kind="stable")[:k]
        nearest[i, best] = cosine[i, best]
    model = sl.ItemKNN(neighbours=k, shrinkage=4.0, weighting=weighting).fit(events)
    np.testing.assert_allclose(scores(model), S @ nearest.T, rtol=1e-4, atol=1e-5)
    assert model.n_weights == np.count_nonzero(nearest)
    similar = model.similar_items(["i03"], n=3).ids[0]
    assert set(similar) == {ITEMS[j] for j in np.argsort(-cosine[3], kind="stable")[:3]}


@pytest.mark.parametrize("weighting", ["binary", "log", "raw"])
@pytest.mark.parametrize("k", [4, 100])
def test_context_neighbours(events, weighting, k):
    """ŷ(i|c) = Σ_{d∈N_k(c)} cos(c, d)·x_di, a context not being its own neighbour."""
    S = strengths(weighting)
    norms = np.linalg.norm(S, axis=1)
    cosine = (S @ S.T / np.outer(norms, norms)).astype(np.float32)
    np.fill_diagonal(cosine, 0)
    expected = np.zeros((50, 30))
    for c in range(50):
        best = np.argsort(-cosine[c], kind="stable")[:k]
        expected[c] = cosine[c, best] @ S[best]
    model = sl.UserKNN(neighbours=k, weighting=weighting).fit(events)
    np.testing.assert_allclose(scores(model), expected, rtol=1e-4, atol=1e-5)


def test_similar_items_of_context_neighbours_are_by_cosine(events):
    B = (X > 0).astype(float)
    norms = np.linalg.norm(B, axis=0)
    cosine = B.T @ B / np.outer(norms, norms)
    answer = sl.UserKNN().fit(events).similar_items(["i03", "i29"], n=29)
    for row, (ids, values) in zip((3, 29), zip(answer.ids, answer.scores)):
        np.testing.assert_allclose(values, [cosine[row, ITEMS.index(one)] for one in ids], rtol=1e-5, atol=1e-6)


def test_contexts_with_the_same_items_are_no_neighbours():
    """They know nothing that is not in the history, known or told."""
    frame = {"c": ["a", "a", "b", "b", "d", "d", "d"], "i": ["x", "y", "x", "y", "x", "y", "z"]}
    model = sl.UserKNN(neighbours=1).fit(sl.Interactions.from_frame(frame, context="c", item="i"))
    assert model.recommend(["a"], n=1).ids == model.recommend(history=[["y", "x"]], n=1).ids == [["z"]]
    assert model.score(["a"], [["z"]])[0][0] > 0


@pytest.mark.parametrize("weighting", ["binary", "raw"])
def test_slim(events, weighting):
    """Each row of W is the elastic net of Ning and Karypis, here by slow projected gradient steps."""
    S = strengths(weighting)
    G = S.T @ S
    l1, l2 = 0.5, 3.0
    step = 1 / (np.linalg.eigvalsh(G)[-1] + l2)
    W = np.zeros((30, 30))
    for _ in range(20_000):
        W = np.maximum(W - step * (W @ G - G + l2 * W + l1), 0)
        np.fill_diagonal(W, 0)
    model = sl.SLIM(l1=l1, l2=l2, tolerance=1e-6, sweeps=100_000, weighting=weighting).fit(events)
    np.testing.assert_allclose(scores(model), S @ W.T, rtol=1e-3, atol=1e-3)
    assert model.n_weights == np.count_nonzero(W > 1e-7)
    assert 0 < model.n_weights < 30 * 29


def test_slim_without_signs_comes_to_ease(events):
    """With l1 = 0 and weights of any sign the elastic net is ridge regression, which EASE solves in closed form."""
    ease = sl.EASE(regularization=5.0).fit(events)
    slim = sl.SLIM(l1=0.0, l2=5.0, positive=False, tolerance=1e-7, sweeps=100_000).fit(events)
    np.testing.assert_allclose(scores(slim), scores(ease), atol=1e-4)


def test_progress_is_told_by_parts(events, capsys):
    sl.SLIM(l1=0.5, l2=3.0).fit(events, progress=True)
    sl.ItemKNN().fit(events, progress=True)
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == "ItemKNN: 30/30 items"
    assert any(line.startswith("SLIM: ") for line in told)
