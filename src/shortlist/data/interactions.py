"""The observed data: events of contexts with items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import flag, refusal
from shortlist._phrases import count
from shortlist._wording import Message, Phrase, with_hint
from shortlist.data.encode import Columns, EncodedEvents, OnBad, build
from shortlist.data.event_files import Format, NoTableError, build_from_files, find_files
from shortlist.data.frames import column, refuse_mixed_zones, stream
from shortlist.data.histories import Histories
from shortlist.data.id_lists import is_frame
from shortlist.data.sparse_rows import COUNT, LATEST, SUM, SparseRows, by_key, rows_of
from shortlist.data.times import in_seconds, shown
from shortlist.data.vocabulary import Codes, Id, Vocabulary
from shortlist.errors import DataError, SettingError

if TYPE_CHECKING:
    import scipy.sparse as sp

Aggregate: TypeAlias = Literal["sum", "count", "latest"]
_MERGE = {"sum": SUM, "count": COUNT, "latest": LATEST}


class Interactions:
    """Events of contexts with items (the article's S), with optional weights and times. Immutable.

    Create them with `read` (files), `from_frame` (polars, pandas, Arrow) or `from_csr` (SciPy). The events keep their
    order and repeats; the sparse views `by_context` and `by_item` hold each pair once.

    >>> events = Interactions.from_frame({"user": ["ann", "ann", "bob"], "product": [7, 9, 7]},
    ...                                  context="user", item="product")
    >>> events
    Interactions(3 events of 2 contexts (user) with 2 items (product), 3 distinct pairs)
    >>> events.history("ann")
    [7, 9]
    """

    def __init__(
        self,
        contexts: Vocabulary,
        items: Vocabulary,
        context_codes: Codes,
        item_codes: Codes,
        *,
        weights: npt.NDArray[np.float32] | None = None,
        times: npt.NDArray[Any] | None = None,
        columns: Columns | None = None,
        time_dtype: pl.DataType | None = None,
        aggregate: Aggregate = "sum",
        dropped: Mapping[str, int] | None = None,
    ) -> None:
        """Build from codes; users call `read`, `from_frame` or `from_csr`."""
        _check_aggregate(aggregate)
        self.contexts = contexts
        self.items = items
        self.context_codes = context_codes
        self.item_codes = item_codes
        self.weights = weights
        self.times = times
        self.columns = columns or Columns(
            contexts.names,
            items.names[0],
            "weight" if weights is not None else None,
            "time" if times is not None else None,
        )
        self.time_dtype = time_dtype
        self.aggregate: Aggregate = aggregate
        self.dropped = dict(dropped or {})
        for array in (context_codes, item_codes, weights, times):
            if array is not None:
                array.flags.writeable = False

    # --- construction ------------------------------------------------------------------------------------------------

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        context: str | Sequence[str],
        item: str,
        weight: str | None = None,
        time: str | None = None,
        aggregate: Aggregate = "sum",
        on_bad: OnBad = "raise",
        format: Format | None = None,  # noqa: A002
        separator: str | None = None,
    ) -> Interactions:
        """Read events from CSV, TSV, Parquet or JSON lines: one file, a folder, or a glob pattern.

        Args:
            path: a file, a folder (all data files in it and its subfolders) or a pattern such as `"events/*.parquet"`.
            context: the column of the context, such as the user. With several columns a context is a tuple.
            item: the column of the item.
            weight: the column of the event's weight; by default each event has weight 1.
            time: the column of the event's time: dates, datetimes, numbers, or text in ISO format.
            aggregate: the weight of a repeated pair: the `"sum"` of its weights, the `"count"` of its events, or its
                `"latest"` weight.
            on_bad: `"raise"` an error for rows that cannot be used (null ids; null, negative or infinite weights;
                unreadable times; lines with too many or too few fields), or `"drop"` them and count them in `dropped`.
                With `"drop"`, integer ids that were stored as floats only because some are missing (pandas does this)
                are turned back into integers.
            format: `"csv"`, `"tsv"`, `"parquet"` or `"jsonl"`; by default the file name decides.
            separator: the field separator of text files; by default a comma, for TSV a tab.
        """
        _check_aggregate(aggregate)
        columns = Columns.named(context, item, weight, time)
        try:
            built = build_from_files(find_files(path, format, separator), columns, on_bad)
        except NoTableError as error:
            hint = _layout_hint(path)
            if error.hint:
                hint = with_hint(error.hint, hint)
            raise DataError(error.problem, code=error.code, field=error.field, hint=hint) from error
        return cls.from_encoded(built, columns, aggregate)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        context: str | Sequence[str],
        item: str,
        weight: str | None = None,
        time: str | None = None,
        aggregate: Aggregate = "sum",
        on_bad: OnBad = "raise",
    ) -> Interactions:
        """Build interactions from a data frame.

        The frame may be of polars (also lazy), pandas or Arrow, a mapping of columns, or any Arrow stream.
        The other arguments are those of `read`.
        """
        _check_aggregate(aggregate)
        columns = Columns.named(context, item, weight, time)
        return cls.from_encoded(build(as_lazy(frame, columns), columns, on_bad=on_bad), columns, aggregate)

    @classmethod
    def from_csr(
        cls,
        matrix: sp.sparray | sp.spmatrix,
        *,
        contexts: Sequence[Id] | None = None,
        items: Sequence[Id] | None = None,
        weighted: bool = True,
    ) -> Interactions:
        """Build from a SciPy sparse matrix with one row per context and one column per item.

        Without ids, row and column numbers are the ids. If context ids are tuples, their columns are named context_1,
        context_2 and so on. With `weighted=False` every stored entry has weight 1.
        """
        if not hasattr(matrix, "tocoo") or len(matrix.shape) != 2:
            raise DataError(
                f"expected a SciPy sparse matrix, contexts × items, got {type(matrix).__name__}",
                field="matrix",
                hint="for a frame use Interactions.from_frame",
            )
        coo, weighted = matrix.tocoo(), flag("weighted", weighted)
        if coo.data.dtype.kind not in "biuf":
            raise DataError(f"the matrix holds values of type {coo.data.dtype}; expected numbers", field="matrix")
        vocabularies = []
        for argument, size, what in ((contexts, coo.shape[0], "context"), (items, coo.shape[1], "item")):
            if argument is None:
                vocabularies.append(Vocabulary.of(pl.int_range(size, dtype=pl.Int64, eager=True), what))
                continue
            if is_frame(argument):
                raise DataError(
                    f"{what}s is a frame ({type(argument).__name__}); expected a list of ids", field=f"{what}s"
                )
            ids = _list_of_ids(argument, what)
            if len(ids) != size:
                side = "row" if what == "context" else "column"
                raise DataError(
                    f"{len(ids):,} {what} ids for {size:,} {side}s; expected one id per {side}", field=f"{what}s"
                )
            parts = len(ids[0]) if what == "context" and size and isinstance(ids[0], tuple) else 1
            vocabularies.append(Vocabulary.of(ids, what if parts == 1 else [f"{what}_{k + 1}" for k in range(parts)]))
        with np.errstate(over="ignore"):
            values = np.asarray(coo.data, dtype=np.float32)
        for bad, cause in ((~np.isfinite(values), "not finite"), (values < 0, "negative")):
            if weighted and bad.any():
                raise DataError(
                    f"the matrix: {int(bad.sum()):,} of {len(values):,} stored values are {cause}; expected weights "
                    "≥ 0 (or pass weighted=False)",
                    field="matrix",
                )
        if not len(values):
            raise DataError(f"the matrix of shape {coo.shape} stores no entries", field="matrix")
        return cls(
            vocabularies[0],
            vocabularies[1],
            coo.row.astype(np.int32),
            coo.col.astype(np.int32),
            weights=values.copy() if weighted else None,
        )

    @classmethod
    def from_encoded(cls, built: EncodedEvents, columns: Columns, aggregate: Aggregate) -> Interactions:
        """Build from encoded events."""
        return cls(
            built.contexts,
            built.items,
            built.context_codes,
            built.item_codes,
            weights=built.weights,
            times=built.times,
            columns=columns,
            time_dtype=built.time_dtype,
            aggregate=aggregate,
            dropped=built.dropped,
        )

    # --- size --------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of events, repeats included."""
        return len(self.item_codes)

    @property
    def n_contexts(self) -> int:
        """The number of contexts."""
        return len(self.contexts)

    @property
    def n_items(self) -> int:
        """The number of items in the catalogue."""
        return len(self.items)

    @property
    def n_pairs(self) -> int:
        """The number of distinct (context, item) pairs."""
        return len(self.by_context)

    # --- views -------------------------------------------------------------------------------------------------------

    @cached_property
    def by_context(self) -> SparseRows:
        """The pairs with aggregated weights, one row per context; built on first use."""
        rows = rows_of(
            self.context_codes,
            self.item_codes,
            self.weights,
            time_order(self.times) if self.aggregate == "latest" else None,
            self.n_contexts,
            self.n_items,
            _MERGE[self.aggregate],
        )
        if rows.values is not None and not np.isfinite(rows.values).all():
            raise DataError(
                f"the weights of a repeated pair sum to more than {np.finfo(np.float32).max:.3g}",
                code="bad-rows",
                hint="scale them down",
            )
        return rows

    @cached_property
    def by_item(self) -> SparseRows:
        """The same pairs, one row per item."""
        return self.by_context.transpose()

    @cached_property
    def histories(self) -> Histories:
        """The events of each context in time order, repeats included, with their times and weights."""
        everything = np.arange(len(self), dtype=np.int32)
        indptr, places = by_key(self.context_codes, everything, self.n_contexts, time_order(self.times))
        times = None if self.times is None else in_seconds(self.times, self.time_dtype)[places]
        weights = None if self.weights is None else self.weights[places]
        return Histories(indptr, self.item_codes[places], times, weights, self.n_items, _MERGE[self.aggregate])

    def history(self, context: Id) -> list[Id]:
        """Return the items of one context in time order, repeats included."""
        (code,) = self.contexts.encode([context], what="context")
        return self.items.ids(self.histories.row(int(code)))

    def to_polars(self) -> pl.DataFrame:
        """Return the events as a frame in their order, with the original columns, ids and times and float32 weights."""
        series = [
            *self.contexts.take(self.context_codes).get_columns(),
            *self.items.take(self.item_codes).get_columns(),
        ]
        if self.weights is not None and self.columns.weight != self.columns.time:
            series.append(pl.Series(self.columns.weight or "weight", self.weights))
        if self.times is not None and self.columns.time not in self.contexts.names + self.items.names:
            times = pl.Series(self.columns.time or "time", self.times)
            series.append(times if self.time_dtype is None else times.cast(self.time_dtype))
        return pl.DataFrame(series)

    def to_csr(self) -> tuple[sp.csr_array, list[Id], list[Id]]:
        """Return the pairs as a contexts × items SciPy matrix of float32, with the row ids and the column ids."""
        import scipy.sparse as sp

        view = self.by_context
        values = np.ones(len(view), np.float32) if view.values is None else view.values
        shape = (self.n_contexts, self.n_items)
        matrix = sp.csr_array((values, view.indices, view.indptr), shape=shape, copy=True)  # the caller may change it
        return matrix, self.contexts.ids(), self.items.ids()

    # --- subsets and copies ------------------------------------------------------------------------------------------

    def select(self, keep: npt.NDArray[np.bool_] | npt.NDArray[np.int64], *, compact: bool = False) -> Interactions:
        """Return some of the events. With `compact`, drop ids that no longer occur from the vocabularies.

        `keep` is a boolean mask over the events, or the positions of events as integers.
        """
        keep, compact = self._mask_or_positions(keep), flag("compact", compact)
        context_codes, item_codes = self.context_codes[keep], self.item_codes[keep]
        contexts, items = self.contexts, self.items
        if compact:
            contexts, remap = compacted(contexts, context_codes)
            context_codes = remap[context_codes]
            items, remap = compacted(items, item_codes)
            item_codes = remap[item_codes]
        return self.with_codes(contexts, items, context_codes, item_codes, keep)

    def _mask_or_positions(self, keep: Any) -> npt.NDArray[np.bool_] | npt.NDArray[np.int64]:
        """Check and return `keep` as an array."""
        if isinstance(keep, slice):
            return np.arange(len(self))[keep]
        try:
            array = np.asarray(keep)
        except (TypeError, ValueError):  # lists of different lengths
            array = np.empty((0, 0))
        if array.ndim == 1 and not len(array):
            array = array.astype(np.int64)
        is_mask = array.dtype == np.bool_ and array.shape == (len(self),)
        if not is_mask and (
            array.ndim != 1
            or array.dtype.kind not in "iu"
            or (array.size and not -1 < array.min() <= array.max() < len(self))
        ):
            raise SettingError(
                f"keep is {keep!r:.80}; expected a mask of {len(self):,} values, or positions from 0 to "
                f"{len(self) - 1:,}",
                field="keep",
            )
        return array

    def extend(self, *, contexts: Iterable[Id] = (), items: Iterable[Id] = ()) -> Interactions:
        """Return the same events with more contexts and items in the vocabularies, such as new items without events.

        >>> events = Interactions.from_frame({"u": [1], "i": ["tea"]}, context="u", item="i")
        >>> events.extend(items=["jam", "tea"]).items.ids()
        ['tea', 'jam']
        """
        return self.with_codes(
            self.contexts.extend(contexts),
            self.items.extend(items),
            self.context_codes,
            self.item_codes,
            slice(None),
        )

    def aggregated(self, how: Aggregate) -> Interactions:
        """Return the same events with another `aggregate`: how the weights of a repeated pair are combined.

        >>> frame = {"u": [1, 1], "i": ["a", "a"], "w": [2, 3]}
        >>> events = Interactions.from_frame(frame, context="u", item="i", weight="w")
        >>> events.by_context.values, events.aggregated("latest").by_context.values
        (array([5.], dtype=float32), array([3.], dtype=float32))
        """
        return Interactions(
            self.contexts,
            self.items,
            self.context_codes,
            self.item_codes,
            weights=self.weights,
            times=self.times,
            columns=self.columns,
            time_dtype=self.time_dtype,
            aggregate=how,
            dropped=self.dropped,
        )

    def with_codes(
        self,
        contexts: Vocabulary,
        items: Vocabulary,
        context_codes: Codes,
        item_codes: Codes,
        keep: npt.NDArray[Any] | slice,
    ) -> Interactions:
        """Return the events at `keep` with new vocabularies and codes."""
        return Interactions(
            contexts,
            items,
            context_codes,
            item_codes,
            weights=None if self.weights is None else self.weights[keep],
            times=None if self.times is None else self.times[keep],
            columns=self.columns,
            time_dtype=self.time_dtype,
            aggregate=self.aggregate,
        )

    def __repr__(self) -> str:
        names = ", ".join(self.contexts.names)
        parts = [
            f"Interactions({count(len(self), 'event')} of {count(self.n_contexts, 'context')} ({names}) "
            f"with {count(self.n_items, 'item')} ({self.items.names[0]}), {count(self.n_pairs, 'distinct pair')}"
        ]
        if self.weights is not None and len(self):
            parts.append(f"weights {self.weights.min():g} … {self.weights.max():g} ({self.aggregate})")
        if self.times is not None and len(self):
            parts.append(" … ".join(shown(time, self.time_dtype) for time in (self.times.min(), self.times.max())))
        if self.dropped:
            parts.append(f"{count(sum(self.dropped.values()), 'row')} dropped")
        return ", ".join(parts) + ")"


def _list_of_ids(ids: Any, what: str) -> Any:
    """Return ids as a list, an array or a Series; refuse what has no order, such as a set."""
    if isinstance(ids, list | tuple | pl.Series) or (isinstance(ids, np.ndarray) and ids.ndim == 1):
        return ids
    if isinstance(ids, str | bytes | Mapping | Set | np.ndarray) or not isinstance(ids, Iterable):
        raise SettingError(f"{what}s is {ids!r:.80}; expected a list of {what} ids", field=f"{what}s")
    return list(ids)


def _layout_hint(path: str | Path) -> str | None:
    """Return advice for an error message if `path` is in a public layout."""
    from shortlist.data.layouts.detect import recognise  # only for this message

    try:
        layout = recognise(path)
    except DataError:
        return None
    if layout is None:
        return None
    read = Phrase("read-layout", "read it with shortlist.datasets.read(path), without context= and item=")
    return Message("it looks like a public data set in the layout {}: {}", layout, read)


def _check_aggregate(aggregate: str) -> None:
    if not isinstance(aggregate, str) or aggregate not in _MERGE:
        raise refusal("aggregate", aggregate, "'sum', 'count' or 'latest'")


def time_order(times: npt.NDArray[Any] | None) -> npt.NDArray[np.uint32] | None:
    """Return the positions of events from oldest to newest (a stable sort), or None if they are sorted already."""
    if times is None or bool(np.all(times[1:] >= times[:-1])):
        return None
    order: npt.NDArray[np.uint32] = np.argsort(times, kind="stable").astype(np.uint32)
    return order


def compacted(vocabulary: Vocabulary, codes: Codes) -> tuple[Vocabulary, Codes]:
    """Return the ids in use among `codes`, in their old order, and the new code of each old code (−1: dropped)."""
    used = np.zeros(len(vocabulary), np.bool_)
    used[codes] = True
    if used.all():
        return vocabulary, np.arange(len(vocabulary), dtype=np.int32)
    remap = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    return Vocabulary(vocabulary.take(np.flatnonzero(used))), remap


def as_lazy(frame: Any, columns: Columns) -> pl.LazyFrame:
    """Convert any frame to a lazy polars frame, if possible without copying."""
    if isinstance(frame, pl.LazyFrame):
        return frame
    if isinstance(frame, pl.DataFrame):
        return frame.lazy()
    if isinstance(frame, Mapping):
        return _from_columns(dict(frame), columns)
    if isinstance(frame, list | tuple | np.ndarray | str | Path):
        raise DataError(
            f"expected a frame with named columns (polars, pandas, Arrow or a mapping), got {type(frame).__name__}",
            field="frame",
            hint="for a file use Interactions.read, for a SciPy matrix Interactions.from_csr",
        )
    if type(frame).__module__.startswith("pandas") and hasattr(frame, "columns"):
        return _from_pandas(frame, columns)
    if hasattr(frame, "__arrow_c_stream__"):
        return stream(frame)
    raise DataError(
        f"cannot read events from {type(frame).__name__}; expected a polars, pandas or Arrow frame, or a mapping",
        field="frame",
    )


def _from_pandas(frame: Any, columns: Columns) -> pl.LazyFrame:
    names = list(frame.columns)
    for name in columns.all:
        if name not in names:
            listed = ", ".join(map(repr, names)) or "none"
            hint = "it is in the index: call reset_index() first" if name in frame.index.names else None
            message = f"the frame: no column {name!r}; columns found: {listed}"
            raise DataError(message, code="missing-column", field=name, hint=hint)
        if names.count(name) > 1:
            raise DataError(
                f"the frame has {names.count(name)} columns {name!r}; column names must be unique", field=name
            )
    frame = frame[columns.all]
    if columns.time is not None and frame[columns.time].dtype == object:
        refuse_mixed_zones(columns.time, frame[columns.time])
    try:
        return stream(frame)
    except ImportError:  # polars needs pyarrow for pandas frames
        return _from_columns({name: frame[name].to_numpy() for name in columns.all}, columns)
    except DataError:
        for name in columns.all:  # find the column
            try:
                stream(frame[[name]])
            except DataError as error:
                types = ", ".join(sorted({type(value).__name__ for value in frame[name]}))
                raise DataError(
                    f"the frame: column {name!r} mixes types or holds objects ({types}); "
                    "ids are all integers or all text",
                    field=name,
                    code="column-type",
                ) from error
        raise


def _from_columns(data: dict[str, Any], columns: Columns) -> pl.LazyFrame:
    ids = (*columns.context, columns.item)
    series = [column(name, values, ids=name in ids) for name, values in data.items()]
    lengths = {values.name: len(values) for values in series}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the columns differ in length: {lengths}")
    return pl.DataFrame(series).lazy()
