"""Writing a file so that it is there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cse_cli.errors import OutputError


def check_writable(path: str | Path) -> Path:
    """`path`, if a file can be made there: raises OutputError (exit 5) before any work is done."""
    path = Path(path)
    try:
        if path.is_dir():
            raise OutputError(f"cannot write {path}: it is a folder")
        if not path.parent.is_dir():
            raise OutputError(f"cannot write {path}: there is no folder {path.parent}")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise OutputError(f"cannot write {path}: permission denied")
    except OSError as error:  # a name that is too long
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    return path


@contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that takes its name when the block ends well, and leaves nothing otherwise.

    A device or a pipe (`/dev/null`) is written directly. A full disk, a missing or read-only
    folder is an OutputError.
    """
    target = check_writable(path).resolve()
    try:
        if target.exists() and not target.is_file():
            with open(target, "wb") as file:
                yield file
            return
        temporary = target.with_name(f".{target.name[:50]}.{os.getpid()}.part")  # never too long
        try:
            with open(temporary, "wb") as file:
                yield file
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
