from __future__ import annotations

import numpy as np
import pytest

from shortlist.errors import SettingError
from shortlist.metrics import Ranks


def build(indptr=(0, 2, 3), ranks=(1, 3, 2), n_relevant=(2, 1), n_ranked=(9, 9), cutoff=None):
    return Ranks(np.array(indptr), np.array(ranks), np.array(n_relevant), np.array(n_ranked), cutoff)


def test_ranks_are_sorted_within_contexts_and_read_only():
    given = np.array([7, 1, 4, 2, 9])
    ranks = Ranks(np.array([0, 3, 5]), given, np.array([3, 2]), np.array([9, 9]))
    assert ranks.ranks.tolist() == [1, 4, 7, 2, 9]
    assert given.tolist() == [7, 1, 4, 2, 9]
    assert given.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        ranks.ranks[0] = 5


def test_small_integer_types_become_int64():
    ranks = Ranks(*(np.array(x, dtype=np.int32) for x in ([0, 1], [3], [1], [9])))
    assert {a.dtype for a in (ranks.indptr, ranks.ranks, ranks.n_relevant, ranks.n_ranked)} == {np.dtype(np.int64)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_relevant": (2, 0), "indptr": (0, 2, 2), "ranks": (1, 3)}, "position 1 .*no relevant item.*drop"),
        ({"ranks": (0, 3, 2)}, "position 0 .*rank outside"),
        ({"ranks": (1, 10, 2)}, "position 0 .*rank outside"),
        ({"ranks": (3, 3, 2)}, "position 0 .*same rank twice"),
        ({"n_ranked": (1, 9)}, "position 0 .*more relevant items than ranked items"),
        ({"n_ranked": (2**31, 9)}, "position 0 .*n_ranked ≥ 2³¹"),
        ({"n_relevant": (3, 1)}, "position 0 .*pass all ranks, or the cutoff"),
        ({"n_relevant": (1, 1), "cutoff": 5}, "position 0 .*only ranks beyond cutoff=5"),
        ({"n_relevant": (3, 1), "cutoff": 9}, "position 0 .*only ranks beyond cutoff=9"),
        ({"n_relevant": (4, 1), "n_ranked": (6, 9), "cutoff": 5}, "position 0 .*only ranks beyond cutoff=5"),
        ({"indptr": (0, 3)}, "n_relevant has 2 entries for 1 contexts"),
        ({"indptr": (0, 2, 2)}, "indptr has 3 entries .*number of ranks"),
        ({"indptr": (1, 2, 3)}, "expected 0 first"),
        ({"indptr": (0, 4, 3)}, "ascending values"),
        ({"ranks": (1.0, 3.0, 2.0)}, "ranks is an array .*float64; expected .*integers"),
        ({"ranks": ((1, 3, 2),)}, "2 dimensions"),
        ({"cutoff": 0}, "cutoff is 0"),
    ],
)
def test_what_cannot_be_a_ranking_is_refused(change, message):
    build()
    with pytest.raises(SettingError, match=message):
        build(**change)


def test_missing_ranks_are_fine_beyond_the_cutoff():
    assert len(build(n_relevant=(5, 1), cutoff=4)) == 2
    assert len(build(ranks=(1, 8, 2), n_relevant=(5, 1), cutoff=5)) == 2


def test_from_lists():
    ranks = Ranks.from_lists([[4, 2], [1]], n_items=[5, 3])
    assert ranks.ranks.tolist() == [2, 4, 1]
    assert ranks.n_relevant.tolist() == [2, 1]
    assert ranks.n_ranked.tolist() == [5, 3]
    assert ranks.cutoff is None
    with pytest.raises(SettingError, match="n_ranked has 1 entries for 2 contexts"):
        Ranks.from_lists([[4, 2], [1]], n_items=[5])
    with pytest.raises(SettingError, match="no relevant item"):
        Ranks.from_lists([[4, 2], []], n_items=5)
    with pytest.raises(SettingError, match="no relevant item"):
        Ranks.from_lists([[]], n_items=5)
    with pytest.raises(SettingError, match="expected one dimension of integers"):
        Ranks.from_lists([[1.5]], n_items=5)
