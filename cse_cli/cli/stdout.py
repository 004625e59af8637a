"""Standard output, which carries data and nothing else."""

import os
import sys

from cse_cli.errors import OutputError


def write_stdout(text: str) -> None:
    """Write and flush `text`; characters that the terminal's encoding lacks become `?`.

    A full disk is an OutputError; a closed pipe stays a BrokenPipeError, which ends a command
    quietly.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is still buffered would fail once more when Python closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputError(f"cannot write standard output: {error.strerror}") from error
