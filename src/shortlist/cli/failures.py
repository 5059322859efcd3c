"""Turn exceptions into messages on standard error and exit codes.

| code | meaning |
|---|---|
| 0 | success |
| 1 | a `ShortlistError`, a package that cannot be loaded, out of memory, output not writable: the user can fix it |
| 2 | wrong usage, reported by Typer |
| 70 | anything else: a bug |
| 130 | Ctrl-C |

With `--json` the message is one line of JSON, {"error": {"type", "message", "code", "field", "hint"}}, also for wrong
usage. The last three are null unless the error is a `ShortlistError`. The line goes to standard error, so standard
output holds a result or nothing.
"""

import errno
import os
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
from shortlist.cli.wording import in_words
from shortlist.errors import ShortlistError, ShortlistWarning

UsageError: Any = typer.BadParameter.__mro__[1]  # defined in click or in Typer, depending on the version
_PASSED = (typer.Exit, typer.Abort, SystemExit, GeneratorExit)
_BUG = 70
_UNWRITABLE = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG)


@dataclass
class Session:
    """State of the running command."""

    debug: bool = False
    json: bool = False
    stored: ConfigFile = field(default_factory=ConfigFile)


@contextmanager
def guarded(session: Session) -> Iterator[None]:
    """Run a command and handle all its errors."""
    try:
        with _interrupts_are_seen(), warnings.catch_warnings():
            warnings.simplefilter("always", ShortlistWarning)
            _show_warnings_in_a_line()
            yield
            sys.stdout.flush()
    except UsageError as error:
        if not session.json:  # Typer prints it with the usage of the command
            raise
        _report(session, error, error.format_message())
        raise typer.Exit(error.exit_code) from error
    except _PASSED:
        raise
    except KeyboardInterrupt as error:  # its message, if any, says how to resume
        sys.stderr.write(f"interrupted{': ' if str(error) else ''}{shown(error)}\n")
        raise typer.Exit(130) from None
    except ShortlistError as error:
        _report(session, error, in_words(error.args[0]))
        raise typer.Exit(1) from error
    except BrokenPipeError:  # the reader has closed the pipe, as in `| head`
        _give_up_output()
        raise typer.Exit(0) from None
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "shortlist":
            _report_bug(session, error)
            raise typer.Exit(_BUG) from error
        _report(session, error, f"cannot load a package: {error}; run `shortlist doctor` to see what to do")
        raise typer.Exit(1) from error
    except MemoryError as error:
        _report(session, error, f"out of memory: {error}" if str(error) else "out of memory")
        raise typer.Exit(1) from error
    except BaseException as error:  # panics of polars are not Exceptions
        if _is_unwritable(error):
            _give_up_output()
            _report(session, error, f"cannot write to standard output: {error.strerror}")
            raise typer.Exit(1) from error
        _report_bug(session, error)
        raise typer.Exit(_BUG) from error


@contextmanager
def _interrupts_are_seen() -> Iterator[None]:
    """Raise KeyboardInterrupt for any error after Ctrl-C.

    C code may swallow the interrupt and fail with another error. NumPy does so during import, for example.
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
    """Flush the remaining output, such as help. Return the exit code."""
    try:
        with guarded(Session()):
            pass
    except typer.Exit as end:
        return int(end.exit_code)
    return 0


def _is_unwritable(error: BaseException) -> TypeGuard[OSError]:
    """Return whether writing to standard output failed, for example on a full disk. Errors of files have a filename."""
    return isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None


def _give_up_output() -> None:
    """Discard unwritten output. Otherwise Python tries to write it again at exit and fails."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_bug(session: Session, error: BaseException) -> None:
    first = (str(error).strip().splitlines() or ["no message"])[0]
    hint = "" if session.debug else "; this is a bug in Shortlist; run `shortlist --debug …` to see where"
    _report(session, error, f"unexpected {type(error).__name__}: {first}{hint}")


def _report(session: Session, error: BaseException, message: str) -> None:
    if session.debug:
        import traceback

        traceback.print_exception(error)
    if session.json:
        import json

        content: dict[str, str | None] = {"type": type(error).__name__, "message": message}
        content |= dict.fromkeys(("code", "field", "hint"))
        if isinstance(error, ShortlistError):
            hint = None if error.hint is None else in_words(error.hint)
            content |= {"code": error.code, "field": error.field, "hint": hint}
        sys.stderr.write(json.dumps({"error": content}) + "\n")
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
            text = message.args[0] if isinstance(message, Warning) else message
            sys.stderr.write(f"warning: {shown(in_words(text), lines=True)}\n")
        else:
            show_others(message, category, filename, lineno, file, line)

    warnings.showwarning = show
