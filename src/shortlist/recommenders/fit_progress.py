"""Progress of fits, per epoch or per part of the work."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from shortlist._compile_notes import silent
from shortlist._progress import is_shown, progress_bar, tenths
from shortlist._threads import Step
from shortlist.solvers.train import Callback, Epoch


@dataclass(frozen=True)
class Monitor:
    """Where a recommender reports its progress."""

    callbacks: Sequence[Callback] = ()  # called after each epoch
    step: Step | None = None  # called with the finished parts of the work, from any thread, one call at a time


@contextmanager
def watched(
    title: str, callbacks: Sequence[Callback], progress: bool | None = None, first: str = ""
) -> Iterator[Monitor]:
    """Yield a monitor that calls the callbacks and shows progress, unless `progress` is False.

    On a terminal it shows a bar. Elsewhere, and only if `progress` is True, it writes one line per epoch with the parts
    of the loss, or one line for each tenth of the work. The text `first` is written as a line before these. If
    `progress` is False, the note about compilation is not shown either.
    """
    shown = is_shown(progress)
    shower = _watched(title, callbacks, first) if shown else nullcontext(Monitor(callbacks))
    with silent(progress is not None and not shown), shower as monitor:
        yield monitor


@contextmanager
def _watched(title: str, callbacks: Sequence[Callback], first: str) -> Iterator[Monitor]:
    if first:
        sys.stderr.write(f"{title}: {first}\n")
    if not sys.stderr.isatty():
        listeners = [*callbacks, lambda epoch: sys.stderr.write(f"{title}: {line(epoch)}\n")]
        yield Monitor(listeners, tenths(title))
        return
    with progress_bar() as bar:
        task = bar.add_task(f"fitting {title}", total=None, status="")

        def report(epoch: Epoch) -> None:
            status = f"epoch {epoch.number}/{epoch.epochs}  loss {epoch.loss.total:,.6g}"
            status += f"{validation_text(epoch)}{speed(epoch)}"
            bar.update(task, total=epoch.epochs, completed=epoch.number, status=status)

        def step(done: int, total: int) -> None:
            bar.update(task, total=total, completed=done, status=f"{done:,}/{total:,} items")

        yield Monitor([*callbacks, report], step)


def line(epoch: Epoch) -> str:
    """Return a line about an epoch: the loss and its parts, and the validation score if there is one."""
    parts = " + ".join(f"{name} {value:.5g}" for name, value in epoch.loss.items())
    equals = f" = {parts}" if len(epoch.loss) > 1 else ""
    return (
        f"epoch {epoch.number}/{epoch.epochs}  loss {epoch.loss.total:.6g}{equals}{validation_text(epoch)}  "
        f"({epoch.seconds:.2f} s){speed(epoch)}"
    )


def validation_text(epoch: Epoch) -> str:
    """Return the validation score as text, or "" if there is none."""
    return "" if epoch.validation is None else f"  validation {epoch.validation:.4f}"


def speed(epoch: Epoch) -> str:
    """Return the samples per second as text, or "" if the epoch does not sample."""
    return f"  {epoch.samples / max(epoch.seconds, 1e-9) / 1e6:.2f} M samples/s" if epoch.samples else ""
