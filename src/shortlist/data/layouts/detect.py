"""Detect the public layout of a folder or a file by file names and first lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from shortlist._wording import Message
from shortlist.data.csv_lines import opened
from shortlist.data.encode import polars_errors
from shortlist.data.layouts.headers import CSV_HEADER, HEADER_2023, review_names
from shortlist.errors import DataError

_SAMPLE = 1 << 16  # bytes read from a file
_MAX_FILES = 500  # in a folder: published ones have fewer, and reading the first lines of more takes long
_PARTS_OF_SPLITS = ("train.txt", "test.txt", "valid.txt")
_ASIN = re.compile(r"[0-9]{9}[0-9X]|B[0-9A-Z]{9}")
_REVIEWER = re.compile(r"A[0-9A-Z]{9,20}")
_STAMP = re.compile(r"[0-9]{9,10}")
_SCORE = re.compile(r"[0-5](\.[0-9]+)?")


def recognise(path: str | Path) -> str | None:
    """Return the name of the public layout of a folder or a file, or None if no layout fits.

    File names decide and, for names such as data.csv, the first lines. If several layouts fit, an error lists them with
    their files.
    """
    place = Path(path)
    return only_layout(place, main_files) if place.exists() and (main_files := claims(place)) else None


def claims(path: Path) -> dict[str, list[Path]]:
    """Return the layouts that fit, each with its main files. Subfolders are not searched.

    The main file holds the training events: it is train.txt even if only test.txt was passed.
    """
    if path.is_dir():
        with polars_errors(f"folder {path}"):
            files = [file for file in sorted(path.iterdir()) if file.is_file() and not file.name.startswith((".", "_"))]
    else:
        files = [path]
    main_files: dict[str, list[Path]] = {}
    for file in files if len(files) <= _MAX_FILES else []:
        for layout, main in _claims_of(file):
            same_layout = main_files.setdefault(layout, [])
            if main not in same_layout:
                same_layout.append(main)
    return main_files


def _claims_of(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the layouts to which a file may belong, with their main files."""
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
        for layout in _csv_layouts(path):
            yield layout, path
    elif name.endswith((".json", ".jsonl")):
        with suppress(DataError, OSError):
            if review_names(path) is not None:
                yield "amazon-reviews", path
    elif name.endswith(".txt") and (sequence_layout := _sequence_layout(path)):
        yield sequence_layout, path


def _ncf_stem(path: Path) -> str | None:
    for end in (".train.rating", ".test.rating", ".test.negative"):
        stem = path.name.removesuffix(end)
        if stem != path.name and path.with_name(f"{stem}.train.rating").is_file():
            return stem
    return None


def _first_lines(path: Path) -> list[str]:
    """Return the first complete lines of a file without blank ones; none if it is not text."""
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


def _csv_layouts(path: Path) -> list[str]:
    lines = _first_lines(path)
    if not lines:
        return []
    header = [name.strip('"') for name in lines[0].split(",")]
    if set(CSV_HEADER) <= set(header):
        return ["movielens-csv"]
    if set(HEADER_2023) <= set(header):
        return ["amazon-2023"]
    rows = [line.split(",") for line in lines]
    if not all(len(row) == 4 and _SCORE.fullmatch(row[2]) and _STAMP.fullmatch(row[3].strip()) for row in rows):
        return []
    columns = [row[0] for row in rows], [row[1] for row in rows]
    for pattern, in_first, in_second in (
        (_ASIN, "amazon-2018", "amazon-2014"),
        (_REVIEWER, "amazon-2014", "amazon-2018"),
    ):
        fractions = [sum(pattern.fullmatch(key) is not None for key in column) / len(rows) for column in columns]
        if max(fractions) > 0.9 and min(fractions) < 0.1:
            return [in_first if fractions[0] > fractions[1] else in_second]
    return ["amazon-2014", "amazon-2018"]


def _sequence_layout(path: Path) -> str | None:
    """Return the layout of a file of integers separated by blanks: sasrec for pairs, s3rec for one list per user."""
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


def only_layout(place: Path, main_files: dict[str, list[Path]]) -> str:
    """Return the layout if it is the only one that fits; else raise DataError."""
    first = next(iter(main_files))
    if len(main_files) > 1:
        fits = "; ".join(f"{name!r} ({file_names(paths)})" for name, paths in main_files.items())
        hint = Message("Pass the right one, such as {layout}", layout=first)
        raise DataError(f"{place} fits several layouts: {fits}", field="layout", hint=hint)
    return first


def file_names(paths: list[Path]) -> str:
    """Return the names of files, shortened."""
    return listed([path.name for path in paths])


def listed(names: list[str]) -> str:
    """Return the first six names, and how many more there are."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6:,} more" if len(names) > 6 else "")
