"""A progress bar for solvers that report epochs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shortlist.solvers.als import Callback, Epoch


@contextmanager
def epoch_bar(title: str, progress: bool | None) -> Iterator[list[Callback]]:
    """A callback that moves a bar, in a list; an empty list where none is wanted.

    On a terminal it is a bar; where output goes to a file, a line an epoch.
    """
    terminal = sys.stderr.isatty()
    if not (terminal if progress is None else progress):
        yield []
        return
    if not terminal:
        yield [lambda epoch: sys.stderr.write(f"{title}: {line(epoch)}\n")]
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: list[Any] = []

        def report(epoch: Epoch) -> None:
            if not tasks:
                tasks.append(bar.add_task(title, total=epoch.epochs, status=""))
            bar.update(tasks[0], completed=epoch.number, status=line(epoch))

        yield [report]


def line(epoch: Epoch) -> str:
    """An epoch in words: the loss and its parts."""
    loss = epoch.loss
    return (
        f"epoch {epoch.number}/{epoch.epochs}  loss {loss.total:.6g} = observed {loss.observed:.5g} + unobserved "
        f"{loss.unobserved:.5g} + regularizer {loss.regularizer:.5g}  ({epoch.seconds:.2f} s)"
    )
