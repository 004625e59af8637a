"""The curves of training runs, from the `metrics.jsonl` that `cse train` always writes.

A run is its output folder. The folder of a run over several seeds (`seed-0/`, `seed-1/`, …) counts
as one run: the mean over the seeds at the steps that all of them logged, from the lowest to the
highest seed as its band.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from cse_cli.errors import InputError
from cse_cli.progress import warn
from cse_cli.results import Table

METRICS_FILE = Path("train") / "metrics.jsonl"
Log = dict[str, dict[int, float]]  # metric -> step -> value
TASK = "training"


def training_curves(folder: Path, *, model: str) -> Table:
    """Every number that the run logged: one row a metric and step (key k).

    Several seeds give `<metric>_low` and `<metric>_high` too, and `n` counts them. `dev_best` is
    the best dev score, its k the first step that reached it.
    Raises InputError where there is no log, or a line of it cannot be read.
    """
    logs = [read_log(path) for path in log_files(folder)]
    table = Table()
    for metric in dict.fromkeys(name for log in logs for name in log):
        present = [log.get(metric, {}) for log in logs]
        for step in sorted(set.intersection(*map(set, present))):
            values = [one[step] for one in present]
            _add(table, model, metric, fmean(values), len(values), step)
            if len(values) > 1:
                _add(table, model, f"{metric}_low", min(values), len(values), step)
                _add(table, model, f"{metric}_high", max(values), len(values), step)
    dev = table.where(metric="dev").rows
    if dev:
        best = max(dev, key=lambda row: row.value)
        _add(table, model, "dev_best", best.value, best.n, best.keys["k"])
    return table


def log_files(folder: Path) -> list[Path]:
    """The logs of a run's folder: its own, or those of its seeds."""
    own = folder / METRICS_FILE
    if own.is_file():
        return [own]
    seeds = sorted(
        (path for path in folder.glob("seed-*") if (path / METRICS_FILE).is_file()),
        key=lambda path: (len(path.name), path.name),
    )
    if not seeds:
        missing = f"no {METRICS_FILE} in it" if folder.is_dir() else "no such folder"
        raise InputError(f"{folder}: {missing}; name the --out folder of a `cse train` run")
    return [seed / METRICS_FILE for seed in seeds]


def read_log(path: Path) -> Log:
    """The finite numbers of a log by metric and step; the last line may be half written."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"cannot read {path}: {reason}") from error
    half = lines.pop()
    log: Log = {}
    for number, line in enumerate(lines, start=1):
        row = _row(path, number, line)
        step = row.pop("step")
        for metric, value in row.items():
            if isinstance(value, int | float) and math.isfinite(value):
                log.setdefault(metric, {})[int(step)] = float(value)
    if half.strip():
        warn(f"{path}: its last line is not complete (is the run going on?) and was left out")
    if not log:
        raise InputError(f"{path} holds no step yet")
    return log


def last(table: Table, metric: str) -> tuple[float, int] | None:
    """The last logged value of `metric` and its step."""
    rows: Sequence = table.where(metric=metric).rows
    return (rows[-1].value, rows[-1].keys["k"]) if rows else None


def _row(path: Path, number: int, line: str) -> dict:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise InputError(f"{path}, line {number}: not an object of `cse train` with a whole `step`")
    return row


def _add(table: Table, model: str, metric: str, value: float, n: int, step: int) -> None:
    split = "dev" if metric.startswith("dev") else "train"
    table.add(model, TASK, split, metric, value, n, k=step)
