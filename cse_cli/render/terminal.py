"""Grids as text: fitted to the terminal with colours, or plain and as wide as they need to be."""

import io
from dataclasses import replace
from typing import TYPE_CHECKING

from cse_cli.render.grids import Grid

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_LABEL_WIDTH = 12  # a name may be folded to this before the table is laid out another way
_GAP = 2  # blanks between two columns
_UNBOUNDED = 10_000


def to_text(grids: list[Grid], *, terminal: bool) -> str:
    """The grids one below the other.

    On a terminal too narrow for its columns a grid becomes one list of name and value a row;
    numbers are never folded or cut.
    """
    from rich.console import Console

    if not terminal:
        text = io.StringIO()
        console = Console(file=text, width=_UNBOUNDED, color_system=None)
        _print(console, grids)
        return "".join(line.rstrip() + "\n" for line in text.getvalue().splitlines())
    console = Console()  # standard output's width, encoding and colours
    with console.capture() as captured:
        _print(console, [part for grid in grids for part in _fitting(grid, console.width)])
    return captured.get()


def _print(console: "Console", grids: list[Grid]) -> None:
    from rich.text import Text

    for i, grid in enumerate(grids):
        if i:
            console.print()
        if grid.title:
            console.print(Text(grid.title, "italic"))
        console.print(_table(grid))


def _table(grid: Grid) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for name, widest, numeric in zip(grid.header, _widths(grid), grid.numeric, strict=True):
        if numeric:  # the name may be folded, a number never
            table.add_column(Text(name), justify="right", overflow="fold", min_width=widest)
        else:
            table.add_column(Text(name), overflow="fold")
    for i, row in enumerate(grid.cells):
        styles = ["bold" if (i, j) in grid.best else "" for j in range(len(row))]
        table.add_row(*(Text(cell, style) for cell, style in zip(row, styles, strict=True)))
    return table


def _widths(grid: Grid) -> list[int]:
    """The widest cell of each column, its name aside."""
    return [max(map(len, column), default=0) for column in zip(*grid.cells, strict=True)] or [
        0 for _ in grid.header
    ]


def _fitting(grid: Grid, width: int) -> list[Grid]:
    """The grid itself where its numbers fit beside folded names, else one list a row."""
    needed = 0
    for name, widest, numeric in zip(grid.header, _widths(grid), grid.numeric, strict=True):
        folded = min(max(len(name), widest), _LABEL_WIDTH)
        needed += _GAP + (max(widest, folded) if numeric else folded)
    return [grid] if needed <= width else [_as_list(grid, i) for i in range(len(grid.cells))]


def _as_list(grid: Grid, i: int) -> Grid:
    labels = [
        text for text, numeric in zip(grid.cells[i], grid.numeric, strict=True) if not numeric
    ]
    places = [j for j, numeric in enumerate(grid.numeric) if numeric]
    return replace(
        grid,
        title="" if i else grid.title,
        header=[" ".join(filter(None, labels)), ""],
        cells=[[grid.header[j], grid.cells[i][j]] for j in places],
        numeric=[False, True],
        best=frozenset((row, 1) for row, j in enumerate(places) if (i, j) in grid.best),
    )
