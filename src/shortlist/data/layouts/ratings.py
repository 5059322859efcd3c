"""Tables of ratings: each line has a user, an item, a rating and a time since 1970."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from shortlist._wording import Argument, Message
from shortlist.data.encode import Columns, OnBad
from shortlist.data.event_files import EventFiles, build_from_files, column_names, find_files
from shortlist.data.interactions import Interactions
from shortlist.data.layouts.published import ITEM, RATING, TIME, USER
from shortlist.data.sparse_rows import has_pairs
from shortlist.errors import DataError, SettingError

PARTS = (USER, ITEM, RATING, TIME)
COLUMNS = Columns((USER,), ITEM, RATING, TIME, published=True)


def read_ratings(
    path: Path,
    separator: str,
    pattern: str,
    *,
    on_bad: OnBad,
    names: tuple[str, ...] = PARTS,
    header: tuple[str, ...] = (),
    whole: bool = True,
    unit: str = "s",
) -> Interactions:
    """Read a table of ratings.

    Args:
        path: the file; it may be gzipped.
        separator: one character, or two that are the same, as in `1::1193::5::978300760`.
        pattern: how a line is written, for messages.
        on_bad: `"raise"` an error for lines that cannot be read, or `"drop"` them.
        names: the columns in file order, if there is no header; the time may be missing.
        header: the names of user, item, rating and time in the header line, if there is one.
        whole: whether ids are integers; otherwise they are text.
        unit: the unit of times, "s" or "ms".
    """
    if header:
        names = _renamed_columns(path, header)
    columns = COLUMNS if TIME in names else replace(COLUMNS, time=None)
    typed = {TIME: moments(pl.col(TIME).cast(pl.Int64, strict=False), unit)} if TIME in names else {}
    if whole:
        typed |= {name: pl.col(name).cast(pl.Int64, strict=False) for name in (USER, ITEM)}
    if len(separator) > 1:  # polars reads `a::b` as three fields with an empty one in the middle
        between = [f"between {name} and {after}" for name, after in pairwise(names)]
        typed[names[0]] = pl.when(pl.all_horizontal(pl.col(between).is_null())).then(typed[names[0]])
        names = tuple(name for pair in zip(names, [*between, ""]) for name in pair if name)
    (file,) = find_files(path, "csv").paths
    files = EventFiles([file], "csv", separator[0], names, bool(header), pattern, typed)
    return Interactions.from_encoded(build_from_files(files, columns, on_bad), columns, "latest")


def _renamed_columns(path: Path, header: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns of a file, with the four of `header` renamed to `PARTS`."""
    columns = column_names(find_files(path, "csv"))
    missing = [name for name in header if name not in columns]
    if missing:
        raise DataError(
            f"{path}: no column {missing[0]!r}; columns found: {', '.join(map(repr, columns))}; expected the header "
            f"{','.join(header)}",
            code="missing-column",
            field=missing[0],
        )
    new_names = dict(zip(header, PARTS))
    return tuple(new_names.get(name, f"their {name}") for name in columns)


def moments(stamps: pl.Expr, unit: str) -> pl.Expr:
    """Convert seconds ("s") or milliseconds ("ms") since 1970 to times; null if they are thousands of years away."""
    factor = 1_000_000 if unit == "s" else 1_000
    near = stamps.is_between(-(10**17) // factor, 10**17 // factor)
    return pl.when(near).then(stamps * factor).cast(pl.Datetime("us"))


def at_least(events: Interactions, min_rating: float | None) -> Interactions:
    """Return the events with rating ≥ `min_rating`, with only their contexts and items; count the dropped ones.

    If a pair was rated several times and its latest rating is below `min_rating`, all its events are dropped.
    """
    if min_rating is None or events.weights is None:
        return events
    least = np.float32(min_rating)
    good = events.weights >= least
    keep = good
    if len(events) > events.n_pairs:
        latest = events.by_context
        assert latest.values is not None
        chosen = latest.values >= least
        indptr = np.concatenate([[0], np.cumsum(chosen)])[latest.indptr]
        keep = good & has_pairs(indptr, latest.indices[chosen], events.context_codes, events.item_codes)
    if not keep.any():
        message = Message(
            "{} keeps none of {:,} events; ratings are from {:g} to {:g}",
            Argument("min_rating", f"{min_rating:g}"),
            len(events),
            events.weights.min(),
            events.weights.max(),
        )
        raise SettingError(message, field="min_rating")
    counts = {
        f"events rated below {min_rating:g}": int((~good).sum()),
        f"events of pairs whose latest rating is below {min_rating:g}": int((good & ~keep).sum()),
    }
    kept = events.select(keep, compact=True)
    kept.dropped.update(events.dropped | {what: count for what, count in counts.items() if count})
    return kept
