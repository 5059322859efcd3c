"""MovieLens as it is published: what is read from tiny files."""

from __future__ import annotations

import gzip

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shortlist as sl
from data.layout_files import (
    EVENTS,
    SCHEMA,
    lines,
    movielens,
    put,
    rows,
)
from shortlist.data import layouts
from shortlist.errors import DataError, SettingError


@pytest.mark.parametrize("layout", ["movielens-dat", "movielens-csv", "movielens-100k"])
def test_movielens(tmp_path, layout):
    folder = movielens(tmp_path, layout)
    assert layouts.recognise(folder) == layout
    data = sl.datasets.read(folder)
    assert data.interactions.to_polars().schema == SCHEMA
    assert rows(data.interactions) == EVENTS
    assert data.interactions.columns.time == "time"
    assert (data.info.name, data.split, data.validation, data.candidates) == (layout, None, None, None)
    assert data.interactions.dropped == {}
    assert data.items.schema["item"] == data.contexts.schema["user"] == pl.Int64


def test_what_movielens_says_about_items_and_users(tmp_path):
    for name in ("movielens-dat", "movielens-csv", "movielens-100k"):
        (tmp_path / name).mkdir()
    dat = sl.datasets.read(movielens(tmp_path / "movielens-dat", "movielens-dat"))
    assert dat.items.to_dicts() == [
        {"item": 661, "title": "James and the Giant Peach: A::B (1996)", "genres": ["Animation", "Children's"]},
        {"item": 1193, "title": "Misérables, Les", "genres": ["Drama"]},
    ]
    assert dat.contexts.rows() == [(1, "F", 1, 10, "48067"), (2, "M", 56, 16, "70072-12")]
    assert dat.contexts.columns == ["user", "gender", "age", "occupation", "zip"]
    old = sl.datasets.read(movielens(tmp_path / "movielens-100k", "movielens-100k"))
    assert old.items.rows() == [
        (661, "James: and (1996)", "01-Jan-1996", ["Animation", "Children's"]),
        (1193, "Misérables, Les", "", []),
    ]
    assert old.contexts.rows() == [(1, 24, "M", "technician", "85711"), (2, 53, "F", "other", "94043")]
    new = sl.datasets.read(movielens(tmp_path / "movielens-csv", "movielens-csv"))
    assert new.items.rows() == [(661, 'Giant Peach, The "J"', ["Animation", "Children"]), (1193, "Les", [])]
    assert new.contexts.rows() == [(1,), (2,)]  # nothing but ids is known


def test_utf8_titles_are_read_as_such(tmp_path):
    put(tmp_path, ratings__dat=lines("::"), movies__dat="661::Amélie::Drama\n")
    assert sl.datasets.read(tmp_path).items["title"].to_list() == ["Amélie"]


def test_latin1_titles_in_a_table(tmp_path):
    put(
        movielens(tmp_path, "movielens-csv"),
        movies__csv="movieId,title,genres\n661,Misérables,Drama\n".encode("latin-1"),
    )
    assert sl.datasets.read(tmp_path).items.rows() == [(661, "Misérables", ["Drama"])]
    put(tmp_path, movies__csv=b"")
    with pytest.raises(DataError, match=r"movies.csv is empty \(0 bytes\)"):
        sl.datasets.read(tmp_path)
    put(tmp_path, movies__csv='movieId,title,genres\n661,"Les,Drama\n')
    with pytest.raises(DataError, match=r"movies.csv"):
        sl.datasets.read(tmp_path)


def test_line_ends_blank_lines_and_a_missing_last_end(tmp_path):
    put(tmp_path, ratings__dat="\n" + lines("::", "").replace("\n", "\r\n\r\n"))
    assert rows(sl.datasets.read(tmp_path).interactions) == EVENTS


def test_lines_left_out_at_the_beginning(tmp_path):
    put(tmp_path, ratings__dat="UserID::MovieID\n\n" + lines("::"))
    events = sl.datasets.read(tmp_path, on_bad="drop").interactions
    assert rows(events) == EVENTS
    assert events.dropped == {"lines that are not UserID::MovieID::Rating::Timestamp": 1}
    put(tmp_path, ratings__dat="UserID::MovieID\n\n")
    with pytest.raises(DataError, match=r"none of 1 lines is written as UserID::MovieID::Rating::Timestamp"):
        sl.datasets.read(tmp_path, on_bad="drop")
    put(tmp_path, ratings__dat="\n\n")
    with pytest.raises(DataError, match=r"it has no rows; expected lines written as UserID::MovieID::Rating::Times"):
        sl.datasets.read(tmp_path)
    put(tmp_path, ratings__dat="")
    with pytest.raises(DataError, match=r"ratings.dat is empty \(0 bytes\)"):
        sl.datasets.read(tmp_path)


def test_a_file_stands_for_its_folder(tmp_path):
    movielens(tmp_path, "movielens-dat")
    data = sl.datasets.read(tmp_path / "ratings.dat")
    assert data.items.height == 2
    put(tmp_path, ratings__dat=lines("::") + "2::1193::1::978298414\n")
    twice = sl.datasets.read(tmp_path).interactions
    assert (len(twice), twice.by_context.values.tolist()) == (4, [3.0, 5.0, 1.0])  # the latest rating counts
    put(tmp_path, ratings__dat=lines("::"))
    (tmp_path / "ratings.dat").rename(tmp_path / "mine.txt")
    assert layouts.recognise(tmp_path / "mine.txt") is None
    assert rows(sl.datasets.read(str(tmp_path / "mine.txt"), layout="movielens-dat").interactions) == EVENTS


def test_packed(tmp_path):
    text = "userId,movieId,rating,timestamp\n" + lines(",")
    put(tmp_path, ratings__csv__gz=gzip.compress(text.encode()))
    assert layouts.recognise(tmp_path) == "movielens-csv"
    assert rows(sl.datasets.read(tmp_path).interactions) == EVENTS


def test_min_rating(tmp_path):
    folder = movielens(tmp_path, "movielens-csv")
    events = sl.datasets.read(folder, min_rating=4.5).interactions
    assert rows(events) == [EVENTS[0], EVENTS[2]]
    assert events.items.ids() == [1193]
    assert events.dropped == {"events rated below 4.5": 1}
    assert sl.datasets.read(folder, min_rating=0).interactions.dropped == {}
    with pytest.raises(SettingError, match=r"min_rating=6 keeps none of 3 events; ratings are from 3 to 5"):
        sl.datasets.read(folder, min_rating=6)
    for bad in ("4", float("nan"), True):
        with pytest.raises(SettingError, match=f"min_rating is {bad!r}; expected a number"):
            sl.datasets.read(folder, min_rating=bad)
    for least in (np.float32(4.5), np.int64(4)):
        assert rows(sl.datasets.read(folder, min_rating=least).interactions) == [EVENTS[0], EVENTS[2]]


def test_min_rating_goes_by_the_latest_rating_of_a_pair(tmp_path):
    put(
        tmp_path,
        u__data="1\t7\t2\t100\n1\t7\t5\t200\n"  # better and better: counts, without the first
        "1\t8\t2\t400\n1\t8\t5\t300\n"  # worse and worse, whatever the order of the lines
        "2\t7\t4\t100\n2\t8\t1\t100\n",
    )
    events = sl.datasets.read(tmp_path, min_rating=4).interactions
    assert [row[:3] for row in rows(events)] == [(1, 7, 5.0), (2, 7, 4.0)]
    assert events.dropped == {"events rated below 4": 3, "events of pairs whose latest rating is below 4": 1}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ratings=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=20
    ),
    least=st.integers(1, 5),
)
def test_min_rating_against_the_weights_that_count(tmp_path, ratings, least):
    """The pairs that stay are those whose weight, without min_rating, is at least that; and so is every event."""
    put(tmp_path, u__data="".join("\t".join(map(str, row)) + "\n" for row in ratings))
    every = sl.datasets.read(tmp_path).interactions
    matrix, users, items = every.to_csr()
    found = matrix.tocoo()
    good = {(users[u], items[i], x) for u, i, x in zip(found.row, found.col, found.data) if x >= least}
    if not good:
        with pytest.raises(SettingError, match="keeps none"):
            sl.datasets.read(tmp_path, min_rating=least)
        return
    events = sl.datasets.read(tmp_path, min_rating=least).interactions
    matrix, users, items = events.to_csr()
    found = matrix.tocoo()
    assert {(users[u], items[i], x) for u, i, x in zip(found.row, found.col, found.data)} == good
    assert events.weights.min() >= least
    assert len(events) + sum(events.dropped.values()) == len(every)
