"""Rows from a file, checked when they are used."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.data.unchecked_rows import UncheckedRows
from shortlist.errors import StorageError


def arrays(indptr=(0, 2, 2, 3), indices=(0, 4, 1), values=None):
    made = {"seen.indptr": np.array(indptr, np.int64), "seen.indices": np.array(indices, np.int32)}
    return made if values is None else made | {"seen.values": np.array(values, np.float32)}


def test_sound_rows():
    unchecked = UncheckedRows.of(arrays(values=[1, 2, 3]), 3, 5)
    taken = unchecked.take(np.array([2, 0, 1]))
    assert taken.indices.tolist() == [1, 0, 4]
    assert taken.values.tolist() == [3, 1, 2]
    assert unchecked.checked() is unchecked.rows


@pytest.mark.parametrize(
    ("wrong", "row"),
    [
        ({"indptr": (0, 2, 1, 3)}, 1),
        ({"indptr": (0, 2, 2, 4)}, 2),
        ({"indptr": (-1, 2, 2, 3)}, 0),
        ({"indptr": (0, 2**62, -(2**62), 3)}, 1),
        ({"indices": (0, 5, 1)}, 0),
        ({"indices": (0, -1, 1)}, 0),
        ({"indices": (4, 0, 1)}, 0),
        ({"values": (1, np.nan, 1)}, 0),
    ],
    ids=str,
)
def test_damaged_rows(wrong, row):
    unchecked = UncheckedRows.of(arrays(**wrong), 3, 5)
    with pytest.raises(StorageError, match="do not fit its contexts and items"):
        unchecked.checked()
    with pytest.raises(StorageError, match="do not fit its contexts and items"):
        unchecked.take(np.array([row]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"seen.indptr": np.zeros(3, np.int64)},
        {"seen.indptr": np.zeros(4, np.int32)},
        {"seen.indices": np.zeros((3, 1), np.int32)},
        {"seen.indices": np.zeros(3, np.int64)},
        {"seen.values": np.zeros(2, np.float32)},
        {"seen.values": np.zeros(3, np.float64)},
    ],
    ids=str,
)
def test_types_and_shapes_are_checked_at_once(wrong):
    with pytest.raises(StorageError, match="do not fit its contexts and items"):
        UncheckedRows.of(arrays() | wrong, 3, 5)
