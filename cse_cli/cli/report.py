"""How a command's table leaves it: to standard output, to a file, and past the gates.

Standard output gets the table in `--format`; `--output FILE` the same table in the format of the
file's extension; `--fail-under` then decides about exit code 1.
"""

import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cse_cli.cli.stdout import print_result
from cse_cli.errors import GateError, UsageError, suggestion

if TYPE_CHECKING:
    import pandas as pd

    from cse_cli.results import Row, Table

EXTENSIONS = {
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".tex": "latex",
    ".txt": "table",
}


def report(
    table: "Table",
    *,
    command: str,
    config: Mapping[str, Any],
    format: str = "table",
    json: bool = False,
    output: Path | None = None,
    fail_under: Sequence[str] | None = None,
    headline: str | None = None,
    title: str = "",
) -> None:
    """Print `table`, write it to `output`, then compare it with the gates `fail_under`.

    `headline` is the metric people are shown and gates are compared with; without it all are.

    Raises:
        UsageError: an unknown extension, or a gate on a task that is not in the table.
        OutputError: the file cannot be written.
        GateError: a score is below its gate; table and file are out by then.
    """
    from cse_cli.render import render
    from cse_cli.results import AVERAGE

    def text(format: str, terminal: bool) -> str:
        """The table in one of the formats."""
        return render(
            table,
            format,
            command=command,
            config=config,
            headline=headline,
            title=title,
            terminal=terminal,
        )

    tasks = dict.fromkeys(row.task for row in table)
    gates = parse_gates(fail_under, tasks, average=AVERAGE in tasks)
    _emit(text, "json" if json else format, output)
    check_gates(table, gates, headline)


def report_frame(
    frame: "pd.DataFrame",
    *,
    command: str,
    config: Mapping[str, Any],
    format: str = "table",
    json: bool = False,
    output: Path | None = None,
    title: str = "",
) -> None:
    """`report` for a frame whose rows are not measured numbers; it has no gates."""
    from cse_cli.render import render_frame

    def text(format: str, terminal: bool) -> str:
        return render_frame(
            frame, format, command=command, config=config, title=title, terminal=terminal
        )

    _emit(text, "json" if json else format, output)


def check_output(output: Path | None) -> None:
    """Refuse an `--output` that cannot be written, before any work is done."""
    from cse_cli.files import check_writable

    if output is not None:
        _extension_format(output)
        check_writable(output)


@dataclass(frozen=True)
class Gate:
    """A score that must be reached: `minimum` is times 100, `task` may be the average."""

    task: str
    minimum: float


def parse_gates(
    values: Sequence[str] | None, tasks: Collection[str], *, average: bool = True
) -> list[Gate]:
    """The gates of `--fail-under`: `75` is about the average, `STS-B=80` about one of `tasks`.

    A single task is its own average; several may have none (`average`). Raises UsageError for what
    is no number, for a task that is not evaluated and for an average that is not there.
    """
    from cse_cli.results import AVERAGE

    known = {task.lower(): task for task in (*tasks, AVERAGE)}
    gates = []
    for value in values or ():
        task, _, number = value.rpartition("=")
        name = known.get((task or AVERAGE).strip().lower())
        if name is None:
            raise UsageError(
                f"--fail-under {value}: '{task}' is not evaluated here, "
                f"{suggestion(task, known.values())}"
            )
        gates.append(Gate(name, _minimum(value, number)))
        if name == AVERAGE and len(tasks) > 1 and not average:
            raise UsageError("--fail-under: these tasks have no average; gate one, as TASK=SCORE")
    return gates


def _minimum(value: str, number: str) -> float:
    try:
        minimum = float(number)
    except ValueError:
        minimum = math.nan
    if not math.isfinite(minimum):
        raise UsageError(f"--fail-under {value}: give a score such as 75, or a task's: STS-B=80")
    return minimum


def check_gates(table: "Table", gates: Sequence[Gate], headline: str | None) -> None:
    """Raise GateError with every score under its gate; NaN is under every gate."""
    failures = []
    for gate in gates:
        for row in _gated_rows(table, gate, headline):
            score = 100 * row.value
            if not score >= gate.minimum:
                failures.append(f"{row.model}, {row.task}: {score:.4f} < {gate.minimum:g}")
    if failures:
        raise GateError(f"below --fail-under: {'; '.join(failures)}")


def _gated_rows(table: "Table", gate: Gate, headline: str | None) -> list["Row"]:
    from cse_cli.results import AVERAGE

    rows = [row for row in table if "subset" not in row.keys]
    if headline is not None:
        rows = [row for row in rows if row.metric == headline]
    tasks = {row.task for row in rows}
    if gate.task == AVERAGE and AVERAGE not in tasks:
        return rows
    return [row for row in rows if row.task == gate.task]


def _emit(text: Callable[[str, bool], str], format: str, output: Path | None) -> None:
    from cse_cli.files import whole_file

    check_output(output)
    print_result(text(format, sys.stdout.isatty()))
    if output is not None:
        with whole_file(output) as file:
            file.write(text(_extension_format(output), False).encode())


def _extension_format(output: Path) -> str:
    extension = output.suffix.lower()
    if extension not in EXTENSIONS:
        raise UsageError(
            f"--output {output}: the extension says the format, one of {', '.join(EXTENSIONS)}"
        )
    return EXTENSIONS[extension]
