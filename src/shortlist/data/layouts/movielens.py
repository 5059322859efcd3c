"""MovieLens: ratings.dat (1M, 10M), ratings.csv (20M and later, latest) and u.data (100K), with their side tables."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from shortlist.data.encode import OnBad, polars_errors
from shortlist.data.layouts.headers import CSV_HEADER
from shortlist.data.layouts.published import ITEM, USER, PublishedData
from shortlist.data.layouts.ratings import at_least, read_ratings
from shortlist.data.layouts.side_tables import fields_of, text_of
from shortlist.errors import DataError

_NO_GENRES = "(no genres listed)"
_GENRES_100K = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)


def read_dat(ratings: Path, min_rating: float | None, on_bad: OnBad) -> PublishedData:
    """Read ratings.dat and, if they exist, movies.dat and users.dat of the same folder."""
    events = read_ratings(ratings, "::", "UserID::MovieID::Rating::Timestamp", on_bad=on_bad)
    movies, users = ratings.with_name("movies.dat"), ratings.with_name("users.dat")
    items = contexts = None
    if movies.is_file():
        # A title may contain `::`: it is all text between the first and the last `::`.
        fields = fields_of(
            movies, r"^(?<item>[0-9]+)::(?<title>.*)::(?<genres>.*)$", "MovieID::Title::Genres", key=ITEM
        )
        items = fields.with_columns(_genres())
    if users.is_file():
        pattern = r"^(?<user>[0-9]+)::(?<gender>[^:]*)::(?<age>[0-9]{1,9})::(?<occupation>[0-9]{1,9})::(?<zip>.*)$"
        contexts = fields_of(users, pattern, "UserID::Gender::Age::Occupation::Zip-code", key=USER).with_columns(
            pl.col("age", "occupation").cast(pl.Int64)
        )
    return PublishedData(at_least(events, min_rating), items, contexts)


def read_csv(ratings: Path, min_rating: float | None, on_bad: OnBad) -> PublishedData:
    """Read ratings.csv and, if it exists, movies.csv of the same folder."""
    suffix = ".csv.gz" if ratings.name.endswith(".gz") else ".csv"
    movies = ratings.with_name("movies" + suffix)
    items = _movies(movies) if movies.is_file() else None
    events = read_ratings(ratings, ",", ",".join(CSV_HEADER), on_bad=on_bad, header=CSV_HEADER)
    return PublishedData(at_least(events, min_rating), items)


def read_100k(ratings: Path, min_rating: float | None, on_bad: OnBad) -> PublishedData:
    """Read u.data and, if they exist, u.item and u.user of the same folder."""
    events = read_ratings(ratings, "\t", "user, item, rating and timestamp separated by tabs", on_bad=on_bad)
    movies, users = ratings.with_name("u.item"), ratings.with_name("u.user")
    items = contexts = None
    if movies.is_file():
        flags = "".join(rf"\|(?<g{k}>[01])" for k in range(len(_GENRES_100K)))
        pattern = rf"^(?<item>[0-9]+)\|(?<title>.*)\|(?<release_date>[^|]*)\|[^|]*\|[^|]*{flags}$"
        fields = fields_of(
            movies, pattern, "id|title|release date|video release date|URL and 19 genres of 0 or 1", key=ITEM
        )
        chosen = [pl.when(pl.col(f"g{k}") == "1").then(pl.lit(name)) for k, name in enumerate(_GENRES_100K)]
        items = fields.select(ITEM, "title", "release_date", genres=pl.concat_list(chosen).list.drop_nulls())
    if users.is_file():
        pattern = r"^(?<user>[0-9]+)\|(?<age>[0-9]{1,9})\|(?<gender>[^|]*)\|(?<occupation>[^|]*)\|(?<zip>[^|]*)$"
        contexts = fields_of(users, pattern, "id|age|gender|occupation|zip code", key=USER).with_columns(
            pl.col("age").cast(pl.Int64)
        )
    return PublishedData(at_least(events, min_rating), items, contexts)


def _movies(path: Path) -> pl.DataFrame:
    """Read a table of movies with the header movieId,title,genres."""
    with polars_errors(str(path)):
        table = pl.read_csv(text_of(path).encode(), infer_schema=False)
    missing = {"movieId", "title", "genres"} - set(table.columns)
    if missing:
        raise DataError(
            f"{path}: no column {min(missing)!r}; expected movieId, title and genres",
            code="missing-column",
            field=min(missing),
        )
    number = pl.col("movieId").cast(pl.Int64, strict=False)
    bad = table.filter(number.is_null())
    if bad.height:
        raise DataError(
            f"{path}: column 'movieId' is null or not an integer in {bad.height:,} of {table.height:,} rows (first: "
            f"{bad['movieId'][0]!r:.60} with title {bad['title'][0]!r:.60})",
            code="bad-rows",
            hint="fix the file",
        )
    return table.select(number.alias(ITEM), "title", "genres").with_columns(_genres())


def _genres() -> pl.Expr:
    """Split genres at bars into lists."""
    genres = pl.col("genres").replace(["", _NO_GENRES], [None, None]).str.split("|")
    return genres.fill_null([]).alias("genres")
