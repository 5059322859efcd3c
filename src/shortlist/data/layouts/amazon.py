"""Amazon reviews in the layouts of their three releases: ratings as CSV, reviews as JSON lines."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from shortlist._wording import Message
from shortlist.data.encode import OnBad, build
from shortlist.data.event_files import describe_json_rows, refuse_bad_json, scan_json
from shortlist.data.interactions import Interactions
from shortlist.data.layouts.headers import HEADER_2023, REVIEWS, review_names
from shortlist.data.layouts.published import ITEM, RATING, TIME, USER, PublishedData
from shortlist.data.layouts.ratings import COLUMNS, PARTS, at_least, moments, read_ratings
from shortlist.data.sniff import refuse_other_content
from shortlist.errors import DataError

_YEAR_1990 = 631_152_000 * 1_000_000  # in microseconds


def read_2014(path: Path, min_rating: float | None, on_bad: OnBad) -> PublishedData:
    """Read `user,item,rating,timestamp` lines without a header."""
    events = read_ratings(path, ",", "user,item,rating,timestamp", on_bad=on_bad, whole=False)
    return PublishedData(at_least(events, min_rating))


def read_2018(path: Path, min_rating: float | None, on_bad: OnBad) -> PublishedData:
    """Read `item,user,rating,timestamp` lines without a header."""
    names = (ITEM, USER, RATING, TIME)
    events = read_ratings(path, ",", "item,user,rating,timestamp", on_bad=on_bad, names=names, whole=False)
    return PublishedData(at_least(events, min_rating))


def read_2023(path: Path, min_rating: float | None, on_bad: OnBad) -> PublishedData:
    """Read a CSV file with the header `user_id,parent_asin,rating,timestamp`; times are in milliseconds."""
    events = read_ratings(path, ",", ",".join(HEADER_2023), on_bad=on_bad, header=HEADER_2023, whole=False, unit="ms")
    events = _in_milliseconds(events, path, on_bad)
    return PublishedData(at_least(events, min_rating))


def read_reviews(path: Path, min_rating: float | None, on_bad: OnBad) -> PublishedData:
    """Read the user, item, rating and time of reviews in JSON lines."""
    refuse_other_content(path, None)
    names = review_names(path)
    if names is None:
        known = " or ".join(", ".join(names) for names in REVIEWS)
        raise DataError(
            f"{path}: the first line is not a review; expected a JSON object with {known}", code="unreadable-file"
        )
    schema = dict(zip(names, (pl.String, pl.String, pl.Float64, pl.Int64)))
    # A value of another type becomes null, and so a bad row.
    reviews = scan_json([path], names, schema=schema, ignore_errors=True).rename(dict(zip(names, PARTS)))
    reviews = reviews.with_columns(moments(pl.col(TIME), REVIEWS[names]).alias(TIME))
    try:
        built = build(
            reviews, COLUMNS, on_bad=on_bad, origin=str(path), where=lambda rows: describe_json_rows([path], rows)
        )
    except DataError as error:
        if isinstance(error.__cause__, pl.exceptions.PolarsError):
            refuse_bad_json(path)
        raise
    events = Interactions.from_encoded(built, COLUMNS, "latest")
    if REVIEWS[names] == "ms":
        events = _in_milliseconds(events, path, on_bad)
    return PublishedData(at_least(events, min_rating))


def _in_milliseconds(events: Interactions, path: Path, on_bad: OnBad) -> Interactions:
    """Refuse or drop times before 1990: seconds read as milliseconds are in January 1970."""
    assert events.times is not None
    early = events.times < _YEAR_1990
    if not early.any():
        return events
    if on_bad == "raise" or early.all():
        drop = Message(", or pass {on_bad} to drop those lines", on_bad="drop")
        raise DataError(
            f"{path}: {early.sum():,} of {len(events):,} times are before 1990 (first: "
            f"{events.times[early][0] // 1000}); expected milliseconds since 1970",
            code="bad-rows",
            hint=Message("If they are seconds, multiply them by 1000{}", "" if early.all() else drop),
        )
    later = events.select(~early, compact=True)
    later.dropped.update(events.dropped | {"times before 1990": int(early.sum())})
    return later
