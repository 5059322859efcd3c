"""Files of events: which format, which files, and what is wrong with a broken one."""

from __future__ import annotations

import csv
import glob
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._numba import kernel
from shortlist.data.building import Built, Columns, OnBad, build, polars_errors
from shortlist.errors import DataError, SettingError

Format: TypeAlias = Literal["csv", "tsv", "parquet", "jsonl"]
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_KNOWN = "CSV (.csv), TSV (.tsv), Parquet (.parquet) or JSON lines (.jsonl); CSV and TSV may be gzipped (.csv.gz)"


@dataclass(frozen=True)
class Files:
    """The files behind a path, all of one format."""

    paths: list[Path]
    format: Format
    separator: str

    @property
    def name(self) -> str:
        """What to call them in messages."""
        return str(self.paths[0]) if len(self.paths) == 1 else f"{self.paths[0].parent} ({len(self.paths)} files)"


def find_files(path: str | Path, format: Format | None = None, separator: str | None = None) -> Files:  # noqa: A002
    """The data files at `path`: a file, a folder (searched through), or a glob pattern."""
    if separator is not None and (len(separator) != 1 or not separator.isascii() or separator in '"\r\n'):
        raise SettingError(f"separator={separator!r}; expected one ASCII character such as ';'")
    text = str(path)
    place = Path(path)
    if place.is_dir():
        found = [
            one
            for one in sorted(place.rglob("*"))
            if one.is_file()
            and not any(part.startswith((".", "_")) for part in one.relative_to(place).parts)
            and (format is not None or _format_of(one) is not None)
        ]
        if not found:
            raise DataError(f"folder {text}: no data files; expected {_KNOWN}")
    elif place.exists():
        found = [place]
    elif glob.has_magic(text):
        found = [Path(one) for one in sorted(glob.glob(text, recursive=True)) if Path(one).is_file()]
        if not found:
            raise DataError(f"no file matches {text}")
    else:
        raise DataError(f"no such file or folder: {text}")
    formats = {format or _format_of(one) for one in found}
    if len(formats) > 1:
        kinds = ", ".join(sorted({one.suffix for one in found}))
        raise DataError(
            f"{text} holds files of several formats ({kinds}); pass format=, or a pattern such as '*.parquet'"
        )
    (kind,) = formats
    if kind is None:
        raise DataError(
            f"{text}: cannot tell the format from the name {found[0].name!r}; expected {_KNOWN}; pass format="
        )
    if kind not in _SUFFIXES.values():
        raise SettingError(f"format={kind!r}; expected one of {', '.join(sorted(set(_SUFFIXES.values())))}")
    for one in found:
        _check_content(one, kind)
    return Files(found, kind, separator or ("\t" if kind == "tsv" else ","))


def column_names(files: Files) -> list[str]:
    """The columns of the first file."""
    if files.format in ("csv", "tsv"):
        return _header(files.paths[0], files.separator)
    with polars_errors(files.name):
        return list(_scan(files).collect_schema())


def build_from_files(files: Files, columns: Columns, on_bad: OnBad) -> Built:
    """Read the named columns of the files and encode them."""
    if files.format in ("csv", "tsv"):
        return _build_from_text(files, columns, on_bad)
    if files.format == "jsonl":
        return _build_from_json(files, columns, on_bad)
    return build(_scan(files), columns, on_bad=on_bad, origin=files.name)


def _format_of(path: Path) -> Format | None:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def _check_content(path: Path, kind: Format) -> None:
    try:
        with path.open("rb") as stream:
            start = stream.read(4)
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {error.strerror or error}") from error
    if not start:
        raise DataError(f"{path} is empty (0 bytes)")
    if start == b"PAR1" and kind != "parquet":
        raise DataError(f"{path} is a Parquet file although its name says {kind}; rename it or pass format='parquet'")
    if kind == "parquet" and start != b"PAR1":
        raise DataError(f"{path} is not a Parquet file: it does not begin with the mark PAR1")


def _scan(files: Files) -> pl.LazyFrame:
    if files.format == "parquet":
        return pl.scan_parquet(files.paths, hive_partitioning=False, glob=False, extra_columns="ignore")
    return _scan_json(files)


# --- JSON lines ------------------------------------------------------------------------------------------------------


def _scan_json(files: Files, **options: Any) -> pl.LazyFrame:
    # The paths are files, whatever stars and brackets are in their names.
    paths = [glob.escape(str(path)) for path in files.paths]
    return pl.scan_ndjson(paths, **{"infer_schema_length": None} | options)


def _build_from_json(files: Files, columns: Columns, on_bad: OnBad) -> Built:
    try:
        schema = _scan_json(files).collect_schema()  # reads everything, so it is handed on
        _refuse_mixed_ids(files, columns, schema)
    except (pl.exceptions.PolarsError, OSError) as error:
        for path in files.paths:
            _find_bad_json(path)
        raise DataError(f"{files.name} cannot be read: {str(error).splitlines()[0]}") from error
    return build(_scan_json(files, schema=schema), columns, on_bad=on_bad, origin=files.name)


def _refuse_mixed_ids(files: Files, columns: Columns, schema: pl.Schema) -> None:
    """Refuse ids that are text in some lines and something else in others.

    polars would read such a column as text and so turn 7 into '7'. Where some of the text looks so, the column is read
    again as what it looks like, with null for all that is not.
    """
    text = [name for name in (*columns.context, columns.item) if schema.get(name) == pl.String]
    looks: dict[str, tuple[str, Any]] = {
        "numbers": ("^-?[0-9]", pl.Float64),
        "true or false": ("^(true|false)$", pl.Boolean),
        "lists": (r"^\[", pl.List(pl.String)),
        "objects": (r"^\{", None),
    }
    for name in text:
        column = pl.col(name)
        suspects = [column.str.contains(pattern).any().alias(what) for what, (pattern, _) in looks.items()]
        found = _scan_json(files, schema=schema).select(suspects).collect(engine="streaming").row(0, named=True)
        for what, (_, dtype) in looks.items():
            if not found[what]:
                continue
            if dtype is None:
                count = sum(_count_objects(path, name) for path in files.paths)
            else:
                again = _scan_json(files, schema={**schema, name: dtype}, ignore_errors=True)
                count = again.select(column.count()).collect(engine="streaming").item()
            if count:
                rows = _scan_json(files, schema=schema).select(pl.len()).collect(engine="streaming").item()
                raise DataError(
                    f"{files.name}: column {name!r} mixes types: {count:,} of {rows:,} rows hold {what}, others "
                    "text; ids are all integers or all text"
                )


def _count_objects(path: Path, name: str) -> int:
    with _opened(path) as stream:
        return sum(isinstance(json.loads(line).get(name), dict) for line in stream if line.strip())


def _find_bad_json(path: Path) -> None:
    with _opened(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                good = not line.strip() or isinstance(json.loads(line), dict)
            except ValueError:
                good = False
            if not good:
                raise DataError(f"{path}: line {number:,} is not a JSON object; expected one object a line")


# --- text files ------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked where it is gzipped, which its first bytes say; its faults in our words."""
    try:
        with path.open("rb") as stream:
            packed = stream.read(2) == b"\x1f\x8b"
            stream.seek(0)
            yield cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if packed else stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _header(path: Path, separator: str) -> list[str]:
    try:
        with _opened(path) as stream:
            lines = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""), delimiter=separator)
            names = next((fields for fields in lines if fields), None)
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except csv.Error as error:
        raise DataError(f"{path}: the header cannot be read: {error}") from error
    if names is None:
        raise DataError(f"{path} is empty: there is not even a header line")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        count = names.count(twice[0])
        raise DataError(f"{path}: column {twice[0]!r} stands {count} times in the header; each name must be there once")
    return names


def _build_from_text(files: Files, columns: Columns, on_bad: OnBad) -> Built:
    header = _header(files.paths[0], files.separator)
    for path in files.paths[1:]:
        if (other := _header(path, files.separator)) != header:
            raise DataError(f"{path} has the columns {other}, but {files.paths[0]} has {header}; they must agree")
    missing = [name for name in columns.all if name not in header]
    if missing:
        hint = ""
        for mark, word in ((";", "a semicolon"), ("\t", "a tab"), ("|", "a bar"), (",", "a comma")):
            if len(header) == 1 and mark in header[0]:
                hint = f"; is the separator {word}? Then pass separator={mark!r}"
                break
        found = ", ".join(map(repr, header))
        raise DataError(f"{files.name}: no column {missing[0]!r}; columns found: {found}{hint}")

    surveys = [_survey(path, files.separator, len(header)) for path in files.paths]
    n_ragged = sum(one.n_ragged for one in surveys)
    if n_ragged and on_bad == "raise":
        path, bad = next((path, one) for path, one in zip(files.paths, surveys) if one.n_ragged)
        raise DataError(
            f"{files.name}: {n_ragged:,} of {sum(one.n_records for one in surveys):,} lines do not have the "
            f"{len(header)} fields of the header (line {bad.ragged_line:,} of {path.name} has {bad.ragged_fields}). "
            "Mend the file, or pass on_bad='drop' to leave those lines out"
        )
    sources: list[Any] = list(files.paths)
    if n_ragged:
        sources = [_without_ragged(path, files.separator, len(header)) for path in files.paths]
    text = pl.scan_csv(
        sources,
        separator=files.separator,
        # Where no field begins with a quote, quotes are part of the text: 5" nails.
        quote_char='"' if any(one.n_quoted for one in surveys) else None,
        infer_schema=False,
        new_columns=header,
        glob=False,
    )
    n_records = sum(one.n_records - 1 for one in surveys) - n_ragged
    try:
        built = build(text, columns, on_bad=on_bad, origin=files.name, n_records=n_records)
    except DataError as error:
        if not isinstance(error.__cause__, pl.exceptions.PolarsError):
            raise
        for path, one in zip(files.paths, surveys):
            _refuse_other_text(path)
            if one.stray_line:
                raise DataError(
                    f"{error}. In line {one.stray_line:,} of {path.name} a quote stands inside of a field; such a "
                    "field must be quoted as a whole, and quotes in it doubled"
                ) from error
        raise
    if n_ragged:
        built.dropped["lines with another number of fields than the header"] = n_ragged
    return built


def _refuse_other_text(path: Path) -> None:
    with _opened(path) as stream:
        try:
            for _ in io.TextIOWrapper(stream, encoding="utf-8-sig"):
                pass
        except UnicodeDecodeError:
            raise _not_utf8(path) from None


def _not_utf8(path: Path) -> DataError:
    return DataError(f"{path} is not UTF-8 text; convert it, for example with iconv -t utf-8")


# polars fills short lines up and, of the columns it does not read, cuts long ones off. Hence this look at the lines.


@dataclass(frozen=True)
class _Survey:
    """The lines of a text file; one with quoted line breaks counts as one, blank ones do not count."""

    n_records: int  # with the header
    n_ragged: int  # lines with another number of fields than the header
    ragged_line: int  # where the first one begins
    ragged_fields: int
    n_quoted: int  # fields that begin with a quote
    stray_line: int  # the first line with a quote inside of a field, or 0


# Places in the state of `_walk`.
_IN_QUOTES, _FRESH, _CLOSED, _FIELDS, _LENGTH, _LINE, _RECORD_LINE, _RECORD_AT, _AT = range(9)
_RECORDS, _RAGGED, _RAGGED_LINE, _RAGGED_FIELDS, _QUOTED, _STRAY_LINE = range(9, 15)
_BLOCK = 1 << 22


def _survey(path: Path, separator: str, width: int) -> _Survey:
    return _walked(path, separator, width, np.empty(0, np.uint8))[0]


def _without_ragged(path: Path, separator: str, width: int) -> io.BytesIO:
    """The good lines, in memory: this is the way round for broken files only."""
    with _opened(path) as stream:
        size = sum(len(block) for block in iter(lambda: stream.read(_BLOCK), b""))
    good = np.empty(size + 1, np.uint8)
    _, length = _walked(path, separator, width, good)
    return io.BytesIO(good[:length].tobytes())


def _walked(path: Path, separator: str, width: int, out: npt.NDArray[np.uint8]) -> tuple[_Survey, int]:
    state = np.zeros(15, np.int64)
    state[[_FRESH, _FIELDS, _LINE, _RECORD_LINE]] = 1
    with _opened(path) as stream:
        if stream.read(3) != b"\xef\xbb\xbf":
            stream.seek(0)
        block = b""
        for block in iter(lambda: stream.read(_BLOCK), b""):
            _walk(np.frombuffer(block, np.uint8), ord(separator), width, state, out)
    if state[_IN_QUOTES]:
        raise DataError(f"{path}: a quote opens in line {state[_RECORD_LINE]:,} and is never closed")
    if not block.endswith(b"\n"):
        _walk(np.frombuffer(b"\n", np.uint8), ord(separator), width, state, out)
    return _Survey(*state[_RECORDS:].tolist()), int(state[_RECORD_AT])


@kernel
def _walk(
    data: npt.NDArray[np.uint8], separator: int, width: int, state: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]
) -> None:
    """Go through a block of delimited text, counting; lines of `width` fields are copied to `out` if it has a size."""
    in_quotes, fresh, closed = state[_IN_QUOTES], state[_FRESH], state[_CLOSED]
    fields, length, line, at = state[_FIELDS], state[_LENGTH], state[_LINE], state[_AT]
    copy = len(out) > 0
    for p in range(len(data)):
        byte = data[p]
        if copy:
            out[at] = byte
            at += 1
        if in_quotes:
            if byte == 34:
                in_quotes, closed = 0, 1  # or the first half of a doubled one, which opens again at once
            elif byte == 10:
                line += 1
        elif byte == 10:
            if length > 0:
                state[_RECORDS] += 1
                if fields != width:
                    state[_RAGGED] += 1
                    if state[_RAGGED] == 1:
                        state[_RAGGED_LINE], state[_RAGGED_FIELDS] = state[_RECORD_LINE], fields
                    at = state[_RECORD_AT]
            state[_RECORD_AT] = at
            line += 1
            state[_RECORD_LINE] = line
            fields, length, fresh, closed = 1, 0, 1, 0
        elif byte == separator:
            fields += 1
            length += 1
            fresh, closed = 1, 0
        elif byte == 34:
            length += 1
            if fresh or closed:
                state[_QUOTED] += fresh
                in_quotes, fresh, closed = 1, 0, 0
            elif state[_STRAY_LINE] == 0:
                state[_STRAY_LINE] = line
        elif byte != 13:
            length += 1
            if closed and state[_STRAY_LINE] == 0:
                state[_STRAY_LINE] = line
            fresh, closed = 0, 0
    state[_IN_QUOTES], state[_FRESH], state[_CLOSED] = in_quotes, fresh, closed
    state[_FIELDS], state[_LENGTH], state[_LINE], state[_AT] = fields, length, line, at
