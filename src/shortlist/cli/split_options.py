"""Options that define the split of events, and the report about the split."""

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from shortlist._phrases import count
from shortlist.cli.events import LoadedEvents
from shortlist.cli.output import Output
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions
    from shortlist.data.splits import Split


class SplitBy(StrEnum):
    """How to hold out events."""

    TIME = "time"
    LAST = "last"
    RANDOM = "random"
    CONTEXTS = "contexts"


class Repeats(StrEnum):
    """How to handle test pairs that are already in the training part."""

    DROP = "drop"
    KEEP = "keep"


_SPLIT = "Split"


def _by(data: str, default: str) -> Any:
    return typer.Option(
        help=f"How to hold out {data} data: the newest events (time), each context's last event (last), random events "
        f"(random), or some whole contexts, with part of their events as history (contexts). {default}",
        rich_help_panel=_SPLIT,
        show_default=False,
    )


By = Annotated[SplitBy | None, _by("test", "Default: the published split if there is one, else time.")]
ValidationBy = Annotated[
    SplitBy | None,
    _by(
        "validation",
        "Default: the published validation part if there is one, else time, or random if there are no times. A "
        "published test set is never used.",
    ),
]
Test = Annotated[
    str | None,
    typer.Option(
        help="Size of the held-out part: a fraction, by default 0.1. With --split time, also a duration (7d; "
        "units s, m, h, d, w) or a start date (2011-11-01). With --split last, the number of events per context, by "
        "default 1. With --split contexts, a fraction or a number of contexts.",
        rich_help_panel=_SPLIT,
    ),
]
Repeated = Annotated[
    Repeats | None,
    typer.Option(
        help="Held-out pairs that are already in training: drop them, or keep them as correct answers. Default: drop.",
        rich_help_panel=_SPLIT,
        show_default=False,
    ),
]
FoldIn = Annotated[
    float | None,
    typer.Option(
        help="With --split contexts: fraction of each held-out context's pairs given to the model as history. "
        "Default: 0.8.",
        rich_help_panel=_SPLIT,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        help="Seed for random splits and for the order of equal scores. The model has its own seed: --set seed=1.",
        rich_help_panel=_SPLIT,
    ),
]


@dataclass(frozen=True)
class SplitOptions:
    """The validated options about the split."""

    by: SplitBy | None
    test: str | None
    repeats: Repeats | None
    fold_in: float | None
    seed: int

    def __post_init__(self) -> None:
        if self.by is SplitBy.CONTEXTS and self.repeats is not None:
            raise typer.BadParameter("cannot be used with a split by contexts", param_hint="--repeats")
        if self.by is not SplitBy.CONTEXTS and self.fold_in is not None:
            raise typer.BadParameter("only valid with --split contexts", param_hint="--fold-in")

    def split(self, loaded: LoadedEvents, data: str, output: Output) -> "Split":
        """Return the published split, unless the options ask for another one."""
        if self.by is None and loaded.split is not None:
            if self.test is not None or self.repeats is not None:
                message = f"the data has a published split ({loaded.split.protocol}); pass --split to make another one"
                raise typer.BadParameter(message, param_hint="--test and --repeats")
            output.note(f"split by {loaded.split.protocol}")
            if loaded.candidates is not None:
                output.note("all items are ranked; published scores that rank only the candidates are not comparable")
            return loaded.split
        published = "omit --split to use the published one, or " if loaded.split is not None else ""
        return self.make(loaded, data, self.by or SplitBy.TIME, output, published)

    def validation(self, loaded: LoadedEvents, data: str, output: Output) -> "Split":
        """Return a split of the training events into training and validation events. A published test is never used.

        By default it is the published validation split. If there is none, it is by contexts if the published test is,
        else by time, or random if there are no times.
        """
        plain = self.by is None and self.test is None and self.repeats is None
        if plain and loaded.validation is not None:
            output.note(f"validation by {loaded.validation.protocol}")
            return loaded.validation
        by = self.by
        if by is None:
            by = SplitBy.RANDOM if loaded.events.times is None else SplitBy.TIME
            if loaded.split is not None and loaded.split.fold_in:
                by = SplitBy.CONTEXTS
        if by is SplitBy.CONTEXTS and self.repeats is not None:
            raise typer.BadParameter("cannot be used with a split by contexts", param_hint="--repeats")
        return self.make(loaded, data, by, output)

    def make(self, loaded: LoadedEvents, data: str, by: SplitBy, output: Output, instead: str = "") -> "Split":
        """Split the events and ignore any published split. `instead` is extra advice for error messages."""
        if loaded.split is not None:
            output.note(f"the published test ({loaded.split.protocol}) is set aside; the split uses the other events")
        if loaded.layout is not None and loaded.events.times is None and by in (SplitBy.TIME, SplitBy.LAST):
            raise DataError(
                f"{data}: data in the layout {loaded.layout} has no times, but --split {by} needs times",
                code="no-times",
                field="split",
                hint=f"{instead}pass --split random or --split contexts",
            )
        return self._of(loaded.events, by)

    def _of(self, events: "Interactions", by: SplitBy) -> "Split":
        from shortlist.data import splits

        part: Any = (1 if by is SplitBy.LAST else 0.1) if self.test is None else _number_or_text(self.test)
        kept: Literal["drop", "keep"] = "keep" if self.repeats is Repeats.KEEP else "drop"
        if by is SplitBy.TIME:
            return splits.by_time(events, part, repeats=kept)
        if by is SplitBy.LAST:
            return splits.leave_last_out(events, part, repeats=kept)
        if by is SplitBy.RANDOM:
            return splits.at_random(events, part, seed=self.seed, repeats=kept)
        shown = 0.8 if self.fold_in is None else self.fold_in
        return splits.held_out_contexts(events, part, fold_in=shown, seed=self.seed)


def show_split(split: "Split", output: Output) -> None:
    """Print the sizes of the training and test parts, and what was dropped."""
    train, truth = split.train, split.truth
    output.title(f"Split by {split.protocol}, repeats {'dropped' if split.repeats == 'drop' else 'kept'}")
    new = "; new contexts, their history is folded in" if split.fold_in else ""
    dropped = [f"{what}: {number:,}" for what, number in split.dropped.items() if number]
    size = f"{count(train.n_contexts, 'context')} with {count(train.n_items, 'item')}"
    output.facts(
        [
            ("train", f"{count(len(train), 'event')} of {size}"),
            ("test", f"{count(len(truth), 'pair')} of {count(truth.n_contexts, 'context')}{new}"),
            ("dropped", dropped[0] if dropped else "nothing"),
            *(("", line) for line in dropped[1:]),
        ]
    )


def split_document(split: "Split") -> dict[str, Any]:
    """Return the sizes of the split for JSON."""
    return {
        "protocol": split.protocol,
        "repeats": split.repeats,
        "fold_in": split.fold_in,
        "train": {
            "events": len(split.train),
            "contexts": split.train.n_contexts,
            "items": split.train.n_items,
        },
        "truth": {"pairs": len(split.truth), "contexts": split.truth.n_contexts},
        "dropped": split.dropped,
    }


def _number_or_text(text: str) -> int | float | str:
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text):  # Python refuses integers of thousands of digits
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text
