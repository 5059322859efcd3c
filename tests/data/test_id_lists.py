"""Ids from frames and arrays of other libraries."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import shortlist as sl
from shortlist.data.id_lists import as_list, ids_of_frame, is_frame, is_table
from shortlist.data.vocabulary import Vocabulary

FRAMES = {
    "polars": pl.DataFrame,
    "lazy": pl.LazyFrame,
    "pandas": pd.DataFrame,
    "Arrow": pa.table,
    "record batch": pa.RecordBatch.from_pydict,
    "another library": lambda columns: Stream(pa.table(columns)),
}


class Stream:
    """A frame of a library that nobody knows, but for Arrow's interface."""

    columns = ()

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.fixture(params=[*FRAMES, "columns"])
def frame(request):
    return FRAMES.get(request.param, dict)


def test_one_column(frame):
    assert ids_of_frame(frame({"user": [7, 5]}), ["user"], "contexts") == [7, 5]
    assert ids_of_frame(frame({"name": ["a", "b"]}), ["user"], "contexts") == ["a", "b"]


def test_several_columns_by_name_else_by_position(frame):
    expected = [("u", 1), ("v", 2)]
    assert ids_of_frame(frame({"day": [1, 2], "user": ["u", "v"]}), ["user", "day"], "contexts") == expected
    assert ids_of_frame(frame({"who": ["u", "v"], "when": [1, 2]}), ["user", "day"], "contexts") == expected


def test_the_wrong_number_of_columns(frame):
    with pytest.raises(sl.SettingError, match="frame of contexts has the columns user, day; expected user"):
        ids_of_frame(frame({"user": ["u"], "day": [1]}), ["user"], "contexts")


def test_no_frame_at_all():
    class Odd:
        columns = ()

    with pytest.raises(sl.SettingError, match="cannot take contexts from Odd; expected a list, or a frame of polars"):
        ids_of_frame(Odd(), ["user"], "contexts")
    assert [is_table(one) for one in ({"user": [1]}, {"ann": 1, "bob": 2}, {"user": "ann"}, {}, [1])] == [
        *(True, False, False, False, False)
    ]
    with pytest.raises(sl.SettingError, match=r"differ in length: \{'a': 1, 'b': 2\}"):
        ids_of_frame({"a": [1], "b": [1, 2]}, ["a", "b"], "contexts")


def test_ids_are_plain_values_whatever_holds_them():
    held = [pd.Series([3, 4]), pa.array([3, 4]), pa.chunked_array([[3], [4]]), pl.Series([3, 4]), np.array([3, 4])]
    assert [as_list(one, "a list") for one in held] == [[3, 4]] * len(held)
    assert not any(map(is_frame, held))
    known = Vocabulary.of([3, 4])
    assert all(known.encode(one).tolist() == [0, 1] for one in held)


def test_a_vocabulary_takes_frames_and_not_the_names_of_their_columns(frame):
    if frame is dict:  # whose keys are ids here, as in {id: weight}
        return
    known = Vocabulary.of([("u", 1), ("v", 2)], name=["user", "day"])
    new = frame({"user": ["v", "w"], "day": [2, 2]})
    assert known.encode(new, unknown="mark").tolist() == [1, -1]
    assert known.extend(new).ids()[2:] == [("w", 2)]
    items = sl.Interactions.from_frame({"u": [1], "i": ["tea"]}, context="u", item="i")
    assert items.extend(items=frame({"i": ["jam"]})).items.ids() == ["tea", "jam"]


def test_features_are_found_by_frames(frame):
    films = sl.Features.from_frame({"film": [1, 2], "genre": ["Drama", "War"]}, id="film")
    rows = films.rows_for(frame({"film": [2, 9]}), unknown="missing")
    assert rows.indices.tolist() == [1, 2]
