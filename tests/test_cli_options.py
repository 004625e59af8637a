"""The shared options name exactly what the rest of the package knows, and complete it.

They repeat names because importing them would make `cse --help` import torch.
"""

import pytest
import typer
from typer.testing import CliRunner

from cse_cli.cli import eval_sts, options
from cse_cli.cli.app import app as cse
from cse_cli.cli.options import choice, listed
from cse_cli.encoder import DTYPES
from cse_cli.errors import UsageError
from cse_cli.pooling import POOLER_LAYERS
from cse_cli.render import FORMATS
from cse_cli.tasks.sts import AGGREGATIONS


def test_names_are_those_of_the_package() -> None:
    assert tuple(POOLER_LAYERS) == options.POOLERS
    assert FORMATS == options.FORMATS
    assert tuple(DTYPES) == options.PRECISIONS
    assert AGGREGATIONS == eval_sts.AGGREGATIONS


def test_a_choice_completes_and_checks() -> None:
    made = choice("--pooler", options.POOLERS)
    assert made["autocompletion"]("m") == ["mean", "max"]
    app = typer.Typer()

    @app.command()
    def show(pooler: options.Pooler = None) -> None:
        typer.echo(pooler)

    assert CliRunner().invoke(app, ["--pooler", "max"]).stdout == "max\n"
    assert CliRunner().invoke(app, []).stdout == "\n"
    with pytest.raises(UsageError, match="--pooler 'first_mean' is unknown: did you mean"):
        CliRunner().invoke(app, ["--pooler", "first_mean"], catch_exceptions=False)


def test_several_names_are_listed_alike_everywhere() -> None:
    assert listed("--tasks", None) == []
    assert listed("--tasks", ["STS-B,", " a , b", "c"]) == ["STS-B", "a", "b", "c"]
    for blank in ("", ","):
        with pytest.raises(UsageError, match="--tasks names nothing"):
            listed("--tasks", [blank])


@pytest.mark.parametrize(
    "words",
    [
        ("eval-sts", "--tasks"),
        ("eval-transfer", "--tasks"),
        ("probe-linguistic", "--tasks"),
        ("length-bias", "--tasks"),
        ("geometry", "--view"),
    ],
)
def test_an_option_that_names_nothing_is_told(words: tuple[str, str]) -> None:
    command, option = words
    done = CliRunner().invoke(cse, [command, "no/such/model", option, ""])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{option} names nothing" in done.stderr
