"""Files of events: which format, which files, and what is wrong with a broken one."""

from __future__ import annotations

import csv
import glob
import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, TypeAlias

import polars as pl

from shortlist.data.building import Built, Columns, OnBad, _polars_errors, build
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
    with _polars_errors(files.name):
        return list(_scan(files).collect_schema())


def build_from_files(files: Files, columns: Columns, on_bad: OnBad) -> Built:
    """Read the named columns of the files and encode them."""
    if files.format in ("csv", "tsv"):
        return _build_from_text(files, columns, on_bad)
    if files.format == "jsonl":
        _check_json(files, columns)
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
        return pl.scan_parquet(files.paths, hive_partitioning=False)
    return pl.scan_ndjson(files.paths, infer_schema_length=None)


# --- JSON lines ------------------------------------------------------------------------------------------------------


def _check_json(files: Files, columns: Columns) -> None:
    """Refuse broken lines by their number, and ids that are numbers in some lines and text in others.

    polars would read such a column as text and so turn 7 into '7'; read as numbers, with what is not one as null, it
    must be null throughout.
    """
    try:
        schema = _scan(files).collect_schema()
        text = [name for name in (*columns.context, columns.item) if schema.get(name) == pl.String]
        if not text:
            return
        numbers = pl.scan_ndjson(
            files.paths, infer_schema_length=None, schema_overrides=dict.fromkeys(text, pl.Float64), ignore_errors=True
        )
        counts = numbers.select(pl.col(text).count(), __rows=pl.len()).collect(engine="streaming").row(0, named=True)
    except (pl.exceptions.PolarsError, OSError) as error:
        for path in files.paths:
            _find_bad_json(path)
        raise DataError(f"{files.name} cannot be read: {str(error).splitlines()[0]}") from error
    for name in text:
        if counts[name]:
            raise DataError(
                f"{files.name}: column {name!r} mixes types: {counts[name]:,} of {counts['__rows']:,} rows hold "
                "numbers, the others text; ids are all integers or all text"
            )


def _find_bad_json(path: Path) -> None:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                good = not line.strip() or isinstance(json.loads(line), dict)
            except ValueError:
                good = False
            if not good:
                raise DataError(f"{path}: line {number:,} is not a JSON object; expected one object a line")


# --- text files ------------------------------------------------------------------------------------------------------


def _open_text(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _lines(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of a text file, split, with their numbers; blank ones are passed over."""
    try:
        with _open_text(path) as stream:
            reader = csv.reader(stream, delimiter=separator)
            for fields in reader:
                if fields:
                    yield reader.line_num, fields
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason}); convert it, for example with iconv") from error
    except (csv.Error, gzip.BadGzipFile, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _header(path: Path, separator: str) -> list[str]:
    first = next(_lines(path, separator), None)
    if first is None:
        raise DataError(f"{path} is empty: there is not even a header line")
    names = first[1]
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

    def read(sources: list[Path] | io.BytesIO, *, probe: bool) -> Built:
        text = pl.scan_csv(sources, separator=files.separator, infer_schema=False)
        return build(
            text,
            columns,
            on_bad=on_bad,
            origin=files.name,
            from_text=True,
            time_dtype=_time_type(sources, files, columns),
            probe=header[-1] if probe else None,
            on_probe=lambda: _refuse_ragged(files, len(header)),
        )

    try:
        return read(files.paths, probe=True)
    except DataError as error:
        if not isinstance(error, _RaggedError) and not isinstance(error.__cause__, pl.exceptions.PolarsError):
            raise
        if not isinstance(error, _RaggedError):
            try:
                _refuse_ragged(files, len(header))  # where that is the reason, say it in our words
            except _RaggedError as ragged:
                error = ragged
        if on_bad == "raise" or not isinstance(error, _RaggedError):
            raise error from None
        built = read(_without_ragged(files, len(header)), probe=False)
        built.dropped["lines with another number of fields than the header"] = error.count
        return built


class _RaggedError(DataError):
    """Some lines have more or fewer fields than the header."""

    count = 0


def _refuse_ragged(files: Files, width: int) -> None:
    count, rows, first = 0, 0, ""
    for path in files.paths:
        for number, fields in _lines(path, files.separator):
            rows += 1
            if len(fields) != width:
                count += 1
                first = first or f"line {number:,} of {path} has {len(fields)}"
    if count:
        error = _RaggedError(
            f"{files.name}: {count:,} of {rows:,} lines do not have the {width} fields of the header ({first}). "
            "Mend the file, or pass on_bad='drop' to leave those lines out"
        )
        error.count = count
        raise error


def _without_ragged(files: Files, width: int) -> io.BytesIO:
    """The good lines of all files, in memory: this is the way round for broken files only."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=files.separator)
    for k, path in enumerate(files.paths):
        for row, (_, fields) in enumerate(_lines(path, files.separator)):
            if len(fields) == width and (k == 0 or row > 0):
                writer.writerow(fields)
    return io.BytesIO(out.getvalue().encode())


def _time_type(sources: list[Path] | io.BytesIO, files: Files, columns: Columns) -> pl.DataType | None:
    """What a column of times in text looks like, judged by its first rows."""
    if columns.time is None:
        return None
    sample = pl.scan_csv(sources, separator=files.separator, try_parse_dates=True, truncate_ragged_lines=True)
    try:
        return sample.collect_schema()[columns.time]
    except pl.exceptions.PolarsError:
        return pl.String()
