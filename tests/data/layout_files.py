"""Tiny files in public layouts, and what is in them."""

from __future__ import annotations

import datetime as dt

import polars as pl


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


USER, BOOK = "A39HTATAQ9V7YF", "0205616461"


OTHER, GIFT = "AKJHHD5VEH7VG", "B001GXRQW0"


SOLD = [(USER, BOOK, 5.0, second(1369699200)), (OTHER, GIFT, 3.0, second(1355443200))]
