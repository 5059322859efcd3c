"""The `shortlist` command: its subcommands, global options and error handling."""

import difflib
import os
import sys
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from shortlist._version import __version__
from shortlist.cli.batch import batch
from shortlist.cli.compare import compare
from shortlist.cli.convert import convert
from shortlist.cli.datasets import datasets
from shortlist.cli.demo import demo
from shortlist.cli.doctor.command import doctor
from shortlist.cli.evaluate import evaluate
from shortlist.cli.failures import Session, UsageError, flushed, guarded
from shortlist.cli.fit import fit
from shortlist.cli.inspect import inspect
from shortlist.cli.recommend import recommend, similar
from shortlist.cli.tune import tune
from shortlist.cli.warmup import warmup


class ErrorHandlingGroup(TyperGroup):
    """A command group that turns exceptions into messages and exit codes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments before the subcommand."""
        before = args[: args.index("--")] if "--" in args else args
        ctx.obj = Session(json="--json" in before)  # set early: usage errors need it before any command runs
        with guarded(ctx.obj):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        with guarded(ctx.obj):
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the subcommand. For an unknown name, suggest a similar one (newer versions of Typer already do)."""
        try:
            return super().resolve_command(ctx, args)
        except UsageError as error:
            near = difflib.get_close_matches(args[0], self.commands, 1)
            if near and "Did you mean" not in error.message:
                error.message = f"{error.message.rstrip('.')}. Did you mean {near[0]!r}?"
            raise


class Command(TyperCommand):
    """A command whose repeatable arguments may also come from the `--config` file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. If an unknown option may be an id that starts with -, explain how to pass it."""
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            option = getattr(error, "option_name", None)
            takes_ids = any(param.nargs == -1 and param.param_type_name == "argument" for param in self.params)
            if option and takes_ids and not getattr(error, "possibilities", None):
                hint = f"Put ids that start with - at the end, after --: shortlist {ctx.info_name} MODEL -- {option}"
                error.message = f"{error.message.rstrip('.')}. {hint}"
            raise

    def make_parser(self, ctx: Any) -> Any:
        """Return a parser that omits missing arguments. Typer's own parser reports them as empty tuples."""
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            values, rest, order = parse(args)
            return {name: value for name, value in values.items() if value != ()}, rest, order

        parser.parse_args = parse_args  # type: ignore[method-assign]
        return parser


app = typer.Typer(
    name="shortlist",
    cls=ErrorHandlingGroup,
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
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")] = False,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Recommend items from implicit feedback: read events, fit models, and get the best items for each user.

    Start with the bundled data:

      shortlist demo

    If something does not work, check the installation:

      shortlist doctor
    """
    ctx.obj.debug = debug


def _joined_paragraphs(text: str) -> str:
    """Return a docstring with each paragraph in one line, for terminals of any width; indented examples stay."""
    paragraphs = cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith(" ") else part.replace("\n", " ") for part in paragraphs)


_COMMANDS = (
    *(demo, fit, evaluate, tune, compare, recommend, similar, batch),
    *(inspect, convert, datasets, doctor, warmup),
)
for _command in _COMMANDS:
    app.command(cls=Command, help=_joined_paragraphs(_command.__doc__ or ""))(_command)


def main() -> None:
    """Run the command line program."""
    if sys.stderr is None:  # closed, as in 2>&-
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        sys.stderr.write("error: standard output is closed\n")
        sys.exit(1)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # escape characters that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="shortlist")
    except SystemExit as end:
        sys.exit(end.code or flushed())
