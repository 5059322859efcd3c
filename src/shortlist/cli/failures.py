"""From an exception to a message on standard error and an exit code.

| code | meaning |
|---|---|
| 0 | done |
| 1 | a `ShortlistError`, a package that cannot be loaded, not enough memory: something the user can mend |
| 2 | wrong usage, as Typer reports it |
| 70 | anything else: a bug |
| 130 | Ctrl-C |

With `--json` the message is a line of JSON, {"error": {"type": …, "message": …}}, also for wrong usage. It stays on
standard error, so that standard output is a result or nothing.
"""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TextIO

import typer

from shortlist.cli.settings import Stored
from shortlist.cli.text import shown
from shortlist.errors import ShortlistError, ShortlistWarning

UsageError: Any = typer.BadParameter.__mro__[1]  # its home is click's or Typer's own, depending on the version
_PASSED = (typer.Exit, typer.Abort, SystemExit, GeneratorExit)
_BUG = 70
_SETTING = re.compile(
    r"\b(unknown|on_bad|format|separator|aggregate|repeats|layout|min_rating|test|fold_in|time|weight)="
    r"('[^']*'|[^\s,;.')]+(?:\.[0-9]+)?|(?=[\s,;.]|$))"  # text, a bare word or number, or nothing
)


@dataclass
class Session:
    """What is known about the command that runs."""

    debug: bool = False
    json: bool = False
    stored: Stored = field(default_factory=Stored)


@contextmanager
def guarded(session: Session) -> Iterator[None]:
    """Run a command; its errors end here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", ShortlistWarning)
            _show_warnings_in_a_line()
            yield
            sys.stdout.flush()
    except UsageError as error:
        if not session.json:  # Typer shows it, with how the command is used
            raise
        _report(session, error, error.format_message())
        raise typer.Exit(error.exit_code) from error
    except _PASSED:
        raise
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise typer.Exit(130) from None
    except ShortlistError as error:
        _report(session, error, in_words(str(error)))
        raise typer.Exit(1) from error
    except BrokenPipeError:  # whoever reads has enough, as in `| head`
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "shortlist":
            _report_bug(session, error)
            raise typer.Exit(_BUG) from error
        _report(session, error, f"a package cannot be loaded: {error}; `shortlist doctor` says what to do")
        raise typer.Exit(1) from error
    except MemoryError as error:
        _report(session, error, f"not enough memory: {error}" if str(error) else "not enough memory")
        raise typer.Exit(1) from error
    except BaseException as error:  # polars' panics are no Exceptions
        _report_bug(session, error)
        raise typer.Exit(_BUG) from error


def in_words(message: str) -> str:
    """An error's advice in the command line's words: `pass on_bad='drop'` becomes `pass --on-bad drop`.

    >>> in_words("pass on_bad='drop' to leave those rows out")
    'pass --on-bad drop to leave those rows out'
    """
    return _SETTING.sub(lambda found: f"--{found[1].replace('_', '-')}{_value(found[2])}", message)


def _value(text: str) -> str:
    plain = text.strip("'")
    return f" {plain}" if re.fullmatch(r"[\w.-]+", plain) else f" {text}" if text else ""


def _report_bug(session: Session, error: BaseException) -> None:
    first = (str(error).strip().splitlines() or ["no message"])[0]
    hint = "" if session.debug else "; this is a bug in Shortlist: rerun as `shortlist --debug …` to see where"
    _report(session, error, f"unexpected {type(error).__name__}: {first}{hint}")


def _report(session: Session, error: BaseException, message: str) -> None:
    if session.debug:
        import traceback

        traceback.print_exception(error)
    if session.json:
        import json

        sys.stderr.write(json.dumps({"error": {"type": type(error).__name__, "message": message}}) + "\n")
    else:
        sys.stderr.write(f"error: {shown(message, lines=True)}\n")


def _show_warnings_in_a_line() -> None:
    show_others = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, ShortlistWarning):
            sys.stderr.write(f"warning: {shown(in_words(str(message)), lines=True)}\n")
        else:
            show_others(message, category, filename, lineno, file, line)

    warnings.showwarning = show
