"""How a command ends: exit codes and one clear line, for every way it can fail."""

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer.core

from cse_cli.cli.stdout import ReaderGone, print_result
from cse_cli.errors import CseError, UsageError
from cse_cli.memory import out_of_memory
from cse_cli.progress import write_stderr

INTERNAL = 70


class Interrupted(BaseException):
    """A run was stopped by a signal, after saving what it had; `code` is 130 or 143."""

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code


class CseGroup(typer.core.TyperGroup):
    """The command group: runs a command and turns whatever it raises into an exit code."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run the command line `args`; always ends by SystemExit."""
        options["standalone_mode"] = False
        run = super().main
        words = sys.argv[1:] if args is None else list(args)

        def checked() -> Any:
            _check_text(words)
            return run(words, *rest, **options)

        _open_streams()
        sys.exit(guarded(checked))


def guarded(run: Callable[[], Any]) -> int:
    """The exit code of `run()`: 0, or that of what it raised, told in one line on stderr."""
    try:
        result = run()
        return result if isinstance(result, int) else 0
    except CseError as error:
        return _say(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", 130)
    except Interrupted as stop:
        return _say("interrupted", stop.code)
    except typer.Exit as stop:
        return int(stop.exit_code)
    except ReaderGone:
        return 0
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # of a help page; Typer makes it a 1
            return 0
        raise
    except Exception as error:
        told = getattr(error, "format_message", None)
        if told is not None:  # the command-line parser's own errors
            return _usage(told(), getattr(error, "exit_code", 2))
        if out_of_memory(error):
            return _say("out of memory; encoding needs less with a lower --batch-tokens", 2)
        return _bug(error)


def _open_streams() -> None:
    """Put the null device where a standard stream is closed (`cse … >&-`)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _check_text(words: Sequence[str]) -> None:
    """UsageError for an argument with bytes that are no text: no file or table could hold it."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"the argument {word!a} is not text in {sys.getfilesystemencoding()}"
            ) from None


def _usage(message: str, code: int) -> int:
    """A parser error in one line; asking for nothing at all shows the help instead."""
    if not message or message.lstrip().startswith("Usage"):
        if message:
            print_result(message + "\n")
        return code
    return _say(" ".join(message.split()), code)


def _say(message: str, code: int) -> int:
    if message.strip():
        write_stderr(f"error: {' '.join(message.split())}\n")
    return code


def _bug(error: Exception) -> int:
    """Our own fault: the traceback goes to a file, the line says which."""
    handle, name = tempfile.mkstemp(prefix="cse-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    text = f"{type(error).__name__}: {error}"
    return _say(f"a bug in cse ({text}); the traceback is in {Path(name)}", INTERNAL)
