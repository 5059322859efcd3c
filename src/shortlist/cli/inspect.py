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
            help="Directory of a saved model; or data: a file, a folder of files, a quoted pattern, or the name of a "
            "bundled data set.",
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
        bool, typer.Option("--check", help="Load the model, verify every file, and make one recommendation.")
    ] = False,
    config: opt.Config = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Show what is in a saved model or in event data.

    For data, shows the columns. With --context and --item, also shows statistics of the events.

    For example:

      shortlist inspect models/shop --check

      shortlist inspect events.csv

      shortlist inspect events.csv --context user --item product
    """
    from shortlist.storage import is_model

    output = Output(ctx, as_json=as_json, quiet=quiet)
    directory = Path(path)
    source = EventSource.of({**ctx.params, "data": path, "on_bad": opt.OnBad.DROP})  # bad rows are counted
    if is_model(directory) or _was_a_model(directory):
        describe_model(path, output, check=check)
        return
    if check:
        raise typer.BadParameter(f"only valid for models; {path} is not a model", param_hint="--check")
    _data(source, output)


def _was_a_model(directory: Path) -> bool:
    """Return whether this is a model with a damaged manifest. Reading the manifest then gives the best error."""
    from shortlist.storage.file_names import MANIFEST, is_ours

    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    return MANIFEST in names and all(name == MANIFEST or is_ours(name) for name in names)


def _data(source: EventSource, output: Output) -> None:
    from shortlist.data.event_files import find_files

    layout = source.public_layout
    files: EventFiles | None = None
    summary: dict[str, Any] = {"path": source.data, "what": "data", "layout": layout}
    if not source.bundled and layout is None:
        files = find_files(source.data, source.format.value if source.format else None, one_character(source.separator))
        summary |= describe_files(files)
    loaded: LoadedEvents | None = None
    if files is None or source.named:
        loaded = source.read(output)
        summary |= {"interactions": describe_events(loaded.events), "published_split": _published(loaded)}
    if output.json:
        output.document(summary)
        return
    if files is not None:
        show_files(files, summary, output)
    if loaded is None:
        return
    if files is not None:
        output.line()
    if layout is not None:
        split = f"; training events only, split by {loaded.split.protocol}" if loaded.split is not None else ""
        output.facts([("layout", f"{layout}{split}")])
        output.line()
    show_events(summary["interactions"], output, dropped_on_request=source.min_rating is not None)


def _published(loaded: LoadedEvents) -> dict[str, Any] | None:
    """Describe the published split of the data. The interactions are its training part."""
    if loaded.split is None:
        return None
    truth = loaded.split.truth
    return {"protocol": loaded.split.protocol, "pairs": len(truth), "contexts": truth.n_contexts}
