"""`shortlist inspect`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist.cli import options as opt
from shortlist.cli.output import Output

if TYPE_CHECKING:
    import polars as pl

    from shortlist.data.reading import Files

_COUNTED_UP_TO = 512 * 2**20  # bytes of text files whose rows are counted
_SAMPLE = 1000


def inspect(
    ctx: typer.Context,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A model's directory; or a data file, a folder of them, a pattern.", show_default=False
        ),
    ],
    file_format: Annotated[
        opt.Format | None, typer.Option("--format", help="Of data, where the file's name does not say it.")
    ] = None,
    separator: Annotated[str | None, typer.Option(help=r"Between the fields of a text file; \t is a tab.")] = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """What is in a saved model, or in a file of events; neither is read as a whole.

    For example:

      shortlist inspect models/shop

      shortlist inspect events.csv
    """
    say = Output(ctx, as_json=as_json, quiet=quiet)
    place = Path(path)
    if (place / "manifest.json").exists() or _looks_like_nothing(place):
        _model(path, say)
    else:
        _data(path, file_format, separator, say)


def _model(path: str, say: Output) -> None:
    from shortlist.storage import read_manifest

    manifest = read_manifest(path)
    arrays = [
        {"name": name, "dtype": entry.dtype, "shape": list(entry.shape)} for name, entry in manifest.arrays.items()
    ]
    tables = {
        name: {"rows": entry.rows, "columns": [{"name": column, "type": kind} for column, kind in entry.columns]}
        for name, entry in manifest.tables.items()
    }
    files = [{"name": name, "bytes": entry.bytes} for name, entry in manifest.files.items()]
    if say.json:
        say.document(
            {
                "path": path,
                "what": "model",
                "kind": manifest.kind,
                "settings": manifest.settings,
                "tables": tables,
                "arrays": arrays,
                "files": files,
                "bytes": manifest.total_bytes,
                "shortlist_version": manifest.shortlist_version,
                "created": manifest.created,
            }
        )
        return
    say.facts(
        [
            ("model", manifest.kind),
            *((f"  {name}", value) for name, value in manifest.settings.items()),
            *(
                (name, f"{entry.rows:,} ({', '.join(f'{column}: {kind}' for column, kind in entry.columns)})")
                for name, entry in manifest.tables.items()
            ),
            ("created", f"{manifest.created} by Shortlist {manifest.shortlist_version}"),
            ("size", f"{manifest.total_bytes:,} bytes"),
        ]
    )
    say.line()
    say.table(
        ["array", "type", "shape"],
        [[name, entry.dtype, " × ".join(f"{n:,}" for n in entry.shape)] for name, entry in manifest.arrays.items()],
    )
    say.line()
    say.table(
        ["file", "bytes"], [[name, f"{entry.bytes:,}"] for name, entry in manifest.files.items()], right=["bytes"]
    )


def _data(path: str, file_format: opt.Format | None, separator: str | None, say: Output) -> None:
    from shortlist.cli.events import one_character
    from shortlist.data.building import polars_errors
    from shortlist.data.reading import find_files

    files = find_files(path, file_format.value if file_format else None, one_character(separator))
    size = sum(one.stat().st_size for one in files.paths)
    with polars_errors(files.name):
        columns, rows = _columns_and_rows(files, size)
    if say.json:
        say.document(
            {
                "path": path,
                "what": "data",
                "format": files.format,
                "files": [str(one) for one in files.paths],
                "bytes": size,
                "rows": rows,
                "columns": columns,
            }
        )
        return
    say.facts(
        [
            ("data", files.name),
            ("format", files.format + (f", separator {files.separator!r}" if files.format in ("csv", "tsv") else "")),
            ("size", f"{size:,} bytes"),
            ("rows", "not counted: the text is long" if rows is None else f"{rows:,}"),
        ]
    )
    say.line()
    say.table(
        ["column", "type", "first value"],
        [[one["name"], one["type"], "" if one["first"] is None else one["first"]] for one in columns],
    )


def _columns_and_rows(files: "Files", size: int) -> tuple[list[dict[str, Any]], int | None]:
    import polars as pl

    from shortlist.data.reading import column_names

    column_names(files)  # which refuses a header that cannot be used
    if files.format == "parquet":
        frame = pl.scan_parquet(files.paths, hive_partitioning=False)
    elif files.format == "jsonl":
        frame = pl.scan_ndjson(files.paths, infer_schema_length=_SAMPLE)
    else:
        frame = pl.scan_csv(files.paths, separator=files.separator, infer_schema=False, truncate_ragged_lines=True)
    sample = frame.head(_SAMPLE).collect()
    text = files.format in ("csv", "tsv")
    columns = [
        {
            "name": one.name,
            "type": _kind_of_text(one) if text else str(one.dtype),
            "first": None if not len(one) or one[0] is None else str(one[0]),
        }
        for one in sample.get_columns()
    ]
    if files.format != "parquet" and size > _COUNTED_UP_TO:
        return columns, None
    return columns, int(frame.select(pl.len()).collect(engine="streaming").item())


def _kind_of_text(column: "pl.Series") -> str:
    """What a column of text would be read as, judged by its first rows."""
    import polars as pl

    from shortlist.data.building import WHOLE_NUMBER

    values = column.drop_nulls()
    if not len(values):
        return "empty"
    if values.str.contains(WHOLE_NUMBER).all():
        return "integer"
    if not values.cast(pl.Float64, strict=False).null_count() and not values.str.contains(r"^0\d").any():
        return "number"
    try:
        values.str.to_datetime(strict=True)
    except pl.exceptions.PolarsError:
        return "text"
    return "time"


def _looks_like_nothing(place: Path) -> bool:
    """An empty directory is neither; the message about a missing manifest says more than the one about data files."""
    return place.is_dir() and not any(place.iterdir())
