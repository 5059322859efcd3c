"""The command with its subcommands, and what stands around every one of them."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from shortlist._version import __version__
from shortlist.cli.bundled import datasets
from shortlist.cli.demo import demo
from shortlist.cli.evaluate import evaluate
from shortlist.cli.failures import Session, guarded
from shortlist.cli.fit import fit
from shortlist.cli.inspecting import inspect
from shortlist.cli.recommend import recommend, similar


class Guarded(TyperGroup):
    """Turns whatever a command raises into a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        ctx.obj = Session()
        with guarded(ctx.obj):
            return super().invoke(ctx)


app = typer.Typer(
    name="shortlist",
    cls=Guarded,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shortlist {__version__}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Item recommendation from implicit feedback: from a file of events to the best few items for anyone.

    Begin with the bundled data:

      shortlist demo
    """
    ctx.obj.debug = debug


for _command in (demo, fit, evaluate, recommend, similar, inspect, datasets):
    app.command()(_command)


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # an id that the terminal cannot show is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="shortlist")
