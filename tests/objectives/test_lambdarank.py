"""|ΔM| against the metric before and after the swap, in random rankings."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from shortlist.errors import SettingError
from shortlist.objectives import LambdaRank

METRICS = [
    "ndcg",
    "ap",
    "auc",
    "ndcg@1",
    "ndcg@3",
    "ap@1",
    "ap@4",
    "precision@1",
    "precision@3",
    "recall@2",
    "recall@50",
]


def metric(text: str, relevant: np.ndarray) -> float:
    """The metric of a whole ranking by its definition; `relevant[r]` says whether place r holds a positive."""
    name, _, cut = text.partition("@")
    n, total = int(cut or len(relevant)), int(relevant.sum())
    head = relevant[:n]
    if name == "ndcg":
        gains = 1 / np.log2(2 + np.arange(len(relevant)))
        return float((gains[: len(head)] * head).sum() / gains[: min(total, n)].sum())
    if name == "ap":
        precisions = np.cumsum(head) / (1 + np.arange(len(head)))
        return float((precisions * head).sum() / min(total, n))
    if name == "auc":
        right = sum(relevant[a] and not relevant[b] for a, b in product(range(len(relevant)), repeat=2) if a < b)
        return right / (total * (len(relevant) - total))
    return float(head.sum() / (n if name == "precision" else total))


def swapped(text: str, relevant: np.ndarray, a: int, b: int) -> float:
    """|ΔM| by brute force, with ranks from 1."""
    after = relevant.copy()
    after[[a - 1, b - 1]] = after[[b - 1, a - 1]]
    return abs(metric(text, after) - metric(text, relevant))


@st.composite
def rankings(draw):
    relevant = np.array(draw(st.lists(st.booleans(), min_size=2, max_size=12)))
    relevant[0], relevant[-1] = True, False
    relevant = relevant[np.array(draw(st.permutations(range(len(relevant)))))]
    positives = (1 + np.flatnonzero(relevant)).tolist()
    negatives = (1 + np.flatnonzero(~relevant)).tolist()
    return relevant, draw(st.sampled_from(positives)), draw(st.sampled_from(negatives))


@pytest.mark.parametrize("text", METRICS)
@given(ranking=rankings(), data=st.randoms(use_true_random=False))
def test_it_is_what_the_swap_changes(text, ranking, data):
    relevant, a, b = ranking
    positives = (1 + np.flatnonzero(relevant)).tolist()
    data.shuffle(positives)
    found = LambdaRank(text).change(a, b, positives, len(relevant))
    assert found == pytest.approx(swapped(text, relevant, a, b), rel=1e-5, abs=1e-6)


def test_ap_depends_on_the_positives_in_between():
    """The same two ranks, and as many positives: the article's ΔM of two ranks alone cannot be both."""
    between, behind = [2, 3, 6], [6, 7, 8]
    found = [LambdaRank("ap").change(6, 1, ranks, 10) for ranks in (between, behind)]
    written = []
    for ranks in (between, behind):
        relevant = np.zeros(10, bool)
        relevant[np.array(ranks) - 1] = True
        written.append(swapped("ap", relevant, 6, 1))
    np.testing.assert_allclose(found, written, rtol=1e-5)
    assert found[0] == pytest.approx((1 / 1 + 1 / 2 + 1 / 3 - 3 / 6) / 3, rel=1e-5)
    assert found[1] == pytest.approx((1 / 1 - 1 / 6) / 3, rel=1e-5)
    for text in ("ndcg", "auc", "precision@3", "recall@3"):
        one, other = (LambdaRank(text).change(6, 1, ranks, 10) for ranks in (between, behind))
        assert one == other


def test_behind_the_cut_nothing_changes():
    for text in ("ndcg@3", "ap@3", "precision@3", "recall@3"):
        assert LambdaRank(text).change(5, 9, [1, 5], 20) == 0
        assert LambdaRank(text).change(5, 3, [1, 5], 20) > 0


@pytest.mark.parametrize(
    "text",
    [
        *("precision", "recall", "auc@5", "ndcg@0", "ndcg@", "ndcg@-1", "ndcg@1.5", "ndcg@5@5", "NDCG", "", "hit@5"),
        *(None, 5, "ndcg@" + "1" * 5000, "ap@1" + "0" * 20),
    ],
)
def test_metrics_that_there_are_not(text):
    with pytest.raises(SettingError, match="expected 'ndcg', 'ap' or 'auc', or a metric with a cutoff"):
        LambdaRank(text)


def test_other_settings():
    with pytest.raises(SettingError, match="ranks is 'guessed'; expected one of 'sampled', 'exact'"):
        LambdaRank(ranks="guessed")
    with pytest.raises(SettingError, match="candidates is 0; expected an integer ≥ 1"):
        LambdaRank(candidates=0)


@pytest.mark.parametrize("text", ["ndcg", "ndcg@20", "auc", "recall@20"])
@pytest.mark.parametrize("n_items", [3, 40, 2500])
@pytest.mark.parametrize("candidates", [1, 5, 64])
def test_the_change_of_ranks_that_are_not_known(text, n_items, candidates):
    """Its mean over all ranks, each as likely as it is that k of n random items score higher."""
    found = LambdaRank(text, candidates=candidates).tables(n_items, 2).changes
    ranks = np.arange(1, n_items + 1)
    cut = int(text.partition("@")[2] or n_items)
    worth = {"n": 1 / np.log2(1 + ranks), "a": ranks, "r": np.ones(n_items)}[text[0]] * (ranks <= cut)
    laws = binom.pmf(np.arange(candidates + 1)[:, None], candidates, (ranks - 1) / (n_items - 1))
    laws /= laws.sum(axis=1, keepdims=True)
    plain = laws @ np.abs(worth[:, None] - worth) @ laws.T
    np.testing.assert_allclose(found, plain, rtol=0.01, atol=1e-5 * plain.max())


def test_with_two_items_or_one():
    wanted = [[0, 0.5, 1], [0.5, 0.5, 0.5], [1, 0.5, 0]]
    np.testing.assert_allclose(LambdaRank("auc", candidates=2).tables(2, 1).changes, wanted)
    assert not LambdaRank("auc", candidates=2).tables(1, 1).changes.any()


def test_tables_fit_histories_of_every_length():
    """Also one that has the whole catalogue, or more positives than the cut."""
    for text in METRICS:
        tables = LambdaRank(text, candidates=7).tables(5, 5)
        assert tables.gains.shape == tables.norms.shape == (6,)
        assert (tables.norms > 0).all()
        assert tables.candidates == 7
        assert tables.by_positives == text.startswith("ap")


def test_positives_may_share_an_estimated_rank():
    """Of three positives at rank 1, the first falls to 100: two remain before it, and count as such."""
    found = LambdaRank("ap").change(1, 100, [1, 1, 1], 1000)
    np.testing.assert_allclose(found, abs(1 / 1 - 3 / 100) / 3, rtol=1e-6)


@pytest.mark.parametrize("text", METRICS)
@pytest.mark.parametrize(
    ("positive", "negative", "positives", "n_items", "name"),
    [
        *((rank, 3, [1], 100, "positive") for rank in (0, -1, 101, 2, 1.0, "a", None, 2**70)),
        *((1, rank, [1], 100, "negative") for rank in (0, -1, 101, 10**9, 3.5, None, 2**70)),
        *((1, 3, ranks, 100, "positives") for ranks in ([], None, [[1]], [1, 0], [1, 101], ["a"], [1.5], [1, 2**70])),
        (1, 3, [1, 2, 3], 3, "positives"),
        *((1, 3, [1], n_items, "n_items") for n_items in (0, 1, -5, 2**31, 2**70, "a", None, 3.5)),
    ],
)
def test_impossible_ranks(text, positive, negative, positives, n_items, name):
    with pytest.raises(SettingError, match=f"^{name} is "):
        LambdaRank(text).change(positive, negative, positives, n_items)


def test_a_swap_in_a_huge_catalogue_needs_no_table_of_it():
    assert LambdaRank("ndcg").change(1, 3, [1], 2**31 - 1) == 0.5
    assert LambdaRank("auc").change(1, 2**31 - 1, [1], 2**31 - 1) == pytest.approx(1)


def test_the_change_is_normalised_by_all_positives():
    """|M(r_i) − M(r_j)| of one relevant item, read literally, has the normaliser of a single positive."""
    gain = lambda rank: 1 / np.log2(rank + 1)  # noqa: E731
    positives = [2, 5, 9]
    change = LambdaRank("ndcg").change(5, 1, positives, 20)
    assert change == pytest.approx((gain(1) - gain(5)) / (gain(1) + gain(2) + gain(3)), rel=1e-5)
    assert change != pytest.approx(gain(1) - gain(5), rel=0.1)
