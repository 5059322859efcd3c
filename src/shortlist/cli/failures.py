"""From an exception to a message on standard error and an exit code.

| code | meaning |
|---|---|
| 0 | done |
| 1 | a `ShortlistError`, a package that cannot be loaded, not enough memory, nowhere to write: the user can mend it |
| 2 | wrong usage, as Typer reports it |
| 70 | anything else: a bug |
| 130 | Ctrl-C |

With `--json` the message is a line of JSON, {"error": {"type": …, "message": …}}, also for wrong usage. It stays on
standard error, so that standard output is a result or nothing.
"""

import errno
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TextIO, TypeGuard

import typer

from shortlist.cli.model_settings import ConfigFile
from shortlist.cli.safe_text import shown
from shortlist.errors import ShortlistError, ShortlistWarning

UsageError: Any = typer.BadParameter.__mro__[1]  # its home is click's or Typer's own, depending on the version
_PASSED = (typer.Exit, typer.Abort, SystemExit, GeneratorExit)
_BUG = 70
_UNWRITABLE = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG)
_PHRASES = {
    "leave context= and item= out and use shortlist.datasets.read(path)": "leave --context and --item out, and with "
    "them --weight, --time, --format and --separator",
    "read files that have named columns with Interactions.read": "name the columns with --context and --item",
    "use splits.by_time": "use --split time",
    "pass restart=True": "pass --restart",
    "pass overwrite=True": "pass --overwrite",
    "the same call": "the same command",
    "use format='long'": "leave --lists out",
    **{f"weighting='{one}'": f"--set weighting={one}" for one in ("binary", "log", "raw")},
    "pass validation=split": "pass --validation",
    "give their items as history=[[…]] instead of an id": "give their items with --history instead of an id",
    "leave the column out with ignore=": "write the file without the column ",
    "by_time needs times": "--split time needs times",
    "leave_last_out needs times": "--split last needs times",
}
# What is quoted is left alone, and so are paths: they hold whatever the user's data does, time=2020/ for one.
_ADVICE = re.compile(
    r"""(?P<quoted>(?<!\w)(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"))"""
    rf"|(?P<phrase>{'|'.join(map(re.escape, _PHRASES))})"
    r"|(?P<before>\b(?:pass|with|use|got|is:|or) |^)"
    r"(?P<name>unknown|on_bad|format|separator|aggregate|repeats|layout|min_rating|test|fold_in|time|weight)="
    r"(?P<value>'(?:\\.|[^'\\])*'|[\w+-]+(?:\.\w+)?|)(?=$|[\s,;:)]|\.(?:\s|$))"
)
# At the very beginning of a message stands a setting that is refused, or a path.
_REFUSED = re.compile("; expected|: files in| (?:leaves|holds|has a time zone|cannot be read as a moment)")


@dataclass
class Session:
    """What is known about the command that runs."""

    debug: bool = False
    json: bool = False
    stored: ConfigFile = field(default_factory=ConfigFile)


@contextmanager
def guarded(session: Session) -> Iterator[None]:
    """Run a command; its errors end here."""
    try:
        with _interrupts_are_seen(), warnings.catch_warnings():
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
    except KeyboardInterrupt as error:  # what it says, if anything, is how to go on
        sys.stderr.write(f"interrupted{': ' if str(error) else ''}{shown(error)}\n")
        raise typer.Exit(130) from None
    except ShortlistError as error:
        _report(session, error, in_words(str(error)))
        raise typer.Exit(1) from error
    except BrokenPipeError:  # whoever reads has enough, as in `| head`
        _give_up_output()
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
        if _is_unwritable(error):
            _give_up_output()
            _report(session, error, f"cannot write to standard output: {error.strerror}")
            raise typer.Exit(1) from error
        _report_bug(session, error)
        raise typer.Exit(_BUG) from error


@contextmanager
def _interrupts_are_seen() -> Iterator[None]:
    """Raise KeyboardInterrupt for an error after Ctrl-C: code in C sometimes swallows the one and fails with another.

    NumPy does so while it is imported, for example.
    """
    interrupts: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, for example
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except BaseException as error:
        if interrupts and not isinstance(error, (KeyboardInterrupt, *_PASSED)):
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def flushed() -> int:
    """Write what is left of a command's output, such as help; the exit code."""
    try:
        with guarded(Session()):
            pass
    except typer.Exit as end:
        return int(end.exit_code)
    return 0


def _is_unwritable(error: BaseException) -> TypeGuard[OSError]:
    """Whether it comes of writing to standard output, a full disk for one: files have names."""
    return isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None


def _give_up_output() -> None:
    """Let what is not yet written go nowhere; Python would try once more at its end, and complain."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def in_words(message: str) -> str:
    """An error's advice in the command line's words: `pass on_bad='drop'` becomes `pass --on-bad drop`.

    >>> in_words("pass on_bad='drop' to leave those rows out")
    'pass --on-bad drop to leave those rows out'
    """

    def translated(found: re.Match[str]) -> str:
        if found["quoted"]:
            return found[0]
        if found["phrase"]:
            return _PHRASES[found["phrase"]]
        if not found["before"] and not _REFUSED.match(message, found.end()):
            return found[0]
        return f"{found['before']}--{found['name'].replace('_', '-')}{_value(found['value'])}"

    return _ADVICE.sub(translated, message)


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
