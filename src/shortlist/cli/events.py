"""Read DATA into Interactions, using the options that describe it."""

import difflib
import glob
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from shortlist.cli.options import Aggregate, Format, OnBad
from shortlist.cli.output import Output
from shortlist.cli.safe_text import counted

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions
    from shortlist.data.splits import Split


@dataclass(frozen=True)
class LoadedEvents:
    """Events that were read. For a public layout, also what was published with them."""

    events: "Interactions"
    layout: str | None = None
    split: "Split | None" = None
    validation: "Split | None" = None  # a split of the training part of `split`
    candidates: "Interactions | None" = None
    everything: "Interactions | None" = None  # including the test events

    def summary(self) -> dict[str, Any]:
        """Return the size of the data, for JSON."""
        return {**summary(self.events), "layout": self.layout}


@dataclass(frozen=True, kw_only=True)
class EventSource:
    """A source of events: files with named columns, bundled data, or data in a public layout."""

    data: str
    context: list[str]
    item: str | None
    weight: str | None
    time: str | None
    aggregate: Aggregate | None
    on_bad: OnBad
    format: Format | None
    separator: str | None
    layout: str | None
    min_rating: float | None

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> "EventSource":
        """Create the source from the parameters of a command. Enum values may still be text here."""
        aggregate, file_format = params.get("aggregate"), params["file_format"]
        return cls(
            data=params["data"],
            context=list(params["context"] or ()),
            item=params["item"],
            weight=params["weight"],
            time=params["time"],
            aggregate=None if aggregate is None else Aggregate(aggregate),
            on_bad=OnBad(params["on_bad"]),
            format=None if file_format is None else Format(file_format),
            separator=params["separator"],
            layout=params["layout"],
            min_rating=params["min_rating"],
        )

    @property
    def named(self) -> bool:
        """Whether the user named any column."""
        return bool(self.context or self.item or self.weight or self.time)

    @property
    def bundled(self) -> bool:
        """Whether DATA names bundled data. With columns or a layout, an existing file of that name wins."""
        from shortlist.data import datasets

        known = self.data in [info.name for info in datasets.available()]
        return known and not ((self.named or self.layout) and Path(self.data).exists())

    @cached_property
    def public_layout(self) -> str | None:
        """The public layout: the given one, or the detected one if no columns are named."""
        from shortlist.data.layouts import recognise

        if self.layout is not None:
            return self.layout
        plain = not self.named and self.format is None and self.separator is None
        return recognise(self.data) if plain and not self.bundled else None

    def read(self, output: Output) -> LoadedEvents:
        """Read the events and print notes about them."""
        if self.bundled or self.public_layout is not None:
            self._refuse_columns()
        elif self.min_rating is not None:
            raise typer.BadParameter("only valid for data in a public layout", param_hint="--min-rating")
        if self.bundled:
            loaded = LoadedEvents(self._bundled())
        elif self.public_layout is not None:
            loaded = self._published(self.public_layout)
        else:
            loaded = LoadedEvents(self._files())
        layout = "" if loaded.layout is None else f" in the layout {loaded.layout}"
        output.note(f"read {described(loaded.events)}{layout}")
        if loaded.events.dropped:
            output.note(f"dropped: {counted(loaded.events.dropped)}")
        return loaded

    def _refuse_columns(self) -> None:
        what = f"{self.data} is {'bundled data' if self.bundled else f'in the layout {self.public_layout}'}"
        if self.named:
            raise typer.BadParameter(f"{what}, so its columns are already known; omit them", param_hint="--context")
        if self.format is not None or self.separator is not None:
            raise typer.BadParameter(f"{what}, so its format is already known; omit it", param_hint="--format")
        if self.bundled and (self.min_rating is not None or self.layout is not None):
            raise typer.BadParameter(f"{what}, not in a public layout", param_hint="--layout and --min-rating")

    def _bundled(self) -> "Interactions":
        from shortlist.data import datasets

        return self._aggregated(datasets.load(self.data).interactions)

    def _published(self, layout: str) -> LoadedEvents:
        from shortlist.data import datasets

        data = datasets.read(self.data, layout, self.min_rating, on_bad=self.on_bad.value)
        if data.split is None:
            return LoadedEvents(self._aggregated(data.interactions), data.info.name)
        if self.aggregate is not None:
            raise typer.BadParameter("cannot be changed for data with a published split", param_hint="--aggregate")
        return LoadedEvents(
            data.interactions, data.info.name, data.split, data.validation, data.candidates, data.everything
        )

    def _aggregated(self, events: "Interactions") -> "Interactions":
        return events if self.aggregate is None else events.aggregated(self.aggregate.value)

    def _files(self) -> "Interactions":
        from shortlist.data import datasets
        from shortlist.data.interactions import Interactions

        names = [info.name for info in datasets.available()]
        missing = not Path(self.data).exists() and not glob.has_magic(self.data)
        if missing and difflib.get_close_matches(self.data, names, 1):
            datasets.load(self.data)  # raises an error that suggests the right name
        separator = one_character(self.separator)
        if not self.context or not self.item:
            raise typer.BadParameter(self._columns_needed(separator), param_hint="--context and --item")
        return Interactions.read(
            self.data,
            context=self.context,
            item=self.item,
            weight=self.weight,
            time=self.time,
            aggregate="sum" if self.aggregate is None else self.aggregate.value,
            on_bad=self.on_bad.value,
            format=self.format.value if self.format else None,
            separator=separator,
        )

    def _columns_needed(self, separator: str | None) -> str:
        from shortlist.data.event_files import column_names, find_files

        files = find_files(self.data, self.format.value if self.format else None, separator)
        return f"name the columns of {files.name}; it has: {', '.join(column_names(files))}"


def described(events: "Interactions") -> str:
    """Describe the events in one line."""
    return repr(events).removeprefix("Interactions(").removesuffix(")")


def one_character(separator: str | None) -> str | None:
    r"""Return the separator as one character. A tab may be typed as `\t`."""
    if separator is None:
        return None
    character = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
    if len(character) != 1 or not character.isascii() or character in '\r\n"':
        raise typer.BadParameter(f"{separator!r} is not a single ASCII character", param_hint="--separator")
    return character


def summary(events: "Interactions") -> dict[str, Any]:
    """Return the size of the data, for JSON."""
    return {
        "events": len(events),
        "contexts": events.n_contexts,
        "items": events.n_items,
        "pairs": events.n_pairs,
        "dropped": events.dropped,
    }
