"""Event files: find them, detect their format, read them, and explain what is wrong with a broken one."""

from __future__ import annotations

import codecs
import csv
import difflib
import glob
import io
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

import polars as pl

from shortlist._checks import refusal
from shortlist._fork import require_polars_threads
from shortlist._wording import Argument, Message
from shortlist.data.csv_lines import (
    LineCounts,
    lines_at,
    lines_of_rows,
    opened,
    opened_text,
    shortened,
    survey,
    without_ragged,
)
from shortlist.data.encode import Columns, EncodedEvents, OnBad, build, fix_or_drop, no_column, polars_errors
from shortlist.data.json_surrogates import has_surrogates, refuse_surrogates, without_surrogates
from shortlist.data.sniff import refuse_other_content
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


class NoTableError(DataError):
    """The data does not look like a table with named columns. It may be in a public layout."""


@dataclass(frozen=True)
class EventFiles:
    """The files behind a path, all of one format.

    The reader of a public layout sets `names` (the columns of its text files), `headed` (whether there is a header),
    `pattern` (how a line is written, for messages) and `typed` (expressions that convert columns; null marks a bad
    value). `row` is what messages call a row; only for events do they suggest reading options.
    """

    paths: list[Path]
    format: Format
    separator: str
    names: tuple[str, ...] = ()
    headed: bool = True
    pattern: str = ""
    typed: dict[str, pl.Expr] = field(default_factory=dict)
    row: str = "event"

    @property
    def name(self) -> str:
        """The name of the files in messages."""
        return str(self.paths[0]) if len(self.paths) == 1 else f"{self.paths[0].parent} ({len(self.paths)} files)"


def find_files(
    path: str | Path,
    format: Format | None = None,  # noqa: A002
    separator: str | None = None,
    *,
    row: str = "event",
) -> EventFiles:
    """Find data files: `path` is a file, a folder with its subfolders, or a glob pattern; `row` as in `EventFiles`."""
    if separator is not None and not (
        isinstance(separator, str) and len(separator) == 1 and separator.isascii() and separator not in '"\r\n'
    ):
        raise refusal("separator", separator, "one ASCII character such as ';'")
    if format is not None and not (isinstance(format, str) and format in _SUFFIXES.values()):
        raise refusal("format", format, f"one of {', '.join(sorted(set(_SUFFIXES.values())))}")
    root = as_path(path)
    text = str(root)
    if root.is_dir():
        paths = [
            file
            for file in sorted(root.rglob("*"))
            if file.is_file()
            and not any(part.startswith((".", "_")) for part in file.relative_to(root).parts)
            and (format is not None or _format_of(file) is not None)
        ]
        if not paths:
            raise _no_data(root)
    elif root.exists():
        paths = [root]
    elif glob.has_magic(text):
        paths = [Path(name) for name in sorted(glob.glob(text, recursive=True)) if Path(name).is_file()]
        if not paths:
            raise DataError(f"no file matches {text}", code="no-such-file")
    else:
        raise no_such_path(root)
    formats = {format or _format_of(file) for file in paths}
    if len(formats) > 1:
        suffixes = ", ".join(sorted({file.suffix for file in paths}))
        hint = "pass a pattern such as '*.parquet'"
        if row == "event":
            hint = Message("pass {format}, or a pattern such as '*.parquet'", format=...)
        raise DataError(f"{text} holds files of several formats ({suffixes})", field="format", hint=hint)
    (file_format,) = formats
    if file_format is None:
        refuse_other_content(paths[0], None, row)
        is_events = row == "event"
        expected = _KNOWN if is_events else f"{_KNOWN}; or .txt, with one {row} per line"
        advice = Message("rename the file or pass {}, such as {format}", Argument("format"), format="csv")
        raise NoTableError(
            f"{text}: cannot infer the format from the file name {paths[0].name!r}; expected {expected}",
            code="unreadable-file",
            hint=advice if is_events else None,
        )
    for file in paths:
        refuse_other_content(file, file_format, row)
    if separator is not None and file_format not in ("csv", "tsv"):
        message = Message("{separator} has no effect on {} files", file_format, separator=separator)
        raise SettingError(message, code="no-effect", field="separator", hint="omit it")
    return EventFiles(paths, file_format, separator or ("\t" if file_format == "tsv" else ","), row=row)


def as_path(value: object) -> Path:
    """Convert to a path; raise DataError for anything that is not one, such as a frame."""
    if not isinstance(value, str | PathLike) or not str(value):
        is_frame = hasattr(value, "columns") or hasattr(value, "__arrow_c_stream__")
        got = type(value).__name__ if is_frame else f"{value!r:.80}"
        raise DataError(
            f"expected the path of a file or a folder, got {got}",
            field="path",
            hint="for a frame use from_frame" if is_frame else None,
        )
    try:
        path = Path(value)
        path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # a pattern, or a missing file: reported by the caller
    except (OSError, ValueError, TypeError) as error:  # a name that is too long, one with NUL in it, a path of bytes
        raise DataError(f"no such file or folder: {str(value)!r:.200}: {error!s:.80}", code="no-such-file") from None
    return path


def _no_data(folder: Path) -> DataError:
    names = sorted(entry.name for entry in folder.iterdir())
    visible = [name for name in names if not name.startswith((".", "_"))]
    what = f"holds no data files, only {', '.join(visible[:5])}{' …' * (len(visible) > 5)}"
    if not visible:
        what = f"holds no data files, only hidden ones such as {names[0]}" if names else "is empty"
    return NoTableError(f"folder {folder} {what}; expected {_KNOWN}", code="no-such-file")


def no_such_path(path: Path) -> DataError:
    """Return the error for a missing path; it suggests similar names in the same folder."""
    parent = path.parent
    if not parent.is_dir():
        return DataError(
            f"no such file or folder: {path}; the folder {parent} does not exist either", code="no-such-file"
        )
    near = difflib.get_close_matches(path.name, [entry.name for entry in parent.iterdir()], 3, 0.75)
    hint = f"did you mean {' or '.join(near)}?" if near else None
    return DataError(f"no such file or folder: {path}", code="no-such-file", hint=hint)


def column_names(files: EventFiles) -> list[str]:
    """Return the columns of the first file."""
    if files.format in ("csv", "tsv"):
        return _header(files.paths[0], files.separator)
    with polars_errors(files.name):
        return list(scan(files).collect_schema())


def build_from_files(files: EventFiles, columns: Columns, on_bad: OnBad) -> EncodedEvents:
    """Read the named columns of the files and encode them."""
    require_polars_threads("reading interactions from a file")
    if files.format in ("csv", "tsv"):
        return _build_from_text(files, columns, on_bad)
    if files.format == "jsonl":
        return _build_from_json(files, columns, on_bad)
    _refuse_mixed_zones(files, columns)
    return build(scan(files), columns, on_bad=on_bad, origin=files.name, row=files.row)


def _refuse_mixed_zones(files: EventFiles, columns: Columns) -> None:
    """Refuse Parquet files if only some have a time zone: polars would use that of the first file for all."""
    if columns.time is None or len(files.paths) == 1:
        return
    zones: dict[str | None, Path] = {}
    with polars_errors(files.name):
        for path in files.paths:
            dtype = pl.read_parquet_schema(path).get(columns.time)
            if isinstance(dtype, pl.Datetime):
                zones.setdefault(dtype.time_zone, path)
    if None in zones and len(zones) > 1:
        zone, other = next((zone, path) for zone, path in zones.items() if zone is not None)
        raise DataError(
            f"{files.name}: column {columns.time!r} has times without a time zone in {zones[None].name} and times in "
            f"{zone} in {other.name}",
            field=columns.time,
            hint="give all times a time zone, or none",
        )


def _format_of(path: Path) -> Format | None:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def scan(files: EventFiles) -> pl.LazyFrame:
    """Scan Parquet files or JSON lines as a lazy frame; `scan_text` scans text files."""
    if files.format == "parquet":
        return pl.scan_parquet(files.paths, hive_partitioning=False, glob=False, extra_columns="ignore")
    return scan_json(files.paths)


# --- JSON lines ------------------------------------------------------------------------------------------------------


def scan_json(paths: list[Path], named: Collection[str] = (), **options: Any) -> pl.LazyFrame:
    """Scan files of JSON lines. Texts with a lone surrogate become null in the `named` columns."""
    return _scanned(_json_sources(paths, named), **options)


def _scanned(sources: list[Any], **options: Any) -> pl.LazyFrame:
    return pl.scan_ndjson(sources, **{"infer_schema_length": None} | options)


def _json_sources(paths: list[Path], named: Collection[str]) -> list[Any]:
    """Return sources that polars can read: paths, or bytes without byte order marks and lone surrogates."""
    if any(has_surrogates(path) for path in paths):
        return [without_surrogates(path, named) for path in paths]
    if any(_is_marked(path) for path in paths):
        return [_unmarked(path) for path in paths]
    return [glob.escape(str(path)) for path in paths]  # their names are not patterns, even with a *


def _is_marked(path: Path) -> bool:
    with opened(path) as stream:
        return stream.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8


def _unmarked(path: Path) -> bytes:
    with opened_text(path) as stream:
        return stream.read()


def _build_from_json(files: EventFiles, columns: Columns, on_bad: OnBad) -> EncodedEvents:
    sources = _json_sources(files.paths, columns.all)
    if on_bad == "raise" and isinstance(sources[0], bytes):
        hint = fix_or_drop("data", "rows") if files.row == "event" else "Fix the data"
        for path in files.paths:
            refuse_surrogates(path, columns.all, hint)
    try:
        schema = _scanned(sources).collect_schema()  # reads the whole files, so it is passed on
        _refuse_mixed_ids(files, sources, columns, schema)
    except (pl.exceptions.PolarsError, OSError) as error:
        for path in files.paths:
            refuse_bad_json(path)
        raise DataError(f"{files.name} cannot be read: {str(error).splitlines()[0]}", code="unreadable-file") from error
    source = _scanned(sources, schema=schema)

    def where(rows: list[int]) -> str:
        return describe_json_rows(files.paths, rows)

    return build(source, columns, on_bad=on_bad, origin=files.name, where=where, row=files.row)


def _refuse_mixed_ids(files: EventFiles, sources: list[Any], columns: Columns, schema: pl.Schema) -> None:
    """Refuse id columns that are text in some lines and another type in others.

    polars reads such a column as text, so that 7 and '7' become the same id. To tell them apart, a text column with
    values that look like another type is read again as that type: all values that are text then become null.
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
        suspected = _scanned(sources, schema=schema).select(suspects).collect(engine="streaming").row(0, named=True)
        for what, (_, dtype) in looks.items():
            if not suspected[what]:
                continue
            if dtype is None:
                count = sum(_count_objects(path, name) for path in files.paths)
            else:
                again = _scanned(sources, schema={**schema, name: dtype}, ignore_errors=True)
                count = again.select(column.count()).collect(engine="streaming").item()
            if count:
                rows = _scanned(sources, schema=schema).select(pl.len()).collect(engine="streaming").item()
                raise DataError(
                    f"{files.name}: column {name!r} mixes types: {count:,} of {rows:,} rows hold {what}, the "
                    "others text; ids are all integers or all text",
                    code="column-type",
                    field=name,
                )


def _count_objects(path: Path, name: str) -> int:
    with opened_text(path) as stream:
        return sum(isinstance((_json_object(line) or {}).get(name), dict) for line in stream)


def _json_object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # also an integer of thousands of digits
        return None
    return value if isinstance(value, dict) else None


def refuse_bad_json(path: Path) -> None:
    """Raise DataError with the first line that is not a JSON object, if there is one."""
    with opened(path) as stream:
        for number, line in enumerate(stream, 1):
            if line.strip() and _json_object(line) is None:
                raise DataError(
                    f"{path}: line {number:,} is not a JSON object: {shortened(line)}; expected one object per line",
                    code="unreadable-file",
                )


def describe_json_rows(paths: list[Path], rows: list[int]) -> str:
    """Return the line numbers and texts of rows, counted from 0 over all files without blank lines."""
    described: list[str] = []
    row = 0
    for path in paths:
        of = f" of {path.name}" if len(paths) > 1 else ""
        with opened(path) as stream:
            for number, line in enumerate(stream, 1):
                if not line.strip():
                    continue
                if row in rows:
                    described.append(f"line {number:,}{of} {shortened(line)}")
                    if len(described) == len(rows):
                        return ", ".join(described)
                row += 1
    return ", ".join(described)


# --- text files ------------------------------------------------------------------------------------------------------


def _header(path: Path, separator: str) -> list[str]:
    try:
        with opened(path) as stream:
            lines = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""), delimiter=separator)
            names = next((fields for fields in lines if fields), None)
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except csv.Error as error:
        raise DataError(f"{path}: the header cannot be read: {error}", code="unreadable-file") from error
    if names is None:
        raise DataError(f"{path} is empty: it has no header line", code="empty-data")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        count = names.count(repeated[0])
        raise DataError(
            f"{path}: column {repeated[0]!r} appears {count} times in the header; column names must be unique",
            field=repeated[0],
        )
    return names


@dataclass(frozen=True, eq=False)
class TextFrame:
    """Text files as a lazy frame. All columns are text; a blank line is a row of nulls."""

    frame: pl.LazyFrame
    header: list[str]
    surveys: list[LineCounts]  # one per file
    n_records: int  # rows without blank lines
    n_ragged: int  # dropped lines, whose number of fields differs from the header's


def scan_text(files: EventFiles, on_bad: OnBad = "raise", columns: Columns | None = None) -> TextFrame:
    """Scan text files as a lazy frame. They must have the same header, which must contain the `columns` if given.

    Lines with a wrong number of fields are an error or, with `on_bad="drop"`, dropped and counted.
    """
    header = list(files.names) or _common_header(files, columns)
    surveys = [survey(path, files.separator, len(header)) for path in files.paths]
    n_ragged = sum(counts.n_ragged for counts in surveys)
    if n_ragged and on_bad == "raise":
        raise _ragged_error(files, surveys, len(header))
    n_records = sum(counts.n_records - files.headed for counts in surveys) - n_ragged
    if not n_records and files.pattern:  # polars cannot scan an empty file without a header
        what = f"none of {n_ragged:,} lines is" if n_ragged else "it has no rows; expected lines"
        raise DataError(f"{files.name}: {what} written as {files.pattern}", code="empty-data")
    sources: list[Any] = list(files.paths)
    if n_ragged:
        sources = [without_ragged(path, files.separator, len(header)) for path in files.paths]
    frame = pl.scan_csv(
        sources,
        separator=files.separator,
        # If no field begins with a quote, quotes are part of the text: 5" nails.
        quote_char='"' if any(counts.n_quoted for counts in surveys) else None,
        has_header=files.headed,
        # Without a header, polars would count the columns in a blank first line.
        skip_lines=0 if files.headed or n_ragged else surveys[0].n_leading,
        infer_schema=False,
        new_columns=header,
        glob=False,
    )
    return TextFrame(frame, header, surveys, n_records, n_ragged)


def _build_from_text(files: EventFiles, columns: Columns, on_bad: OnBad) -> EncodedEvents:
    text = scan_text(files, on_bad, columns)
    surveys, n_records, n_ragged = text.surveys, text.n_records, text.n_ragged
    if not n_records and not n_ragged:
        raise DataError(
            f"{files.name}: there are no rows below the header; expected one line per {files.row}", code="empty-data"
        )

    def where(rows: list[int]) -> str:
        return _describe_rows(files, surveys, rows)

    try:
        frame = text.frame.with_columns(**files.typed)
        origin = f"{files.name}, lines written as {files.pattern}" if files.pattern else files.name
        built = build(frame, columns, on_bad=on_bad, origin=origin, n_records=n_records, where=where, row=files.row)
    except DataError as error:
        if not isinstance(error.__cause__, pl.exceptions.PolarsError):
            raise
        for path, counts in zip(files.paths, surveys):
            _refuse_other_encodings(path)
            if counts.stray_line:
                raise DataError(
                    f"{error}. Line {counts.stray_line:,} of {path.name} has a quote inside a field",
                    code="unreadable-file",
                    hint="quote the whole field and double the quotes in it",
                ) from error
        raise
    if n_ragged:
        what = f"that are not {files.pattern}" if files.pattern else "with another number of fields than the header"
        built.dropped[f"lines {what}"] = n_ragged
    return built


def _common_header(files: EventFiles, columns: Columns | None) -> list[str]:
    """Return the columns of the files; all files must have the same ones, including the requested `columns`."""
    header = _header(files.paths[0], files.separator)
    for path in files.paths[1:]:
        if (other := _header(path, files.separator)) != header:
            raise DataError(
                f"{path} has the columns {other}, {files.paths[0]} has {header}; expected the same columns",
                code="missing-column",
            )
    missing = [name for name in columns.all if name not in header] if columns is not None else []
    if columns is not None and missing:
        hint: str | None = None
        for mark, word in ((";", "a semicolon"), ("\t", "a tab"), ("|", "a bar"), (",", "a comma")):
            if len(header) == 1 and mark in header[0]:
                way_out = Message("pass {separator}", separator=mark)
                if files.row != "event":
                    way_out = Message("use commas, or tabs in a .tsv")
                hint = Message("is the separator {}? Then {}", word, way_out)
                break
        if len(missing) == len(columns.all) and any(_is_number(name) for name in header):
            names = ",".join(columns.all)
            hint = f"is this the first {files.row}? Then put a header line above it, such as {names}"
            raise no_column(files.name, missing[0], header, hint, NoTableError)
        raise no_column(files.name, missing[0], header, hint)
    return header


def _is_number(text: str) -> bool:
    try:
        return bool(text) and float(text) == float(text)
    except ValueError:
        return False


def _ragged_error(files: EventFiles, surveys: list[LineCounts], width: int) -> DataError:
    path, bad = next((path, counts) for path, counts in zip(files.paths, surveys) if counts.n_ragged)
    first, *more = bad.ragged_lines
    # In a public layout the separator may be two characters: the pattern is clearer than a number of fields.
    count = "" if files.pattern else f" has {bad.ragged_fields}"
    lines = f"line {first:,} of {path.name}{count}: {lines_at(path, [first])[0]}"
    if more:
        lines += f"; also line{'s' * (len(more) > 1)} {', '.join(f'{line:,}' for line in more)}"
    n_ragged, n_lines = sum(counts.n_ragged for counts in surveys), sum(counts.n_records for counts in surveys)
    expected = f"do not have the {width} fields of the header"
    if files.pattern:
        expected = f"are not written as {files.pattern}"
    message = f"{files.name}: {n_ragged:,} of {n_lines:,} lines {expected} ({lines})"
    hint = fix_or_drop("file", "lines") if files.row == "event" else "Fix the file"
    return DataError(message, code="bad-rows", hint=hint)


def _describe_rows(files: EventFiles, surveys: list[LineCounts], rows: list[int]) -> str:
    """Return line numbers and texts, such as line 8 '3,17,abc', of those rows that are in the first file with any."""
    before = 0
    for path, counts in zip(files.paths, surveys):
        height = counts.n_records + counts.n_blank - files.headed
        here = [row - before for row in rows if row - before < height]
        if here:
            lines = lines_of_rows(path, here, counts, files.separator, header=files.headed)
            of = f" of {path.name}" if len(files.paths) > 1 else ""
            return ", ".join(f"line {line:,}{of} {text}" for line, text in zip(lines, lines_at(path, lines)))
        before += height
    return f"row {rows[0] + 1:,}"


def _refuse_other_encodings(path: Path) -> None:
    with opened(path) as stream:
        try:
            for _ in io.TextIOWrapper(stream, encoding="utf-8-sig"):
                pass
        except UnicodeDecodeError:
            raise _not_utf8(path) from None


def _not_utf8(path: Path) -> DataError:
    where = ""
    with opened(path) as stream:
        for number, line in enumerate(stream, 1):
            if "\ufffd" in line.decode("utf-8", "replace"):
                where = f" (first: line {number:,} {shortened(line)})"
                break
    return DataError(
        f"{path} is not UTF-8 text{where}",
        code="unreadable-file",
        hint="convert it, for example with iconv -f latin1 -t utf-8",
    )
