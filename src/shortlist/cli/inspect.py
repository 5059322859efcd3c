"""`shortlist inspect`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist.cli import completion
from shortlist.cli import options as opt
from shortlist.cli.describe_events import describe_events, describe_files, show_events, show_files
from shortlist.cli.describe_model import describe_model
from shortlist.cli.events import EventSource, LoadedEvents, one_character
from shortlist.cli.output import Output

if TYPE_CHECKING:
    from shortlist.data.event_files import EventFiles


def inspect(
    ctx: typer.Context,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="A model's directory; or a data file, a folder of them, a pattern, the name of bundled data.",
            show_default=False,
            autocompletion=completion.data,
        ),
    ],
    context: opt.Context = None,
    item: opt.Item = None,
    weight: opt.Weight = None,
    time: opt.Time = None,
    file_format: opt.FileFormat = None,
    separator: opt.Separator = None,
    layout: opt.Layout = None,
    min_rating: opt.MinRating = None,
    check: Annotated[
        bool, typer.Option("--check", help="Load the model: is every file as it was saved, and does it answer?")
    ] = False,
    config: opt.Config = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """What is in a saved model, or in a file of events.

    Of data the columns are shown, and once it is known which is which, how the events are spread.

    For example:

      shortlist inspect models/shop --check

      shortlist inspect events.csv

      shortlist inspect events.csv --context user --item product
    """
    from shortlist.storage import is_model

    say = Output(ctx, as_json=as_json, quiet=quiet)
    place = Path(path)
    source = EventSource.of({**ctx.params, "data": path, "on_bad": opt.OnBad.DROP})  # what is bad is counted
    if is_model(place) or _was_a_model(place):
        describe_model(path, say, check=check)
        return
    if check:
        raise typer.BadParameter(f"it is for models, {path} is none", param_hint="--check")
    _data(source, say)


def _was_a_model(place: Path) -> bool:
    """Whether only a damaged manifest keeps it from being one: then reading that says more than looking for data."""
    from shortlist.storage.file_names import MANIFEST, is_ours

    names = [one.name for one in place.iterdir()] if place.is_dir() else []
    return MANIFEST in names and all(name == MANIFEST or is_ours(name) for name in names)


def _data(source: EventSource, say: Output) -> None:
    from shortlist.data.event_files import find_files

    layout = source.public_layout
    files: EventFiles | None = None
    told: dict[str, Any] = {"path": source.data, "what": "data", "layout": layout}
    if not source.bundled and layout is None:
        files = find_files(source.data, source.format.value if source.format else None, one_character(source.separator))
        told |= describe_files(files)
    found: LoadedEvents | None = None
    if files is None or source.named:
        found = source.read(say)
        told |= {"interactions": describe_events(found.events), "published_split": _published(found)}
    if say.json:
        say.document(told)
        return
    if files is not None:
        show_files(files, told, say)
    if found is None:
        return
    if files is not None:
        say.line()
    if layout is not None:
        split = f"; the events are those to learn from of {found.split.protocol}" if found.split is not None else ""
        say.facts([("layout", f"{layout}{split}")])
        say.line()
    show_events(told["interactions"], say, asked_for=source.min_rating is not None)


def _published(found: LoadedEvents) -> dict[str, Any] | None:
    """The split that the data came with; the interactions are its training part."""
    if found.split is None:
        return None
    truth = found.split.truth
    return {"protocol": found.split.protocol, "pairs": len(truth), "contexts": truth.n_contexts}
