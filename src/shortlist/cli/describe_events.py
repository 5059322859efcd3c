"""Describe files of events: their columns, and the events if the columns are named."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shortlist._phrases import count
from shortlist.cli.events import summary
from shortlist.cli.output import Output
from shortlist.cli.safe_text import counted, shown

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

    from shortlist.data.event_files import EventFiles
    from shortlist.data.interactions import Interactions

_SAMPLE = 1000
_POPULAR = 10
_COMPARED = 100  # maximum number of files whose columns are compared
_TABLES = 20  # maximum number of tables shown
_QUANTILES = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


# --- files and columns -----------------------------------------------------------------------------------------------


def describe_files(files: "EventFiles") -> dict[str, Any]:
    """Return the format, size, columns and number of rows.

    Files with different columns are different tables; each is described separately.
    """
    from shortlist.data.encode import polars_errors

    size = sum(path.stat().st_size for path in files.paths)
    description = {"format": files.format, "files": [str(path) for path in files.paths], "bytes": size}
    if _differ(files):
        tables = [describe_files(replace(files, paths=[path])) for path in files.paths[:_TABLES]]
        return {**description, "rows": None, "columns": None, "tables": tables}
    with polars_errors(files.name):
        return {**description, **_columns_and_rows(files)}


def show_files(files: "EventFiles", description: dict[str, Any], output: Output) -> None:
    """Print the result of `describe_files`."""
    if "tables" in description:
        output.line(f"{files.name}: tables with different columns; pass one of the files to fit or evaluate")
        for table in description["tables"]:
            output.line()
            show_files(replace(files, paths=[Path(table["files"][0])]), table, output)
        return
    n_ragged = description["ragged"]
    ragged = f"; {n_ragged:,} more lines do not have as many fields as the header" if n_ragged else ""
    output.facts(
        [
            ("data", files.name),
            ("format", files.format + (f", separator {files.separator!r}" if files.format in ("csv", "tsv") else "")),
            ("size", f"{description['bytes']:,} bytes"),
            ("rows", f"{description['rows']:,}{ragged}"),
        ]
    )
    output.line()
    output.table(
        ["column", "type", "first value"],
        [[column["name"], column["type"], column["first"] or ""] for column in description["columns"]],
    )


def _differ(files: "EventFiles") -> bool:
    from shortlist.data.event_files import column_names

    first = files.paths[:_COMPARED] if len(files.paths) > 1 and files.format != "jsonl" else []
    return len({frozenset(column_names(replace(files, paths=[path]))) for path in first}) > 1


def _columns_and_rows(files: "EventFiles") -> dict[str, Any]:
    """Return both as `fit` reads them. Lines with a wrong number of fields are counted instead of refused."""
    import polars as pl

    from shortlist.data.event_files import scan, scan_text

    if files.format in ("csv", "tsv"):
        text = scan_text(files, on_bad="drop")
        blank = pl.all_horizontal(pl.all().is_null())
        sample = text.frame.filter(~blank).head(_SAMPLE).collect(engine="streaming")
        columns = [{"name": series.name, "type": _text_type(series), "first": _first(series)} for series in sample]
        return {"rows": text.n_records, "columns": columns, "ragged": text.n_ragged}
    frame = scan(files)
    sample = frame.head(_SAMPLE).collect(engine="streaming")
    columns = [{"name": series.name, "type": str(series.dtype), "first": _first(series)} for series in sample]
    return {"rows": int(frame.select(pl.len()).collect(engine="streaming").item()), "columns": columns, "ragged": 0}


def _first(column: "pl.Series") -> str | None:
    return None if not len(column) or column[0] is None else str(column[0])


def _text_type(column: "pl.Series") -> str:
    """Return the type of a text column, judged by its first rows."""
    import polars as pl

    from shortlist.data.encode import WHOLE_NUMBER

    values = column.drop_nulls()
    if not len(values):
        return "empty"
    if values.str.contains(WHOLE_NUMBER).all():
        return "text" if values.cast(pl.Int64, strict=False).null_count() else "integer"
    if not values.cast(pl.Float64, strict=False).null_count() and not values.str.contains(r"^0\d").any():
        return "number"
    return "time" if _are_times(values) else "text"


def _are_times(values: "pl.Series") -> bool:
    """Return whether these values would be read as dates or timestamps."""
    import polars as pl

    from shortlist.data.interactions import Interactions
    from shortlist.errors import DataError

    frame = pl.DataFrame({"place": pl.int_range(len(values), eager=True), "item": "", "time": values})
    try:
        events = Interactions.from_frame(frame, context="place", item="item", time="time")
    except DataError:
        return False
    return events.time_dtype is not None and events.time_dtype.is_temporal()


# --- events ----------------------------------------------------------------------------------------------------------


def describe_events(events: "Interactions") -> dict[str, Any]:
    """Return counts and distributions of the events."""
    import numpy as np

    per_context = np.bincount(events.context_codes, minlength=events.n_contexts)
    per_item = np.bincount(events.item_codes, minlength=events.n_items)
    repeats = len(events) - events.n_pairs
    return {
        **summary(events),
        "repeats": repeats,
        "repeated_share": repeats / len(events),
        "events_per_context": _spread(per_context),
        "contexts_with_one_event": _share_of_ones(per_context),
        "events_per_item": _spread(per_item),
        "items_with_one_event": _share_of_ones(per_item),
        "weights": None if events.weights is None else _spread(events.weights),
        "times": _times(events),
        "popular": _popular(events, per_item),
    }


def show_events(statistics: dict[str, Any], output: Output, *, dropped_on_request: bool) -> None:
    """Print the statistics. If rows were dropped without a request, output how to drop them in other commands."""
    advice = "" if dropped_on_request else "; pass --on-bad drop to drop them in other commands too"
    times = statistics["times"]
    contexts, items = count(statistics["contexts"], "context"), count(statistics["items"], "item")
    facts: list[tuple[str, object]] = [
        ("events", f"{statistics['events']:,} of {contexts} with {items}"),
        ("distinct pairs", f"{statistics['pairs']:,}; {statistics['repeated_share']:.1%} of the events are repeats"),
        ("times", "none" if times is None else f"{times['first']} … {times['last']}"),
        ("contexts with one event", f"{statistics['contexts_with_one_event']:.1%}"),
        ("items with one event", f"{statistics['items_with_one_event']:.1%}"),
    ]
    bad = statistics["dropped"]
    facts.append(("dropped", f"{counted(bad)}{advice}" if bad else "nothing"))
    output.facts(facts)
    output.line()
    spreads = [
        ("events per context", statistics["events_per_context"]),
        ("events per item", statistics["events_per_item"]),
    ]
    if statistics["weights"] is not None:
        spreads.append(("weights", statistics["weights"]))
    names = list(_QUANTILES)
    rows = [
        [name, *(f"{spread[quantile]:,.6g}" for quantile in names), f"{spread['mean']:,.4g}"]
        for name, spread in spreads
    ]
    output.table(["", *names, "mean"], rows, right=[*names, "mean"])
    output.line()
    output.table(
        ["most popular", "contexts", "events"],
        [[shown(item["item"]), f"{item['contexts']:,}", f"{item['events']:,}"] for item in statistics["popular"]],
        right=["contexts", "events"],
    )


def _spread(values: "npt.NDArray[np.generic]") -> dict[str, float]:
    import numpy as np

    points = np.quantile(values.astype(np.float64), list(_QUANTILES.values()), method="nearest")
    return {**dict(zip(_QUANTILES, points.tolist())), "mean": float(values.mean(dtype=np.float64))}


def _share_of_ones(counts: "npt.NDArray[np.intp]") -> float:
    return float((counts == 1).mean())


def _times(events: "Interactions") -> dict[str, str] | None:
    from shortlist.data.times import shown

    if events.times is None:
        return None
    first, last = (shown(time, events.time_dtype) for time in (events.times.min(), events.times.max()))
    return {"first": first, "last": last}


def _popular(events: "Interactions", per_item: "npt.NDArray[np.intp]") -> list[dict[str, Any]]:
    """Return the items with the most contexts."""
    import numpy as np

    contexts = events.by_item.lengths
    first = np.argsort(-contexts, kind="stable")[:_POPULAR]
    return [
        {"item": item, "contexts": int(contexts[code]), "events": int(per_item[code])}
        for item, code in zip(events.items.ids(first), first)
    ]
