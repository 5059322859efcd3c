"""How events are split: the options that say so, and what comes of them."""

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
    """How events are split."""

    TIME = "time"
    LAST = "last"
    RANDOM = "random"
    CONTEXTS = "contexts"


class Repeats(StrEnum):
    """Whether pairs of the training part count as right answers."""

    DROP = "drop"
    KEEP = "keep"


_SPLIT = "Split"


def _by(default: str) -> Any:
    return typer.Option(
        help="What to ask for: what came after a moment in time, each context's last event, random events, or part "
        f"of the events of contexts that are held out. {default}",
        rich_help_panel=_SPLIT,
        show_default=False,
    )


By = Annotated[SplitBy | None, _by("By default as published, where there is such a split, else by time.")]
ValidationBy = Annotated[
    SplitBy | None,
    _by(
        "By default as published, where a validation part is, else by time, and without times at random. A published "
        "test stays aside."
    ),
]
Test = Annotated[
    str | None,
    typer.Option(
        help="The share to ask for, 0.1 by default. By time also the newest stretch (7d; units s, m, h, d, w) or the "
        "moment (2011-11-01), by last how many events (1 by default), by contexts how many contexts.",
        rich_help_panel=_SPLIT,
    ),
]
Repeated = Annotated[
    Repeats | None,
    typer.Option(help="Whether pairs of the training part count as right answers.", rich_help_panel=_SPLIT),
]
FoldIn = Annotated[
    float | None,
    typer.Option(
        help="By contexts: the share of a held-out context's pairs that is shown, 0.8 by default.",
        rich_help_panel=_SPLIT,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        help="Of random splits and of the order of equal scores. A model's own seed is --set seed=1.",
        rich_help_panel=_SPLIT,
    ),
]


@dataclass(frozen=True)
class SplitOptions:
    """What the options say about the split, once they have been found to go together."""

    by: SplitBy | None
    test: str | None
    repeats: Repeats | None
    fold_in: float | None
    seed: int

    def __post_init__(self) -> None:
        if self.by is SplitBy.CONTEXTS and self.repeats is not None:
            raise typer.BadParameter("a split by contexts has no repeats", param_hint="--repeats")
        if self.by is not SplitBy.CONTEXTS and self.fold_in is not None:
            raise typer.BadParameter("it is for --split contexts", param_hint="--fold-in")

    def split(self, found: LoadedEvents, data: str, say: Output) -> "Split":
        """The published split, where there is one and no other is asked for; else one of the events themselves."""
        if self.by is None and found.split is not None:
            if self.test is not None or self.repeats is not None:
                message = f"the split is {found.split.protocol}; to make another, pass --split too"
                raise typer.BadParameter(message, param_hint="--test and --repeats")
            say.note(f"split by {found.split.protocol}")
            if found.candidates is not None:
                say.note(
                    "every item is ranked; figures published for its candidates only cannot be compared with these"
                )
            return found.split
        published = "leave --split out for the published one, or " if found.split is not None else ""
        return self.own(found, data, self.by or SplitBy.TIME, say, published)

    def validation(self, found: LoadedEvents, data: str, say: Output) -> "Split":
        """A split of the events to learn from, to try settings out on: a published test stays aside.

        Where nothing else is asked for it is the published one. Where there is none it is by time; without times at
        random, or by contexts where the published test is.
        """
        plain = self.by is None and self.test is None and self.repeats is None
        if plain and found.validation is not None:
            say.note(f"validation by {found.validation.protocol}")
            return found.validation
        by = self.by
        if by is None:
            by = SplitBy.RANDOM if found.events.times is None else SplitBy.TIME
            if found.split is not None and found.split.fold_in:
                by = SplitBy.CONTEXTS
        if by is SplitBy.CONTEXTS and self.repeats is not None:
            raise typer.BadParameter("a split by contexts has no repeats", param_hint="--repeats")
        return self.own(found, data, by, say)

    def own(self, found: LoadedEvents, data: str, by: SplitBy, say: Output, instead: str = "") -> "Split":
        """A split of the events, whatever was published with them; `instead` is what else there would be."""
        if found.split is not None:
            say.note(f"the test of {found.split.protocol} stays aside: the split is made of the other events")
        if found.layout is not None and found.events.times is None and by in (SplitBy.TIME, SplitBy.LAST):
            raise DataError(
                f"{data}: data in the layout {found.layout} has no times, which --split {by} needs; {instead}pass "
                "--split random or --split contexts"
            )
        return self._of(found.events, by)

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


def show_split(split: "Split", say: Output) -> None:
    """What is learnt from, what is asked for, what was dropped."""
    train, truth = split.train, split.truth
    say.title(f"Split by {split.protocol}, repeats {'dropped' if split.repeats == 'drop' else 'kept'}")
    strangers = ", not in train: their history is folded in" if split.fold_in else ""
    dropped = [f"{count:,} {what}" for what, count in split.dropped.items() if count]
    size = f"{count(train.n_contexts, 'context')} with {count(train.n_items, 'item')}"
    say.facts(
        [
            ("train", f"{count(len(train), 'event')} of {size}"),
            ("truth", f"{count(len(truth), 'pair')} of {count(truth.n_contexts, 'context')}{strangers}"),
            ("dropped", dropped[0] if dropped else "nothing"),
            *(("", one) for one in dropped[1:]),
        ]
    )


def split_document(split: "Split") -> dict[str, Any]:
    """The same for JSON."""
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
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text):  # Python refuses to read thousands of digits
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text
