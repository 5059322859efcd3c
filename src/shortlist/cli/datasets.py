"""`shortlist datasets`."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shortlist.cli import completion
from shortlist.cli import options as opt
from shortlist.cli.events import described, summary
from shortlist.cli.output import Output
from shortlist.errors import SettingError, StorageError

if TYPE_CHECKING:
    import polars as pl

    from shortlist.data.interactions import Interactions

_SUFFIXES = (".parquet", ".csv")


def datasets(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Data set to show.", show_default=False, autocompletion=completion.bundled),
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write its events to this .parquet or .csv file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    config: opt.Config = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """List the bundled data sets and the layouts of public data; show one data set, or write its events to a file.

    For example:

      shortlist datasets

      shortlist datasets online-retail --out events.csv
    """
    from dataclasses import asdict

    from shortlist.data import datasets as bundled

    output = Output(ctx, as_json=as_json, quiet=quiet)
    if name is None:
        if out is not None:
            raise typer.BadParameter(
                "missing; pass the data set to write: shortlist datasets NAME --out FILE", param_hint="NAME"
            )
        every = bundled.available()
        if output.json:
            layouts = [{"name": layout, "description": words} for layout, words in bundled.layouts().items()]
            output.document({"datasets": [asdict(info) for info in every], "layouts": layouts})
            return
        for info in every:
            output.title(info.name)
            output.facts([("title", info.title), ("licence", info.licence), ("attribution", info.attribution)])
        output.line()
        output.title("Layouts of public data that Shortlist reads as published")
        output.facts(list(bundled.layouts().items()))
        return
    if out is not None:
        _check_target(Path(out), force)
    data = bundled.load(name)
    if out is not None:
        _write(_events(data.interactions), Path(out))
    columns = data.interactions.columns
    parts = {
        "context": ", ".join(columns.context),
        "item": columns.item,
        "weight": columns.weight,
        "time": columns.time,
    }
    if output.json:
        content = {**asdict(data.info), "columns": parts, **summary(data.interactions)}
        output.document(content if out is None else {**content, "path": out})
        return
    output.title(data.info.name)
    output.facts(
        [
            ("title", data.info.title),
            ("events", described(data.interactions)),
            *((f"{part} column", column) for part, column in parts.items() if column),
            ("licence", data.info.licence),
            ("attribution", data.info.attribution),
            *([("written to", out)] if out is not None else []),
        ]
    )


def _check_target(path: Path, force: bool) -> None:
    if path.suffix.lower() not in _SUFFIXES:
        raise SettingError(f"--out {path}: expected a name that ends in {' or '.join(_SUFFIXES)}", field="out")
    if path.is_dir():
        raise StorageError(f"'{path}' is a directory", field="out", hint="name a file")
    if path.exists() and not force:
        raise StorageError(f"'{path}' already exists", code="target-exists", hint="pass --force to replace it")


def _events(events: "Interactions") -> "pl.DataFrame":
    """Return the events as a frame. Integer weights get an integer type, so they are written without '.0'."""
    import polars as pl

    frame = events.to_polars()
    name = events.columns.weight
    if name is not None and bool((frame[name] == frame[name].round()).all()):
        frame = frame.with_columns(pl.col(name).cast(pl.Int64))
    return frame


def _write(frame: "pl.DataFrame", path: Path) -> None:
    """Write to a temporary file next to the target, then rename it, so the target is never incomplete."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.suffix.lower() == ".csv":
            frame.write_csv(draft)
        else:
            frame.write_parquet(draft)
        draft.replace(path)
    except OSError as error:
        raise StorageError(f"cannot write '{path}': {error.strerror or error}", code="not-writable") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
