"""Tables laid out for people: finished strings in rows and columns, the best of each marked."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from cse_cli.results import AVERAGE, Row, Table

_PERCENT = ("spearman", "pearson", "accuracy", "dev_accuracy", "dev_pearson", "f1", "recall")
_LOWER_IS_BETTER = ("alignment", "uniformity")
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Grid:
    """What terminal, Markdown and LaTeX share: text cells, `best` ones by (row, column)."""

    title: str
    header: list[str]
    cells: list[list[str]]
    numeric: list[bool]
    best: frozenset[tuple[int, int]] = field(default=frozenset())


def percent(metric: str) -> bool:
    """Whether people read the metric times 100: correlations, accuracies, recalls."""
    return metric.startswith(_PERCENT)


def shown(value: float, metric: str) -> str:
    """One value for people: two decimals of a percentage, else four, none from 1000 up."""
    if math.isnan(value):
        return "nan"
    if percent(metric):
        return f"{100 * value:.2f}"
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:,.0f}"


def table_grids(table: Table, headline: str | None = None, title: str = "") -> list[Grid]:
    """Models as rows and tasks as columns; then, where there are subset rows, those in a second.

    Keys that differ between rows (pooler, layer, …) get a column of their own beside the model.
    """
    whole = [row for row in table if "subset" not in row.keys]
    if headline is not None:
        whole = [row for row in whole if row.metric == headline]
    if len({row.task for row in whole} - {AVERAGE}) == 1:  # the average would say it twice
        whole = [row for row in whole if row.task != AVERAGE]
    parts = [row for row in table if "subset" in row.keys]
    if headline is not None:  # `spearman` of a subset goes with the headline `spearman_all`
        parts = [row for row in parts if headline.startswith(row.metric)]
    grids = [_models_by_tasks(whole, title)] if whole else []
    return [*grids, _subsets_by_models(parts, "" if whole else title)] if parts else grids


def frame_grid(frame: pd.DataFrame, title: str = "") -> Grid:
    """A frame as it is: numbers to the right, floats with four decimals, missing cells empty."""
    numeric = [pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]
    cells = [[_text(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    return Grid(title, [str(name) for name in frame.columns], cells, numeric)


def _models_by_tasks(rows: Sequence[Row], title: str) -> Grid:
    keys = _varying(rows)
    tasks, metrics = _distinct(row.task for row in rows), _distinct(row.metric for row in rows)

    def name(column: Key) -> str:
        task, metric = column
        if len(metrics) == 1:
            return str(task)
        return str(metric) if len(tasks) == 1 else f"{task} {metric}"

    return _pivot(
        rows,
        title=title,
        labels=["Model", *(key.capitalize() for key in keys)],
        line=lambda row: (row.model, *(row.keys.get(key) for key in keys)),
        column=lambda row: (row.task, row.metric),
        name=name,
        contest=lambda row: (row.task, row.metric),
    )


def _subsets_by_models(rows: Sequence[Row], title: str) -> Grid:
    keys = [key for key in _varying(rows) if key != "subset"]
    several = len({row.metric for row in rows}) > 1
    return _pivot(
        rows,
        title=title,
        labels=["Task", "Subset", "n"],
        line=lambda row: (row.task, row.keys["subset"], row.n),
        column=lambda row: (
            row.model,
            *(row.keys.get(key) for key in keys),
            row.metric if several else None,
        ),
        name=lambda column: " ".join(str(part) for part in column if part is not None),
        contest=lambda row: (row.task, row.keys["subset"], row.metric),
    )


def _pivot(
    rows: Sequence[Row],
    *,
    title: str,
    labels: list[str],
    line: Callable[[Row], Key],
    column: Callable[[Row], Key],
    name: Callable[[Key], str],
    contest: Callable[[Row], Key],
) -> Grid:
    """Rows laid out by their `line` and `column`; the best of each `contest` is marked."""
    lines, columns = _distinct(map(line, rows)), _distinct(map(column, rows))
    place = {(line(row), column(row)): row for row in rows}
    winners = _winners(rows, contest)
    cells: list[list[str]] = []
    best: set[tuple[int, int]] = set()
    for i, key in enumerate(lines):
        found = [place.get((key, other)) for other in columns]
        best |= {(i, len(labels) + j) for j, row in enumerate(found) if id(row) in winners}
        values = ["" if row is None else shown(row.value, row.metric) for row in found]
        cells.append([*map(_text, key), *values])
    header = [*labels, *map(name, columns)]
    numeric = [label == "n" for label in labels] + [True] * len(columns)
    return Grid(title, header, cells, numeric, frozenset(best))


def _winners(rows: Sequence[Row], contest: Callable[[Row], Key]) -> set[int]:
    """`id` of every row that, as shown, is the best of its contest; none where all are alike."""
    contests: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        if percent(row.metric) or row.metric in _LOWER_IS_BETTER:
            contests[contest(row)].append(row)
    winners: set[int] = set()
    for entrants in contests.values():
        values = [row.value for row in entrants if not math.isnan(row.value)]
        if len({shown(row.value, row.metric) for row in entrants}) < 2 or not values:
            continue
        metric = entrants[0].metric
        top = shown(min(values) if metric in _LOWER_IS_BETTER else max(values), metric)
        winners |= {id(row) for row in entrants if shown(row.value, metric) == top}
    return winners


def _varying(rows: Sequence[Row]) -> list[str]:
    """The keys that tell rows apart, in order of appearance."""
    names = _distinct(key for row in rows for key in row.keys)
    return [name for name in names if len({row.keys.get(name) for row in rows}) > 1]


def _distinct(items: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


def _text(value: object) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)
