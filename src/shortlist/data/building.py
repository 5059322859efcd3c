"""From a lazy frame with named columns to the arrays of `Interactions`, in one pass and little memory.

Every id, whatever its type, goes through polars' own dictionary encoding (a private `Categories` per column) batch by
batch, so the ids of all rows are never in memory at once. Vocabularies are sorted: the codes depend on which ids there
are, not on the order of the rows or on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import DataError, SettingError

OnBad: TypeAlias = Literal["raise", "drop"]
_BATCH = 1 << 20
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]*)$"


@dataclass(frozen=True)
class Columns:
    """Which columns play which part."""

    context: tuple[str, ...]
    item: str
    weight: str | None = None
    time: str | None = None

    @classmethod
    def named(cls, context: str | Sequence[str], item: str, weight: str | None, time: str | None) -> Columns:
        """Check the names a user gave."""
        contexts = (context,) if isinstance(context, str) else tuple(context)
        every = [*contexts, item, *(name for name in (weight, time) if name is not None)]
        if not contexts or not all(isinstance(name, str) and name for name in every):
            raise SettingError(f"column names must be text; got context={context!r}, item={item!r}")
        twice = {name for name in every if every.count(name) > 1}
        if twice - {time}:
            raise SettingError(f"column {min(twice)!r} is named for two parts; each part needs a column of its own")
        return cls(contexts, item, weight, time)

    @property
    def all(self) -> list[str]:
        """Every column that is read, once."""
        optional = [name for name in (self.weight, self.time) if name is not None]
        return list(dict.fromkeys([*self.context, self.item, *optional]))


@dataclass
class Built:
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
class _Troubles:
    """Counts of bad rows by column and cause; rows are counted from 1, without a header."""

    rows: int = 0
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    first: dict[tuple[str, str], int] = field(default_factory=dict)

    def note(self, column: str, cause: str, bad: npt.NDArray[np.bool_]) -> None:
        key = (column, cause)
        self.first.setdefault(key, self.rows + int(np.argmax(bad)) + 1)
        self.counts[key] = self.counts.get(key, 0) + int(bad.sum())

    def message(self, origin: str) -> str:
        lines = [
            f"column {column!r}: {count:,} of {self.rows:,} rows {cause} (first: row {self.first[column, cause]:,})"
            for (column, cause), count in self.counts.items()
        ]
        return f"{origin}: " + "; ".join(lines) + ". Mend the data, or pass on_bad='drop' to leave those rows out"

    def dropped(self) -> dict[str, int]:
        return {f"{column!r} {cause}": count for (column, cause), count in self.counts.items()}


class _IdColumn:
    """One column of ids on its way to codes."""

    def __init__(self, name: str, dtype: pl.DataType, *, from_text: bool) -> None:
        if not (dtype.is_integer() or dtype in (pl.String, pl.Categorical) or isinstance(dtype, pl.Enum)):
            if dtype == pl.Null:
                raise DataError(f"column {name!r}: every id is null; expected integers or strings")
            hint = ""
            if dtype.is_float():
                hint = (
                    "; whole numbers often turn into floats where some are missing: drop those rows, then cast the "
                    "column to an integer type"
                )
            raise DataError(f"column {name!r} has type {dtype}; ids are integers or strings{hint}")
        self.name = name
        self.dtype = pl.String() if not dtype.is_integer() else dtype
        self.from_text = from_text
        self.categories = pl.Categories.random()
        # Categories live as long as a column that uses them: this empty one keeps them between batches.
        self.anchor = pl.Series(name, [], dtype=pl.Categorical(self.categories))
        self.chunks: list[npt.NDArray[np.uint32]] = []

    def text(self) -> pl.Expr:
        return pl.col(self.name).cast(pl.String)

    def physical(self, text: pl.Expr) -> pl.Expr:
        return text.cast(pl.Categorical(self.categories)).to_physical()

    def seen(self) -> pl.Series:
        """The distinct ids in the order of their first codes, in their own type."""
        old = not hasattr(self.categories, "to_series")  # polars 1
        text: pl.Series = self.anchor.cat.get_categories() if old else self.categories.to_series()  # type: ignore[attr-defined,unused-ignore]
        text = text.alias(self.name)
        if self.dtype.is_integer():
            return text.cast(self.dtype)
        if self.from_text and len(text) and text.str.contains(_WHOLE_NUMBER).all():
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
    from_text: bool = False,
    time_dtype: pl.DataType | None = None,
    probe: str | None = None,
    on_probe: Callable[[], None] | None = None,
) -> Built:
    """Encode a lazy frame.

    Args:
        source: the data; only the named columns are read.
        columns: their names.
        on_bad: what to do with rows that cannot be used.
        origin: what to call the data in messages.
        from_text: every column was read as text (CSV): ids become integers where all of them are whole numbers
            written as numbers are (so '007' stays text), weights are parsed.
        time_dtype: with `from_text`, the type to read times as.
        probe: a column whose first null calls `on_probe` (a short line in a CSV file ends in nulls).
        on_probe: see `probe`.
    """
    if on_bad not in ("raise", "drop"):
        raise SettingError(f"on_bad={on_bad!r}; expected 'raise' or 'drop'")
    with _polars_errors(origin):
        schema = source.collect_schema()
    missing = [name for name in columns.all if name not in schema]
    if missing:
        found = ", ".join(repr(name) for name in schema) or "none"
        raise DataError(f"{origin}: no column {missing[0]!r}; columns found: {found}")

    parts = [_IdColumn(name, schema[name], from_text=from_text) for name in columns.context]
    item = _IdColumn(columns.item, schema[columns.item], from_text=from_text)
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
        stored, expression = _time(columns.time, schema[columns.time], time_dtype if from_text else None)
        expressions.append(expression.alias("time"))
    if probe is not None:
        expressions.append(pl.col(probe).is_null().alias("probe"))

    troubles = _Troubles()
    n_blank = 0
    weights: list[npt.NDArray[np.float32]] = []
    times: list[npt.NDArray[Any]] = []
    context = pair or parts[0]
    for batch in _batches(source.select(expressions), origin):
        if from_text:  # a blank line is no row
            before = batch.height
            batch = batch.filter(~pl.all_horizontal(pl.exclude("probe").is_null()))  # noqa: PLW2901
            n_blank += before - batch.height
        if probe is not None and on_probe is not None and batch["probe"].any():
            on_probe()
            probe = None
        good = _good_rows(batch, [*parts, item], columns, troubles)
        troubles.rows += batch.height
        if good is not None:
            batch = batch.filter(good)  # noqa: PLW2901
        context.chunks.append(_array(batch["pair" if pair else "id0"], np.uint32))
        item.chunks.append(_array(batch[f"id{len(parts)}"], np.uint32))
        if columns.weight is not None:
            weights.append(_array(batch["weight"], np.float32))
        if columns.time is not None:
            times.append(_array(batch["time"], np.float64 if stored.is_float() else np.int64))

    if troubles.counts and on_bad == "raise":
        raise DataError(troubles.message(origin))
    if not any(len(chunk) for chunk in item.chunks):
        if troubles.rows:
            raise DataError(f"{origin}: none of the {troubles.rows:,} rows is usable: {troubles.dropped()}")
        raise DataError(f"{origin}: there are no rows")
    thin = bool(troubles.counts)
    contexts, context_codes = _finish_tuples(context, parts, thin) if pair else _finish(context, thin)
    items, item_codes = _finish(item, thin)
    return Built(
        contexts,
        items,
        context_codes,
        item_codes,
        _joined(weights) if columns.weight is not None else None,
        _joined(times) if columns.time is not None else None,
        stored if columns.time is not None else None,
        troubles.dropped() | ({"lines are blank": n_blank} if n_blank else {}),
    )


def _weight(name: str, dtype: pl.DataType, from_text: bool) -> pl.Expr:
    if not (dtype.is_numeric() or (from_text and dtype == pl.String)):
        raise DataError(f"column {name!r} has type {dtype}; weights are numbers")
    return pl.col(name).cast(pl.Float64, strict=False).cast(pl.Float32)


def _time(name: str, dtype: pl.DataType, read_as: pl.DataType | None) -> tuple[pl.DataType, pl.Expr]:
    """The type a time column is remembered in, and the expression for its physical numbers."""
    column = pl.col(name)
    if read_as is not None and read_as != pl.String:
        if read_as.is_temporal():
            column = column.str.strptime(read_as, strict=False)  # type: ignore[arg-type]
        else:
            column = column.cast(read_as, strict=False)
        dtype = read_as
    elif dtype == pl.String:
        dtype = pl.Datetime("us")
        column = column.str.to_datetime(time_unit="us", strict=False)
    if dtype.is_integer() or isinstance(dtype, pl.Date | pl.Datetime):
        return dtype, column.to_physical().cast(pl.Int64)
    if dtype.is_float():
        return dtype, column.cast(pl.Float64)
    raise DataError(f"column {name!r} has type {dtype}; times are dates, datetimes or numbers such as epoch seconds")


def _good_rows(batch: pl.DataFrame, ids: list[_IdColumn], columns: Columns, troubles: _Troubles) -> pl.Series | None:
    """Which rows can be used, or None where all can; notes the others."""
    bad: list[npt.NDArray[np.bool_]] = []

    def check(column: str, cause: str, mask: pl.Series) -> None:
        if mask.any():
            bad.append(mask.to_numpy())
            troubles.note(column, cause, bad[-1])

    for k, one in enumerate(ids):
        if batch[f"id{k}"].null_count():
            check(one.name, "are null", batch[f"id{k}"].is_null())
    if columns.weight is not None:
        weight = batch["weight"]
        check(columns.weight, "are null or not a number", weight.is_null() | weight.fill_null(0.0).is_nan())
        check(columns.weight, "are negative", (weight.fill_nan(None) < 0).fill_null(False))
        check(columns.weight, "are infinite or too large", (weight.fill_nan(None) == np.inf).fill_null(False))
    if columns.time is not None:
        time = batch["time"]
        missing = time.is_null() | ~time.is_finite().fill_null(True) if time.dtype.is_float() else time.is_null()
        check(columns.time, "are null or cannot be read as a time", missing)
    return pl.Series(~np.logical_or.reduce(bad)) if bad else None


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
    return _sorted_codes(column, column.seen().to_frame(), thin)


def _finish_tuples(pair: _IdColumn, parts: list[_IdColumn], thin: bool) -> tuple[Vocabulary, npt.NDArray[np.int32]]:
    fields = pair.seen().str.split_exact(",", len(parts) - 1).struct.fields
    codes = pair.seen().str.split_exact(",", len(parts) - 1).struct.unnest()
    frame = pl.DataFrame([part.seen()[codes[name].cast(pl.UInt32)] for part, name in zip(parts, fields)])
    return _sorted_codes(pair, frame, thin)


def _sorted_codes(column: _IdColumn, ids: pl.DataFrame, thin: bool) -> tuple[Vocabulary, npt.NDArray[np.int32]]:
    """Give codes in the order of the ids; `thin` leaves out ids that stand in dropped rows only."""
    with_codes = ids.with_row_index("__code")
    if thin:
        used = np.zeros(ids.height, np.bool_)
        for chunk in column.chunks:
            used[chunk] = True
        with_codes = with_codes.filter(pl.Series(used))
    ordered = with_codes.sort(ids.columns)
    remap = np.full(ids.height, -1, np.int32)
    remap[ordered["__code"].to_numpy()] = np.arange(ordered.height, dtype=np.int32)
    return Vocabulary(ordered.select(ids.columns).rechunk()), _joined(column.chunks, remap)


def _batches(query: pl.LazyFrame, origin: str) -> Iterator[pl.DataFrame]:
    with _polars_errors(origin):
        yield from query.collect_batches(chunk_size=_BATCH)


class _polars_errors:  # noqa: N801
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
