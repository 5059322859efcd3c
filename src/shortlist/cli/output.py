"""Print results to standard output, as tables or JSON, and notes to standard error."""

import json
import math
import sys
from collections.abc import Collection, Sequence
from typing import Any

import typer

from shortlist._compile_notes import silent
from shortlist.cli.safe_text import shown


class Output:
    """Writer for both output streams of a command.

    On a terminal, tables fit its width. Elsewhere they are aligned lines of any length. With `--json`, standard output
    holds exactly one JSON document.
    """

    def __init__(self, ctx: typer.Context, *, as_json: bool, quiet: bool) -> None:
        ctx.obj.json = as_json
        self.json = as_json
        self.quiet = quiet
        if quiet:
            ctx.with_resource(silent())

    # --- results -----------------------------------------------------------------------------------------------------

    def document(self, content: dict[str, Any]) -> None:
        """Print the JSON document. NaN and infinity become null."""
        ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
        sys.stdout.write(json.dumps(_plain(content), ensure_ascii=ascii_only, indent=2, allow_nan=False) + "\n")

    def line(self, text: str = "") -> None:
        """Print one line."""
        sys.stdout.write(shown(text) + "\n")

    def title(self, text: str) -> None:
        """Print the line above a table."""
        if sys.stdout.isatty():
            from rich.console import Console
            from rich.text import Text

            Console(highlight=False).print(Text(shown(text), style="bold"))
        else:
            self.line(text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Collection[str] = ()) -> None:
        """Print a table. Columns named in `right` are right-aligned."""
        cells = [[shown(cell) for cell in row] for row in rows]
        heads = [shown(column) for column in columns]
        if sys.stdout.isatty():
            from shortlist.cli.terminal_tables import draw_table

            draw_table(heads, cells, [column in right for column in columns])
        else:
            self._aligned([heads, *cells], [column in right for column in columns])

    def facts(self, pairs: Sequence[tuple[str, object]]) -> None:
        """Print name-value pairs, one per line."""
        cells = [[shown(name), shown(value)] for name, value in pairs]
        if sys.stdout.isatty():
            from shortlist.cli.terminal_tables import draw_facts

            draw_facts(cells)
        else:
            self._aligned(cells, [False, False])

    @staticmethod
    def _aligned(cells: list[list[str]], right: list[bool]) -> None:
        from rich.cells import cell_len

        widths = [max(map(cell_len, column)) for column in zip(*cells)]
        for row in cells:
            blanks = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths)]
            padded = [blank + cell if on_right else cell + blank for cell, blank, on_right in zip(row, blanks, right)]
            sys.stdout.write("  ".join(padded).rstrip() + "\n")

    # --- notes and progress ------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Print a note to standard error, unless `quiet`."""
        if not self.quiet:
            sys.stderr.write(shown(text) + "\n")


class Stopwatch:
    """A context manager that measures the time of its block, without the time to compile kernels.

    >>> with Stopwatch() as watch:
    ...     pass
    >>> watch.seconds < 1
    True
    """

    seconds = 0.0

    def __enter__(self) -> "Stopwatch":
        from shortlist._clock import working_seconds

        self._clock = working_seconds
        self._began = working_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = self._clock() - self._began


def _plain(value: Any) -> Any:
    """Replace tuples by lists and non-finite numbers by None, because JSON has neither."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
