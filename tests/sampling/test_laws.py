"""Every sampler's draws, by NumPy and by the kernel, against the q it reports."""

from __future__ import annotations

import numpy as np
import pytest

from sampling.draws import ITEMS, WAYS, N, draw, embeddings, follows, histories
from shortlist.data.sparse_rows import SparseRows
from shortlist.sampling import AdaptiveRank, InBatch, Popularity, Rejection, Uniform

EXCLUDE = ("history", "positive")
PAIRS = ((0, 3), (1, 1), (3, 1), (4, 0), (2, 7))  # the last one's item is not in its history


def barred(rows, exclude, context, positive):
    return {positive} | (set(rows.row(context).tolist()) if exclude == "history" else set())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("exclude", EXCLUDE)
@pytest.mark.parametrize("make", [Uniform, Popularity, lambda exclude: Popularity(1.3, exclude)])
def test_draws_that_no_model_changes(way, exclude, make):
    rows = histories()
    negatives = make(exclude=exclude).bind(rows)
    for context, positive in PAIRS:
        q = negatives.probabilities(context, positive)
        items, _ = draw(way, negatives, [context], [positive], N)
        assert not set(items.ravel().tolist()) & barred(rows, exclude, context, positive)
        assert follows(np.bincount(items.ravel(), minlength=ITEMS), q)


def test_q_is_what_the_formula_says():
    rows = histories()
    counts = rows.column_counts().astype(float)
    for exclude in EXCLUDE:
        for sampler, weight in (
            (Uniform(exclude), np.ones(ITEMS)),
            (Popularity(0.5, exclude), counts**0.5),
            (InBatch(exclude), counts),
        ):
            for context, positive in PAIRS:
                out = barred(rows, exclude, context, positive)
                wanted = np.array([0 if j in out else weight[j] for j in range(ITEMS)])
                q = sampler.bind(rows).probabilities(context, positive)
                np.testing.assert_allclose(q, wanted / wanted.sum(), rtol=1e-12)
                assert (q[list(out)] == 0).all()


@pytest.mark.parametrize("exclude", EXCLUDE)
@pytest.mark.parametrize("make", [Uniform, Popularity, InBatch, lambda exclude: AdaptiveRank(3.0, exclude)])
def test_log_q_is_that_of_the_drawn_items(exclude, make):
    rows, (W, H) = histories(), embeddings(3)
    negatives = make(exclude=exclude).bind(rows)
    negatives.refresh(H)
    contexts, positives = np.array([*PAIRS, (5, 2)]).T
    drawn = negatives.draw(
        contexts, positives, 30, np.random.default_rng(1), context_embeddings=W[contexts], log_q=True
    )
    for k, (context, positive) in enumerate(zip(contexts.tolist(), positives.tolist())):
        q = negatives.probabilities(context, positive, context_embedding=W[context])
        some = drawn.items[k] >= 0
        np.testing.assert_allclose(drawn.log_q[k, some], np.log(q[drawn.items[k, some]]), atol=1e-12)
        assert (drawn.log_q[k, ~some] == -np.inf).all()
        assert some.any() or (exclude == "history" and context in {3, 5})
    assert (
        negatives.draw(contexts, positives, 1, np.random.default_rng(1), context_embeddings=W[contexts]).log_q is None
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("exclude", EXCLUDE)
@pytest.mark.parametrize("d", [1, 32])
def test_adaptive_rank_is_its_mixture(way, exclude, d):
    rows, (W, H) = histories(), embeddings(d)
    W[1] = -np.abs(W[1])  # from the other end
    W[4] = 0  # every coordinate alike
    negatives = AdaptiveRank(gamma=2.5, exclude=exclude).bind(rows)
    negatives.refresh(H)
    for context, positive in PAIRS:
        items, _ = draw(way, negatives, [context], [positive], N, W=W)
        wanted = mixture(W[context], H, 2.5, barred(rows, exclude, context, positive))
        assert follows(np.bincount(items.ravel(), minlength=ITEMS), wanted)
        q = negatives.probabilities(context, positive, context_embedding=W[context])
        np.testing.assert_allclose(q, wanted, rtol=1e-5, atol=1e-12)
        assert (q[wanted == 0] == 0).all()


def mixture(w, H, gamma, out):
    """Σ_f q(f|c)·exp(−rank_f(j)/γ)/Σ_r exp(−r/γ), loop by loop."""
    influence = np.abs(w.astype(float)) * H.astype(float).std(axis=0)
    influence = influence / influence.sum() if influence.sum() > 0 else np.full(len(w), 1 / len(w))
    z = sum(np.exp(-r / gamma) for r in range(ITEMS))
    q = np.zeros(ITEMS)
    for j in range(ITEMS):
        for f in range(len(w)):
            rank = (H[:, f] > H[j, f]).sum() if w[f] >= 0 else (H[:, f] < H[j, f]).sum()
            q[j] += influence[f] * np.exp(-rank / gamma) / z
    q[list(out)] = 0
    return q / q.sum()


@pytest.mark.parametrize("way", WAYS)
def test_adaptive_rank_never_takes_a_constant_coordinate(way):
    rows, (W, H) = histories(), embeddings(3)
    H[:, 1] = 0.3  # its mean in float32 is not 0.3
    W[0] = [1e-3, 1e6, 0]
    negatives = AdaptiveRank(gamma=0.05, exclude="positive").bind(rows)
    negatives.refresh(H)
    assert negatives.tables.sigma[1] == 0
    top = int(np.argmax(H[:, 0]))
    items, _ = draw(way, negatives, [0], [(top + 1) % ITEMS], 500, W=W)
    assert (items == top).all()


def test_adaptive_rank_follows_the_model_only_when_refreshed():
    negatives = AdaptiveRank(gamma=0.05, exclude="positive").bind(histories())
    H = np.arange(ITEMS, dtype=np.float32)[:, None]
    one = np.ones((6, 1), np.float32)
    negatives.refresh(H)
    assert draw("kernel", negatives, [2], [0], 1, W=one)[0] == ITEMS - 1
    negatives.refresh(np.roll(H, 3, axis=0))
    assert draw("kernel", negatives, [2], [0], 1, W=one)[0] == 2


@pytest.mark.parametrize("gamma", [1e-3, 1e9])
def test_adaptive_rank_at_the_ends_of_gamma(gamma):
    """Far above |I| every rank is as likely, far below it only the first one is drawn."""
    H = np.arange(ITEMS, dtype=np.float32)[:, None]
    negatives = AdaptiveRank(gamma=gamma, exclude="positive").bind(histories())
    negatives.refresh(H)
    q = np.full(ITEMS, 1 / (ITEMS - 1)) if gamma > 1 else np.eye(ITEMS)[ITEMS - 1]
    if gamma > 1:
        q[0] = 0
    for way in WAYS:
        items, _ = draw(way, negatives, [2], [0], N, W=np.ones((6, 1), np.float32))
        assert follows(np.bincount(items.ravel(), minlength=ITEMS), q)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("exclude", EXCLUDE)
def test_in_batch_over_random_batches_is_popularity(way, exclude):
    rows = histories()
    row_of = np.repeat(np.arange(rows.n_rows), rows.lengths)
    rng = np.random.default_rng(3)
    negatives = InBatch(exclude).bind(rows)
    context, positive = 0, 3
    counts = np.zeros(ITEMS)
    for seed in range(4000):
        entries = rng.integers(0, len(rows), 6)
        contexts = np.concatenate([[context], row_of[entries]])
        positives = np.concatenate([[positive], rows.indices[entries]])
        items, _ = draw(way, negatives, contexts, positives, 1, seed=seed)
        if items[0, 0] >= 0:
            counts[items[0, 0]] += 1
        assert set(items.ravel().tolist()) <= {-1, *positives.tolist()}
    assert follows(counts, negatives.probabilities(context, positive))


@pytest.mark.parametrize("way", WAYS)
def test_in_batch_draws_each_other_entry_alike(way):
    negatives = InBatch("history").bind(histories())
    items, _ = draw(way, negatives, [0, 1, 1, 1, 4], [3, 1, 1, 2, 0], N)
    wanted = np.zeros(ITEMS)
    wanted[[1, 2]] = 2 / 3, 1 / 3  # of context 0: 3 is its own, 0 in its history
    assert follows(np.bincount(items[0], minlength=ITEMS), wanted)
    items, _ = draw(way, negatives, [0, 0], [3, 5], 3)
    assert (items == -1).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "sampler", [Uniform(), Popularity(), InBatch(), AdaptiveRank(gamma=3), Rejection(rounds=4)], ids=repr
)
def test_who_has_everything_gets_nothing(way, sampler):
    W, H = embeddings(4)
    negatives = sampler.bind(histories())
    negatives.refresh(H)
    items, rounds = draw(way, negatives, [5, 0], [2, 3], 6, W=W, H=H)
    assert (items[0] == -1).all()
    if isinstance(sampler, Rejection):
        assert (rounds[0] == 4).all()
        assert (rounds[1] >= 1).all()
    else:
        assert not negatives.probabilities(5, 2, context_embedding=W[5]).any()


@pytest.mark.parametrize("way", WAYS)
def test_uniform_finds_the_last_items_of_a_large_catalogue(way):
    """Too few are left to be met by chance."""
    n, left = 50_000, 3
    negatives = Uniform().bind(SparseRows.from_lists([np.arange(left, n)], n))
    items, _ = draw(way, negatives, [0], [n - 1], 200)
    assert follows(np.bincount(items.ravel(), minlength=left), np.full(left, 1 / left))


def test_kernel_draws_depend_on_the_state_and_on_nothing_else():
    negatives = Uniform().bind(histories())
    first, again, other = (draw("kernel", negatives, [0], [3], 50, seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
