"""A table as text: for the terminal, JSON, CSV, Markdown or LaTeX.

This is the only place that scales by 100 and rounds. JSON and CSV hold one measured number a row,
unscaled and unrounded, for machines; the other three are for people: models as rows, tasks as
columns, correlations and accuracies times 100.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from cse_cli.errors import UsageError, suggestion
from cse_cli.render.document import to_json
from cse_cli.render.grids import Grid, frame_grid, table_grids
from cse_cli.render.markup import to_latex, to_markdown
from cse_cli.render.terminal import to_text
from cse_cli.results import Table

__all__ = ["FORMATS", "render", "render_frame"]

FORMATS = ("table", "json", "csv", "markdown", "latex")


def render(
    table: Table,
    format: str,
    *,
    command: str = "",
    config: Mapping[str, Any] | None = None,
    headline: str | None = None,
    title: str = "",
    terminal: bool = False,
) -> str:
    """The table in one of `FORMATS`, ending in a newline.

    `headline` is the only metric that the formats for people show (all, where it is None), and
    `title` stands above them; `command` and `config` go into JSON. `terminal` fits the text to
    the terminal on standard output, with its colours; otherwise it is as wide as it needs to be.
    """
    if format == "json":
        return to_json([row.as_dict() for row in table], command, config or {})
    if format == "csv":
        return table.frame.to_csv(index=False, lineterminator="\n")
    return _for_people(table_grids(table, headline, title), format, terminal)


def render_frame(
    frame: pd.DataFrame,
    format: str,
    *,
    command: str = "",
    config: Mapping[str, Any] | None = None,
    title: str = "",
    terminal: bool = False,
) -> str:
    """A frame whose rows are not measured numbers (methods, files), as `render` does a table."""
    if format == "json":
        return to_json(frame.to_dict("records"), command, config or {})
    if format == "csv":
        return frame.to_csv(index=False, lineterminator="\n")
    return _for_people([frame_grid(frame, title)], format, terminal)


def _for_people(grids: list[Grid], format: str, terminal: bool) -> str:
    if format == "table":
        return to_text(grids, terminal=terminal)
    if format == "markdown":
        return "\n".join(to_markdown(grid) for grid in grids)
    if format == "latex":
        return "\n".join(to_latex(grid) for grid in grids)
    raise UsageError(f"unknown format '{format}': {suggestion(format, FORMATS)}")
