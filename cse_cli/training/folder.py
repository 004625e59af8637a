"""The folder of a run: what may be written where, and by whom.

OUT/              the best step's checkpoint
OUT/train/        config.toml, metrics.jsonl, step-N/, state/, and the lock
"""

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import IO

from cse_cli.checkpoint import MANIFEST, PUBLISHING, TRAIN, members
from cse_cli.errors import OutputError, UsageError


class RunFolder:
    """A claimed output folder; the claim ends with `release` or with the process."""

    def __init__(self, root: Path):
        self.root = root
        self.train = root / TRAIN
        self.config = self.train / "config.toml"
        self.metrics = self.train / "metrics.jsonl"
        self.states = self.train / "state"
        self._lock: IO[str] | None = None

    def step(self, number: int) -> Path:
        """The folder of the checkpoint of step `number`."""
        return self.train / f"step-{number}"

    def claim(self, *, overwrite: bool, resume: bool) -> None:
        """Make the folder this process's own.

        Raises UsageError where another process holds it, where it holds a run and neither
        `overwrite` nor `resume` is set, or files that are no run; OutputError where it cannot be
        written.
        """
        if self.root.exists() and not self.root.is_dir():
            raise OutputError(f"{self.root} is a file, not a folder")
        held = self._is_run()
        if self.root.is_dir() and any(self.root.iterdir()) and not held:
            raise UsageError(f"{self.root} holds files that are not a run; choose another --out")
        if resume and not self.config.is_file():
            raise UsageError(f"{self.root} holds no run to --resume")
        if held and not (overwrite or resume):
            raise UsageError(f"{self.root} already holds a run; --resume it or --overwrite it")
        try:
            self.train.mkdir(parents=True, exist_ok=True)
            self._lock = (self.train / "lock").open("a")
            if not os.access(self.root, os.W_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise OutputError(f"{self.root} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{self.root} is being written by another process") from None

    def begin(self, config: str) -> None:
        """Start a new run here: what an earlier one left is removed, and config.toml written.

        Called once everything that a run needs has been found, so that a run which cannot start
        costs nobody a checkpoint.
        """
        self._clear()
        try:
            self.config.write_text(config, encoding="utf-8")
        except OSError as error:
            raise OutputError(f"{self.root} cannot be written: {error.strerror}") from None

    def release(self) -> None:
        """Let others write here; a folder in which no run was begun is removed."""
        if self._lock is None:
            return
        if not self.config.is_file():
            with contextlib.suppress(OSError):
                (self.train / "lock").unlink()
                self.train.rmdir()
                self.root.rmdir()
        self._lock.close()
        self._lock = None

    def _is_run(self) -> bool:
        return self.train.is_dir() or (self.root / MANIFEST).is_file()

    def _clear(self) -> None:
        """Remove the run that is here (its files only), keeping the lock."""
        for path in [*members(self.root), self.root / MANIFEST, self.root / PUBLISHING]:
            path.unlink(missing_ok=True)
        for path in self.train.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()

    def keep_steps(self, *numbers: int | None) -> None:
        """Remove the checkpoints of all other steps."""
        wanted = {self.step(number).name for number in numbers if number is not None}
        for path in self.train.glob("step-*"):
            if path.name not in wanted:
                shutil.rmtree(path, ignore_errors=True)


def free_name(parent: Path, stem: str) -> Path:
    """`parent/stem`, or the first of `stem-2`, `stem-3` … that does not exist yet."""
    candidate, number = parent / stem, 2
    while candidate.exists():
        candidate, number = parent / f"{stem}-{number}", number + 1
    return candidate
