"""Progress of whoever learns: in epochs, or part by part."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shortlist._checks import flag
from shortlist._compile_notes import silent
from shortlist._threads import Step
from shortlist.solvers.epochs import Callback, Epoch

if TYPE_CHECKING:
    from rich.progress import Progress


@dataclass(frozen=True)
class Monitor:
    """Whom a recommender tells how far it is."""

    callbacks: Sequence[Callback] = ()  # after each epoch, where there are epochs
    step: Step | None = None  # now and then, where the work has parts; from any thread, one at a time


@contextmanager
def watched(
    title: str, callbacks: Sequence[Callback], progress: bool | None = None, first: str = ""
) -> Iterator[Monitor]:
    """A monitor that tells the callbacks and, unless `progress` is False, shows how far the work is.

    On a terminal it is a bar; elsewhere, and only where `progress` is True, a line an epoch with the loss in its parts,
    or a line for each tenth of the parts. The text `first` has a line before them. Where `progress` is False, the line
    about the compiler is left out too.
    """
    shown = is_shown(progress)
    shower = _watched(title, callbacks, first) if shown else nullcontext(Monitor(callbacks))
    with silent(progress is not None and not shown), shower as monitor:
        yield monitor


def is_shown(progress: bool | None) -> bool:
    """Return whether to show how far work is: as the user says, else where standard error is a terminal."""
    return sys.stderr.isatty() if progress is None else flag("progress", progress)


@contextmanager
def _watched(title: str, callbacks: Sequence[Callback], first: str) -> Iterator[Monitor]:
    if first:
        sys.stderr.write(f"{title}: {first}\n")
    if not sys.stderr.isatty():
        told = [*callbacks, lambda epoch: sys.stderr.write(f"{title}: {line(epoch)}\n")]
        yield Monitor(told, tenths(title))
        return
    with _bar() as bar:
        task = bar.add_task(f"fitting {title}", total=None, status="")

        def report(epoch: Epoch) -> None:
            status = f"epoch {epoch.number}/{epoch.epochs}  loss {epoch.loss.total:,.6g}{judged(epoch)}{speed(epoch)}"
            bar.update(task, total=epoch.epochs, completed=epoch.number, status=status)

        def step(done: int, total: int) -> None:
            bar.update(task, total=total, completed=done, status=f"{done:,}/{total:,} items")

        yield Monitor([*callbacks, report], step)


@contextmanager
def steps(title: str, what: str, progress: bool | None = None) -> Iterator[Step]:
    """Shows how many of what are done, unless `progress` is False: by a bar on a terminal, else as `watched` does."""
    shown = is_shown(progress)
    with silent(progress is not None and not shown):
        if not shown:
            yield lambda done, total: None
        elif not sys.stderr.isatty():
            yield tenths(title, what)
        else:
            with _bar() as bar:
                task = bar.add_task(title, total=None, status="")

                def step(done: int, total: int) -> None:
                    bar.update(task, total=total, completed=done, status=f"{done:,}/{total:,} {what}")

                yield step


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    texts = [TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[status]}")]
    columns = (texts[0], BarColumn(24), texts[1])
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)


def tenths(title: str, what: str = "items") -> Step:
    """Writes a line whenever another tenth of them is done."""
    told = [0]

    def step(done: int, total: int) -> None:
        if done * 10 // max(1, total) > told[0]:
            told[0] = done * 10 // max(1, total)
            sys.stderr.write(f"{title}: {done:,}/{total:,} {what}\n")

    return step


def line(epoch: Epoch) -> str:
    """An epoch in words: the loss and its parts, and the metric where there is one."""
    loss = epoch.loss
    return (
        f"epoch {epoch.number}/{epoch.epochs}  loss {loss.total:.6g} = observed {loss.observed:.5g} + unobserved "
        f"{loss.unobserved:.5g} + regularizer {loss.regularizer:.5g}{judged(epoch)}  ({epoch.seconds:.2f} s)"
        f"{speed(epoch)}"
    )


def judged(epoch: Epoch) -> str:
    """The metric on the validation split in words, nothing where there is none."""
    return "" if epoch.validation is None else f"  validation {epoch.validation:.4f}"


def speed(epoch: Epoch) -> str:
    """Samples a second in words, nothing where it is not learnt by sampling."""
    return f"  {epoch.samples / max(epoch.seconds, 1e-9) / 1e6:.2f} M samples/s" if epoch.samples else ""
