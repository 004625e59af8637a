"""Groups of options: each field is an option, and the command gets the group."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from cse_cli.cli.groups import grouped


@dataclass(frozen=True)
class Size:
    wide: Annotated[int, typer.Option("--wide", help="How wide.")] = 3
    tall: Annotated[int | None, typer.Option("--tall")] = None


@dataclass(frozen=True)
class Box(Size):
    name: Annotated[str, typer.Option("--name")] = "box"


@grouped
def show(files: list[str], loud: bool = False, *, box: Box, size: int = 0) -> None:
    """Show a box."""
    typer.echo(f"{files} {loud} {box} {size}")


app = typer.Typer()
app.command()(show)


def test_fields_are_options_and_come_back_as_the_group() -> None:
    plain = CliRunner().invoke(app, ["a", "b"])
    assert plain.stdout == f"['a', 'b'] False {Box()} 0\n"
    words = ["a", "--loud", "--wide", "5", "--tall", "2", "--name", "x", "--size", "7"]
    given = CliRunner().invoke(app, words)
    assert given.stdout == f"['a'] True {Box(5, 2, 'x')} 7\n"


def test_help_and_errors_are_those_of_the_options() -> None:
    shown = CliRunner().invoke(app, ["--help"], terminal_width=100).stdout
    assert "Show a box." in shown
    assert "How wide." in shown
    assert CliRunner().invoke(app, ["a", "--wide", "x"]).exit_code == 2
