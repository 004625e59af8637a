"""Standard output, which carries data and nothing else."""

import contextlib
import os
import sys

from cse_cli.errors import OutputError


class ReaderGone(Exception):
    """Nobody reads standard output any more (a closed pipe): a command that streams ends quietly.

    No OSError, for Typer takes a broken pipe for itself and leaves with exit code 1.
    """


def write_stdout(text: str) -> None:
    """Write and flush `text`; characters that the terminal's encoding lacks become `?`.

    Raises OutputError for a full disk, ReaderGone for a closed pipe.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered would fail once more when Python closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise ReaderGone from None
        raise OutputError(f"cannot write standard output: {error.strerror}") from error


def print_result(text: str) -> None:
    """`write_stdout` of a result that has files and gates beside it: without a reader they stay."""
    with contextlib.suppress(ReaderGone):
        write_stdout(text)
