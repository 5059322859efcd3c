"""Which public layout a folder or a file is in, judged by names and by the first lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from shortlist.data.csv_lines import opened
from shortlist.data.encode import polars_errors
from shortlist.data.layouts import amazon, movielens
from shortlist.errors import DataError

_SAMPLE = 1 << 16  # bytes of a file that are looked at
_MOST = 500  # files in a folder; none that was published so has more, and to look into each would take long
_PARTS_OF_SPLITS = ("train.txt", "test.txt", "valid.txt")
_ASIN = re.compile(r"[0-9]{9}[0-9X]|B[0-9A-Z]{9}")
_REVIEWER = re.compile(r"A[0-9A-Z]{9,20}")
_STAMP = re.compile(r"[0-9]{9,10}")
_SCORE = re.compile(r"[0-5](\.[0-9]+)?")


def claims(path: Path) -> dict[str, list[Path]]:
    """The layouts that fit, each with the files that speak for it; a folder is not searched below.

    A file that is one of several of a layout, such as test.txt, stands for them all.
    """
    if path.is_dir():
        with polars_errors(f"folder {path}"):
            files = [one for one in sorted(path.iterdir()) if one.is_file() and not one.name.startswith((".", "_"))]
    else:
        files = [path]
    found: dict[str, list[Path]] = {}
    for one in files if len(files) <= _MOST else []:
        for layout, main in _claims_of(one):
            known = found.setdefault(layout, [])
            if main not in known:
                known.append(main)
    return found


def _claims_of(path: Path) -> Iterator[tuple[str, Path]]:
    """The layouts that a file speaks for, with the file in which their events begin."""
    name = path.name.removesuffix(".gz")
    if name == "ratings.dat":
        yield "movielens-dat", path
    elif name == "u.data":
        yield "movielens-100k", path
    elif path.name in _PARTS_OF_SPLITS:
        train = path.with_name("train.txt")
        if train.is_file() and path.with_name("test.txt").is_file():
            yield "lightgcn", train
    elif stem := _ncf_stem(path):
        yield "ncf", path.with_name(f"{stem}.train.rating")
    elif name.endswith(".csv"):
        for layout in _tables(path):
            yield layout, path
    elif name.endswith((".json", ".jsonl")):
        with suppress(DataError, OSError):
            if amazon.review_names(path) is not None:
                yield "amazon-reviews", path
    elif name.endswith(".txt") and (kind := _sequences(path)):
        yield kind, path


def _ncf_stem(path: Path) -> str | None:
    for end in (".train.rating", ".test.rating", ".test.negative"):
        stem = path.name.removesuffix(end)
        if stem != path.name and path.with_name(f"{stem}.train.rating").is_file():
            return stem
    return None


def _first_lines(path: Path) -> list[str]:
    """The whole lines at the beginning of a file that are not blank; none where it is no text."""
    try:
        with opened(path) as stream:
            data = stream.read(_SAMPLE)
    except (DataError, OSError):
        return []
    if len(data) == _SAMPLE:
        data = data[: data.rfind(b"\n") + 1]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return []
    return [line for line in text.splitlines() if line.strip()]


def _tables(path: Path) -> list[str]:
    lines = _first_lines(path)
    if not lines:
        return []
    header = [name.strip('"') for name in lines[0].split(",")]
    if set(movielens.CSV_HEADER) <= set(header):
        return ["movielens-csv"]
    if set(amazon.HEADER_2023) <= set(header):
        return ["amazon-2023"]
    rows = [line.split(",") for line in lines]
    if not all(len(row) == 4 and _SCORE.fullmatch(row[2]) and _STAMP.fullmatch(row[3].strip()) for row in rows):
        return []
    first, second = [row[0] for row in rows], [row[1] for row in rows]
    for pattern, in_first, in_second in (
        (_ASIN, "amazon-2018", "amazon-2014"),
        (_REVIEWER, "amazon-2014", "amazon-2018"),
    ):
        shares = [sum(pattern.fullmatch(one) is not None for one in column) / len(rows) for column in (first, second)]
        if max(shares) > 0.9 and min(shares) < 0.1:
            return [in_first if shares[0] > shares[1] else in_second]
    return ["amazon-2014", "amazon-2018"]


def _sequences(path: Path) -> str | None:
    """Whole numbers with blanks between them: pairs, or lists that have a line a user."""
    if path.name.endswith("_sample.txt") and path.with_name(path.name.replace("_sample.txt", ".txt")).is_file():
        return None
    lines = [line.strip(" ").split(" ") for line in _first_lines(path)]
    if not lines or not all(field.isascii() and field.isdigit() for line in lines for field in line):
        return None
    widths = {len(line) for line in lines}
    if widths == {2}:
        return "sasrec"
    users = [line[0] for line in lines]
    return "s3rec" if len(set(users)) == len(users) and max(widths) > 2 else None
