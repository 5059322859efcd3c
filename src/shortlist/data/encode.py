"""From a lazy frame with named columns to the arrays of `Interactions`, in one pass and little memory.

Every id, whatever its type, goes through polars' own dictionary encoding (a private `Categories` per column) batch by
batch, so the ids of all rows are never in memory at once. Vocabularies are sorted: the codes depend on which ids there
are, not on the order of the rows or on threads.
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

from shortlist._fork import require_polars_threads
from shortlist.data.csv_lines import SHOWN
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import DataError, SettingError

OnBad: TypeAlias = Literal["raise", "drop"]
Where: TypeAlias = Callable[[list[int]], str]  # rows counted from 0, in words
_BATCH = 1 << 20
WHOLE_NUMBER = r"^(0|-?[1-9][0-9]*)$"
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)
_TIME_SAMPLE = 1000


@dataclass(frozen=True)
class Columns:
    """Which columns play which part."""

    context: tuple[str, ...]
    item: str
    weight: str | None = None
    time: str | None = None
    published: bool = False  # the data came with these roles, so that nobody asked for weights

    @classmethod
    def named(cls, context: str | Sequence[str], item: str, weight: str | None, time: str | None) -> Columns:
        """Check the names a user gave."""
        several = isinstance(context, Sequence) and not isinstance(context, str)
        contexts: tuple[str, ...] = tuple(context) if several else (context,)  # type: ignore[assignment]
        parts = [*contexts, item, *([] if weight is None else [weight])]
        if not contexts or not all(
            isinstance(name, str) and name for name in [*parts, "time" if time is None else time]
        ):
            raise SettingError(
                f"column names must be text; got context={context!r}, item={item!r}, weight={weight!r}, time={time!r}"
            )
        twice = [name for name in parts if parts.count(name) > 1]
        if twice:  # the time may be anything else as well: contexts by the day, a weight that grows
            raise SettingError(f"column {twice[0]!r} is named for two parts; each part needs a column of its own")
        return cls(contexts, item, weight, time)

    @property
    def all(self) -> list[str]:
        """Every column that is read, once."""
        optional = [name for name in (self.weight, self.time) if name is not None]
        return list(dict.fromkeys([*self.context, self.item, *optional]))


@dataclass
class EncodedEvents:
    """What `Interactions` is made of."""

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
    """Counts of bad rows by column and cause, and where the first ones stand, counted from 0 without a header."""

    rows: int = 0
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    first: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)  # every row once, under its first trouble

    def note(self, column: str, cause: str, count: int, newly: int, first: Sequence[int] = ()) -> None:
        key = (column, cause)
        self.counts[key] = self.counts.get(key, 0) + count
        known = self.first.setdefault(key, [])
        known += first[: SHOWN - len(known)]
        if newly:
            self.dropped[f"{column!r} {cause}"] = self.dropped.get(f"{column!r} {cause}", 0) + newly

    def message(self, origin: str, where: Where, row: str) -> str:
        lines = [
            f"column {column!r}: {count:,} of {self.rows:,} rows {cause}"
            + (f" (first: {where(first)})" if (first := self.first[column, cause]) else "")
            for (column, cause), count in self.counts.items()
        ]
        drop = ", or pass on_bad='drop' to leave those rows out" if row == "event" else ""
        return f"{origin}: {'; '.join(lines)}. Mend the data{drop}"


def _empty(origin: str) -> DataError:
    return DataError(f"{origin} is empty: there are no rows; expected a row for each event")


def _by_number(rows: list[int]) -> str:
    return f"row {rows[0] + 1:,}"


class _IdColumn:
    """One column of ids on its way to codes; `whole`: its floats are integers, and NaN is a missing one."""

    def __init__(
        self, name: str, dtype: pl.DataType, *, from_text: bool, whole: bool = False, advise_drop: bool = False
    ) -> None:
        self.whole = whole
        if whole:
            dtype = pl.Int64()
        if not (dtype.is_integer() or dtype in (pl.String, pl.Categorical) or isinstance(dtype, pl.Enum)):
            if dtype == pl.Null:
                raise DataError(f"column {name!r}: every id is null; expected integers or strings")
            hint = ""
            if dtype.is_float():
                hint = "; whole numbers often turn into floats where some are missing: "
                if advise_drop:
                    hint += "pass on_bad='drop' to leave those rows out and read the others as integers, or "
                hint += "drop those rows, then cast the column to an integer type"
            raise DataError(f"column {name!r} has type {dtype}; ids are integers or strings{hint}")
        self.name = name
        self.dtype = pl.String() if not dtype.is_integer() else dtype
        self.from_text = from_text
        self.categories = pl.Categories.random()
        # Categories live as long as a column that uses them: this empty one keeps them between batches.
        self.anchor = pl.Series(name, [], dtype=pl.Categorical(self.categories))
        self.chunks: list[npt.NDArray[np.uint32]] = []

    def text(self) -> pl.Expr:
        if self.whole:
            return pl.col(self.name).fill_nan(None).cast(pl.Int64).cast(pl.String)
        return pl.col(self.name).cast(pl.String)

    def physical(self, text: pl.Expr) -> pl.Expr:
        return text.cast(pl.Categorical(self.categories)).to_physical()

    def text_of(self, codes: pl.Series) -> pl.Series:
        """The ids with these first codes as text; nothing is looked up after this, so the dictionary goes."""
        if hasattr(codes.cat, "to"):
            text: pl.Series = codes.cat.to(pl.Categorical(self.categories)).cast(pl.String)
        else:  # polars 1
            text = self.anchor.cat.get_categories().gather(codes)  # type: ignore[attr-defined,unused-ignore]
        del self.anchor, self.categories
        return text

    def typed(self, text: pl.Series) -> pl.Series:
        """Ids as they were before they became text."""
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
        on_bad: what to do with rows that cannot be used.
        origin: what to call the data in messages.
        n_records: the source is a text file (CSV) with so many lines that are not blank; every column is text. Ids
            become integers where all of them are whole numbers written as numbers are (so '007' stays text).
        where: says in messages where rows of the source stand.
        row: what a row is; dropping bad ones is advised for events only.
    """
    require_polars_threads("building interactions")
    from_text = n_records is not None
    if not isinstance(on_bad, str) or on_bad not in ("raise", "drop"):
        raise SettingError(f"on_bad={on_bad!r:.80}; expected 'raise' or 'drop'")
    with polars_errors(origin):
        schema = source.collect_schema()
    missing = [name for name in columns.all if name not in schema]
    if missing:
        raise no_column(origin, missing[0], list(schema))

    if any(schema[name] == pl.Null for name in (*columns.context, columns.item)):  # as of columns without a single row
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
        # A tuple is encoded as the text of its parts' codes, "12,7", which costs no memory per row.
        pair = _IdColumn("pair", pl.String(), from_text=False)
        codes = [part.physical(part.text()).cast(pl.String) for part in parts]
        expressions.append(pair.physical(pl.concat_str(codes, separator=",")).alias("pair"))
    if columns.weight is not None:
        expressions.append(_weight(columns.weight, schema[columns.weight], from_text).alias("weight"))
    if columns.time is not None:
        with polars_errors(origin):
            stored, expression = _time(source, columns.time, schema[columns.time])
        expressions.append(expression.alias("time"))

    troubles = _BadRows()
    no_time = "cannot be read as a time"
    if columns.time is not None and schema[columns.time] == pl.String:
        no_time += " such as 2011-12-01 08:26"
    n_empty = n_taken = 0
    weights: list[npt.NDArray[np.float32]] = []
    times: list[npt.NDArray[Any]] = []
    context = pair or parts[0]

    def take(batch: pl.DataFrame) -> None:
        nonlocal n_empty, n_taken
        height = batch.height
        places = None
        if from_text:  # polars makes a row of nulls of a blank line
            empty = batch.select(pl.all_horizontal(pl.all().is_null())).to_series()
            if empty.any():
                places = np.flatnonzero(~empty.to_numpy())
                batch = batch.filter(~empty)
                n_empty += height - batch.height
        good = _good_rows(batch, [*parts, item], columns, troubles, n_taken, places, no_time)
        n_taken += height
        troubles.rows += batch.height
        if good is not None:
            batch = batch.filter(good)
        context.chunks.append(_array(batch["pair" if pair else "id0"], np.uint32))
        item.chunks.append(_array(batch[f"id{len(parts)}"], np.uint32))
        if columns.weight is not None:
            weights.append(_array(batch["weight"], np.float32))
        if columns.time is not None:
            times.append(_array(batch["time"], np.float64 if stored.is_float() else np.int64))

    with polars_errors(origin):
        # Not `collect_batches`: in polars 1 an error half-way ends its batches early and is never heard of.
        source.select(expressions).sink_batches(take, chunk_size=_BATCH, engine="streaming")
    del expressions  # they hold the dictionaries
    if n_records is not None:
        without_anything = n_records - troubles.rows  # lines such as ',,' look as blank ones do
        if not 0 <= without_anything <= n_empty:
            raise DataError(
                f"{origin}: {n_records:,} lines were read as {troubles.rows:,} rows; are quotes in it out of order?"
            )
        if without_anything:
            troubles.note(columns.context[0], "are null", without_anything, without_anything)
            troubles.rows = n_records
    if troubles.counts and on_bad == "raise":
        raise DataError(troubles.message(origin, where, row))
    if not any(len(chunk) for chunk in item.chunks):
        if troubles.rows:
            causes = ", ".join(f"{count:,} {what}" for what, count in troubles.dropped.items())
            raise DataError(f"{origin}: none of the {troubles.rows:,} rows is usable: {causes}")
        raise _empty(origin)
    thin = bool(troubles.counts)
    contexts, context_codes = _finish_tuples(context, parts, thin) if pair else _finish(context, thin)
    items, item_codes = _finish(item, thin)
    return EncodedEvents(
        contexts,
        items,
        context_codes,
        item_codes,
        _joined(weights) if columns.weight is not None else None,
        _joined(times) if columns.time is not None else None,
        stored if columns.time is not None else None,
        troubles.dropped,
    )


def whole_floats(source: pl.LazyFrame, types: Mapping[str, pl.DataType], origin: str) -> list[str]:
    """The columns of floats with gaps, as pandas makes of integers with gaps; their numbers must be integers."""
    found = []
    for name, dtype in types.items():
        if not dtype.is_float():
            continue
        largest = 2**53 if dtype == pl.Float64 else 2**24 if dtype == pl.Float32 else 2**11
        number = pl.col(name).fill_nan(None)
        other = (number != number.floor()) | (number.abs() > largest)
        counts = [number.is_null().any().alias("gaps"), other.sum().alias("count"), number.filter(other).first()]
        gaps, count, first = source.select(counts).collect(engine="streaming").row(0)
        if count:
            raise DataError(
                f"{origin}: column {name!r} has type {dtype}; ids are integers or strings, and {count:,} of its "
                f"numbers, such as {first!r}, are no integers up to {largest:,}"
            )
        if gaps:
            found.append(name)
    return found


def no_column(origin: str, name: str, found: list[str], hint: str = "") -> DataError:
    """A column is missing; another may be meant."""
    small = {one.lower(): one for one in found}
    near = difflib.get_close_matches(name.lower(), small, 1, 0.7)
    if not near:  # user: user_id, UserID
        near = [one for one in small if name.lower() in re.split(r"[\W_]|(?<=.)id$", one)][:1]
    if near and not hint:
        hint = f"; did you mean {small[near[0]]!r}?"
    columns = ", ".join(map(repr, found)) or "none"
    return DataError(f"{origin}: no column {name!r}; columns found: {columns}{hint}")


def _weight(name: str, dtype: pl.DataType, from_text: bool) -> pl.Expr:
    if not (dtype.is_numeric() or (from_text and dtype == pl.String)):
        raise DataError(f"column {name!r} has type {dtype}; weights are numbers")
    return pl.col(name).cast(pl.Float64, strict=False)


def _time(source: pl.LazyFrame, name: str, dtype: pl.DataType) -> tuple[pl.DataType, pl.Expr]:
    """The type a time column is remembered in, and the expression for its physical numbers."""
    column = pl.col(name)
    if dtype == pl.String:
        sample = source.select(column).drop_nulls().head(_TIME_SAMPLE).collect(engine="streaming").to_series()
        dtype = _type_of_times(sample)
        column = _parsed_time(column, dtype)
    if dtype.is_integer() or isinstance(dtype, pl.Date | pl.Datetime):
        return dtype, column.to_physical().cast(pl.Int64)
    if dtype.is_float():
        return dtype, column.cast(pl.Float64)
    raise DataError(f"column {name!r} has type {dtype}; times are dates, datetimes or numbers such as epoch seconds")


def _type_of_times(sample: pl.Series) -> pl.DataType:
    """What times in text are, judged by the first ones: what does not fit in later is refused, not bent."""
    frame = sample.alias("time").to_frame()
    kinds = [pl.Int64(), pl.Float64(), pl.Date(), pl.Datetime("us"), pl.Datetime("us", "UTC")]
    for dtype in kinds:
        if not frame.select(_parsed_time(pl.col("time"), dtype).is_null().any()).item():
            return dtype
    # Some cannot be read at all. The kind of the others makes the better message.
    return max(kinds[::-1], key=lambda dtype: frame.select(_parsed_time(pl.col("time"), dtype).count()).item())


def _parsed_time(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Times in text as `dtype`, null where they are none. The formats are ISO 8601's: 03/04/2020 can be two days."""
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
    return pl.coalesce([text.str.strptime(dtype, one, strict=False) for one in formats])


def _good_rows(
    batch: pl.DataFrame,
    ids: list[_IdColumn],
    columns: Columns,
    troubles: _BadRows,
    n_before: int,
    places: npt.NDArray[np.int64] | None,
    no_time: str,
) -> pl.Series | None:
    """Which rows can be used, or None where all can; notes the others.

    `n_before` rows of the source came before this batch, whose rows stood at these `places` before blank ones went;
    `no_time` says what is wrong with a time that could not be read.
    """
    bad = np.zeros(batch.height, np.bool_)

    def check(column: str, cause: str, mask: pl.Series) -> None:
        if mask.any():
            found = mask.to_numpy()
            newly = int((found & ~bad).sum())
            np.logical_or(bad, found, out=bad)
            first = np.flatnonzero(found)[:SHOWN]
            first = n_before + (first if places is None else places[first])
            troubles.note(column, cause, int(found.sum()), newly, first.tolist())

    names = [one.name for one in ids]
    for k, one in enumerate(ids):
        if batch[f"id{k}"].null_count() and one.name not in names[:k]:  # where nothing but ids is read, the item is one
            whole = one.from_text and one.dtype.is_integer()
            check(one.name, "are null or not whole numbers" if whole else "are null", batch[f"id{k}"].is_null())
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
    return series.to_numpy().astype(dtype)  # a copy: the batch's memory goes back at once


def _joined(chunks: list[npt.NDArray[Any]], remap: npt.NDArray[np.int32] | None = None) -> npt.NDArray[Any]:
    """Concatenate, freeing chunk by chunk, through `remap` where one is given."""
    out = np.empty(sum(map(len, chunks)), chunks[0].dtype if remap is None else np.int32)
    at = len(out)
    while chunks:
        chunk = chunks.pop()
        out[at - len(chunk) : at] = chunk if remap is None else remap[chunk]
        at -= len(chunk)
    return out


def _finish(column: _IdColumn, thin: bool) -> tuple[Vocabulary, npt.NDArray[np.int32]]:
    codes = _first_codes(column, thin)
    return _sorted_codes(column, codes, column.typed(column.text_of(pl.Series(codes))).to_frame())


def _finish_tuples(pair: _IdColumn, parts: list[_IdColumn], thin: bool) -> tuple[Vocabulary, npt.NDArray[np.int32]]:
    codes = _first_codes(pair, thin)
    fields = pair.text_of(pl.Series(codes)).str.split_exact(",", len(parts) - 1).struct.unnest().get_columns()
    columns = [part.typed(part.text_of(field.cast(pl.UInt32))) for part, field in zip(parts, fields)]
    return _sorted_codes(pair, codes, pl.DataFrame(columns))


def _first_codes(column: _IdColumn, thin: bool) -> npt.NDArray[np.uint32]:
    """The codes that occur; all there are, but for ids that stand in dropped rows only (`thin`)."""
    size = 1 + max(int(chunk.max()) for chunk in column.chunks if len(chunk))
    if not thin:
        return np.arange(size, dtype=np.uint32)
    used = np.zeros(size, np.bool_)
    for chunk in column.chunks:
        used[chunk] = True
    return np.flatnonzero(used).astype(np.uint32)


def _sorted_codes(
    column: _IdColumn, first_codes: npt.NDArray[np.uint32], ids: pl.DataFrame
) -> tuple[Vocabulary, npt.NDArray[np.int32]]:
    """Give codes in the order of the ids, which had `first_codes`."""
    several = ids.width > 1
    order = (ids.select(pl.arg_sort_by(ids.columns)).to_series() if several else ids.to_series().arg_sort()).to_numpy()
    remap = np.full(int(first_codes[-1]) + 1, -1, np.int32)
    remap[first_codes[order]] = np.arange(len(order), dtype=np.int32)
    return Vocabulary(ids[order].rechunk()), _joined(column.chunks, remap)


class polars_errors:  # noqa: N801
    """Turn what polars raises, panics included, into a `DataError` with the first line of its message."""

    def __init__(self, origin: str) -> None:
        self.origin = origin

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> Literal[False]:
        panic = getattr(pl.exceptions, "PanicException", ())
        if error is not None and isinstance(error, (pl.exceptions.PolarsError, OSError, panic)):
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise DataError(f"{self.origin} cannot be read: {first}") from error
        return False
