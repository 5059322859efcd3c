"""Tables with a row for each id, from a frame or from files: which columns there are, and whether the ids are sound."""

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
from shortlist.data.encode import Columns, OnBad, polars_errors, whole_floats
from shortlist.data.event_files import EventFiles, Format, build_from_files, column_names, find_files, scan_json
from shortlist.data.frames import column, stream
from shortlist.data.vocabulary import Vocabulary, n_distinct
from shortlist.errors import DataError, SettingError

_FRAMES = "a frame with named columns (polars, pandas, Arrow, a mapping)"


@dataclass(frozen=True, eq=False)
class IdTable:
    """A table with a row for each id.

    Attributes:
        ids: the ids, a row each.
        columns: the other columns that were asked for, by name.
        unused: the columns that were left out.
        from_text: whether it comes from a file in which everything is text.
        origin: what to call it in messages.
        dropped: rows that could not be used and were left out, by cause.
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
    """Which columns to take beside the ids.

    Attributes:
        names: columns that must be there.
        ignore: columns to leave out; all others are taken. None: no others are taken.
    """

    names: Sequence[str] = ()
    ignore: Sequence[str] | None = None


def id_columns(given: str | Sequence[str]) -> tuple[str, ...]:
    """Check the name of the column of ids, or the names of several."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise SettingError(f"id is {given!r}; expected the name of a column, or a list of names")
    if len(set(names)) < len(names):
        raise SettingError(f"id is {given!r}; each column must be there once")
    return names


def table_of(frame: Any, ids: tuple[str, ...], wanted: ColumnChoice, on_bad: OnBad) -> IdTable:
    """The wanted columns of whatever frame the user has, beside its ids."""
    origin = "the frame"
    make: Callable[[Any, list[str], tuple[str, ...]], pl.DataFrame]
    if isinstance(frame, Mapping):
        found, make = list(frame), _from_mapping
    elif isinstance(frame, list | tuple | np.ndarray | str | Path):
        raise DataError(f"expected {_FRAMES}, got {type(frame).__name__}; for a file use Features.read")
    elif type(frame).__module__.startswith("pandas") and hasattr(frame, "columns"):
        found, make = list(frame.columns), _from_pandas
    else:
        if not isinstance(frame, pl.DataFrame | pl.LazyFrame):
            if not hasattr(frame, "__arrow_c_stream__"):
                raise DataError(f"cannot take features from {type(frame).__name__}; expected {_FRAMES}")
            frame = stream(frame)
        with polars_errors(origin):
            found = frame.columns if isinstance(frame, pl.DataFrame) else list(frame.collect_schema())
            make = _from_polars
    needed, unused = _needed(found, ids, wanted, origin, getattr(getattr(frame, "index", None), "names", ()))
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
    """The wanted columns of a file, a folder or a pattern, beside its ids."""
    require_polars_threads("reading features from a file")
    files = find_files(path, format, separator)
    # The ids are read as those of interactions are: in the same types, and with the same eye for what is wrong with a
    # file. Null ones, and lines with too few fields, are counted here.
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
    n_ragged = sum(one.n_ragged for one in surveys)
    sources: list[Any] = list(files.paths)
    if n_ragged:
        if on_bad == "raise":
            build_from_files(files, Columns(ids, ids[0]), "raise")  # says where they are
        sources = [without_ragged(path, files.separator, width) for path in files.paths]
    text = pl.scan_csv(
        sources,
        separator=files.separator,
        quote_char='"' if any(one.n_quoted for one in surveys) else None,
        infer_schema=False,
        glob=False,
    ).collect(engine="streaming")
    # polars makes a row of nulls of a blank line, and of ',,' too, which is a row without an id.
    frame = text.filter(~pl.all_horizontal(pl.all().is_null()))
    n_empty = sum(one.n_records - 1 for one in surveys) - n_ragged - frame.height
    if not 0 <= n_empty <= text.height - frame.height:
        raise DataError(
            f"{files.name}: {n_empty + frame.height:,} lines were read as {frame.height:,} rows; are quotes in it out "
            "of order?"
        )
    dropped = {"lines with another number of fields than the header": n_ragged} if n_ragged else {}
    frame = frame.select(cs.by_name(*needed))
    return _checked(frame, ids, unused, on_bad, files.name, n_empty=n_empty, types=types, dropped=dropped)


def _needed(
    found: list[Any], ids: tuple[str, ...], wanted: ColumnChoice, origin: str, index: Sequence[Any] = ()
) -> tuple[list[str], tuple[str, ...]]:
    """The columns to read, each once, and the ones left unused."""
    others = () if wanted.ignore is None else [name for name in found if name not in wanted.ignore]
    needed = list(dict.fromkeys([*ids, *wanted.names, *others]))
    for name in [*needed, *(wanted.ignore or ())]:
        if not isinstance(name, str):
            raise DataError(f"{origin}: a column is called {name!r}; names must be text")
        if name in needed and (name == "*" or (name.startswith("^") and name.endswith("$"))):
            raise DataError(f"{origin}: a column is called {name!r}, which polars takes for a pattern; rename it")
        if name not in found:
            columns = ", ".join(map(repr, found)) or "none"
            hint = "; it is in the index: call reset_index() first" if name in index else ""
            raise DataError(f"{origin}: no column {name!r}; columns found: {columns}{hint}")
        if found.count(name) > 1:
            raise DataError(f"{origin}: column {name!r} stands {found.count(name)} times; each name must be there once")
    return needed, tuple(str(name) for name in found if name not in needed)


def _from_polars(frame: pl.DataFrame | pl.LazyFrame, needed: list[str], ids: tuple[str, ...]) -> pl.DataFrame:
    if isinstance(frame, pl.LazyFrame):
        require_polars_threads("collecting a lazy frame")
        return frame.select(cs.by_name(*needed)).collect()
    return pl.DataFrame([frame.get_column(name) for name in needed])


def _from_mapping(data: Mapping[str, Any], needed: list[str], ids: tuple[str, ...]) -> pl.DataFrame:
    series = [column(name, data[name], ids=name in ids) for name in needed]
    lengths = {one.name: len(one) for one in series}
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
        except ImportError:  # polars takes pandas frames by way of pyarrow
            series.append(column(name, frame[name].to_numpy(), ids=name in ids))
        except DataError as error:
            kinds = ", ".join(sorted({type(value).__name__ for value in frame[name]}))
            raise DataError(
                f"the frame: column {name!r} mixes types or holds objects ({kinds}); expected one type throughout"
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
    """Take a frame apart; refuse null ids (`n_empty` more are known to be), repeated ones and those of other types.

    `types` are those of the ids where everything in the frame is text.
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
                f"{origin}: column {name!r}: {count:,} of {frame.height + n_empty:,} ids are null. "
                "Mend the data, or pass on_bad='drop' to leave those rows out"
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
            f"{origin}: {repeats:,} of {keys.height:,} rows repeat the id of an earlier row (first: {example!r:.80}); "
            f"features have one row an id. Keep one, for example with frame.unique({on!r}, keep='last') in polars"
        )
    return IdTable(Vocabulary(keys), columns, unused, types is not None, origin, dropped)


def _typed(column: pl.Series, types: pl.Schema | None) -> pl.Series:
    """Ids as `Interactions` has them."""
    if types is not None:
        return column.cast(types[column.name])
    if column.dtype.is_float() and len(column):
        raise DataError(
            f"column {column.name!r} has type {column.dtype}; ids are integers or strings; whole numbers often turn "
            "into floats where some are missing: pass on_bad='drop' to leave those rows out and read the others as "
            "integers, or drop those rows, then cast the column to an integer type"
        )
    if column.dtype in (pl.Categorical, pl.Enum) or not len(column):  # nothing says of what type no ids are
        return column if column.dtype.is_integer() else column.cast(pl.String)
    return column
