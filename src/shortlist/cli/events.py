"""From DATA and its column options to Interactions."""

import difflib
import glob
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from shortlist.cli.options import Aggregate, Format, OnBad
from shortlist.cli.output import Output
from shortlist.cli.text import counted

if TYPE_CHECKING:
    from shortlist.data.interactions import Aggregate as AggregateWord
    from shortlist.data.interactions import Interactions


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where events come from: files with named columns, or bundled data that knows its own."""

    data: str
    context: list[str] | None
    item: str | None
    weight: str | None
    time: str | None
    aggregate: Aggregate
    on_bad: OnBad
    format: Format | None
    separator: str | None

    def read(self, out: Output) -> "Interactions":
        """Read the events and say what was found."""
        from shortlist.data import datasets

        names = [info.name for info in datasets.available()]
        named = bool(self.context or self.item or self.weight or self.time)
        exists = Path(self.data).exists()
        if self.data in names and not (exists and named):
            if named:
                raise typer.BadParameter(f"{self.data} is bundled data and knows its columns", param_hint="--context")
            events = self._bundled()
        else:
            if not exists and not glob.has_magic(self.data) and difflib.get_close_matches(self.data, names, 1):
                datasets.load(self.data)  # which asks whether the other name was meant
            events = self._files()
        out.note(f"read {described(events)}")
        if events.dropped:
            out.note(f"left out: {counted(events.dropped)}")
        return events

    def _bundled(self) -> "Interactions":
        from shortlist.data import datasets
        from shortlist.data.interactions import Interactions

        events = datasets.load(self.data).interactions
        aggregate: AggregateWord = self.aggregate.value
        if aggregate == "sum":
            return events
        columns = events.columns
        return Interactions.from_frame(
            events.to_polars(),
            context=columns.context,
            item=columns.item,
            weight=columns.weight,
            time=columns.time,
            aggregate=aggregate,
        )

    def _files(self) -> "Interactions":
        from shortlist.data.interactions import Interactions

        separator = one_character(self.separator)
        if not self.context or not self.item:
            raise typer.BadParameter(self._columns_needed(separator), param_hint="--context and --item")
        return Interactions.read(
            self.data,
            context=self.context,
            item=self.item,
            weight=self.weight,
            time=self.time,
            aggregate=self.aggregate.value,
            on_bad=self.on_bad.value,
            format=self.format.value if self.format else None,
            separator=separator,
        )

    def _columns_needed(self, separator: str | None) -> str:
        from shortlist.data.reading import column_names, find_files

        files = find_files(self.data, self.format.value if self.format else None, separator)
        return f"name the columns of {files.name}; it has: {', '.join(column_names(files))}"


def described(events: "Interactions") -> str:
    """The events in words."""
    return repr(events).removeprefix("Interactions(").removesuffix(")")


def one_character(separator: str | None) -> str | None:
    r"""A separator as typed: one character; a tab also as `\t`."""
    if separator is None:
        return None
    one = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
    if len(one) != 1 or not one.isascii() or one in '\r\n"':
        raise typer.BadParameter(f"{separator!r} is not one plain character", param_hint="--separator")
    return one


def summary(events: "Interactions") -> dict[str, Any]:
    """The size of the data, for JSON."""
    return {
        "events": len(events),
        "contexts": events.n_contexts,
        "items": events.n_items,
        "pairs": events.n_pairs,
        "dropped": events.dropped,
    }
