"""Tables of ids in a mapped file: damage is noticed when it is read."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from shortlist.data.mapped_ids import IdBatch, Integers, MappedIds, Strings, frame_of
from shortlist.errors import StorageError


def strings(offsets, text=b"applepear\xc3\xa9"):
    return Strings(np.array(offsets, np.int64), np.frombuffer(text, np.uint8))


def table(*batches, frame=None):
    def read():
        assert frame is not None, "nothing should need the frame"
        return frame

    height = sum(batch.height for batch in batches)
    return MappedIds(pl.Schema({"id": pl.String(), "n": pl.Int64()}), height, list(batches), read)


BATCHES = [
    IdBatch(2, [strings([0, 5, 9]), Integers(np.array([1, 2]))]),
    IdBatch(1, [strings([9, 11]), Integers(np.array([3]))]),
]
ROWS = [("apple", 1), ("pear", 2), ("é", 3)]


@pytest.mark.parametrize("places", [[], [0], [2, 0, -1, 1, 1, -3]], ids=str)
def test_rows_of_several_batches(places):
    ids = table(*BATCHES)
    expected = [ROWS[place] for place in places]
    assert ids.rows(np.array(places, np.int64)) == expected
    assert ids.rows(np.array(places * 16, np.int64)) == expected * 16
    assert [ids.row(place) for place in places] == expected
    frame = ids.take(np.array(places, np.int64))
    assert frame.rows() == expected
    assert frame.schema == ids.schema


@pytest.mark.parametrize("place", [3, -4, 2**40])
def test_places_outside(place):
    with pytest.raises(IndexError, match="3 rows"):
        table(*BATCHES).rows(np.array([place]))


@pytest.mark.parametrize(
    "offsets", [[0, 12], [-1, 3], [5, 2], [2**62, 2**62 + 1], [-(2**63), 2**63 - 1], [9, 10]], ids=str
)
def test_damaged_strings(offsets):
    with pytest.raises(StorageError, match="the table of ids is damaged") as caught:
        strings(offsets).values(np.array([0]))
    assert caught.value.code == "model-damaged"
    with pytest.raises(StorageError, match="the table of ids is damaged"):
        strings(offsets).value(0)


def test_frames():
    frame = pl.DataFrame(ROWS, schema={"id": pl.String, "n": pl.Int64}, orient="row")
    ids = table(*BATCHES, frame=frame)
    assert frame_of(ids) is frame_of(frame) is frame
    only_polars = MappedIds(frame.schema, 3, None, lambda: frame)
    assert only_polars.rows(np.array([2, -3])) == [ROWS[2], ROWS[0]]
