"""The options that several commands share."""

from enum import StrEnum
from typing import Annotated

import typer


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


_COLUMNS = "Columns of the data"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on standard error.")]
Threads = Annotated[int | None, typer.Option(min=1, help="How many threads to use; all CPUs by default.")]
Count = Annotated[int, typer.Option("-n", min=1, help="How many items.")]

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A CSV, TSV, Parquet or JSONL file, a folder of such files, a pattern in quotes ('events/*.csv'), or the "
        "name of bundled data (online-retail).",
        show_default=False,
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
    Aggregate, typer.Option("--aggregate", help="What a repeated pair weighs.", rich_help_panel=_COLUMNS)
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
MODELS = ("ials", "ease", "popularity")  # the registry itself would load NumPy and more; a test keeps them alike
UnknownIds = Annotated[Unknown, typer.Option("--unknown", help="Ids that the model does not know.")]
ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="Directory of a saved model.", show_default=False)]
