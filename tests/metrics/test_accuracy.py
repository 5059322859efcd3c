"""Values worked out by hand, and questions that have no answer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shortlist import metrics
from shortlist.errors import SettingError, ShortlistError
from shortlist.metrics import Ranks


@pytest.fixture
def ranks():
    return Ranks.from_lists([[6, 1, 3], [4]], n_items=10)


def test_by_hand(ranks):
    assert metrics.precision(ranks, 4).tolist() == [2 / 4, 1 / 4]
    assert metrics.recall(ranks, 4).tolist() == [2 / 3, 1.0]
    assert metrics.capped_recall(ranks, 2).tolist() == [1 / 2, 0.0]
    assert metrics.average_precision(ranks, 4).tolist() == pytest.approx([(1 + 2 / 3) / 3, 1 / 4])
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert metrics.ndcg(ranks, 4).tolist() == pytest.approx([(1 + 1 / 2) / ideal, 1 / math.log2(5)])
    assert metrics.hit_rate(ranks, 3).tolist() == [1.0, 0.0]
    assert metrics.reciprocal_rank(ranks).tolist() == [1.0, 1 / 4]
    assert metrics.reciprocal_rank(ranks, 3).tolist() == [1.0, 0.0]
    # Ranks 1, 3, 6 of 10: 7 + 6 + 4 of 21 pairs are in order; rank 4: 6 of 9.
    assert metrics.auc(ranks).tolist() == pytest.approx([17 / 21, 6 / 9])


def test_auc_counts_the_items_ranked_not_the_catalogue():
    assert metrics.auc(Ranks.from_lists([[2], [2]], n_items=[10, 3])).tolist() == pytest.approx([8 / 9, 1 / 2])


def test_auc_refuses_contexts_where_everything_is_relevant():
    ranks = Ranks.from_lists([[1, 2], [2, 1, 3]], n_items=[4, 3])
    with pytest.raises(SettingError, match=r"position 1 \(1 of 2 contexts\).*select"):
        metrics.auc(ranks)
    assert metrics.auc(ranks.select(ranks.n_relevant < ranks.n_ranked)).tolist() == [1.0]


def test_a_context_with_nothing_above_the_cutoff_counts_as_zero():
    ranks = Ranks(np.array([0, 0, 1]), np.array([2]), np.array([3, 1]), np.array([100, 100]), cutoff=5)
    for function in (metrics.recall, metrics.ndcg, metrics.average_precision, metrics.reciprocal_rank):
        assert function(ranks, 5)[0] == 0.0
    assert metrics.recall(ranks, 2).tolist() == [0.0, 1.0]


def test_beyond_the_cutoff_is_refused():
    ranks = Ranks(np.array([0, 1]), np.array([2]), np.array([1]), np.array([100]), cutoff=5)
    with pytest.raises(SettingError, match=r"n is 6, .* cut off at 5"):
        metrics.recall(ranks, 6)
    with pytest.raises(SettingError, match=r"n is 10, .* cut off at 5"):
        metrics.reciprocal_rank(ranks, 10)
    with pytest.raises(SettingError, match=r"AUC needs .* cut off at 5"):
        metrics.auc(ranks)
    with pytest.raises(SettingError, match="without n needs"):
        metrics.reciprocal_rank(ranks)


@pytest.mark.parametrize("n", [0, -1, 2.0, "3", True, None, 2**31])
def test_n_is_a_whole_number_of_at_least_one(ranks, n):
    with pytest.raises(SettingError, match="n is"):
        metrics.recall(ranks, n)


def test_numpy_integers_are_fine(ranks):
    assert metrics.recall(ranks, np.int32(6)).tolist() == [1.0, 1.0]


def test_no_contexts_give_no_values():
    none = Ranks.from_lists([], n_items=10)
    assert len(none) == 0
    for function in (metrics.precision, metrics.average_precision, metrics.ndcg, metrics.reciprocal_rank):
        assert function(none, 5).shape == (0,)
    assert metrics.auc(none).shape == (0,)


def test_errors_are_user_errors():
    assert issubclass(SettingError, ShortlistError)
