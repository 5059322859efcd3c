"""What is in files of events: their columns, and, once it is known which is which, the events."""

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
_COMPARED = 100  # files of a folder whose columns are compared
_TABLES = 20  # shown at most
_QUANTILES = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


# --- files and columns -----------------------------------------------------------------------------------------------


def describe_files(files: "EventFiles") -> dict[str, Any]:
    """The format, the size, the columns, the number of rows.

    Where files in a folder have different columns, they are different tables: each is described by itself.
    """
    from shortlist.data.encode import polars_errors

    size = sum(one.stat().st_size for one in files.paths)
    told = {"format": files.format, "files": [str(one) for one in files.paths], "bytes": size}
    if _differ(files):
        tables = [describe_files(replace(files, paths=[one])) for one in files.paths[:_TABLES]]
        return {**told, "rows": None, "columns": None, "tables": tables}
    with polars_errors(files.name):
        return {**told, **_columns_and_rows(files)}


def show_files(files: "EventFiles", told: dict[str, Any], say: Output) -> None:
    """The same in words."""
    if "tables" in told:
        say.line(f"{files.name}: tables with different columns; fit and evaluate take one of them")
        for one in told["tables"]:
            say.line()
            show_files(replace(files, paths=[Path(one["files"][0])]), one, say)
        return
    ragged = f"; {told['ragged']:,} more lines have another number of fields than the header" if told["ragged"] else ""
    say.facts(
        [
            ("data", files.name),
            ("format", files.format + (f", separator {files.separator!r}" if files.format in ("csv", "tsv") else "")),
            ("size", f"{told['bytes']:,} bytes"),
            ("rows", f"{told['rows']:,}{ragged}"),
        ]
    )
    say.line()
    say.table(
        ["column", "type", "first value"],
        [[one["name"], one["type"], "" if one["first"] is None else one["first"]] for one in told["columns"]],
    )


def _differ(files: "EventFiles") -> bool:
    from shortlist.data.event_files import column_names

    first = files.paths[:_COMPARED] if len(files.paths) > 1 and files.format != "jsonl" else []
    return len({frozenset(column_names(replace(files, paths=[one]))) for one in first}) > 1


def _columns_and_rows(files: "EventFiles") -> dict[str, Any]:
    """Both as `fit` reads them, but for lines with another number of fields than the header: those are counted."""
    import polars as pl

    from shortlist.data.event_files import scan, scan_text

    if files.format in ("csv", "tsv"):
        text = scan_text(files, on_bad="drop")
        blank = pl.all_horizontal(pl.all().is_null())
        sample = text.frame.filter(~blank).head(_SAMPLE).collect(engine="streaming")
        columns = [{"name": one.name, "type": _kind_of_text(one), "first": _first(one)} for one in sample]
        return {"rows": text.n_records, "columns": columns, "ragged": text.n_ragged}
    frame = scan(files)
    sample = frame.head(_SAMPLE).collect(engine="streaming")
    columns = [{"name": one.name, "type": str(one.dtype), "first": _first(one)} for one in sample]
    return {"rows": int(frame.select(pl.len()).collect(engine="streaming").item()), "columns": columns, "ragged": 0}


def _first(column: "pl.Series") -> str | None:
    return None if not len(column) or column[0] is None else str(column[0])


def _kind_of_text(column: "pl.Series") -> str:
    """What a column of text would be read as, judged by its first rows."""
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
    """Whether they are dates or moments to whoever reads events."""
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
    """How many events of whom with what, how often, when, and how they are spread."""
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


def show_events(told: dict[str, Any], say: Output, *, asked_for: bool) -> None:
    """The same in words; where nobody asked to leave rows out, how to make the other commands do so."""
    advice = "" if asked_for else "; fit and evaluate need --on-bad drop for that"
    times = told["times"]
    facts: list[tuple[str, object]] = [
        ("events", f"{told['events']:,} of {count(told['contexts'], 'context')} with {count(told['items'], 'item')}"),
        ("distinct pairs", f"{told['pairs']:,}; {told['repeated_share']:.1%} of the events repeat a pair"),
        ("times", "none" if times is None else f"{times['first']} … {times['last']}"),
        ("contexts with one event", f"{told['contexts_with_one_event']:.1%}"),
        ("items with one event", f"{told['items_with_one_event']:.1%}"),
    ]
    bad = told["dropped"]
    facts.append(("left out", f"{counted(bad)}{advice}" if bad else "nothing"))
    say.facts(facts)
    say.line()
    spreads = [("events per context", told["events_per_context"]), ("events per item", told["events_per_item"])]
    if told["weights"] is not None:
        spreads.append(("weights", told["weights"]))
    names = list(_QUANTILES)
    rows = [[name, *(f"{spread[one]:,.6g}" for one in names), f"{spread['mean']:,.4g}"] for name, spread in spreads]
    say.table(["", *names, "mean"], rows, right=[*names, "mean"])
    say.line()
    say.table(
        ["most popular", "contexts", "events"],
        [[shown(one["item"]), f"{one['contexts']:,}", f"{one['events']:,}"] for one in told["popular"]],
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
    """The items that most contexts have had."""
    import numpy as np

    contexts = events.by_item.lengths
    first = np.argsort(-contexts, kind="stable")[:_POPULAR]
    return [
        {"item": one, "contexts": int(contexts[code]), "events": int(per_item[code])}
        for one, code in zip(events.items.ids(first), first)
    ]
