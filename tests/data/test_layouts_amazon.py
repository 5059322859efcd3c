"""Amazon's ratings and reviews of several years."""

from __future__ import annotations

import gzip
import json

import polars as pl
import pytest

import shortlist as sl
from data.layout_files import (
    BOOK,
    GIFT,
    OTHER,
    SCHEMA,
    SOLD,
    USER,
    rows,
    second,
)
from shortlist.data import layouts
from shortlist.errors import DataError


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
            f"{path}: 2 of 2 times are before 1990 (first: 1369699200); expected milliseconds since 1970. If they "
            "are seconds, multiply them by 1000"
        )
    write(1369699200, 1355443200000)
    with pytest.raises(DataError, match=r"1 of 2 times are before 1990 .* or pass on_bad='drop' to drop those lines"):
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
        "Pass the right one, such as layout='amazon-2014'"
    )
    assert sl.datasets.read(path, "amazon-2014").interactions.contexts.ids() == [17, 18]
    assert sl.datasets.read(path, "amazon-2018").interactions.contexts.ids() == [4]


def test_one_odd_id_does_not_turn_the_columns_round(tmp_path):
    text = "".join(f"A{k:013d},B{k:09d},4.0,1369699200\n" for k in range(30))
    (tmp_path / "a.csv").write_text(text + "#oc-R11D9D7SHXIJB9,B000000001,4.0,1369699200\n")
    assert layouts.recognise(tmp_path) == "amazon-2014"
