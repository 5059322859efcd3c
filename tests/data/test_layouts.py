"""Public layouts: what is said about broken or doubtful files."""

from __future__ import annotations

import json

import pytest

import shortlist as sl
from data.layout_files import (
    BOOK,
    EVENTS,
    USER,
    movielens,
    put,
    rows,
    second,
)
from shortlist.data import layouts
from shortlist.errors import DataError, SettingError


def test_several_layouts_in_a_folder(tmp_path):
    movielens(tmp_path, "movielens-dat")
    put(tmp_path, train__txt="0 1 2\n1 2\n", test__txt="0 3\n1 1\n")
    with pytest.raises(DataError) as caught:
        layouts.recognise(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} fits several layouts: 'movielens-dat' (ratings.dat); 'lightgcn' (train.txt). "
        "Pass the right one, such as layout='movielens-dat'"
    )
    assert rows(sl.datasets.read(tmp_path, layout="lightgcn").interactions) == [(0, 1), (0, 2), (1, 2)]
    assert rows(sl.datasets.read(tmp_path, layout="movielens-dat").interactions) == EVENTS


def test_nothing_is_recognised(tmp_path):
    put(tmp_path, events__csv="user,item\n1,2\n", notes__txt="words", x__json="[1]", broken__csv=b"\xff\xfe", e__csv="",
        packed__csv__gz=b"\x1f\x8b\x00", one__json=b"\xff\xfe{", train__txt="0 1 2\n")  # fmt: skip
    assert layouts.recognise(tmp_path) is None
    assert layouts.recognise(tmp_path / "nowhere") is None
    with pytest.raises(DataError, match=r"\(it holds .*events.csv.* and 2 more\) is not in a known layout \(movi"):
        sl.datasets.read(tmp_path)
    with pytest.raises(DataError, match=r"events.csv is not in a known layout .*layout=, or use Interactions.read if"):
        sl.datasets.read(tmp_path / "events.csv")
    with pytest.raises(DataError, match=r"no such file or folder: .*event\.csv; did you mean events.csv\?"):
        sl.datasets.read(tmp_path / "event.csv")
    with pytest.raises(DataError, match=r"folder .* pass the path of the file with the events and its layout=,"):
        sl.datasets.read(tmp_path)
    with pytest.raises(
        DataError,
        match=r"is not in the layout 'ncf': NCF: NAME.train.rating.*; it holds .* pass its path",
    ):
        sl.datasets.read(tmp_path, layout="ncf")
    with pytest.raises(SettingError, match=r"unknown layout 'sasrek'; did you mean 'sasrec'\?; known: movielens-dat"):
        sl.datasets.read(tmp_path, layout="sasrek")
    with pytest.raises(
        DataError, match=r"no column 'userId'; columns found: 'user', 'item'; expected the header userId"
    ):
        sl.datasets.read(tmp_path / "events.csv", layout="movielens-csv")
    with pytest.raises(DataError, match=r"no test.txt beside train.txt"):
        sl.datasets.read(tmp_path / "train.txt", layout="lightgcn")
    with pytest.raises(
        DataError, match=r"the first line is not a review; expected a JSON object with reviewerID, asin"
    ):
        sl.datasets.read(tmp_path / "x.json", layout="amazon-reviews")


def test_every_layout_is_listed_with_a_line():
    assert sl.datasets.layouts() == layouts.LAYOUTS
    assert all(text and "\n" not in text for text in layouts.LAYOUTS.values())
    with pytest.raises(SettingError, match=r"min_rating=4: files in the layout 'sasrec' have no ratings; omit it"):
        sl.datasets.read(__file__, layout="sasrec", min_rating=4)


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_arguments_are_checked_in_every_layout(layout):
    with pytest.raises(SettingError, match="on_bad is 'skip'; expected one of 'raise', 'drop'"):
        sl.datasets.read(__file__, layout, on_bad="skip")
    with pytest.raises(SettingError, match="path is None; expected the path of a folder or a file"):
        sl.datasets.read(None, layout)


def test_interactions_read_takes_no_notice(tmp_path):
    movielens(tmp_path, "movielens-csv")
    events = sl.Interactions.read(tmp_path / "ratings.csv", context="userId", item="movieId", weight="rating")
    assert [row[:2] for row in rows(events)] == [row[:2] for row in EVENTS]


@pytest.mark.parametrize(
    ("layout", "name", "line", "message"),
    [
        (
            "movielens-dat", "ratings.dat", "3::7::5",
            "1 of 4 lines are not written as UserID::MovieID::Rating::Timestamp "
            "(line 4 of ratings.dat: '3::7::5')",
        ),
        (
            "movielens-dat", "ratings.dat", "3:x:7::5::978300760",
            "lines written as UserID::MovieID::Rating::Timestamp: column 'user' is null or not a whole "
            "number in 1 of 4 rows (first: line 4 '3:x:7::5::978300760')",
        ),
        (
            "movielens-dat", "ratings.dat", "3::7b::5::978300760",
            "column 'item' is null or not a whole number in 1 of 4 rows (first: line 4 '3::7b::5::978300760')",
        ),
        (
            "movielens-csv", "ratings.csv", "3,7,high,978300760",
            "column 'rating' is null or not a number in 1 of 4 rows (first: line 5 '3,7,high,978300760')",
        ),
        (
            "movielens-100k", "u.data", "3\t7\t5\tyesterday",
            "column 'time' is null or not a time in 1 of 4 rows (first: line 4 '3\\t7\\t5\\tyesterday')",
        ),
        (
            "movielens-dat", "movies.dat", "1193:Les",
            "1 of 3 lines are not written as MovieID::Title::Genres (first: line 3 '1193:Les')",
        ),
        (
            "movielens-dat", "movies.dat", f"{10**30}::Les::Drama",
            f"1 of 3 lines are not written as MovieID::Title::Genres (first: line 3 '{10**30}::Les::Drama')",
        ),
        (
            "movielens-dat", "users.dat", f"3::F::{10**30}::1::2",
            "1 of 3 lines are not written as UserID::Gender::Age::Occupation::Zip-code (first: line 3 '3::F::1000",
        ),
        (
            "movielens-csv", "movies.csv", "abc,T,D",
            "column 'movieId' is null or not an integer in 1 of 3 rows (first: 'abc' with title 'T'); fix the file",
        ),
        (
            "movielens-csv", "movies.csv", f"{10**30},T,D",
            "column 'movieId' is null or not an integer in 1 of 3 rows (first: '1000000",
        ),
        (
            "movielens-100k", "u.user", "3|x|M",
            "1 of 3 lines are not written as id|age|gender|occupation|zip code (first: line 3 '3|x|M')",
        ),
    ],
)  # fmt: skip
def test_damaged_tables(tmp_path, layout, name, line, message):
    movielens(tmp_path, layout)
    text = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(text + line.encode() + b"\n")
    with pytest.raises(DataError) as caught:
        sl.datasets.read(tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert message in str(caught.value)
    if "ratings" in name or name == "u.data":
        assert "on_bad='drop'" in str(caught.value)
        data = sl.datasets.read(tmp_path, on_bad="drop").interactions
        assert rows(data) == EVENTS
        assert sum(data.dropped.values()) == 1


def test_damaged_lists(tmp_path):
    put(tmp_path, train__txt="0 1 2\n1 2 x3\n2 -1\n3 1 12345678901234567890\n4 1.5\n5 2\n", test__txt="0 3\n5 1\n")
    with pytest.raises(DataError) as caught:
        sl.datasets.read(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'train.txt'}: 4 of 6 lines are not written as 'user item item …' with integers "
        "(first: line 2 '1 2 x3', line 3 '2 -1', line 4 '3 1 12345678901234567890'). "
        "Fix the file, or pass on_bad='drop' to drop those lines"
    )
    data = sl.datasets.read(tmp_path, on_bad="drop")
    assert rows(data.interactions) == [(0, 1), (0, 2), (5, 2)]
    assert data.interactions.dropped == {"lines of train.txt that are not 'user item item …'": 4}


def test_damaged_pairs(tmp_path):
    put(tmp_path, a__txt="1 10\n1 11\n1 12\n1 13 14\n2\n1 14\n")
    with pytest.raises(
        DataError, match=r"2 of 6 lines are not written as 'user item' .*\(first: line 4 '1 13 14', line 5 '2'"
    ):
        sl.datasets.read(tmp_path / "a.txt", "sasrec")
    data = sl.datasets.read(tmp_path / "a.txt", "sasrec", on_bad="drop")
    assert rows(data.split.truth) == [(1, 14, 3)]
    assert data.interactions.dropped == {"lines of a.txt that are not 'user item'": 2}
    assert data.everything.dropped == data.interactions.dropped


def test_damaged_reviews(tmp_path):
    good = json.dumps({"reviewerID": USER, "asin": BOOK, "overall": 5.0, "unixReviewTime": 1369699200})
    path = tmp_path / "reviews.json"
    path.write_text(f"{good}\n\n" + good.replace("5.0", '"five"') + "\n")
    with pytest.raises(DataError, match=r"column 'rating' is null or not a number in 1 of 2 rows \(first: line 3 '\{"):
        sl.datasets.read(path)
    assert len(sl.datasets.read(path, on_bad="drop").interactions) == 1
    path.write_text(f"{good}\n" + good[:-9] + "\n")
    with pytest.raises(DataError, match=r"line 2 is not a JSON object: '\{.*…'; expected one object per line"):
        sl.datasets.read(path)


def test_times_far_off_are_none(tmp_path):
    put(tmp_path, u__data="1\t2\t3\t978300760\n1\t3\t3\t978300760000\n1\t4\t3\t-978300760\n")
    with pytest.raises(DataError, match=r"'time' is .* in 1 of 3 rows \(first: line 2 '1\\t3\\t3\\t978300760000'\)"):
        sl.datasets.read(tmp_path)
    events = sl.datasets.read(tmp_path, on_bad="drop").interactions
    assert [row[3] for row in rows(events)] == [second(978300760), second(-978300760)]


def test_files_of_another_kind_in_a_layout(tmp_path):
    put(tmp_path, train__txt="0 1\n", test__txt="")
    with pytest.raises(DataError, match=r"test.txt is empty \(0 bytes\)"):
        sl.datasets.read(tmp_path)
    put(tmp_path, test__txt="0 2\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"test.txt is UTF-16 text; convert it"):
        sl.datasets.read(tmp_path)


@pytest.mark.parametrize("text", ["\n\n", "1\n2 \n"])
def test_lists_without_items(tmp_path, text):
    put(tmp_path, a__txt=text)
    with pytest.raises(DataError, match=r"a.txt has no items in its [0-3] lines; expected lines written as"):
        sl.datasets.read(tmp_path / "a.txt", "s3rec")
