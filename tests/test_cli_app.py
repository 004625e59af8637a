"""The command line as a whole: what is said, where, and with which exit code."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cse_cli import __version__
from cse_cli.cli import group
from cse_cli.cli.app import COMMANDS, app
from cse_cli.errors import CseError, DivergedError, GateError, InputError, OutputError, UsageError


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def test_version() -> None:
    assert run("--version") == (0, f"cse {__version__}\n", "")


@pytest.mark.parametrize("name", [name for name, _, _ in COMMANDS])
def test_every_command_has_help(name: str) -> None:
    code, out, _ = run(*name.split(), "--help")
    assert code == 0
    assert "Usage" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "Did you mean 'train'?"),
        (["train", "--metod", "sscl"], "--method"),
        (["train", "--batch-size", "many"], "--batch-size"),
        (["train", "--method", "simsce"], "did you mean 'simcse'"),
        (["train", "--recipe", "dem"], "did you mean 'demo'"),
        (["eval-sts"], "Missing argument"),
        (["methods", "ssl"], "did you mean 'sscl'"),
    ],
)
def test_a_typing_error_gets_one_line_and_exit_code_2(words: list[str], said: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert err.startswith("error: ")


@pytest.mark.parametrize(
    ("error", "code"),
    [(GateError, 1), (UsageError, 2), (InputError, 3), (DivergedError, 4), (OutputError, 5)],
)
def test_each_kind_of_error_has_its_exit_code(error: type[CseError], code: int) -> None:
    def fail() -> None:
        raise error("what\nhappened")

    assert group.guarded(fail) == code


def test_a_bug_is_one_line_that_names_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert group.guarded(lambda: 1 / 0) == 70
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    log = said.split("the traceback is in ")[1].strip()
    with open(log, encoding="utf-8") as file:
        assert "ZeroDivisionError" in file.read()
    os.unlink(log)


def test_no_memory_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for full in (lambda: torch.empty(1 << 60), lambda: np.empty(1 << 55)):
        assert group.guarded(full) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: out of memory")
        assert "--batch-tokens" in said


def test_interrupts_have_their_codes() -> None:
    def stop(error: BaseException) -> int:
        def fail() -> None:
            raise error

        return group.guarded(fail)

    assert stop(KeyboardInterrupt()) == 130
    assert stop(group.Interrupted(143)) == 143


def shell(command: str) -> subprocess.CompletedProcess[str]:
    command = f'cse() {{ {sys.executable} -m cse_cli "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True)


@pytest.mark.parametrize("words", ["methods", "--help"])
def test_a_closed_pipe_ends_quietly(words: str) -> None:
    result = shell(f"set -o pipefail; cse {words} | sleep 0")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("command", "code", "out"),
    [
        ("cse methods simcse >&-", 0, ""),
        ("cse methods simcse 2>&- <&- | head -n 1", 0, "simcse\n"),
        ("cse methods ssl >&- 2>&-", 2, ""),
        ("cse methods ssl 2> /dev/full", 2, ""),
    ],
)
def test_closed_streams_change_nothing(command: str, code: int, out: str) -> None:
    result = shell(command)
    assert (result.returncode, result.stdout, result.stderr) == (code, out, "")


def test_an_argument_that_is_no_text_is_told_before_any_work() -> None:
    code, out, err = run("length-bias", "m", "--label", "caf\udce9")
    assert (code, out) == (2, "")
    assert err == r"error: the argument 'caf\udce9' is not text in utf-8" + "\n"
