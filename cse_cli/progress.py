"""What a command says while it works: lines and progress bars, on standard error only.

Standard output belongs to data. Bars are drawn on a terminal alone, and colour obeys `NO_COLOR`
(both are rich's doing); in a pipe or a log file every message is one plain line.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
_silent = False


def silence() -> None:
    """Say nothing from now on: for all but one of the processes that work on the same thing."""
    global _silent
    _silent = True


def log(message: str) -> None:
    """One line about what is being done."""
    _line(message)


def warn(message: str) -> None:
    """One line about something the user should look at; the command goes on."""
    _line(message, label="warning: ")


def track(iterable: Iterable[T], total: int | None = None, label: str = "") -> Iterator[T]:
    """Pass `iterable` through, with a bar of `total` items on a terminal; one bar at a time."""
    if _silent or not sys.stderr.isatty():
        yield from iterable
        return
    from rich.console import Console
    from rich.progress import track as bar

    console = Console(stderr=True)
    yield from bar(iterable, label, total=total, console=console, transient=True)


def write_stderr(text: str) -> None:
    """Write and flush `text`, unless nobody can read it: talk is no reason to end a command."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        # What is still buffered would fail once more when Python closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _line(message: str, label: str = "") -> None:
    if _silent:
        return
    if not sys.stderr.isatty():
        write_stderr(f"{label}{message}\n")
        return
    from rich.console import Console
    from rich.text import Text

    # The file is given, not `stderr=True`: while a bar is drawn sys.stderr is rich's own proxy,
    # which puts the line above the bar.
    console = Console(file=sys.stderr, highlight=False)
    console.print(Text.assemble((label, "bold yellow"), message), soft_wrap=True)
