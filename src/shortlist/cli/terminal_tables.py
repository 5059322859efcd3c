"""Tables on a terminal, whatever its width: text is broken over lines, a number never, and nothing is cut off."""

from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_LEAST = 10  # characters that a column of text keeps
_GAP, _TABLE_GAP = 2, 3  # between names and values, between the columns of a table
_EDGES = 2  # which older versions of Rich count, although nothing is there


def draw_table(heads: list[str], cells: list[list[str]], right: list[bool]) -> None:
    """Draw rows under their heads, the columns that are `right` aligned on the right.

    Where that is too wide for the terminal, a table of numbers is turned over, a row a head; where that is too wide as
    well, and for other tables, each row is drawn by itself, a line a head.
    """
    console = Console(highlight=False)
    if _drawn(console, heads, cells, right):
        return
    if cells and all(right[1:]):
        turned = [list(row) for row in zip(heads, *cells)]
        if _drawn(console, turned[0], turned[1:], [False] + [True] * len(cells)):
            return
    for k, row in enumerate(cells):
        if k:
            console.print()
        draw_facts(list(zip(heads, row)))


def draw_facts(pairs: Sequence[Sequence[str]]) -> None:
    """Draw names with their values, in two columns where both have room."""
    console = Console(highlight=False)
    names = max((cell_len(name) for name, _ in pairs), default=0)
    room = console.width - names - _GAP - _EDGES
    if room < min(max((_longest_word(value) for _, value in pairs), default=0), 2 * _LEAST):
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
    """Draw the table, if the terminal has room for it."""
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


def _widths(natural: list[int], right: list[bool], room: int) -> list[int] | None:
    """Widths that fit into the room: text gives way, the widest first, and numbers do not; None where it is too narrow.

    >>> _widths([30, 20, 6], [False, False, True], 40)
    [17, 17, 6]
    """
    least = [width if on_right else min(width, _LEAST) for width, on_right in zip(natural, right)]
    if sum(least) > room:
        return None
    widths = [min(width, room) for width in natural]
    while sum(widths) > room:
        widest = max((k for k, width in enumerate(widths) if width > least[k]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)
