"""Public layouts: tiny files of each, what is read from them, and what is said about broken or doubtful ones."""

from __future__ import annotations

import datetime as dt
import gzip
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shortlist as sl
from shortlist.data import layouts
from shortlist.errors import DataError, SettingError


def put(folder, **files):
    """Files by name; `__` stands for a dot."""
    for name, text in files.items():
        data = text if isinstance(text, bytes) else text.encode()
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def rows(events):
    return events.to_polars().rows()


def second(seconds):
    return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)


RATINGS = [(1, 1193, 5.0, 978300760), (1, 661, 3.0, 978302109), (2, 1193, 4.5, 978298413)]
EVENTS = [(user, item, rating, second(stamp)) for user, item, rating, stamp in RATINGS]
SCHEMA = {"user": pl.Int64, "item": pl.Int64, "rating": pl.Float32, "time": pl.Datetime("us")}


def lines(separator, last="\n"):
    return (
        "\n".join(separator.join(f"{value:g}" if value < 100 else str(value) for value in row) for row in RATINGS)
        + last
    )


# --- MovieLens -------------------------------------------------------------------------------------------------------


def movielens(folder, layout):
    if layout == "movielens-dat":
        movies = "661::James and the Giant Peach: A::B (1996)::Animation|Children's\n1193::Misérables, Les::Drama\n"
        return put(
            folder,
            ratings__dat=lines("::"),
            movies__dat=movies.encode("latin-1"),
            users__dat="1::F::1::10::48067\n2::M::56::16::70072-12\n",
        )
    if layout == "movielens-100k":
        flags = "|".join("1" if k in (3, 4) else "0" for k in range(19))
        none = "|".join("0" * 19)
        movies = f"661|James|and (1996)|01-Jan-1996||http://x?a(b)|{flags}\n1193|Misérables, Les|||| {none}"
        return put(
            folder,
            u__data=lines("\t"),
            u__item=movies.replace("James|", "James: ").replace("| 0", "|0").encode("latin-1"),
            u__user="1|24|M|technician|85711\n2|53|F|other|94043\n",
        )
    return put(
        folder,
        ratings__csv="userId,movieId,rating,timestamp\n" + lines(","),
        movies__csv="movieId,title,genres\n"
        '661,"Giant Peach, The ""J""",Animation|Children\n1193,Les,(no genres listed)\n',
        tags__csv="userId,movieId,tag,timestamp\n",
        links__csv="movieId,imdbId,tmdbId\n1,0114709,862\n",
    )


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
    with pytest.raises(DataError, match=r"there are no rows; expected lines written as UserID::MovieID::Rating::Times"):
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
    with pytest.raises(SettingError, match=r"min_rating=6 leaves none of 3 events; ratings go from 3 to 5"):
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
        with pytest.raises(SettingError, match="leaves none"):
            sl.datasets.read(tmp_path, min_rating=least)
        return
    events = sl.datasets.read(tmp_path, min_rating=least).interactions
    matrix, users, items = events.to_csr()
    found = matrix.tocoo()
    assert {(users[u], items[i], x) for u, i, x in zip(found.row, found.col, found.data)} == good
    assert events.weights.min() >= least
    assert len(events) + sum(events.dropped.values()) == len(every)


# --- LightGCN --------------------------------------------------------------------------------------------------------


def test_lightgcn(tmp_path):
    put(
        tmp_path,
        train__txt="0 5 3 \n1 3 4\n\n2\n3 4\n",
        test__txt="0 4\n1 9 5\n2 \n7 3\n",
        item_list__txt="org_id remap_id\nB00 3\nB01 4 m.0gw\n",
        README__md="# words",
    )
    assert layouts.recognise(tmp_path) == "lightgcn"
    data = sl.datasets.read(tmp_path)
    assert rows(data.interactions) == [(0, 5), (0, 3), (1, 3), (1, 4), (3, 4)]
    assert data.interactions is data.split.train
    assert data.interactions.items.ids() == [3, 4, 5, 9]  # 9 is known from the test only
    assert sorted(rows(data.split.truth)) == [(0, 4), (1, 5), (1, 9)]
    assert data.split.dropped["test events of contexts without history"] == 1
    assert data.split.exclude_seen
    assert data.validation is None
    assert (data.items.columns, data.items.rows()) == (["item", "original"], [(3, "B00"), (4, "B01")])
    assert data.contexts.rows() == [(0,), (1,), (3,)]
    assert "asked for" in repr(data)
    assert sorted(rows(data.everything)) == sorted([*rows(data.interactions), (0, 4), (1, 5), (1, 9), (7, 3)])
    assert data.everything.items == data.interactions.items
    assert "everything: 9 events" in repr(data)
    assert rows(sl.datasets.read(tmp_path / "test.txt").interactions) == rows(data.interactions)


@pytest.mark.parametrize("inside", [True, False])
def test_lightgcn_validation(tmp_path, inside):
    """valid.txt may be a part of train.txt or stand beside it."""
    train = "0 1 2 3\n1 1 2\n" if inside else "0 1 3\n1 1\n"
    put(tmp_path, train__txt=train, valid__txt="0 2\n1 2\n", test__txt="0 4\n1 3\n")
    data = sl.datasets.read(tmp_path)
    assert sorted(rows(data.interactions)) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]
    assert sorted(rows(data.validation.train)) == [(0, 1), (0, 3), (1, 1)]
    assert rows(data.validation.truth) == [(0, 2), (1, 2)]
    assert rows(data.split.truth) == [(0, 4), (1, 3)]
    assert data.validation.train.items == data.split.train.items
    assert sorted(rows(data.everything)) == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (1, 3)]  # each once


def test_fitting_the_interactions_does_not_leak(tmp_path):
    """`evaluate` warns (an error here) where a model may know the answers."""
    rng = np.random.default_rng(0)
    histories = [list(map(str, rng.permutation(12)[:7])) for _ in range(20)]
    put(
        tmp_path,
        train__txt="".join(f"{u} {' '.join(items[:5])}\n" for u, items in enumerate(histories)),
        test__txt="".join(f"{u} {' '.join(items[5:])}\n" for u, items in enumerate(histories)),
    )
    data = sl.datasets.read(tmp_path)
    result = sl.evaluate(sl.Popularity().fit(data.interactions), data.split, ["recall@3"])
    assert 0 <= result["recall@3"] <= 1


# --- NCF -------------------------------------------------------------------------------------------------------------


def ncf(folder, name="ml-1m"):
    put(
        folder,
        **{
            f"{name}.train.rating": "0\t1\t5\t100\n0\t2\t3\t90\n1\t2\t4\t80\n1\t3\t1\t70\n",
            f"{name}.test.rating": "0\t3\t4\t110\n1\t1\t2\t120\n",
            f"{name}.test.negative": "(0,3)\t4\t5\t3\n(1,1)\t4\t0\t4\n",
        },
    )
    return folder


def test_ncf(tmp_path):
    assert layouts.recognise(ncf(tmp_path)) == "ncf"
    data = sl.datasets.read(tmp_path)
    assert rows(data.interactions) == [
        (0, 1, 5.0, second(100)), (0, 2, 3.0, second(90)), (1, 2, 4.0, second(80)), (1, 3, 1.0, second(70))
    ]  # fmt: skip
    assert rows(data.split.truth) == [(0, 3, 4.0, second(110)), (1, 1, 2.0, second(120))]
    assert sorted(data.interactions.items.ids()) == [0, 1, 2, 3, 4, 5]
    assert rows(data.candidates) == [(0, 4), (0, 5), (1, 4), (1, 0)]
    assert data.candidates.dropped == {"candidates that are the true item": 1, "candidates named twice": 1}
    model = sl.Popularity().fit(data.interactions)
    result = sl.evaluate_candidates(model, data.split.truth, data.candidates, ["hit@1"])
    assert result["hit@1"] == 1.0  # nobody has had a candidate
    sl.evaluate(model, data.split)
    assert data.interactions is data.split.train
    assert rows(data.everything) == rows(data.interactions) + rows(data.split.truth)
    assert data.everything.items == data.interactions.items


def test_ncf_without_timestamps(tmp_path):
    ncf(tmp_path)
    for name in ("ml-1m.train.rating", "ml-1m.test.rating"):
        lines = (tmp_path / name).read_text().splitlines()
        (tmp_path / name).write_text("\n" + "".join(line.rpartition("\t")[0] + "\n" for line in lines))
    data = sl.datasets.read(tmp_path)
    assert rows(data.interactions) == [(0, 1, 5.0), (0, 2, 3.0), (1, 2, 4.0), (1, 3, 1.0)]
    assert data.interactions.times is None
    assert rows(data.everything) == [*rows(data.interactions), (0, 3, 4.0), (1, 1, 2.0)]
    assert rows(data.candidates) == [(0, 4), (0, 5), (1, 4), (1, 0)]
    put(tmp_path, **{"ml-1m.train.rating": "0\t1\t5\n0\t2\n1\t1\t1\n"})
    with pytest.raises(DataError, match=r"1 of 3 lines are not written as user, item and rating with tabs"):
        sl.datasets.read(tmp_path)


def test_ncf_lines_left_out_of_the_candidates_are_counted(tmp_path):
    put(ncf(tmp_path), **{"ml-1m.test.negative": "(0,3)\t4\t5\n(1,1)\t4\tx\n"})
    data = sl.datasets.read(tmp_path, on_bad="drop")
    assert rows(data.candidates) == [(0, 4), (0, 5)]
    assert data.candidates.dropped == {
        "lines of ml-1m.test.negative that are not '(user,item)', a tab and items with tabs between them": 1
    }


def test_ncf_with_several_test_items_of_a_user(tmp_path):
    put(
        ncf(tmp_path),
        **{
            "ml-1m.test.rating": "0\t3\t4\t110\n0\t4\t4\t111\n1\t1\t2\t120\n",
            "ml-1m.test.negative": "(0,3)\t5\t6\n(0,4)\t5\t7\n(1,1)\t4\t0\n",
        },
    )
    with pytest.raises(DataError, match=r"1 users such as 0 have several lines; expected one line a user; without ml-"):
        sl.datasets.read(tmp_path)
    (tmp_path / "ml-1m.test.negative").unlink()
    data = sl.datasets.read(tmp_path)
    assert [row[:2] for row in rows(data.split.truth)] == [(0, 3), (0, 4), (1, 1)]


def test_ncf_min_rating_goes_for_both_parts(tmp_path):
    data = sl.datasets.read(ncf(tmp_path), min_rating=3)
    assert [row[:2] for row in rows(data.interactions)] == [(0, 1), (0, 2), (1, 2)]
    assert data.interactions.dropped == {"events rated below 3": 1}
    assert [row[:2] for row in rows(data.split.truth)] == [(0, 3)]
    assert data.split.dropped["test events rated below 3"] == 1
    assert rows(data.candidates) == [(0, 4), (0, 5)]
    assert data.candidates.dropped["candidates of users that are not asked for"] == 3
    assert [row[:2] for row in rows(data.everything)] == [(0, 1), (0, 2), (1, 2), (0, 3)]
    assert data.everything.dropped == {"events rated below 3": 2}


def test_several_ncf_sets_in_a_folder(tmp_path):
    ncf(ncf(tmp_path, "ml-1m"), "pinterest-20")
    with pytest.raises(DataError) as caught:
        sl.datasets.read(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} holds several data sets in the layout 'ncf': ml-1m.train.rating, pinterest-20.train.rating; "
        f"pass the path of one of them, such as {tmp_path / 'ml-1m.train.rating'}"
    )
    for part in ("train.rating", "test.rating", "test.negative"):
        assert len(sl.datasets.read(tmp_path / f"pinterest-20.{part}").candidates) == 4


def test_ncf_parts_that_do_not_agree(tmp_path):
    ncf(tmp_path)
    put(tmp_path, **{"ml-1m.test.negative": "(0,3)\t4\t5\n(1,2)\t4\t0\n"})
    with pytest.raises(DataError, match=r"1 of 2 are not among the 2 there, such as \(1, 2\)"):
        sl.datasets.read(tmp_path)
    (tmp_path / "ml-1m.test.rating").unlink()
    with pytest.raises(DataError, match=r"there is no ml-1m.test.rating beside ml-1m.train.rating"):
        sl.datasets.read(tmp_path)


# --- sequences -------------------------------------------------------------------------------------------------------


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
    assert "everything: 9 events, those that the split asks for among them" in repr(data)


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
    with pytest.raises(DataError, match=r"1 users such as 1 have several lines; expected one line a user"):
        sl.datasets.read(tmp_path / "a.txt", "s3rec")
    put(tmp_path, a__txt="1 10 30 20\n1 5 6 7\n2 30 10 40\n")  # one after the other
    with pytest.raises(DataError, match=r"1 users such as 1 have several lines; expected one line a user"):
        sl.datasets.read(tmp_path / "a.txt", "s3rec")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"10": [10**30]}, "10{30} does not fit into 64 bits"),
        ({str(10**30): [1]}, "does not fit into 64 bits"),
        ([10, 30], r"it holds '\[10, 30\]'"),
        ({"10": "34"}, "item 10 has '34' and no list"),
        ({"10": {"3": 4}}, "item 10 has .* and no list"),
        ({"10": [1.5]}, "1.5 is not a whole number"),
        ({"10": [True]}, "True is not a whole number"),
        ({"10": [[1]]}, r"\[1\] is not a whole number"),
        ({"tea": [1]}, "'tea' is not a whole number"),
        ({"10": [float("inf")]}, "inf is not a whole number"),
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
    with pytest.raises(DataError, match="no user has 3 events or more"):
        sl.datasets.read(tmp_path)


def test_other_pairs_of_numbers_are_not_taken_for_sequences(tmp_path):
    put(tmp_path, trustnetwork__txt="1\t258\n1\t401\n")
    assert layouts.recognise(tmp_path) is None


# --- Amazon ----------------------------------------------------------------------------------------------------------

USER, BOOK = "A39HTATAQ9V7YF", "0205616461"
OTHER, GIFT = "AKJHHD5VEH7VG", "B001GXRQW0"
SOLD = [(USER, BOOK, 5.0, second(1369699200)), (OTHER, GIFT, 3.0, second(1355443200))]


@pytest.mark.parametrize(
    ("name", "text", "layout"),
    [
        ("ratings_Beauty.csv", f"{USER},{BOOK},5.0,1369699200\n{OTHER},{GIFT},3.0,1355443200\n", "amazon-2014"),
        ("Gift_Cards.csv", f"{BOOK},{USER},5.0,1369699200\n{GIFT},{OTHER},3.0,1355443200\n", "amazon-2018"),
        (
            "Gift_Cards.csv",
            f"user_id,parent_asin,rating,timestamp\n{USER},{BOOK},5.0,1369699200000\n{OTHER},{GIFT},3.0,1355443200000\n",
            "amazon-2023",
        ),
        (
            "All_Beauty.train.csv",
            "user_id,parent_asin,rating,timestamp,history\n"
            f"{USER},{BOOK},5.0,1369699200000,\n{OTHER},{GIFT},3.0,1355443200000,A B\n",
            "amazon-2023",
        ),
        (
            "reviews_Beauty_5.json",
            json.dumps({"reviewerID": USER, "asin": BOOK, "overall": 5.0, "unixReviewTime": 1369699200, "helpful": [0]})
            + "\n\n"
            + json.dumps({"asin": GIFT, "reviewerID": OTHER, "overall": 3, "unixReviewTime": 1355443200, "image": []})
            + "\n",
            "amazon-reviews",
        ),
        (
            "Gift_Cards.jsonl",
            json.dumps({"rating": 5.0, "asin": "x", "parent_asin": BOOK, "user_id": USER, "timestamp": 1369699200000})
            + "\n"
            + json.dumps({"rating": 3, "asin": "", "parent_asin": GIFT, "user_id": OTHER, "timestamp": 1355443200000}),
            "amazon-reviews",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_amazon(tmp_path, name, text, layout, packed):
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert layouts.recognise(path) == layouts.recognise(tmp_path) == layout
    events = sl.datasets.read(path).interactions
    assert events.to_polars().schema == SCHEMA | {"user": pl.String, "item": pl.String}
    assert rows(events) == SOLD
    assert rows(sl.datasets.read(tmp_path, min_rating=4).interactions) == SOLD[:1]


@pytest.mark.parametrize("packed", [False, True])
def test_reviews_behind_a_mark(tmp_path, packed):
    review = {"reviewerID": USER, "asin": BOOK, "overall": 5.0, "unixReviewTime": 1369699200}
    text = b"\xef\xbb\xbf" + json.dumps(review).encode() + b"\n"
    path = tmp_path / "reviews.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert rows(sl.datasets.read(path).interactions) == SOLD[:1]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_seconds_where_milliseconds_are_expected(tmp_path, kind):
    def write(*stamps):
        keys = ("user_id", "parent_asin", "rating", "timestamp")
        table = [dict(zip(keys, (USER, f"B{k}", 5.0, stamp))) for k, stamp in enumerate(stamps)]
        frame = pl.DataFrame(table)
        frame.write_csv(path) if kind == "csv" else frame.write_ndjson(path)

    path = tmp_path / f"Gift_Cards.{kind}"
    write(1369699200, 1355443200)
    for on_bad in ("raise", "drop"):
        with pytest.raises(DataError) as caught:
            sl.datasets.read(path, on_bad=on_bad)
        assert str(caught.value) == (
            f"{path}: 2 of 2 times are before 1990 (first: 1369699200); expected milliseconds since 1970. Where they "
            "are seconds, multiply them by 1000"
        )
    write(1369699200, 1355443200000)
    with pytest.raises(DataError, match=r"1 of 2 times are before 1990 .* or pass on_bad='drop' to leave those lines"):
        sl.datasets.read(path)
    events = sl.datasets.read(path, on_bad="drop").interactions
    assert (rows(events), events.dropped) == ([(USER, "B1", 5.0, second(1355443200))], {"times before 1990": 1})


def test_an_order_of_columns_that_cannot_be_told(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("17,4,5.0,1369699200\n18,4,3.0,1355443200\n")
    with pytest.raises(DataError) as caught:
        layouts.recognise(path)
    assert str(caught.value) == (
        f"{path} fits several layouts: 'amazon-2014' (ratings.csv); 'amazon-2018' (ratings.csv). "
        "Say which one it is: layout='amazon-2014'"
    )
    assert sl.datasets.read(path, "amazon-2014").interactions.contexts.ids() == [17, 18]
    assert sl.datasets.read(path, "amazon-2018").interactions.contexts.ids() == [4]


def test_one_odd_id_does_not_turn_the_columns_round(tmp_path):
    text = "".join(f"A{k:013d},B{k:09d},4.0,1369699200\n" for k in range(30))
    (tmp_path / "a.csv").write_text(text + "#oc-R11D9D7SHXIJB9,B000000001,4.0,1369699200\n")
    assert layouts.recognise(tmp_path) == "amazon-2014"


# --- what fits, and what does not ------------------------------------------------------------------------------------


def test_several_layouts_in_a_folder(tmp_path):
    movielens(tmp_path, "movielens-dat")
    put(tmp_path, train__txt="0 1 2\n1 2\n", test__txt="0 3\n1 1\n")
    with pytest.raises(DataError) as caught:
        layouts.recognise(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} fits several layouts: 'movielens-dat' (ratings.dat); 'lightgcn' (train.txt). "
        "Say which one it is: layout='movielens-dat'"
    )
    assert rows(sl.datasets.read(tmp_path, layout="lightgcn").interactions) == [(0, 1), (0, 2), (1, 2)]
    assert rows(sl.datasets.read(tmp_path, layout="movielens-dat").interactions) == EVENTS


def test_nothing_is_recognised(tmp_path):
    put(tmp_path, events__csv="user,item\n1,2\n", notes__txt="words", x__json="[1]", broken__csv=b"\xff\xfe", e__csv="",
        packed__csv__gz=b"\x1f\x8b\x00", one__json=b"\xff\xfe{", train__txt="0 1 2\n")  # fmt: skip
    assert layouts.recognise(tmp_path) is None
    assert layouts.recognise(tmp_path / "nowhere") is None
    with pytest.raises(
        DataError, match=r"it holds .*events.csv.* and 2 more, which is in no layout that is known \(movi"
    ):
        sl.datasets.read(tmp_path)
    with pytest.raises(DataError, match=r"events.csv is in no layout .*layout=, or read files .* Interactions.read"):
        sl.datasets.read(tmp_path / "events.csv")
    with pytest.raises(DataError, match=r"no such file or folder: .*event\.csv; did you mean events.csv\?"):
        sl.datasets.read(tmp_path / "event.csv")
    with pytest.raises(
        DataError, match=r"folder .* pass the path of the file with the events and say with layout= which one it is in,"
    ):
        sl.datasets.read(tmp_path)
    with pytest.raises(
        DataError, match=r"is not in the layout 'ncf': NCF: NAME.train.rating.*; it holds .* pass the path of that file"
    ):
        sl.datasets.read(tmp_path, layout="ncf")
    with pytest.raises(
        SettingError, match=r"no layout is called 'sasrek'; did you mean 'sasrec'\?; known: movielens-dat"
    ):
        sl.datasets.read(tmp_path, layout="sasrek")
    with pytest.raises(
        DataError, match=r"no column 'userId'; columns found: 'user', 'item'; expected the header userId"
    ):
        sl.datasets.read(tmp_path / "events.csv", layout="movielens-csv")
    with pytest.raises(DataError, match=r"there is no test.txt beside train.txt"):
        sl.datasets.read(tmp_path / "train.txt", layout="lightgcn")
    with pytest.raises(
        DataError, match=r"the first line is not a review; expected a JSON object with reviewerID, asin"
    ):
        sl.datasets.read(tmp_path / "x.json", layout="amazon-reviews")


def test_every_layout_is_listed_with_a_line():
    assert sl.datasets.layouts() == layouts.LAYOUTS
    assert all(text and "\n" not in text for text in layouts.LAYOUTS.values())
    with pytest.raises(SettingError, match=r"min_rating=4: files in the layout 'sasrec' hold no ratings; leave it out"):
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


# --- damaged lines ---------------------------------------------------------------------------------------------------


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
            "lines written as UserID::MovieID::Rating::Timestamp: column 'user': 1 of 4 rows are null or not whole "
            "numbers (first: line 4 '3:x:7::5::978300760')",
        ),
        (
            "movielens-dat", "ratings.dat", "3::7b::5::978300760",
            "column 'item': 1 of 4 rows are null or not whole numbers (first: line 4 '3::7b::5::978300760')",
        ),
        (
            "movielens-csv", "ratings.csv", "3,7,high,978300760",
            "column 'rating': 1 of 4 rows are null or not a number (first: line 5 '3,7,high,978300760')",
        ),
        (
            "movielens-100k", "u.data", "3\t7\t5\tyesterday",
            "column 'time': 1 of 4 rows are null or cannot be read as a time (first: line 4 '3\\t7\\t5\\tyesterday')",
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
            "column 'movieId': 1 of 3 rows are null or not whole numbers (first: 'abc', the title being 'T')",
        ),
        (
            "movielens-csv", "movies.csv", f"{10**30},T,D",
            "column 'movieId': 1 of 3 rows are null or not whole numbers (first: '1000000",
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
        f"{tmp_path / 'train.txt'}: 4 of 6 lines are not written as 'user item item …' with whole numbers "
        "(first: line 2 '1 2 x3', line 3 '2 -1', line 4 '3 1 12345678901234567890'). "
        "Mend the file, or pass on_bad='drop' to leave those lines out"
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
    with pytest.raises(DataError, match=r"column 'rating': 1 of 2 rows are null or not a number \(first: line 3 '\{"):
        sl.datasets.read(path)
    assert len(sl.datasets.read(path, on_bad="drop").interactions) == 1
    path.write_text(f"{good}\n" + good[:-9] + "\n")
    with pytest.raises(DataError, match=r"line 2 is not a JSON object: '\{.*…'; expected one object a line"):
        sl.datasets.read(path)


def test_times_far_off_are_none(tmp_path):
    put(tmp_path, u__data="1\t2\t3\t978300760\n1\t3\t3\t978300760000\n1\t4\t3\t-978300760\n")
    with pytest.raises(DataError, match=r"column 'time': 1 of 3 rows .*\(first: line 2 '1\\t3\\t3\\t978300760000'\)"):
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
    with pytest.raises(DataError, match=r"a.txt: there are no items in its [0-3] lines; expected lines written as"):
        sl.datasets.read(tmp_path / "a.txt", "s3rec")
