"""`shortlist warmup`."""

from typing import Annotated

import typer

from shortlist.cli import completion
from shortlist.cli import options as opt
from shortlist.cli.output import Output


def warmup(
    ctx: typer.Context,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Model to compile: {', '.join(opt.MODELS)}; may be repeated. Default: all.",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None,
    config: opt.Config = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compile all kernels ahead of time, for example while building a container image.

    The compiled kernels are stored in a cache folder, which `shortlist doctor` shows. Set SHORTLIST_CACHE_DIR to use
    another folder. Compiled kernels work only on the type of processor that compiled them.

    For example:

      shortlist warmup

      shortlist warmup --model ials --model bpr
    """
    from shortlist._kernel_cache import writable
    from shortlist.warming import warm_up

    output = Output(ctx, as_json=as_json, quiet=quiet)
    done = warm_up(model, progress=not quiet)
    folder = writable()
    if output.json:
        models = [
            {"model": warmed.model, "kernels": warmed.kernels, "cpu_seconds": warmed.cpu_seconds} for warmed in done
        ]
        output.document({"cache": None if folder is None else str(folder), "models": models})
        return
    rows = [
        [warmed.model, *([warmed.kernels, f"{warmed.cpu_seconds:.1f}"] if warmed.kernels else ["already compiled", ""])]
        for warmed in done
    ]
    output.table(["model", "kernels", "CPU s"], rows, right=["kernels", "CPU s"])
    output.line()
    output.facts([("stored in", "read-only folders" if folder is None else folder)])
