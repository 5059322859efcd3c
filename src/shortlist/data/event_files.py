"""Files of events: which format, which files, and what is wrong with a broken one."""

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

from shortlist._fork import require_polars_threads
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
from shortlist.data.encode import Columns, EncodedEvents, OnBad, build, no_column, polars_errors
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
    """What is there is no table with named columns, as far as one can see; it may be public data in a layout."""


@dataclass(frozen=True)
class EventFiles:
    """The files behind a path, all of one format.

    Text files of a known layout come with the `names` of their columns (whether they are `headed` by a line of names or
    not), the `pattern` a line is written in, and expressions that give columns another type (`typed`; what is null then
    is bad). `row` is what messages call a row; options of how to read are advised for events only.
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
        """What to call them in messages."""
        return str(self.paths[0]) if len(self.paths) == 1 else f"{self.paths[0].parent} ({len(self.paths)} files)"


def find_files(
    path: str | Path,
    format: Format | None = None,  # noqa: A002
    separator: str | None = None,
    *,
    row: str = "event",
) -> EventFiles:
    """The data files at `path`: a file, a folder (searched through), or a glob pattern; `row` as in `EventFiles`."""
    if separator is not None and not (
        isinstance(separator, str) and len(separator) == 1 and separator.isascii() and separator not in '"\r\n'
    ):
        raise SettingError(f"separator={separator!r:.80}; expected one ASCII character such as ';'")
    if format is not None and not (isinstance(format, str) and format in _SUFFIXES.values()):
        raise SettingError(f"format={format!r:.80}; expected one of {', '.join(sorted(set(_SUFFIXES.values())))}")
    place = as_path(path)
    text = str(place)
    if place.is_dir():
        found = [
            one
            for one in sorted(place.rglob("*"))
            if one.is_file()
            and not any(part.startswith((".", "_")) for part in one.relative_to(place).parts)
            and (format is not None or _format_of(one) is not None)
        ]
        if not found:
            raise _no_data(place)
    elif place.exists():
        found = [place]
    elif glob.has_magic(text):
        found = [Path(one) for one in sorted(glob.glob(text, recursive=True)) if Path(one).is_file()]
        if not found:
            raise DataError(f"no file matches {text}")
    else:
        raise no_such_path(place)
    formats = {format or _format_of(one) for one in found}
    if len(formats) > 1:
        kinds = ", ".join(sorted({one.suffix for one in found}))
        way_out = "pass format=, or" if row == "event" else "pass"
        raise DataError(f"{text} holds files of several formats ({kinds}); {way_out} a pattern such as '*.parquet'")
    (kind,) = formats
    if kind is None:
        refuse_other_content(found[0], None, row)
        way_out = "pass format=" if row == "event" else f"or .txt, with one {row} a line"
        raise NoTableError(
            f"{text}: cannot tell the format from the name {found[0].name!r}; expected {_KNOWN}; {way_out}"
        )
    for one in found:
        refuse_other_content(one, kind, row)
    if separator is not None and kind not in ("csv", "tsv"):
        raise SettingError(f"separator={separator!r} changes nothing for files of the format {kind}; leave it out")
    return EventFiles(found, kind, separator or ("\t" if kind == "tsv" else ","), row=row)


def as_path(given: object) -> Path:
    """The path that was given; DataError where it is none, such as a frame."""
    if not isinstance(given, str | PathLike) or not str(given):
        is_frame = hasattr(given, "columns") or hasattr(given, "__arrow_c_stream__")
        hint = "; for a frame there is from_frame" if is_frame else ""
        raise DataError(
            f"expected the path of a file or a folder, got {f'{given!r:.80}' if not is_frame else type(given).__name__}"
            f"{hint}"
        )
    try:
        place = Path(given)
        place.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # nothing there, or a pattern: told elsewhere
    except (OSError, ValueError, TypeError) as error:  # a name that is too long, one with NUL in it, a path of bytes
        raise DataError(f"no such file or folder: {str(given)!r:.200}: {error!s:.80}") from None
    return place


def _no_data(folder: Path) -> DataError:
    names = sorted(one.name for one in folder.iterdir())
    seen = [name for name in names if not name.startswith((".", "_"))]
    what = f"holds no data files, only {', '.join(seen[:5])}{' …' * (len(seen) > 5)}"
    if not seen:
        what = f"holds no data files, only hidden ones such as {names[0]}" if names else "is empty"
    return NoTableError(f"folder {folder} {what}; expected {_KNOWN}")


def no_such_path(place: Path) -> DataError:
    """Nothing is there; something with a name like it may be."""
    parent = place.parent
    if not parent.is_dir():
        return DataError(f"no such file or folder: {place}; there is no folder {parent} either")
    near = difflib.get_close_matches(place.name, [one.name for one in parent.iterdir()], 3, 0.75)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return DataError(f"no such file or folder: {place}{hint}")


def column_names(files: EventFiles) -> list[str]:
    """The columns of the first file."""
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
    """Refuse Parquet files whose times have a time zone in some only: polars takes all for what the first one has."""
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
            f"{zone} in {other.name}; give all of them a time zone, or none"
        )


def _format_of(path: Path) -> Format | None:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def scan(files: EventFiles) -> pl.LazyFrame:
    """Parquet files or JSON lines as a lazy frame; for text there is `scan_text`."""
    if files.format == "parquet":
        return pl.scan_parquet(files.paths, hive_partitioning=False, glob=False, extra_columns="ignore")
    return scan_json(files.paths)


# --- JSON lines ------------------------------------------------------------------------------------------------------


def scan_json(paths: list[Path], named: Collection[str] = (), **options: Any) -> pl.LazyFrame:
    """Files of JSON lines. Half of a surrogate pair makes null of a text in the `named` columns."""
    return _scanned(_json_sources(paths, named), **options)


def _scanned(sources: list[Any], **options: Any) -> pl.LazyFrame:
    return pl.scan_ndjson(sources, **{"infer_schema_length": None} | options)


def _json_sources(paths: list[Path], named: Collection[str]) -> list[Any]:
    """Files as polars reads them: those that begin with a mark of UTF-8 or hold lone surrogates go into memory."""
    if any(has_surrogates(path) for path in paths):
        return [without_surrogates(path, named) for path in paths]
    if any(_is_marked(path) for path in paths):
        return [_unmarked(path) for path in paths]
    return [glob.escape(str(path)) for path in paths]  # they are files, whatever stars are in their names


def _is_marked(path: Path) -> bool:
    with opened(path) as stream:
        return stream.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8


def _unmarked(path: Path) -> bytes:
    with opened_text(path) as stream:
        return stream.read()


def _build_from_json(files: EventFiles, columns: Columns, on_bad: OnBad) -> EncodedEvents:
    sources = _json_sources(files.paths, columns.all)
    if on_bad == "raise" and isinstance(sources[0], bytes):
        drop = ", or pass on_bad='drop' to leave such rows out" if files.row == "event" else ""
        for path in files.paths:
            refuse_surrogates(path, columns.all, drop)
    try:
        schema = _scanned(sources).collect_schema()  # reads everything, so it is handed on
        _refuse_mixed_ids(files, sources, columns, schema)
    except (pl.exceptions.PolarsError, OSError) as error:
        for path in files.paths:
            refuse_bad_json(path)
        raise DataError(f"{files.name} cannot be read: {str(error).splitlines()[0]}") from error
    source = _scanned(sources, schema=schema)

    def where(rows: list[int]) -> str:
        return json_in_words(files.paths, rows)

    return build(source, columns, on_bad=on_bad, origin=files.name, where=where, row=files.row)


def _refuse_mixed_ids(files: EventFiles, sources: list[Any], columns: Columns, schema: pl.Schema) -> None:
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
        found = _scanned(sources, schema=schema).select(suspects).collect(engine="streaming").row(0, named=True)
        for what, (_, dtype) in looks.items():
            if not found[what]:
                continue
            if dtype is None:
                count = sum(_count_objects(path, name) for path in files.paths)
            else:
                again = _scanned(sources, schema={**schema, name: dtype}, ignore_errors=True)
                count = again.select(column.count()).collect(engine="streaming").item()
            if count:
                rows = _scanned(sources, schema=schema).select(pl.len()).collect(engine="streaming").item()
                raise DataError(
                    f"{files.name}: column {name!r} mixes types: {count:,} of {rows:,} rows hold {what}, others "
                    "text; ids are all integers or all text"
                )


def _count_objects(path: Path, name: str) -> int:
    with opened_text(path) as stream:
        return sum(isinstance((_json_object(line) or {}).get(name), dict) for line in stream)


def _json_object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):  # also an integer of thousands of digits
        return None
    return found if isinstance(found, dict) else None


def refuse_bad_json(path: Path) -> None:
    """Look for the line that cannot be read."""
    with opened(path) as stream:
        for number, line in enumerate(stream, 1):
            if line.strip() and _json_object(line) is None:
                raise DataError(
                    f"{path}: line {number:,} is not a JSON object: {shortened(line)}; expected one object a line"
                )


def json_in_words(paths: list[Path], rows: list[int]) -> str:
    """Where rows, counted from 0 over all files, stand and what they say; blank lines are no rows."""
    said: list[str] = []
    row = 0
    for path in paths:
        of = f" of {path.name}" if len(paths) > 1 else ""
        with opened(path) as stream:
            for number, line in enumerate(stream, 1):
                if not line.strip():
                    continue
                if row in rows:
                    said.append(f"line {number:,}{of} {shortened(line)}")
                    if len(said) == len(rows):
                        return ", ".join(said)
                row += 1
    return ", ".join(said)


# --- text files ------------------------------------------------------------------------------------------------------


def _header(path: Path, separator: str) -> list[str]:
    try:
        with opened(path) as stream:
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


@dataclass(frozen=True, eq=False)
class TextFrame:
    """Text files as a lazy frame: every column is text, and a blank line is a row of nulls."""

    frame: pl.LazyFrame
    header: list[str]
    surveys: list[LineCounts]  # a file each
    n_records: int  # rows that are no blank lines
    n_ragged: int  # lines with another number of fields than the header; those are left out


def scan_text(files: EventFiles, on_bad: OnBad = "raise", columns: Columns | None = None) -> TextFrame:
    """The lines of text files, which must have a header in common and hold the `columns` where those are named.

    Lines with another number of fields are refused, or, with `on_bad="drop"`, left out and counted.
    """
    header = list(files.names) or _common_header(files, columns)
    surveys = [survey(path, files.separator, len(header)) for path in files.paths]
    n_ragged = sum(one.n_ragged for one in surveys)
    if n_ragged and on_bad == "raise":
        raise DataError(_ragged_message(files, surveys, len(header)))
    n_records = sum(one.n_records - files.headed for one in surveys) - n_ragged
    if not n_records and files.pattern:  # without a header polars could not make anything of it
        what = f"none of {n_ragged:,} lines is" if n_ragged else "there are no rows; expected lines"
        raise DataError(f"{files.name}: {what} written as {files.pattern}")
    sources: list[Any] = list(files.paths)
    if n_ragged:
        sources = [without_ragged(path, files.separator, len(header)) for path in files.paths]
    frame = pl.scan_csv(
        sources,
        separator=files.separator,
        # Where no field begins with a quote, quotes are part of the text: 5" nails.
        quote_char='"' if any(one.n_quoted for one in surveys) else None,
        has_header=files.headed,
        # Where there is no header, polars would take a blank first line for the columns.
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
        raise DataError(f"{files.name}: there are no rows below the header; expected a line {_a(files.row)}")

    def where(rows: list[int]) -> str:
        return _lines_in_words(files, surveys, rows)

    try:
        frame = text.frame.with_columns(**files.typed)
        origin = f"{files.name}, lines written as {files.pattern}" if files.pattern else files.name
        built = build(frame, columns, on_bad=on_bad, origin=origin, n_records=n_records, where=where, row=files.row)
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
        what = f"that are not {files.pattern}" if files.pattern else "with another number of fields than the header"
        built.dropped[f"lines {what}"] = n_ragged
    return built


def _common_header(files: EventFiles, columns: Columns | None) -> list[str]:
    """The columns of the files, which must agree and must hold those that are asked for."""
    header = _header(files.paths[0], files.separator)
    for path in files.paths[1:]:
        if (other := _header(path, files.separator)) != header:
            raise DataError(f"{path} has the columns {other}, but {files.paths[0]} has {header}; they must agree")
    missing = [name for name in columns.all if name not in header] if columns is not None else []
    if columns is not None and missing:
        hint = ""
        for mark, word in ((";", "a semicolon"), ("\t", "a tab"), ("|", "a bar"), (",", "a comma")):
            if len(header) == 1 and mark in header[0]:
                way_out = f"pass separator={mark!r}" if files.row == "event" else "put commas there, or tabs in a .tsv"
                hint = f"; is the separator {word}? Then {way_out}"
                break
        if len(missing) == len(columns.all) and any(_is_number(name) for name in header):
            names = ",".join(columns.all)
            hint = f"; is this the first {files.row}? Then put a header line above it that names the columns, such as "
            hint += names
            raise NoTableError(str(no_column(files.name, missing[0], header, hint)))
        raise no_column(files.name, missing[0], header, hint)
    return header


def _a(word: str) -> str:
    return f"a{'n' * word.startswith(tuple('aeiou'))} {word}"


def _is_number(text: str) -> bool:
    try:
        return bool(text) and float(text) == float(text)
    except ValueError:
        return False


def _ragged_message(files: EventFiles, surveys: list[LineCounts], width: int) -> str:
    path, bad = next((path, one) for path, one in zip(files.paths, surveys) if one.n_ragged)
    first, *others = bad.ragged_lines
    # In a known layout, whose separator may be two characters, the pattern says it better than a number.
    count = "" if files.pattern else f" has {bad.ragged_fields}"
    lines = f"line {first:,} of {path.name}{count}: {lines_at(path, [first])[0]}"
    if others:
        lines += f"; also line{'s' * (len(others) > 1)} {', '.join(f'{line:,}' for line in others)}"
    n_ragged, n_lines = sum(one.n_ragged for one in surveys), sum(one.n_records for one in surveys)
    expected = f"do not have the {width} fields of the header"
    if files.pattern:
        expected = f"are not written as {files.pattern}"
    drop = ", or pass on_bad='drop' to leave those lines out" if files.row == "event" else ""
    return f"{files.name}: {n_ragged:,} of {n_lines:,} lines {expected} ({lines}). Mend the file{drop}"


def _lines_in_words(files: EventFiles, surveys: list[LineCounts], rows: list[int]) -> str:
    """Where rows stand and what they say: line 8 '3,17,abc'; of several files, in the first one with such rows."""
    before = 0
    for path, one in zip(files.paths, surveys):
        height = one.n_records + one.n_blank - files.headed
        here = [row - before for row in rows if row - before < height]
        if here:
            lines = lines_of_rows(path, here, one, files.separator, header=files.headed)
            of = f" of {path.name}" if len(files.paths) > 1 else ""
            return ", ".join(f"line {line:,}{of} {text}" for line, text in zip(lines, lines_at(path, lines)))
        before += height
    return f"row {rows[0] + 1:,}"


def _refuse_other_text(path: Path) -> None:
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
    return DataError(f"{path} is not UTF-8 text{where}; convert it, for example with iconv -f latin1 -t utf-8")
