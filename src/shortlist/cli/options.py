"""The options that several commands share."""

from enum import StrEnum
from typing import Annotated

import typer

from shortlist.cli import completion
from shortlist.cli.config import read_config


class Aggregate(StrEnum):
    """What a repeated pair weighs."""

    SUM = "sum"
    COUNT = "count"
    LATEST = "latest"


class OnBad(StrEnum):
    """What becomes of rows that cannot be used."""

    RAISE = "raise"
    DROP = "drop"


class Format(StrEnum):
    """File formats."""

    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"
    JSONL = "jsonl"


class Unknown(StrEnum):
    """What becomes of ids that the model does not know."""

    RAISE = "raise"
    SKIP = "skip"


class UnknownContext(StrEnum):
    """What becomes of contexts that the model does not know."""

    RAISE = "raise"
    SKIP = "skip"
    AVERAGE = "average"


_COLUMNS = "Columns of the data"

AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON document and nothing else on standard output; an error is JSON on standard error.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on standard error.")]
Threads = Annotated[int | None, typer.Option(min=1, help="How many threads to use; all CPUs by default.")]
Config = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help=r"A TOML file with options and arguments: a table per command, such as \[fit], and above them keys for "
        "all. What is typed wins; paths are as if typed.",
        is_eager=True,
        callback=read_config,
        show_default=False,
    ),
]
Count = Annotated[int, typer.Option("-n", min=1, help="How many items.")]

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A CSV, TSV, Parquet or JSONL file, a folder of such files, a pattern in quotes ('events/*.csv'), public "
        "data as it was published (ml-1m/), or the name of bundled data (online-retail).",
        show_default=False,
        autocompletion=completion.data,
    ),
]
Context = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Column that says who; given twice, a context is a pair of both.",
        rich_help_panel=_COLUMNS,
        show_default=False,
    ),
]
Item = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the item.", rich_help_panel=_COLUMNS)]
Weight = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of the weight, if there is one.", rich_help_panel=_COLUMNS)
]
Time = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of the time: dates or numbers.", rich_help_panel=_COLUMNS)
]
Aggregated = Annotated[
    Aggregate | None,
    typer.Option(
        "--aggregate",
        help="What a repeated pair weighs: the sum by default, and of published ratings the latest.",
        rich_help_panel=_COLUMNS,
        show_default=False,
    ),
]
Bad = Annotated[
    OnBad,
    typer.Option("--on-bad", help="Rows without an id, with a negative weight and the like.", rich_help_panel=_COLUMNS),
]
FileFormat = Annotated[
    Format | None,
    typer.Option("--format", help="Where the file's name does not say it.", rich_help_panel=_COLUMNS),
]
Separator = Annotated[
    str | None, typer.Option(help=r"Between the fields of a text file; \t is a tab.", rich_help_panel=_COLUMNS)
]
Layout = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Of public data, where it is not recognised; shortlist datasets lists the layouts.",
        rich_help_panel=_COLUMNS,
        show_default=False,
        autocompletion=completion.layouts,
    ),
]
MinRating = Annotated[
    float | None,
    typer.Option(
        help="Of public data with ratings: take those from this one on; all by default.",
        rich_help_panel=_COLUMNS,
        show_default=False,
    ),
]
_FEATURES = "What is known of items and contexts (factorizationmachine, featureials)"
ItemFeatures = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Features of items: a file with their id, under the name it has in the data, and a column for each "
        "feature. Items that nobody has had come into the catalogue.",
        rich_help_panel=_FEATURES,
        show_default=False,
    ),
]
ContextFeatures = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Likewise of contexts.", rich_help_panel=_FEATURES, show_default=False),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=SEPARATOR",
        help="A column of either file with several values a cell, and what is between them, such as 'genres=|'; may be "
        "repeated.",
        rich_help_panel=_FEATURES,
        show_default=False,
    ),
]
MODELS = tuple(completion.SETTINGS)  # the registry itself would load NumPy and more
UnknownIds = Annotated[Unknown, typer.Option("--unknown", help="Ids that the model does not know.")]
UnknownContexts = Annotated[
    UnknownContext,
    typer.Option(
        "--unknown",
        help="Ids that the model does not know; of contexts with several parts, a part may count as an average one.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the model; may be repeated. With several models ials.dim=64, and so on.",
        show_default=False,
        autocompletion=completion.settings,
    ),
]
ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="Directory of a saved model.", show_default=False)]
