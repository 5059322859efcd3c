"""Encode a lazy frame into the arrays of `Interactions`, in one pass and with little memory.

polars dictionary-encodes each id column batch by batch (with private `Categories`), so the ids of all rows are never in
memory at once. Vocabularies are sorted: codes depend on the set of ids, not on the order of rows or on threads.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import refusal
from shortlist._fork import require_polars_threads
from shortlist._wording import Message
from shortlist.data.csv_lines import SHOWN
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import DataError, SettingError

OnBad: TypeAlias = Literal["raise", "drop"]
Where: TypeAlias = Callable[[list[int]], str]  # row numbers (from 0) to text for a message
_BATCH = 1 << 20
WHOLE_NUMBER = r"^(0|-?[1-9][0-9]*)$"
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)
_NO_TIME, _TIME_EXAMPLE = "cannot be read as a time", "such as 2011-12-01 08:26"  # causes of bad rows
_TIME_SAMPLE = 1000


@dataclass(frozen=True)
class Columns:
    """The names of the context, item, weight and time columns."""

    context: tuple[str, ...]
    item: str
    weight: str | None = None
    time: str | None = None
    published: bool = False  # the data set defines the roles: the user did not request weights

    @classmethod
    def named(cls, context: str | Sequence[str], item: str, weight: str | None, time: str | None) -> Columns:
        """Check the column names that a user passed."""
        several = isinstance(context, Sequence) and not isinstance(context, str)
        contexts: tuple[str, ...] = tuple(context) if several else (context,)  # type: ignore[assignment]
        parts = [*contexts, item, *([] if weight is None else [weight])]
        if not contexts or not all(
            isinstance(name, str) and name for name in [*parts, "time" if time is None else time]
        ):
            raise SettingError(
                f"column names must be text; got context={context!r}, item={item!r}, weight={weight!r}, time={time!r}"
            )
        repeated = [name for name in parts if parts.count(name) > 1]
        if repeated:  # the time column may also be a context or the weight
            raise SettingError(
                f"column {repeated[0]!r} has two roles", field=repeated[0], hint="name a different column for each role"
            )
        return cls(contexts, item, weight, time)

    @property
    def all(self) -> list[str]:
        """The columns to read, each once."""
        optional = [name for name in (self.weight, self.time) if name is not None]
        return list(dict.fromkeys([*self.context, self.item, *optional]))


@dataclass
class EncodedEvents:
    """The vocabularies and arrays of an `Interactions`."""

    contexts: Vocabulary
    items: Vocabulary
    context_codes: npt.NDArray[np.int32]
    item_codes: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32] | None
    times: npt.NDArray[Any] | None
    time_dtype: pl.DataType | None
    dropped: dict[str, int]


@dataclass
class _BadRows:
    """Counts of bad rows by column and cause, with the first row numbers (from 0, header excluded)."""

    rows: int = 0
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    first: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)  # each bad row once, under its first cause

    def note(self, column: str, cause: str, count: int, newly: int, first: Sequence[int] = ()) -> None:
        key = (column, cause)
        self.counts[key] = self.counts.get(key, 0) + count
        examples = self.first.setdefault(key, [])
        examples += first[: SHOWN - len(examples)]
        if newly:
            self.dropped[f"{column!r} {cause}"] = self.dropped.get(f"{column!r} {cause}", 0) + newly

    def error(self, origin: str, where: Where, row: str) -> DataError:
        lines = [
            f"column {column!r} {_in_singular(cause)} in {count:,} of {self.rows:,} rows"
            + (f" (first: {where(first)})" if (first := self.first[column, cause]) else "")
            + (f", expected times {_TIME_EXAMPLE}" if _TIME_EXAMPLE in cause else "")
            for (column, cause), count in self.counts.items()
        ]
        column, _ = next(iter(self.counts))
        hint = fix_or_drop("data", "rows") if row == "event" else "Fix the data"
        return DataError(f"{origin}: {'; '.join(lines)}", code="bad-rows", field=column, hint=hint)


def fix_or_drop(what: str, rows: str) -> Message:
    """Return the advice on bad rows.

    >>> print(fix_or_drop("file", "lines"))
    Fix the file, or pass on_bad='drop' to drop those lines
    """
    return Message("Fix the {}, or pass {on_bad} to drop those {}", what, rows, on_bad="drop")


def _in_singular(cause: str) -> str:
    """Return the cause of bad rows for the value of one row: "are null" becomes "is null"."""
    cause = cause.replace("are ", "is ", 1).replace("whole numbers", "a whole number").replace(_NO_TIME, "not a time")
    return cause.replace(f" {_TIME_EXAMPLE}", "")


def _empty(origin: str) -> DataError:
    return DataError(f"{origin} is empty: it has no rows; expected one row per event", code="empty-data")


def float_ids(name: str, dtype: pl.DataType, advise_drop: bool) -> DataError:
    """Return the error for an id column of a type that is not for ids. Floats are often integers with gaps."""
    hint: str | None = None
    if dtype.is_float():
        drop = Message("pass {on_bad} to drop those rows and read the others as integers, or ", on_bad="drop")
        hint = Message(
            "pandas stores integers as floats if some are missing: {}drop those rows yourself and cast the column to "
            "an integer type",
            drop if advise_drop else "",
        )
    message = f"column {name!r} has type {dtype}; ids are integers or strings"
    return DataError(message, code="column-type", field=name, hint=hint)


def _by_number(rows: list[int]) -> str:
    return f"row {rows[0] + 1:,}"


class _IdColumn:
    """An encoder for one column of ids. With `whole`, it reads floats as integers and NaN as missing."""

    def __init__(
        self, name: str, dtype: pl.DataType, *, from_text: bool, whole: bool = False, advise_drop: bool = False
    ) -> None:
        self.whole = whole
        if whole:
            dtype = pl.Int64()
        if not (dtype.is_integer() or dtype in (pl.String, pl.Categorical) or isinstance(dtype, pl.Enum)):
            if dtype == pl.Null:
                raise DataError(
                    f"column {name!r}: every id is null; expected integers or strings", code="bad-rows", field=name
                )
            raise float_ids(name, dtype, advise_drop)
        self.name = name
        self.dtype = pl.String() if not dtype.is_integer() else dtype
        self.from_text = from_text
        self.categories = pl.Categories.random()
        # polars frees categories that no column uses: this empty column keeps them between batches.
        self.anchor = pl.Series(name, [], dtype=pl.Categorical(self.categories))
        self.chunks: list[npt.NDArray[np.uint32]] = []

    def text(self) -> pl.Expr:
        if self.whole:
            return pl.col(self.name).fill_nan(None).cast(pl.Int64).cast(pl.String)
        return pl.col(self.name).cast(pl.String)

    def physical(self, text: pl.Expr) -> pl.Expr:
        return text.cast(pl.Categorical(self.categories)).to_physical()

    def text_of(self, codes: pl.Series) -> pl.Series:
        """Return the ids of these first codes as text, and free the dictionary: this is its last use."""
        if hasattr(codes.cat, "to"):
            text: pl.Series = codes.cat.to(pl.Categorical(self.categories)).cast(pl.String)
        else:  # polars 1
            text = self.anchor.cat.get_categories().gather(codes)  # type: ignore[attr-defined,unused-ignore]
        del self.anchor, self.categories
        return text

    def typed(self, text: pl.Series) -> pl.Series:
        """Convert ids from text back to their type."""
        text = text.alias(self.name)
        if self.dtype.is_integer():
            return text.cast(self.dtype)
        if self.from_text and len(text) and text.str.contains(WHOLE_NUMBER).all():
            numbers = text.cast(pl.Int64, strict=False)
            if not numbers.null_count():
                return numbers
        return text


def build(
    source: pl.LazyFrame,
    columns: Columns,
    *,
    on_bad: OnBad = "raise",
    origin: str = "the frame",
    n_records: int | None = None,
    where: Where = _by_number,
    row: str = "event",
) -> EncodedEvents:
    """Encode a lazy frame.

    Args:
        source: the data; only the named columns are read.
        columns: their names.
        on_bad: `"raise"` an error for rows that cannot be used, or `"drop"` and count them.
        origin: what messages call the data.
        n_records: for text files (CSV), the number of lines that are not blank; every column is then text. Ids become
            integers if each is an integer in its usual spelling (one '007' keeps them all text).
        where: returns the positions of rows as text for messages.
        row: what messages call a row; only for events do they suggest `on_bad="drop"`.
    """
    require_polars_threads("building interactions")
    from_text = n_records is not None
    if not isinstance(on_bad, str) or on_bad not in ("raise", "drop"):
        raise refusal("on_bad", on_bad, "'raise' or 'drop'")
    with polars_errors(origin):
        schema = source.collect_schema()
    missing = [name for name in columns.all if name not in schema]
    if missing:
        raise no_column(origin, missing[0], list(schema))

    if any(schema[name] == pl.Null for name in (*columns.context, columns.item)):  # also if there are no rows
        with polars_errors(origin):
            if not source.select(pl.len()).collect().item():
                raise _empty(origin)
    integers: list[str] = []
    if on_bad == "drop":
        with polars_errors(origin):
            integers = whole_floats(source, {name: schema[name] for name in (*columns.context, columns.item)}, origin)

    def ids_of(name: str) -> _IdColumn:
        whole, advise = name in integers, on_bad == "raise" and row == "event"
        return _IdColumn(name, schema[name], from_text=from_text, whole=whole, advise_drop=advise)

    parts, item = [ids_of(name) for name in columns.context], ids_of(columns.item)
    expressions = [part.physical(part.text()).alias(f"id{k}") for k, part in enumerate([*parts, item])]
    pair = None
    if len(parts) > 1:
        # A tuple is encoded as the text of its parts' codes, such as "12,7": no memory per row.
        pair = _IdColumn("pair", pl.String(), from_text=False)
        codes = [part.physical(part.text()).cast(pl.String) for part in parts]
        expressions.append(pair.physical(pl.concat_str(codes, separator=",")).alias("pair"))
    if columns.weight is not None:
        expressions.append(_weight(columns.weight, schema[columns.weight], from_text).alias("weight"))
    if columns.time is not None:
        with polars_errors(origin):
            stored, expression = _time(source, columns.time, schema[columns.time])
        expressions.append(expression.alias("time"))

    bad_rows = _BadRows()
    no_time = _NO_TIME
    if columns.time is not None and schema[columns.time] == pl.String:
        no_time += f" {_TIME_EXAMPLE}"
    n_empty = n_taken = 0
    weights: list[npt.NDArray[np.float32]] = []
    times: list[npt.NDArray[Any]] = []
    context = pair or parts[0]

    def take(batch: pl.DataFrame) -> None:
        nonlocal n_empty, n_taken
        height = batch.height
        places = None
        if from_text:  # polars reads a blank line as a row of nulls
            empty = batch.select(pl.all_horizontal(pl.all().is_null())).to_series()
            if empty.any():
                places = np.flatnonzero(~empty.to_numpy())
                batch = batch.filter(~empty)
                n_empty += height - batch.height
        good = _good_rows(batch, [*parts, item], columns, bad_rows, n_taken, places, no_time)
        n_taken += height
        bad_rows.rows += batch.height
        if good is not None:
            batch = batch.filter(good)
        context.chunks.append(_array(batch["pair" if pair else "id0"], np.uint32))
        item.chunks.append(_array(batch[f"id{len(parts)}"], np.uint32))
        if columns.weight is not None:
            weights.append(_array(batch["weight"], np.float32))
        if columns.time is not None:
            times.append(_array(batch["time"], np.float64 if stored.is_float() else np.int64))

    with polars_errors(origin):
        # Not `collect_batches`: in polars 1 it stops at an error without raising it.
        source.select(expressions).sink_batches(take, chunk_size=_BATCH, engine="streaming")
    del expressions  # free the dictionaries
    if n_records is not None:
        n_all_null = n_records - bad_rows.rows  # lines such as ',,' are rows of nulls too
        if not 0 <= n_all_null <= n_empty:
            raise DataError(
                f"{origin}: {n_records:,} lines were read as {bad_rows.rows:,} rows",
                code="unreadable-file",
                hint="check the quotes",
            )
        if n_all_null:
            bad_rows.note(columns.context[0], "are null", n_all_null, n_all_null)
            bad_rows.rows = n_records
    if bad_rows.counts and on_bad == "raise":
        raise bad_rows.error(origin, where, row)
    if not any(len(chunk) for chunk in item.chunks):
        if bad_rows.rows:
            causes = ", ".join(f"{count:,} {what}" for what, count in bad_rows.dropped.items())
            raise DataError(f"{origin}: none of the {bad_rows.rows:,} rows can be used: {causes}", code="empty-data")
        raise _empty(origin)
    dropped = bool(bad_rows.counts)
    contexts, context_codes = _finish_tuples(context, parts, dropped) if pair else _finish(context, dropped)
    items, item_codes = _finish(item, dropped)
    return EncodedEvents(
        contexts,
        items,
        context_codes,
        item_codes,
        _joined(weights) if columns.weight is not None else None,
        _joined(times) if columns.time is not None else None,
        stored if columns.time is not None else None,
        bad_rows.dropped,
    )


def whole_floats(source: pl.LazyFrame, types: Mapping[str, pl.DataType], origin: str) -> list[str]:
    """Return the float columns with missing values (pandas stores integers so); refuse numbers that are not whole."""
    gappy = []
    for name, dtype in types.items():
        if not dtype.is_float():
            continue
        largest = 2**53 if dtype == pl.Float64 else 2**24 if dtype == pl.Float32 else 2**11
        number = pl.col(name).fill_nan(None)
        bad = (number != number.floor()) | (number.abs() > largest)
        counts = [number.is_null().any().alias("gaps"), bad.sum().alias("count"), number.filter(bad).first()]
        gaps, count, first = source.select(counts).collect(engine="streaming").row(0)
        if count:
            raise DataError(
                f"{origin}: column {name!r} has type {dtype}; ids are integers or strings, but {count:,} of its "
                f"numbers are not integers ≤ {largest:,} (first: {first!r})",
                code="column-type",
                field=name,
            )
        if gaps:
            gappy.append(name)
    return gappy


def no_column(
    origin: str, name: str, columns: list[str], hint: str | None = None, kind: type[DataError] = DataError
) -> DataError:
    """Return the error for a missing column; it suggests the most similar name."""
    by_lower = {column.lower(): column for column in columns}
    near = difflib.get_close_matches(name.lower(), by_lower, 1, 0.7)
    if not near:  # user: user_id, UserID
        near = [lower for lower in by_lower if name.lower() in re.split(r"[\W_]|(?<=.)id$", lower)][:1]
    if near and not hint:
        hint = f"did you mean {by_lower[near[0]]!r}?"
    listed = ", ".join(map(repr, columns)) or "none"
    message = f"{origin}: no column {name!r}; columns found: {listed}"
    return kind(message, code="missing-column", field=name, hint=hint)


def _weight(name: str, dtype: pl.DataType, from_text: bool) -> pl.Expr:
    if not (dtype.is_numeric() or (from_text and dtype == pl.String)):
        raise DataError(f"column {name!r} has type {dtype}; weights are numbers", code="column-type", field=name)
    return pl.col(name).cast(pl.Float64, strict=False)


def _time(source: pl.LazyFrame, name: str, dtype: pl.DataType) -> tuple[pl.DataType, pl.Expr]:
    """Return the type of a time column and the expression for its physical numbers."""
    column = pl.col(name)
    if dtype == pl.String:
        sample = source.select(column).drop_nulls().head(_TIME_SAMPLE).collect(engine="streaming").to_series()
        dtype = _type_of_times(sample)
        column = _parsed_time(column, dtype)
    if dtype.is_integer() or isinstance(dtype, pl.Date | pl.Datetime):
        return dtype, column.to_physical().cast(pl.Int64)
    if dtype.is_float():
        return dtype, column.cast(pl.Float64)
    raise DataError(
        f"column {name!r} has type {dtype}; times are dates, datetimes or numbers such as epoch seconds",
        code="column-type",
        field=name,
    )


def _type_of_times(sample: pl.Series) -> pl.DataType:
    """Return the type of times in text, judged by a sample; later times that do not fit it are bad rows."""
    frame = sample.alias("time").to_frame()
    dtypes = [pl.Int64(), pl.Float64(), pl.Date(), pl.Datetime("us"), pl.Datetime("us", "UTC")]
    for dtype in dtypes:
        if not frame.select(_parsed_time(pl.col("time"), dtype).is_null().any()).item():
            return dtype
    # No type fits all times. The type that fits most of them gives the best message.
    return max(dtypes[::-1], key=lambda dtype: frame.select(_parsed_time(pl.col("time"), dtype).count()).item())


def _parsed_time(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Parse times in text as `dtype`; failures become null. ISO 8601 formats only: 03/04/2020 is ambiguous."""
    if not isinstance(dtype, pl.Date | pl.Datetime):
        return text.cast(dtype, strict=False)
    if isinstance(dtype, pl.Date):
        return text.str.strptime(pl.Date, "%Y-%m-%d", strict=False)
    zone = "%z" if dtype.time_zone else ""
    text = text.str.replace("T", " ", literal=True)
    formats = ["%Y-%m-%d %H:%M:%S%.f" + zone, "%Y-%m-%d %H:%M" + zone]
    if zone:
        text = text.str.replace("Z$", "+00:00")
    else:
        formats.append("%Y-%m-%d")
    return pl.coalesce([text.str.strptime(dtype, pattern, strict=False) for pattern in formats])


def _good_rows(
    batch: pl.DataFrame,
    ids: list[_IdColumn],
    columns: Columns,
    bad_rows: _BadRows,
    n_before: int,
    places: npt.NDArray[np.int64] | None,
    no_time: str,
) -> pl.Series | None:
    """Return a mask of the usable rows, or None if all are usable; record the bad rows.

    `n_before` is the number of source rows before this batch. `places` are the positions of the batch's rows before
    blank lines were removed, None if there were none. `no_time` is the cause recorded for a time that cannot be read.
    """
    bad = np.zeros(batch.height, np.bool_)

    def check(column: str, cause: str, mask: pl.Series) -> None:
        if mask.any():
            marked = mask.to_numpy()
            newly = int((marked & ~bad).sum())
            np.logical_or(bad, marked, out=bad)
            first = np.flatnonzero(marked)[:SHOWN]
            first = n_before + (first if places is None else places[first])
            bad_rows.note(column, cause, int(marked.sum()), newly, first.tolist())

    names = [part.name for part in ids]
    for k, part in enumerate(ids):
        # Feature tables have no items: their item column is the first id column again. Report it once.
        if batch[f"id{k}"].null_count() and part.name not in names[:k]:
            whole = part.from_text and part.dtype.is_integer()
            check(part.name, "are null or not whole numbers" if whole else "are null", batch[f"id{k}"].is_null())
    if columns.weight is not None:
        weight = batch["weight"].fill_nan(None)
        check(columns.weight, "are null or not a number", weight.is_null())
        check(columns.weight, "are negative", (weight < 0).fill_null(False))
        check(columns.weight, "are infinite or too large", (weight > _LARGEST_WEIGHT).fill_null(False))
    if columns.time is not None:
        time = batch["time"]
        missing = time.is_null() | ~time.is_finite().fill_null(True) if time.dtype.is_float() else time.is_null()
        check(columns.time, f"are null or {no_time}", missing)
    return pl.Series(~bad) if bad.any() else None


def _array(series: pl.Series, dtype: type[np.generic]) -> npt.NDArray[Any]:
    return series.to_numpy().astype(dtype)  # a copy, to free the batch's memory


def _joined(chunks: list[npt.NDArray[Any]], remap: npt.NDArray[np.int32] | None = None) -> npt.NDArray[Any]:
    """Concatenate chunks, freeing each after use; apply `remap` if given."""
    out = np.empty(sum(map(len, chunks)), chunks[0].dtype if remap is None else np.int32)
    at = len(out)
    while chunks:
        chunk = chunks.pop()
        out[at - len(chunk) : at] = chunk if remap is None else remap[chunk]
        at -= len(chunk)
    return out


def _finish(column: _IdColumn, dropped: bool) -> tuple[Vocabulary, npt.NDArray[np.int32]]:
    codes = _first_codes(column, dropped)
    return _sorted_codes(column, codes, column.typed(column.text_of(pl.Series(codes))).to_frame())


def _finish_tuples(pair: _IdColumn, parts: list[_IdColumn], dropped: bool) -> tuple[Vocabulary, npt.NDArray[np.int32]]:
    codes = _first_codes(pair, dropped)
    fields = pair.text_of(pl.Series(codes)).str.split_exact(",", len(parts) - 1).struct.unnest().get_columns()
    columns = [part.typed(part.text_of(field.cast(pl.UInt32))) for part, field in zip(parts, fields)]
    return _sorted_codes(pair, codes, pl.DataFrame(columns))


def _first_codes(column: _IdColumn, dropped: bool) -> npt.NDArray[np.uint32]:
    """Return the first codes in use: all of them, unless rows were `dropped`."""
    size = 1 + max(int(chunk.max()) for chunk in column.chunks if len(chunk))
    if not dropped:
        return np.arange(size, dtype=np.uint32)
    used = np.zeros(size, np.bool_)
    for chunk in column.chunks:
        used[chunk] = True
    return np.flatnonzero(used).astype(np.uint32)


def _sorted_codes(
    column: _IdColumn, first_codes: npt.NDArray[np.uint32], ids: pl.DataFrame
) -> tuple[Vocabulary, npt.NDArray[np.int32]]:
    """Replace `first_codes` by codes in the sorted order of the ids."""
    several = ids.width > 1
    order = (ids.select(pl.arg_sort_by(ids.columns)).to_series() if several else ids.to_series().arg_sort()).to_numpy()
    remap = np.full(int(first_codes[-1]) + 1, -1, np.int32)
    remap[first_codes[order]] = np.arange(len(order), dtype=np.int32)
    return Vocabulary(ids[order].rechunk()), _joined(column.chunks, remap)


class polars_errors:  # noqa: N801
    """Turn errors and panics of polars into a `DataError` with the first line of their message."""

    def __init__(self, origin: str) -> None:
        self.origin = origin

    def __enter__(self) -> None:
        return None

    def __exit__(self, type_: type[BaseException] | None, error: BaseException | None, _: object) -> Literal[False]:
        panic = getattr(pl.exceptions, "PanicException", ())
        if error is not None and isinstance(error, (pl.exceptions.PolarsError, OSError, panic)):
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise DataError(f"{self.origin} cannot be read: {first}", code="unreadable-file") from error
        return False
