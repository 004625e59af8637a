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

from cse_cli.checkpoint import MANIFEST, PUBLISHING, TRAIN, manifest, members
from cse_cli.errors import InputError, OutputError, UsageError
from cse_cli.files import whole_file

LOCK = "lock"


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
        if self.root.is_dir() and not held and not self._is_free():
            raise UsageError(f"{self.root} holds files that are not a run; choose another --out")
        if resume and not self.config.is_file():
            raise UsageError(f"{self.root} holds no run to --resume")
        if held and not (overwrite or resume):
            raise UsageError(f"{self.root} already holds a run; --resume it or --overwrite it")
        try:
            self.train.mkdir(parents=True, exist_ok=True)
            lock = (self.train / LOCK).open("a")
            if not os.access(self.root, os.W_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise OutputError(f"{self.root} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()  # the folder is the other's: nothing to release
            raise UsageError(f"{self.root} is being written by another process") from None
        self._lock = lock
        for left in [*self.train.glob(".step-*"), *self.states.glob(".step-*")]:
            shutil.rmtree(left, ignore_errors=True)  # what a killed process was writing

    def begin(self, config: str) -> None:
        """Start a new run here: what an earlier one left is removed, and config.toml written.

        Called once everything that a run needs has been found, so that a run which cannot start
        costs nobody a checkpoint.
        """
        try:
            self._clear()
        except OSError as error:
            raise OutputError(f"{self.root} cannot be cleared: {error.strerror}") from None
        with whole_file(self.config) as file:
            file.write(config.encode())
            file.flush()
            os.fsync(file.fileno())

    def release(self) -> None:
        """Let others write here; a folder in which no run was begun is removed."""
        if self._lock is None:
            return
        if not self.config.is_file():
            with contextlib.suppress(OSError):
                (self.train / LOCK).unlink()
                self.train.rmdir()
                self.root.rmdir()
        self._lock.close()
        self._lock = None

    def _is_run(self) -> bool:
        return self.config.is_file() or (self.root / MANIFEST).is_file()

    def _is_free(self) -> bool:
        """Whether nothing is here but what a process leaves that is killed before its run began."""
        if not all(path == self.train and path.is_dir() for path in self.root.iterdir()):
            return False
        left = self.train.iterdir() if self.train.exists() else ()
        return all(path.name == LOCK or path.name.startswith(".") for path in left)

    def _clear(self) -> None:
        """Remove the run that is here, its files only, keeping the lock.

        config.toml goes last: until then it is a run, which can be overwritten again.
        """
        for path in [*self.train.glob("step-*"), self.states]:
            if path.exists():
                shutil.rmtree(path)
        own = [*self._published(), self.root / PUBLISHING, self.root / MANIFEST]
        for path in [*own, self.metrics, self.config]:
            path.unlink(missing_ok=True)

    def _published(self) -> list[Path]:
        """The checkpoint's files at the root, as its `cse.json` lists them."""
        try:
            listed = manifest(self.root)["files"]
        except InputError:
            return []
        return [path for path in members(self.root) if str(path.relative_to(self.root)) in listed]

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
