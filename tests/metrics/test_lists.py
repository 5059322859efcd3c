from __future__ import annotations

import numpy as np
import pytest

from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.metrics import Lists

TRAINED = SparseRows.from_lists([np.array([0, 1]), np.array([], np.int32), np.array([1])], 4)


def test_what_it_knows():
    lists = Lists(np.array([[3, 1, 0], [2, -1, -1], [-1, -1, -1]]), TRAINED)
    assert len(lists) == 3
    assert lists.n_items == 4
    assert lists.items.dtype == np.int32
    assert lists.had.tolist() == [1, 2, 0, 0]
    assert lists.n_trained_contexts == 2
    assert lists.lengths(3).tolist() == [3, 1, 0]
    assert lists.lengths(2).tolist() == [2, 1, 0]
    assert lists.lengths(99).tolist() == [3, 1, 0]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([0, 1], "array of 1 dimensions"),
        ([[0.5, 1.0]], "type float64"),
        ([[0, 4]], "codes from 0 to 4; expected 0 to 3"),
        ([[0, -2]], "codes from -2 to 0"),
        ([[0, 1], [1, 1]], r"position 1 \(1 of 2 lists\) has an item twice"),
        ([[0, 1], [-1, 1], [-1, 2]], r"position 1 \(2 of 3 lists\) has an item after a -1"),
    ],
)
def test_what_is_no_list(items, message):
    with pytest.raises(SettingError, match=message):
        Lists(np.array(items), TRAINED)


def test_from_lists():
    lists = Lists.from_lists([[1], [], [3, 0]], trained=[[1, 0], [1]], n_items=4)
    assert lists.items.tolist() == [[1, -1], [-1, -1], [3, 0]]
    assert lists.had.tolist() == [1, 2, 0, 0]
    with pytest.raises(SettingError, match="trained has codes from 0 to 7; expected 0 to 3"):
        Lists.from_lists([[1]], trained=[[0, 7]], n_items=4)
