"""Options shared by several commands."""

from enum import StrEnum
from typing import Annotated

import typer

from shortlist.cli import completion
from shortlist.cli.config import read_config


class Aggregate(StrEnum):
    """How to combine repeated events of the same context and item."""

    SUM = "sum"
    COUNT = "count"
    LATEST = "latest"


class OnBad(StrEnum):
    """How to handle bad rows."""

    RAISE = "raise"
    DROP = "drop"


class Format(StrEnum):
    """File formats."""

    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"
    JSONL = "jsonl"


class Unknown(StrEnum):
    """How to handle unknown ids."""

    RAISE = "raise"
    SKIP = "skip"


class UnknownContext(StrEnum):
    """How to handle unknown contexts."""

    RAISE = "raise"
    SKIP = "skip"
    AVERAGE = "average"


_COLUMNS = "Columns of the data"

AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the result as one JSON document on standard output; print errors as JSON on standard error.",
    ),
]
NoVerify = Annotated[
    bool,
    typer.Option("--no-verify", help="Skip the checks of checksums, ids and numbers: a large model loads faster."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not print progress or notes.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of threads. Default: all CPUs.")]
Config = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help=r"Read options from this TOML file: one table per command, such as \[fit]; keys above the tables apply to "
        "all commands. Options on the command line win. Relative paths are relative to the current directory.",
        is_eager=True,
        callback=read_config,
        show_default=False,
    ),
]
Count = Annotated[int, typer.Option("-n", min=1, help="Number of items per list.")]

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A CSV, TSV, Parquet or JSONL file; a folder of such files; a quoted pattern ('events/*.csv'); a public "
        "data set in its original layout (ml-1m/); or the name of a bundled data set (online-retail).",
        show_default=False,
        autocompletion=completion.data,
    ),
]
Context = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="User column; repeat for compound contexts, such as user and weekday.",
        rich_help_panel=_COLUMNS,
        show_default=False,
    ),
]
Item = Annotated[str | None, typer.Option(metavar="COLUMN", help="Item column.", rich_help_panel=_COLUMNS)]
Weight = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Weight column, such as a quantity. Default: no weights; every event counts once.",
        rich_help_panel=_COLUMNS,
        show_default=False,
    ),
]
Time = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Time column: dates, timestamps or numbers.", rich_help_panel=_COLUMNS),
]
Aggregated = Annotated[
    Aggregate | None,
    typer.Option(
        "--aggregate",
        help="How to combine repeated events of the same user and item. Default: sum; for rating data sets, latest.",
        rich_help_panel=_COLUMNS,
        show_default=False,
    ),
]
Bad = Annotated[
    OnBad,
    typer.Option(
        "--on-bad",
        help="How to handle bad rows (missing id, negative weight, …): stop with an error, or drop them.",
        rich_help_panel=_COLUMNS,
    ),
]
FileFormat = Annotated[
    Format | None,
    typer.Option("--format", help="File format. Default: taken from the file name.", rich_help_panel=_COLUMNS),
]
Separator = Annotated[
    str | None,
    typer.Option(
        help=r"Field separator of a text file, one character; \t is a tab. Default: a comma for CSV, a tab for TSV.",
        rich_help_panel=_COLUMNS,
        show_default=False,
    ),
]
Layout = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Layout of a public data set, if it is not detected. List all layouts with: shortlist datasets.",
        rich_help_panel=_COLUMNS,
        show_default=False,
        autocompletion=completion.layouts,
    ),
]
MinRating = Annotated[
    float | None,
    typer.Option(
        help="For rating data sets: keep only ratings of at least this value. Default: keep all.",
        rich_help_panel=_COLUMNS,
        show_default=False,
    ),
]
_FEATURES = "Features of items and contexts (factorizationmachine and featureials only)"
ItemFeatures = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="File of item features: an id column with the same name as in the data, and one column per feature. "
        "Items without events are added to the catalogue.",
        rich_help_panel=_FEATURES,
        show_default=False,
    ),
]
ContextFeatures = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="File of context (user) features, in the same format.",
        rich_help_panel=_FEATURES,
        show_default=False,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=SEPARATOR",
        help="A feature column with several values per cell, and the separator between them, such as 'genres=|'; may "
        "be repeated.",
        rich_help_panel=_FEATURES,
        show_default=False,
    ),
]
MODELS = tuple(completion.SETTINGS)  # importing the registry would load NumPy and more
UnknownIds = Annotated[
    Unknown, typer.Option("--unknown", help="How to handle unknown ids: raise an error or skip them.")
]
UnknownContexts = Annotated[
    UnknownContext,
    typer.Option(
        "--unknown",
        help="How to handle unknown ids: raise an error, skip them, or (compound contexts only) use the average "
        "for an unknown part.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A model setting, such as dim=64; may be repeated. With several models, name the model too: ials.dim=64.",
        show_default=False,
        autocompletion=completion.settings,
    ),
]
ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="Directory of a saved model.", show_default=False)]
