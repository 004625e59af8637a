"""Every way a command can fail that is not our own bug, each with its exit code.

A command raises one of these with a single clear line; the command line prints it to standard
error and leaves with `exit_code`. A user never sees a traceback for them.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class CseError(Exception):
    """Base of all errors that are told to the user in one line."""

    exit_code = 70


class GateError(CseError):
    """A score asked for with `--fail-under` was not reached (exit 1)."""

    exit_code = 1


class UsageError(CseError):
    """A wrong option, name, value or configuration, or a taken output folder (exit 2)."""

    exit_code = 2


class InputError(CseError):
    """Data, a model, a checkpoint or an index is missing, unreadable or unusable (exit 3)."""

    exit_code = 3


class DivergedError(CseError):
    """Training broke down: a non-finite loss or a collapsed space (exit 4)."""

    exit_code = 4


class OutputError(CseError):
    """The output cannot be written: full, read-only, not a folder (exit 5)."""

    exit_code = 5


def first_line(error: Exception) -> str:
    """The first line of what `error` says, or its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def suggestion(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?`, or the list of `known` names where nothing is near `name`."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names)}"
