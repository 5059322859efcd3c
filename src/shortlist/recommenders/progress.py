"""Progress of solvers that report epochs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from shortlist.solvers.als import Callback, Epoch


@contextmanager
def epoch_bar(title: str, progress: bool | None = None) -> Iterator[list[Callback]]:
    """A callback that shows each epoch, in a list; an empty list where `progress` is False.

    On a terminal it is a bar; elsewhere, and only where `progress` is True, a line an epoch with the loss in its parts.
    """
    terminal = sys.stderr.isatty()
    if not (terminal if progress is None else progress):
        yield []
        return
    if not terminal:
        yield [lambda epoch: sys.stderr.write(f"{title}: {line(epoch)}\n")]
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[status]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"fitting {title}", total=None, status="")

        def report(epoch: Epoch) -> None:
            status = f"epoch {epoch.number}/{epoch.epochs}  loss {epoch.loss.total:,.6g}"
            bar.update(task, total=epoch.epochs, completed=epoch.number, status=status)

        yield [report]


def line(epoch: Epoch) -> str:
    """An epoch in words: the loss and its parts."""
    loss = epoch.loss
    return (
        f"epoch {epoch.number}/{epoch.epochs}  loss {loss.total:.6g} = observed {loss.observed:.5g} + unobserved "
        f"{loss.unobserved:.5g} + regularizer {loss.regularizer:.5g}  ({epoch.seconds:.2f} s)"
    )
