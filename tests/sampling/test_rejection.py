"""WARP's search: whom it finds, after how many proposals, and what that says of the rank."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from sampling.draws import ITEMS, WAYS, N, draw, embeddings, follows, histories
from shortlist.errors import SettingError
from shortlist.sampling import Rejection, expected_rank, rounds_law

EXCLUDE = ("history", "positive")


def setting(exclude, context, positive, margin, seed=8):
    """The negatives' source, embeddings, who is proposed, and who of them violates and is not excluded."""
    rows, (W, H) = histories(), embeddings(4, seed)
    scores = W[context].astype(float) @ H.T.astype(float)
    out = {positive} | (set(rows.row(context).tolist()) if exclude == "history" else set())
    candidates = [j for j in range(ITEMS) if j != positive]
    violators = [j for j in candidates if j not in out and scores[j] + margin > scores[positive]]
    return rows, W, H, scores, candidates, violators


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("exclude", EXCLUDE)
@pytest.mark.parametrize(("context", "positive", "margin"), [(0, 3, 0.3), (4, 0, 0.0), (1, 1, 1.0), (2, 7, 0.1)])
def test_items_and_rounds_follow_their_laws(way, exclude, context, positive, margin):
    rows, W, H, scores, candidates, violators = setting(exclude, context, positive, margin)
    assert 0 < len(violators) < len(candidates), "the case says nothing"
    p, cap = len(violators) / len(candidates), 3
    negatives = Rejection(margin=margin, rounds=cap, exclude=exclude).bind(rows)
    items, rounds = draw(way, negatives, [context], [positive], N, W=W, H=H)
    found = items.ravel() >= 0

    truncated = [p * (1 - p) ** (k - 1) for k in range(1, cap + 1)]
    seen = [*(int((rounds.ravel()[found] == k).sum()) for k in range(1, cap + 1)), int((~found).sum())]
    assert follows(seen, [*truncated, (1 - p) ** cap])
    assert (rounds.ravel()[~found] == cap).all()

    q = np.zeros(ITEMS)
    q[violators] = (1 - (1 - p) ** cap) / len(violators)
    np.testing.assert_allclose(negatives.probabilities(context, positive, scores=scores), q, rtol=1e-12)
    assert follows(np.bincount(items.ravel() + 1, minlength=ITEMS + 1), [1 - q.sum(), *q])


@pytest.mark.parametrize("way", WAYS)
def test_the_mean_of_the_estimated_rank_is_the_sum_over_rounds(way):
    rows, W, H, _, candidates, violators = setting("history", 0, 3, 0.3)
    p = len(violators) / len(candidates)
    for cap, formula in ((400, expected_rank(p, ITEMS)), (2, expected_rank(p, ITEMS, rounds=2))):
        negatives = Rejection(margin=0.3, rounds=cap).bind(rows)
        items, rounds = draw(way, negatives, [0], [3], N, W=W, H=H)
        estimates = (ITEMS - 1) // rounds[items >= 0]
        error = estimates.std() / math.sqrt(len(estimates))
        assert abs(estimates.mean() - formula) < 4 * error + 1e-12


def test_the_mean_of_the_estimated_rank_by_brute_force():
    for p, n_items in ((0.02, 1000), (0.5, 50), (1.0, 7)):
        plain = sum(p * (1 - p) ** (k - 1) * ((n_items - 1) // k) for k in range(1, 5000))
        assert expected_rank(p, n_items) == pytest.approx(plain)
        within = sum(p * (1 - p) ** (k - 1) * ((n_items - 1) // k) for k in range(1, 11))
        assert expected_rank(p, n_items, rounds=10) == pytest.approx(within / (1 - (1 - p) ** 10))
    assert expected_rank(0.0, 10) == 0


def test_the_estimate_is_too_high_by_the_logarithm():
    for share in (0.5, 0.1, 0.01):
        ratio = expected_rank(share, 100_001) / (share * 100_000)
        assert ratio == pytest.approx(math.log(1 / share) / (1 - share), rel=5e-3)
        assert expected_rank(share, 100_001, rounds=10) > expected_rank(share, 100_001)


def test_the_law_of_rounds_lacks_what_is_not_found():
    assert rounds_law(0.3, 5).sum() == pytest.approx(1 - 0.7**5)
    assert rounds_law(1.0, 3).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("way", WAYS)
def test_where_none_violates_the_search_is_given_up(way):
    W, H = np.ones((6, 1), np.float32), np.zeros((ITEMS, 1), np.float32)
    H[3] = 5
    negatives = Rejection(margin=1.0, rounds=6).bind(histories())
    items, rounds = draw(way, negatives, [0], [3], 20, W=W, H=H)
    assert (items == -1).all()
    assert (rounds == 6).all()
    assert not negatives.probabilities(0, 3, scores=H[:, 0]).any()


@pytest.mark.parametrize("way", WAYS)
def test_the_margin_itself_is_no_violation(way):
    """Accepted where ŷ(j) + margin > ŷ(i), not where they are equal."""
    W, H = np.ones((6, 1), np.float32), np.zeros((ITEMS, 1), np.float32)
    H[3], H[7] = 1, 0.25
    items, _ = draw(way, Rejection(margin=1.0, rounds=200).bind(histories()), [0], [3], 50, W=W, H=H)
    assert (items == 7).all()


def test_the_expected_rank_of_any_catalogue_and_any_number_of_rounds():
    """Summed by blocks of equal estimates, so it takes no longer for huge numbers."""
    for p, n_items, rounds in product((1e-9, 0.02, 0.5, 1.0), (1, 2, 3, 10, 1000), (None, 1, 2, 31, 2000, 2**62)):
        most = min(n_items - 1, n_items if rounds is None else rounds)
        plain = sum(p * (1 - p) ** (k - 1) * ((n_items - 1) // k) for k in range(1, most + 1))
        found = 1 if rounds is None or p == 1 else -math.expm1(rounds * math.log1p(-p))
        assert expected_rank(p, n_items, rounds) == pytest.approx(plain / found, rel=1e-9)
    assert expected_rank(0.5, 2**31 - 1, 10**9) == pytest.approx(math.log(2) / 0.5 * 0.5 * 2**31, rel=1e-6)


@pytest.mark.parametrize("p", [2, 1.5, -0.1, math.nan, None, "a", True, [0.5]])
def test_a_share_is_from_0_to_1(p):
    with pytest.raises(SettingError, match=r"p is .*; expected a number from 0 to 1"):
        expected_rank(p, 10)
    with pytest.raises(SettingError, match=r"p is .*; expected a number from 0 to 1"):
        rounds_law(p, 10)


@pytest.mark.parametrize("number", [0, -1, 1.5, "a", 2**70, math.nan, [3]])
def test_impossible_numbers_of_rounds_and_items(number):
    for call in (
        lambda: expected_rank(0.5, 10, number),
        lambda: expected_rank(0.5, number),
        lambda: rounds_law(0.5, number),
    ):
        with pytest.raises(SettingError, match=r"(rounds|n_items) is .*; expected an integer"):
            call()
