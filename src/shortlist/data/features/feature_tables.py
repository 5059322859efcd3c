"""Read tables with one row per id from frames or files, and check their columns and ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from shortlist._fork import polars_threads, require_polars_threads
from shortlist.data.csv_lines import survey, without_ragged
from shortlist.data.encode import Columns, OnBad, fix_or_drop, float_ids, polars_errors, whole_floats
from shortlist.data.event_files import EventFiles, Format, build_from_files, column_names, find_files, scan_json
from shortlist.data.frames import column, stream
from shortlist.data.vocabulary import Vocabulary, n_distinct
from shortlist.errors import DataError, SettingError

_FRAMES = "a frame with named columns (polars, pandas, Arrow, a mapping)"


@dataclass(frozen=True, eq=False)
class IdTable:
    """A table with one row per id.

    Attributes:
        ids: the ids, one per row.
        columns: the requested columns, by name.
        unused: the names of the other columns.
        from_text: whether the table comes from a text file, where every column is text.
        origin: what messages call the table.
        dropped: the number of dropped rows, by cause.
    """

    ids: Vocabulary
    columns: dict[str, pl.Series]
    unused: tuple[str, ...]
    from_text: bool
    origin: str
    dropped: dict[str, int]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class ColumnChoice:
    """The columns to read besides the ids.

    Attributes:
        names: required columns.
        ignore: columns to drop; all other columns are read too. None: read only `names`.
    """

    names: Sequence[str] = ()
    ignore: Sequence[str] | None = None


def id_columns(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Check the name or names of the id columns."""
    names = (columns,) if isinstance(columns, str) else tuple(columns) if isinstance(columns, Sequence) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise SettingError(f"id is {columns!r}; expected the name of a column, or a list of names", field="id")
    if len(set(names)) < len(names):
        raise SettingError(f"id is {columns!r}", field="id", hint="name each column once")
    return names


def table_of(frame: Any, ids: tuple[str, ...], wanted: ColumnChoice, on_bad: OnBad) -> IdTable:
    """Return the ids and the wanted columns of a frame of any library."""
    origin = "the frame"
    make: Callable[[Any, list[str], tuple[str, ...]], pl.DataFrame]
    if isinstance(frame, Mapping):
        names, make = list(frame), _from_mapping
    elif isinstance(frame, list | tuple | np.ndarray | str | Path):
        raise DataError(
            f"expected {_FRAMES}, got {type(frame).__name__}", field="frame", hint="for a file use Features.read"
        )
    elif type(frame).__module__.startswith("pandas") and hasattr(frame, "columns"):
        names, make = list(frame.columns), _from_pandas
    else:
        if not isinstance(frame, pl.DataFrame | pl.LazyFrame):
            if not hasattr(frame, "__arrow_c_stream__"):
                raise DataError(f"cannot read features from {type(frame).__name__}; expected {_FRAMES}", field="frame")
            frame = stream(frame)
        with polars_errors(origin):
            names = frame.columns if isinstance(frame, pl.DataFrame) else list(frame.collect_schema())
            make = _from_polars
    needed, unused = _needed(names, ids, wanted, origin, getattr(getattr(frame, "index", None), "names", ()))
    with polars_errors(origin):
        return _checked(make(frame, needed, ids), ids, unused, on_bad, origin)


def read_table(
    path: str | Path,
    ids: tuple[str, ...],
    wanted: ColumnChoice,
    on_bad: OnBad,
    format: Format | None = None,  # noqa: A002
    separator: str | None = None,
) -> IdTable:
    """Return the ids and the wanted columns of a file, a folder or a pattern."""
    require_polars_threads("reading features from a file")
    files = find_files(path, format, separator)
    # Read the ids once like those of interactions, to get the same types and the same errors for broken files. Null
    # ids and ragged lines are dropped here and counted below.
    types = build_from_files(files, Columns(ids, ids[0]), "drop").contexts.frame.schema
    needed, unused = _needed(column_names(files), ids, wanted, files.name)
    with polars_errors(files.name):
        if files.format in ("csv", "tsv"):
            return _read_text(files, ids, needed, unused, on_bad, types)
        if files.format == "parquet":
            source = pl.scan_parquet(files.paths, hive_partitioning=False, glob=False, extra_columns="ignore")
        else:
            source = scan_json(files.paths, ids)
        frame = source.select(cs.by_name(*needed)).collect(engine="streaming")
    return _checked(frame, ids, unused, on_bad, files.name)


def _read_text(
    files: EventFiles, ids: tuple[str, ...], needed: list[str], unused: tuple[str, ...], on_bad: OnBad, types: pl.Schema
) -> IdTable:
    width = len(needed) + len(unused)
    surveys = [survey(path, files.separator, width) for path in files.paths]
    n_ragged = sum(counts.n_ragged for counts in surveys)
    sources: list[Any] = list(files.paths)
    if n_ragged:
        if on_bad == "raise":
            build_from_files(files, Columns(ids, ids[0]), "raise")  # raises an error that shows them
        sources = [without_ragged(path, files.separator, width) for path in files.paths]
    text = pl.scan_csv(
        sources,
        separator=files.separator,
        quote_char='"' if any(counts.n_quoted for counts in surveys) else None,
        infer_schema=False,
        glob=False,
    ).collect(engine="streaming")
    # polars reads both a blank line and ',,' as a row of nulls, but ',,' counts as a row without an id.
    frame = text.filter(~pl.all_horizontal(pl.all().is_null()))
    n_empty = sum(counts.n_records - 1 for counts in surveys) - n_ragged - frame.height
    if not 0 <= n_empty <= text.height - frame.height:
        raise DataError(
            f"{files.name}: {n_empty + frame.height:,} lines were read as {frame.height:,} rows",
            code="unreadable-file",
            hint="check the quotes",
        )
    dropped = {"lines with another number of fields than the header": n_ragged} if n_ragged else {}
    frame = frame.select(cs.by_name(*needed))
    return _checked(frame, ids, unused, on_bad, files.name, n_empty=n_empty, types=types, dropped=dropped)


def _needed(
    names: list[Any], ids: tuple[str, ...], wanted: ColumnChoice, origin: str, index: Sequence[Any] = ()
) -> tuple[list[str], tuple[str, ...]]:
    """Return the columns to read, each once, and the unused columns."""
    not_ignored = () if wanted.ignore is None else [name for name in names if name not in wanted.ignore]
    needed = list(dict.fromkeys([*ids, *wanted.names, *not_ignored]))
    for name in [*needed, *(wanted.ignore or ())]:
        if not isinstance(name, str):
            raise DataError(f"{origin}: a column is called {name!r}; names must be text")
        if name in needed and (name == "*" or (name.startswith("^") and name.endswith("$"))):
            raise DataError(
                f"{origin}: polars reads the column name {name!r} as a pattern", field=name, hint="rename the column"
            )
        if name not in names:
            columns = ", ".join(map(repr, names)) or "none"
            hint = "it is in the index: call reset_index() first" if name in index else None
            message = f"{origin}: no column {name!r}; columns found: {columns}"
            raise DataError(message, code="missing-column", field=name, hint=hint)
        if names.count(name) > 1:
            raise DataError(
                f"{origin} has {names.count(name)} columns {name!r}; column names must be unique", field=name
            )
    return needed, tuple(str(name) for name in names if name not in needed)


def _from_polars(frame: pl.DataFrame | pl.LazyFrame, needed: list[str], ids: tuple[str, ...]) -> pl.DataFrame:
    if isinstance(frame, pl.LazyFrame):
        require_polars_threads("collecting a lazy frame")
        return frame.select(cs.by_name(*needed)).collect()
    return pl.DataFrame([frame.get_column(name) for name in needed])


def _from_mapping(data: Mapping[str, Any], needed: list[str], ids: tuple[str, ...]) -> pl.DataFrame:
    series = [column(name, data[name], ids=name in ids) for name in needed]
    lengths = {values.name: len(values) for values in series}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the columns differ in length: {lengths}")
    return pl.DataFrame(series)


def _from_pandas(frame: Any, needed: list[str], ids: tuple[str, ...]) -> pl.DataFrame:
    series = []
    for name in needed:
        if not polars_threads():
            series.append(column(name, frame[name].to_numpy(), ids=name in ids))
            continue
        try:
            series.append(stream(frame[[name]]).collect().to_series())
        except ImportError:  # polars needs pyarrow for pandas frames
            series.append(column(name, frame[name].to_numpy(), ids=name in ids))
        except DataError as error:
            types = ", ".join(sorted({type(value).__name__ for value in frame[name]}))
            raise DataError(
                f"the frame: column {name!r} mixes types or holds objects ({types}); expected one type",
                field=name,
                code="column-type",
            ) from error
    return pl.DataFrame(series)


def _checked(
    frame: pl.DataFrame,
    ids: tuple[str, ...],
    unused: tuple[str, ...],
    on_bad: OnBad,
    origin: str,
    *,
    n_empty: int = 0,
    types: pl.Schema | None = None,
    dropped: dict[str, int] | None = None,
) -> IdTable:
    """Split a frame into ids and columns; refuse ids that are null, repeated or of a wrong type.

    `n_empty` rows with null ids were removed before. `types` are the types of the ids if the frame is all text.
    """
    dropped = dict(dropped or {})
    columns = {column.name: column for column in frame.get_columns()}
    floats = {name: columns[name].dtype for name in ids if columns[name].dtype.is_float()}
    if on_bad == "drop" and floats:
        require_polars_threads("dropping rows whose ids are missing")
        for name in whole_floats(frame.lazy(), floats, origin):
            columns[name] = columns[name].fill_nan(None).cast(pl.Int64)
    good = np.ones(frame.height, np.bool_)
    for name in ids:
        null = columns[name].is_null().to_numpy()
        count = int(null.sum()) + n_empty
        if count and on_bad == "raise":
            raise DataError(
                f"{origin}: column {name!r} is null in {count:,} of {frame.height + n_empty:,} rows",
                code="bad-rows",
                field=name,
                hint=fix_or_drop("data", "rows"),
            )
        if newly := int((null & good).sum()) + n_empty:
            dropped[f"{name!r} are null"] = newly
        good, n_empty = good & ~null, 0
    if not good.all():
        columns = {name: column.filter(pl.Series(good)) for name, column in columns.items()}
    keys = pl.DataFrame([_typed(columns[name], types) for name in ids])
    if repeats := keys.height - n_distinct(keys):
        counts = Counter(keys.rows())
        first = next(row for row in counts if counts[row] > 1)
        example, on = (first, list(ids)) if len(ids) > 1 else (first[0], ids[0])
        raise DataError(
            f"{repeats:,} of {keys.height:,} rows of {origin} {'repeats' if repeats == 1 else 'repeat'} an earlier id "
            f"(first: {example!r:.80}); features need one row per id",
            code="bad-rows",
            hint=f"Keep one, for example with frame.unique({on!r}, keep='last') in polars",
        )
    return IdTable(Vocabulary(keys), columns, unused, types is not None, origin, dropped)


def _typed(column: pl.Series, types: pl.Schema | None) -> pl.Series:
    """Convert ids to the type that `Interactions` uses."""
    if types is not None:
        return column.cast(types[column.name])
    if column.dtype.is_float() and len(column):
        raise float_ids(column.name, column.dtype, advise_drop=True)
    if column.dtype in (pl.Categorical, pl.Enum) or not len(column):  # an empty column may have any type
        return column if column.dtype.is_integer() else column.cast(pl.String)
    return column
