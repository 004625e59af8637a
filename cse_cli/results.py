"""What every task returns: rows of full precision, and nothing printed.

`Row` is one number with everything needed to know what it is; `Table` is a list of them.
Rounding and scaling belong to `render.py`; files and terminals to the command line.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import pandas as pd

AVERAGE = "Avg"
KEYS = ("subset", "pooler", "layer", "threshold", "unit", "classifier", "seed", "k")


@dataclass(frozen=True)
class Row:
    """One measured number: `value` is unscaled and unrounded, `n` the number of items behind it.

    `keys` tells apart rows of one metric (see `KEYS`); a key that does not apply is absent.
    """

    model: str
    task: str
    split: str
    metric: str
    value: float
    n: int
    keys: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The row as one flat dictionary, its keys last."""
        return {
            "model": self.model,
            "task": self.task,
            "split": self.split,
            "metric": self.metric,
            "value": self.value,
            "n": self.n,
            **self.keys,
        }


@dataclass
class Table:
    """Rows in the order in which they were measured."""

    rows: list[Row] = field(default_factory=list)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def add(
        self,
        model: str,
        task: str,
        split: str,
        metric: str,
        value: float,
        n: int,
        **keys: Any,
    ) -> None:
        """Append one row; keys that are None are left out."""
        kept = {key: v for key, v in keys.items() if v is not None}
        self.rows.append(Row(model, task, split, metric, float(value), int(n), kept))

    def extend(self, rows: Iterable[Row]) -> None:
        """Append the rows of another table."""
        self.rows.extend(rows)

    def where(self, **wanted: Any) -> "Table":
        """The rows whose columns equal `wanted`; None asks for rows without that key."""
        return Table(
            [r for r in self.rows if all(r.as_dict().get(k) == v for k, v in wanted.items())]
        )

    def value(self, **wanted: Any) -> float:
        """The value of the single row that matches; KeyError where there is none or several."""
        found = self.where(**wanted).rows
        if len(found) != 1:
            raise KeyError(f"{len(found)} rows match {wanted}")
        return found[0].value

    def add_average(self, model: str, metric: str, tasks: Iterable[str], **keys: Any) -> None:
        """Append the row `Avg`: the mean of the unrounded values of `tasks` (whole-task rows)."""
        values = [
            self.value(model=model, task=t, metric=metric, subset=None, **keys) for t in tasks
        ]
        self.add(model, AVERAGE, "", metric, fmean(values), len(values), **keys)

    @property
    def frame(self) -> pd.DataFrame:
        """The table as a pandas frame, one column a key."""
        return pd.DataFrame([row.as_dict() for row in self.rows])
