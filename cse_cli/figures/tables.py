"""From the rows of a table to what a panel draws."""

from typing import Any

from cse_cli.data.builtin import DEMO_TASK
from cse_cli.figures.panels import Series
from cse_cli.figures.style import Look
from cse_cli.results import Row, Table


def models(table: Table) -> list[str]:
    """The models of a table in order of appearance: series take their colours by it."""
    return list(dict.fromkeys(row.model for row in table))


def task_names(table: Table) -> list[str]:
    """What was measured, for a caption: `STS-B test`; the demo set says what it is."""
    known = {DEMO_TASK: "Built-in demo set, not a benchmark"}
    names = [known.get(row.task, f"{row.task} {row.split}".strip()) for row in table]
    return list(dict.fromkeys(names))


def series(table: Table, metric: str, key: str, *, label: str, look: Look, **wanted: Any) -> Series:
    """The curve of `metric` over the key `key`, with the band `metric_low` .. `metric_high`.

    `wanted` are the columns that the rows must have. The rows are in the order of the curve.
    """

    def rows(name: str) -> list[Row]:
        found = table.where(metric=name, **wanted).rows
        return [row for row in found if key in row.keys]

    points = rows(metric)
    low, high = rows(f"{metric}_low"), rows(f"{metric}_high")
    return Series(
        label=label,
        look=look,
        x=[row.keys[key] for row in points],
        y=[row.value for row in points],
        low=[row.value for row in low],
        high=[row.value for row in high],
    )
