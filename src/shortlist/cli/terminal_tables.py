"""Draw tables on terminals of any width. Text may wrap, numbers never do, and nothing is truncated."""

from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_LEAST = 10  # minimum width of a text column, in characters
_GAP, _TABLE_GAP = 2, 3  # spaces between names and values, and between table columns
_EDGES = 2  # older versions of Rich reserve two characters for edges, even without edges


def draw_table(heads: list[str], cells: list[list[str]], right: list[bool]) -> None:
    """Draw a table. Columns with True in `right` are right-aligned.

    If a table of numbers is too wide for the terminal, it is transposed. If that is too wide as well, or if the table
    has text columns, each row becomes its own list of name-value lines.
    """
    console = Console(highlight=False)
    if _drawn(console, heads, cells, right):
        return
    if cells and all(right[1:]):
        transposed = [list(row) for row in zip(heads, *cells)]
        if _drawn(console, transposed[0], transposed[1:], [False] + [True] * len(cells)):
            return
    for k, row in enumerate(cells):
        if k:
            console.print()
        draw_facts(list(zip(heads, row)))


def draw_facts(pairs: Sequence[Sequence[str]]) -> None:
    """Draw name-value pairs, in two columns if both fit."""
    console = Console(highlight=False)
    names = max((cell_len(name) for name, _ in pairs), default=0)
    width = console.width - names - _GAP - _EDGES
    if width < min(max((_longest_word(value) for _, value in pairs), default=0), 2 * _LEAST):
        for name, value in pairs:
            console.print(Text.assemble((name, "dim"), ": " if name else "", value), overflow="fold")
        return
    grid = Table.grid(padding=(0, _GAP))
    grid.add_column(width=names)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(name, style="dim"), Text(value))
    console.print(grid)


def _drawn(console: Console, heads: list[str], cells: list[list[str]], right: list[bool]) -> bool:
    """Draw the table if it fits the terminal. Return whether it was drawn."""
    natural = [max(1, *map(cell_len, column)) for column in zip(heads, *cells)]
    widths = _widths(natural, right, console.width - _TABLE_GAP * (len(heads) - 1) - _EDGES)
    if widths is None:
        return False
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head, width, on_right in zip(heads, widths, right):
        table.add_column(Text(head), justify="right" if on_right else "left", overflow="fold", width=width)
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)
    return True


def _widths(natural: list[int], right: list[bool], available: int) -> list[int] | None:
    """Return column widths that fit, or None if there is too little space. Only text columns shrink, the widest first.

    >>> _widths([30, 20, 6], [False, False, True], 40)
    [17, 17, 6]
    """
    least = [width if on_right else min(width, _LEAST) for width, on_right in zip(natural, right)]
    if sum(least) > available:
        return None
    widths = [min(width, available) for width in natural]
    while sum(widths) > available:
        widest = max((k for k, width in enumerate(widths) if width > least[k]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)
