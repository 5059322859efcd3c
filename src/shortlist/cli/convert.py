"""`shortlist convert`."""

from typing import Annotated

import typer

from shortlist.cli import options as opt
from shortlist.cli.output import Output


def convert(
    ctx: typer.Context,
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            help="Directory of a saved model.",
            show_default=False,
        ),
    ],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="Directory for the new model; must not exist.", show_default=False)
    ],
    config: opt.Config = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Rewrite a saved model of an earlier version in the present format, which loads faster.

    Checks every file while reading it. OLD does not change.

    For example:

      shortlist convert models/shop models/shop-new
    """
    from shortlist.loading import convert
    from shortlist.storage import read_manifest

    output = Output(ctx, as_json=as_json, quiet=quiet)
    convert(old, new)
    before, after = read_manifest(old), read_manifest(new)
    if output.json:
        sides = {"old": (old, before), "new": (new, after)}
        output.document(
            {
                name: {"path": path, "format_version": manifest.format_version, "bytes": manifest.total_bytes}
                for name, (path, manifest) in sides.items()
            }
        )
        return
    output.facts(
        [
            ("converted", f"{old} (format {before.format_version}, {before.total_bytes:,} bytes)"),
            ("saved to", f"{new} (format {after.format_version}, {after.total_bytes:,} bytes)"),
        ]
    )
