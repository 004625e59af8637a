"""What `cse train` shows while it trains: a live table on a terminal, plain lines off it."""

import sys
import time
from typing import Any

from cse_cli.progress import log

LINES_EVERY = 10.0  # seconds between log lines where there is no terminal


class TrainView:
    """Call it with each step's row of `metrics.jsonl`; use it as a context.

    `shown` is off in all but one of several processes.
    """

    def __init__(self, total: int | None = None, *, shown: bool = True):
        self.total = total
        self._terminal = shown and sys.stderr.isatty()
        self._live: Any = None
        self._said = 0.0

    def __enter__(self) -> "TrainView":
        if self._terminal:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, row: dict[str, Any]) -> None:
        """Show one step's numbers."""
        if self._live is not None:
            self._live.update(self._table(row))
            if "dev" in row:
                self._live.console.print(_line(row, self.total), highlight=False)
            return
        now = time.monotonic()
        if "dev" in row or now - self._said > LINES_EVERY or row["step"] == self.total:
            self._said = now
            log(_line(row, self.total))

    def _table(self, row: dict[str, Any]) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=self.total or 1, completed=row["step"], width=40)
        table.add_row(f"step {row['step']}/{self.total}", bar)
        for key, value in row.items():
            if key != "step" and isinstance(value, float):
                table.add_row(key, f"{value:.5g}")
        return table


def _line(row: dict[str, Any], total: int | None) -> str:
    dev = f"  dev {100 * row['dev']:.2f}" if row.get("dev") is not None else ""
    return (
        f"step {row['step']}/{total}  loss {row['loss']:.4f}  lr {row['lr']:.2e}"
        f"  {row['sentences_per_second']:.0f} sentences/s{dev}"
    )
