"""MovieLens: ratings.dat (1M, 10M), ratings.csv (20M and later, latest) and u.data (100K), with what is beside them."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from shortlist.data.building import OnBad, polars_errors
from shortlist.data.layouts.fields import fields_of
from shortlist.data.layouts.parts import ITEM, USER, Parts
from shortlist.data.layouts.ratings import at_least, read_ratings
from shortlist.data.text import opened
from shortlist.errors import DataError

CSV_HEADER = ("userId", "movieId", "rating", "timestamp")
_NO_GENRES = "(no genres listed)"
_GENRES_100K = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)


def read_dat(ratings: Path, min_rating: float | None, on_bad: OnBad) -> Parts:
    """Read ratings.dat, and movies.dat and users.dat where they are beside it."""
    events = read_ratings(ratings, "::", "UserID::MovieID::Rating::Timestamp", on_bad=on_bad)
    movies, users = ratings.with_name("movies.dat"), ratings.with_name("users.dat")
    items = contexts = None
    if movies.is_file():
        # A title may hold a colon, or two: it is what stands between the first and the last `::`.
        fields = fields_of(movies, r"^(?<item>\d+)::(?<title>.*)::(?<genres>.*)$", "MovieID::Title::Genres", key=ITEM)
        items = fields.with_columns(_genres())
    if users.is_file():
        pattern = r"^(?<user>\d+)::(?<gender>[^:]*)::(?<age>\d+)::(?<occupation>\d+)::(?<zip>.*)$"
        contexts = fields_of(users, pattern, "UserID::Gender::Age::Occupation::Zip-code", key=USER).with_columns(
            pl.col("age", "occupation").cast(pl.Int64)
        )
    return Parts(at_least(events, min_rating), items, contexts)


def read_csv(ratings: Path, min_rating: float | None, on_bad: OnBad) -> Parts:
    """Read ratings.csv, and movies.csv where it is beside it."""
    suffix = ".csv.gz" if ratings.name.endswith(".gz") else ".csv"
    movies = ratings.with_name("movies" + suffix)
    items = None
    if movies.is_file():
        with opened(movies) as stream, polars_errors(str(movies)):
            table = pl.read_csv(stream.read(), infer_schema=False)
        missing = {"movieId", "title", "genres"} - set(table.columns)
        if missing:
            raise DataError(f"{movies}: no column {min(missing)!r}; expected movieId, title and genres")
        table = table.select(pl.col("movieId").cast(pl.Int64).alias(ITEM), "title", "genres")
        items = table.with_columns(_genres())
    events = read_ratings(ratings, ",", ",".join(CSV_HEADER), on_bad=on_bad, header=CSV_HEADER)
    return Parts(at_least(events, min_rating), items)


def read_100k(ratings: Path, min_rating: float | None, on_bad: OnBad) -> Parts:
    """Read u.data, and u.item and u.user where they are beside it."""
    events = read_ratings(ratings, "\t", "user, item, rating and timestamp with tabs between them", on_bad=on_bad)
    movies, users = ratings.with_name("u.item"), ratings.with_name("u.user")
    items = contexts = None
    if movies.is_file():
        flags = "".join(rf"\|(?<g{k}>[01])" for k in range(len(_GENRES_100K)))
        pattern = rf"^(?<item>\d+)\|(?<title>.*)\|(?<release_date>[^|]*)\|[^|]*\|[^|]*{flags}$"
        fields = fields_of(
            movies, pattern, "id|title|release date|video release date|URL and 19 genres of 0 or 1", key=ITEM
        )
        chosen = [pl.when(pl.col(f"g{k}") == "1").then(pl.lit(name)) for k, name in enumerate(_GENRES_100K)]
        items = fields.select(ITEM, "title", "release_date", genres=pl.concat_list(chosen).list.drop_nulls())
    if users.is_file():
        pattern = r"^(?<user>\d+)\|(?<age>\d+)\|(?<gender>[^|]*)\|(?<occupation>[^|]*)\|(?<zip>[^|]*)$"
        contexts = fields_of(users, pattern, "id|age|gender|occupation|zip code", key=USER).with_columns(
            pl.col("age").cast(pl.Int64)
        )
    return Parts(at_least(events, min_rating), items, contexts)


def _genres() -> pl.Expr:
    """Genres with bars between them as lists."""
    genres = pl.col("genres").replace(["", _NO_GENRES], [None, None]).str.split("|")
    return genres.fill_null([]).alias("genres")
