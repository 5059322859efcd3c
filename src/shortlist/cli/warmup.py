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
            help=f"One of {', '.join(opt.MODELS)}; may be repeated. By default all of them.",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None,
    config: opt.Config = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compile all kernels ahead of time, for instance where a container image is built.

    They are kept in a folder, which shortlist doctor names; SHORTLIST_CACHE_DIR sets another one. Only processors of
    the same kind can use them.

    For example:

      shortlist warmup

      shortlist warmup --model ials --model bpr
    """
    from shortlist._kernel_cache import writable
    from shortlist.warming import warm_up

    say = Output(ctx, as_json=as_json, quiet=quiet)
    done = warm_up(model, progress=not quiet)
    folder = writable()
    if say.json:
        models = [{"model": one.model, "kernels": one.kernels, "cpu_seconds": one.cpu_seconds} for one in done]
        say.document({"cache": None if folder is None else str(folder), "models": models})
        return
    rows = [
        [one.model, *([one.kernels, f"{one.cpu_seconds:.1f}"] if one.kernels else ["already compiled", ""])]
        for one in done
    ]
    say.table(["model", "kernels", "CPU s"], rows, right=["kernels", "CPU s"])
    say.line()
    say.facts([("kept in", "folders that can only be read" if folder is None else folder)])
