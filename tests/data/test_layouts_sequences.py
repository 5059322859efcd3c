"""SASRec, BERT4Rec and S3-Rec: sequences, with the split that goes with them."""

from __future__ import annotations

import json

import pytest

import shortlist as sl
from data.layout_files import (
    put,
    rows,
)
from shortlist.data import layouts
from shortlist.errors import DataError


@pytest.mark.parametrize("layout", ["sasrec", "s3rec"])
def test_sequences(tmp_path, layout):
    pairs = [(1, 10), (1, 30), (1, 20), (1, 40), (2, 30), (2, 10), (3, 20), (3, 10), (3, 50)]
    if layout == "sasrec":
        text = "".join(f"{user} {item}\n" for user, item in pairs)
    else:
        text = "1 10 30 20 40\n2 30 10\n3 20 10 50\n"
    put(tmp_path, Video__txt=text, README__txt="Words about it\n")
    assert layouts.recognise(tmp_path) == layouts.recognise(tmp_path / "Video.txt") == layout
    data = sl.datasets.read(tmp_path)
    assert rows(data.interactions) == [
        (1, 10, 0),
        (1, 30, 1),
        (1, 20, 2),
        (2, 30, 0),
        (2, 10, 1),
        (3, 20, 0),
        (3, 10, 1),
    ]
    assert data.interactions.to_polars().columns == ["user", "item", "position"]
    assert rows(data.split.truth) == [(1, 40, 3), (3, 50, 2)]  # two events are too few to ask for one
    assert data.split.history.history(1) == [10, 30, 20]
    assert rows(data.validation.train) == [(1, 10, 0), (1, 30, 1), (2, 30, 0), (2, 10, 1), (3, 20, 0)]
    assert rows(data.validation.truth) == [(1, 20, 2), (3, 10, 1)]
    assert data.interactions.items.ids() == [10, 20, 30, 40, 50]
    assert data.interactions is data.split.train
    assert [row[:2] for row in rows(data.everything)] == pairs
    assert data.everything.items == data.interactions.items
    assert "everything: 9 events, including the held-out ones" in repr(data)


def test_pairs_of_users_that_do_not_stand_together(tmp_path):
    put(tmp_path, a__txt="1 5\n2 6\n1 6\n2 5\n1 7\n2 7\n")
    assert rows(sl.datasets.read(tmp_path).split.truth) == [(1, 7, 2), (2, 7, 2)]


def test_s3rec_attributes_and_sample(tmp_path):
    put(
        tmp_path,
        Beauty__txt="1 10 30 20\n2 30 10 40\n",
        Beauty_item2attributes__json=json.dumps({"10": [3, 4], "40": [], "99": [7]}),
        Beauty_sample__txt="1 40 60\n2 20 20\n",
    )
    data = sl.datasets.read(tmp_path)
    assert data.info.name == "s3rec"
    assert data.items.rows() == [(10, [3, 4]), (40, []), (99, [7])]
    assert rows(data.candidates) == [(1, 40), (1, 60), (2, 20)]
    assert data.candidates.dropped == {"candidates named twice": 1}
    sl.evaluate_candidates(sl.Popularity().fit(data.interactions), data.split.truth, data.candidates)
    (tmp_path / "Beauty_item2attributes.json").write_text('{"10": "x"')
    with pytest.raises(DataError, match=r"Beauty_item2attributes.json cannot be read: .*expected one JSON object"):
        sl.datasets.read(tmp_path)


def test_s3rec_has_one_line_a_user(tmp_path):
    put(tmp_path, a__txt="1 10 30 20\n2 30 10 40\n1 5 6 7\n")
    assert layouts.recognise(tmp_path) is None  # three columns, as far as one can see
    with pytest.raises(DataError, match=r"1 users have several lines \(first: user 1\); expected one line per user"):
        sl.datasets.read(tmp_path / "a.txt", "s3rec")
    put(tmp_path, a__txt="1 10 30 20\n1 5 6 7\n2 30 10 40\n")  # one after the other
    with pytest.raises(DataError, match=r"1 users have several lines \(first: user 1\); expected one line per user"):
        sl.datasets.read(tmp_path / "a.txt", "s3rec")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"10": [10**30]}, "10{30} does not fit into 64 bits"),
        ({str(10**30): [1]}, "does not fit into 64 bits"),
        ([10, 30], r"it holds '\[10, 30\]'"),
        ({"10": "34"}, "item 10 has '34' instead of a list"),
        ({"10": {"3": 4}}, "item 10 has .* instead of a list"),
        ({"10": [1.5]}, "1.5 is not an integer"),
        ({"10": [True]}, "True is not an integer"),
        ({"10": [[1]]}, r"\[1\] is not an integer"),
        ({"tea": [1]}, "'tea' is not an integer"),
        ({"10": [float("inf")]}, "inf is not an integer"),
        (7, "it holds '7'"),
    ],
)
def test_attributes_of_another_shape(tmp_path, content, message):
    put(tmp_path, a__txt="1 10 30 20\n2 30 10\n", a_item2attributes__json=json.dumps(content))
    with pytest.raises(
        DataError, match=rf"a_item2attributes.json cannot be read: .*{message}.*; expected one JSON obj"
    ):
        sl.datasets.read(tmp_path / "a.txt")
    put(tmp_path, a_item2attributes__json="[" * 100_000)
    with pytest.raises(DataError, match=r"a_item2attributes.json cannot be read"):
        sl.datasets.read(tmp_path / "a.txt")


def test_lines_left_out_of_a_sample_are_counted(tmp_path):
    put(tmp_path, a__txt="1 10 30 20\n2 30 10 40\n", a_sample__txt="1 40 60\n2 x\n")
    data = sl.datasets.read(tmp_path / "a.txt", on_bad="drop")
    assert rows(data.candidates) == [(1, 40), (1, 60)]
    assert data.candidates.dropped == {"lines of a_sample.txt that are not 'user item item …'": 1}
    assert data.interactions.dropped == {}
    assert data.everything.items == data.interactions.items


def test_sequences_that_are_too_short(tmp_path):
    put(tmp_path, a__txt="1 10\n1 11\n2 10\n")
    with pytest.raises(DataError, match="no user has 3 or more events"):
        sl.datasets.read(tmp_path)


def test_other_pairs_of_numbers_are_not_taken_for_sequences(tmp_path):
    put(tmp_path, trustnetwork__txt="1\t258\n1\t401\n")
    assert layouts.recognise(tmp_path) is None
