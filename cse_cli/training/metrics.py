"""`metrics.jsonl`: one line a step, always written; and the guards that read it as it grows."""

import json
import math
from pathlib import Path
from typing import IO, Any

from cse_cli.errors import DivergedError, OutputError
from cse_cli.files import whole_file

COLLAPSE_COSINE = 0.99  # negatives nearer than this to each other, on average …
COLLAPSE_STEPS = 20  # … for so many steps in a row: the space has collapsed


class MetricsFile:
    """Appends rows to `metrics.jsonl`; `resume_at` drops what was written after that step."""

    def __init__(self, path: Path, resume_at: int = 0):
        self.path = path
        self._file: IO[str] | None = None
        kept = []
        if resume_at and path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    if json.loads(line)["step"] <= resume_at:
                        kept.append(line + "\n")
                except (ValueError, KeyError, TypeError):
                    break  # the line that was being written when the run was killed
        with whole_file(path) as file:
            file.write("".join(kept).encode())
        self._file = path.open("a", encoding="utf-8")

    def write(self, row: dict[str, Any]) -> None:
        """One step's line; non-finite numbers become null, so that the file stays JSON."""
        clean = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        assert self._file is not None
        try:
            self._file.write(json.dumps(clean) + "\n")
            self._file.flush()
        except OSError as error:
            raise OutputError(f"{self.path} cannot be written: {error.strerror}") from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class Guard:
    """Stops a run that has broken down; its last good checkpoint stays.

    `gradients`: whether a non-finite gradient counts as broken, too.
    """

    def __init__(self, *, gradients: bool = True, close_steps: int = 0) -> None:
        self.gradients = gradients
        self.close_steps = close_steps  # in a row, up to now

    def check(self, row: dict[str, Any]) -> None:
        """Raise DivergedError for a non-finite loss, or once the space has collapsed."""
        bad_gradient = self.gradients and not math.isfinite(row["gradient_norm"])
        if bad_gradient or not math.isfinite(row["loss"]):
            what = "gradient" if math.isfinite(row["loss"]) else "loss"
            raise DivergedError(
                f"step {row['step']}: the {what} is not finite; lower --learning-rate, or look at "
                "the data with --dry-run (the best checkpoint, if any, is kept)"
            )
        near = row["negative_cosine"] > COLLAPSE_COSINE
        self.close_steps = self.close_steps + 1 if near else 0
        if self.close_steps >= COLLAPSE_STEPS:
            raise DivergedError(
                f"step {row['step']}: the space has collapsed, the mean cosine of negatives stood "
                f"above {COLLAPSE_COSINE} for {COLLAPSE_STEPS} steps; lower --learning-rate or "
                "look for near-duplicates with --dry-run (the best checkpoint, if any, is kept)"
            )
