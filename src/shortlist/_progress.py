"""Progress of long work: a bar on a terminal, a line for each tenth of the work elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shortlist._checks import flag
from shortlist._compile_notes import silent
from shortlist._threads import Step

if TYPE_CHECKING:
    from rich.progress import Progress


def is_shown(progress: bool | None) -> bool:
    """Return whether to show progress: by default, only if standard error is a terminal."""
    return sys.stderr.isatty() if progress is None else flag("progress", progress)


@contextmanager
def steps(title: str, what: str, progress: bool | None = None) -> Iterator[Step]:
    """Yield a function that shows how many parts are done; `what` is their name in the plural."""
    shown = is_shown(progress)
    with silent(progress is not None and not shown):
        if not shown:
            yield lambda done, total: None
        elif not sys.stderr.isatty():
            yield tenths(title, what)
        else:
            with progress_bar() as bar:
                task = bar.add_task(title, total=None, status="")

                def step(done: int, total: int) -> None:
                    bar.update(task, total=total, completed=done, status=f"{done:,}/{total:,} {what}")

                yield step


def progress_bar() -> Progress:
    """Return a bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    texts = [TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[status]}")]
    columns = (texts[0], BarColumn(24), texts[1])
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)


def tenths(title: str, what: str = "items") -> Step:
    """Return a function that writes a line whenever another tenth of the work is done."""
    written = [0]

    def step(done: int, total: int) -> None:
        if done * 10 // max(1, total) > written[0]:
            written[0] = done * 10 // max(1, total)
            sys.stderr.write(f"{title}: {done:,}/{total:,} {what}\n")

    return step
